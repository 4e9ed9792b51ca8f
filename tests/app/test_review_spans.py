"""What a number is of: the weeks that are listed, the part that a change is of, a share's base."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.charts.budget import history_table
from steptax.app.charts.review import weeks_figure
from steptax.app.theme import LIGHT
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.review.budget import budget_view, set_budget
from steptax.app.views.review.executive import executive_view
from tests.app.fleet_lake import HOUR, charge, job, lake_of, on, steps, us

Steptax = Callable[..., Any]
TWO = Decimal(2)
WEEK = 7 * 24 * HOUR
MONDAY = us(2026, 9, 7)
NOW = us(2026, 11, 2)


def test_weeks_that_are_not_listed_are_summed_and_days_to_come_are_told(tmp_path: Path) -> None:
    jobs = [job(f"w{n}", MONDAY + n * WEEK, MONDAY + n * WEEK + HOUR) for n in range(8)]
    late = [job("late", us(2027, 1, 1), us(2027, 1, 1, 3))]
    view = executive_view(lake_of(tmp_path / "a", jobs=jobs), price=TWO, now_us=NOW)
    assert len(view.weeks) == 8
    assert view.earlier_weeks(8) == ""
    assert view.earlier_weeks(6) == "and 2 weeks before them, 2026-09-07 on: 8.00 GPU-hours, $16.00"
    assert not any("after today" in text or "today is" in text for text in view.warnings)
    view = executive_view(lake_of(tmp_path / "b", jobs=jobs + late), price=TWO, now_us=NOW)
    (said,) = [text for text in view.warnings if "today is" in text]
    assert said.startswith("jobs hold devices until 2027-01-01, and today is 2026-11-02")


def test_a_change_says_of_which_part_of_the_record_it_is(tmp_path: Path) -> None:
    jobs = [job(f"w{n}", MONDAY + n * WEEK, MONDAY + n * WEEK + HOUR) for n in range(9)]
    ws = lake_of(tmp_path / "lake", jobs=jobs)
    whole = executive_view(ws, price=TWO, now_us=NOW).cards[0].delta
    assert whole is not None
    assert whole.against == "newest 4 weeks $32.00 vs previous 4 weeks $32.00"
    days = {"first_us": us(2026, 10, 5), "last_us": us(2026, 10, 19)}
    chosen = executive_view(ws, price=TWO, now_us=NOW, **days).cards[0].delta
    assert chosen is not None
    assert chosen.against == f"vs {chosen.reference}: $16.00"


def test_weeks_are_named_at_their_mondays(tmp_path: Path) -> None:
    jobs = [job(f"w{n}", MONDAY + n * WEEK, MONDAY + n * WEEK + HOUR) for n in range(20)]
    weeks = executive_view(lake_of(tmp_path / "lake", jobs=jobs), price=TWO, now_us=NOW).weeks
    axis = weeks_figure(weeks, LIGHT).layout.xaxis
    assert date.fromisoformat(axis.tick0).weekday() == 0
    assert axis.dtick % (7 * 86_400_000) == 0


def test_spend_and_goodput_of_a_week_have_each_their_axis(tmp_path: Path) -> None:
    """One range for both would draw the shares as a line on zero."""
    begin = us(2026, 11, 2)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 2 * HOUR, world_size=4)],
        steps=steps("a", begin, 60),
    )
    view = executive_view(ws, price=Decimal(2000), now_us=us(2026, 11, 3))
    layout = weeks_figure(view.weeks, LIGHT).layout
    assert layout.yaxis.range == pytest.approx((0, 1.08 * 16_000))
    assert layout.yaxis2.range == (0, 105)
    assert layout.yaxis.title.text == "USD a week"
    assert layout.yaxis2.title.text is None


def test_each_share_of_the_fleet_says_of_what(tmp_path: Path) -> None:
    begin = us(2026, 11, 1)
    jobs = [
        job("a", begin, begin + HOUR, state="failed"),
        job("b", begin, begin + HOUR),
        job("c", begin, begin + 8 * HOUR, state="running"),
        job("d", begin, begin + HOUR, state=None),
    ]
    view = fleet_view(lake_of(tmp_path / "lake", jobs=jobs), price=TWO)
    assert view.bases["failed_jobs_ratio"] == "of the 2 of 4 jobs that are known to have ended"
    assert view.bases["failed_gpu_hours_ratio"].startswith("of the 8.00 GPU-hours of what ended, ")
    assert view.bases["mtbf_gpu_hours"].startswith("1 failures in ")
    assert not {"ettr_ratio", "slow_jobs_ratio", "unallocated_ratio"} & view.bases.keys()


def test_what_a_change_of_a_budget_leaves_out_holds_on(tmp_path: Path) -> None:
    begin = us(2026, 11, 1)
    ws = lake_of(tmp_path / "lake", jobs=[job("a", begin, begin + HOUR)])
    for at, (usd, slo) in enumerate([(Decimal(500), 0.9), (Decimal(700), None)]):
        set_budget(
            ws,
            scope="all",
            period="2026-11",
            budget_usd=usd,
            goodput_slo_ratio=slo,
            set_by="ada",
            at_us=NOW + at,
        )
    made = history_table(budget_view(ws, period="2026-11", price=TWO, now_us=NOW + 9))
    places = [[c.key for c in made.columns].index(n) for n in ("budget_usd", "goodput_slo_ratio")]
    assert [[row[k] for k in places] for row in made.rows] == [[700.0, 0.9], [500.0, 0.9]]


def test_the_review_takes_the_rules_of_a_file_and_the_jobs_of_a_team(
    steptax: Steptax, tmp_path: Path
) -> None:
    begin = us(2026, 11, 2)
    jobs = [job(t, begin, begin + 10 * HOUR, team=t) for t in ("red", "blue")]
    lines = [
        charge("1", begin, begin + 10 * HOUR, "100", "n1", currency="EUR"),
        charge("2", begin, begin + 10 * HOUR, "50", "n2"),
    ]
    lake_of(tmp_path / "lake", jobs=jobs, ranks=on("red", "n1") + on("blue", "n2"), charges=lines)
    rules = tmp_path / "rules.toml"
    rules.write_text('[rates]\nEUR = "1.5"\n')
    assert steptax("executive")["metrics"]["spend_usd"]["value"] is None
    told = steptax("executive", "--bill-rules", rules)
    assert told["metrics"]["spend_usd"]["value"] == 200
    out = tmp_path / "a.csv"
    report = steptax("report", "executive", "--bill-rules", rules, "-o", out)
    assert report["metrics"]["spend_usd"]["value"] == 200
    assert {job["job_id"] for job in steptax("executive", "--team", "red")["jobs"]} == {"red"}
