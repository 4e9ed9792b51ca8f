"""Likely reasons come from evidence and name what would settle them."""

from __future__ import annotations

import numpy as np
import pytest

from steptax.app.compute.causes.hints import HOST, Explanation
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.steps import build_matrix

STEPS, RANKS = 60, 8


def result(extra: np.ndarray, **columns: np.ndarray) -> StragglerResult:
    """A job in which all are ready after 100 ms and ``extra``, and then meet at a barrier.

    Every row has communication, so that work is known with and without phases.
    """
    g = np.random.default_rng(7)
    work = 100_000 + g.normal(0, 300, (STEPS, RANKS)) + extra
    comm = work.max(axis=1, keepdims=True) - work + 5000
    step, rank = np.indices(work.shape)
    long = {"step": step, "rank": rank, "duration_us": work + comm, "comm_us": comm}
    if columns.pop("split", np.array(1)):
        named = sum((v for n, v in columns.items() if n.endswith("_us")), np.zeros(work.shape))
        long["compute_us"] = work - named
    return analyse_stragglers(
        build_matrix({n: v.ravel() for n, v in (long | columns).items()}, world_size=RANKS)
    )


def explain(extra: np.ndarray, **columns: np.ndarray) -> Explanation:
    got = result(extra, **columns)
    assert got.verdict.kind is Kind.WORKER
    assert got.verdict.culprit == 3
    return got.explanation


def on_rank_3(us: float) -> np.ndarray:
    extra = np.zeros((STEPS, RANKS))
    extra[:, 3] = us
    return extra


@pytest.mark.parametrize("phase", ["input", "gc", "checkpoint", "h2d", "other"])
def test_the_phase_with_the_excess_is_the_hint(phase: str) -> None:
    extra = on_rank_3(20_000)
    got = explain(extra, **{f"{phase}_us": extra + 1000})
    assert got.dominant is not None
    assert got.dominant.phase == phase
    assert got.dominant.excess_us == pytest.approx(20_000, rel=0.01)
    assert [h.id for h in got.hints] == [phase]
    assert got.hints[0].share_ratio == pytest.approx(1, abs=0.02)
    assert got.hints[0].settle
    assert got.hints[0].confidence is None


def test_time_that_no_phase_names_is_host_time() -> None:
    extra = on_rank_3(20_000)
    got = explain(extra, split=np.array(0), compute_us=np.full((STEPS, RANKS), 90_000.0))
    assert [h.id for h in got.hints] == [HOST]


def test_two_causes_are_both_named_with_their_strength() -> None:
    got = explain(on_rank_3(20_000), input_us=on_rank_3(8000) + 1000)
    assert [h.id for h in got.hints] == ["slow_compute", "input"]
    shares = [h.share_ratio for h in got.hints]
    assert shares == pytest.approx([0.6, 0.4], abs=0.03)


def test_without_phases_it_abstains_and_names_them() -> None:
    got = explain(on_rank_3(20_000), split=np.array(0))
    assert not got.hints
    assert got.dominant is None
    assert got.reason is not None
    assert "compute_us" in got.reason


