"""What a finding costs, and that its evidence says what holds: no more than the data do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.causes.beside import expert_sides, host_sides, link_sides
from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import Cause, Diagnosis, Finding, Scope
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.rules import CAUSE_RULES
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.benchmarks.product.fault_detectors import evidence_of, matrix_of
from steptax.benchmarks.product.fault_jobs import FaultJob, make_job
from steptax.benchmarks.product.fault_model import NOISES, Fault, Plan, Shape

RANKS = 8
TRANSFER_S = 0.15


def matrix(work_s: np.ndarray) -> StepMatrix:
    """Steps in which ranks work so long [S, R] and wait for the last one."""
    length = work_s.max(axis=1, keepdims=True) + TRANSFER_S
    step, rank = np.indices(work_s.shape)
    columns = {
        "duration_us": length + 0 * work_s,
        "compute_us": work_s,
        "wait_us": length - TRANSFER_S - work_s,
        "transfer_us": np.full(work_s.shape, TRANSFER_S),
        "comm_us": length - work_s,
    }
    rows = {name: np.rint(values * 1e6).ravel() for name, values in columns.items()}
    return build_matrix(
        {"step": step.ravel(), "rank": rank.ravel(), **rows}, world_size=work_s.shape[1]
    )


def told(steps: StepMatrix, evidence: Evidence | None = None) -> Diagnosis:
    return diagnose(steps, analyse_stragglers(steps), evidence or Evidence())


def level(seed: int, steps: int, ranks: int = RANKS) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0, 0.02, (steps, ranks))


def test_slow_stretches_that_come_and_go_cost_what_they_take() -> None:
    """Five steps in fifty at two and a half times the work: an eighth of the time, not all."""
    work = level(0, 400, 16)
    work[np.arange(400) % 50 >= 45] *= 2.5
    steps = matrix(work)
    (one,) = (f for f in told(steps).findings if f.scope is Scope.JOB)
    length = steps.duration_us[:, 0]
    really = 1.0 - 400 * np.median(length) / length.sum()
    assert one.lost_ratio == pytest.approx(really, abs=0.02)
    assert one.in_steps is not None
    assert one.in_steps[0] == pytest.approx(40, abs=3)
    assert one.in_steps[1] == one.last_step - one.first_step + 1
    assert any(f"in {one.in_steps[0]} of {one.in_steps[1]} steps" in t for t in seen(one))


def test_a_stretch_without_gaps_needs_no_count() -> None:
    work = level(0, 300)
    work[150:] *= 1.5
    (one,) = told(matrix(work)).findings
    assert one.in_steps is None
    assert one.lost_ratio == pytest.approx(0.5 * 150 / (300 * 1.15 + 0.5 * 150), abs=0.02)


def seen(finding: Finding) -> tuple[str, ...]:
    return (*finding.cause.evidence_for, *finding.cause.evidence_against)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    every=st.integers(5, 60),
    share=st.floats(0.05, 0.9),
    factor=st.floats(1.0, 6.0),
    rank=st.integers(0, RANKS - 1),
    first=st.integers(0, 100),
    own=st.floats(1.0, 8.0),
)
def test_a_finding_never_costs_more_than_the_time_it_spans(
    seed: int, every: int, share: float, factor: float, rank: int, first: int, own: float
) -> None:
    work = level(seed, 160)
    work[np.arange(160) % every >= (1 - share) * every] *= factor
    work[first : first + 40, rank] *= own
    steps = matrix(work)
    length = steps.duration_us[:, 0]
    for finding in told(steps).findings:
        assert finding.lost_ratio is not None
        spanned = length[finding.first_step : finding.last_step + 1]
        most = spanned.sum()
        if finding.in_steps is not None:
            assert finding.in_steps[0] < finding.in_steps[1] == len(spanned)
            most = np.sort(spanned)[-finding.in_steps[0] :].sum()
        assert 0 <= finding.lost_ratio <= most / length.sum() + 1e-9


def test_a_rank_with_more_of_what_all_have_speaks_against_all_alike() -> None:
    work = level(1, 300)
    work[150:] *= 1.5
    (even,) = told(matrix(work)).findings
    assert any(t.startswith("even the rank with most of it has") for t in even.cause.evidence_for)
    assert even.cause.evidence_against == ()
    work[150:, 3] += 0.2
    (one,) = (f for f in told(matrix(work)).findings if f.scope is Scope.JOB)
    (against,) = one.cause.evidence_against
    assert against.startswith("rank 3 has ")
    assert against.endswith(" of a step more of it than its peers")
    assert not any("even the rank" in text for text in one.cause.evidence_for)


def test_a_host_is_said_to_be_alone_only_where_it_is() -> None:
    places = {"host": np.repeat(np.arange(4), 4)}
    excess = np.zeros((10, 16))
    excess[:, :4] = 1.0
    speaks, against = host_sides(excess, (0, 1, 2), places, CAUSE_RULES)
    assert speaks == (
        "3 of the 4 ranks of that host together",
        "no rank of another host has 50 % of their excess",
    )
    assert against == ()
    excess[:, 8:12] = 0.6
    speaks, against = host_sides(excess, (0, 1, 2, 3), places, CAUSE_RULES)
    assert speaks == ("4 of the 4 ranks of that host together",)
    assert against == (
        "4 ranks have at least 50 % of their excess at the same time on another host",
    )


def test_replicas_and_hosts_of_an_expert_place_are_counted() -> None:
    places = {
        "ep": np.arange(8) % 4,
        "dp": np.arange(8) // 4,
        "host": np.zeros(8, dtype=np.int64),
    }
    excess = np.zeros((5, 8))
    excess[:, [1, 5]] = 1.0
    (text,), against = expert_sides(excess, (1, 5), places, CAUSE_RULES)
    assert text.endswith("are slow together, in 2 of 2 replicas, on 1 host")
    assert against == ("they are all on one host, which they share as well",)
    places["host"] = places["dp"]
    (text,), against = expert_sides(excess, (1, 5), places, CAUSE_RULES)
    assert text.endswith("on 2 hosts")
    assert against == ()


def test_other_groups_are_said_to_be_well_only_where_they_are() -> None:
    excess = np.zeros((5, 8))
    excess[:, :2] = 0.2
    speaks, against = link_sides(excess, (0, 1), 0.2, CAUSE_RULES)
    assert "no other rank has 50 % of their excess" in speaks
    assert against == ()
    excess[:, 5] = 0.15
    speaks, against = link_sides(excess, (0, 1), 0.2, CAUSE_RULES)
    assert len(speaks) == 1
    assert against == ("1 other rank has at least 50 % of their excess at the same time",)


def faulty(cause: str) -> FaultJob:
    """Rank 5 of 16 is slow from step 100 on, and its device says ``cause``."""
    return make_job(Plan(7, Shape(16), 240, NOISES[0], (Fault(cause, (5,), 100, 239, 0.2),)))


def later(job: FaultJob, name: str, to_step: int) -> FaultJob:
    """The same device tells ``name`` from ``to_step`` on only."""
    assert job.samples is not None
    values = job.samples.columns[name]
    rows = to_step // 5
    start = 100 // 5
    own = values[:, 5].copy()
    values[start:rows, 5] = own[start - 1]
    values[rows:, 5] = own[start : start + len(own) - rows]
    return job


def rank_5(job: FaultJob) -> Finding:
    (one,) = told(matrix_of(job), evidence_of(job)).findings
    assert one.ranks == (5,)
    return one


@pytest.mark.parametrize(
    ("cause", "columns"), [("xid", ["xid"]), ("ecc", ["ecc_corrected", "ecc_uncorrected"])]
)
def test_what_came_after_the_slowness_is_not_its_cause(cause: str, columns: list[str]) -> None:
    assert rank_5(faulty(cause)).cause.cause == cause
    job = faulty(cause)
    for name in columns:
        later(job, name, 180)
    one = rank_5(job)
    assert one.cause.cause is None
    assert any("after it had become slow" in text for text in one.cause.evidence_against)


def test_an_xid_just_before_the_first_slow_step_is_its_cause() -> None:
    job = faulty("xid")
    assert job.samples is not None
    codes = job.samples.columns["xid"]
    codes[:18, :] = 0.0
    codes[18:, 5] = codes[-1, 5]
    assert rank_5(job).cause.cause is Cause.XID
    codes[8:, 5] = codes[-1, 5]
    assert rank_5(job).cause.cause is None


def test_a_device_that_is_hardly_hotter_is_not_called_hotter() -> None:
    job = faulty("thermal")
    assert job.samples is not None
    assert any("hotter" in text for text in rank_5(job).cause.evidence_for)
    heat = job.samples.columns["temperature_c"]
    heat[:] = 64.0
    heat[:, 5] = 64.4
    one = rank_5(job)
    assert one.cause.cause is Cause.THERMAL
    assert not any("hotter" in text for text in one.cause.evidence_for)


def test_throttle_reasons_that_are_not_known_are_not_called_absent() -> None:
    job = faulty("clocks")
    assert any("heat 0.0 %" in text for text in rank_5(job).cause.evidence_for)
    known = evidence_of(job)
    assert known.devices is not None
    devices = known.devices()
    assert devices is not None
    silent = replace(
        devices, samples=replace(devices.samples, masks=np.full_like(devices.samples.masks, -1))
    )
    (one,) = told(matrix_of(job), replace(known, devices=lambda: silent)).findings
    assert one.cause.cause is Cause.CLOCKS
    assert not any("heat" in text for text in one.cause.evidence_for)
    assert "throttle reasons of that device" in one.cause.settle
