"""The command line itself: which commands there are, what is imported, how it ends."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from steptax.app.cli import COMMANDS, PANELS, build, main
from tests.patience import PATIENCE_S

BEGIN = [sys.executable, "-c", "from steptax.app.entry import main; main()"]


def names_of(app: typer.Typer) -> tuple[str, ...]:
    names = [command.name for command in app.registered_commands]
    return tuple(str(n) for n in names + [group.name for group in app.registered_groups])


@pytest.mark.parametrize("module", COMMANDS)
def test_a_module_has_the_commands_that_it_is_listed_with(module: str) -> None:
    app = typer.Typer()
    importlib.import_module(f"steptax.app.commands.{module}").register(app)
    assert names_of(app) == COMMANDS[module]


def test_every_command_is_there_when_none_is_asked_for() -> None:
    every = tuple(name for names in COMMANDS.values() for name in names)
    assert names_of(build(["--help"])) == every
    assert names_of(build(["no-such-command"])) == every
    assert len(set(every)) == len(every)


def test_a_command_brings_only_its_own_module() -> None:
    assert names_of(build(["calc", "waste"])) == COMMANDS["calc"]
    code = (
        "import sys; from steptax.app.cli import build; build(['calc']);"
        "sys.exit(any(m in sys.modules for m in ('duckdb', 'streamlit', 'plotly', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_command_the_help_is_printed() -> None:
    done = subprocess.run(BEGIN, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "executive" in done.stdout


@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6])
def test_ctrl_c_leaves_without_a_trace_while_modules_load(after_s: float) -> None:
    slow = "from steptax.app.entry import main; print('.', flush=True);"
    process = subprocess.Popen(
        [sys.executable, "-c", slow + "main()", "executive", "--lake", os.devnull],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # its own part begins here
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    # 2: on a quick machine it was done before.
    assert process.returncode in (130, 2)


def test_names_are_neither_markup_nor_orders_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{s},{r},80,20,100\n" for s in range(30) for r in range(2))
    steps = tmp_path / "x.csv"
    steps.write_text("step,rank,compute_ms,comm_ms,duration_ms\n" + rows)
    lake = tmp_path / "lake"
    for job in ("x[/red]", "[bold]y[/]", "a\x1b[31mb"):
        for arguments in (("ingest", "steps", steps, "--job", job), ("job", job), ("jobs",)):
            monkeypatch.setattr(sys, "argv", ["steptax", *map(str, arguments), "--lake", str(lake)])
            with pytest.raises(SystemExit) as left:
                main()
            printed = capsys.readouterr().out
            assert left.value.code == 0
            assert "\x1b" not in printed
            assert job.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in printed


def test_the_help_teaches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command stands under one heading, and the examples are commands that parse."""
    commands = [name for names in COMMANDS.values() for name in names]
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(commands) == sorted(listed)
    monkeypatch.setattr(sys, "argv", ["steptax", "--help"])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    for title in PANELS:
        assert title in said
    examples = re.findall(r"^ +(steptax \S.*?)(?:   *\S.*)?$", said, re.MULTILINE)
    assert len(examples) >= 7
    for line in examples:
        words = shlex.split(line)
        if words[1] in commands and "COMMAND" not in words:
            parsed = typer.main.get_command(build(words[1:]))
            assert isinstance(parsed, TyperGroup)
            parsed.commands[words[1]].make_context(words[1], words[2:])


def test_all_but_serve_take_json() -> None:
    """As ``steptax --help`` says at its end."""
    lacking: list[str] = []

    def look(command: object, name: str) -> None:
        if isinstance(command, TyperGroup):
            for key, one in command.commands.items():
                look(one, f"{name} {key}".strip())
        elif not any("--json" in getattr(p, "opts", ()) for p in command.params):  # type: ignore[attr-defined]
            lacking.append(name)

    look(typer.main.get_command(build(["--help"])), "")
    assert lacking == ["serve"]


def test_what_is_missing_is_told_by_the_usage_of_its_own_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["steptax", "job"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "steptax job [OPTIONS]" in said
    assert "steptax job --help" in said
