"""The cost review: cards, periods split by time, weeks, variance, anomalies, showback, runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.cli import main
from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.lake.commits import Commit
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.review.budget import budget_view, set_budget
from steptax.app.views.review.executive import days_of, executive_view
from steptax.app.views.review.executive_models import ExecutiveView
from steptax.app.views.review.periods import change_text
from steptax.app.views.workspace import Workspace, open_workspace
from tests.app.fleet_lake import HOUR, RANKS, S, charge, event, job, lake_of, on, rows, steps, us

PRICE = Decimal(2)
DAY = 24 * HOUR
NOW = us(2026, 11, 30)
EXAMPLES = Path(__file__).resolve().parents[1] / "connectors" / "examples"


def review(ws: Workspace, first: str | None = None, last: str | None = None, **more: Any) -> Any:
    bounds = [None if text is None else date.fromisoformat(text) for text in (first, last)]
    first_us, last_us = days_of(*bounds)
    asked: dict[str, Any] = {"price": PRICE, "now_us": NOW} | more
    return executive_view(ws, first_us=first_us, last_us=last_us, **asked)


def card(view: ExecutiveView, name: str) -> Any:
    return next(one for one in view.cards if one.metric_id == name)


def daily_jobs(days: int, *, gpus: int = 4, hours: int = 10, **more: Any) -> list[dict[str, Any]]:
    """A job a day, up to 28 November."""
    first = us(2026, 11, 29) - days * DAY
    return [
        job(f"d{n:03d}", first + n * DAY, first + n * DAY + hours * HOUR, world_size=gpus, **more)
        for n in range(days)
    ]


# -- size -----------------------------------------------------------------------------------------


def test_sums_hold_where_64_bits_of_gpu_microseconds_do_not(tmp_path: Path) -> None:
    """Three jobs of 100,000 devices for 10,000 hours: 3e9 GPU-hours; one with no such number."""
    begin, hours = us(2024, 1, 1), 10_000
    big = [
        job(f"b{n}", begin, begin + hours * HOUR, world_size=100_000, team=f"t{n % 2}")
        for n in range(3)
    ]
    odd = job("odd", begin, begin + HOUR, world_size=90_000_000, team="t0")
    view = review(lake_of(tmp_path / "lake", jobs=[*big, odd]))
    assert "You paid $6.00B for 3.00B GPU-hours over 3 of 4 jobs" in view.sentence
    assert view.kpis[1].measure.value == 3e9
    assert card(view, "cost_usd").measure.value == 6e9
    assert sum(row.gpu_hours for row in view.by_period) == pytest.approx(3e9)
    assert [row.gpu_hours.value for row in view.showback["team"]] == [2e9, 1e9]
    unknown = next(row for row in view.jobs if row.job_id == "odd").gpu_hours
    assert "90,000,000 devices" in (unknown.reason or "")


# -- periods --------------------------------------------------------------------------------------


def test_a_job_counts_in_each_period_with_its_part(tmp_path: Path) -> None:
    begin = us(2026, 10, 31, 12)
    ws = lake_of(tmp_path / "lake", jobs=[job("a", begin, begin + DAY)])
    for first, last in (("2026-10-01", "2026-10-31"), ("2026-11-01", "2026-11-30")):
        view = review(ws, first, last)
        assert card(view, "cost_usd").measure.value == 2 * 12 * RANKS
        (only,) = view.jobs
        assert only.gpu_hours.value == 12 * RANKS
        assert only.spend_usd.value == 2 * 12 * RANKS
    whole = review(ws)
    assert [(row.period, row.gpu_hours) for row in whole.by_period] == [
        ("2026-10", 12 * RANKS),
        ("2026-11", 12 * RANKS),
    ]
    assert [row.jobs for row in whole.by_period] == [1, 1]


def test_steps_count_in_a_period_as_they_lie_in_it(tmp_path: Path) -> None:
    """Two hours of steps before midnight and one after it."""
    begin = us(2026, 11, 10, 22)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 3 * HOUR)],
        steps=steps("a", begin, 180, slow_us=12 * S, tokens=1000),
    )
    whole, before = review(ws), review(ws, "2026-11-10", "2026-11-10")
    assert before.kpis[1].measure.value == pytest.approx(2 * RANKS)
    for name in ("recoverable_usd", "straggler_tax_usd"):
        values = [
            (view.jobs[0].recoverable_usd if name == "recoverable_usd" else None)
            for view in (before, whole)
        ]
        if values[0] is not None and values[1] is not None:
            assert values[0].value == pytest.approx(2 / 3 * (values[1].value or 0))
    assert card(before, "recoverable_usd").measure.value == pytest.approx(
        2 / 3 * card(whole, "recoverable_usd").measure.value
    )
    # A share and a price per token are the same in every part of even steps.
    for name in ("straggler_tax_ratio", "usd_per_billion_tokens"):
        assert card(before, name).measure.value == pytest.approx(card(whole, name).measure.value)
    paid = sum(float(line.usd or 0) for line in before.ledger)
    assert paid == pytest.approx(2 * 2 * RANKS, abs=0.01)


def test_a_change_is_to_a_named_period(tmp_path: Path) -> None:
    """Ten hours a day on 4 devices, from the 15th on on 8."""
    jobs = daily_jobs(56)
    for row in jobs[28:]:
        row["world_size"] = 8
    ws = lake_of(tmp_path / "lake", jobs=jobs)
    view = review(ws)
    assert "newest 4 weeks, 2026-11-01 to 2026-11-28" in view.compared
    assert "previous 4 weeks (2026-10-04 to 2026-10-31)" in view.compared
    spend = card(view, "cost_usd")
    assert spend.delta is not None
    assert spend.delta.change.value == pytest.approx(1.0)
    assert spend.delta.before.value == 28 * 10 * 4 * 2
    assert spend.measure.value == 3 * spend.delta.before.value
    assert len(spend.spark) >= 8
    assert change_text(spend.delta) == "+100.0 %"
    november = review(ws, "2026-11-01", "2026-11-28", compare_to="2026-11-01..2026-11-28")
    assert card(november, "cost_usd").delta.change.value == 0
    assert change_text(card(november, "cost_usd").delta) == "level"
    assert change_text(card(november, "goodput_ratio").delta) == ""
    assert card(review(ws, compare_to="none"), "cost_usd").delta is None
    before = card(review(ws, compare_to="year"), "cost_usd").delta
    assert before.change.value is None
    assert "no job held a device" in before.change.reason
    assert "the record begins" not in view.compared
    partly = review(ws, "2026-10-10", "2026-10-30")
    assert "the record begins on 2026-10-04, so of the 21 days" in partly.compared
    assert "only 6 are in it" in partly.compared
    # Six days on record against 21: an amount would have risen with the days.
    assert card(partly, "cost_usd").delta.change.reason.startswith("21 days on record are not held")
    assert partly.variance is None
    assert "21 days on record are not held against 6: an amount" in partly.no_variance
    assert "are not held against 6: an amount adds up over days" in partly.compared
    short = review(lake_of(tmp_path / "short", jobs=daily_jobs(42)))
    assert "newest 3 weeks, 2026-11-08 to 2026-11-28, vs previous 3 weeks" in short.compared
    assert card(short, "cost_usd").delta.change.value == 0
    assert short.variance is not None
    with pytest.raises(UserError, match="called 'last'"):
        review(ws, compare_to="last")
    with pytest.raises(UserError, match="is before"):
        review(ws, "2026-11-02", "2026-11-01")


def test_a_period_without_data_says_what_to_connect(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "lake", jobs=daily_jobs(3))
    view = review(ws, "2025-01-01", "2025-01-31")
    assert view.empty is not None
    assert "The record covers 2026-11-26 to 2026-11-28" in view.empty.text
    assert any("steptax ingest focus" in command for _, command in view.empty.connect)
    for one in view.cards:
        assert one.measure.value is None, one.title
    assert "$0" not in view.sentence
    assert not view.weeks
    assert review(ws).empty is None
    nothing = review(lake_of(tmp_path / "other"))
    assert nothing.empty is not None
    assert card(nothing, "cost_usd").measure.value is None


# -- cards ----------------------------------------------------------------------------------------


def test_a_checkpoint_that_was_rolled_back_past_is_not_kept(tmp_path: Path) -> None:
    """Three saves; the last one is of steps that a failure takes back to step 60."""
    begin = us(2026, 11, 10)
    told = [
        event("a", "checkpoint_save", begin + 30 * 60 * S),
        event("a", "checkpoint_save", begin + 60 * 60 * S),
        event("a", "checkpoint_save", begin + 90 * 60 * S),
        event("a", "failure", begin + 100 * 60 * S),
        event("a", "checkpoint_restore", begin + 101 * 60 * S, attempt=1),
    ]
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 4 * HOUR)],
        steps=steps("a", begin, 100) + steps("a", begin + 2 * HOUR, 120, attempt=1, first=60),
        events=told,
    )
    found = card(review(ws), "usd_per_checkpoint").measure
    assert found.value == pytest.approx(2 * 4 * RANKS / 2)
    lacking = card(review(lake_of(tmp_path / "b", jobs=daily_jobs(2))), "usd_per_checkpoint")
    assert lacking.measure.value is None


def test_tokens_cost_what_the_jobs_that_count_them_cost(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 2 * HOUR), job("b", begin, begin + 50 * HOUR)],
        steps=steps("a", begin, 60, tokens=10**6),
    )
    found = card(review(ws), "usd_per_billion_tokens").measure
    assert found.value == pytest.approx(2 * 2 * RANKS / (60 * RANKS * 1e6) * 1e9)


def test_spend_stands_beside_its_budget_and_goodput_beside_its_objective(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 10 * HOUR)],
        steps=steps("a", begin + HOUR, 540),
    )
    view = review(ws)
    assert card(view, "cost_usd").details == ("no budget is set for 2026-11",)
    set_budget(
        ws,
        scope="all",
        period="2026-11",
        budget_usd=Decimal(100),
        goodput_slo_ratio=0.8,
        set_by="ada",
    )
    view = review(ws)
    said = " ".join(card(view, "cost_usd").details)
    assert "2026-11: $80.00 of $100" in said
    assert "(80.0 %)" in said
    goodput = card(view, "goodput_ratio")
    assert goodput.measure.value == pytest.approx(0.9)
    (allowed,) = [text for text in goodput.details if "error budget" in text]
    assert "objective 80.0 % in 2026-11" in goodput.details
    # The last day has just begun: it is taken to cost what the only complete one did.
    assert "of $32" in allowed
    assert view.weeks[-1].budget_usd == pytest.approx(7 * 100 / 30)


def test_what_to_fix_first_and_what_it_is_worth(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("a", begin, begin + 2 * HOUR, owner="ada"),
            job("b", begin, None, owner="bob", state="running"),
        ],
        ranks=on("b", "n1"),
        steps=steps("a", begin, 120) + steps("b", begin, 120, slow_us=15 * S),
    )
    view = review(ws)
    first = view.fix_first
    assert first is not None
    assert (first.job_id, first.owner) == ("b", "bob")
    assert first.worth_usd.value == view.jobs[0].recoverable_usd.value
    assert "100.0 % of all that can be won back" in first.worth
    assert "rank 0 on n1" in first.why
    assert first.per_day_usd.value == pytest.approx(12 * first.worth_usd.value, rel=0.02)
    assert f"Fix first: job b, worth {first.worth}." in view.sentence
    assert view.jobs[0].culprit == "rank 0 on n1"
    assert view.jobs[0].trend.startswith("level")
    assert card(view, "recoverable_usd").link.job_id == "b"
    assert first.a_day.startswith("A day of steps costs $")
    details = card(view, "recoverable_usd").details
    assert any("a day of steps in jobs that run" in text for text in details)
    unpriced = review(ws, price=None).fix_first
    assert unpriced.worth_usd.value is None
    assert "GPU-hours" in unpriced.worth


def test_what_is_fixed_first_is_part_of_what_all_jobs_can_win_back(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job(name, begin, begin + 2 * HOUR) for name in "ab"],
        steps=steps("a", begin, 120, slow_us=15 * S) + steps("b", begin, 120, slow_us=15 * S),
    )
    for price in (Decimal(2), None):
        view = review(ws, price=price)
        assert "50.0 % of all that can be won back" in view.fix_first.worth


def shares_of(view: ExecutiveView) -> list[float]:
    """Shares of all that can be won back, in percent."""
    return [float(one.worth.split(", ")[1].split(" %")[0]) for one in view.fixes]


def test_a_job_that_failed_counts_once_however_slow_its_rank_was(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("bad", begin, begin + 2 * HOUR, state="failed"),
            job("good", begin, begin + 2 * HOUR),
        ],
        steps=steps("bad", begin, 120, slow_us=15 * S) + steps("good", begin, 120, slow_us=5 * S),
    )
    for price in (Decimal(2), None):
        view = review(ws, price=price)
        assert view.jobs[0].job_id == "bad"
        failed, straggler = view.fixes
        assert failed.what == "1 job that failed"
        assert straggler.job_id == "good"
        assert straggler.worth_gpu_hours.value == view.jobs[1].recoverable_gpu_hours.value
        assert sum(shares_of(view)) == pytest.approx(100, abs=0.2)
    view = review(ws)
    told = sum(one.recoverable_usd.value for one in view.jobs)
    assert card(view, "recoverable_usd").measure.value == pytest.approx(told)
    assert view.showback["team"][0].recoverable_usd.value == pytest.approx(told)


def test_in_a_period_the_stragglers_of_its_jobs_alone_count(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job(name, begin + k * DAY, begin + k * DAY + 2 * HOUR) for k, name in enumerate("ab")
        ],
        steps=steps("a", begin, 120, slow_us=15 * S) + steps("b", begin + DAY, 120, slow_us=15 * S),
    )
    assert shares_of(review(ws)) == [50.0]
    alone = review(ws, "2026-11-11", "2026-11-11")
    assert alone.fix_first.job_id == "b"
    assert shares_of(alone) == [100.0]
    assert alone.fix_first.worth_usd.value == card(alone, "recoverable_usd").measure.value


def test_the_costliest_straggler_leads_and_without_all_costs_the_longest(tmp_path: Path) -> None:
    """Devices of ``a`` cost ten times those of ``b``, which lost twice the time; ``c`` has none."""
    begin = us(2026, 11, 10)
    jobs = [job(name, begin, begin + 2 * HOUR) for name in "ab"]
    tables: dict[str, Any] = {
        "ranks": on("a", "n1") + on("b", "n2"),
        "steps": steps("a", begin, 120, slow_us=8 * S) + steps("b", begin, 120, slow_us=16 * S),
        "charges": [
            charge("1", begin, begin + 2 * HOUR, "160", "n1"),
            charge("2", begin, begin + 2 * HOUR, "16", "n2"),
        ],
    }
    view = review(lake_of(tmp_path / "priced", jobs=jobs, **tables))
    assert view.jobs[0].job_id == "b"
    assert view.fix_first.job_id == "a"
    total = card(view, "recoverable_usd").measure.value
    assert shares_of(view) == [
        pytest.approx(100 * view.fix_first.worth_usd.value / total, abs=0.05)
    ]
    assert sum(row.recoverable_usd.value for row in view.showback["team"]) == pytest.approx(total)
    # Nothing was charged for a third job, so what all of them cost is not known, and time is.
    late = begin + 5 * DAY
    more = {
        "ranks": tables["ranks"] + on("c", "n3"),
        "steps": tables["steps"] + steps("c", late, 120, slow_us=5 * S),
        "charges": tables["charges"],
    }
    view = review(lake_of(tmp_path / "part", jobs=[*jobs, job("c", late, late + 2 * HOUR)], **more))
    assert view.fix_first.job_id == "b"
    hours = [one.recoverable_gpu_hours.value for one in view.jobs]
    assert shares_of(view) == [pytest.approx(100 * hours[0] / sum(hours), abs=0.05)]


def test_a_sliver_of_recorded_steps_says_nothing_of_the_whole(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake", jobs=[job("a", begin, begin + 50 * HOUR)], steps=steps("a", begin, 20)
    )
    said = review(ws).sentence
    assert "of it were recorded in steps: too little to say where the time went" in said
    assert "loss" not in said
    assert "straggler" not in said


def test_without_steps_failed_jobs_are_what_to_look_at(tmp_path: Path) -> None:
    jobs = [*daily_jobs(10, team="red"), job("x", us(2026, 11, 5), us(2026, 11, 6), state="failed")]
    first = review(lake_of(tmp_path / "lake", jobs=jobs)).fix_first
    assert first is not None
    assert first.what == "1 job that failed"
    assert first.worth.startswith("at most $192")
    assert review(lake_of(tmp_path / "b", jobs=daily_jobs(2))).fix_first is None


# -- money ----------------------------------------------------------------------------------------


@pytest.fixture
def billed(tmp_path: Path) -> Workspace:
    """One host of four devices for four days at $10 a day, the last two at $20; a job on half."""
    begin = us(2026, 11, 10)
    costs = ["10", "10", "20", "20"]
    return lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 2 * DAY + DAY // 2, team="red", cluster="c")],
        ranks=on("a", "n"),
        charges=[
            charge(str(k), begin + k * DAY, begin + (k + 1) * DAY, cost, "n")
            for k, cost in enumerate(costs)
        ],
    )


def test_a_bill_tells_the_cost_of_each_day_and_what_nobody_held(billed: Workspace) -> None:
    view = review(billed, price=None)
    assert card(view, "cost_usd").measure.value == pytest.approx(60)
    assert view.unallocated.spend_usd.value == pytest.approx(30)
    assert view.unallocated.gpu_hours.value == pytest.approx(36 * RANKS)
    (red,) = view.showback["team"]
    assert red.spend_usd.value == pytest.approx(30)
    assert view.sentence.startswith(
        "You were billed $60.00: $30.00 for 240 GPU-hours over 1 job, and how much of that went "
        "into steps that count is unknown; $30.00 for devices that no job held."
    )
    half = review(billed, "2026-11-12", "2026-11-12", price=None)
    assert card(half, "cost_usd").measure.value == pytest.approx(20)
    assert half.jobs[0].spend_usd.value == pytest.approx(10)
    bill = fleet_bill(billed, by="day")
    assert bill.total is not None
    assert card(view, "cost_usd").measure.value == pytest.approx(float(bill.total.cost or 0))
    dearer = review(
        billed, "2026-11-12", "2026-11-12", price=None, compare_to="2026-11-11..2026-11-11"
    )
    assert dearer.variance is not None
    effects = {name: float(usd) for name, usd, _ in dearer.variance.effects}
    # Half a day at twice the price: 10 to 10; the other half of the device was held by nobody.
    assert effects["price"] == pytest.approx(7.5)
    assert effects["volume"] == pytest.approx(-7.5)
    assert effects["unallocated"] == pytest.approx(10)
    assert sum(effects.values()) == pytest.approx(10)


def test_a_bill_far_above_its_jobs_says_what_they_do_not_explain(billed: Workspace) -> None:
    """A bucket of storage over the four days, and a tax of no day."""
    begin = us(2026, 11, 10)
    more = [
        charge("store", begin, begin + 4 * DAY, "8700", "bucket"),
        charge("tax", None, None, "100", None),
    ]
    lake = Lake(billed.root)
    lake.append("charges", rows(more), source="test")
    lake.append("events", rows([event("a", "process_start", begin)]), source="test")
    lake.append("steps", rows(steps("a", begin + HOUR, 600, length=60 * S)), source="test")
    ws = open_workspace(billed.root)
    said = review(ws, price=None).sentence
    useful = 10 / 24 * 10  # ten hours of the first day, of which the bill is $10
    assert said.startswith(
        f"You were billed $8,860: $30.00 for 240 GPU-hours over 1 job, of which at least "
        f"${useful:.2f} went into steps that count; $30.00 for devices that no job held and "
        "$8,800 for other services or nodes, which no job is known to have used."
    )
    whole = fleet_bill(ws, by="day").reconciliation
    assert whole.effective_cost == Decimal(8860)
    assert whole.unexplained_cost == Decimal(8800)
    # Of a day its part of the store, and nothing of what has no day.
    day = review(ws, "2026-11-12", "2026-11-12", price=None).sentence
    assert day.startswith("You were billed $2,195, 2026-11-12: $10.00 for 48.0 GPU-hours")
    own = fleet_bill(ws, first=date(2026, 11, 12), last=date(2026, 11, 12)).reconciliation
    assert own.unexplained_cost == Decimal(2175) + 100  # the whole bill keeps what has no day


def test_a_bill_in_another_currency_leaves_dollars_unknown(billed: Workspace) -> None:
    more = [charge("x", us(2026, 11, 10), us(2026, 11, 11), "5", "n", currency="EUR")]
    lake = Lake(billed.root)
    lake.append("charges", rows(more), source="test")
    view = review(open_workspace(billed.root), price=None)
    spend = card(view, "cost_usd").measure
    assert spend.value is None
    assert "EUR" in (spend.reason or "")
    assert view.jobs[0].gpu_hours.value == pytest.approx(60 * RANKS)


def test_a_budget_by_day_is_that_of_the_whole_bill(tmp_path: Path) -> None:
    begin = us(2026, 11, 10, 20)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("a", begin, begin + 10 * HOUR, team="red"),
            job("b", begin, begin + 30 * HOUR, team="blue"),
        ],
        steps=steps("a", begin + HOUR, 500),
    )
    for scope, chosen in (("all", ()), ("team:red", ("a",)), ("job:b", ("b",))):
        view = budget_view(ws, scope=scope, period="2026-11", price=PRICE, now_us=NOW)
        bill = fleet_bill(ws, by="day", price=PRICE, job_ids=chosen)
        assert [(str(d.day), d.usd) for d in view.days] == [
            (group.name, float(group.cost or 0)) for group in bill.groups
        ]
        for day, group in zip(view.days, bill.groups, strict=True):
            want = group.metrics["goodput_ratio"].value
            assert day.goodput_ratio == (None if want is None else pytest.approx(want))


# -- anomalies ------------------------------------------------------------------------------------


def test_an_anomaly_names_team_job_and_owner(tmp_path: Path) -> None:
    jobs = daily_jobs(40, team="blue") + [
        row | {"job_id": f"r{n}", "team": "red"} for n, row in enumerate(daily_jobs(40))
    ]
    spike = us(2026, 11, 20)
    jobs.append(job("huge", spike, spike + 20 * HOUR, world_size=64, team="red", owner="eve"))
    view = review(lake_of(tmp_path / "lake", jobs=jobs))
    whole = next(row for row in view.anomalies if row.scope == "all jobs")
    assert (whole.first_day, whole.last_day, whole.state) == ("2026-11-20", "2026-11-20", "past")
    assert whole.impact == pytest.approx(2 * 20 * 64)
    assert whole.expected == pytest.approx(160)
    assert whole.low <= whole.expected <= whole.high < whole.actual
    assert "team red +$2,560" in whole.driver
    assert "job huge +$2,560" in whole.driver
    assert whole.owner == "eve"
    assert {row.scope for row in view.anomalies} == {"all jobs", "team red"}
    before = review(open_workspace(tmp_path / "lake"), "2026-11-01", "2026-11-10")
    assert before.anomalies == ()
    hours = review(open_workspace(tmp_path / "lake"), price=None).anomalies[0]
    assert (hours.unit, hours.impact) == ("GPU-hours", pytest.approx(20 * 64))


def test_an_anomaly_of_a_price_says_so(tmp_path: Path) -> None:
    begin = us(2026, 10, 10)
    costs = ["10"] * 30 + ["40"] + ["10"] * 5
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 36 * DAY, team="red")],
        ranks=on("a", "n"),
        charges=[
            charge(str(k), begin + k * DAY, begin + (k + 1) * DAY, cost, "n")
            for k, cost in enumerate(costs)
        ],
    )
    (found,) = review(ws, price=None).anomalies
    assert found.first_day == str(date(2026, 10, 10) + timedelta(days=30))
    assert found.driver.startswith("price: $0.10 to $0.42 per GPU-hour")
    assert found.impact == pytest.approx(30)


def test_the_newest_day_on_record_may_not_be_over_and_a_drop_has_a_driver(
    tmp_path: Path,
) -> None:
    """Two jobs run day and night; one ends on the 20th, and the record on the 25th at 2:00."""
    begin, until = us(2026, 10, 20), us(2026, 11, 25, 2)
    jobs = [
        job("a", begin, us(2026, 11, 20), team="red", owner="ada"),
        job("b", begin, until, team="red", owner="bob", world_size=2),
    ]
    (row,) = review(lake_of(tmp_path / "lake", jobs=jobs)).anomalies
    assert (row.first_day, row.last_day, row.state) == ("2026-11-20", "2026-11-24", "open")
    assert row.impact == pytest.approx(-5 * 2 * 24 * RANKS)
    assert "job a \N{MINUS SIGN}$960.00" in row.driver
    assert row.owner == "ada"


def test_too_few_days_tell_no_anomaly(tmp_path: Path) -> None:
    jobs = [*daily_jobs(10), job("x", us(2026, 11, 25), us(2026, 11, 26), world_size=512)]
    view = review(lake_of(tmp_path / "lake", jobs=jobs))
    assert view.anomalies == ()
    assert "more than 14 complete ones are needed" in view.anomaly_note


# -- showback, runs -------------------------------------------------------------------------------


def test_showback_adds_up_at_every_level(tmp_path: Path) -> None:
    jobs = [
        *daily_jobs(6, team="red", cluster="c1", project="p"),
        job("open", us(2026, 11, 28), None, team="red"),
        job("b", us(2026, 11, 28), us(2026, 11, 29), owner="bob"),
    ]
    view = review(lake_of(tmp_path / "lake", jobs=jobs))
    for level, groups in view.showback.items():
        assert sum(row.gpu_hours.value or 0 for row in groups) == 6 * 40 + 96, level
        assert sum(row.spend_usd.value or 0 for row in groups) == pytest.approx(2 * 336), level
        assert sum(row.jobs for row in groups) == 8
    teams = {row.name: row for row in view.showback["team"]}
    assert teams["red"].gpu_hours.warnings == ("without 1 of 7 jobs, where it is unknown",)
    assert teams["no team stated"].spend_usd.value == 192
    assert teams["red"].recoverable_usd.value is None
    assert view.unallocated.spend_usd.value is None
    assert "no provider's bill is connected" in (view.unallocated.spend_usd.reason or "")


def test_a_run_under_way_is_forecast_where_its_target_is_known(tmp_path: Path) -> None:
    begin = us(2026, 11, 29)
    jobs = [
        job("a", begin, None, state="running", target_steps=480),
        job("b", begin, None, state="running"),
        job("c", begin, begin + HOUR, target_steps=900),
    ]
    told = [row for name in "abc" for row in steps(name, begin, 240)]
    for row in told:
        row["loss"] = 8 - 0.01 * row["step"]
    view = review(lake_of(tmp_path / "lake", jobs=jobs, steps=told))
    (row,) = view.forecasts
    assert (row.job_id, row.done_steps, row.target_steps) == ("a", 240, 480)
    assert row.left_hours.value == pytest.approx(4)
    assert row.at_end_usd.value == pytest.approx(2 * 8 * RANKS)
    assert row.ends_at.startswith("2026-11-29 08:00")
    assert "Assumes that" in view.forecast_note
    assert "1 runs" in view.forecast_note
    assert {one.job_id for one in view.learning} == {"a", "b", "c"}
    # Four devices at $2: a step of a minute costs 13.3 cents and lowers the loss by 0.01.
    assert view.learning[0].usd_per_loss.value == pytest.approx(2 * RANKS / 60, rel=0.02)
    none = review(lake_of(tmp_path / "b", jobs=daily_jobs(2)))
    assert none.forecasts == none.learning == ()
    assert "no job of the period reports a loss" in none.learning_note


# -- sources --------------------------------------------------------------------------------------


def test_a_silent_source_is_unknown_since_and_not_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = lake_of(tmp_path / "lake", jobs=daily_jobs(3))
    last = us(2026, 11, 29, 6)
    told = [
        commit(at, {"accepted": {"jobs": 1}, "connector": "slurm", "source": "sacct"})
        for at in (last - 2 * HOUR, last - HOUR, last - HOUR // 2, last)
    ]
    monkeypatch.setattr(Workspace, "ingests", lambda *_: told)
    view = review(ws, "2026-11-29", "2026-11-30", now_us=us(2026, 11, 30, 12))
    (silent,) = view.silent
    assert silent.since_us == last
    assert "unknown since 2026-11-29 06:00:00 UTC: sacct is silent" in silent.text
    for one in view.cards:
        assert one.measure.value is None
        assert "unknown since 2026-11-29 06:00:00 UTC" in (one.measure.reason or ""), one.title
    assert silent.text in view.warnings
    partly = card(review(ws, now_us=us(2026, 11, 30, 12)), "cost_usd").measure
    assert partly.value == 2 * 3 * 40
    assert any("unknown since" in text for text in partly.warnings)
    assert not review(ws, now_us=last + HOUR // 2).silent
    steps_of_a_job = [commit(last, {"accepted": {"steps": 1, "jobs": 1}, "source": "x.log"})]
    monkeypatch.setattr(Workspace, "ingests", lambda *_: steps_of_a_job)
    assert not review(ws, now_us=us(2026, 12, 30)).silent


def commit(at_us: int, detail: dict[str, Any]) -> Commit:
    return Commit(str(at_us), "ingest", at_us, detail={"watch": {"key": "k"}} | detail)


# -- one number everywhere ------------------------------------------------------------------------


def test_the_command_says_what_the_page_draws(
    tmp_path: Path,
    steptax: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 3 * HOUR, team="red"), *daily_jobs(40)],
        steps=steps("a", begin, 120, slow_us=10 * S, tokens=1000),
    )
    days = ("--from", "2026-11-01", "--to", "2026-11-28", "--compare-to", "year")
    data = steptax("executive", "--price", 2, "--lake", ws.root, *days)
    view = review(ws, "2026-11-01", "2026-11-28", compare_to="year")
    assert [one["metric_id"] for one in data["cards"]] == [one.metric_id for one in view.cards]
    for told, drawn in zip(data["cards"], view.cards, strict=True):
        assert told["measure"]["value"] == drawn.measure.value
        assert told["delta"]["before"]["value"] == drawn.delta.before.value
        assert told["spark"] == list(drawn.spark)
    assert [row["job_id"] for row in data["jobs"]] == [row.job_id for row in view.jobs]
    assert data["fix_first"]["job_id"] == view.fix_first.job_id == "a"
    assert [row["week"] for row in data["weeks"]] == [row.first_day for row in view.weeks]
    groups = {row["name"]: row["spend_usd"]["value"] for row in data["showback"]["team"]}
    assert groups == {row.name: row.spend_usd.value for row in view.showback["team"]}
    assert data["metrics"]["spend_usd"]["value"] == card(view, "cost_usd").measure.value
    asked = ["executive", "--price", "2", "--lake", str(ws.root), *days]
    monkeypatch.setattr(sys, "argv", ["steptax", *asked])
    with pytest.raises(SystemExit):
        main()
    text = capsys.readouterr().out
    for words in ("Fix first: job a", "Showback by cluster", "Week by week", "Rule: a day"):
        assert words in text


def test_a_watched_file_that_stops_is_silent(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    """One look tells no usual pause: the source is late after a day."""
    path = tmp_path / "gpus.csv"
    path.write_bytes((EXAMPLES / "nvidia-smi.csv").read_bytes())
    steptax("watch", "nvidia-smi", path, "--once")
    ws = open_workspace(tmp_path / "lake")
    (told,) = ws.ingests()
    assert not review(ws, now_us=told.created_us + HOUR).silent
    (silent,) = review(ws, now_us=told.created_us + 25 * HOUR).silent
    assert silent.since_us == told.created_us
    assert "gpus.csv is silent" in silent.text


def test_imports_that_come_every_night_are_a_source_and_a_heap_of_files_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = lake_of(tmp_path / "lake", jobs=daily_jobs(3))
    last = us(2026, 11, 29, 2)

    def told(pause_us: int, count: int = 5) -> list[Commit]:
        return [
            Commit(
                str(n),
                "ingest",
                last - n * pause_us,
                detail={"accepted": {"jobs": 9}, "connector": "sacct", "path": f"/acct/{n}.psv"},
            )
            for n in range(count)
        ]

    late = last + 4 * DAY
    for commits, silent in ((told(DAY), 1), (told(S), 0), (told(DAY, 3), 0)):
        monkeypatch.setattr(Workspace, "ingests", lambda *_, found=commits: found)
        assert len(review(ws, now_us=late).silent) == silent
        assert not review(ws, now_us=last + DAY).silent
    monkeypatch.setattr(Workspace, "ingests", lambda *_: told(DAY))
    assert "sacct:/acct is silent" in review(ws, now_us=late).silent[0].text
