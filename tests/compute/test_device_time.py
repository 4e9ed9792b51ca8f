"""What samples of a device can claim."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bill.device_time import Claim, device_time, judge, stale_samples
from steptax.app.compute.devices.series import DeviceSeries
from tests.compute.device_rows import series

Shared = Callable[[str], Path]
HOUR_US = 3_600_000_000


def case(folder: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])
    with (folder / "gpu.csv").open(newline="") as file:
        return want, list(csv.DictReader(file))


def test_a_counter_that_reads_zero_on_a_busy_device(shared: Shared) -> None:
    want, rows = case(shared("cases/07-prof-counter-silent-zero"))
    length_us = want["interval_minutes"] * 60_000_000
    samples = series(
        {
            "gpu_uuid": row["uuid"],
            "ts_us": int(datetime.fromisoformat(row["time"]).timestamp()) * 1_000_000,
            "util_ratio": float(row["gpu_util_pct"]) / 100,
            "sm_active_ratio": float(row["gr_engine_active"]),
            "power_w": float(row["power_w"]),
        }
        for row in rows
    )
    assert set(samples.duration_us.tolist()) == {length_us}
    judged = judge(samples)
    found = device_time(samples, judged)
    assert judged.broken.sum() == want["stuck_samples"]
    assert found.broken_counter_us / HOUR_US == want["stuck_hours"]
    assert found.idle_us / HOUR_US == want["true_idle_hours"]
    assert 2 * found.idle_us / HOUR_US == want["idle_cost_usd_at_2"]
    trusted = sum(length_us for row in rows if float(row["gr_engine_active"]) == 0)
    assert 2 * trusted / HOUR_US == want["wrong_idle_cost_if_counter_trusted"]


def test_values_that_are_repeated_after_a_failure(shared: Shared) -> None:
    want, rows = case(shared("cases/22-stale-values-after-failure"))
    samples = series(
        {
            "gpu_uuid": row["uuid"],
            "ts_us": int(row["t_s"]) * 1_000_000,
            "util_ratio": float(row["gpu_util_pct"]) / 100,
            "power_w": float(row["power_w"]),
            "temperature_c": float(row["temp_c"]),
        }
        for row in rows
    )
    found = device_time(samples, judge(samples))
    assert found.stale_us == want["stale_minutes"] * 60_000_000
    assert found.busy_us == want["observed_minutes"] * 60_000_000
    assert found.busy_us / HOUR_US == pytest.approx(want["busy_gpu_hours"], abs=1e-4)
    assert found.unobserved_us / HOUR_US == pytest.approx(want["unobserved_gpu_hours"], abs=1e-4)
    assert found.idle_us == 0


def test_what_a_device_did_not_say_is_neither_busy_nor_idle() -> None:
    samples = series([run("a", 0), run("a", 5)])
    samples.values["util_ratio"][:] = np.nan
    judged = judge(samples)
    assert judged.claims.tolist() == [Claim.UNKNOWN] * 2
    assert device_time(samples, judged).unobserved_us == 10


def run(device: str, ts_us: int, **told: float | None) -> dict[str, Any]:
    still = {"util_ratio": 0.5, "power_w": 300.0, "temperature_c": 60.0}
    return {"gpu_uuid": device, "ts_us": ts_us} | still | told


@pytest.mark.parametrize(("count", "stale"), [(10, 0), (11, 10)])
def test_runs_just_long_enough(count: int, stale: int) -> None:
    still = [run("a", i) for i in range(count)]

    def stale_in(rows: list[dict[str, Any]]) -> int:
        return int(stale_samples(series(rows)).sum())

    assert stale_in(still) == stale
    # another device between them ends no run, and an unknown temperature makes none
    assert stale_in([*still, *(run("b", i, power_w=300.0 + i) for i in range(count))]) == stale
    assert stale_in([run("a", i, temperature_c=None) for i in range(count)]) == 0
    # what moves in one value is measured, and what is not told of it says nothing
    assert stale_in([run("a", i, energy_j=300.0 * i) for i in range(count)]) == 0
    assert stale_in([run("a", i, energy_j=9.0 if i % 2 else None) for i in range(count)]) == stale


ratio = st.none() | st.sampled_from([0.0, 0.5, 1.0])
one_sample = st.fixed_dictionaries(
    {
        "gpu_uuid": st.sampled_from("ab"),
        "ts_us": st.integers(0, 99),
        "util_ratio": ratio,
        "sm_active_ratio": ratio,
        "power_w": st.none() | st.sampled_from([100.0, 200.0]),
        "temperature_c": st.just(60.0),
    }
)


@given(st.lists(one_sample, max_size=80, unique_by=lambda row: (row["gpu_uuid"], row["ts_us"])))
def test_all_time_is_claimed_once(rows: list[dict[str, Any]]) -> None:
    samples: DeviceSeries = series(rows, end_us=100)
    found = device_time(samples, judge(samples))
    whole = found.busy_us + found.idle_us + found.unobserved_us
    assert whole == samples.duration_us.sum()
    assert found.broken_counter_us <= found.busy_us
    for device in range(len(samples.names)):
        mine = samples.series == device
        ends = samples.ts_us[mine] + samples.duration_us[mine]
        # no moment counts twice, and none outside of the window
        assert (ends[:-1] <= samples.ts_us[mine][1:]).all()
        assert (ends <= 100).all()


def test_a_gap_is_not_the_time_of_the_sample_before_it() -> None:
    times = [0, 10, 20, 30, 500, 510]
    samples = series(run("a", t, power_w=float(t)) for t in times)
    assert samples.duration_us.tolist() == [10, 10, 10, 10, 10, 10]
    assert series([run("a", 7)]).duration_us.tolist() == [0]
