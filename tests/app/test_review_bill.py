"""The cost review where a bill does not reach as far as the jobs, and where work was undone."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.charts.review import showback_table
from steptax.app.lake import Lake
from steptax.app.views.job.view import job_view
from steptax.app.views.review.budget import budget_view, set_budget
from steptax.app.views.review.executive import days_of, executive_view
from steptax.app.views.review.jobs import UNMATCHED
from steptax.app.views.workspace import open_workspace
from tests.app.fleet_lake import HOUR, RANKS, S, charge, event, job, lake_of, on, rows, steps, us

DAY = 24 * HOUR
NOW = us(2026, 11, 30)
BEGIN = us(2026, 11, 10)


def review(ws: Any, first: str | None = None, last: str | None = None, **more: Any) -> Any:
    bounds = [None if text is None else date.fromisoformat(text) for text in (first, last)]
    first_us, last_us = days_of(*bounds)
    asked: dict[str, Any] = {"price": None, "now_us": NOW} | more
    return executive_view(ws, first_us=first_us, last_us=last_us, **asked)


def figure(view: Any, name: str) -> Any:
    return next(one.measure for one in view.cards if one.metric_id == name)


def test_what_ran_after_the_bill_ends_has_no_cost_that_is_known(tmp_path: Path) -> None:
    """Two days of a slow rank, of which the first one is billed."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", BEGIN, BEGIN + 2 * DAY)],
        ranks=on("a", "n"),
        events=[event("a", "process_start", BEGIN)],
        steps=steps("a", BEGIN, 480, length=360 * S, slow_us=60 * S, tokens=1000),
        charges=[charge("0", BEGIN, BEGIN + DAY, "96", "n")],
    )
    names = ("recoverable_usd", "usd_per_billion_tokens")
    billed, free = (review(ws, day, day) for day in ("2026-11-10", "2026-11-11"))
    for name in names:
        assert (figure(billed, name).value or 0) > 0
        assert figure(free, name).value is None
        assert "from 2026-11-10 to 2026-11-10" in figure(free, name).reason
    assert "$0.00 went" not in free.sentence
    whole = review(ws)
    assert figure(whole, "cost_usd").value == pytest.approx(96)
    # Half of the tokens have a cost: a token of them costs what it does on that day alone.
    for name in names:
        assert figure(whole, name).value == pytest.approx(figure(billed, name).value)
        assert "without 50.0 % of it" in figure(whole, name).warnings[0]
    late = f"what {24 * RANKS:.1f} GPU-hours that were held after it cost is not known yet"
    assert any("end on 2026-11-10" in text and late in text for text in whole.warnings)


def test_tokens_of_steps_that_were_rolled_back_are_not_paid_for_twice(tmp_path: Path) -> None:
    """A quarter of a hundred steps is undone, and not done again."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", BEGIN, BEGIN + 100 * 60 * S)],
        events=[event("a", "process_start", BEGIN)],
        steps=steps("a", BEGIN, 100, tokens=1000),
    )
    price = {"price": Decimal(2)}
    before = figure(review(ws, **price), "usd_per_billion_tokens").value
    undone = event("a", "rollback", BEGIN + 100 * 60 * S) | {"detail": "step=74"}
    Lake(ws.root).append("events", rows([undone]), source="test")
    ws = open_workspace(ws.root)
    after = figure(review(ws, **price), "usd_per_billion_tokens").value
    assert after == pytest.approx(before * 100 / 75)
    shown = job_view(ws, "a", price=Decimal(2), last_steps=None)
    assert shown.metrics["usd_per_billion_tokens"].value == pytest.approx(after)


def test_the_whole_bill_is_in_the_headline_the_budget_and_the_showback(tmp_path: Path) -> None:
    """$10,000 for team red, $90,000 for nobody knows what; a budget of $50,000."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", BEGIN, BEGIN + DAY, team="red")],
        charges=[
            charge("0", BEGIN, BEGIN + DAY, "10000", "i-1", tags='{"team": "red"}'),
            charge("1", BEGIN, BEGIN + DAY, "90000", "i-2"),
        ],
    )
    set_budget(
        ws,
        scope="all",
        period="2026-11",
        budget_usd=Decimal(50_000),
        goodput_slo_ratio=None,
        set_by="ada",
    )
    view = review(ws, "2026-11-01", "2026-11-30")
    assert view.sentence.startswith("You were billed $100k")
    assert f"$90,000 for {UNMATCHED}" in view.sentence
    assert figure(view, "cost_usd").value == pytest.approx(100_000)
    spend = next(one for one in view.cards if one.metric_id == "cost_usd")
    assert f"$90,000 of it for {UNMATCHED}" in spend.details
    assert "2026-11: $100k of $50,000 (200.0 %)" in spend.details
    assert view.unmatched.spend_usd.value == pytest.approx(90_000)
    (red,) = view.showback["team"]
    shown = showback_table(view.showback["team"], "team", view.unallocated, view.unmatched)
    assert [row[3] for row in shown.rows] == [red.spend_usd.value, 0.0, 90_000]
    assert red.spend_usd.value == pytest.approx(10_000)
    assert view.weeks[-1].figures["cost_usd"].value == pytest.approx(100_000)
    whole = budget_view(ws, period="2026-11", now_us=NOW)
    assert whole.spend.left_usd.value == pytest.approx(-50_000)
    assert whole.sentence.startswith("All jobs, idle devices and other charges spent $100k")
    red_only = budget_view(ws, scope="team:red", period="2026-11", now_us=NOW)
    assert red_only.spend.spent_usd.value == pytest.approx(10_000)


