"""From when to when a job held its devices, whatever tells it and in whatever order."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake import Lake
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.pricing.given import price_text
from steptax.app.views.workspace import open_workspace
from tests.app.fleet_lake import HOUR, S, job, lake_of, rows, steps, us

START = us(2026, 3, 31, 23)
#: What three sources say of one job: accounting, and two files of steps with their own spans.
TOLD = {
    "accounting": job("j", START, START + 2 * HOUR, team="red"),
    "attempt 0": job("j", START + 20 * 60 * S, START + 50 * 60 * S),
    "attempt 1": job("j", START + 70 * 60 * S, START + 2 * HOUR),
}


def told_in(root: Path, order: tuple[str, ...]) -> Any:
    """A lake to which the sources were given one after the other."""
    lake = Lake(root, create=True)
    for k, name in enumerate(order):
        row = TOLD[name] | {"ingested_at_us": k + 1}
        lake.append("jobs", rows([row]), source=name)
    return open_workspace(root)


@pytest.mark.parametrize("order", list(permutations(TOLD)))
def test_a_source_that_saw_a_part_of_a_job_does_not_shorten_it(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    ws = told_in(tmp_path / "lake", order)
    (stored,) = ws.lake.read("jobs").to_pylist()
    for record in (ws.job("j"), stored):
        assert (record["start_us"], record["end_us"]) == (START, START + 2 * HOUR)
        assert record["team"] == "red"
    bill = fleet_bill(ws, price=Decimal(1))
    assert bill.total is not None
    assert bill.total.gpu_hours == pytest.approx(8)


def test_a_job_that_runs_again_is_billed_to_its_newest_step(tmp_path: Path) -> None:
    """A new attempt has no end yet, and that of the one before it is not the job's."""
    again = START + 2 * HOUR
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("j", START, START + HOUR, state="failed")],
        steps=[
            *steps("j", START, 60),
            *steps("j", again, 60, attempt=1, first=60),
        ],
    )
    ws.lake.append("jobs", rows([job("j", None, None, state="running")]), source="recorder")
    bill = fleet_bill(open_workspace(ws.root))
    assert bill.total is not None
    # Four ranks for three hours: two of steps and, between them, one of recovery.
    assert bill.total.gpu_hours == pytest.approx(12)
    held = {line.bucket: line.gpu_seconds for line in bill.total.lines}
    assert held["recovery"] == pytest.approx(4 * 3600)


@pytest.mark.parametrize("by", ["team", "day"])
def test_a_job_of_centuries_is_named_and_not_billed(tmp_path: Path, by: str) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("blank", us(1, 1, 1), us(9999, 1, 1)),
            job("ok", START, START + HOUR),
            job("ok too", START, START + HOUR),
        ],
    )
    bill = fleet_bill(ws, by=by)
    assert bill.total is not None
    assert bill.total.gpu_hours == pytest.approx(8)
    (refused,) = bill.not_billed
    assert refused.job_id == "blank"
    assert "9,998 years" in refused.reason


@pytest.mark.parametrize(
    ("price", "text"),
    [
        ("2", "$2.00 per GPU-hour"),
        ("2.345", "$2.345 per GPU-hour"),
        ("0.0005", "$0.0005 per GPU-hour"),
        ("12345.6", "$12,345.60 per GPU-hour"),
        ("1E+2", "$100.00 per GPU-hour"),
    ],
)
def test_no_digit_of_a_price_is_rounded_away(price: str, text: str) -> None:
    assert price_text(Decimal(price)) == text
