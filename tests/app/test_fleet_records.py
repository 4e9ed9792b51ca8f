"""Jobs of which nothing but their record is known: added up as columns, and each by itself."""

from __future__ import annotations

import tempfile
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.waterfall_rows import Waterfall
from steptax.app.views.bill.view import job_waterfall
from steptax.app.views.fleet import bill as module
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import FleetBill
from steptax.app.views.fleet.jobs import job_bills
from steptax.app.views.fleet.record_bills import record_bill
from steptax.app.views.kept import OfView
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, charge, event, job, lake_of, us

T0 = us(2026, 10, 24, 21, 17)
DAY = 24 * HOUR

MOMENTS = st.one_of(st.none(), st.integers(T0, T0 + 40 * DAY))
RECORDS = st.builds(
    dict,
    start_us=MOMENTS,
    end_us=MOMENTS,
    world_size=st.sampled_from([None, 0, 1, 3, 8, 4096]),
    gpu_hours=st.sampled_from([None, 0.0, 7.123456, 1 / 3]),
    team=st.sampled_from([None, "red", "blue"]),
    cluster=st.sampled_from([None, "a"]),
    state=st.sampled_from([None, "completed", "failed", "running", "pending"]),
    time_basis=st.sampled_from([None, None, None, "relative"]),
)
CHOICES: tuple[dict[str, Any], ...] = (
    {"by": "team"},
    {"by": "job"},
    {"by": "cluster", "denominator": "allocated"},
    {"by": "month", "tz": "Europe/Berlin"},
    {"by": "day", "tz": "America/New_York"},
    {"by": "team", "first": date(2026, 10, 25), "last": date(2026, 11, 1)},
    {"by": "day", "first": date(2026, 10, 31)},
)