def sequences(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(900, 1100, (STEPS, RANKS)) * 1000.0


def test_work_in_proportion_to_sequence_lengths_is_laid_to_them() -> None:
    seq = sequences()
    seq[:, 3] *= 1.4
    got = explain((seq - 900_000) / 20, seq_sq_sum=seq)
    assert got.hints[0].id == "sequence_length"
    assert got.hints[0].share_ratio == pytest.approx(1, abs=0.05)
    assert any("correlation" in text for text in got.hints[0].evidence_for)


def test_equal_sequences_point_at_the_device_or_its_host() -> None:
    got = explain(on_rank_3(20_000), seq_sq_sum=sequences())
    assert [h.id for h in got.hints] == ["slow_compute"]
    assert any("equals the peers'" in text for text in got.hints[0].evidence_for)


def test_a_slow_rank_with_slightly_longer_sequences_is_not_excused_by_them() -> None:
    # All sequences equal but on the culprit, 3 % longer: work and length correlate perfectly, yet
    # 3 % more tokens cannot make 20 % more work.
    seq = np.full((STEPS, RANKS), 1e6)
    seq[:, 3] *= 1.03
    got = explain(on_rank_3(20_000), seq_sq_sum=seq)
    assert got.hints[0].id == "slow_compute"
    assert any("accounts for" in text for text in got.hints[0].evidence_against)


def test_sequences_explain_a_part_and_a_slow_device_the_rest() -> None:
    seq = sequences()
    seq[:, 3] *= 1.4
    # Sequences account for about 20 ms (slope of the other ranks), the device for 13 ms more.
    got = explain((seq - 900_000) / 20 + on_rank_3(13_000), seq_sq_sum=seq)
    assert [h.id for h in got.hints] == ["sequence_length", "slow_compute"]
    assert [h.share_ratio for h in got.hints] == pytest.approx([0.6, 0.4], abs=0.05)


def test_tokens_serve_when_squares_are_missing() -> None:
    seq = sequences()
    seq[:, 3] *= 1.4
    got = explain((seq - 900_000) / 20, tokens=seq)
    assert got.hints[0].id == "sequence_length"
    assert any("tokens" in text for text in got.hints[0].evidence_for)


def test_sequences_without_phases_still_speak() -> None:
    seq = sequences()
    seq[:, 3] *= 1.4
    got = explain((seq - 900_000) / 20, split=np.array(0), seq_sq_sum=seq)
    assert got.hints[0].id == "sequence_length"
    assert got.dominant is None


def test_moving_sequences_are_recognised_without_a_culprit() -> None:
    seq = np.random.default_rng(2).integers(500, 1500, (STEPS, RANKS)) * 1000.0
    got = result(seq / 20, seq_sq_sum=seq)
    assert got.verdict.kind is Kind.MOVING
    assert got.verdict.culprit is None
    assert got.explanation.hints[0].id == "sequence_length"


def test_moving_pauses_are_recognised_without_a_culprit() -> None:
    pause = np.zeros((STEPS, RANKS))
    rows = np.arange(0, STEPS, 2)
    pause[rows, np.random.default_rng(3).integers(0, RANKS, len(rows))] = 80_000
    got = result(pause, gc_us=pause)
    assert got.verdict.kind is Kind.MOVING
    assert [h.id for h in got.explanation.hints] == ["gc"]
    assert got.explanation.hints[0].share_ratio == pytest.approx(1, abs=0.05)


def test_what_the_culprit_alone_does_not_report_is_left_out() -> None:
    extra = on_rank_3(20_000)
    seq, pauses = sequences(), np.full((STEPS, RANKS), 500.0)
    seq[:, 3] = pauses[:, 3] = np.nan
    # Eleven of twelve ranks report them, so that the columns count as measured.
    wide = [np.concatenate([v, v[:, 4:]], axis=1) for v in (extra, seq, pauses)]
    got = _wide(*wide)
    assert got.verdict.culprit == 3
    assert {p.phase for p in got.explanation.phases} == {"compute", HOST}
    assert [h.id for h in got.explanation.hints] == ["slow_compute"]
    assert not np.isnan(got.explanation.hints[0].share_ratio)


def _wide(extra: np.ndarray, seq: np.ndarray, pauses: np.ndarray) -> StragglerResult:
    work = 100_000.0 + extra
    comm = work.max(axis=1, keepdims=True) - work + 5000
    step, rank = np.indices(work.shape)
    columns = {
        "step": step,
        "rank": rank,
        "duration_us": work + comm,
        "comm_us": comm,
        "compute_us": work - 500,
        "gc_us": pauses,
        "seq_sq_sum": seq,
    }
    return analyse_stragglers(
        build_matrix({n: v.ravel() for n, v in columns.items()}, world_size=work.shape[1])
    )


def test_no_straggler_no_reason() -> None:
    got = result(np.zeros((STEPS, RANKS)))
    assert got.verdict.kind is Kind.NONE
    assert not got.explanation.hints
    assert got.explanation.reason == "there is no straggler to explain"


def test_more_than_all_of_an_excess_is_all_of_it() -> None:
    seq = sequences()
    seq[:, 3] *= 1.4
    extra = (seq - 900_000) / 20
    extra[:, 3] -= 4_000  # its device is quicker than the others: length explains over 100 %
    (text,) = [t for t in explain(extra, seq_sq_sum=seq).hints[0].evidence_for if "accounts" in t]
    assert text.endswith("which accounts for all of it")
