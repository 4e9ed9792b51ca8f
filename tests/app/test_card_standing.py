"""The card leads with what goes on, tells what is over as over, and one bad job hides no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.charts.card import card_fields
from steptax.app.compute.spend.totals import NOT_TOLD
from steptax.app.compute.straggler import analysis as straggler
from steptax.app.lake import Lake
from steptax.app.views.alerting import readings
from steptax.app.views.job import causes, jobs, step_facts
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.models import JobView
from steptax.app.views.job.step_facts import facts_of, unread_jobs
from steptax.app.views.job.view import job_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace
from tests.app.device_lake import START
from tests.app.fleet_lake import rows

RANKS, STEPS, S = 8, 120, 1_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


def store(
    lake: Lake,
    job: str,
    more_us: np.ndarray,
    *,
    transfer_us: np.ndarray | None = None,
    lost: np.ndarray | None = None,
) -> None:
    """Steps of 400 ms of computing, and ``more_us`` [S, R]; reports ``lost`` [S, R] are gone."""
    g = np.random.default_rng(3)
    compute = 400_000 * (1 + 0.005 * g.standard_normal(more_us.shape)) + more_us
    transfer = np.full(len(more_us), 60_000.0) if transfer_us is None else transfer_us
    duration = compute.max(axis=1) + transfer
    waited = duration[:, None] - compute - transfer[:, None]
    start = START + np.concatenate([[0.0], np.cumsum(duration)[:-1]])
    found = [
        {
            "job_id": job,
            "attempt": 0,
            "step": step,
            "rank": rank,
            "start_us": int(start[step]),
            "duration_us": int(duration[step]),
            "compute_us": int(compute[step, rank]),
            "comm_us": int(duration[step] - compute[step, rank]),
            "transfer_us": int(transfer[step]),
        }
        | ({} if lost is None else {"wait_us": int(waited[step, rank])})
        for step in range(len(more_us))
        for rank in range(more_us.shape[1])
        if lost is None or not lost[step, rank]
    ]
    lake.append("steps", rows(found), source="test")


def view(lake: Lake, job: str = "a") -> JobView:
    return job_view(open_workspace(lake.root), job, price=Decimal("2"))


def late_joiner(step: int) -> np.ndarray:
    """[S, R] what is gone where rank 3 reports from ``step`` on."""
    lost = np.zeros((300, RANKS), dtype=bool)
    lost[:step, 3] = True
    return lost


def test_a_rank_that_is_not_compared_may_be_the_one_to_name(lake: Lake) -> None:
    more = np.zeros((300, RANKS))
    more[:, 3] = 60_000
    store(lake, "a", more, lost=late_joiner(285))
    got = view(lake)
    card = got.card
    assert card.sentence == (
        "Ranks wait 12 % of the paid time, and none of the 7 that are compared is slow for good. "
        "Rank 3 reported too few steps to be compared: the others may wait for it."
    )
    assert card.next_action.startswith("make rank 3 report every step (32 that all ranks report ")
    assert card.probable_cause == "not named: no rank that is compared is slow for good"
    for measure in (card.cost_window_usd, card.cost_per_day_usd):
        assert measure.value is None
        assert measure.reason == "rank 3 reported too few steps to be compared, and may be slow"
    assert "300 of 300 steps used on 7 of 8 ranks" in got.coverage.text
    said = card_as_text(got)
    assert "no rank to replace" not in said
    assert "for a different rank from step to step" not in said
    ws = open_workspace(lake.root)
    assert facts_of(ws, ws.jobs())["a"].slow.reason == (
        "rank 3 reported too few steps to be compared"
    )
    review = executive_view(ws, price=Decimal("2"))
    assert review.sentence.endswith(
        "No persistent straggler was found, but in job a rank 3 reported too few steps to be "
        "compared: what is to be won back there is unknown."
    )
    recoverable = next(kpi for kpi in review.kpis if kpi.metric_id == "recoverable_usd")
    assert (recoverable.measure.value, recoverable.measure.reason) == (None, NOT_TOLD)


def test_no_straggler_is_said_of_those_alone_that_are_compared(lake: Lake) -> None:
    store(lake, "a", np.zeros((300, RANKS)), lost=late_joiner(285))
    card = view(lake).card
    assert "No straggler" not in card.sentence
    assert card.sentence == (
        "None of the 7 that are compared is slow for good: they wait 0.6 % of the paid time for "
        "each other. Rank 3 reported too few steps to be compared: whether it is slow is not known."
    )
    assert card.next_action.startswith("make rank 3 report every step")
    assert card.cost_window_usd.value is None


def test_all_that_is_told_of_an_onset_is_of_the_same_steps(lake: Lake) -> None:
    more = np.zeros((300, RANKS))
    more[:, 5] = 60_000
    store(lake, "a", more, lost=late_joiner(150))
    got = view(lake)
    assert got.card.culprit_rank == 5
    assert got.card.since == "from the first step looked at, 150"
    assert got.findings[0].first_step == 150


def test_the_card_leads_with_a_rank_that_became_slow_late(lake: Lake) -> None:
    more = np.zeros((300, RANKS))
    more[265:, 2] = 40_000
    store(lake, "a", more)
    got = view(lake)
    card = got.card
    assert card.sentence.startswith("Rank 2: +")
    assert "still going on" in card.sentence
    assert "No straggler" not in card.sentence
    assert card.next_action != "nothing to fix here; keep watching"
    # 8 GPUs at $2, a twelfth of the time as long as it goes on.
    assert card.cost_per_hour_usd.value == pytest.approx(16 * 0.075, rel=0.15)
    assert "of steps, as long as it is slow, at $2.00" in card_as_text(got)


def test_a_rank_that_became_slow_midway_costs_more_a_day_from_then_on(lake: Lake) -> None:
    more = np.zeros((300, RANKS))
    more[150:, 2] = 80_000
    store(lake, "a", more)
    got = view(lake)
    card, since = got.card, got.metrics["recoverable_since_usd_per_day"]
    day = got.metrics["recoverable_usd_per_day"]
    assert (card.culprit_rank, card.cost_per_day_usd) == (2, day)
    assert card.since_step == pytest.approx(150, abs=2)
    assert card.cost_since_usd == since
    # 80 of the 540 ms of a slow step, on 8 GPUs at $2; over all steps half of it, of 500 ms.
    assert since.value == pytest.approx(24 * 16 * 80 / 540, rel=0.05)
    assert day.value == pytest.approx(24 * 16 * 40 / 500, rel=0.05)
    text = card_as_text(got)
    assert "of steps, the mean of those looked at, at $2.00 per GPU-hour" in text
    assert re.search(
        r"costs since +\$5\d\.\d.* the mean of those since step 1\d\d, when it began", text
    )
    (cost,) = [field for field in card_fields(got) if field.key == "cost"]
    assert f"since step {card.since_step}: $5" in cost.detail


@pytest.mark.parametrize("slow", [slice(None), slice(60, 100)])
def test_what_is_slow_all_along_or_no_longer_has_no_cost_since_then(
    lake: Lake, slow: slice
) -> None:
    more = np.zeros((STEPS, RANKS))
    more[slow, 2] = 80_000
    store(lake, "a", more)
    got = view(lake)
    assert got.card.cost_since_usd is None
    assert got.metrics["recoverable_since_usd_per_day"].value is None
    assert "costs since" not in card_as_text(got)


def test_the_card_leads_with_what_slows_all_ranks(lake: Lake) -> None:
    transfer = np.full(STEPS, 60_000.0)
    transfer[60:] += 80_000
    store(lake, "a", np.zeros((STEPS, RANKS)), transfer_us=transfer)
    card = view(lake).card
    assert card.sentence.startswith("All ranks: +80.0 ms")
    assert card.probable_cause.startswith("the network is slower for all ranks")
    assert card.cost_per_day_usd.value == pytest.approx(24 * 16 * 80 / 545, rel=0.05)


def test_a_healed_rank_is_told_in_the_past(lake: Lake) -> None:
    more = np.zeros((STEPS, RANKS))
    more[20:90, 3] = 80_000
    store(lake, "a", more)
    card = view(lake).card
    assert "slow no longer" in card.sentence
    assert "makes the other" not in card.sentence
    assert card.cost_per_day_usd.value is None
    assert "over since step" in (card.cost_per_day_usd.reason or "")
    assert card.next_action.startswith("find out what began and what ended")


def test_one_of_two_ranks_has_healed(lake: Lake) -> None:
    more = np.zeros((STEPS, RANKS))
    more[:, 5] = 60_000
    more[10:80, 1] = 80_000
    store(lake, "a", more)
    card = view(lake).card
    assert "Rank 1 is slow no longer." in card.sentence
    # What comes back from now on is rank 5's alone.
    assert card.cost_per_hour_usd.value is not None
    assert card.cost_per_hour_usd.value < 16 * 0.12


@pytest.mark.parametrize("slow_us", [0, 20_000, 20_001, 40_000, 100_000])
def test_constant_durations_have_a_whole_view(lake: Lake, slow_us: int) -> None:
    found = [
        {
            "job_id": "a",
            "attempt": 0,
            "step": step,
            "rank": rank,
            "start_us": START + step * S,
            "duration_us": S // 2,
            "compute_us": 400_000 + (slow_us if rank == 3 else 0),
            "comm_us": S // 2 - 400_000 - (slow_us if rank == 3 else 0),
        }
        for step in range(30)
        for rank in range(RANKS)
    ]
    lake.append("steps", rows(found), source="test")
    got = view(lake)
    assert got.card.culprit_rank == (3 if slow_us else None)
    assert card_as_text(got)


def test_a_fault_in_the_diagnosis_of_one_job_is_told_and_hides_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise IndexError("index 0 is out of bounds")

    store(lake, "a", np.zeros((30, RANKS)))
    monkeypatch.setattr(causes, "diagnose", broken)
    got = view(lake)
    assert got.no_findings == "its analysis failed: IndexError: index 0 is out of bounds"
    assert got.card.sentence.startswith("No straggler")


def test_a_job_that_cannot_be_analysed_is_told_beside_the_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any]
) -> None:
    store(lake, "a", np.zeros((30, RANKS)))
    store(lake, "b", np.zeros((30, RANKS)))
    real = straggler.analyse_stragglers

    def broken(matrix: object) -> object:
        if not calls:
            calls.append(1)
            raise ValueError("a value must be finite, not nan ratio")
        return real(matrix)  # type: ignore[arg-type]

    calls: list[int] = []
    monkeypatch.setattr(jobs, "analyse_stragglers", broken)
    step_facts._cache.clear()
    ws = open_workspace(lake.root)
    assert list(facts_of(ws, ws.jobs())) == ["b"]
    assert unread_jobs(ws) == {
        "a": "its analysis failed: ValueError: a value must be finite, not nan ratio"
    }
    calls.clear()
    listed = {one["job_id"]: one for one in steptax("jobs", "--lake", str(lake.root))}
    assert listed["b"]["straggler_tax"]["value"] is not None
    assert listed["a"]["cause"].startswith("unknown: its analysis failed: ValueError: a value")


def test_rules_of_alerts_go_on_with_the_other_jobs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(lake, "a", np.zeros((30, RANKS)))
    store(lake, "b", np.zeros((30, RANKS)))

    def one_breaks(ws: object, job_id: str, **more: object) -> JobView:
        if job_id == "a":
            raise IndexError("index 0 is out of bounds")
        return job_view(ws, job_id, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("steptax.app.views.alerting.job_view", one_breaks)
    monkeypatch.setattr("steptax.app.views.alerting.running_jobs", lambda *_: ("a", "b"))
    end = START + 60 * S
    got = list(readings(open_workspace(lake.root), now_us=end))
    assert [(one.job_id, one.problem is None) for one in got] == [("a", False), ("b", True)]
    assert got[0].problem == "its analysis failed: IndexError: index 0 is out of bounds"
