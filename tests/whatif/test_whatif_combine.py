"""Combinations of changes: one is the single question, order does not matter, sums do not hold."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.errors import NotFoundError, UserError
from steptax.app.whatif.analysis import Analysis, analyse, prepare
from steptax.app.whatif.api import analyse_file
from steptax.app.whatif.balance import (
    balance_microbatches,
    move_layers,
    rebalance_stages,
    without_gc,
)
from steptax.app.whatif.combine import combine, ordered
from steptax.app.whatif.fixes import Fix, FixKind, parse_fix
from steptax.app.whatif.questions import (
    Answer,
    faster,
    faster_device,
    faster_network,
    fix_ranks,
    fix_worst,
)

Shared = Callable[[str], Path]
EVERY = (
    "ranks:0,3",
    "worst:2",
    "stage:1",
    "dp:0",
    "optype:forward-pp-comm",
    "stages",
    "layers:4,4>5,3",
    "microbatches",
    "gc",
    "kernel:*-compute:2",
    "network:3",
    "device:1.5",
    "device:0=2,1=0.5",
)


@pytest.fixture(scope="module")
def job(made_up: SimpleNamespace) -> Analysis:
    """Two stages, three data-parallel ranks, noise, a slow rank, a heavy stage, a pause."""
    slow = {(d, 1): 1.3 for d in range(3)} | {(0, 0): 1.6}
    pauses = {(1, 2, 0, 3): 0.3}
    recipe = made_up.Job(dps=3, stages=2, micro=6, steps=4, spread=0.4, slow=slow, pauses=pauses)
    return analyse(prepare(made_up.trace(recipe)))


SINGLE: dict[str, Callable[[Analysis], Answer]] = {
    "ranks:0,3": lambda a: fix_ranks(a, [0, 3], 2.0),
    "worst:2": lambda a: fix_worst(a, 2, 2.0)[1],
    "stages": lambda a: rebalance_stages(a, 2.0),
    "layers:4,4>5,3": lambda a: move_layers(a, [4, 4], [5, 3], 2.0),
    "microbatches": lambda a: balance_microbatches(a, 2.0),
    # Nothing is recorded as collection here, so the pauses are all there is.
    "gc": lambda a: without_gc(a, 2.0)[1],
    "kernel:*-compute:2": lambda a: faster(a, "*-compute", 2, 2.0),
    "network:3": lambda a: faster_network(a, 3, 2.0),
    "device:1.5": lambda a: faster_device(a, 1.5, 2.0),
    "device:0=2,1=0.5": lambda a: faster_device(a, {0: 2, 1: 0.5}, 2.0),
}


@pytest.mark.parametrize("text", SINGLE)
def test_a_combination_of_one_is_the_single_question(job: Analysis, text: str) -> None:
    alone, one = SINGLE[text](job), combine(job, [text], 2.0)
    np.testing.assert_allclose(one.answer.step_s, alone.step_s, rtol=1e-12)
    ours, theirs = one.answer.recovered, alone.recovered
    for name in vars(theirs):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert a.value == pytest.approx(b.value, rel=1e-9), name
        assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-9), name
    assert not np.allclose(one.answer.step_s, job.nodelay_s)


def test_a_stage_is_its_ranks(job: Analysis) -> None:
    ranks = job.model.trace.ranks[:, 1].tolist()
    np.testing.assert_allclose(
        combine(job, ["stage:1"]).answer.step_s, fix_ranks(job, ranks).step_s, rtol=1e-12
    )
    ranks = job.model.trace.ranks[0].tolist()
    np.testing.assert_allclose(
        combine(job, ["dp:0"]).answer.step_s, fix_ranks(job, ranks).step_s, rtol=1e-12
    )


def test_nothing_changes_nothing(job: Analysis) -> None:
    got = combine(job, [], 2.0)
    np.testing.assert_array_equal(got.answer.step_s, job.nodelay_s)
    assert got.answer.recovered.s_per_step.value == 0
    assert got.answer.recovered.usd.value == 0
    assert got.answer.speedup.value == 1
    assert got.slowdown.value == pytest.approx(job.slowdown)
    assert got.fixes == ()


def test_everything_repaired_is_the_ideal(job: Analysis) -> None:
    got = combine(job, ["stage:0", "stage:1"])
    np.testing.assert_allclose(got.answer.step_s, job.ideal_span_s, rtol=1e-12)
    assert got.slowdown.value == pytest.approx(1)


@settings(max_examples=25)
@given(st.permutations(EVERY[:5] + EVERY[6:]), st.integers(2, 5))
def test_the_order_of_naming_makes_no_difference(
    job: Analysis, names: list[str], count: int
) -> None:
    some = names[:count]
    steps = [combine(job, order).answer.step_s for order in list(permutations(some))[:6]]
    for other in steps[1:]:
        np.testing.assert_array_equal(steps[0], other)


def test_named_twice_counts_once(job: Analysis) -> None:
    twice = combine(job, ["kernel:*-compute:2", "kernel:*-compute:2", "kernel:*-compute:2.0"])
    assert [f.text for f in twice.fixes] == ["kernel:*-compute:2"]
    np.testing.assert_array_equal(
        twice.answer.step_s, combine(job, ["kernel:*-compute:2"]).answer.step_s
    )


def test_repairs_of_the_same_operations_do_not_add_up(job: Analysis) -> None:
    """A rank that is part of a repaired stage changes nothing any more."""
    rank = int(job.model.trace.ranks[1, 1])
    np.testing.assert_array_equal(
        combine(job, ["stage:1", f"ranks:{rank}"]).answer.step_s,
        combine(job, ["stage:1"]).answer.step_s,
    )


def test_two_slow_ranks_hide_each_other(made_up: SimpleNamespace) -> None:
    recipe = made_up.Job(dps=4, stages=1, slow={(0, 0): 2.0, (2, 0): 2.0})
    job = analyse(prepare(made_up.trace(recipe)))

    def saved(*fixes: str) -> float:
        return combine(job, fixes).answer.recovered.s_per_step.value or 0.0

    assert saved("ranks:0") == pytest.approx(0, abs=1e-12)
    assert saved("ranks:2") == pytest.approx(0, abs=1e-12)
    # Both at the mean of 2, 2, 1, 1 times 0.12 s of computing.
    assert saved("ranks:0", "ranks:2") == pytest.approx(0.12 * 0.5)


def test_a_faster_kernel_makes_the_ideal_faster_too(made_up: SimpleNamespace) -> None:
    """Everything twice as fast everywhere: half the step, and as uneven as before."""
    recipe = made_up.Job(dps=4, stages=1, slow={(2, 0): 2.0})
    job = analyse(prepare(made_up.trace(recipe)))
    got = combine(job, ["kernel:*:2"])
    np.testing.assert_allclose(got.answer.step_s, job.nodelay_s / 2, rtol=1e-9)
    assert got.slowdown.value == pytest.approx(job.slowdown)
    both = combine(job, ["device:2", "network:2", "kernel:optimizer-clip-main-grad:2"])
    # Layer-norm gradients count as network, clipping as neither.
    np.testing.assert_allclose(both.answer.step_s, job.nodelay_s / 2, rtol=1e-9)


def test_what_a_kernel_returns_shrinks_with_a_straggler_left(shared: Shared) -> None:
    job = analyse_file(shared("ops/trace-AR.parquet")).analysis
    assert job is not None

    def step(*fixes: str) -> float:
        return float(combine(job, fixes).answer.step_s.mean())

    assert step() / step("ranks:0") == pytest.approx(1.9763, abs=1e-3)
    assert step("ranks:0", "kernel:*-compute:2") < step("kernel:*-compute:2") / 1.9
    assert combine(job, ["ranks:0"]).slowdown.value == pytest.approx(0.9983, abs=1e-3)


def test_what_does_not_fit_is_refused(job: Analysis) -> None:
    for text, error, match in (
        ("stage:7", NotFoundError, "there is no stage 7"),
        ("dp:9", NotFoundError, "there is no data-parallel rank 9"),
        ("ranks:99", NotFoundError, "rank 99 is not in the trace"),
        ("optype:tp-all-reduce", NotFoundError, "there is no operation type 'tp-all-reduce'"),
        ("kernel:conv*:2", UserError, "no operation matches"),
        ("layers:4,4>5,5", UserError, "8 layers cannot become 10"),
        ("layers:4,4,4>4,4,4", UserError, "expected 2 layer counts"),
        ("device:99=2", NotFoundError, "rank 99"),
    ):
        with pytest.raises(error, match=match):
            combine(job, [text])
    with pytest.raises(UserError, match="both deal the layers anew"):
        combine(job, ["stages", "layers:4,4>5,3"])


@pytest.mark.parametrize("text", EVERY)
def test_a_fix_is_read_as_it_is_written(text: str) -> None:
    fix = parse_fix(text)
    assert fix.text == text
    assert parse_fix(fix.text) == fix
    assert fix.title


def test_ranges_of_ranks() -> None:
    assert parse_fix("ranks:0-3,7,2").numbers == (0, 1, 2, 3, 7)
    assert parse_fix("ranks:5-5") == parse_fix("ranks:5")
    for text in ("ranks:3-1", "ranks:0-", "ranks:-3-1", "ranks:0-99999999999", "ranks:1-2-3"):
        with pytest.raises(UserError, match="expected ranks:0,7 or ranks:0-7"):
            parse_fix(text)


def test_fixes_are_sorted_by_what_they_do() -> None:
    got = ordered(["network:2", "stages", "ranks:3", "gc", Fix(FixKind.WORST, (1,))])
    assert [f.text for f in got] == ["gc", "ranks:3", "worst:1", "stages", "network:2"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "there is no fix ''"),
        ("rank:1", "there is no fix"),
        ("ranks:", "expected ranks:0,7"),
        ("ranks:a", "expected ranks:0,7"),
        ("ranks:-1", "no negative numbers"),
        ("worst:0", "at least 1"),
        ("worst:1,2", "one number"),
        ("stages:1", "nothing follows"),
        ("layers:8,8", "layers of each stage now"),
        ("kernel:2", "a pattern and a factor"),
        ("kernel:*:0", "a factor above 0"),
        ("network:nan", "a factor above 0"),
        ("network:inf", "a factor above 0"),
        ("device:0=-1", "a factor above 0"),
        ("optype:", "no type"),
    ],
)
def test_a_fix_that_cannot_be_read(text: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        parse_fix(text)
