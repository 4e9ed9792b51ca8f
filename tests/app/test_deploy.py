"""What is shipped for running it passes the linter of its kind, and names what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from steptax.app.cli import COMMANDS
from steptax.app.settings import Settings
from tests.patience import PATIENCE_S

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
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
            timeout=PATIENCE_S,
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


def test_what_ends_is_started_again_at_the_port_that_others_know() -> None:
    for path in (p for p in UNITS if p.suffix == ".service"):
        text = path.read_text()
        assert ("Restart=always\n" in text) != ("Type=oneshot\n" in text), path.name
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert service["restart"] == "unless-stopped", name
    # Without it a port in use would be passed over, and who was told of it waits for nobody.
    serve = [line for path in FILES for line in path.read_text().splitlines() if "serve" in line]
    serve = [line for line in serve if not line.startswith("#")]
    assert len(serve) >= 3
    assert all("--port" in line for line in serve), serve


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
    for service in compose["services"].values():  # none of them brings TLS
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_secrets_go_neither_to_git_nor_into_an_image() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    secrets = [f"deploy/{Path(one['file']).name}" for one in compose["secrets"].values()]
    assert secrets
    git = [tool("git"), "-C", str(DEPLOY.parent), "check-ignore", "--no-index", *secrets]
    done = subprocess.run(git, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "not a git repository" not in done.stderr:  # as in what is shipped
        assert done.stdout.split() == secrets, done.stderr
    lines = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    taken = {line[1:] for line in lines if line.startswith("!")}
    assert lines.index("*") < min(lines.index(f"!{name}") for name in taken)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    files = {"pyproject.toml", "constraints.txt", project["project"]["readme"]}
    files |= {*project["project"]["license-files"], *wheel["force-include"], *wheel["sources"]}
    assert taken == files
