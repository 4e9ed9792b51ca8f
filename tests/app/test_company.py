"""``steptax demo --company``: the same rows for the same seed, and pages that tell its stories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.charts.fleet_view_tables import burn_table
from steptax.app.commands.executive import print_top
from steptax.app.compute.causes.model import Cause
from steptax.app.demo.company import SOURCE, Company, make_company
from steptax.app.demo.company_facts import charges_table, device_table, jobs_table
from steptax.app.demo.company_plan import DAYS, HOT_GPU, HOT_NODE, HOUR_US, NODES, plan, uuid_of
from steptax.app.demo.company_steps import make_job
from steptax.app.errors import UserError
from steptax.app.format import format_measure, format_share, format_usd
from steptax.app.lake import Lake
from steptax.app.report.executive import executive_report
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.health import health_view
from steptax.app.views.job.view import job_view
from steptax.app.views.review.budget import budget_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.review.periods import change_text
from steptax.app.views.workspace import Workspace, open_workspace

ROOT = Path(__file__).parents[2]
UNTIL_US = int(datetime(2026, 11, 29, 8, tzinfo=UTC).timestamp() * 1e6)
PRICE = Decimal("2.50")


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Company]:
    root = tmp_path_factory.mktemp("company") / "lake"
    made = make_company(root, until_us=UNTIL_US)
    return open_workspace(root), made


def test_a_seed_gives_the_same_rows_and_another_one_others() -> None:
    jobs = plan(UNTIL_US, 0)
    assert jobs == plan(UNTIL_US, 0) != plan(UNTIL_US, 1)
    spell = next(job for job in jobs if job.story == "spell")
    first, again, other = (make_job(spell, seed) for seed in (0, 0, 1))
    assert first.events == again.events
    assert pa.concat_tables(first.steps).equals(pa.concat_tables(again.steps))
    assert not first.steps[0]["compute_us"].equals(other.steps[0]["compute_us"])
    hot = {job.job_id: job.start_us for job in jobs if job.story == "throttle"}
    assert device_table(jobs, hot, UNTIL_US, 0).equals(device_table(jobs, hot, UNTIL_US, 0))


@pytest.mark.parametrize("seed", [0, 7, 41])
def test_the_plan_fits_the_cluster_and_its_six_weeks(seed: int) -> None:
    jobs = plan(UNTIL_US, seed)
    held: list[tuple[str, int, int]] = []
    for job in jobs:
        assert len(set(job.nodes)) * 8 == job.gpus
        assert UNTIL_US - DAYS * 24 * HOUR_US <= job.start_us < job.end_us <= UNTIL_US
        for node in job.nodes:
            assert not [h for h in held if h[0] == node and h[1] < job.end_us > job.start_us < h[2]]
            held.append((node, job.start_us, job.end_us))
    told = Counter(row["state"] for row in jobs_table(jobs, UNTIL_US).to_pylist())
    assert {*told} == {"completed", "failed", "cancelled", "timeout", "running", None}
    assert told["running"] == told[None] == 1
    assert len({job.team for job in jobs}) == 3
    assert 35 <= len(jobs) <= 45


def test_every_step_is_the_sum_of_its_parts() -> None:
    job = next(job for job in plan(UNTIL_US, 0) if job.story == "sequence")
    rows = pa.concat_tables(make_job(job, 0).steps)
    part = {name: rows[name].to_numpy() for name in rows.column_names if name.endswith("_us")}
    assert np.array_equal(part["comm_us"], part["wait_us"] + part["transfer_us"])
    host_us = part["duration_us"] - part["compute_us"] - part["input_us"] - part["comm_us"]
    assert host_us.min() >= 0
    assert host_us.sum() < 0.02 * part["duration_us"].sum()


def test_the_review_names_the_planted_job_and_what_it_cost(
    company: tuple[Workspace, Company],
) -> None:
    ws, made = company
    view = executive_view(ws, price=None, now_us=UNTIL_US)
    first, worst = view.fix_first, made.worst
    assert first is not None
    assert first.job_id == worst.job_id
    worth = first.worth_usd
    assert worth.low is not None
    assert worth.high is not None
    planted_usd = worst.lost_gpu_hours * 2.5
    assert worth.low <= planted_usd <= worth.high
    assert worth.value == pytest.approx(planted_usd, rel=0.01)
    # Large enough for somebody who pays to act on it.
    assert planted_usd > 0.05 * (view.kpis[0].measure.value or 0) > 0
    assert f"${planted_usd:,.0f}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Fix first: job {worst.job_id}, worth {first.worth}." in view.sentence
    assert f"rank {worst.rank} on {worst.host}" in first.why
    assert "slowed down by heat" in first.why
    for other in made.planted:
        if other.rank is not None and other.story != "spell":
            row = next(job for job in view.jobs if job.job_id == other.job_id)
            assert row.recoverable_gpu_hours.value == pytest.approx(other.lost_gpu_hours, rel=0.03)
    assert {row.job_id for row in view.learning} == {"llm-70b-pretrain", "llm-34b-multilingual"}
    (run,) = view.forecasts
    assert run.job_id == "llm-34b-multilingual"
    assert run.at_end_usd.value is not None


def test_the_bill_is_what_the_nodes_cost_to_the_cent(company: tuple[Workspace, Company]) -> None:
    ws, _ = company
    jobs = plan(UNTIL_US, 0)
    billed = sum(charges_table(jobs, UNTIL_US, PRICE)["billed_cost"].to_pylist(), Decimal(0))
    view = executive_view(ws, price=None, now_us=UNTIL_US)
    assert f"You were billed ${billed:,.0f}: " in view.sentence
    held = sum(job.gpus * (job.end_us - job.start_us) for job in jobs) / HOUR_US
    fleet = fleet_view(ws, now_us=UNTIL_US)
    assert fleet.gpu_hours.value == pytest.approx(held, abs=1)
    unused_usd = fleet.capacity.unallocated_usd.value
    assert unused_usd == pytest.approx(float(billed) - held * 2.5, abs=1)


def test_the_fleet_names_the_device_that_is_slow_again_and_again(
    company: tuple[Workspace, Company],
) -> None:
    ws, _ = company
    view = fleet_view(ws, now_us=UNTIL_US)
    named = [(p.what, row.name, row.count) for p in view.places for row in p.rows if row.is_named]
    assert named == [("fail-slow", uuid_of(HOT_NODE, HOT_GPU), 3)]
    where = f"GPU {HOT_GPU} of host {HOT_NODE} ({uuid_of(HOT_NODE, HOT_GPU)})"
    assert f"Look first at {where}: 3 fail-slow" in view.sentence
    states = {row.state: row.jobs for row in view.states}
    told = Counter(job.state or "unknown" for job in plan(UNTIL_US, 0))
    assert states == dict(told)
    assert [(row.nodes, row.devices) for row in view.capacity.inventory] == [(len(NODES), 128)]


@pytest.mark.parametrize(
    ("job_id", "cause", "is_open"),
    [
        ("speech-long-audio", Cause.SEQUENCE, True),
        ("vision-video-encoder", Cause.INPUT_STORAGE, True),
        ("llm-13b-domain", None, False),
    ],
)
def test_each_job_tells_its_story(
    company: tuple[Workspace, Company], job_id: str, cause: Cause | None, is_open: bool
) -> None:
    ws, made = company
    found = job_view(ws, job_id, price=PRICE, last_steps=None).findings
    assert [(one.cause.cause, one.is_open) for one in found] == [(cause, is_open)]
    planted = next(one for one in made.planted if one.job_id == job_id)
    if planted.rank is not None:
        assert found[0].ranks == (planted.rank,)


def test_failures_cost_lost_work_and_recovery(company: tuple[Workspace, Company]) -> None:
    ws, _ = company
    bill = job_view(ws, "ranking-moe-v3", price=PRICE).bill
    share = {line.bucket: line.share for line in bill.lines}
    assert (share["lost_work"] or 0) > 0.05
    assert (share["recovery"] or 0) > 0.08


def test_the_objective_and_the_budget_are_held_against(company: tuple[Workspace, Company]) -> None:
    ws, _ = company
    view = budget_view(ws, period="2026-11", now_us=UNTIL_US)
    assert view.budget_usd == 45_000
    assert view.goodput_slo_ratio == 0.8
    assert view.spend.spent_usd.value is not None
    assert view.errors.goodput_ratio.value is not None


def test_a_number_that_is_said_in_several_places_is_one_number(
    company: tuple[Workspace, Company], capsys: pytest.CaptureFixture[str]
) -> None:
    """Sentence, card, picture, fleet, command and brief of the same quantity."""
    ws, _ = company
    view, fleet = executive_view(ws, price=None, now_us=UNTIL_US), fleet_view(ws, now_us=UNTIL_US)
    whole = fleet_bill(ws, by="cluster")
    assert whole.total is not None
    cards = {one.metric_id: one.measure for one in view.cards}
    numbers = {one.metric_id: one.measure for one in executive_report(ws, now_us=UNTIL_US).numbers}
    kpis = {one.metric_id: one for one in view.kpis}
    billed = {line.bucket: line for line in whole.total.lines}
    losses = {row.what: row for row in fleet.losses}
    print_top(view)
    printed = capsys.readouterr().out

    def usd(bucket: str) -> float:
        return float(billed[bucket].cost or 0)

    waited, idle = usd("straggler_wait"), usd("unallocated")
    for what, places in {
        "spend": [float(whole.total.cost or 0), cards["cost_usd"].value, numbers["cost_usd"].value,
                  kpis["spend_usd"].measure.value],
        "waiting": [waited, losses["waiting for the slowest rank"].usd.value],
        "held by nobody": [idle, fleet.capacity.unallocated_usd.value,
                           losses["devices that nobody held"].usd.value,
                           view.unallocated.spend_usd.value],
        "straggler tax": [cards["straggler_tax_ratio"].value,
                          kpis["straggler_tax_ratio"].measure.value],
        "to win back": [cards["recoverable_usd"].value, kpis["recoverable_usd"].measure.value,
                        sum(job.recoverable_usd.value or 0 for job in view.jobs),
                        sum(row.recoverable_usd.value or 0 for row in view.showback["team"])],
    }.items():  # fmt: skip
        assert places == pytest.approx([places[0]] * len(places), rel=1e-5), what
    for name, places in {
        "goodput_ratio": [cards["goodput_ratio"], numbers["goodput_ratio"]],
        "ettr_ratio": [fleet.metrics["ettr_ratio"]],
    }.items():
        one = whole.total.metrics[name]
        assert one.low is not None
        assert [(m.value, m.low, m.high) for m in places] == [
            pytest.approx((one.value, one.low, one.high))
        ] * len(places), name
    # In words, to the printed digit.
    tax = f"{format_measure(cards['straggler_tax_ratio'])}"
    assert f"the largest loss beside it is straggler wait ({tax})" in view.sentence
    assert kpis["straggler_tax_ratio"].text == f"{tax} = {format_usd(waited)}"
    assert f"{format_usd(idle)} for devices that no job held" in view.sentence
    assert f"= {format_usd(idle)}" in fleet.sentence
    assert f"= {format_usd(waited)}" in fleet.sentence
    assert f"straggler wait ({format_share(billed['straggler_wait'].share)}" in whole.sentence
    assert f"What breaks most: {fleet.losses[0].what} " in fleet.sentence
    assert not fleet.losses[-1].is_broken
    for one in view.cards:
        assert f"{one.title}: {format_measure(one.measure)}" in printed
        assert all(detail in printed for detail in one.details)


def test_what_is_not_known_is_claimed_nowhere(
    company: tuple[Workspace, Company],
) -> None:
    """Bounds that hold zero, periods of unequal days, and jobs without anything to repair."""
    ws, _ = company
    view, fleet = executive_view(ws, price=None, now_us=UNTIL_US), fleet_view(ws, now_us=UNTIL_US)
    budget = budget_view(ws, period="2026-11", now_us=UNTIL_US)
    card = {one.metric_id: one for one in view.cards}
    left, burn = budget.errors.left_usd, budget.errors.week_burn
    assert left.sign_is_open
    assert burn.low is not None
    assert burn.low < 1 < (burn.value or 0)
    said = [budget.sentence, *card["goodput_ratio"].details, *fleet.warnings]
    assert not any("is overspent by" in text or "will not last" in text for text in said)
    assert sum("is overspent is not known: between" in text for text in said) == 2
    assert any(f"may not last: over 7 days it burns at {format_measure(burn)}" in t for t in said)
    assert budget.errors.lasts_days.value is None
    (row,) = burn_table(fleet).arrow().to_pylist()
    assert row["left_usd"] is None
    # Both periods are on record, and a card says the values that its change is of.
    assert view.compared.startswith("newest 3 weeks, ")
    assert view.variance is not None
    for one in view.cards:
        assert one.delta is not None
        assert f"newest 3 weeks {format_measure(one.delta.now)} vs " in one.delta.against
    goodput = card["goodput_ratio"].delta
    assert goodput is not None
    assert goodput.change.sign_is_open
    assert change_text(goodput).startswith("-")
    assert " to +" in change_text(goodput)
    with_steps = [job for job in view.jobs if job.straggler_tax.value is not None]
    assert len(with_steps) == 30
    nothing = [job for job in with_steps if job.recoverable_usd.value == 0]
    assert len(nothing) > 20
    assert {job.recoverable_usd.warnings for job in nothing} == {
        ("no rank is slow for good, so there is none to repair",)
    }
    assert all(job.recoverable_usd.value is not None for job in with_steps)
    assert {job.culprit for job in nothing} == {"nobody"}
    assert all(row.recoverable_usd.value is not None for row in view.showback["team"])


def test_everything_says_that_it_is_synthetic(company: tuple[Workspace, Company]) -> None:
    ws, _ = company
    assert [source.source for source in health_view(ws, now_us=UNTIL_US).sources] == [SOURCE]
    for name in ("jobs", "ranks", "nodes", "charges", "budgets", "device_samples"):
        assert all(
            "synthetic" in text for text in ws.lake.read(name)["source"].unique().to_pylist()
        )
    assert all("synthetic" in job["name"] for job in ws.jobs())
    assert {job["cluster"] for job in ws.jobs()} == {"synthetic-h100"}


def test_it_is_made_once_and_not_among_other_jobs(
    company: tuple[Workspace, Company], tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    ws, made = company
    rows = ws.lake.row_counts()
    said = steptax("demo", "--company", "--no-dashboard", "--lake", ws.lake.root)
    assert said["company"]["was_there"] is True
    assert said["company"]["planted"][0]["job_id"] == made.planted[0].job_id
    assert ws.lake.row_counts() == rows
    mine = Lake(tmp_path / "mine", create=True)
    mine.append("jobs", pa.table({"job_id": ["mine"]}), source="test")
    with pytest.raises(UserError, match="other data"):
        make_company(mine.root, until_us=UNTIL_US)
    assert mine.row_counts()["jobs"] == 1
    refused = steptax("demo", "--company", "--steps", 3, "--lake", tmp_path / "new", fails=2)
    assert refused["where"] == "--steps"
    assert not (tmp_path / "new").exists()
