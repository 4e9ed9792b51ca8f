"""Days on which spend was not what the days before let expect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.spend.anomalies import (
    HISTORY_DAYS,
    MIN_CHANGE_RATIO,
    MIN_DAYS,
    anomalies,
    trailing,
)
from steptax.app.compute.stats.rows import Floats


def noisy(days: int, seed: int = 0) -> Floats:
    return 1000 + np.random.default_rng(seed).normal(0, 20, days)


def test_a_spike_is_found_with_what_was_expected() -> None:
    series = noisy(60)
    series[40:42] += 900
    (found,) = anomalies(series)
    assert (found.first, found.last) == (40, 41)
    assert found.expected == pytest.approx(2000, rel=0.03)
    assert found.impact == pytest.approx(1800, rel=0.05)
    assert found.low < found.expected < found.high < found.actual


def test_a_drop_is_one_too_and_not_joined_with_a_spike() -> None:
    series = noisy(60)
    series[40], series[41] = 3000, 200
    high, low = anomalies(series)
    assert (high.first, low.first) == (40, 41)
    assert high.impact > 0 > low.impact


@given(st.integers(1, MIN_DAYS), st.integers(0, 50))
def test_too_little_data_tells_nothing(days: int, seed: int) -> None:
    series = np.random.default_rng(seed).exponential(1000, days)
    assert anomalies(series) == ()


@given(st.floats(0.01, 1e6), st.integers(0, 100))
def test_a_level_series_has_none_and_the_unit_does_not_matter(scale: float, seed: int) -> None:
    assert anomalies(np.full(90, scale)) == ()
    series = noisy(90, seed)
    series[70] *= 2
    plain, scaled = anomalies(series), anomalies(series * scale)
    assert [(a.first, a.last) for a in plain] == [(a.first, a.last) for a in scaled]
    assert [a.impact * scale for a in plain] == pytest.approx([a.impact for a in scaled])


def test_small_changes_of_a_very_level_series_do_not_count() -> None:
    series = np.full(60, 1000.0)
    series[50] = 1000 * (1 + MIN_CHANGE_RATIO) - 1
    assert anomalies(series) == ()
    series[50] += 2
    assert len(anomalies(series)) == 1


def test_a_new_level_is_told_once_it_comes_and_then_expected() -> None:
    series = np.append(np.full(40, 1000.0), np.full(60, 2000.0))
    found = anomalies(series)
    assert found[0].first == 40
    assert all(one.last < 40 + HISTORY_DAYS for one in found)


def test_free_weekends_and_work_every_second_day_are_a_habit() -> None:
    week = np.tile([100.0, 100, 100, 100, 100, 0, 0], 10)
    assert anomalies(week) == ()
    assert anomalies(np.tile([0.0, 80.0], 40)) == ()
    week[59] = 400
    (found,) = anomalies(week)
    assert (found.first, found.last, found.actual) == (59, 59, 400)


def test_days_that_are_not_known_are_neither_zero_nor_an_anomaly() -> None:
    series = noisy(60)
    series[30:40] = np.nan
    assert anomalies(series) == ()
    median, _ = trailing(series)
    assert median[45] == pytest.approx(1000, rel=0.03)


@given(st.lists(st.floats(0, 100) | st.just(float("nan")), min_size=16, max_size=50))
def test_the_median_is_that_of_numpy(values: list[float]) -> None:
    series = np.array(values)
    median, _ = trailing(series)
    for day in range(len(series)):
        before = series[max(0, day - HISTORY_DAYS) : day]
        known = before[~np.isnan(before)]
        if len(known) < MIN_DAYS:
            assert np.isnan(median[day])
        else:
            assert median[day] == pytest.approx(np.median(known))
