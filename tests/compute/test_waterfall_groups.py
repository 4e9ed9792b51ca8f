"""Bills of groups and periods are the sums of the bills of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.apportion import GpuSpan, Unit, apportion, to_us
from steptax.app.compute.bill.cost import usd
from steptax.app.compute.bill.goodput import Denominator
from steptax.app.compute.bill.timeline import Allocation
from steptax.app.compute.bill.waterfall import job_ledger
from steptax.app.compute.bill.waterfall_groups import (
    by_period,
    grouped,
    split_periods,
    total,
    unallocated,
    within,
)
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall, close_cents
from steptax.app.compute.mfu.step_flops import StepFlops
from steptax.app.errors import IntegrityError, NotFoundError, UserError

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000


def job(
    name: str,
    start: int,
    end: int,
    *,
    gpus: int = 2,
    price: str | None = "2.00",
    flops: StepFlops | None = None,
    steps: list[dict[str, Any]] | None = None,
    denominator: Denominator = Denominator.PAID,
    **labels: str,
) -> Waterfall:
    return job_ledger(
        {"job_id": name, "world_size": gpus, "start_us": start, "end_us": end, **labels},
        [],
        steps or [],
        flops=flops,
        denominator=denominator,
        usd_per_gpu_hour=None if price is None else Decimal(price),
    )


def test_a_job_counts_in_each_month_with_its_part(shared: Callable[[str], Path]) -> None:
    bills = []
    text = shared("cases/14-month-boundary-counted-twice/jobs.csv").read_text().splitlines()
    for line in text[1:]:
        name, start, end, gpus = line.split(",")
        span = (to_us(datetime.fromisoformat(moment)) for moment in (start, end))
        bills.append(job(name, *span, gpus=int(gpus)))
    months = by_period(bills, Unit.MONTH)
    assert {m: float(b.total_gpu_us / HOUR_US) for m, b in months.items()} == pytest.approx(
        {"2025-01": 208.0, "2025-02": 1376.5333, "2025-03": 48.5333}, abs=1e-4
    )
    whole = total(bills)
    assert whole.total_usd == Decimal("3266.13")
    assert sum((bill.total_usd or Decimal(0)) for bill in months.values()) == whole.total_usd
    assert sum(bill.total_gpu_us for bill in months.values()) == whole.total_gpu_us
    assert [bill.labels.period for bill in months.values()] == list(months)


def test_jobs_of_a_real_cluster(shared: Callable[[str], Path]) -> None:
    """The exact sum is priced, not the sum of jobs that were each rounded to the cent."""
    frame = pd.read_parquet(shared("fleet/philly_jobs.parquet"))
    spans = [
        GpuSpan(0, round(seconds * 1e6), int(gpus))
        for seconds, gpus in zip(frame["duration"], frame["num_gpus"], strict=True)
    ]
    gpu_us = sum(apportion(spans, Unit.MONTH).values())
    assert gpu_us / HOUR_US == pytest.approx(642409.31, abs=0.01)
    assert usd(Fraction(gpu_us, 10**6), Decimal(2)) == Decimal("1284818.63")
    frame = frame.sample(2000, random_state=7)
    bills = [
        job(str(k), 0, round(seconds * 1e6), gpus=int(gpus), team=str(team))
        for k, (seconds, gpus, team) in enumerate(
            zip(frame["duration"], frame["num_gpus"], frame["cluster"], strict=True)
        )
    ]
    hours = float((frame["duration"] * frame["num_gpus"]).sum()) / 3600
    whole = total(bills)
    assert whole.measures()["gpu_hours"].value == pytest.approx(hours, abs=0.01)
    assert float(whole.total_usd or 0) == pytest.approx(2 * hours, abs=0.01)
    teams = grouped(bills, "team")
    assert sum(bill.total_usd or Decimal(0) for bill in teams.values()) == whole.total_usd
    for team, bill in teams.items():
        own = frame[frame["cluster"] == team]
        expected = float((own["duration"] * own["num_gpus"]).sum()) / 3600
        assert bill.measures()["gpu_hours"].value == pytest.approx(expected, abs=0.01)


STEPS = [{"step": k, "start_us": 10 + 20 * k, "duration_us": 20} for k in range(4)]


@settings(max_examples=60)
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 3 * DAY_US), st.integers(1, 3 * DAY_US), st.integers(1, 9)),
        min_size=1,
        max_size=5,
    ),
    tz=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    price=st.sampled_from(["2.00", "0.0071"]),
)
def test_days_of_several_jobs_add_up(
    spans: list[tuple[int, int, int]], tz: str, price: str
) -> None:
    bills = [
        job(f"j{k}", start, start + length, gpus=gpus, price=price, team=f"t{k % 2}")
        for k, (start, length, gpus) in enumerate(spans)
    ]
    whole = total(bills)
    for parts in (by_period(bills, Unit.DAY, tz), grouped(bills, "team"), grouped(bills, "job_id")):
        assert sum(part.total_gpu_us for part in parts.values()) == whole.total_gpu_us
        assert sum(part.total_usd or Decimal(0) for part in parts.values()) == whole.total_usd
    assert total(bills[::-1]).rows == whole.rows


def test_a_day_of_a_reporting_zone() -> None:
    start = to_us(datetime(2025, 10, 25, 22, tzinfo=UTC))
    days = by_period([job("j", start, start + 49 * HOUR_US)], Unit.DAY, "Europe/Berlin")
    assert {day: bill.total_gpu_us / HOUR_US for day, bill in days.items()} == {
        "2025-10-26": 50,
        "2025-10-27": 48,
    }


def test_ratios_of_a_group_are_ratios_of_sums() -> None:
    useful = StepFlops(Fraction(10), Fraction(1))
    bills = [
        job("a", 0, 100, steps=STEPS, flops=useful, team="x"),
        job("b", 0, 120, steps=STEPS, flops=useful, team="x"),
    ]
    both = total(bills, Labels(team="x"))
    assert both.measures()["goodput_ratio"].value == 320 / 440
    assert both.measures()["effective_mfu_ratio"].value == 80 / 440
    assert both.measures()["effective_mfu_ratio"].warnings == ()
    assert both.labels.team == "x"
    assert both.row("recompute").gpu_us == 0


def test_time_that_nothing_explains_opens_the_ratios() -> None:
    goodput = job("a", 0, 100, steps=STEPS).measures()["goodput_ratio"]
    assert (goodput.low, goodput.value, goodput.high) == (0.8, 0.8, 0.9)
    assert job("b", 0, 80, steps=STEPS).measures()["goodput_ratio"].high is None
    mostly = total([job("a", 0, 100, steps=STEPS), job("c", 0, 900)]).measures()
    assert mostly["goodput_ratio"].value is None
    assert mostly["goodput_ratio"].reason == (
        "between 8.0 % and 99.0 %: of 91.0 % of the time it is not known what happened"
    )
    assert mostly["ettr_ratio"].value is None
    assert (mostly["scheduling_ratio"].low, mostly["scheduling_ratio"].value) == (0.09, 1.0)


def test_what_some_jobs_do_not_know_is_said() -> None:
    known = job("a", 0, 100, steps=STEPS, flops=StepFlops(Fraction(10)))
    other = job("b", 0, 100, steps=STEPS)
    bare = job("c", 0, 50)
    both = total([known, other, bare])
    assert both.row("useful").gpu_us == 40
    assert both.row("useful").note == "not known in 2 of 3 bills"
    measure = both.measures()["effective_mfu_ratio"]
    assert measure.value == 40 / 500
    assert "1 of 3 bills have no steps" in measure.warnings
    assert any("lower bound" in warning for warning in measure.warnings)
    assert both.row("pending").gpu_us is None
    assert "no start of a training process" in both.row("pending").note
    neither = total([other, bare])
    assert neither.measures()["effective_mfu_ratio"].reason == "no model FLOPs known"
    assert both.level == bare.level
    free = job("d", 0, 100, price=None)
    assert total([known, free]).total_usd is None
    assert total([free]).measures()["spend_usd"].reason == "no price is known"


def test_findings_of_a_sum_name_their_job() -> None:
    twice = job("a", 0, 100, steps=[*STEPS, STEPS[0]])
    both = total([twice, job("b", 0, 100)])
    assert [f.text for f in both.findings] == ["a: 1 step rows came twice"]
    assert total([both, both]).findings == (both.findings[0], both.findings[0])


def test_what_nobody_held_is_a_bill_of_its_own() -> None:
    bills = [job("a", 0, 100, cluster="c"), job("b", 50, 100, gpus=3, cluster="c")]
    paid = [Allocation(0, 200, 8)]
    idle = unallocated(paid, bills, Labels(cluster="c"), usd_per_gpu_hour=Decimal("7200000"))
    assert idle.total_gpu_us == 1600 - 200 - 150
    assert idle.total_usd == Decimal("2.50")
    cluster = grouped([*bills, idle], "cluster")["c"]
    assert cluster.total_gpu_us == 1600
    assert cluster.row("unallocated").gpu_us == 1250
    assert cluster.row("unallocated").note == ""
    assert cluster.goodput.scheduled_gpu_us == 350
    assert sum(p.total_gpu_us for p in split_periods(idle, Unit.DAY)) == 1250
    with pytest.raises(IntegrityError, match=r"c: .* more are held than were paid for"):
        unallocated([], [job("a", 0, 10**9, cluster="c")], Labels(cluster="c"))
    with pytest.raises(UserError, match="give the bills of jobs"):
        unallocated(paid, [cluster], Labels())


def test_work_at_risk_adds_up_where_it_is_known() -> None:
    save = [{"kind": "checkpoint_save", "start_us": 0, "end_us": 5, "attempt": 0}]
    row = {"job_id": "a", "world_size": 3_600_000, "start_us": 0, "end_us": 100}
    known = job_ledger(row, save, STEPS)
    both = total([known, known, job("b", 0, 100)])
    assert both.at_risk is not None
    assert both.at_risk.value == pytest.approx(2 * 0.08)
    assert both.at_risk.warnings == ("not known for 1 of 3 bills",)
    assert total([job("b", 0, 100)]).at_risk is None


def test_what_cannot_be_added_or_cut_is_refused() -> None:
    one = job("a", 0, 100)
    both = total([one, one])
    for cut in (lambda: within(both, 0, 1), lambda: split_periods(both, Unit.DAY)):
        with pytest.raises(UserError, match="cannot be cut by time"):
            cut()
    with pytest.raises(UserError, match="do not add up"):
        total([one, job("b", 0, 9, denominator=Denominator.ALLOCATED)])
    for empty in (lambda: total([]), lambda: by_period([], Unit.DAY), lambda: grouped([], "team")):
        with pytest.raises(NotFoundError, match="there are no bills"):
            empty()
    assert list(grouped([one], "team")) == ["no team stated"]


def test_cents_of_bills_that_are_shown_together_add_up() -> None:
    third = [job(f"j{k}", 0, HOUR_US, gpus=1, price="0.333") for k in range(3)]
    assert [bill.total_usd for bill in third] == [Decimal("0.33")] * 3
    assert sum(bill.total_usd or 0 for bill in close_cents(third)) == Decimal("1.00")


def test_a_cut_of_a_cut_is_a_cut() -> None:
    bill = job("a", 0, 100, steps=STEPS, flops=StepFlops(Fraction(10)))
    once = within(within(bill, 20, 80), 40, 200)
    assert once.rows == within(bill, 40, 80).rows
    assert once.total_gpu_us == 80
    assert once.usd_exact == within(bill, 40, 80).usd_exact
    assert not within(bill, 0, 10).has_steps
    assert timedelta(microseconds=int(once.total_gpu_us)) == timedelta(microseconds=80)
