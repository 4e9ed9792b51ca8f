"""Known weaknesses of what the check installs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Of the services that know weaknesses; both are asked over the network.
SERVICES = ("pypi", "osv")


def test_every_package_that_is_needed_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {
        re.split(r"[=<>;\[ ]", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    wanted += project["optional-dependencies"]["auth"]
    names = {re.split(r"[=<>;\[ ]", line)[0].lower().replace("_", "-") for line in wanted}
    assert not names - pins


def test_no_package_has_a_known_weakness() -> None:
    pytest.importorskip("pip_audit", reason="pip-audit is not installed")
    pinned = ROOT / "constraints.txt"
    reasons = []
    for service in SERVICES:
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(pinned)]
        command += ["--no-deps", "--disable-pip", "--format", "json", "--vulnerability-service"]
        try:
            done = subprocess.run(
                [*command, service, "--timeout", "10", "--progress-spinner", "off"],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reasons.append(f"{service}: no answer within 120 s")
            continue
        try:
            found = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            reasons.append(
                f"{service}: {(done.stderr.strip() or 'no answer').splitlines()[-1][:200]}"
            )
            continue
        weak = {one["name"]: [v["id"] for v in one["vulns"]] for one in found if one.get("vulns")}
        assert not weak
        # A mirror of the index may know packages and none of their weaknesses.
        asked = [one for one in found if "skip_reason" not in one]
        if len(asked) > len(found) // 2:
            return
        reasons.append(f"{service} knows of {len(asked)} of {len(found)} packages")
    pytest.skip(f"no database of weaknesses can be reached ({'; '.join(reasons)})")
