"""Rows of a wrong clock that are in the lake: their job says so, and no other is lost by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.fleet_lake import HOUR, job, lake_of, steps, us

BEGIN = us(2026, 11, 10)


@pytest.fixture(scope="module", params=["start_us", "duration_us"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    wrong = steps("wrong", BEGIN, 40)
    for row in wrong[-4:]:
        row[request.param] = 10**18
    lake_of(
        root,
        jobs=[
            {**job("wrong", BEGIN, BEGIN), "end_us": None},
            job("sound", BEGIN, BEGIN + 2 * HOUR),
        ],
        steps=[*wrong, *steps("sound", BEGIN, 120)],
    )
    return root


@pytest.mark.parametrize(
    "command",
    [
        ["jobs"],
        ["job", "sound"],
        ["job", "wrong"],
        ["executive"],
        ["fleet"],
        ["ledger", "--by", "month"],
        ["ledger", "--by", "job"],
        ["health"],
        ["whatif", "stragglers", "--job", "wrong"],
        ["compare", "wrong", "sound"],
    ],
)
def test_each_answers(command: list[str], lake: Path, steptax: Callable[..., Any]) -> None:
    assert steptax(*command, "--lake", lake)


def test_the_hours_of_the_other_are_there(lake: Path, steptax: Callable[..., Any]) -> None:
    view = steptax("executive", "--price", "2", "--lake", lake)
    spent = {one["job_id"]: one["spend_usd"]["value"] for one in view["jobs"]}
    assert spent["sound"] == 2 * 4 * 2
