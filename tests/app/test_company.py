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

from steptax.app.compute.causes.model import Cause
from steptax.app.demo.company import SOURCE, Company, make_company
from steptax.app.demo.company_facts import charges_table, device_table, jobs_table
from steptax.app.demo.company_plan import DAYS, HOT_GPU, HOT_NODE, HOUR_US, NODES, plan, uuid_of
from steptax.app.demo.company_steps import make_job
from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.health import health_view
from steptax.app.views.job.view import job_view
from steptax.app.views.review.budget import budget_view
from steptax.app.views.review.executive import executive_view
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
    assert uuid_of(HOT_NODE, HOT_GPU) in view.sentence
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
