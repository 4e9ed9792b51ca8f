"""Traces with something wrong: named, left out, refused, never a silently wrong number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError, NotFoundError
from steptax.app.whatif.analysis import analyse, prepare
from steptax.app.whatif.api import analyse_trace
from steptax.app.whatif.clocks import clock_offsets
from steptax.app.whatif.estimate import per_rank_estimate
from steptax.app.whatif.graph import build_graph
from steptax.app.whatif.trace import JobSizes, read_trace

Rows = list[Any]
DP, STAGE, RANK, STEP, TYPE, START, TOOK, SEQ, CHUNK, WHOLE = range(10)


@pytest.fixture
def rows(made_up: SimpleNamespace) -> Rows:
    """Five steps of two data-parallel ranks on two stages; steps are 10, 13, 16, 19, 22."""
    return made_up.rows_of(made_up.Job(steps=5, spread=0.3))


@pytest.fixture
def trace(made_up: SimpleNamespace) -> Callable[[Rows], Any]:
    return lambda rows: made_up.trace_of(made_up.file_table(rows))


def pick(rows: Rows, **wanted: Any) -> list[int]:
    """Positions of rows by coordinate."""
    keys = {"dp": DP, "stage": STAGE, "step": STEP, "kind": TYPE, "seq": SEQ, "rank": RANK}
    return [i for i, r in enumerate(rows) if all(r[keys[k]] == v for k, v in wanted.items())]


def without(rows: Rows, gone: list[int]) -> Rows:
    lost = set(gone)
    assert lost
    return [r for i, r in enumerate(rows) if i not in lost]


def changed(rows: Rows, at: list[int], **values: Any) -> Rows:
    keys = {"took": TOOK, "start": START, "kind": TYPE, "dp": DP, "rank": RANK, "stage": STAGE}
    assert at
    out = list(rows)
    for i in at:
        row = list(out[i])
        for name, value in values.items():
            row[keys[name]] = value(row[keys[name]]) if callable(value) else value
        out[i] = tuple(row)
    return out


def slowdown(trace: Any) -> float:
    return analyse(prepare(trace)).slowdown


def test_a_missing_operation_drops_its_step_and_is_named(rows: Rows, trace: Any) -> None:
    gone = pick(rows, dp=1, stage=0, step=16, kind="forward-compute", seq=2)
    got = trace(without(rows, gone))
    assert got.steps == (10, 13, 19, 22)
    (drop,) = got.findings.dropped
    assert (drop.step, drop.rank, drop.operation) == (16, 1, "forward-compute 2 of stage 0")
    assert drop.reason == "operation missing"
    whole = [r for r in rows if r[STEP] != 16]
    assert slowdown(got) == slowdown(trace(whole))
    assert "1 of 5 steps left out, first: step 16, rank 1" in got.findings.spoken()[0]


def test_a_repeated_operation_with_other_times_drops_its_step(rows: Rows, trace: Any) -> None:
    (at,) = pick(rows, dp=0, stage=1, step=13, kind="backward-compute", seq=0)
    again = changed(rows, [at], took=lambda t: 2 * t)[at]
    got = trace([*rows, again])
    (drop,) = got.findings.dropped
    assert (drop.step, drop.rank) == (13, 2)
    assert drop.reason == "operation recorded 2 times, with different times"


def test_an_exact_copy_counts_once(rows: Rows, trace: Any) -> None:
    got = trace([*rows, rows[7], rows[7], rows[11]])
    assert got.steps == (10, 13, 16, 19, 22)
    assert "3 operations recorded twice with the same times" in got.findings.warnings[0]
    assert slowdown(got) == slowdown(trace(rows))


def test_a_recording_that_ends_early_loses_its_last_step(rows: Rows, trace: Any) -> None:
    last = pick(rows, step=22)
    cut = [i for i in last if rows[i][START] > 0.08]
    got = trace(without(rows, cut))
    assert got.steps == (10, 13, 16, 19)
    (drop,) = got.findings.dropped
    assert drop.reason.startswith("the recording ends early: operation missing (")


def test_fewer_micro_batches_in_a_step(made_up: SimpleNamespace, trace: Any) -> None:
    ramp = [r for r in made_up.rows_of(made_up.Job(micro=2, steps=1)) if r[STEP] == 10]
    rest = [r for r in made_up.rows_of(made_up.Job(micro=4, steps=4)) if r[STEP] > 10]
    got = trace(ramp + rest)
    assert got.steps == (13, 16, 19)
    assert got.findings.dropped[0].step == 10
    assert slowdown(got) == slowdown(trace(rest))


def test_a_rank_that_recorded_nothing_in_a_step(rows: Rows, trace: Any) -> None:
    got = trace(without(rows, pick(rows, rank=3, step=19)))
    (drop,) = got.findings.dropped
    assert (drop.step, drop.rank, drop.operation) == (19, 3, None)
    assert drop.reason.startswith("this rank recorded nothing")


def test_a_rank_that_never_recorded_costs_its_data_parallel_rank(
    made_up: SimpleNamespace, trace: Any
) -> None:
    rows = made_up.rows_of(made_up.Job(dps=3, steps=4, spread=0.3))
    got = trace(without(rows, pick(rows, dp=1, stage=1)))
    assert got.dps == (0, 2)
    assert got.findings.left_out_dp == (1,)
    assert not got.findings.dropped
    assert any("data-parallel rank 1 is faulty in most steps" in w for w in got.findings.warnings)
    assert set(analyse(prepare(got)).by_type_s) == set(analyse(prepare(trace(rows))).by_type_s)


@pytest.mark.parametrize(("scale", "unit"), [(1.0, "s"), (1e6, "us")])
def test_a_duration_beyond_a_day_drops_its_step(
    rows: Rows, made_up: SimpleNamespace, tmp_path: Path, scale: float, unit: str
) -> None:
    at = pick(rows, dp=1, stage=1, step=13, kind="backward-compute", seq=1)
    odd = changed(rows, at, took=1e18)
    every = list(range(len(odd)))
    odd = changed(odd, every, took=lambda t: t * scale, start=lambda t: t * scale)
    path = tmp_path / "ops.parquet"
    pq.write_table(made_up.file_table(odd), path)
    got = read_trace(path, unit=unit)
    (drop,) = got.findings.dropped
    assert drop.where == "step 13, rank 3, backward-compute 1 of stage 1"
    assert drop.reason == "duration 1e+18 s"
    assert slowdown(got) == pytest.approx(
        slowdown(made_up.trace_of(made_up.file_table([r for r in rows if r[STEP] != 13])))
    )


def test_gradients_that_are_not_recorded_are_said(rows: Rows, trace: Any) -> None:
    gone = pick(rows, kind="grads-reduce-scatter")
    said = "not recorded, hence not modelled: grads-reduce-scatter"
    assert said in trace(without(rows, gone)).findings.warnings
    assert said not in trace(rows).findings.warnings
    alone = [r for r in without(rows, gone) if r[DP] == 0]
    assert said not in trace(alone).findings.warnings


def test_virtual_stages_that_the_trace_lacks_are_said(
    rows: Rows, made_up: SimpleNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "ops.parquet"
    pq.write_table(made_up.file_table(rows), path)
    two, one = (" ".join(read_trace(path, JobSizes(vpp=n)).findings.warnings) for n in (2, 1))
    assert "the job has 2 virtual stages on each pipeline stage, the trace 1" in two
    assert "virtual" not in one


def test_ranks_count_from_zero(rows: Rows, trace: Any) -> None:
    with pytest.raises(InputError, match="rank -1 is recorded"):
        trace(changed(rows, pick(rows, rank=1), rank=-1))


def test_an_estimate_says_when_it_is_too_high(made_up: SimpleNamespace, trace: Any) -> None:
    """As few micro-batches as stages: their bubble hides what the estimate counts as waiting."""
    job = made_up.Job(stages=4, micro=4, steps=3, slow={(0, 1): 2.0})
    rows = made_up.rows_of(job)
    estimate = per_rank_estimate(trace(rows))
    assert estimate.value is not None
    assert estimate.value > 1.2 * slowdown(trace(rows))
    assert "too high with few micro-batches" in estimate.warnings[0]


@pytest.mark.parametrize("value", [-0.001, float("nan"), float("inf")])
def test_a_duration_that_cannot_be(rows: Rows, trace: Any, value: float) -> None:
    at = pick(rows, dp=1, stage=1, step=13, kind="backward-compute", seq=1)
    got = trace(changed(rows, at, took=value))
    (drop,) = got.findings.dropped
    assert drop.where == "step 13, rank 3, backward-compute 1 of stage 1"
    assert drop.reason == f"duration {value}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_start_that_is_no_number(rows: Rows, trace: Any, value: float) -> None:
    got = trace(changed(rows, [5], start=value))
    assert got.steps == (13, 16, 19, 22)
    assert np.isfinite(got.start_s).all()
    assert got.findings.dropped[0].reason == "start is no number"


def test_no_step_is_left(rows: Rows, trace: Any) -> None:
    with pytest.raises(InputError, match="no usable step: duration -1") as refused:
        trace([(*r[:TOOK], -1.0, *r[TOOK + 1 :]) for r in rows])
    assert refused.value.where is not None
    assert refused.value.where.startswith("step 10, rank ")
    odd = pick(rows, dp=0, stage=0, kind="optimizer") + pick(rows, dp=1, stage=0, kind="gc")
    with pytest.raises(InputError, match="no complete step among 5"):
        trace(without(rows, odd))


def test_unknown_types(rows: Rows, trace: Any, made_up: SimpleNamespace) -> None:
    extra = []
    for step in (10, 13, 16, 19, 22):
        for i in pick(rows, step=step, kind="forward-compute", seq=3):
            r = rows[i]
            # Right after the last forward pass, before what follows it.
            extra.append((*r[:TYPE], "tp-allreduce", r[START] + r[TOOK], 1e-6, 0, *r[CHUNK:]))
    with pytest.raises(InputError, match="unknown operation types: tp-allreduce") as refused:
        trace(rows + extra)
    assert refused.value.where is not None
    assert refused.value.where.startswith("step 10, rank ")
    table = made_up.file_table(rows + extra)
    got = made_up.trace_of(table, in_stream=["TP_AllReduce"])
    assert any("taken as computing" in w and "tp-allreduce" in w for w in got.findings.warnings)
    analysis = analyse(prepare(got))
    assert "tp-allreduce" in analysis.by_type_s
    assert analysis.slowdown == pytest.approx(slowdown(trace(rows)), rel=1e-3)


def test_the_stream_of_an_unknown_type_decides(made_up: SimpleNamespace, rows: Rows) -> None:
    extra = [
        (*r[:TYPE], "fused-loss", r[START] + r[TOOK], 1e-6, 0, *r[CHUNK:])
        for r in rows
        if r[TYPE] == "forward-compute" and r[SEQ] == 3
    ]
    table = made_up.file_table(rows + extra)
    streams = ["7" if "compute" in k or k == "fused-loss" else "13" for k in _types(table)]
    got = made_up.trace_of(table.append_column("stream", pa.array(streams)))
    assert got.in_stream == frozenset({"fused-loss"})
    elsewhere = [
        "13" if k == "fused-loss" else s for k, s in zip(_types(table), streams, strict=True)
    ]
    with pytest.raises(InputError, match="unknown operation types: fused-loss"):
        made_up.trace_of(table.append_column("stream", pa.array(elsewhere)))


def _types(table: pa.Table) -> list[str]:
    return [str(k) for k in table["optype"].to_pylist()]


@pytest.mark.parametrize("gone", ["forward", "backward"])
def test_one_direction_only_is_refused(rows: Rows, trace: Any, gone: str) -> None:
    with pytest.raises(InputError, match=f"no {gone}-compute recorded"):
        trace([r for r in rows if not r[TYPE].startswith(gone)])


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e9])
def test_another_unit_is_refused(rows: Rows, trace: Any, scale: float) -> None:
    wrong = [(*r[:START], r[START] * scale, r[TOOK] * scale, *r[TOOK + 1 :]) for r in rows]
    with pytest.raises(InputError, match="a forward pass takes") as refused:
        trace(wrong)
    assert "unit" in (refused.value.hint or "")


def test_too_short_a_step_is_doubted(rows: Rows, trace: Any) -> None:
    got = trace([(*r[:START], r[START] / 1e3, r[TOOK] / 1e3, *r[TOOK + 1 :]) for r in rows])
    assert "check the unit" in got.findings.warnings[0]


def test_since_1970_in_32_bits_is_refused(made_up: SimpleNamespace, rows: Rows) -> None:
    table = made_up.file_table([(*r[:START], r[START] + 1.7e9, *r[TOOK:]) for r in rows])
    at = table.column_names.index("start_ts")
    coarse = table.set_column(at, "start_ts", table["start_ts"].cast(pa.float32()))
    with pytest.raises(InputError, match=r"stored in steps of 128 s"):
        made_up.trace_of(coarse)
    fine = made_up.trace_of(table)
    assert slowdown(fine) == pytest.approx(
        slowdown(made_up.trace_of(made_up.file_table(rows))), rel=1e-5
    )


def test_a_send_without_receive_leaves_the_estimate(rows: Rows, trace: Any) -> None:
    lost = trace(without(rows, pick(rows, stage=1, kind="forward-recv")))
    result = analyse_trace(lost)
    assert result.S.value is None
    assert result.S.reason is not None
    assert "forward-send 0 of stage 0 has no forward-recv on stage 1: 4 sent, 0 received" in (
        result.S.reason
    )
    assert result.S.reason.startswith("no dependency graph: step 10, rank 0: ")
    assert result.estimate.value is not None
    assert result.estimate.value > 1
    assert "no dependency graph" in result.estimate.warnings[0]
    assert not result.reliable
    printed = result.as_json()
    assert printed["S"]["value"] is None
    assert printed["recovered_usd"]["reason"] == result.S.reason
    assert "blocking_slowdown" not in printed


def test_a_missing_transfer_in_the_middle_is_named(made_up: SimpleNamespace, trace: Any) -> None:
    rows = made_up.rows_of(made_up.Job(stages=3))
    lost = trace(without(rows, pick(rows, stage=1, kind="forward-recv", seq=3)))
    reason = analyse_trace(lost).S.reason
    assert reason is not None
    assert "3 forward-recv belong to the 4 forward-compute of stage 1, expected 4" in reason


def test_an_odd_first_lane_does_not_decide(rows: Rows, trace: Any) -> None:
    """One lane whose receive starts after everything: the graph comes from another."""
    at = pick(rows, dp=0, stage=1, step=10, kind="forward-recv", seq=3)
    odd = trace(changed(rows, at, start=lambda t: t + 0.5))
    model = prepare(odd)
    assert model.graph.lane != (0, 0)
    assert any("the dependencies are those of step" in w for w in model.trace.findings.warnings)
    clean = prepare(trace(rows))
    assert model.graph.preds == clean.graph.preds
    assert model.graph.groups == clean.graph.groups


def test_lanes_in_another_order_are_counted(rows: Rows, trace: Any) -> None:
    got = trace(rows)
    start = got.start_s.copy()
    ops = got.rows_of["forward-compute"]
    one, two = ops.start, ops.start + 1
    start[[one, two], 4, 1] = start[[two, one], 4, 1]
    model = prepare(replace(got, start_s=start))
    assert any(
        "10 % of the lanes compute in another order" in w for w in model.trace.findings.warnings
    )


def test_the_order_of_ranks_does_not_matter(rows: Rows, trace: Any) -> None:
    """On one stage ranks fall with the data-parallel rank, on the other they rise."""
    crossed = [
        (*r[:RANK], {(0, 0): 1, (1, 0): 0, (0, 1): 2, (1, 1): 3}[r[DP], r[STAGE]], *r[STEP:])
        for r in rows
    ]
    got = trace(crossed)
    assert got.ranks.tolist() == [[1, 2], [0, 3]]
    assert slowdown(got) == slowdown(trace(rows))


def test_data_parallel_ranks_need_not_start_at_zero(rows: Rows, trace: Any) -> None:
    got = trace([(r[DP] * 4 + 1, *r[STAGE:]) for r in rows])
    assert got.dps == (1, 5)
    assert slowdown(got) == slowdown(trace(rows))


def test_a_stage_that_is_not_there_is_refused(rows: Rows, trace: Any) -> None:
    with pytest.raises(InputError, match="pipeline stage 0 is not recorded, stage 2 is"):
        trace([(r[DP], r[STAGE] + 1, *r[RANK:]) for r in rows])


def test_a_rank_at_two_places_is_refused(rows: Rows, trace: Any) -> None:
    moved = changed(rows, pick(rows, rank=1), rank=2)
    with pytest.raises(InputError, match="recorded at two places") as refused:
        trace(moved)
    assert "rank 2" in (refused.value.where or "")


def test_tensor_parallel_ranks_stand_for_each_other(rows: Rows, trace: Any) -> None:
    twins = [(*r[:RANK], 2 * r[RANK] + t, *r[STEP:]) for r in rows for t in (0, 1)]
    got = trace(twins)
    assert got.ranks.ravel().tolist() == [0, 4, 2, 6]
    assert "8 ranks recorded at 4 places" in got.findings.warnings[0]
    assert slowdown(got) == slowdown(trace(rows))


def test_a_huge_sequence_number_is_refused(rows: Rows, trace: Any) -> None:
    row = rows[0]
    with pytest.raises(InputError, match="sequence number 2000000 of params-all-gather") as refused:
        trace([*rows, (*row[:SEQ], 2_000_000, *row[CHUNK:])])
    assert refused.value.where == "step 10, rank 0"


def test_sizes_that_disagree_with_the_trace_are_said(
    made_up: SimpleNamespace, rows: Rows, tmp_path: Any
) -> None:
    path = tmp_path / "x.parquet"
    pa.parquet.write_table(made_up.file_table(rows), path)
    got = read_trace(path, JobSizes(dp=3, pp=4, tp=1, dsp=1, world=12))
    assert any("the job has 4 pipeline stages, the trace 2" in w for w in got.findings.warnings)
    assert any("trace 2; not there: 2" in w for w in got.findings.warnings)


@pytest.mark.parametrize(
    "sizes", [{"dp_size": 0}, {"dp_size": "two"}, {"dp_size": True}, {"world_size": -8}]
)
def test_sizes_must_be_positive_whole_numbers(sizes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="positive whole number"):
        JobSizes.from_mapping(sizes)


def test_world_size_is_the_product() -> None:
    with pytest.raises(InputError, match="world size 9 is not dp x pp x tp x dsp = 8"):
        JobSizes(dp=2, pp=2, tp=2, dsp=1, world=9)


def test_a_clock_that_is_off_is_measured_and_aligned(made_up: SimpleNamespace) -> None:
    job = made_up.Job(dps=4, stages=3, steps=4, spread=0.2)
    clean = made_up.trace(job)
    start = clean.start_s.copy()
    start[clean.op_stage == 1, :, 2] += 0.035
    off = replace(clean, start_s=start - start.min(axis=(0, 2), keepdims=True))
    graph = build_graph(clean)
    offset = clock_offsets(off, graph)
    assert offset[2, 1] == pytest.approx(0.035, abs=1e-4)
    assert np.abs(np.delete(offset.ravel(), 2 * 3 + 1)).max() < 1e-4
    rank = clean.ranks[2, 1]
    warned = prepare(off).trace.findings.warnings
    assert any(f"rank {rank} by +35 ms" in w for w in warned)
    right = analyse(prepare(clean))
    mended = analyse(prepare(off, align_clocks=True))
    assert mended.nodelay_s == pytest.approx(right.nodelay_s, rel=1e-3)
    assert mended.slowdown == pytest.approx(right.slowdown, rel=1e-3)
    assert any(w.endswith(": aligned") for w in mended.model.trace.findings.warnings)


def test_agreeing_clocks_are_not_doubted(made_up: SimpleNamespace) -> None:
    model = prepare(made_up.trace(made_up.Job(dps=4, stages=3, spread=0.5)))
    assert model.trace.findings.warnings == ()


def test_a_step_that_was_not_recorded_cannot_be_chosen(rows: Rows, trace: Any) -> None:
    with pytest.raises(InputError, match="no usable step 11") as refused:
        prepare(trace(rows), steps=[10, 11])
    assert refused.value.hint == "usable are 10, 13, 16, 19, 22"
    with pytest.raises(InputError, match="no step chosen"):
        prepare(trace(rows), steps=[])


def test_files_that_are_no_trace(tmp_path: Any) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read_trace(tmp_path / "none.parquet")
    text = tmp_path / "text.parquet"
    text.write_text("not parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_trace(text)
    other = tmp_path / "other.parquet"
    pa.parquet.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(InputError, match="no column dp_rank, stage, rank, step, optype"):
        read_trace(other)
