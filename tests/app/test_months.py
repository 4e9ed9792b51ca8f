"""Months: one split of the hours, whichever of ledger, review and fleet view tells it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.stated_months import NO_MONTH, in_time
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.review.executive import days_of, executive_view
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, S, job, lake_of, steps, us

TWO = Decimal(2)
NEW_YEAR = us(2017, 1, 1)
#: GPU-hours that each month holds.
HELD = {"2016-12": 4 * 24.0 + 4 * 2, "2017-01": 4 * 1.0 + 4 * 1 + 7.5, "2017-02": 3.0}


def fleet_over_new_year(root: Path) -> Workspace:
    """Devices held over the new year, and hours of which only the month is told."""
    stated = {"world_size": None}
    jobs = [
        job("long", NEW_YEAR - 24 * HOUR, NEW_YEAR + HOUR, state="failed"),
        job("stepped", NEW_YEAR - 2 * HOUR, NEW_YEAR + HOUR),
        job("queued", None, None, submit_us=us(2017, 1, 31, 23), gpu_hours=7.5, **stated),
        job("usage", None, None, period="2017-02", gpu_hours=2.5, **stated),
        job("told", None, None, submit_us=us(2017, 2, 3), gpu_hours=0.5, **stated),
        job("lost", None, None, gpu_hours=1.0, **stated),
    ]
    return lake_of(
        root,
        jobs=jobs,
        steps=steps("stepped", NEW_YEAR - HOUR, 90, length=60 * S)
        + [row | {"start_us": None} for row in steps("told", 0, 2, length=60 * S)],
    )


def test_ledger_review_and_fleet_split_the_hours_by_the_time_they_were_held(tmp_path: Path) -> None:
    ws = fleet_over_new_year(tmp_path)
    bill = fleet_bill(ws, by="month", price=TWO)
    assert {g.name: g.gpu_hours for g in bill.groups} == pytest.approx(HELD)
    assert {g.name: g.jobs for g in bill.groups} == {"2016-12": 2, "2017-01": 3, "2017-02": 2}
    assert [one.job_id for one in bill.not_billed] == ["lost"]
    assert bill.total is not None
    assert bill.total.cost == round(Decimal(2 * sum(HELD.values())), 2)
    review = executive_view(ws, price=TWO)
    with_lost = HELD | {NO_MONTH: 1.0}
    assert {row.period: row.gpu_hours for row in review.by_period} == pytest.approx(with_lost)
    view = fleet_view(ws, price=TWO)
    months = view.groups["month"]
    assert {row.name: row.gpu_hours.value for row in months} == pytest.approx(with_lost)
    assert [row.name for row in months] == [*HELD, NO_MONTH]
    assert view.gpu_hours.value == pytest.approx(sum(with_lost.values()))
    # What failed is told of each month in which it held devices.
    assert [row.failed_gpu_hours.value for row in months[:2]] == pytest.approx([96 / 104, 4 / 15.5])


def test_hours_of_unknown_time_are_in_no_days_that_somebody_chose(tmp_path: Path) -> None:
    ws = fleet_over_new_year(tmp_path)
    first, last = date(2017, 1, 1), date(2017, 2, 28)
    bill = fleet_bill(ws, by="month", price=TWO, first=first, last=last)
    assert {g.name: g.gpu_hours for g in bill.groups} == pytest.approx({"2017-01": 8.0})
    assert {one.job_id for one in bill.not_billed} == {"queued", "usage", "told", "lost"}
    start_us, end_us = days_of(first, last)
    review = executive_view(ws, price=TWO, first_us=start_us, last_us=end_us)
    assert {row.period: row.gpu_hours for row in review.by_period} == pytest.approx({"2017-01": 8})
    by_day = fleet_bill(ws, by="day", price=TWO)
    assert {g.name for g in by_day.groups} == {"2016-12-31", "2017-01-01"}


def test_the_month_of_a_submission_is_that_of_the_zone(tmp_path: Path) -> None:
    ws = fleet_over_new_year(tmp_path)
    months = {g.name: g.gpu_hours for g in fleet_bill(ws, by="month", tz="Asia/Tokyo").groups}
    assert months["2017-02"] == pytest.approx(HELD["2017-02"] + 7.5)


def test_periods_in_the_order_of_time() -> None:
    names = [NO_MONTH, "12", "-1", "2", "2017-01", "2016-12"]
    assert sorted(names, key=in_time) == ["-1", "2", "12", "2016-12", "2017-01", NO_MONTH]