def test_a_bill_without_jobs_is_told(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "lake", charges=[charge("0", BEGIN, BEGIN + DAY, "55180", "i-1")])
    view = review(ws)
    assert view.sentence.startswith("You were billed $55,180, and no job is known to have used any")
    assert figure(view, "cost_usd").value == pytest.approx(55_180)
    assert view.empty is None
    other = review(ws, "2026-10-01", "2026-10-31")
    assert other.empty is not None
    assert figure(other, "cost_usd").value is None


def test_days_of_a_bill_are_compared_in_dollars_though_a_job_is_not_on_it(tmp_path: Path) -> None:
    """Twenty days on a billed node, the 18th dearer; a job beside it that no charge names."""
    days = [BEGIN - 20 * DAY + n * DAY for n in range(20)]
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", days[0], BEGIN, team="red"), job("b", days[0], BEGIN, team="blue")],
        ranks=on("a", "n"),
        charges=[
            charge(str(n), day, day + DAY, "500" if n == 17 else "100", "n")
            for n, day in enumerate(days)
        ],
    )
    (found,) = [row for row in review(ws).anomalies if row.scope == "all jobs"]
    assert (found.unit, found.impact) == ("USD", pytest.approx(400))


def test_a_bill_in_two_currencies_says_both_sums_and_what_to_do(tmp_path: Path) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", BEGIN, BEGIN + DAY)],
        ranks=on("a", "n"),
        charges=[
            charge("0", BEGIN, BEGIN + DAY, "80", "n"),
            charge("1", BEGIN, BEGIN + DAY, "20", "n", currency="EUR"),
        ],
    )
    view = review(ws)
    for text in (view.sentence, figure(view, "cost_usd").reason):
        assert "the bill is 20.00 EUR and 80.00 USD, and no rate is set" in text
        assert "STEPTAX_BILL_RULES" in text
    assert "You paid" not in view.sentence
    assert "price per GPU-hour" not in view.sentence
    assert "20.00 EUR" in (budget_view(ws, period="2026-11", now_us=NOW).sentence)


def test_all_that_can_be_won_back_is_ranked_and_the_largest_leads(tmp_path: Path) -> None:
    """A slow rank, a quarter of the steps undone, a job that failed, and a day of free devices."""
    tables: dict[str, Any] = {
        "jobs": [
            job("slow", BEGIN, BEGIN + 100 * 60 * S, owner="ann"),
            job("bad", BEGIN + 4 * HOUR, BEGIN + 9 * HOUR, state="failed"),
        ],
        "ranks": on("slow", "n1") + on("bad", "n2"),
        "events": [
            event("slow", "process_start", BEGIN),
            event("slow", "rollback", BEGIN + 100 * 60 * S) | {"detail": "step=74"},
        ],
        "steps": steps("slow", BEGIN, 100, slow_us=6 * S),
    }
    ws = lake_of(tmp_path / "priced", **tables)
    view = review(ws, price=Decimal(2))
    whole = 100 / 60 * RANKS
    failed, undone, straggler = view.fixes
    assert view.fix_first == failed
    assert (failed.what, failed.worth_usd.value) == ("1 job that failed", 2 * 5 * RANKS)
    assert undone.what == "work that was rolled back of job slow"
    assert undone.worth_usd.value == pytest.approx(2 * whole / 4)
    assert "25.0 % of its time" in undone.why
    assert straggler.worth_usd.value == view.jobs[0].recoverable_usd.value
    assert [one.is_most for one in view.fixes] == [True, True, False]
    assert len({one.action for one in view.fixes}) == 3
    assert "the largest loss beside it is work that was rolled back (25.0 %)" in view.sentence
    assert f"Fix first: 1 job that failed, worth {failed.worth}." in view.sentence
    shares = [float(one.worth.split(", ")[1].split(" %")[0]) for one in view.fixes]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    # With a bill of both nodes the devices that nobody held cost more than all of it.
    tables["charges"] = [charge(name, BEGIN, BEGIN + DAY, "192", name) for name in ("n1", "n2")]
    billed = review(lake_of(tmp_path / "billed", **tables))
    idle = billed.fix_first
    assert idle.what == "devices that no job held"
    # Of two nodes one was free at every moment: only that can be given back.
    assert idle.worth_usd.value == pytest.approx(2 * 24 * RANKS)
    assert idle.worth_usd.high == pytest.approx(2 * (48 * RANKS - whole - 5 * RANKS))
    assert idle.worth_usd.high == billed.unallocated.spend_usd.value
    assert f"{RANKS} devices or more were free at every moment" in idle.why
    assert [one.what for one in billed.fixes[1:]] == [one.what for one in view.fixes]
    assert "give the devices back that are always free" in idle.action
