"""Timelines of single steps, and the trace that Perfetto opens."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.errors import NotFoundError
from steptax.app.whatif.analysis import Analysis, analyse, prepare
from steptax.app.whatif.api import analyse_file
from steptax.app.whatif.chrome import IDEAL_PID, ORIGINAL_PID, Written, write_chrome
from steptax.app.whatif.playback import (
    STREAMS,
    group_of,
    ideal,
    micro_batches,
    recorded,
    simulated,
    stream_of,
)

Shared = Callable[[str], Path]
REAL = ("trace-AR", "trace-ST", "A_pp4", "B_pp1_dp4", "D_vpp2_ovlp", "E_nodp")


def real(shared: Shared, name: str) -> Analysis:
    analysis = analyse_file(shared(f"ops/{name}.parquet")).analysis
    assert analysis is not None
    return analysis


def written(analysis: Analysis, **options: Any) -> tuple[Written, list[dict[str, Any]]]:
    target = io.BytesIO()
    done = write_chrome(target, analysis.model, **options)
    body = orjson.loads(target.getvalue())
    assert set(body) == {"displayTimeUnit", "otherData", "traceEvents"}
    return done, body["traceEvents"]


@pytest.mark.parametrize("name", REAL)
def test_a_step_played_is_the_step_simulated(shared: Shared, name: str) -> None:
    """Against the simulator of many scenarios, which keeps no single operations."""
    analysis = real(shared, name)
    model = analysis.model
    assert ideal(model).span_s == pytest.approx(analysis.ideal_span_s, rel=1e-12)
    for at in (0, len(model.trace.steps) - 1):
        play = simulated(model, model.work.own_s[:, at])
        assert play.span_s == pytest.approx(analysis.nodelay_s[at], rel=1e-12)
        measured = recorded(model, model.trace.steps[at])
        assert measured.span_s == pytest.approx(model.work.base_s[at], rel=1e-12)
        assert (measured.wait_s >= 0).all()
        assert (measured.wait_s <= measured.end_s - measured.start_s + 1e-12).all()


@pytest.mark.parametrize("name", REAL)
def test_micro_batches_are_those_recorded(shared: Shared, name: str) -> None:
    analysis = real(shared, name)
    trace = analysis.model.trace
    found = micro_batches(analysis.model)
    table = pq.read_table(shared(f"ops/{name}.parquet")).to_pylist()
    compared = 0
    for row in table:
        if row["step"] != trace.steps[0] or row["dp_rank"] != trace.dps[0]:
            continue
        if row["optype"] not in ("forward-compute", "backward-compute"):
            continue
        (op,) = np.flatnonzero(
            (trace.op_type == trace.types.index(row["optype"]))
            & (trace.op_stage == row["stage"])
            & (trace.op_seq == row["seq_id"])
        )
        assert found[op] == row["mb_id"], row
        compared += 1
    assert compared == sum(
        r.stop - r.start for n, r in trace.rows_of.items() if n.endswith("-compute")
    )


def test_a_transfer_has_the_micro_batch_of_its_pass(made_up: SimpleNamespace) -> None:
    model = prepare(made_up.trace(made_up.Job(dps=1, stages=3, micro=5)))
    found, trace = micro_batches(model), model.trace
    for kind in ("forward-send", "forward-recv", "backward-send", "backward-recv"):
        rows = trace.rows_of[kind]
        assert found[rows].tolist() == trace.op_seq[rows].tolist(), kind
    for kind in ("optimizer", "gc"):
        assert (found[trace.rows_of[kind]] == -1).all()


def test_waiting_is_told_from_moving(made_up: SimpleNamespace) -> None:
    """The gradients of the three fast ranks wait for the slow one's."""
    job = made_up.Job(dps=4, stages=1, slow={(2, 0): 2.0})
    model = prepare(made_up.trace(job))
    rows = model.trace.rows_of["grads-reduce-scatter"]
    waits = recorded(model, 10).wait_s[rows.start]
    np.testing.assert_allclose(waits, [0.12, 0.12, 0.0, 0.12], atol=1e-9)
    # In the ideal step nobody waits for anybody.
    np.testing.assert_allclose(ideal(model).wait_s[rows.start], 0.0, atol=1e-9)


