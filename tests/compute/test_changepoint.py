"""Change points: planted ones are found where they are, and chance is not taken for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.stats.changepoint import (
    FALCON_RATIO,
    LEAST_CONFIDENCE,
    MIN_SEGMENT,
    MIN_STEPS,
    change_points,
)

Find = Callable[[str], Path]
UNTIMED = settings(max_examples=40)


def noise(steps: int, spread: float, seed: int) -> np.ndarray:
    return np.asarray(100.0 * np.random.default_rng(seed).lognormal(0, spread, steps))


@UNTIMED
@given(
    seed=st.integers(0, 10_000),
    at=st.integers(40, 160),
    factor=st.sampled_from([0.7, 0.8, 1.25, 1.5, 3.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e6]),
)
def test_a_planted_change_is_found_at_its_step_in_any_unit(
    seed: int, at: int, factor: float, scale: float
) -> None:
    values = noise(200, 0.03, seed)
    values[at:] *= factor
    found = change_points(np.arange(1000, 1200), values * scale)
    (point,) = found.points
    assert abs(point.step - (1000 + at)) <= 1
    assert point.change_ratio == pytest.approx(factor - 1, abs=0.05)
    assert point.before_mean == pytest.approx(100 * scale, rel=0.03)
    assert point.is_slower == (factor > 1)
    assert LEAST_CONFIDENCE <= point.confidence <= 1


@UNTIMED
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1e-4, 0.02, 0.1]))
def test_noise_alone_is_no_change(seed: int, spread: float) -> None:
    assert change_points(np.arange(300), noise(300, spread, seed)).points == ()


@UNTIMED
@given(seed=st.integers(0, 10_000), ratio=st.sampled_from([0.01, 0.1, 0.3]))
def test_segments_cover_every_step_and_their_means_are_those_of_the_steps(
    seed: int, ratio: float
) -> None:
    rng = np.random.default_rng(seed)
    values = noise(150, 0.05, seed) * np.repeat(rng.uniform(0.5, 2, 5), 30)
    found = change_points(np.arange(150), values, min_change_ratio=ratio)
    assert [s.first_step for s in found.segments] == [0, *(p.step for p in found.points)]
    assert sum(s.steps for s in found.segments) == 150
    for segment in found.segments:
        part = values[segment.first_step : segment.last_step + 1]
        assert segment.mean == pytest.approx(part.mean())
        assert segment.steps >= MIN_SEGMENT
    assert all(abs(point.change_ratio) > ratio for point in found.points)


def test_only_changes_above_ten_per_cent_count() -> None:
    values = noise(400, 0.01, 3)
    values[200:] *= 1.08
    assert change_points(np.arange(400), values).points == ()
    (point,) = change_points(np.arange(400), values, min_change_ratio=0.05).points
    assert point.step == 200
    values[200:] *= 1.04
    (point,) = change_points(np.arange(400), values).points
    assert point.change_ratio > FALCON_RATIO


def test_single_slow_steps_are_no_change_of_pace() -> None:
    values = noise(500, 0.02, 1)
    values[::50] *= 4.0
    values[101:103] *= 10.0
    assert change_points(np.arange(500), values).points == ()


def test_a_slow_spell_has_a_beginning_and_an_end() -> None:
    values = noise(600, 0.02, 5)
    values[200:290] *= 1.4
    began, ended = change_points(np.arange(600), values).points
    assert (began.step, ended.step) == (200, 290)
    assert began.is_slower
    assert not ended.is_slower


def test_ten_thousand_steps_with_gaps_in_their_numbers() -> None:
    values = noise(10_000, 0.05, 9)
    values[7_000:] *= 1.3
    values[::17] = np.nan
    found = change_points(np.arange(0, 100_000, 10), values)
    (point,) = found.points
    assert point.step == pytest.approx(70_000, abs=30)


@pytest.mark.parametrize("steps", [0, 1, MIN_STEPS - 1])
def test_too_few_steps_say_so(steps: int) -> None:
    found = change_points(np.arange(steps), np.full(steps, 5.0))
    assert found.points == found.segments == ()
    assert found.reason is not None
    assert str(steps) in found.reason


def test_times_of_zero_say_so() -> None:
    assert "zero" in str(change_points(np.arange(50), np.zeros(50)).reason)


def compute_s(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Ranks, and [steps, ranks] own computing, of a recorded operation trace."""
    table = pq.read_table(path)
    own = np.isin(
        np.array(table["optype"].cast(pa.string()).to_pylist()),
        ["forward-compute", "backward-compute"],
    )
    steps, row = np.unique(table["step"].to_numpy()[own], return_inverse=True)
    ranks, place = np.unique(table["rank"].to_numpy()[own], return_inverse=True)
    work = np.zeros((len(steps), len(ranks)))
    np.add.at(work, (row, place), table["duration"].to_numpy()[own].astype(np.float64))
    return ranks, work


def test_real_work_with_a_fault_from_a_known_step_on(shared: Find) -> None:
    """A healthy rank's recorded work, then that of the worker that was slowed on purpose."""
    ranks, work = compute_s(shared("ops/trace-AR.parquet"))
    slow, healthy = work[:, ranks == 0].ravel(), work[:, ranks == 4].ravel()
    for onset in (20, 30):
        series = np.where(np.arange(len(work)) < onset, healthy, slow)
        (point,) = change_points(np.arange(len(work)), series).points
        assert point.step == onset
        assert point.change_ratio == pytest.approx(1.35, abs=0.05)
        assert point.confidence > 0.99
    for column in work.T:
        assert change_points(np.arange(len(work)), column).points == ()


def test_real_minibatches_with_a_fault_from_a_known_step_on(shared: Find) -> None:
    """Noisy recorded mini-batches; from a step on one worker's are half as long again."""
    table = pa_csv.read_csv(shared("fleet/alibaba2020_minibatch_job1.csv"))
    worker, took = table["worker"].to_numpy(), table["batch_time_norm"].to_numpy()
    series = took[worker == 1].astype(np.float64)
    assert len(series) > 150
    before = change_points(np.arange(len(series)), series)
    series[100:] *= 1.5
    after = change_points(np.arange(len(series)), series)
    new = {p.step for p in after.points} - {p.step for p in before.points}
    assert any(abs(step - 100) <= 3 for step in new)
