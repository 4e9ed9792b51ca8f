"""What is unexplained of a job is one number, on its page and in the bill of all jobs."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from steptax.app.compute.measure import Level
from steptax.app.views.compare.load import Part
from steptax.app.views.compare.view import side_by_side
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, S, job, lake_of, steps, us

BEGIN = us(2026, 11, 10)
PRICE = Decimal(2)


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    """A job of two hours, half of them in steps; of the second half of these nothing is split."""
    split = steps("a", BEGIN, 30)
    whole = [
        {name: value for name, value in row.items() if name not in ("compute_us", "comm_us")}
        for row in steps("a", BEGIN + 30 * 60 * S, 30, first=30)
    ]
    return lake_of(
        tmp_path / "lake", jobs=[job("a", BEGIN, BEGIN + 2 * HOUR)], steps=[*split, *whole]
    )


def test_a_job_and_the_whole_bill_say_the_same_unexplained_share(ws: Workspace) -> None:
    told = job_view(ws, "a", price=PRICE, last_steps=None).metrics["unexplained_ratio"]
    (group,) = fleet_bill(ws, by="job", price=PRICE).groups
    assert told == group.metrics["unexplained_ratio"]
    assert told.level is not None
    # What is in no step, and of the steps what nobody split.
    assert told.value == pytest.approx(0.5 + 0.35)


@pytest.mark.parametrize("last_steps", [50, 10])
def test_steps_that_are_not_looked_at_do_not_count_as_unexplained(
    ws: Workspace, last_steps: int
) -> None:
    told = job_view(ws, "a", price=PRICE, last_steps=last_steps).metrics["unexplained_ratio"]
    assert told.value == pytest.approx(0.5)
    assert told.warnings[0].startswith("at least this")


def test_two_stretches_of_steps_are_compared_by_what_is_in_them(ws: Workspace) -> None:
    found = side_by_side(ws, Part("a", None, 29), Part("a", 30, None), price=PRICE)
    a, b = (side.metrics["unexplained_ratio"] for side in (found.a, found.b))
    assert a.value == pytest.approx(0.1)
    assert b.value != a.value


def test_without_a_whole_bill_it_is_that_of_the_steps(tmp_path: Path) -> None:
    placed = steps("a", BEGIN, 60)
    unplaced = [{k: v for k, v in row.items() if k != "start_us"} for row in placed]
    ws = lake_of(tmp_path / "lake", jobs=[job("a", None, None)], steps=unplaced)
    view = job_view(ws, "a", price=PRICE)
    assert view.bill.unexplained is None
    told = view.metrics["unexplained_ratio"]
    assert told.value == pytest.approx(0.1)
    assert told.level is Level.PHASES
