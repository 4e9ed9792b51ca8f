"""Causes are named from their signals, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import CAUSE_TEXTS, Cause, Diagnosis, Finding, Scope
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.episodes import find_episodes
from steptax.app.compute.straggler.rules import CAUSE_RULES, EPISODE_RULES, StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.app.compute.straggler.verdict import flagged_stage
from steptax.benchmarks.product.fault_detectors import evidence_of, matrix_of
from steptax.benchmarks.product.fault_jobs import FaultJob, make_job
from steptax.benchmarks.product.fault_model import (
    CAUSES,
    NOISES,
    ROUGH_NOISES,
    SCOPES,
    Fault,
    Plan,
    Shape,
    ranks_of,
)
from steptax.benchmarks.product.fault_score import NAMES

STEPS = 240
PIPELINE = Shape(8, 4, 8)
SHAPES = {"expert": Shape(16, experts=4), "host": Shape(32), "moving": Shape(32), "job": Shape(16)}


def job_with(cause: str, *, signals: bool = True, seed: int = 7) -> FaultJob:
    """A job with one fault that costs a fifth of the step."""
    scope = SCOPES[cause]
    shape = SHAPES.get(scope, PIPELINE if scope in ("stage", "tp_group", "dp_group") else Shape(16))
    kinds = {
        "rank": ("tp", "dp", "pp"),
        "tp_group": ("dp", "pp"),
        "dp_group": ("tp", "pp"),
        "replica": ("dp",),
        "stage": ("pp",),
        "expert": ("ep",),
        "host": ("host",),
    }.get(scope, ())
    at, same = ranks_of(shape), np.ones(shape.ranks, dtype=bool)
    for kind in kinds:
        same &= at[kind] == at[kind][shape.ranks - 1]
    ranks = tuple(int(r) for r in np.flatnonzero(same)) if kinds else ()
    always = scope in ("stage", "moving") or cause in ("checkpoint", "launch_bound")
    first, last = (0, STEPS - 1) if always else (80, 199)
    fault = Fault(cause, ranks, first, last, 0.2, signals)
    return make_job(Plan(seed, shape, STEPS, NOISES[1], (fault,)))


def told(job: FaultJob, evidence: Evidence | None = None) -> Diagnosis:
    matrix = matrix_of(job)
    return diagnose(matrix, analyse_stragglers(matrix), evidence or evidence_of(job))


def about(job: FaultJob, diagnosis: Diagnosis) -> list[Finding]:
    (fault,) = job.plan.faults
    scope = {"stage": Scope.STAGE, "moving": Scope.MOVING, "job": Scope.JOB}.get(fault.scope)
    if scope is not None and fault.signals:
        return [f for f in diagnosis.findings if f.scope is scope]
    if not fault.ranks:
        return list(diagnosis.findings)
    return [f for f in diagnosis.findings if set(f.ranks) & set(fault.ranks)]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_is_named_when_its_signals_are_there(cause: str) -> None:
    job = job_with(cause)
    found = about(job, told(job))
    wanted = NAMES.get(cause, cause)
    first = next(f for f in found if f.cause.cause == wanted)
    assert set(first.ranks) == set(job.plan.faults[0].ranks)
    assert first.cause.confidence >= CAUSE_RULES.least_confidence
    assert first.cause.evidence_for
    assert first.cause.settle
    assert first.cause.action == CAUSE_TEXTS[Cause(wanted)].action


@pytest.mark.parametrize("cause", CAUSES)
def test_without_them_it_abstains_in_words_and_says_what_would_settle_it(cause: str) -> None:
    job = job_with(cause, signals=False)
    for finding in about(job, told(job)):
        assert finding.cause.cause is None
        assert finding.cause.text.startswith("cause not named: ")
        assert finding.cause.confidence < CAUSE_RULES.least_confidence
        assert finding.cause.settle
        assert finding.cause.action


def test_when_and_how_much() -> None:
    (one,) = told(job_with("thermal")).findings
    assert one.place == "rank 15"
    assert 80 <= one.first_step <= 95
    assert abs(one.last_step - 199) <= 4
    assert one.first_step <= one.detected_step <= one.first_step + 20
    assert not one.is_open
    assert one.excess_ratio == pytest.approx(0.2, abs=0.04)
    assert one.part == "compute"
    # Half of the steps, a sixth of each: the step is a fifth longer than it should be.
    assert one.lost_ratio == pytest.approx(0.5 * 0.2 / 1.2, abs=0.04)


def test_a_device_that_was_like_that_before_is_not_the_cause() -> None:
    """A signal counts when it came with the slowness."""
    job = job_with("thermal")
    assert job.samples is not None
    hot = job.samples.columns["throttle_reasons"]
    hot[:, 15] = 0x20
    (one,) = told(job).findings
    assert one.cause.cause is not Cause.THERMAL


def test_a_power_cap_that_all_devices_report_is_not_the_cause() -> None:
    job = job_with("power_cap")
    assert job.samples is not None
    columns = job.samples.columns
    columns["throttle_reasons"][:] = 0x4
    columns["power_limit_w"][:] = 700.0
    columns["sm_clock_mhz"][:] = 1900.0
    (one,) = told(job).findings
    assert one.cause.cause is None


def test_heat_that_leaves_the_clock_alone_does_not_explain_slowness() -> None:
    job = job_with("thermal")
    assert job.samples is not None
    job.samples.columns["sm_clock_mhz"][:] = 1980.0
    (one,) = told(job).findings
    assert one.cause.cause is None
    assert any("heat" in text for text in one.cause.evidence_against)


def test_two_faults_at_once_have_a_cause_each() -> None:
    faults = (Fault("gc", (3,), 60, 150, 0.2), Fault("clocks", (9,), 80, 239, 0.3))
    job = make_job(Plan(11, Shape(16), STEPS, NOISES[0], faults))
    named = {f.ranks: f.cause.cause for f in told(job).findings if f.scope is Scope.RANKS}
    assert named == {(3,): Cause.GC, (9,): Cause.CLOCKS}


def test_a_host_is_named_as_a_whole() -> None:
    job = job_with("host_cpu")
    (one,) = told(job).findings
    assert one.place.startswith("host node003 (ranks 24, 25")
    assert len(one.ranks) == 8


def test_a_job_whose_ranks_are_all_slow_has_no_straggler() -> None:
    job = job_with("input_storage")
    (one,) = told(job).findings
    assert (one.scope, one.ranks, one.place) == (Scope.JOB, (), "all ranks")
    assert abs(one.first_step - 80) <= 5


def test_a_healthy_job_has_nothing_to_explain() -> None:
    job = make_job(Plan(5, Shape(64), STEPS, NOISES[0]))
    assert told(job).findings == ()


def test_without_any_evidence_beside_the_steps_it_still_finds_the_rank() -> None:
    job = job_with("power_cap")
    (one,) = told(job, Evidence()).findings
    assert one.ranks == (15,)
    assert one.cause.cause is None
    assert any("samples of the devices" in text for text in one.cause.settle)


def test_wall_times_across_the_barrier_tell_nothing() -> None:
    steps, ranks = np.indices((50, 4))
    rows = {"step": steps.ravel(), "rank": ranks.ravel(), "duration_us": np.full(200, 1e6)}
    matrix = build_matrix(rows, world_size=4)
    got = diagnose(matrix, analyse_stragglers(matrix), Evidence())
    assert got.findings == ()
    assert got.reason is not None
    assert "wall times" in got.reason


def test_devices_are_asked_only_when_there_is_somebody_to_explain() -> None:
    healthy = make_job(Plan(5, Shape(16), STEPS, NOISES[0]))

    def refuse() -> None:
        raise AssertionError("nobody is slow")

    assert told(healthy, replace(evidence_of(healthy), devices=refuse)).findings == ()


def test_two_causes_on_one_rank_are_both_named() -> None:
    faults = (Fault("gc", (3,), 60, 200, 0.2), Fault("thermal", (3,), 60, 200, 0.2))
    (one,) = told(make_job(Plan(11, Shape(16), STEPS, NOISES[0], faults))).findings
    assert {one.cause.cause, *(c.cause for c in one.also)} == {Cause.GC, Cause.THERMAL}


def test_a_slow_link_is_not_called_the_network_when_only_totals_are_known() -> None:
    for finding in told(job_with("link", signals=False)).findings:
        assert finding.cause.cause is None


@pytest.mark.parametrize("cause", ["gc", "input_loader", "host_cpu"])
def test_a_hot_device_does_not_take_the_blame_for_what_a_phase_carries(cause: str) -> None:
    job = job_with(cause)
    (fault,) = job.plan.faults
    decoy = Fault("thermal", fault.ranks, fault.first, fault.last, 0.0)
    decoyed = make_job(replace(job.plan, faults=(fault, decoy)))
    (one,) = told(decoyed).findings
    assert one.cause.cause == cause


def test_heat_that_all_devices_report_is_no_reason_why_one_is_slow() -> None:
    job = job_with("thermal")
    assert job.samples is not None
    slow = slice(80 // 5, 200 // 5)
    job.samples.columns["throttle_reasons"][slow] = 0x20
    (one,) = told(job).findings
    assert one.cause.cause is not Cause.THERMAL


def test_a_cap_that_only_its_typical_peer_lacks_still_counts() -> None:
    """A healthy peer or two that report it as well do not clear the culprit."""
    job = job_with("thermal")
    assert job.samples is not None
    job.samples.columns["throttle_reasons"][80 // 5 : 200 // 5, :3] = 0x20
    (one,) = told(job).findings
    assert one.cause.cause is Cause.THERMAL
    said = "reported in 0.0 % of the time at work of its typical peer"
    assert any(said in text for text in one.cause.evidence_for)


def test_late_errors_beside_a_named_cause_are_told() -> None:
    job = job_with("thermal")
    assert job.samples is not None
    job.samples.columns["xid"][:, 15] = np.nan
    job.samples.columns["xid"][150 // 5 :, 15] = 79.0
    (one,) = told(job).findings
    assert one.cause.cause is Cause.THERMAL
    (beside,) = one.cause.evidence_against
    assert beside.startswith("beside it, the driver reported a hardware error of the device: 30 %")
    assert "Xid 79 was first reported" in beside


def test_errors_that_came_as_often_before_are_no_cause() -> None:
    job = job_with("ecc")
    assert job.samples is not None
    counts = np.arange(len(job.samples.ts_us), dtype=np.float64)
    job.samples.columns["ecc_uncorrected"][:, 15] = counts
    job.samples.columns["ecc_corrected"][:, 15] = 0.0
    (one,) = told(job).findings
    assert one.cause.cause is None
    assert any("at the pace of before it was slow" in t for t in one.cause.evidence_against)


def test_a_host_is_one_finding_though_some_of_its_ranks_are_hardly_slow() -> None:
    """Two of its eight ranks are faster by nature: alone they would not be reported."""
    fault = Fault("host_cpu", tuple(range(8, 16)), 60, 199, 0.055)
    job = make_job(Plan(3, Shape(32), STEPS, NOISES[0], (fault,)))
    for rank in (9, 12):
        taken = 0.02 * np.median(job.columns["duration_us"])
        job.columns["compute_us"][:, rank] -= taken
        for name in ("wait_us", "comm_us"):
            job.columns[name][:, rank] += taken
    (one,) = told(job).findings
    assert one.place.startswith("host node001 (ranks ")
    assert set(one.ranks) == set(range(8, 16))
    assert one.cause.cause is Cause.HOST_CPU


def test_half_of_the_ranks_are_dated_as_well() -> None:
    """None of them is far outside of the noise then, which they are half of."""
    steps, ranks = 300, 8
    work = np.random.default_rng(4).lognormal(0, 0.03, (steps, ranks))
    work[120:, [1, 3, 4, 6]] *= 1.2
    length = np.broadcast_to(work.max(axis=1)[:, None] + 0.05, work.shape)
    matrix = build_matrix(
        {
            "step": np.repeat(np.arange(steps), ranks),
            "rank": np.tile(np.arange(ranks), steps),
            "duration_us": length.ravel() * 1e6,
            "comm_us": (length - work).ravel() * 1e6,
        },
        world_size=ranks,
    )
    found = [f for f in told_of(matrix).findings if f.scope is Scope.RANKS]
    assert {f.ranks for f in found} == {(1,), (3,), (4,), (6,)}
    for one in found:
        assert abs(one.first_step - 120) <= 4
        assert one.last_step >= 295


def told_of(matrix: StepMatrix) -> Diagnosis:
    return diagnose(matrix, analyse_stragglers(matrix), Evidence())


def test_noise_of_the_typical_rank_is_no_change_of_the_job() -> None:
    for seed in range(4):
        job = make_job(Plan(seed, Shape(32), STEPS, ROUGH_NOISES[1]))
        assert [f for f in told(job).findings if f.scope is Scope.JOB] == []


def test_silicon_and_a_spell_of_noise_are_no_fault() -> None:
    """A rank that is 2.7 % slower by nature, and 1.5 % more for a while, is 4.2 % slow then."""
    steps, ranks = 300, 64
    excess = np.random.default_rng(5).normal(0, 0.004, (steps, ranks))
    excess[:, 9] += 0.027
    excess[100:180, 9] += 0.015
    step_us = np.full(steps, 1e6)
    assert find_episodes(excess, step_us, EPISODE_RULES) == []
    excess[100:180, 9] += 0.05
    (one,) = find_episodes(excess, step_us, EPISODE_RULES)
    assert abs(one.first - 100) <= 3


def test_a_stage_is_heavy_only_surely() -> None:
    """In noise of 30 % some stage of a healthy job looks heavy over a few steps."""
    results = [
        analyse_stragglers(matrix_of(make_job(Plan(seed, Shape(8, 4), 30, ROUGH_NOISES[1]))))
        for seed in range(8)
    ]
    for rules, is_any in (
        (StragglerRules(), False),
        (StragglerRules(worker_surely_ratio=-9), True),
    ):
        heavy = [flagged_stage(r.stages, r.step_us.value or 0.0, rules) for r in results]
        assert any(place is not None for place in heavy) is is_any
