"""Every connector on the bad inputs of public reports, of other kinds and of generated damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from steptax.app.errors import InputError
from steptax.connectors.registry import CONNECTORS
from tests.connectors.bad_input import EXAMPLES, Tally, main, run

FEW = 5


def test_every_input_is_read_or_refused_with_place_and_remedy() -> None:
    tally = run(None, FEW)
    assert tally.faults == []
    assert tally.tried["files of other kinds"] >= len(CONNECTORS) ** 2
    assert tally.tried["damaged files"] == FEW * len(CONNECTORS)
    assert tally.refused > tally.tried.total() / 2
    assert tally.read > len(CONNECTORS)


def test_files_of_public_problem_reports(
    shared: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--cases", str(shared("cases")), "--damaged", "0"]) == 0
    said = capsys.readouterr().out
    assert "inputs tried" in said
    assert "0 faults" in said


@pytest.mark.parametrize(
    "error",
    [
        InputError("expected a header line", where="elsewhere:1", hint="write one"),
        InputError("bad", where="steps.csv:1", hint="write one"),
        InputError("expected a header line", where="steps.csv:1"),
    ],
)
def test_a_refusal_that_does_not_help_is_a_fault(error: InputError) -> None:
    tally = Tally()
    tally._check("steps", EXAMPLES / "steps.csv", error)
    assert len(tally.faults) == 1