def test_streams_and_groups(made_up: SimpleNamespace) -> None:
    model = prepare(made_up.trace(made_up.Job(dps=2, stages=2)))
    trace = model.trace
    streams = dict(zip(trace.types, stream_of(trace), strict=True))
    assert streams["forward-compute"] == streams["backward-compute"] == "compute"
    assert streams["grads-reduce-scatter"] == streams["params-all-gather"] == "data-parallel"
    assert streams["optimizer"] == "end of step"
    assert set(streams.values()) == set(STREAMS)
    groups = group_of(model)
    send, recv = trace.rows_of["forward-send"].start, trace.rows_of["forward-recv"].start
    assert groups[send] == groups[recv] >= 0
    assert groups[trace.rows_of["forward-compute"].start] == -1


@pytest.mark.parametrize("name", REAL)
def test_as_many_slices_as_operations(shared: Shared, name: str) -> None:
    analysis = real(shared, name)
    trace = analysis.model.trace
    done, events = written(analysis, steps=trace.steps[:2], job="x")
    slices = [e for e in events if e["ph"] == "X"]
    operations, _, dps = trace.shape
    assert len(slices) == done.slices == 2 * 2 * operations * dps
    for pid, total in ((ORIGINAL_PID, operations * dps), (IDEAL_PID, operations * dps)):
        for step in trace.steps[:2]:
            mine = [e for e in slices if e["pid"] == pid and e["args"]["step"] == step]
            assert len(mine) == total


@pytest.mark.parametrize("name", REAL)
def test_what_perfetto_needs(shared: Shared, name: str) -> None:
    """Threads and processes have names, nothing overlaps on a track, no time is negative."""
    analysis = real(shared, name)
    done, events = written(analysis, steps=analysis.model.trace.steps[:2])
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(names) == done.tracks == len(set(names))
    assert len(set(names.values())) * 2 >= len(names)
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {1: "original (as recorded)", 2: "ideal (simulated)"}
    tracks = defaultdict(list)
    for event in events:
        assert event["ph"] in "XM"
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert (event["pid"], event["tid"]) in names
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        for (_, end), (begin, _) in pairwise(spans):
            assert begin >= end - 1e-6


def test_times_are_microseconds_and_groups_meet(made_up: SimpleNamespace) -> None:
    job = made_up.Job(dps=2, stages=2, steps=2, slow={(0, 1): 1.5})
    analysis = analyse(prepare(made_up.trace(job)))
    _, events = written(analysis, steps=[13])
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == ORIGINAL_PID]
    span_us = max(e["ts"] + e["dur"] for e in slices)
    assert span_us == pytest.approx(analysis.model.work.base_s[1] * 1e6, abs=0.01)
    groups = defaultdict(list)
    for event in slices:
        if "group" in event["args"]:
            groups[event["args"]["group"]].append(event)
    sends = [g for g in groups.values() if any(e["name"] == "forward-send" for e in g)]
    for members in sends:
        assert sorted(e["name"] for e in members) == ["forward-recv", "forward-send"]
        assert len({e["args"]["dp"] for e in members}) == 1
        # Both ends of a transfer end together.
        ends = [e["ts"] + e["dur"] for e in members]
        assert max(ends) - min(ends) < 0.01
    clip = [g for g in groups.values() if g[0]["name"] == "optimizer-clip-main-grad"]
    assert [len(g) for g in clip] == [4]
    assert {e["args"]["rank"] for e in clip[0]} == {0, 1, 2, 3}


def test_only_what_was_recorded(made_up: SimpleNamespace) -> None:
    analysis = analyse(prepare(made_up.trace(made_up.Job(steps=3))))
    done, events = written(analysis, with_ideal=False)
    assert done.steps == 3
    assert {e["pid"] for e in events} == {ORIGINAL_PID}
    assert done.slices == analysis.model.trace.start_s.size
    with pytest.raises(NotFoundError, match="step 11 is not among the analysed ones"):
        written(analysis, steps=[11])


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), stages=st.integers(1, 3), dps=st.integers(1, 3))
def test_any_job_exports_all_its_operations(
    made_up: SimpleNamespace, seed: int, stages: int, dps: int
) -> None:
    job = made_up.Job(dps=dps, stages=stages, micro=4, steps=2, spread=0.5, seed=seed)
    analysis = analyse(prepare(made_up.trace(job)))
    done, events = written(analysis)
    assert done.slices == 2 * analysis.model.trace.start_s.size
    keys = {
        (e["pid"], e["args"]["step"], e["args"]["rank"], e["name"], e["args"]["seq"])
        for e in events
        if e["ph"] == "X"
    }
    assert len(keys) == done.slices
