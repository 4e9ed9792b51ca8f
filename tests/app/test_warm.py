"""What all jobs come to is worked out before a page asks, and said to be partial where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.views.fleet import jobs as fleet_jobs
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.job.extent import FEW_JOBS
from steptax.app.views.warm import warm
from tests.app.fleet_lake import HOUR, RANKS, charge, event, job, lake_of, on, rows, us

BEGIN = us(2026, 11, 10)


def test_a_rollup_stores_what_jobs_come_to(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    names = [f"j{k}" for k in range(FEW_JOBS)]
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job(name, BEGIN, BEGIN + HOUR) for name in names],
        events=[event(name, "allocated", BEGIN) for name in names],
    )
    steptax("rollup")
    assert list((ws.root / "derived" / "bills").glob("*.parquet"))


def test_bills_of_all_jobs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = lake_of(tmp_path / "lake", jobs=[job("a", BEGIN, BEGIN + HOUR)])
    assert warm(ws)
    monkeypatch.setattr(fleet_jobs, "_each_alone", None)  # whoever bills a job anew fails
    bill = fleet_bill(ws, by="day")
    assert bill.total is not None
    assert bill.total.gpu_hours == RANKS
    monkeypatch.undo()
    ws.lake.append("jobs", rows([job("b", BEGIN, BEGIN + HOUR)]), source="test")
    assert fleet_bill(ws, by="day").jobs == 2


def test_the_fleet_says_where_a_cost_is_of_some_jobs_only(tmp_path: Path) -> None:
    """Of two failed jobs the bill names one."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job(name, BEGIN, BEGIN + HOUR, state="failed") for name in "ab"],
        ranks=on("a", "n"),
        charges=[charge("1", BEGIN, BEGIN + HOUR, "20", "n")],
    )
    view = fleet_view(ws, price=None)
    assert view.usd.value == pytest.approx(20)
    assert "at least $20" in view.sentence
    (failed,) = [row for row in view.losses if row.what == "jobs that failed"]
    assert failed.gpu_hours.value == 2 * RANKS
    assert failed.note.endswith("without 1 job whose cost is not known")
