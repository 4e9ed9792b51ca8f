"""Days of all devices while a collector hangs: what it repeats is no measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.compute.bill.device_time import stale_samples
from steptax.app.lake import Lake
from steptax.app.views.devices.days import device_days
from steptax.app.views.fleet.capacity import capacity
from steptax.app.views.workspace import open_workspace
from tests.compute.device_rows import series

HOUR_S, STEP_S = 3600, 60
#: 1 May 2026, 00:00 UTC.
BEGIN_S = 1_777_593_600


def sample(device: str, at_s: int, **values: float) -> dict[str, Any]:
    return {
        "host": "n1",
        "gpu_uuid": device,
        "ts_us": (BEGIN_S + at_s) * 1_000_000,
        "util_ratio": 0.5,
        "power_w": 300.0 + at_s % 7,
        "temperature_c": 50.0,
    } | values


def stored(root: Path, rows: list[dict[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.Table.from_pylist([{n: row.get(n) for n in names} for row in rows])
    lake = Lake(root / "lake", create=True)
    # In parts, as a watch stores them: a hang is told over all of them.
    for at in range(0, table.num_rows, 50):
        lake.append("device_samples", table.slice(at, 50), source="prometheus:x")
    return root / "lake"


def at_s(row: dict[str, Any]) -> int:
    return int(row["ts_us"] // 1_000_000 - BEGIN_S)


def hung(device: str, first_h: int, last_h: int, **values: float) -> list[dict[str, Any]]:
    still = {"util_ratio": 1.0, "power_w": 700.0, "temperature_c": 90.0}
    return [
        sample(device, at, **still, **values)
        for at in range(first_h * HOUR_S, last_h * HOUR_S, STEP_S)
    ]


def test_hours_in_which_nothing_moves_are_counted_apart(tmp_path: Path) -> None:
    well = [sample("GPU-a", at) for at in range(0, 6 * HOUR_S, STEP_S)]
    lake = stored(tmp_path, [*well, *hung("GPU-b", 0, 3)])
    ws = open_workspace(lake)
    (day,) = device_days(ws)
    assert (day.devices, day.samples, day.stale_samples) == (2, 540, 180)
    assert day.util_ratio == pytest.approx(0.5)
    assert day.power_w == pytest.approx(303, abs=0.1)
    assert (day.power_max_w, day.temperature_max_c, day.hottest) == (306, 50, "n1 GPU-a")
    unused = capacity(ws, None)
    assert unused.utilisation.value == pytest.approx(0.5)
    assert unused.devices == 2
    assert any(
        text.startswith("180 samples of hours and minutes") for text in unused.utilisation.warnings
    )


def test_the_hours_that_a_hang_begins_and_ends_in(tmp_path: Path) -> None:
    # Well until 00:40, hung from there on until 03:15, then well again until 04:00.
    well = {"util_ratio": 0.05}
    rows = [sample("GPU-b", at, **well) for at in range(0, 40 * 60, STEP_S)]
    rows += [row for row in hung("GPU-b", 0, 4) if 40 * 60 <= at_s(row) < (3 * 60 + 15) * 60]
    rows += [sample("GPU-b", at, **well) for at in range((3 * 60 + 15) * 60, 4 * HOUR_S, STEP_S)]
    ws = open_workspace(stored(tmp_path, rows))
    (day,) = device_days(ws)
    (idle,) = ws.engine.run("fleet_idle").to_pylist()
    assert day.stale_samples == idle["stale_samples"] == stale_samples(series(rows)).sum() == 154
    # The first sample of the hang was measured.
    assert idle["samples"] == 240 - 154
    assert idle["idle_samples"] == 85
    assert day.util_ratio == idle["util_ratio"] == pytest.approx((85 * 0.05 + 1.0) / 86)


def test_the_published_case(shared: Any, tmp_path: Path, steptax: Any) -> None:
    path = shared("cases/22-stale-values-after-failure/gpu.csv")
    steptax("ingest", "device-samples", str(path), "--map", "ts=t_s")
    (day,) = steptax("rollup")["days"]
    assert (day["samples"], day["stale_samples"]) == (90, 50)


@pytest.mark.parametrize("moving", ["energy_j", "sm_clock_mhz", "memory_used_bytes"])
def test_one_value_that_moves_shows_that_samples_are_fresh(tmp_path: Path, moving: str) -> None:
    rows = hung("GPU-b", 0, 2)
    for number, row in enumerate(rows):
        row[moving] = 1000 + number // 30
    (day,) = device_days(open_workspace(stored(tmp_path, rows)))
    assert day.stale_samples == 0
    assert day.util_ratio == pytest.approx(1.0)


def test_few_samples_of_an_hour_and_those_without_power_are_not_judged(tmp_path: Path) -> None:
    rows = hung("GPU-b", 0, 1)[:10]
    rows += [row | {"power_w": None} for row in hung("GPU-c", 0, 2)]
    (day,) = device_days(open_workspace(stored(tmp_path, rows)))
    assert (day.samples, day.stale_samples) == (130, 0)


def test_a_day_of_nothing_but_repeats_has_no_figures(tmp_path: Path, steptax: Any) -> None:
    stored(tmp_path, hung("GPU-b", 0, 24))
    data = steptax("rollup")
    (day,) = data["days"]
    assert day["stale_samples"] == day["samples"] == 1440
    assert [day[name] for name in ("util_ratio", "power_w", "hottest", "throttled_ratio")] == [
        None, None, None, None,
    ]  # fmt: skip
