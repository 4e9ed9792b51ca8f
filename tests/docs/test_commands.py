"""Every command that the documents show runs, as it stands and in its order.

Those that need what a test has not (a device, a server, another machine, an answer of a person) are
named below with the reason, and are parsed.
"""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from steptax.app.cli import build, main
from tests.docs import own_files

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


LANGUAGES = (RUNS, "", "bash", "console")
PAGES = sorted(p for p in (ROOT / "README.md", *DOCS.rglob("*.md")) if any(commands(p, *LANGUAGES)))
#: Rests on the job that its own loop records: test_recorder_page.py runs it.
AFTER_A_LOOP = DOCS / "recorder.md"
#: What is not run, as it begins, and why.
NOT_RUN = {
    "steptax watch": "it goes on until it is stopped, and most kinds need a device or a server",
    "steptax bench": "it measures the devices of a node, or judges such a run",
    "steptax alerts test": "it needs a channel of the reader's own",
    "steptax alerts run": "it goes on until it is stopped, or needs rules of the reader's own",
    "steptax prices accept": "the id of a held price is a person's to name",
    "steptax report evidence": "it is about a node and a time of the reader's own",
    "steptax devices JOB": "the job is the reader's own",
    "steptax quiet": "the job is the reader's own",
    "steptax whatif kernel": "the kernels are those of a trace of the reader's own",
    "steptax procure job": "the job is the reader's own",
    "python -m pytest": "tests/docs/test_extending.py does what the page says",
    "python docs/generate.py": "tests/docs/test_pages.py does it",
    "python run.py": "it makes an environment of its own",
    "python -m steptax.benchmarks": "tests/app/test_benchmark_table.py runs its parts",
}
#: Several pages begin with it, and it takes long: it runs once, and the others get what it made.
COMPANY = ["steptax", "demo", "--company", "--no-dashboard", "--lake", "company"]
_ELSEWHERE = re.compile(r"HOST|s3://|--to-mail|sizes\.yaml")


def is_run(words: list[str]) -> bool:
    """Whether a test has what the command needs."""
    text = shlex.join(words)
    return not _ELSEWHERE.search(text) and not text.startswith(tuple(NOT_RUN))


@pytest.fixture(scope="module")
def made() -> list[Path]:
    """A lake of what ``COMPANY`` makes, once it has run."""
    return []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != AFTER_A_LOOP],
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_the_commands_of_a_page_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STEPTAX_LAKE", "STEPTAX_PRICE_USD_PER_GPU_HOUR"):
        monkeypatch.delenv(name, raising=False)
    own_files.write(tmp_path)
    for words in filter(is_run, commands(page, *LANGUAGES)):
        words = [
            name for word in words for name in (sorted(glob(word)) or [word])
        ]  # as a shell does
        if words[0] == "python":
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
            continue
        if words == COMPANY and made:
            shutil.copytree(made[0], tmp_path / "company")
            continue
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert left.value.code == 0, f"{shlex.join(words)}\n{said.out}{said.err}"
        assert said.out.strip(), f"{shlex.join(words)} says nothing"
        if words == COMPANY:
            made.append(tmp_path_factory.mktemp("made") / "company")
            shutil.copytree(tmp_path / "company", made[0])


def shown() -> list[list[str]]:
    found = [words for page in PAGES for words in commands(page, *LANGUAGES)]
    return [words for words in found if words[0] == "steptax" and not is_run(words)]


def test_there_are_commands() -> None:
    assert len(PAGES) > 20
    found = [words for page in PAGES for words in commands(page, *LANGUAGES)]
    assert len(list(filter(is_run, found))) > 150
    for begin in NOT_RUN:
        assert any(shlex.join(words).startswith(begin) for words in found), begin


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
