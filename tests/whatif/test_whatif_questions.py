"""Questions whose answers are known in closed form, and what a result says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from scipy.special import stdtrit

from steptax.app.errors import NotFoundError, UserError
from steptax.app.whatif.analysis import Analysis, analyse, prepare
from steptax.app.whatif.api import analyse_file, analyse_trace
from steptax.app.whatif.balance import (
    balance_microbatches,
    move_layers,
    rebalance_sequences,
    rebalance_stages,
    sequence_signs,
    without_gc,
)
from steptax.app.whatif.interval import student_95
from steptax.app.whatif.questions import (
    Answer,
    faster,
    faster_device,
    faster_network,
    fix_ranks,
    fix_worst,
)
from steptax.app.whatif.report import build_result

Shared = Callable[[str], Path]
#: Four ranks, no pipeline, one at half speed; what one rank computes, and the rest of a step.
COMPUTE_S = 4 * (0.010 + 0.020)
NETWORK_S = 0.003 + 1e-4
REST_S = NETWORK_S + 1e-4 + 0.002


@pytest.fixture
def slow(made_up: SimpleNamespace) -> Analysis:
    job = made_up.Job(dps=4, stages=1, slow={(2, 0): 2.0})
    return analyse(prepare(made_up.trace(job)))


@pytest.fixture
def heavy(made_up: SimpleNamespace) -> Analysis:
    """The last of four stages computes twice as long."""
    job = made_up.Job(dps=2, stages=4, micro=8, slow={(d, 3): 2.0 for d in range(2)})
    return analyse(prepare(made_up.trace(job)))


def mean(answer: Answer) -> float:
    return float(answer.step_s.mean())


def test_fix_ranks(slow: Analysis) -> None:
    got = fix_ranks(slow, [2], Decimal("3.60"))
    saved = COMPUTE_S * 3 / 4
    assert mean(got) == pytest.approx(COMPUTE_S * 5 / 4 + REST_S)
    assert got.speedup.value == pytest.approx(
        (2 * COMPUTE_S + REST_S) / (1.25 * COMPUTE_S + REST_S)
    )
    assert got.recovered.s_per_step.value == pytest.approx(saved)
    assert got.recovered.gpu_hours.value == pytest.approx(saved * 3 * 4 / 3600)
    assert got.recovered.usd.value == pytest.approx(saved * 3 * 4 / 1000)
    per_day = saved / (2 * COMPUTE_S + REST_S) * 4 * 24
    assert got.recovered.gpu_hours_per_day.value == pytest.approx(per_day)
    assert got.recovered.usd_per_day.value == pytest.approx(per_day * 3.6)
    assert any("recorded ranks" in w for w in got.recovered.gpu_hours.warnings)
    with pytest.raises(NotFoundError, match="rank 9 is not in the trace") as refused:
        fix_ranks(slow, [9])
    assert refused.value.hint == "recorded are 0, 1, 2, 3, ..."


def test_fixing_a_healthy_rank_returns_nothing(slow: Analysis) -> None:
    got = fix_ranks(slow, [0])
    assert got.recovered.s_per_step.value == pytest.approx(0, abs=1e-12)
    assert got.recovered.usd.value is None
    assert got.recovered.usd.reason == "no price per GPU-hour is known"


def test_the_curve_of_the_worst(slow: Analysis) -> None:
    curve = fix_worst(slow, 9)
    assert len(curve) == 4
    assert mean(curve[0]) == pytest.approx(mean(fix_ranks(slow, [2])))
    # With everybody at the mean nothing is left to fix.
    assert mean(curve[3]) == pytest.approx(slow.ideal_span_s)


def test_removing_and_adding_bound_the_saving(shared: Shared) -> None:
    analysis = analyse_file(shared("ops/trace-ST.parquet")).analysis
    assert analysis is not None
    saved = fix_ranks(analysis, [7]).recovered.s_per_step
    effect = analysis.slowest_effect
    removed = float((analysis.nodelay_s - effect.removed_s).mean())
    added = float(effect.added_s.mean()) - analysis.ideal_span_s
    assert saved.value == pytest.approx(removed)
    assert saved.low is not None
    assert saved.high is not None
    assert saved.low <= min(removed, added) <= max(removed, added) <= saved.high


def test_faster_kernels(slow: Analysis) -> None:
    both = faster(slow, "*-compute", 2)
    assert mean(both) == pytest.approx(COMPUTE_S + REST_S)
    forward = faster(slow, "forward-compute", 2)
    assert mean(forward) == pytest.approx(2 * COMPUTE_S - 0.04 + REST_S)
    assert mean(faster(slow, "Forward_Compute", 1)) == pytest.approx(2 * COMPUTE_S + REST_S)
    with pytest.raises(UserError, match="no operation matches 'conv\\*'"):
        faster(slow, "conv*", 2)
    for factor in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="a factor must be positive"):
            faster(slow, "*-compute", factor)


def test_kernels_by_name(made_up: SimpleNamespace) -> None:
    table = made_up.file_table(made_up.rows_of(made_up.Job(dps=2, stages=1)))
    names = ["flash_fwd" if t == "forward-compute" else "" for t in table["optype"].to_pylist()]
    trace = made_up.trace_of(table.append_column("name", pa.array(names)))
    analysis = analyse(prepare(trace))
    assert mean(faster(analysis, "*flash*", 2)) == pytest.approx(
        mean(faster(analysis, "forward-compute", 2))
    )


def test_faster_network(slow: Analysis) -> None:
    assert mean(faster_network(slow, 2)) == pytest.approx(2 * COMPUTE_S + REST_S - NETWORK_S / 2)


def test_faster_devices(slow: Analysis) -> None:
    assert mean(faster_device(slow, 2.0)) == pytest.approx(COMPUTE_S + REST_S - 0.001, rel=1e-12)
    assert mean(faster_device(slow, {2: 2.0})) == pytest.approx(COMPUTE_S + REST_S)
    slower = faster_device(slow, {0: 0.25})
    assert mean(slower) == pytest.approx(4 * COMPUTE_S + REST_S + 0.006)
    assert slower.recovered.s_per_step.value is not None
    assert slower.recovered.s_per_step.value < 0


def test_equal_stages(heavy: Analysis) -> None:
    got = rebalance_stages(heavy)
    assert mean(got) < heavy.nodelay_s.mean()
    # All work is exact here, so equal stages are the ideal run.
    assert mean(got) == pytest.approx(heavy.ideal_span_s)


def test_moving_layers(heavy: Analysis) -> None:
    same = move_layers(heavy, [4, 4, 4, 4], [4, 4, 4, 4])
    assert mean(same) == pytest.approx(heavy.nodelay_s.mean())
    lighter = move_layers(heavy, [4, 4, 4, 4], [5, 5, 4, 2])
    assert mean(lighter) < mean(same)
    assert mean(move_layers(heavy, [4, 4, 4, 4], [3, 3, 4, 6])) > mean(same)
    for layers, moved in (([4, 4], [4, 4]), ([4] * 4, [4, 4, 4, 5]), ([16, 0, 0, 0], [4] * 4)):
        with pytest.raises(UserError, match="layer"):
            move_layers(heavy, layers, moved)


def test_pauses_of_the_collector(made_up: SimpleNamespace) -> None:
    """One long forward pass on one rank and step, its backward pass as ever."""
    calm = made_up.Job(dps=4, stages=2, steps=2)
    held = made_up.Job(dps=4, stages=2, steps=2, pauses={(1, 2, 0, 3): 0.3})
    analysis = analyse(prepare(made_up.trace(held)))
    healthy = analyse(prepare(made_up.trace(calm)))
    assert analysis.nodelay_s[1] > healthy.nodelay_s[1] + 0.2
    recorded, inside = without_gc(analysis)
    assert mean(recorded) == pytest.approx(analysis.nodelay_s.mean())
    assert mean(inside) == pytest.approx(healthy.nodelay_s.mean(), rel=1e-6)


def test_a_slow_rank_is_not_taken_for_pauses(slow: Analysis) -> None:
    recorded, inside = without_gc(slow)
    assert mean(inside) == pytest.approx(slow.nodelay_s.mean())
    assert mean(recorded) == pytest.approx(slow.nodelay_s.mean())


@pytest.fixture
def uneven(made_up: SimpleNamespace) -> tuple[Analysis, Any]:
    """Micro-batches that take a + b q, forward and backward, with their q [M, S, D]."""
    job = made_up.Job(dps=3, stages=1, micro=6, steps=4)
    trace = made_up.trace(job)
    squares = np.random.default_rng(5).exponential(1.0, (6, 4, 3))
    duration, start = trace.duration_s.copy(), trace.start_s.copy()
    for name, base in (("forward-compute", 0.010), ("backward-compute", 0.020)):
        duration[trace.rows_of[name]] = base * (1 + squares)
    model = prepare(replace(trace, duration_s=duration, start_s=start))
    return analyse(model), squares


def test_sequences_dealt_evenly(uneven: tuple[Analysis, Any]) -> None:
    analysis, squares = uneven
    dealt = rebalance_sequences(analysis, squares)
    even = balance_microbatches(analysis)
    rest = analysis.nodelay_s - 0.03 * (6 + squares.sum(axis=0).max(axis=1))
    expected = 0.03 * (6 + 6 * squares.mean(axis=(0, 2))) + rest
    np.testing.assert_allclose(dealt.step_s, expected, rtol=1e-9)
    assert "100 % of the spread" in dealt.question
    assert mean(even) < analysis.nodelay_s.mean()
    (signs,) = sequence_signs(analysis.model.trace)
    assert signs.correlation == pytest.approx(1)
    assert signs.variation_ratio > 0.2


def test_lengths_that_explain_nothing_are_refused(slow: Analysis, uneven: Any) -> None:
    analysis, squares = uneven
    with pytest.raises(UserError, match="expected squared lengths of shape"):
        rebalance_sequences(analysis, squares[:3])
    with pytest.raises(UserError, match="do not vary"):
        rebalance_sequences(analysis, np.ones_like(squares))
    with pytest.raises(UserError, match="squared lengths explain"):
        rebalance_sequences(analysis, squares[::-1].copy())


def test_dealing_does_not_mend_a_slow_rank(slow: Analysis) -> None:
    assert mean(balance_microbatches(slow)) == pytest.approx(slow.nodelay_s.mean())
    (signs,) = sequence_signs(slow.model.trace)
    assert signs.correlation is None
    assert signs.variation_ratio == pytest.approx(0, abs=1e-9)


def test_a_real_job_of_both_kinds(shared: Shared) -> None:
    meta = yaml.safe_load(shared("ops/meta-AR.yaml").read_text())
    result = analyse_file(shared("ops/trace-AR.parquet"), sizes=meta, price=Decimal("2.50"))
    assert result.reliable
    assert result.slowest_ranks == (0,)
    assert result.S.low is not None
    assert result.S.high is not None
    assert result.S.value is not None
    assert result.S.low < result.S.value < result.S.high
    assert result.waste.value == pytest.approx(0.493169, abs=1e-6)
    assert result.sim_error.value == pytest.approx(0.0067055, abs=1e-6)
    assert result.replay_error.value == 0
    assert result.M_W.value == pytest.approx(1.00170, abs=1e-5)
    assert (result.M_W.low, result.M_W.high) == pytest.approx((1.00170, 1.00631), abs=1e-5)
    assert result.M_S.value == pytest.approx(-0.00121196, abs=1e-6)
    # 22.85 s of each of 44 steps on 64 devices at $2.50.
    assert result.recovered.usd.value == pytest.approx(22.851672 * 44 * 64 / 3600 * 2.5, rel=1e-6)
    assert not result.warnings()[1:]
    assert result.S_by_worker[0].rank == 0
    assert len(result.S_by_worker) == 16
    cheaper = build_result(result.analysis) if result.analysis else None
    assert cheaper is not None
    assert cheaper.recovered.usd.value is None


def test_a_result_prints_published_and_own_names(shared: Shared) -> None:
    result = analyse_file(shared("ops/trace-ST.parquet"))
    printed = result.as_json()
    assert printed["blocking_slowdown"] == result.S.value
    assert printed["S"]["value"] == result.S.value
    assert next(iter(printed["S_by_optype"])) == "forward-compute"
    assert printed["S_by_stage"]["3"]["value"] == pytest.approx(1.232256, abs=1e-6)
    assert printed["step_times"]["original"].keys() == printed["step_t_base"].keys()
    assert printed["step_times"]["original"] == printed["step_t_nodelay"]
    assert printed["step_times"]["measured"] == printed["step_t_base"]
    assert printed["recovered_usd"]["reason"] == "no price per GPU-hour is known"
    own = result.as_json(published=False)
    assert "blocking_slowdown" not in own
    assert own["launch_slowdown"]["value"] == pytest.approx(1.01922, abs=1e-5)


def test_a_healthy_job_has_nothing_to_take_apart(made_up: SimpleNamespace) -> None:
    result = analyse_trace(made_up.trace(made_up.Job(dps=2, stages=2)))
    assert result.S.value == pytest.approx(1)
    for share in (result.M_W, result.M_S):
        assert share.value is None
        assert "nothing to take apart" in (share.reason or "")


def test_without_pipeline_there_is_no_last_stage(made_up: SimpleNamespace) -> None:
    result = analyse_trace(made_up.trace(made_up.Job(dps=4, stages=1, slow={(1, 0): 2.0})))
    assert result.M_S.value is None
    assert result.M_S.reason == "the job has one pipeline stage"
    assert result.M_W.value == pytest.approx(1)


def test_a_model_that_does_not_fit_gives_no_verdict(shared: Shared) -> None:
    """Generated timing that no pipeline could have: the number is there, and the doubt with it."""
    result = analyse_file(shared("ops/D_vpp2_ovlp.parquet"), threshold=0.5)
    assert not result.reliable
    said = " ".join(result.warnings())
    assert "simulated and measured steps differ by" in said
    assert "the model fed with its own measurements is off by" in said
    assert "transfers end before all have started" in said


@pytest.mark.parametrize("freedom", [*range(1, 40), 100, 1000])
def test_quantiles_of_student(freedom: int) -> None:
    assert student_95(freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), rel=2e-6)


def test_one_step_says_that_it_is_one(made_up: SimpleNamespace) -> None:
    result = analyse_trace(made_up.trace(made_up.Job(steps=1, spread=0.5)))
    assert any(w.startswith("one step only") for w in result.S.warnings)
    assert result.S.low == pytest.approx(result.S.value)


def test_more_ranks_than_delays_can_be_told_apart(
    made_up: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptax.app.whatif.launch.MOST_DP", 2)
    analysis = analyse(prepare(made_up.trace(made_up.Job(dps=3))), threshold=0.5)
    assert analysis.launch is not None
    assert analysis.launch.by_dp_s is None
    assert analysis.launch_reason == (
        "delays are told apart for at most 2 data-parallel ranks, here 3"
    )


def test_findings_and_workers_are_plain_values(made_up: SimpleNamespace) -> None:
    rows = made_up.rows_of(made_up.Job(steps=3))
    trace = made_up.trace_of(made_up.file_table(rows[1:]))
    printed = json.loads(json.dumps(analyse_trace(trace).as_json()))
    assert printed["findings"]["dropped_steps"] == 1
    assert printed["findings"]["dropped"][0]["where"].startswith("step 10, rank 0, ")
    assert printed["S_by_worker"][0].keys() == {"rank", "dp", "stage", "slowdown"}
