"""What is said of small, late, ended, joint and half-and-half slowness is true.

Job tables are made here: duration is the slowest rank's own time and a transfer of 60 ms.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import Cause, Diagnosis, Finding, Scope
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.steps import build_matrix

Table = NDArray[np.float64]
TRANSFER_US = 60e3
HALVES = np.repeat([0, 1], 8)


def noisy(steps: int, ranks: int, sd: float = 0.01, base_us: float = 400e3, seed: int = 0) -> Table:
    """[S, R] times around ``base_us``."""
    g = np.random.default_rng(seed)
    return base_us * (1 + sd * g.standard_normal((steps, ranks))).clip(0.1)


def told(
    parts: dict[str, Table], hosts: NDArray[np.int64] | None = None, keep: Table | None = None
) -> tuple[StragglerResult, Diagnosis]:
    """The verdict and the findings of a job whose own time are ``parts`` [S, R]."""
    own = sum(parts.values(), np.zeros(next(iter(parts.values())).shape))
    steps, ranks = own.shape
    duration = own.max(axis=1, keepdims=True) + TRANSFER_US
    step, rank = np.meshgrid(np.arange(steps), np.arange(ranks), indexing="ij")
    cells = np.ones(own.shape, bool) if keep is None else keep.astype(bool)
    columns = {
        "step": step[cells],
        "rank": rank[cells],
        "duration_us": np.broadcast_to(duration, own.shape)[cells],
        "comm_us": (duration - own)[cells],
        "transfer_us": np.full(own.shape, TRANSFER_US)[cells],
    }
    columns |= {f"{name}_us": v[cells] for name, v in parts.items() if name != "host"}
    matrix = build_matrix(columns, world_size=ranks)
    result = analyse_stragglers(matrix)
    names = [f"n{h}" for h in hosts] if hosts is not None else ()
    places = {} if hosts is None else {"host": hosts.astype(np.int64)}
    return result, diagnose(matrix, result, Evidence(places, names))


def test_a_small_excess_in_quiet_noise_is_slow_in_every_step() -> None:
    compute = noisy(300, 16, sd=0.001, seed=204)
    compute[:, 5] *= 1.04
    result, found = told({"compute": compute})
    assert result.ranks is not None
    assert (result.verdict.kind, result.verdict.ranks) == (Kind.WORKER, (5,))
    assert result.ranks.persistence_ratio[5] == 1.0
    (one,) = found.findings
    assert (one.ranks, one.in_steps, one.is_open) == ((5,), None, True)


def test_a_small_excess_is_not_again_and_again() -> None:
    compute = noisy(300, 8, seed=20)
    compute[:, 2] *= 1.045
    result, found = told({"compute": compute})
    assert not result.recurring
    assert found.findings[0].in_steps is None
    assert result.ranks is not None
    assert result.ranks.persistence_ratio[2] > 0.9


@settings(max_examples=40)
@given(
    ranks=st.integers(2, 9),
    steps=st.integers(1, 40),
    slow_us=st.sampled_from([0, 1, 399_999, 400_000, 400_001, 412_000, 420_000, 10**9]),
    count=st.integers(0, 9),
)
def test_constant_tables_are_judged_and_explained(
    ranks: int, steps: int, slow_us: int, count: int
) -> None:
    compute = np.full((steps, ranks), 400e3)
    compute[:, : min(count, ranks)] = slow_us
    result, found = told({"compute": compute})
    assert result.verdict.text
    for one in found.findings:
        assert np.isfinite(one.excess_us)
        assert one.lost_ratio is None or 0.0 <= one.lost_ratio <= 1.0


@pytest.mark.parametrize("part", ["input", "host"])
@pytest.mark.parametrize("first", [0, 150])
def test_a_slow_half_is_its_host_and_not_all_ranks(part: str, first: int) -> None:
    other = noisy(300, 16, 0.3, 5e3, seed=2)
    other[first:, 8:] += 70e3
    _, found = told({"compute": noisy(300, 16, seed=1), part: other}, HALVES)
    (one,) = found.findings
    assert (one.scope, set(one.ranks)) == (Scope.RANKS, set(range(8, 16)))
    assert one.place.startswith("host n1")
    assert one.cause.cause is {"input": Cause.INPUT_LOADER, "host": Cause.HOST_CPU}[part]
    assert abs(one.first_step - first) <= 5


def test_what_all_ranks_have_beside_a_slow_half_is_told() -> None:
    data = noisy(300, 16, 0.3, 50e3, seed=2)
    data[:, 8:] += 70e3
    _, found = told({"compute": noisy(300, 16, seed=1), "input": data}, HALVES)
    assert [f.cause.cause for f in found.findings if f.scope is Scope.JOB] == [Cause.INPUT_STORAGE]


@pytest.mark.parametrize("part", ["compute", "input"])
def test_the_same_most_ranks_are_no_different_rank_from_step_to_step(part: str) -> None:
    parts = {"compute": noisy(300, 16, seed=19), "input": noisy(300, 16, 0.3, 5e3, seed=20)}
    parts[part][:, :9] += 70e3
    result, found = told(parts)
    assert result.verdict.kind is Kind.MOST
    assert "the same 9 of 16 ranks" in result.verdict.text
    (one,) = found.findings
    assert one.place.startswith("the same 9 of 16 ranks")
    assert (one.part, one.cause.cause) == (part, None)
    assert one.lost_ratio == pytest.approx(0.13, abs=0.02)


def test_one_fast_rank_is_no_straggler() -> None:
    compute = noisy(300, 8, seed=21)
    compute[:, 2] *= 0.8
    result, found = told({"compute": compute})
    assert result.verdict.kind is Kind.NONE
    assert "rank 2 most: it is faster than the other 7" in result.verdict.text
    assert not found.findings


def test_a_rank_that_is_late_in_turns_is_still_moving() -> None:
    g, compute = np.random.default_rng(5), noisy(300, 16, seed=22)
    compute[np.arange(300), g.integers(0, 16, 300)] *= 1.3
    assert told({"compute": compute})[0].verdict.kind is Kind.MOVING


def test_a_finding_about_few_steps_costs_no_more_than_they_took() -> None:
    compute = noisy(300, 16, seed=15)
    compute[37, 4] *= 100
    compute[200, 8] *= 60
    result, found = told({"compute": compute})
    (one,) = found.findings
    assert result.verdict.mostly == 4
    assert one.lost_ratio is not None
    assert one.span_ratio is not None
    assert 0.15 < one.lost_ratio <= one.span_ratio < 0.25


def test_a_second_part_speaks_against_a_cause() -> None:
    compute, data = noisy(300, 16, seed=1), noisy(300, 16, 0.3, 5e3, seed=2)
    compute[:, 3] *= 1.15
    data[:, 3] += 65e3
    cause = told({"compute": compute, "input": data})[1].findings[0].cause
    assert cause.cause is Cause.INPUT_LOADER
    assert cause.confidence < 0.75
    assert any("of the excess is in compute" in text for text in cause.evidence_against)


def silent() -> Finding:
    """Rank 6 is slow and stops reporting at step 200."""
    compute, keep = noisy(300, 16, seed=27), np.ones((300, 16))
    compute[:, 6] *= 1.2
    keep[200:, 6] = 0
    return told({"compute": compute}, keep=keep)[1].findings[0]


def test_a_rank_that_reports_no_more_does_not_go_on() -> None:
    one = silent()
    assert (one.ranks, one.last_step) == ((6,), 199)
    assert (one.is_open, one.is_silent) == (False, True)


def test_ranks_that_are_slow_at_once_return_together() -> None:
    compute, data = noisy(300, 16, seed=1), noisy(300, 16, 0.3, 5e3, seed=2)
    compute[100:, 3] *= 1.15
    data[100:, 12] += 60e3
    found = told({"compute": compute, "input": data})[1].findings
    assert {f.ranks for f in found} == {(3,), (12,)}
    for one in found:
        assert one.together is not None
        assert one.lost_ratio is not None
        assert one.together.ranks == (3, 12)
        assert one.together.lost_ratio > 10 * one.lost_ratio


def test_a_rank_that_is_slow_alone_has_no_joint_repair() -> None:
    compute = noisy(300, 16, seed=1)
    compute[100:, 3] *= 1.15
    assert told({"compute": compute})[1].findings[0].together is None


def test_steps_that_all_ranks_reported_are_counted() -> None:
    keep = np.ones((300, 16))
    keep[2:, :] = np.random.default_rng(1).random((298, 16)) > 0.5
    reason = told({"compute": noisy(300, 16)}, keep=keep)[1].reason
    assert reason is not None
    assert "only 2 of them together" in reason
