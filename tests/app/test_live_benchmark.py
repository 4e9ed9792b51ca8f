"""The live benchmark, small and for a moment: steps reach a page; it knows what it did not see."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from steptax.benchmarks.product.live_hour import Outcome, main
from steptax.benchmarks.product.live_tab import Seen


@pytest.mark.slow
def test_steps_of_many_ranks_reach_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--ranks", "32", "--nodes", "2", "--seconds", "12", "--json"]
    code = main(words)
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    found = said["data"]
    assert code == 0, found
    assert found["rows_found"] == found["rows_distinct"] == 32 * 12
    assert found["page_errors"] == []
    assert found["readable_p50_s"] > 0
    assert found["steps_on_page"] > 0
    assert found["figures_p50_s"] is not None
    assert found["segments_max"] > 0


HOUR = {
    **{field.name: 0 for field in fields(Outcome)},
    "wall_s": 3_604.0,
    "page_errors": (),
    "within_3_s_ratio": 0.999,
    "server_quarter_mib": 400.0,
    "server_slope_mib_per_h": 16.0,
    "collector_quarter_mib": 270.0,
    "collector_slope_mib_per_h": 31.0,
}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({}, []),
        ({"rows_found": 1}, ["not every row or page was well"]),
        ({"page_errors": ("sad",)}, ["not every row or page was well"]),
        ({"within_3_s_ratio": 0.98}, ["steps came late to the page"]),
        ({"within_3_s_ratio": None}, ["steps came late to the page"]),
        ({"server_slope_mib_per_h": 90.0}, ["the memory of the server grew"]),
        ({"collector_slope_mib_per_h": 90.0}, ["the memory of the collector grew"]),
        ({"collector_slope_mib_per_h": 90.0, "wall_s": 60.0}, []),
    ],
)
def test_an_hour_that_misses_a_limit_says_which(what: dict[str, Any], said: list[str]) -> None:
    outcome = Outcome(**(HOUR | what))  # type: ignore[arg-type]
    assert outcome.missed == said


def test_a_step_is_on_the_page_when_an_answer_that_tells_it_has_arrived() -> None:
    seen = Seen(
        readable={1: 10.0, 2: 12.0, 3: 30.0},
        # Asked for, arrived, newest step.
        newest=[(9.0, 10.5, 1), (11.0, 12.5, 2), (13.0, 14.0, 1)],
        # The second was asked for before step 2 was whole: its figures may lack rows of it.
        windows=[(9.0, 10.5, 1), (11.0, 12.5, 2), (13.0, 14.0, 1), (15.0, 16.0, 2)],
    )
    assert seen.on_page() == {1: 10.5, 2: 12.5}
    assert seen.in_figures() == {1: 12.5, 2: 16.0}
