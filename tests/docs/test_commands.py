"""Every command that the documents show: those of the pages run, those of the README parse."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from steptax.app.cli import build, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: What stands in a fence of this language runs as it stands; of another one it only parses.
RUNS = "sh"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: Path, *languages: str) -> Iterator[list[str]]:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language not in languages:
            continue
        for line in block.splitlines():
            for part in re.split(r"[;|]\s", line.split(" # ")[0]):
                # A line of a crontab has its times first, an output of a command its file last.
                words = shlex.split(part.split(" > ")[0], comments=True)
                while words and words[0] not in ("steptax", "python"):
                    words = words[1:] if re.fullmatch(r"[\d*]+", words[0]) else []
                if words:
                    yield words


PAGES = sorted(p for p in (ROOT / "README.md", *DOCS.rglob("*.md")) if any(commands(p, RUNS)))
#: What the recipes of the README call a reader's own files, and the examples that stand for them.
OWN_FILES = {
    "train.log": "megatron.log",
    "traces/rank0.json": "kineto.json",
    "sacct.txt": "sacct.psv",
    "scrape.txt": "dcgm.prom",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STEPTAX_LAKE", "STEPTAX_PRICE_USD_PER_GPU_HOUR"):
        monkeypatch.delenv(name, raising=False)
    examples = tmp_path / "tests" / "connectors" / "examples"
    shutil.copytree(ROOT / "tests" / "connectors" / "examples", examples)
    for name, example in OWN_FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(examples / example, tmp_path / name)
    for words in commands(page, RUNS):
        if words[0] == "python":
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
            continue
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert left.value.code == 0, f"{shlex.join(words)}\n{said.out}{said.err}"
        assert said.out.strip(), f"{shlex.join(words)} says nothing"


def shown() -> list[list[str]]:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    found = [words for page in pages for words in commands(page, "", "bash", "console")]
    return [words for words in found if words[0] == "steptax"]


def test_there_are_commands() -> None:
    assert len(PAGES) > 20
    assert len(shown()) > 40


@pytest.mark.parametrize("words", shown(), ids=shlex.join)
def test_a_shown_command_parses(words: list[str]) -> None:
    arguments = words[1:] or ["--help"]
    command: Any = typer.main.get_command(build(arguments))
    context = None
    while isinstance(command, TyperGroup):
        context = command.make_context(command.name, list(arguments), parent=context)
        rest = [*context._protected_args, *context.args]
        _, found, arguments = command.resolve_command(context, rest)
        assert found is not None
        command = found
    if "--help" not in arguments:
        command.make_context(command.name, list(arguments), parent=context)
