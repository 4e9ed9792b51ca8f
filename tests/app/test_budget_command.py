"""``steptax budget``: set, show, history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.views.review.budget import budget_view, set_budget
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace

Steptax = Callable[..., Any]
DAY_US = 86_400_000_000
NOW = int(datetime(2026, 11, 5, 12, tzinfo=UTC).timestamp() * 1e6)

JOBS = """job_id,team,state,start,end,gpus
a,red,completed,2026-11-01T00:00:00Z,2026-11-03T00:00:00Z,10
b,blue,completed,2026-11-02T00:00:00Z,2026-11-05T00:00:00Z,5
"""


@pytest.fixture
def fleet(steptax: Steptax, tmp_path: Path) -> Steptax:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    steptax("ingest", "jobs", path)
    return steptax


def test_a_budget_is_held_against_the_bill(fleet: Steptax, tmp_path: Path) -> None:
    ws = open_workspace(tmp_path / "lake")
    fleet("budget", "set", "--period", "2026-11", "--usd", "5000", "--by", "ada", "--note", "q4")
    view = budget_view(ws, period="2026-11", price=Decimal(2), now_us=NOW)
    # 10 GPUs for 2 days and 5 for 3, at $2.
    assert view.spend.spent_usd.value == pytest.approx((480 + 360) * 2)
    assert view.spend.left_usd.value == pytest.approx(5000 - 1680)
    # Complete days: 480, 720, 240, 240. It is noon: 25 days and a half are left.
    assert view.spend.at_end_usd.value == pytest.approx(1680 + 25.5 * 420)
    assert view.budget_usd == 5000
    assert "of $5,000 in 2026-11" in view.sentence
    red = budget_view(ws, scope="team:red", period="2026-11", price=Decimal(2), now_us=NOW)
    assert red.spend.spent_usd.value == pytest.approx(960)
    assert red.budget_usd is None


def test_the_history_says_what_each_changed(fleet: Steptax) -> None:
    month = ("budget", "set", "--period", "2026-11")
    fleet(*month, "--usd", "5000", "--by", "ada")
    fleet(*month, "--usd", "6000", "--goodput-slo", "0.9", "--by", "bob", "--note", "more nodes")
    fleet(*month, "--scope", "team:red", "--usd", "70", "--by", "eve")
    fleet(*month, "--goodput-slo", "0.9", "--by", "ada")
    told = fleet("budget", "history")["entries"]
    assert [(row["set_by"], row["change"]) for row in told if row["scope"] == "all"] == [
        ("ada", "goodput objective left at 90.0 %"),
        ("bob", "budget from $5,000 to $6,000, goodput objective set to 90.0 %"),
        ("ada", "budget set to $5,000"),
    ]
    (red,) = [row["change"] for row in told if row["scope"] == "team:red"]
    assert red == "budget set to $70.00"
    shown = fleet("budget", "show", "--period", "2026-11", "--price", "2")["history"]
    assert [row["change"] for row in shown] == [r["change"] for r in told if r["scope"] == "all"]


def test_a_change_is_kept_with_who_made_it(fleet: Steptax, tmp_path: Path) -> None:
    ws = open_workspace(tmp_path / "lake")
    for usd, who in ((100, "ada"), (200, "bob")):
        set_budget(
            ws,
            scope="team:red",
            period="2026-11",
            budget_usd=Decimal(usd),
            goodput_slo_ratio=None,
            set_by=who,
        )
    fleet("budget", "set", "--scope", "team:red", "--period", "2026-11", "--goodput-slo", "0.9")
    entries = fleet("budget", "history")["entries"]
    assert [(e["budget_usd"], e["set_by"]) for e in entries][1:] == [(200, "bob"), (100, "ada")]
    fleet("compact")
    assert len(fleet("budget", "history")["entries"]) == 3
    data = fleet("budget", "show", "--scope", "team:red", "--period", "2026-11", "--price", "2")
    assert (data["budget_usd"], data["goodput_slo_ratio"]) == (200, 0.9)


def test_without_a_price_spend_is_unknown_not_nothing(fleet: Steptax) -> None:
    fleet("budget", "set", "--period", "2026-11", "--usd", "$5,000")
    data = fleet("budget", "show", "--period", "2026-11")
    assert data["budget_usd"] == 5000
    assert data["spend"]["spent_usd"]["value"] is None
    assert data["spend"]["left_usd"]["value"] is None
    assert "spend is not known" in data["sentence"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--period", "november", "--usd", "1"), "there is no period"),
        (("--period", "2026-11"), "neither a budget nor an objective"),
        (("--period", "2026-11", "--usd", "much"), "expected an amount in USD"),
        (("--period", "2026-11", "--usd", "-1"), "an amount of at least 0"),
        (("--period", "2026-11", "--goodput-slo", "90"), "a share between 0 and 1"),
        (("--period", "2026-11", "--usd", "1", "--scope", "red"), "there is no scope"),
    ],
)
def test_mistakes_are_named(fleet: Steptax, arguments: tuple[str, ...], told: str) -> None:
    assert told in fleet("budget", "set", *arguments, fails=2)["message"]


def test_a_scope_without_jobs(fleet: Steptax) -> None:
    error = fleet("budget", "show", "--scope", "team:green", fails=2)
    assert "no job is of team 'green'" in error["message"]
    assert "blue, red" in error["hint"]


def test_goodput_is_held_against_its_objective(steptax: Steptax, tmp_path: Path) -> None:
    begin = datetime(2026, 11, 5, 9, tzinfo=UTC)
    rows = ["step,rank,start_s,compute_ms,comm_ms,duration_ms"]
    for step in range(100):
        at = begin.timestamp() + 60 + step
        rows += [f"{step},{rank},{at:.3f},800,200,1000" for rank in range(2)]
    steps = tmp_path / "s.csv"
    steps.write_text("\n".join(rows) + "\n")
    steptax("ingest", "steps", steps, "--job", "j")
    jobs = tmp_path / "j.csv"
    jobs.write_text(
        "job_id,state,start,end,gpus\n"
        f"j,completed,{begin.isoformat()},{(begin + timedelta(seconds=200)).isoformat()},2\n"
    )
    steptax("ingest", "jobs", jobs)
    ws = open_workspace(tmp_path / "lake")
    set_budget(
        ws,
        scope="all",
        period="2026-11",
        budget_usd=Decimal(100),
        goodput_slo_ratio=0.9,
        set_by="ada",
    )
    view = budget_view(ws, period="2026-11", price=Decimal(3600), now_us=NOW + DAY_US)
    # 100 s of 200 s were in steps; 400 GPU-seconds at $1.
    assert view.errors.goodput_ratio.value == pytest.approx(0.5)
    assert view.errors.lost_usd.value == pytest.approx(200)
    assert view.errors.week_burn.value == pytest.approx(5.0)
    review = executive_view(ws, price=Decimal(3600))
    assert [k.measure.value for k in review.cards if k.metric_id == "goodput_ratio"] == [0.5]
    # A day later nothing is known of the newest hours: they are those before, and ring no more.
    assert [one.rate.value for one in view.burns] == pytest.approx([5.0, 5.0])
    assert all(one.is_stale and not one.rings for one in view.burns)
    shown = {name: measure.value for name, measure in view.metrics.items()}
    assert shown["burn_rate_ratio"] == pytest.approx(5.0)
    assert shown["budget_spent_usd"] == pytest.approx(400)
    assert shown["budget_left_usd"] == pytest.approx(-300)
    # At noon 24 days and a half are left: a tenth of what all will have cost may be lost.
    assert shown["budget_at_end_usd"] == pytest.approx(400 + 24.5 * 400)
    assert shown["error_budget_left_usd"] == pytest.approx(0.1 * 25.5 * 400 - 200)
    assert shown["error_budget_lasts_d"] == pytest.approx((0.1 * 25.5 * 400 - 200) / 200)


def test_goodput_of_a_sliver_is_not_that_of_the_month(steptax: Steptax, tmp_path: Path) -> None:
    begin = datetime(2026, 11, 3, tzinfo=UTC).timestamp()
    rows = ["step,rank,start_s,compute_ms,comm_ms,duration_ms"]
    rows += [f"{n},{rank},{begin + n},800,200,1000" for n in range(10) for rank in range(2)]
    (tmp_path / "s.csv").write_text("\n".join(rows) + "\n")
    steptax("ingest", "steps", tmp_path / "s.csv", "--job", "j")
    (tmp_path / "jobs.csv").write_text(JOBS)
    steptax("ingest", "jobs", tmp_path / "jobs.csv")
    steptax("budget", "set", "--period", "2026-11", "--usd", "9999", "--goodput-slo", "0.9")
    shown = steptax("budget", "show", "--period", "2026-11", "--price", "2")
    errors = shown["error_budget"]
    review = steptax("executive", "--from", "2026-11-01", "--to", "2026-11-30", "--price", "2")
    (card,) = [one for one in review["cards"] if one["metric_id"] == "goodput_ratio"]
    for one in (errors["goodput_ratio"], card["measure"]):
        assert one["value"] is None
        assert one["reason"].startswith("between <0.1 % and 100.0 %")
    assert errors["left_usd"]["value"] is errors["week_burn"]["value"] is None
    assert "and is unknown: between" in shown["sentence"]
