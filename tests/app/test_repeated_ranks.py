"""A job started again without its attempt number, or two processes of one rank: all pages go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake import Lake
from steptax.connectors.recorder import StepRecorder

STEPS = 30
#: The second run begins again at this step.
AGAIN = 20


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    for job_id, begins in (("again", (0, AGAIN)), ("fine", (0,))):
        for begin in begins:
            for rank in range(2):
                with StepRecorder(root, job_id=job_id, rank=rank, world_size=2) as recorder:
                    for step in range(begin, STEPS):
                        with recorder.step(step), recorder.phase("compute"):
                            pass
    return root


@pytest.mark.parametrize(
    "command",
    [
        ["jobs"],
        ["job", "again"],
        ["job", "fine"],
        ["executive"],
        ["fleet"],
        ["ledger", "--by", "job"],
        ["health"],
        ["quiet", "--job", "again"],
        ["whatif", "stragglers", "--job", "again"],
        ["compare", "again", "fine"],
    ],
)
def test_each_answers(command: list[str], lake: Path, steptax: Callable[..., Any]) -> None:
    assert steptax(*command, "--lake", lake)


def test_the_job_says_how_many_rows_do_not_count_and_why(
    lake: Path, steptax: Callable[..., Any]
) -> None:
    twice = 2 * (STEPS - AGAIN)
    assert Lake(lake).read("steps", "again").num_rows == 2 * STEPS + twice
    coverage = steptax("job", "again", "--lake", lake)["coverage"]
    assert coverage["duplicates"] == twice
    assert f"{twice} duplicate rows left out" in coverage["text"]
    assert any("attempt number" in warning for warning in coverage["warnings"])
