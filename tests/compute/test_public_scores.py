"""Results of public benchmarks from their runs, and what scale costs."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bench.public_scores import PublicRun, scale_premium, train_time

TIMES = st.lists(st.floats(1.0, 1e6), min_size=3, max_size=12)


def runs(*times: float | None) -> list[PublicRun]:
    return [PublicRun("success" if t is not None else "aborted", t) for t in times]


def test_the_fastest_and_the_slowest_are_left_out() -> None:
    found = train_time(runs(10, 1, 30, 20, 99), 1.1)
    assert found.value == pytest.approx(22.0)
    assert (found.low, found.high) == (pytest.approx(1.1), pytest.approx(108.9))


def test_a_failed_run_is_the_slowest() -> None:
    found = train_time(runs(10, 1, 30, None))
    assert found.value == pytest.approx(20.0)
    assert "counts as the slowest" in found.warnings[0]
    assert train_time(runs(10, None, None, 4)).reason == "2 of 4 runs failed, at most one may"
    assert train_time(runs(10, 20)).value is None


@given(TIMES, st.randoms())
def test_the_order_of_runs_does_not_matter(times: list[float], random: object) -> None:
    shuffled = list(times)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = train_time(runs(*times)), train_time(runs(*shuffled))
    assert first.value == pytest.approx(second.value)
    assert first.value is not None
    assert min(times) * (1 - 1e-9) <= first.value <= max(times) * (1 + 1e-9)


def test_more_devices_cost_more_gpu_hours() -> None:
    small, large = scale_premium([(8, 3600, "a"), (16, 2000, "slow"), (16, 1900, "fast")])
    assert (small.gpu_hours, small.premium_ratio) == (8.0, 0.0)
    assert large.system == "fast"
    assert large.premium_ratio == pytest.approx(16 * 1900 / 3600 / 8 - 1)
    assert large.speedup == pytest.approx(3600 / 1900)


def test_every_public_result_is_recomputed_from_its_runs(shared: Callable[[str], Path]) -> None:
    told = defaultdict(list)
    with shared("procurement/mlperf_training_v5_runs.csv").open() as handle:
        for row in csv.DictReader(handle):
            minutes = float(row["minutes"]) if row["minutes"] else None
            key = (row["round"], row["submitter"], row["system"], row["benchmark"])
            told[key].append(PublicRun(row["status"], None if minutes is None else minutes * 60))
    count = 0
    with shared("procurement/mlperf_training_v5_results.csv").open() as handle:
        for row in csv.DictReader(handle):
            key = (row["round"], row["submitter"], row["system_id"], row["benchmark"])
            found = train_time(told[key], float(row["scaling_factor"] or 1))
            assert found.value == pytest.approx(float(row["time_to_train_minutes"]) * 60, abs=0.05)
            count += 1
    assert count == 385