def one_by_one(ws: Workspace, **choice: Any) -> FleetBill:
    """The same with the bill of each job made by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_parts", partial(module._parts, apart=True))
        patch.setattr(module, "_kept_parts", OfView(1))
        return fleet_bill(ws, **choice)


@settings(max_examples=8)
@given(st.lists(RECORDS, max_size=12), st.sampled_from([None, Decimal("2.13"), Decimal("0.007")]))
@example([{"start_us": T0, "end_us": T0, "world_size": 8}], Decimal(2))
@example(  # of two alike, that with a start comes first in the lake, and last by name
    [{"start_us": None, "end_us": None, "world_size": None}] * 7
    + [
        {"world_size": None, "gpu_hours": 7.123456},
        {"start_us": T0, "end_us": None, "world_size": None, "gpu_hours": 7.123456},
    ],
    Decimal("2.13"),
)
@example([{"start_us": T0, "end_us": T0 + 3 * DAY, "world_size": 1, "team": "red"}] * 3, None)
def test_columns_give_what_each_bill_by_itself_gives(
    records: list[dict[str, Any]], price: Decimal | None
) -> None:
    rows = [job(f"j{k}", None, None) | record for k, record in enumerate(records)]
    # One job of which more is known stands among them.
    rows.append(job("told", T0 + HOUR, T0 + 3 * DAY, team="red"))
    told = [event("told", "process_start", T0 + 2 * HOUR), event("told", "failure", T0 + 2 * DAY)]
    with tempfile.TemporaryDirectory() as folder:
        ws = lake_of(Path(folder) / "lake", jobs=rows, events=told)
        for choice in CHOICES:
            together = fleet_bill(ws, price=price, **choice)
            apart = one_by_one(ws, price=price, **choice)
            assert together.as_json() == apart.as_json(), choice
            assert together.warnings == apart.warnings


@settings(max_examples=8)
@given(
    st.lists(RECORDS, max_size=8),
    st.lists(st.tuples(st.integers(-3, 40), st.sampled_from("abx"), st.integers(1, 9999)),
             min_size=1, max_size=6),
)  # fmt: skip
@example([{"start_us": T0, "end_us": T0 + 3 * DAY, "world_size": 8}] * 3, [(0, "a", 1000)])
def test_columns_are_charged_as_each_bill_by_itself(
    records: list[dict[str, Any]], days: list[tuple[int, str, int]]
) -> None:
    """Hosts a and b are charged for by ten days each, and another one is not."""
    hosts = ("a", "a,b", "b,elsewhere", "elsewhere", None)
    rows = [
        job(f"j{k}", None, None) | record | {"hosts": hosts[k % 5]}
        for k, record in enumerate(records)
    ]
    rows.append(job("told", T0 + HOUR, T0 + 3 * DAY, team="red", hosts="a"))
    told = [event("told", "process_start", T0 + 2 * HOUR), event("told", "failure", T0 + 2 * DAY)]
    bill = [
        charge(str(k), T0 + day * DAY, T0 + (day + 10) * DAY, f"{cents / 100:.2f}", host)
        for k, (day, host, cents) in enumerate(days)
    ]
    bill.append(charge("tag", T0, T0 + DAY, "7.77", None, tags='{"team": "red"}'))
    with tempfile.TemporaryDirectory() as folder:
        ws = lake_of(Path(folder) / "lake", jobs=rows, events=told, charges=bill)
        for choice in CHOICES:
            together, apart = fleet_bill(ws, **choice), one_by_one(ws, **choice)
            assert together.as_json() == apart.as_json(), choice
            assert together.warnings == apart.warnings


@given(RECORDS)
def test_the_bill_of_a_record_is_the_one_that_is_worked_out(record: dict[str, Any]) -> None:
    row = job("j", None, None) | record
    made = record_bill(row)
    assert made.is_known == (made.bill is not None)
    assert bool(made.reason) != made.is_known
    if made.held is None:
        return
    held, bill = made.held, made.bill
    assert bill is not None
    told = row | {
        "start_us": held.start_us,
        "end_us": held.end_us,
        "world_size": held.gpus,
        "state": None,
    }
    worked_out = job_waterfall(told, [], None, None)[0]
    assert facts_of(bill) == facts_of(worked_out)
    assert bill.goodput.measures() == worked_out.goodput.measures()
    assert made.gpu_hours == worked_out.goodput.gpu_hours
    if not made.undated and held.end_us > held.start_us:
        assert made.span == (held.start_us, held.end_us)


def facts_of(bill: Waterfall) -> list[Any]:
    own = bill.timeline
    assert own is not None
    columns = (own.start_us, own.end_us, own.state, own.gpus)
    return [
        bill.labels,
        bill.rows,
        bill.total_gpu_us,
        bill.level,
        bill.has_steps,
        bill.no_useful,
        bill.at_risk,
        bill.findings,
        [column.tolist() for column in columns],
    ]


def test_a_bill_of_a_record_is_made_once_per_version_of_it(tmp_path: Path) -> None:
    ws = lake_of(tmp_path, jobs=[job("a", T0, T0 + HOUR), job("b", T0, T0 + HOUR)])
    first = job_bills(ws, ws.jobs())
    assert [a is b for a, b in zip(first, job_bills(ws, ws.jobs()), strict=True)] == [True, True]
    lake_of(tmp_path, jobs=[job("a", T0, T0 + 3 * HOUR)])
    again = {one.job_id: one.gpu_hours for one in job_bills(ws, ws.jobs())}
    assert {name: hours and hours.value for name, hours in again.items()} == {"a": 12.0, "b": 4.0}


def test_a_job_that_ends_before_it_starts_has_no_bill(tmp_path: Path) -> None:
    ws = lake_of(tmp_path, jobs=[job("a", T0 + 7, T0), job("b", T0, T0 + HOUR)])
    bill = fleet_bill(ws, price=Decimal(1))
    assert [(n.job_id, n.reason) for n in bill.not_billed] == [
        ("a", "the job ends 7 us before it starts")
    ]
    assert bill.total is not None
    assert bill.total.cost == Decimal("4.00")
