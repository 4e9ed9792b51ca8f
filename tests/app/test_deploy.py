"""What is shipped for running it passes the linter of its kind, and names what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from steptax.app.cli import COMMANDS
from steptax.app.settings import Settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
UNITS = [path for path in FILES if path.suffix in (".service", ".timer")]
YAML = [path for path in FILES if path.suffix in (".yaml", ".yml")]
RULES = (
    "{extends: default, rules: {document-start: disable, line-length: {max: 100}, "
    "braces: {max-spaces-inside: 0}}}"
)


def tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def passes(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_passes_hadolint() -> None:
    passes(tool("hadolint"), str(DEPLOY / "Dockerfile"))


def test_every_yaml_passes_yamllint() -> None:
    assert len(YAML) >= 3
    passes(tool("yamllint"), "--strict", "-d", RULES, *map(str, YAML))


def test_the_manifests_are_what_kubernetes_knows() -> None:
    passes(tool("kubernetes-validate"), "--strict", str(DEPLOY / "kubernetes" / "steptax.yaml"))


def test_prometheus_takes_its_configuration() -> None:
    passes(tool("promtool"), "check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml"))


def test_systemd_takes_every_unit(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for path in UNITS:  # the program is not where it will be installed
        text = path.read_text().replace("/opt/steptax/bin/steptax", "/bin/true")
        (tmp_path / path.name).write_text(text)
    for path in UNITS:
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(tmp_path / path.name)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system", "PATH": "/usr/bin:/bin"},
        )
        said = [line for line in done.stderr.splitlines() if path.name in line]
        assert not said, said


def test_every_command_and_variable_that_they_name_exists() -> None:
    commands = {name for names in COMMANDS.values() for name in names}
    known = {f"STEPTAX_{name.upper()}" for name in Settings.model_fields}
    for path in FILES:
        text = path.read_text()
        assert set(re.findall(r"\bSTEPTAX_[A-Z_]+\b", text)) <= known, path.name
        for line in text.splitlines():
            if line.startswith("ExecStart="):
                assert line.split()[1] in commands, line
    manifests = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "steptax.yaml").read_text()))
    (deployment,) = [one for one in manifests if one["kind"] == "Deployment"]
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        assert container["args"][1] in commands
        assert container["image"] == f"steptax:{version('steptax')}"


def test_nothing_runs_as_root_and_pages_are_behind_a_login() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert "\nUSER 10001" in image
    for path in (p for p in UNITS if p.suffix == ".service"):
        assert "\nUser=steptax\n" in path.read_text()
        assert "NoNewPrivileges=true" in path.read_text()
    for path in FILES:
        assert "--anyone-may-read" not in path.read_text(), path.name
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["services"]["pages"]["environment"]["STEPTAX_ACCESS"]
