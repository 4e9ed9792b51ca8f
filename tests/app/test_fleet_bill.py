"""The whole bill of a fleet: every job takes part or is named, and everything adds up."""

from __future__ import annotations

import tempfile
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.errors import NotFoundError, UserError
from steptax.app.format import format_share
from steptax.app.lake import Lake
from steptax.app.views.bill.view import job_waterfall
from steptax.app.views.fleet import load as fleet_load
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import DENOMINATORS, LEVELS, FleetBill, FleetGroup
from steptax.app.views.fleet.jobs import job_bills
from steptax.app.views.fleet.load import load_jobs
from steptax.app.views.job.jobs import analyse_jobs
from steptax.app.views.job.load import load_job
from steptax.app.views.job.view import job_view
from tests.app.fleet_lake import (
    HOUR,
    RANKS,
    S,
    charge,
    event,
    job,
    lake_of,
    on,
    rows,
    steps,
    us,
)

PRICE = Decimal("2.37")
#: The hour before the end of October in UTC, in which Berlin is in November already.
LATE = us(2026, 10, 31, 23, 30)


def history(job_id: str, start: int, *, lost: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Pending 5 min, start-up 5 min, 20 steps of a minute; after a failure ``lost`` of them anew.

    It ends ten minutes after its last step.
    """
    begin = start + 600 * S
    events = [
        event(job_id, "process_start", start + 300 * S),
        event(job_id, "first_step", begin),
    ]
    done = steps(job_id, begin, 20)
    if lost:
        again = begin + 30 * 60 * S
        events += [
            event(job_id, "failure", begin + 20 * 60 * S),
            event(job_id, "process_start", again - 60 * S, attempt=1),
            event(job_id, "first_step", again, attempt=1),
        ]
        done += steps(job_id, again, lost + 10, attempt=1, first=20 - lost)
    return {"events": events, "steps": done}


def costs(bill: FleetBill) -> dict[str, Decimal | None]:
    return {group.name: group.cost for group in bill.groups}


def hours(bill: FleetBill) -> dict[str, float]:
    return {group.name: group.gpu_hours for group in bill.groups}


def line(group: FleetGroup | None, bucket: str) -> Any:
    assert group is not None
    return next(own for own in group.lines if own.bucket == bucket)


def total_of(bill: FleetBill) -> FleetGroup:
    assert bill.total is not None
    return bill.total


def adds_up(bill: FleetBill) -> None:
    """Lines to groups, groups to the total, and each bucket over the groups."""
    if bill.total is None:
        assert not bill.groups
        return
    for group in (*bill.groups, bill.total):
        known = [own.gpu_seconds for own in group.lines if own.gpu_seconds is not None]
        assert sum(known) / 3600 == pytest.approx(group.gpu_hours)
        assert sum(own.share for own in group.lines if own.share is not None) == pytest.approx(
            1 if group.gpu_hours else 0
        )
        if group.cost is not None:
            assert sum(own.cost for own in group.lines if own.cost is not None) == group.cost
    assert sum(hours(bill).values()) == pytest.approx(bill.total.gpu_hours)
    if bill.total.cost is None:
        assert not any(costs(bill).values())
        return
    assert sum(cost for cost in costs(bill).values() if cost is not None) == bill.total.cost
    for own in bill.total.lines:
        parts = [g.cost for group in bill.groups for g in group.lines if g.bucket == own.bucket]
        if own.cost is not None:
            assert sum(cost for cost in parts if cost is not None) == own.cost


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    """Two jobs with steps, one of which failed, one with accounting only, six without a bill."""
    one = history("good", LATE)
    two = history("broken", us(2026, 11, 3), lost=5)
    bad = steps("liar", us(2026, 11, 4), 5, compute_us=70 * S)
    half = steps("half", us(2026, 11, 4), 5)
    half[0]["compute_us"] = 70 * S
    normal = [{**row, "start_us": None} for row in steps("normal", 0, 3)]
    jobs = [
        job("good", LATE, LATE + 40 * 60 * S, team="red", project="x", owner="ann"),
        job("broken", us(2026, 11, 3), us(2026, 11, 3, 2), team="blue", cluster="east"),
        job("acct", us(2026, 10, 31), us(2026, 11, 2), team="blue", owner="ann"),
        job("half", us(2026, 11, 4), us(2026, 11, 4, 1), team="blue"),
        job("undated", None, None, world_size=None, gpu_hours=12.5, team="red"),
        job("liar", us(2026, 11, 4), us(2026, 11, 4, 1), team="red"),
        job("normal", None, None, time_basis="relative"),
        job("queued", None, None, state="pending"),
        job("endless", us(2026, 11, 1), None, state="running"),
        job("backwards", us(2026, 11, 2), us(2026, 11, 1)),
        job("cpu", us(2026, 11, 1), us(2026, 11, 2), world_size=0),
        job("nothing", None, None),
    ]
    return lake_of(
        tmp_path / "lake",
        jobs=jobs,
        events=one["events"] + two["events"],
        steps=one["steps"] + two["steps"] + bad + half + normal,
    )


def test_every_job_is_billed_or_named_with_its_reason(fleet: Any) -> None:
    bill = fleet_bill(fleet, price=PRICE)
    assert bill.jobs == 5
    reasons = {one.job_id: one.reason for one in bill.not_billed}
    assert reasons.keys() == {
        "liar",
        "normal",
        "queued",
        "endless",
        "backwards",
        "cpu",
        "nothing",
    }
    assert "all 20 reports exceed their duration" in reasons["liar"]
    assert "negative" in reasons["liar"]
    assert "step 0, rank 0" in reasons["liar"]
    assert "normalised" in reasons["normal"]
    assert "not started" in reasons["queued"]
    assert "no end on record" in reasons["endless"]
    assert "before it starts" in reasons["backwards"]
    assert "no devices" in reasons["cpu"]
    assert "neither start and end nor GPU-hours" in reasons["nothing"]
    assert len(fleet.jobs()) == bill.jobs + len(bill.not_billed)
    assert any("each for its reason: 7 jobs" in text for text in bill.warnings)
    assert "7 more are left out, each for its reason" in bill.sentence
    # One report of 20 that cannot be is left out and told, and the rest of its job counts.
    assert any("1 rejected" in text for text in bill.warnings)


def test_buckets_by_team(fleet: Any) -> None:
    bill = fleet_bill(fleet, price=PRICE)
    adds_up(bill)
    assert [group.name for group in bill.groups] == ["blue", "red"]
    blue = bill.groups[0]
    assert blue.gpu_hours == pytest.approx((2 + 48 + 1) * RANKS)
    assert line(blue, "lost_work").gpu_seconds == pytest.approx(5 * 60 * RANKS)
    assert line(blue, "recovery").gpu_seconds == pytest.approx(10 * 60 * RANKS)
    assert line(blue, "pending").gpu_seconds == pytest.approx(300 * RANKS)
    assert "192 GPU-hours of it belong to 1 job" in line(blue, "unexplained").note
    numbers = [own.number for own in blue.lines]
    for number in ("0", *map(str, range(1, 9)), "9a", "9b", *map(str, range(10, 14))):
        assert number in numbers
    bubble = line(blue, "pipeline_bubble")
    assert bubble.gpu_seconds is None
    assert bubble.cost is None
    assert bubble.note
    red = bill.groups[1].metrics
    # 20 of 40 minutes of one job, and 12.5 GPU-hours of which nothing else is known.
    least = 20 / 60 * RANKS / (40 / 60 * RANKS + 12.5)
    assert red["goodput_ratio"].value is None
    assert f"between {format_share(least)} and" in red["goodput_ratio"].reason


@pytest.mark.parametrize("by", LEVELS)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_everything_adds_up_at_every_level(fleet: Any, by: str, denominator: str) -> None:
    bill = fleet_bill(fleet, by=by, denominator=denominator, price=PRICE)
    adds_up(bill)
    assert bill.denominator == denominator
    assert bill.denominator_text.startswith(f"{denominator} time")
    undated = 0.0 if by in ("day", "month") else 12.5
    held = (40 / 60 + 2 + 48 + 1) * RANKS + undated
    assert total_of(bill).gpu_hours == pytest.approx(held)
    assert total_of(bill).cost == round(Decimal(held) * PRICE, 2)
    by_time = {one.job_id: one.reason for one in bill.not_billed}
    assert ("12.5 GPU-hours" in by_time.get("undated", "")) is (undated == 0.0)


def test_a_bucket_costs_the_same_at_every_level(fleet: Any) -> None:
    team, one = (total_of(fleet_bill(fleet, by=by, price=PRICE)) for by in ("team", "job"))
    assert [own.cost for own in team.lines] == [own.cost for own in one.lines]


def test_the_same_job_has_the_same_factors_everywhere(fleet: Any) -> None:
    view = job_view(fleet, "broken", price=PRICE, last_steps=None)
    bill = fleet_bill(fleet, by="job", price=PRICE, job_ids=["broken"])
    (group,) = bill.groups
    for name in ("scheduling_ratio", "ettr_ratio", "goodput_ratio", "at_risk_gpu_hours"):
        assert group.metrics[name].value == view.metrics[name].value
    assert group.cost == sum(own.usd for own in view.bill.lines if own.usd is not None)
    known = {own.bucket: own.usd for own in view.bill.lines if own.usd}
    assert {own.bucket: own.cost for own in group.lines if own.cost} == known


def test_a_job_over_a_month_end_counts_on_both_sides(fleet: Any) -> None:
    bill = fleet_bill(fleet, by="month", price=PRICE, job_ids=["good"])
    assert hours(bill) == pytest.approx({"2026-10": 0.5 * RANKS, "2026-11": 10 / 60 * RANKS})
    october, november = bill.groups
    assert line(october, "pending").gpu_seconds == pytest.approx(300 * RANKS)
    assert line(november, "pending").gpu_seconds == 0
    # 10 of 30 minutes before its first step; its last step ends at midnight.
    assert october.metrics["goodput_ratio"].value == pytest.approx(2 / 3)
    assert november.metrics["goodput_ratio"].value is None
    adds_up(bill)
    berlin = fleet_bill(fleet, by="month", tz="Europe/Berlin", price=PRICE, job_ids=["good"])
    assert list(hours(berlin)) == ["2026-11"]
    assert total_of(berlin).cost == total_of(bill).cost


def test_a_day_with_a_clock_change_has_25_hours(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "lake", jobs=[job("j", us(2026, 10, 24), us(2026, 10, 27))])
    bill = fleet_bill(ws, by="day", tz="Europe/Berlin", price=PRICE)
    assert hours(bill) == {
        "2026-10-24": 22.0 * RANKS,
        "2026-10-25": 25.0 * RANKS,
        "2026-10-26": 24.0 * RANKS,
        "2026-10-27": 1.0 * RANKS,
    }
    adds_up(bill)
    only = fleet_bill(
        ws, by="day", tz="Europe/Berlin", first=date(2026, 10, 25), last=date(2026, 10, 25)
    )
    assert hours(only) == {"2026-10-25": 25.0 * RANKS}
    spring = lake_of(tmp_path / "b", jobs=[job("j", us(2026, 3, 28), us(2026, 3, 30))])
    assert hours(fleet_bill(spring, by="day", tz="Europe/Berlin"))["2026-03-29"] == 23.0 * RANKS


def test_a_window_takes_the_part_of_each_job_that_lies_in_it(fleet: Any) -> None:
    bill = fleet_bill(fleet, by="job", first=date(2026, 11, 1), last=date(2026, 11, 1), price=PRICE)
    assert hours(bill) == pytest.approx({"acct": 24 * RANKS, "good": 10 / 60 * RANKS})
    assert bill.period == "2026-11-01 to 2026-11-01, UTC"
    reasons = {one.job_id for one in bill.not_billed}
    assert "undated" in reasons
    assert "liar" not in reasons
    adds_up(bill)
    with pytest.raises(UserError, match="is before"):
        fleet_bill(fleet, first=date(2026, 11, 2), last=date(2026, 11, 1))


def test_what_is_not_known_of_pending_time_is_not_zero(fleet: Any) -> None:
    (group,) = fleet_bill(fleet, by="job", job_ids=["acct"]).groups
    assert group.metrics["scheduling_ratio"].value is None
    assert "not on record" in (group.metrics["scheduling_ratio"].reason or "")
    (told,) = fleet_bill(fleet, by="job", job_ids=["good"]).groups
    assert told.metrics["scheduling_ratio"].value == pytest.approx(35 / 40)


def test_without_a_price_there_is_no_cost(fleet: Any) -> None:
    bill = fleet_bill(fleet)
    assert bill.currency is None
    assert set(costs(bill).values()) == {None}
    assert "no price is set" in bill.cost_basis
    assert bill.reconciliation.effective_cost is None
    assert "charges table is empty" in (bill.reconciliation.reason or "")
    assert bill.reconciliation.unexplained.value is None


@pytest.mark.parametrize(
    "choice",
    [{"by": "planet"}, {"denominator": "wished"}, {"tz": "Europe/Atlantis"}],
)
def test_a_choice_that_does_not_exist_is_told(fleet: Any, choice: dict[str, str]) -> None:
    with pytest.raises(UserError, match="no "):
        fleet_bill(fleet, **choice)  # type: ignore[arg-type]


def test_a_job_that_does_not_exist_is_told(fleet: Any) -> None:
    with pytest.raises(NotFoundError, match="no job 'gone'"):
        fleet_bill(fleet, job_ids=["gone"])


def test_an_empty_lake_has_no_bill(tmp_path: Path) -> None:
    bill = fleet_bill(lake_of(tmp_path / "lake"), price=PRICE)
    assert bill.total is None
    assert bill.sentence == "No job has a bill."


# -- a provider's bill ----------------------------------------------------------------------------


@pytest.fixture
def billed(tmp_path: Path) -> Any:
    """Two nodes: jobs hold half of the first one's month, and a day of the second's two.

    The second one's rate doubles at the end of October.
    """
    october, november = us(2026, 10, 1), us(2026, 11, 1)
    return lake_of(
        tmp_path / "lake",
        jobs=[
            job("a", october, us(2026, 10, 16, 12), team="red"),
            job("b", us(2026, 10, 31, 12), us(2026, 11, 1, 12), team="blue"),
            job("c", october, us(2026, 10, 2), team="blue"),
        ],
        ranks=on("a", "node-1") + on("b", "node-2"),
        charges=[
            charge("1", october, november, "1000.01", "arn:aws:ec2:x:1:instance/node-1"),
            charge("2", us(2026, 10, 31), november, "24.00", "node-2", billed_cost=Decimal(30)),
            charge("3", november, us(2026, 11, 2), "48.00", "node-2"),
            charge("4", october, november, "3.33", None),
            charge("5", october, november, "4.44", "node-1", commitment_status="Unused"),
        ],
    )


def test_effective_cost_is_jobs_and_unallocated_and_unexplained(billed: Any) -> None:
    bill = fleet_bill(billed, price=PRICE)
    adds_up(bill)
    found = bill.reconciliation
    assert (found.billed_cost, found.effective_cost) == (Decimal("1085.78"), Decimal("1079.78"))
    # Half of $1,000.01 each: the odd cent goes to the job.
    assert found.jobs_cost == Decimal("500.01") + Decimal("36.00")
    assert found.unexplained_cost == Decimal("3.33")
    assert found.unallocated_cost == Decimal("500.00") + Decimal("36.00") + Decimal("4.44")
    assert found.effective_cost == (
        found.jobs_cost + found.unallocated_cost + found.unexplained_cost
    )
    assert found.unexplained.value == pytest.approx(3.33 / 1079.78)
    assert costs(bill) == {
        "red": Decimal("500.01"),
        "blue": Decimal("36.00"),
        "held by no job": Decimal("540.44"),
    }
    assert "effective cost of 5 charges in USD" in bill.cost_basis
    assert any("$2.37 per GPU-hour is not used" in text for text in bill.warnings)
    # Job c ran where no charge says anything: its cost is not known, and said to be left out.
    assert any("no charge belongs to 1 of 3 jobs" in text for text in bill.warnings)
    blue = next(group for group in bill.groups if group.name == "blue")
    assert "1 job whose cost is not known" in blue.cost_note
    assert fleet_bill(billed, by="job", job_ids=["c"]).groups[0].cost is None


def test_paid_time_holds_what_nobody_held_and_allocated_time_does_not(billed: Any) -> None:
    paid = total_of(fleet_bill(billed, denominator="paid"))
    allocated = total_of(fleet_bill(billed, denominator="allocated"))
    jobs = (15.5 + 1 + 1) * 24 * RANKS
    assert allocated.gpu_hours == pytest.approx(jobs)
    assert line(allocated, "unallocated").gpu_seconds is None
    assert "not part of the denominator" in line(allocated, "unallocated").note
    # 15.5 days of node 1 and a day of node 2.
    assert paid.gpu_hours - allocated.gpu_hours == pytest.approx(16.5 * 24 * RANKS)
    assert line(paid, "unallocated").share == pytest.approx(16.5 / 34)
    assert line(paid, "unallocated").cost == Decimal("540.44")
    assert allocated.cost == Decimal("536.01")
    assert paid.metrics["scheduling_ratio"].value == pytest.approx(17.5 / 34)
    assert any("at most" in text for text in paid.metrics["scheduling_ratio"].warnings)


def test_a_month_costs_what_was_charged_for_it(billed: Any) -> None:
    bill = fleet_bill(billed, by="month")
    adds_up(bill)
    # 12 hours of node 2 each: 12 USD at the rate of October, 24 USD at that of November.
    assert costs(bill) == {"2026-10": Decimal("1028.45"), "2026-11": Decimal("48.00")}
    only = fleet_bill(billed, by="month", job_ids=["b"])
    assert costs(only) == {"2026-10": Decimal("12.00"), "2026-11": Decimal("24.00")}
    november = fleet_bill(billed, first=date(2026, 11, 1))
    assert costs(november) == {"blue": Decimal("24.00"), "held by no job": Decimal("24.00")}
    assert november.reconciliation.effective_cost == Decimal("48.00")


def test_a_bill_in_another_currency_is_not_called_dollars(billed: Any) -> None:
    billed.lake.append("jobs", rows([job("d", us(2026, 11, 5), us(2026, 11, 6))]), source="test")
    euro = lake_of(
        billed.root.parent / "euro",
        jobs=[job("a", us(2026, 10, 1), us(2026, 10, 2))],
        ranks=on("a", "n"),
        charges=[charge("1", us(2026, 10, 1), us(2026, 10, 2), "9.99", "n", currency="EUR")],
    )
    bill = fleet_bill(euro)
    assert bill.currency == "EUR"
    printed = bill.as_json()
    assert printed["groups"][0]["usd"] is None
    assert printed["groups"][0]["cost"] == Decimal("9.99")
    assert "9.99 EUR" in bill.sentence
    euro.lake.append(
        "charges",
        rows([charge("2", us(2026, 10, 1), us(2026, 10, 2), "1", "n")]),
        source="test",
    )
    with pytest.raises(UserError, match="EUR, USD"):
        fleet_bill(euro)


def test_connected_prices_count_where_they_are_clear(tmp_path: Path) -> None:
    def offer(provider: str, model: str, day: str, price: str) -> dict[str, Any]:
        names = {"form_factor": "SXM", "region": "r", "term": "on-demand", "segment": "neocloud"}
        return {
            "provider": provider,
            "gpu_model": model,
            "observed_on": day,
            "usd_per_gpu_hour": Decimal(price),
        } | names

    span = us(2026, 11, 1), us(2026, 11, 1, 1)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("listed", *span, gpu_model="NVIDIA H100 80GB HBM3"),
            job("unclear", *span, gpu_model="B200"),
            job("unlisted", *span),
        ],
        prices=[
            offer("x", "NVIDIA H100 80GB HBM3", "2026-01-01", "4.00"),
            offer("x", "NVIDIA H100 80GB HBM3", "2026-10-01", "3.00"),
            offer("x", "NVIDIA H100 80GB HBM3", "2026-12-01", "1.00"),
            offer("x", "B200", "2026-10-01", "5.00"),
            offer("y", "B200", "2026-10-01", "6.00"),
        ],
    )
    bill = fleet_bill(ws, by="job", price=Decimal("2.00"))
    assert costs(bill) == dict.fromkeys(("listed", "unclear", "unlisted"), Decimal("8.00"))
    assert bill.cost_basis == ("given price $2.00 per GPU-hour; connected list prices are not used")
    without = fleet_bill(ws, by="cluster")
    assert without.cost_basis == "no price is given: connected list prices for 1 of 3 jobs"
    assert any("2 connected prices of B200 differ" in text for text in without.warnings)
    assert total_of(without).cost == Decimal("12.00")
    assert "2 jobs whose cost is not known" in total_of(without).cost_note


# -- many jobs ------------------------------------------------------------------------------------


def test_small_jobs_that_are_loaded_together_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"job {k}/é" for k in range(12)]
    tables: dict[str, list[dict[str, Any]]] = {"jobs": [], "steps": [], "ranks": []}
    for k, name in enumerate(names):
        tables["jobs"].append(job(name, LATE, LATE + HOUR))
        tables["steps"] += steps(name, LATE, 3 + k, slow_us=k * S)
        tables["steps"] += steps(name, LATE + HOUR // 2, 2, attempt=1, first=2)
        tables["ranks"] += on(name, "node-1", "node-2")
    ws = lake_of(tmp_path / "lake", **tables)
    monkeypatch.setattr(fleet_load, "BATCH_ROWS", 100)
    monkeypatch.setattr(fleet_load, "LARGE_JOB_ROWS", 60)
    jobs = ws.jobs()
    together = dict(load_jobs(ws, jobs))
    assert together.keys() == set(range(len(jobs)))
    for k, record in enumerate(jobs):
        alone, other = load_job(ws, record, last_steps=None), together[k]
        assert other.window == alone.window
        assert other.places == alone.places
        assert (other.attempt, other.newest_us) == (alone.attempt, alone.newest_us)
        for name in ("steps", "ranks", "duration_us", "comm_us", "start_us"):
            np.testing.assert_array_equal(getattr(other.matrix, name), getattr(alone.matrix, name))
        assert other.matrix.world_size == alone.matrix.world_size
    assert all(found is not None for found in analyse_jobs(ws, jobs))


def test_a_log_that_does_not_say_how_many_devices_is_not_billed(tmp_path: Path) -> None:
    begin = us(2026, 11, 1)
    logged = [row for row in steps("log", begin, 10) if row["rank"] == 0]
    record = job("log", begin, begin + HOUR, world_size=None, time_basis="log")
    bill = fleet_bill(lake_of(tmp_path / "lake", jobs=[record], steps=logged), price=PRICE)
    assert bill.total is None
    assert [one.job_id for one in bill.not_billed] == ["log"]
    assert "how many" in bill.not_billed[0].reason


def test_steps_that_were_not_split_are_known_to_be_steps(tmp_path: Path) -> None:
    begin = us(2026, 11, 1)
    bare = [
        {k: row[k] for k in ("job_id", "attempt", "step", "rank", "start_us", "duration_us")}
        for row in steps("a", begin, 60)
    ]
    jobs = [job("a", begin, begin + 3_600_000_000), job("b", begin, begin + 1_800_000_000)]
    bill = fleet_bill(lake_of(tmp_path / "lake", jobs=jobs, steps=bare))
    assert "66.7 %" in bill.sentence
    assert "; of 33.3 % it is not known what happened; of 66.7 %, in steps, it is not known " in (
        bill.sentence
    )


def test_a_job_that_grows_gets_a_new_bill(tmp_path: Path) -> None:
    begin = us(2026, 11, 1)
    running = job("j", begin, None, state="running")
    ws = lake_of(tmp_path / "lake", jobs=[running], steps=steps("j", begin, 10))
    assert total_of(fleet_bill(ws)).gpu_hours == pytest.approx(10 / 60 * RANKS)
    ws.lake.append("steps", rows(steps("j", begin + 10 * 60 * S, 10, first=10)), source="test")
    assert total_of(fleet_bill(ws)).gpu_hours == pytest.approx(20 / 60 * RANKS)
    ws.lake.append("events", rows([event("j", "checkpoint_save", begin)]), source="test")
    assert total_of(fleet_bill(ws)).metrics["at_risk_gpu_hours"].value is not None


spans = st.lists(st.integers(1, 30 * 24 * 60), min_size=2, max_size=4)


@settings(max_examples=15)
@given(
    fleet=st.lists(
        st.tuples(spans, st.integers(0, 6), st.sampled_from(["red", "blue", None])),
        min_size=1,
        max_size=4,
    ),
    tz=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    price=st.sampled_from(["0.01", "2.37", "1234.5678"]),
)
def test_cents_add_up_over_groups_and_months(
    fleet: list[tuple[list[int], int, str | None]], tz: str, price: str
) -> None:
    """Histories over clock changes and month ends, through the view."""
    origin = us(2026, 3, 1)
    tables: dict[str, list[dict[str, Any]]] = {"jobs": [], "steps": [], "events": []}
    for k, (minutes, count, team) in enumerate(fleet):
        edges = [origin + minute * 60 * S for minute in sorted(minutes)]
        name = f"job-{k}"
        tables["jobs"].append(job(name, edges[0], edges[-1] + 7, team=team))
        if count:
            tables["events"].append(event(name, "process_start", edges[0]))
            for attempt, (start, end) in enumerate(pairwise(edges)):
                length = max((end - start) // count, 1)
                tables["steps"] += steps(name, start, count, length=length, attempt=attempt)
    with tempfile.TemporaryDirectory() as folder:
        ws = lake_of(Path(folder) / "lake", **tables)
        made = [fleet_bill(ws, by=by, tz=tz, price=Decimal(price)) for by in LEVELS]
        allocated = fleet_bill(ws, by="month", tz=tz, price=Decimal(price), denominator="allocated")
    for bill in (*made, allocated):
        adds_up(bill)
    assert len({total_of(bill).cost for bill in (*made, allocated)}) == 1
    held = sum(row["end_us"] - row["start_us"] for row in tables["jobs"]) * RANKS
    for bill in made:
        assert total_of(bill).gpu_hours == pytest.approx(held / HOUR)
        assert bill.jobs == len(fleet)


def test_a_bill_of_the_record_alone_is_the_one_that_the_ledger_makes(tmp_path: Path) -> None:
    begin = us(2026, 11, 1)
    jobs = [
        job(f"j{k}", begin + k * HOUR, begin + (2 * k + 1) * HOUR, team=f"t{k}", world_size=k + 1)
        for k in range(3)
    ]
    ws = lake_of(tmp_path / "lake", jobs=jobs)
    for made, record in zip(job_bills(ws, jobs), jobs, strict=True):
        want, _ = job_waterfall(record, [], None, None)
        assert made.bill is not None
        assert made.bill.rows == want.rows
        assert made.bill.labels == want.labels
        assert made.bill.total_gpu_us == want.total_gpu_us
        assert made.bill.findings == want.findings
        assert made.bill.timeline is not None
        assert want.timeline is not None
        assert made.bill.timeline.span_us == want.timeline.span_us


@pytest.mark.parametrize("with_event", [True, False])
@pytest.mark.parametrize("known", ["start_us", None])
def test_a_job_that_runs_counts_as_far_as_its_record_goes(
    tmp_path: Path, known: str | None, with_event: bool
) -> None:
    lake = tmp_path / "lake"
    ws = lake_of(lake)
    start_us = 1_772_366_400_000_000
    row: dict[str, Any] = {"job_id": "r", "state": "running", "world_size": 16}
    if known:
        row[known] = start_us
    Lake(lake).append("jobs", pa.Table.from_pylist([{**row, "gpu_hours": 192.0}]), source="t")
    event = {"job_id": "r", "attempt": 0, "start_us": start_us, "kind": "allocated"}
    if with_event and known:
        Lake(lake).append("events", pa.Table.from_pylist([event]), source="t")
    bill = fleet_bill(ws, by="job", price=PRICE)
    assert [(group.name, group.gpu_hours) for group in bill.groups] == [("r", pytest.approx(192.0))]
