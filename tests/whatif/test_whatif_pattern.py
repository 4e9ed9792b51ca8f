"""Patterns: made-up jobs of which the reason is known, and real ones with published verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from steptax.app.whatif.analysis import Analysis, analyse, prepare
from steptax.app.whatif.api import analyse_file
from steptax.app.whatif.pattern import Pattern, PatternKind, find_pattern
from steptax.app.whatif.signs import Sign, slowest_of_steps, steadiest

Shared = Callable[[str], Path]


def made(made_up: SimpleNamespace, **recipe: object) -> Analysis:
    return analyse(prepare(made_up.trace(made_up.Job(**recipe))))


def sign(pattern: Pattern, name: str) -> Sign:
    return next(s for s in pattern.signs if s.name == name)


def real(shared: Shared, trace: str, meta: str) -> Pattern:
    sizes = yaml.safe_load(shared(f"ops/{meta}.yaml").read_text())
    analysis = analyse_file(shared(f"ops/{trace}.parquet"), sizes=sizes).analysis
    assert analysis is not None
    return find_pattern(analysis)


def test_a_real_slow_worker(shared: Shared) -> None:
    got = real(shared, "trace-AR", "meta-AR")
    assert got.kind is PatternKind.WORKER
    assert got.cells == ((0, 0),)
    assert "rank 0 (DP 0, stage 0)" in got.text
    assert sign(got, "worker").strength.value == pytest.approx(1.0017, abs=1e-4)
    # The stage of the slow worker is not heavy, and its replica not slow as a whole.
    assert not sign(got, "stage").holds
    assert not sign(got, "dp_rank").holds
    # Correlation alone would speak for uneven sequences; the spread speaks against it.
    assert max(s.correlation or 0 for s in got.sequence) > 0.9
    assert max(s.variation_ratio for s in got.sequence) < 0.02
    assert not sign(got, "uneven-sequences").holds


def test_a_real_heavy_stage(shared: Shared) -> None:
    got = real(shared, "trace-ST", "meta-ST")
    assert got.kind is PatternKind.STAGE
    assert got.cells == ((0, 3), (1, 3))
    assert "stage 3, the last," in got.text
    assert sign(got, "stage").strength.value == pytest.approx(1.21936, abs=1e-4)
    assert not sign(got, "worker").holds


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("A_pp4", PatternKind.NONE, "No straggler"),
        ("B_pp1_dp4", PatternKind.NONE, "shorter than the ideal"),
        ("D_vpp2_ovlp", PatternKind.UNTELLABLE, "off by 26 % where 5.0 % are allowed"),
        ("E_nodp", PatternKind.STAGE, "may as well be a slow worker"),
    ],
)
def test_generated_traces(shared: Shared, name: str, kind: PatternKind, said: str) -> None:
    got = real(shared, name, name)
    assert got.kind is kind
    assert said in got.text
    assert got.sequence


def test_two_slow_workers_and_no_shadows(made_up: SimpleNamespace) -> None:
    """Their rows and columns cross in two more cells, which are not slow."""
    analysis = made(made_up, dps=4, stages=3, micro=6, slow={(0, 0): 2.0, (2, 1): 2.0})
    got = find_pattern(analysis)
    assert got.kind is PatternKind.WORKER
    assert set(got.cells) == {(0, 0), (2, 1)}
    assert sign(got, "worker").strength.value > 0.9


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_heavy_stage(made_up: SimpleNamespace, stage: int) -> None:
    slow = {(d, stage): 1.8 for d in range(3)}
    got = find_pattern(made(made_up, dps=3, stages=4, micro=8, slow=slow))
    assert got.kind is PatternKind.STAGE
    assert set(got.cells) == {(d, stage) for d in range(3)}
    assert ("the last" in got.text) is (stage == 3)


def test_a_slow_replica(made_up: SimpleNamespace) -> None:
    slow = {(1, p): 1.8 for p in range(3)}
    got = find_pattern(made(made_up, dps=4, stages=3, micro=6, slow=slow))
    assert got.kind is PatternKind.DP_RANK
    assert set(got.cells) == {(1, p) for p in range(3)}
    assert "Data-parallel rank 1" in got.text


def test_several_hold_at_once(made_up: SimpleNamespace) -> None:
    """One worker far too slow and, on another stage, all a little: both have their strength."""
    slow = {(d, 2): 1.7 for d in range(4)} | {(1, 0): 2.6}
    got = find_pattern(made(made_up, dps=4, stages=3, micro=8, slow=slow))
    assert got.kind is PatternKind.WORKER
    assert got.cells[0] == (1, 0)
    worker, stage = sign(got, "worker"), sign(got, "stage")
    assert worker.holds
    assert worker.strength.value is not None
    assert stage.strength.value is not None
    assert stage.strength.value > 0.1
    assert worker.strength.value + stage.strength.value <= 1.3


def test_uneven_sequences(made_up: SimpleNamespace) -> None:
    """Micro-batches of unequal length in both directions, anew in each step and on each rank."""
    job = made_up.Job(dps=4, stages=2, micro=8, steps=6)
    trace = made_up.trace(job)
    # A stage's passes of a micro-batch share its length.
    length = 0.4 + np.random.default_rng(3).exponential(0.6, (8, 6, 4))
    duration = trace.duration_s.copy()
    for name, base in (("forward-compute", 0.010), ("backward-compute", 0.020)):
        rows = trace.rows_of[name]
        for stage in range(2):
            ops = np.flatnonzero(trace.op_stage[rows] == stage) + rows.start
            duration[ops] = base * length
    start = trace.start_s.copy()
    analysis = analyse(prepare(replace(trace, duration_s=duration, start_s=start)))
    # Start times are those of the even job, so the measured steps are not: judge the signs alone.
    error_free = replace(
        analysis,
        model=replace(analysis.model, work=replace(analysis.model.work, base_s=analysis.nodelay_s)),
        replay_error_ratio=0.0,
    )
    got = find_pattern(error_free)
    assert got.kind is PatternKind.EVERYWHERE
    assert sign(got, "uneven-sequences").holds
    assert "dealt unevenly" in got.text
    assert "sequences" in got.next_action


def test_pauses(made_up: SimpleNamespace) -> None:
    pauses = {(s, (s * 2) % 4, 0, 3): 0.3 for s in range(6)}
    got = find_pattern(made(made_up, dps=4, stages=2, steps=6, pauses=pauses))
    assert sign(got, "pauses").holds
    assert "garbage" in sign(got, "pauses").text
    assert got.kind is PatternKind.EVERYWHERE
    assert "garbage" in got.next_action


def test_nothing_to_find(made_up: SimpleNamespace) -> None:
    got = find_pattern(made(made_up, dps=2, stages=2))
    assert got.kind is PatternKind.NONE
    assert got.cells == ()
    assert got.signs == ()


def test_slowest_of_each_step(made_up: SimpleNamespace) -> None:
    pauses = {(s, s % 3, 0, 1): 0.2 for s in range(3)}
    analysis = made(made_up, dps=3, stages=1, steps=3, pauses=pauses)
    assert slowest_of_steps(analysis).tolist() == [0, 1, 2]
    assert steadiest(analysis) == (pytest.approx(1 / 3), 0)


def test_virtual_stages_recorded_for_one_direction(made_up: SimpleNamespace) -> None:
    """Passes of both directions can then not be paired, which is no reason to fail."""
    job = made_up.Job(dps=2, stages=2, slow={(0, 0): 2.0})
    trace = made_up.trace(job)
    chunk = trace.op_chunk.copy()
    rows = trace.rows_of["forward-compute"]
    chunk[rows] = np.arange(rows.stop - rows.start) % 2
    got = find_pattern(analyse(prepare(replace(trace, op_chunk=chunk))))
    assert sign(got, "pauses").strength.value == pytest.approx(0, abs=1e-9)
    assert got.kind is PatternKind.WORKER


def test_too_few_steps_to_tell_from_chance(made_up: SimpleNamespace) -> None:
    """Two steps, in one of which a rank pauses for as long as the step takes."""
    analysis = made(made_up, dps=4, stages=1, steps=2, pauses={(1, 2, 0, 3): 0.12})
    assert analysis.slowdown > 1.1
    got = find_pattern(analysis)
    assert got.kind is PatternKind.UNTELLABLE
    assert "over 2 steps as different as these" in got.text
    assert got.next_action == "record more steps"
