"""The ledger closes: in microseconds, in shares and in cents."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.cost import exact_usd, to_cents
from steptax.app.compute.bill.ledger import TITLES, Ledger, step_ledger
from steptax.app.compute.measure import Level
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix, without_inconsistent
from steptax.app.errors import IntegrityError, UserError

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

NAN = float("nan")
OWN = ("input", "checkpoint", "h2d", "gc", "other")


@st.composite
def matrices(draw: st.DrawFn) -> StepMatrix:
    """Jobs with holes, with any set of measured columns, and with a world beyond the records."""
    steps, ranks = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    shape = (steps, ranks)
    g = np.random.default_rng(draw(st.integers(0, 10**6)))
    whole = draw(st.booleans())

    def times(high: int) -> np.ndarray:
        values = g.integers(0, high, shape).astype(float)
        return values if whole else values + g.random(shape)

    comm = times(60_000)
    compute = times(90_000)
    phases = {name: times(8000) for name in OWN}
    named = sum(phases.values(), compute) + comm
    slack = draw(st.sampled_from([0, -900, 5000]))
    columns = {
        "duration_us": np.maximum(named + slack, 1),
        "comm_us": comm,
        "wait_us": comm * g.random(shape),
        "compute_us": compute,
    } | {f"{name}_us": values for name, values in phases.items()}
    kept = draw(st.sets(st.sampled_from(sorted(set(columns) - {"duration_us"}))))
    columns = {name: v for name, v in columns.items() if name in kept or name == "duration_us"}
    for name, values in columns.items():
        if name != "duration_us" and draw(st.booleans()):
            values[g.random(shape) < 0.1] = NAN
    here = (g.random(shape) < draw(st.sampled_from([1.0, 0.7]))).ravel()
    here[0] = True
    step, rank = np.indices(shape)
    seen = len(np.unique(rank.ravel()[here]))
    expected = draw(st.sampled_from([seen, seen + 1]))
    stage = draw(st.sampled_from([None, 1, 2]))
    return build_matrix(
        {
            name: values.ravel()[here]
            for name, values in ({"step": step, "rank": rank} | columns).items()
        },
        world_size=expected * draw(st.sampled_from([1, 4])) + draw(st.sampled_from([0, 1])),
        expected_ranks=expected,
        topology=None if stage is None else {r: (r % stage, r) for r in range(ranks)},
    )


@settings(UNTIMED, max_examples=150)
@given(matrix=matrices(), price=st.sampled_from([None, Decimal("2"), Decimal("0.0071")]))
def test_buckets_add_up_to_the_paid_time_and_to_the_cent(
    matrix: StepMatrix, price: Decimal | None
) -> None:
    ledger = step_ledger(matrix, price)
    held = [row.gpu_us for row in ledger.rows if row.gpu_us is not None]
    assert sum(held, Fraction(0)) == ledger.paid_gpu_us
    below = sum((us for us in held if us < 0), Fraction(0)) / ledger.paid_gpu_us
    shares = sum(row.share_ratio or 0.0 for row in ledger.rows)
    assert shares == pytest.approx(1 - float(below), abs=1e-9)
    assert [row.bucket for row in ledger.rows] == [b for b in TITLES if ledger.row(b)]
    for row in ledger.rows:
        assert (row.gpu_us is None) == (row.gpu_seconds is None)
        assert (row.share_ratio is None) == (row.gpu_us is None)
        assert row.gpu_us is not None or row.note
    if price is None:
        assert ledger.paid_usd is None
        assert all(row.usd is None for row in ledger.rows)
    else:
        cents = sum((row.usd for row in ledger.rows if row.usd is not None), Decimal(0))
        assert cents == ledger.paid_usd == to_cents(exact_usd(ledger.paid_gpu_us / 10**6, price))


@settings(UNTIMED, max_examples=60)
@given(matrix=matrices())
def test_no_bucket_is_below_zero(matrix: StepMatrix) -> None:
    """Parts that exceed their report by as much as is let pass are cut to it."""
    assert all(row.gpu_us is None or row.gpu_us >= 0 for row in step_ledger(matrix, None).rows)


@settings(UNTIMED, max_examples=60)
@given(matrix=matrices())
def test_the_world_weighs_the_records(matrix: StepMatrix) -> None:
    ledger = step_ledger(matrix, None)
    plain = step_ledger(replace(matrix, world_size=matrix.expected_ranks), None)
    assert ledger.weight == Fraction(matrix.world_size, matrix.expected_ranks)
    if (matrix.world_size == 1) == (matrix.expected_ranks == 1):
        assert ledger.paid_gpu_us == plain.paid_gpu_us * ledger.weight


def job(world: int = 2, *, stage: int = 1, **columns: list[list[float]]) -> StepMatrix:
    values = {name: np.array(given, dtype=float) for name, given in columns.items()}
    step, rank = np.indices(values["duration_us"].shape)
    return build_matrix(
        {n: v.ravel() for n, v in ({"step": step, "rank": rank} | values).items()},
        world_size=world,
        topology={r: (r % stage, r) for r in range(rank.shape[1])} if stage else None,
    )


def amounts(ledger: Ledger) -> dict[str, int]:
    return {row.bucket: int(row.gpu_us) for row in ledger.rows if row.gpu_us is not None}


def test_each_part_is_in_its_bucket() -> None:
    matrix = job(
        duration_us=[[100_000, 100_500]],
        comm_us=[[50_000, 20_000]],
        compute_us=[[45_000, 70_000]],
        input_us=[[3000, 4000]],
        gc_us=[[0, 5000]],
    )
    ledger = step_ledger(matrix, Decimal("3600"))
    assert amounts(ledger) == {
        "compute": 115_000,
        "input": 7000,
        "exposed_comm": 40_000,
        "pipeline_bubble": 0,
        "straggler_wait": 30_000,
        "gc": 5000,
        "host_gaps": 2000 + 1500,
    }
    row = ledger.row("straggler_wait")
    assert row is not None
    assert row.usd == Decimal("0.03")
    assert row.gpu_seconds == 0.03
    assert ledger.paid_usd == Decimal("0.20")
    assert ledger.level is Level.PHASES
    assert ledger.unexplained_ratio.value == pytest.approx(3500 / 200_500)


def test_what_was_not_measured_has_no_number_and_says_where_it_would_be() -> None:
    ledger = step_ledger(job(duration_us=[[100, 100]], comm_us=[[50, 20]]), Decimal(2))
    for bucket in ("compute", "input", "checkpoint", "h2d", "gc", "other"):
        row = ledger.row(bucket)
        assert row is not None
        assert (row.gpu_us, row.share_ratio, row.usd) == (None, None, None)
        assert TITLES["unsplit"] in row.note
    assert amounts(ledger)["unsplit"] == 130
    assert ledger.row("host_gaps") is None


def test_without_collective_times_communication_stays_with_the_gaps() -> None:
    matrix = job(duration_us=[[1000, 1001]], compute_us=[[300, 800]])
    held = amounts(step_ledger(matrix, None))
    # paid 2 x 1001: compute 1100, rank 0 waits 500, both have 201 left
    assert held == {
        "compute": 1100,
        "straggler_wait": 500,
        "comm_and_gaps": 402,
        "pipeline_bubble": 0,
    }


def test_pipeline_jobs_keep_communication_and_bubble_together() -> None:
    by_phases = job(stage=2, duration_us=[[1000, 1001]], compute_us=[[300, 800]])
    ledger = step_ledger(by_phases, None)
    assert amounts(ledger)["comm_and_bubble"] == 402
    bubble = ledger.row("pipeline_bubble")
    assert bubble is not None
    assert bubble.gpu_us is None
    assert "dependency graph" in bubble.note
    by_comm = job(
        stage=2,
        duration_us=[[1000, 1000]],
        comm_us=[[600, 100]],
        compute_us=[[390, 880]],
    )
    ledger = step_ledger(by_comm, None)
    assert amounts(ledger) == {
        "compute": 1270,
        "straggler_wait": 500,
        "comm_and_bubble": 200,
        "host_gaps": 30,
    }
    exposed = ledger.row("exposed_comm")
    assert exposed is not None
    assert TITLES["comm_and_bubble"] in exposed.note


def test_unknown_stages_leave_the_bubble_unknown() -> None:
    row = step_ledger(job(stage=0, duration_us=[[10, 20]]), None).row("pipeline_bubble")
    assert row is not None
    assert row.gpu_us is None
    assert "stage" in row.note


def test_durations_that_end_before_the_barrier_are_paid_until_the_last_is_ready() -> None:
    ledger = step_ledger(job(duration_us=[[1000, 1500], [1000, 1400]]), None)
    assert ledger.paid_gpu_us == 2 * 1500 + 2 * 1400
    assert amounts(ledger) == {"straggler_wait": 900, "unsplit": 4900, "pipeline_bubble": 0}
    assert ledger.level is Level.STEP_TIME


def test_wall_times_alone_leave_waiting_unknown() -> None:
    ledger = step_ledger(job(duration_us=[[1000, 1001]]), None)
    row = ledger.row("straggler_wait")
    assert row is not None
    assert row.gpu_us is None
    assert "comm_us" in row.note
    assert amounts(ledger) == {"unsplit": 2001, "pipeline_bubble": 0}


def test_missing_reports_are_paid_for_and_apart() -> None:
    matrix = job(duration_us=[[100, 90], [100, 95]], comm_us=[[20, 10], [20, 10]])
    kept = np.array([[100, 90], [100, NAN]])
    ledger = step_ledger(replace(matrix, duration_us=kept), None)
    assert amounts(ledger)["unrecorded"] == 100
    assert ledger.paid_gpu_us == 390
    row = ledger.row("unrecorded")
    assert row is not None
    assert "1 reports are missing" in row.note


def test_parts_that_exceed_their_report_within_the_tolerance_are_cut_to_it() -> None:
    columns = {"comm_us": [[30, 30]], "compute_us": [[10_500, 9_000]], "input_us": [[70, 0]]}
    ledger = step_ledger(job(duration_us=[[10_000, 10_000]], **columns), None)
    # 10,600 in 10,000: 28, 66 and 9,905 of 30, 70 and 10,500, and one more for the largest.
    own = amounts(ledger)
    assert own["compute"] == 9_906 + 9_000
    assert own["input"] == 66
    assert own["exposed_comm"] == 28 + 30
    assert own["host_gaps"] == 970
    assert ledger.paid_gpu_us == 20_000
    row = ledger.row("host_gaps")
    assert row is not None
    assert (
        row.note == "the parts of some reports exceed them, by 3.0 % in all: they are cut to "
        "their report"
    )
    assert ledger.unexplained_ratio.value == pytest.approx(0.0485)


def test_a_rounded_digit_is_cut_without_a_word() -> None:
    """Parts in whole microseconds may be one longer than the whole that they were rounded from."""
    columns = {"comm_us": [[400_001, 400_001]], "compute_us": [[600_000, 600_000]]}
    ledger = step_ledger(job(duration_us=[[1_000_000, 1_000_000]], **columns), None)
    row = ledger.row("host_gaps")
    assert row is not None
    assert (row.gpu_us, row.share_ratio, row.note) == (0, 0.0, "")


def test_overlap_beyond_it_is_refused_by_name() -> None:
    matrix = job(duration_us=[[10_000, 10_000]], comm_us=[[0, 0]], compute_us=[[9000, 11_200]])
    with pytest.raises(IntegrityError, match=r"step 0, rank 1: .* exceed its duration by 1200 us"):
        step_ledger(matrix, None)
    kept, _ = without_inconsistent(matrix)
    assert amounts(step_ledger(kept, None))["unrecorded"] == 10_000


def test_a_price_of_nothing_is_refused() -> None:
    with pytest.raises(UserError):
        step_ledger(job(duration_us=[[10, 20]]), Decimal(0))


def test_normalised_time_costs_nothing_that_could_be_named() -> None:
    matrix = replace(job(duration_us=[[10, 20]]), time_is_relative=True)
    ledger = step_ledger(matrix, Decimal(2))
    assert ledger.paid_usd is None
    assert all(row.usd is None for row in ledger.rows)


def test_a_ledger_that_does_not_close_cannot_be_made() -> None:
    ledger = step_ledger(job(duration_us=[[10, 20]]), Decimal(2))
    with pytest.raises(IntegrityError, match="paid GPU-us"):
        replace(ledger, paid_gpu_us=ledger.paid_gpu_us + 1)
    with pytest.raises(IntegrityError, match="USD paid"):
        replace(ledger, paid_usd=Decimal("1.00"))


@settings(UNTIMED, max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_waiting_in_the_ledger_is_the_tax_where_all_reported(seed: int) -> None:
    g = np.random.default_rng(seed)
    work = g.integers(10_000, 90_000, (6, 4)).astype(float)
    comm = work.max(axis=1, keepdims=True) - work + 3000
    matrix = job(4, duration_us=(work + comm).tolist(), comm_us=comm.tolist())
    row = step_ledger(matrix, None).row("straggler_wait")
    assert row is not None
    assert row.share_ratio == pytest.approx(analyse_stragglers(matrix).tax_ratio.value, rel=1e-12)
