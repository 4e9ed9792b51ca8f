"""What samples of a device can claim."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.device_time import Claim, DeviceSample, device_time, judge

Shared = Callable[[str], Path]
HOUR_US = 3_600_000_000


def case(folder: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])
    with (folder / "gpu.csv").open(newline="") as file:
        return want, list(csv.DictReader(file))


def test_a_counter_that_reads_zero_on_a_busy_device(shared: Shared) -> None:
    want, rows = case(shared("cases/07-prof-counter-silent-zero"))
    length_us = want["interval_minutes"] * 60_000_000
    judged = judge(
        DeviceSample(
            row["uuid"],
            int(datetime.fromisoformat(row["time"]).timestamp()) * 1_000_000,
            length_us,
            util_ratio=float(row["gpu_util_pct"]) / 100,
            active_ratio=float(row["gr_engine_active"]),
            power_w=float(row["power_w"]),
        )
        for row in rows
    )
    found = device_time(judged)
    assert sum(one.is_counter_broken for one in judged) == want["stuck_samples"]
    assert found.broken_counter_us / HOUR_US == want["stuck_hours"]
    assert found.idle_us / HOUR_US == want["true_idle_hours"]
    assert 2 * found.idle_us / HOUR_US == want["idle_cost_usd_at_2"]
    trusted = sum(length_us for row in rows if float(row["gr_engine_active"]) == 0)
    assert 2 * trusted / HOUR_US == want["wrong_idle_cost_if_counter_trusted"]


def test_values_that_are_repeated_after_a_failure(shared: Shared) -> None:
    want, rows = case(shared("cases/22-stale-values-after-failure"))
    found = device_time(
        judge(
            DeviceSample(
                row["uuid"],
                int(row["t_s"]) * 1_000_000,
                60_000_000,
                util_ratio=float(row["gpu_util_pct"]) / 100,
                power_w=float(row["power_w"]),
                temperature_c=float(row["temp_c"]),
            )
            for row in rows
        )
    )
    assert found.stale_us == want["stale_minutes"] * 60_000_000
    assert found.busy_us == want["observed_minutes"] * 60_000_000
    assert found.busy_us / HOUR_US == pytest.approx(want["busy_gpu_hours"], abs=1e-4)
    assert found.unobserved_us / HOUR_US == pytest.approx(want["unobserved_gpu_hours"], abs=1e-4)
    assert found.idle_us == 0


def test_what_a_device_did_not_say_is_neither_busy_nor_idle() -> None:
    (one,) = judge([DeviceSample("a", 0, 5, power_w=300.0, temperature_c=60.0)])
    assert one.claim is Claim.UNKNOWN
    assert device_time([one]).unobserved_us == 5


@pytest.mark.parametrize(("count", "stale"), [(10, 0), (11, 10)])
def test_runs_just_long_enough(count: int, stale: int) -> None:
    run = [DeviceSample("a", i, 1, 0.5, None, 300.0, 60.0) for i in range(count)]
    assert device_time(judge(run)).stale_us == stale
    # another device between them ends no run, and an unknown temperature makes none
    other = [DeviceSample("b", i, 1, 0.5, None, 300.0 + i, 60.0) for i in range(count)]
    assert device_time(judge([*run, *other])).stale_us == stale
    blind = [DeviceSample("a", i, 1, 0.5, None, 300.0, None) for i in range(count)]
    assert device_time(judge(blind)).stale_us == 0


ratio = st.none() | st.sampled_from([0.0, 0.5, 1.0])
one_sample = st.builds(
    DeviceSample,
    st.sampled_from("ab"),
    st.integers(0, 99),
    st.integers(0, 9),
    util_ratio=ratio,
    active_ratio=ratio,
    power_w=st.none() | st.sampled_from([100.0, 200.0]),
    temperature_c=st.just(60.0),
)


@given(st.lists(one_sample, max_size=80))
def test_all_time_is_claimed_once(samples: list[DeviceSample]) -> None:
    found = device_time(judge(samples))
    whole = found.busy_us + found.idle_us + found.unobserved_us
    assert whole == sum(sample.duration_us for sample in samples)
    assert found.broken_counter_us <= found.busy_us
