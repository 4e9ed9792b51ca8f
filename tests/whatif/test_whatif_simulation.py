"""The stacked simulator against a plain one, and against jobs that are known by construction."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.whatif.analysis import Model, analyse, effect_of, prepare
from steptax.app.whatif.arrays import distinct, median
from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.graph import Graph, Group
from steptax.app.whatif.launch import launch_times, replay
from steptax.app.whatif.optypes import FIRST_OP, reported
from steptax.app.whatif.program import compile_program
from steptax.app.whatif.scenarios import given as given_works
from steptax.app.whatif.simulate import Choice, Stack, make_watch, simulate
from steptax.app.whatif.trace import Floats, Trace
from steptax.app.whatif.work import Delays, measure_work

SLOW = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plainly(
    trace: Trace, graph: Graph, work: Floats, delay: Floats | None = None
) -> tuple[Floats, Floats]:
    """Finish and span of every step, one operation at a time; nothing shared with the product."""
    operations, steps, dps = trace.shape
    groups = list(graph.groups)
    inside = {op for g in groups for op in g.members}
    groups += [Group((op,), False) for op in range(operations) if op not in inside]
    finish, span = np.empty(steps), np.empty(steps)
    for s in range(steps):
        start: dict[tuple[int, int], float] = {}
        end: dict[tuple[int, int], float] = {}
        todo = [(g, None) for g in groups if g.synced] + [
            (g, d) for g in groups if not g.synced for d in range(dps)
        ]
        while todo:
            left = []
            for group, only in todo:
                lanes = range(dps) if only is None else [only]
                pairs = list(product(group.members, lanes))
                if any((p, d) not in end for op, d in pairs for p in graph.preds[op]):
                    left.append((group, only))
                    continue
                for op, d in pairs:
                    ready = [end[p, d] for p in graph.preds[op]]
                    late = 0.0 if delay is None else float(delay[op, s, d])
                    start[op, d] = (max(ready) if ready else 0.0) + late
                meet = max(start[pair] for pair in pairs)
                for op, d in pairs:
                    end[op, d] = meet + float(work[op, s, d])
            assert len(left) < len(todo), "stuck"
            todo = left
        finish[s] = max(end[op, d] for op in graph.finish for d in range(dps))
        span[s] = max(end.values()) - min(start.values())
    return finish, span


def ideal_everywhere(model: Model) -> Floats:
    return np.broadcast_to(model.work.ideal_s[:, None, None], model.trace.shape).copy()


def noisy(model: Model, seed: int, negative: float) -> Model:
    """The same graph with random work, a share of it negative as small transfers are."""
    rng = np.random.default_rng(seed)
    own = rng.exponential(0.01, model.trace.shape)
    own[rng.random(own.shape) < negative] *= -1
    ideal = rng.exponential(0.01, len(own))
    ideal[rng.random(len(ideal)) < negative] *= -1
    return replace(
        model,
        work=replace(model.work, own_s=own, ideal_s=ideal),
        plan=make_watch(model.program, (own, ideal)),
    )


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 1000))


@given(shape=SHAPES, negative=st.sampled_from([0.0, 0.02, 0.5]))
@SLOW
def test_every_scenario_as_a_plain_simulation_has_it(
    made_up: SimpleNamespace, shape: tuple[int, int, int, int], negative: float
) -> None:
    dps, stages, micro, seed = shape
    job = made_up.Job(dps=dps, stages=stages, micro=micro, steps=2, spread=0.7, seed=seed)
    model = noisy(prepare(made_up.trace(job)), seed, negative)
    trace, graph = model.trace, model.graph
    own, ideal = model.work.own_s, ideal_everywhere(model)
    analysis = analyse(model, threshold=1e9)

    def check(got: Any, work: Floats, *, finish: bool) -> None:
        expected = plainly(trace, graph, work)[0 if finish else 1]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)

    check(analysis.nodelay_finish_s, own, finish=True)
    check(analysis.nodelay_s, own, finish=False)
    check(np.full(2, analysis.ideal_finish_s), ideal, finish=True)
    check(np.full(2, analysis.ideal_span_s), ideal, finish=False)
    for d in range(dps):
        keep = np.where(np.arange(dps) == d, own, ideal)
        check(analysis.by_dp_s[:, d], keep, finish=True)
    for p in range(stages):
        keep = np.where((trace.op_stage == p)[:, None, None], own, ideal)
        check(analysis.by_stage_s[:, p], keep, finish=True)
    names = np.array([reported(trace.types[t]) for t in trace.op_type])
    assert set(analysis.by_type_s) == set(names)
    for name, times in analysis.by_type_s.items():
        check(times, np.where((names == name)[:, None, None], own, ideal), finish=True)
    last = (trace.op_stage == stages - 1)[:, None, None]
    if analysis.last_stage is None:
        assert stages == 1
    else:
        check(analysis.last_stage.removed_s, np.where(last, ideal, own), finish=False)
        check(analysis.last_stage.added_s, np.where(last, own, ideal), finish=False)
    slow = np.zeros((len(own), 1, dps), bool)
    for dp, stage in analysis.slowest:
        slow[trace.op_stage == stage, :, dp] = True
    check(analysis.slowest_effect.removed_s, np.where(slow, ideal, own), finish=False)
    check(analysis.slowest_effect.added_s, np.where(slow, own, ideal), finish=False)
    again = effect_of(model, analysis.slowest)
    np.testing.assert_allclose(again.removed_s, analysis.slowest_effect.removed_s, rtol=1e-13)


@given(shape=SHAPES)
@SLOW
def test_launch_delays_as_a_plain_simulation_has_them(
    made_up: SimpleNamespace, shape: tuple[int, int, int, int]
) -> None:
    dps, stages, micro, seed = shape
    job = made_up.Job(dps=dps, stages=stages, micro=micro, steps=2, spread=0.7, seed=seed)
    model = prepare(made_up.trace(job))
    trace, graph, rng = model.trace, model.graph, np.random.default_rng(seed)
    # Late starts, so that there is something to tell apart.
    late = replace(trace, start_s=trace.start_s + rng.exponential(0.002, trace.shape))
    model = replace(model, trace=late)
    delays, _ = Delays(late, graph, 1.0).of(slice(None))
    work = replace(model.work, clamp_s=1.0)
    times, reason = launch_times(late, graph, model.program, work)
    assert reason is None
    assert times.by_dp_s is not None

    def check(got: Floats, keep: Any) -> None:
        expected, _ = plainly(late, graph, work.own_s, np.where(keep, delays, 0.0))
        np.testing.assert_allclose(got, expected, rtol=1e-12)

    for d in range(dps):
        check(times.by_dp_s[:, d], np.arange(dps) == d)
    for p in range(stages):
        check(times.by_stage_s[:, p], (trace.op_stage == p)[:, None, None])
    names = np.array([reported(trace.types[t]) for t in trace.op_type])
    names[list(graph.first_ops)] = FIRST_OP
    for name, got in times.by_type_s.items():
        check(got, (names == name)[:, None, None])


@given(shape=SHAPES)
@SLOW
def test_a_played_job_is_reproduced(
    made_up: SimpleNamespace, shape: tuple[int, int, int, int]
) -> None:
    """The graph that is read off a trace is that by which the job was played, and no launch
    was late: simulated and measured steps are the same."""
    dps, stages, micro, seed = shape
    job = made_up.Job(dps=dps, stages=stages, micro=micro, spread=0.9, seed=seed)
    analysis = analyse(prepare(made_up.trace(job)), threshold=1e9)
    np.testing.assert_allclose(analysis.nodelay_s, analysis.model.work.base_s, rtol=1e-9)
    assert analysis.replay_error_ratio <= 1e-12
    assert analysis.clamped_delays == 0
    assert analysis.model.work.clamped == 0


@given(shape=SHAPES)
@SLOW
def test_measured_work_and_delays_replay_the_measurement(
    made_up: SimpleNamespace, shape: tuple[int, int, int, int]
) -> None:
    dps, stages, micro, seed = shape
    job = made_up.Job(dps=dps, stages=stages, micro=micro, spread=0.5, seed=seed)
    model = prepare(made_up.trace(job))
    rng = np.random.default_rng(seed)
    trace = replace(
        model.trace, start_s=model.trace.start_s + rng.exponential(0.003, model.trace.shape)
    )
    trace = replace(trace, start_s=trace.start_s - trace.start_s.min(axis=(0, 2), keepdims=True))
    delay, _ = Delays(trace, model.graph, np.inf).of(slice(None))
    end = trace.start_s + trace.duration_s
    own = trace.duration_s.copy()
    for group in model.graph.groups:
        meet = trace.start_s[list(group.members)].max(axis=0)
        if group.synced:
            meet = meet.max(axis=1, keepdims=True)
        for op in group.members:
            own[op] = end[op] - meet
    pick = np.zeros((len(own), 1), np.intp)
    stack = Stack(Choice((own,), pick), 1, delay=Choice((delay,), pick))
    times = simulate(model.program, stack, model.lanes)
    measured = end.max(axis=(0, 2)) - trace.start_s.min(axis=(0, 2))
    np.testing.assert_allclose(times.span_s[0], measured, rtol=1e-10)


def test_fixing_nobody_changes_nothing(made_up: SimpleNamespace) -> None:
    model = prepare(made_up.trace(made_up.Job(spread=0.5)))
    analysis = analyse(model)
    effect = effect_of(model, ())
    np.testing.assert_array_equal(effect.removed_s, analysis.nodelay_s)
    np.testing.assert_allclose(effect.added_s, analysis.ideal_span_s)


@given(seed=st.integers(0, 1000), dps=st.integers(2, 6))
@SLOW
def test_ideal_is_no_slower_where_only_data_parallel_ranks_differ(
    made_up: SimpleNamespace, seed: int, dps: int
) -> None:
    """The step is a convex function of the work, and equal ranks are the mean over them."""
    job = made_up.Job(dps=dps, stages=1, spread=1.0, transfer_s=0.0, seed=seed)
    analysis = analyse(prepare(made_up.trace(job)), threshold=1e9)
    assert analysis.ideal_finish_s <= analysis.nodelay_finish_s.mean() * (1 + 1e-12)


def test_a_slow_worker_by_hand(made_up: SimpleNamespace) -> None:
    """Four ranks, one of which computes at half speed: closed form of S and of its share."""
    job = made_up.Job(dps=4, stages=1, micro=4, slow={(2, 0): 2.0}, transfer_s=0.001)
    analysis = analyse(prepare(made_up.trace(job)))
    compute = 4 * (0.010 + 0.020)
    # Gather, layernorm, embedding, scatter, clip, optimiser.
    rest = 0.001 + 1e-4 + 0.001 + 0.001 + 1e-4 + 0.002
    measured, ideal = 2 * compute + rest, compute * 5 / 4 + rest
    assert analysis.nodelay_s == pytest.approx(measured)
    assert analysis.ideal_finish_s == pytest.approx(ideal)
    assert analysis.slowdown == pytest.approx(measured / ideal)
    assert analysis.slowest == ((2, 0),)
    # Ideal for the slow rank is the mean; the others stay at their own, shorter time.
    assert analysis.slowest_effect.removed_s == pytest.approx(ideal)
    assert analysis.slowest_effect.added_s == pytest.approx(measured)
    others = analysis.by_dp_s.mean(axis=0)[[0, 1, 3]]
    assert others == pytest.approx(ideal)


@pytest.mark.parametrize("block", [1, 100, 10**9])
def test_blocks_do_not_show(made_up: SimpleNamespace, block: int) -> None:
    model = prepare(made_up.trace(made_up.Job(dps=3, stages=3, steps=5, spread=0.5)))
    own = model.work.own_s
    stack = given_works(own, own * 2)
    times = simulate(model.program, stack, model.lanes, block=block)
    expected = plainly(model.trace, model.graph, own)
    np.testing.assert_allclose(times.finish_s[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(times.span_s, np.stack([expected[1], 2 * expected[1]]), rtol=1e-12)


def test_as_many_data_parallel_ranks_as_a_byte_cannot_count(made_up: SimpleNamespace) -> None:
    job = made_up.Job(dps=128, stages=2, micro=2, steps=2, slow={(127, 1): 1.5})
    analysis = analyse(prepare(made_up.trace(job)))
    assert analysis.by_dp_s.shape == (2, 128)
    assert int(np.argmax(analysis.by_dp_s.mean(axis=0))) == 127
    assert (127, 1) in analysis.slowest


def test_a_ring_is_named(made_up: SimpleNamespace) -> None:
    model = prepare(made_up.trace(made_up.Job()))
    preds = list(model.graph.preds)
    head, tail = model.graph.finish[0], next(i for i, p in enumerate(preds) if not p)
    preds[tail] = (head,)
    with pytest.raises(GraphError, match=r"wait for each other in a ring: .* of stage"):
        compile_program(model.trace, replace(model.graph, preds=tuple(preds)))


def test_waiting_for_a_partner_is_named(made_up: SimpleNamespace) -> None:
    model = prepare(made_up.trace(made_up.Job()))
    one, two = next(g.members for g in model.graph.groups if len(g.members) == 2)
    preds = list(model.graph.preds)
    preds[two] = (*preds[two], one)
    with pytest.raises(GraphError, match="waits for what it moves data with"):
        compile_program(model.trace, replace(model.graph, preds=tuple(preds)))


def test_replay_error_shows_what_was_set_to_zero(made_up: SimpleNamespace) -> None:
    """An operation that starts long before its input: the model cannot be right, and says so."""
    model = prepare(made_up.trace(made_up.Job(dps=1, stages=1, micro=2, steps=1)))
    trace = model.trace
    op = trace.rows_of["optimizer"].start
    start = trace.start_s.copy()
    start[op] -= 0.05
    early = replace(trace, start_s=start)
    error, clamped = replay(early, model.graph, model.program, measure_work(early, model.graph))
    assert clamped == 1
    assert error > 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_median(values: list[float]) -> None:
    assert median(np.array(values)) == pytest.approx(float(np.median(values)), rel=1e-15, abs=1e-12)


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=40))
def test_distinct(values: list[int]) -> None:
    labels, position = distinct(np.array(values))
    assert labels.tolist() == sorted(set(values))
    assert labels[position].tolist() == values
