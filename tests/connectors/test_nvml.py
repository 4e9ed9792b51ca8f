"""Sampling devices through NVML, with the library's own structures and errors and no device."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pynvml
import pytest

from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.watch_devices import DeviceWatch
from steptax.connectors.base import Options
from steptax.connectors.devices.nvml import live_batch
from steptax.connectors.devices.nvml_reader import RETRY_EVERY, SLOW_EVERY, NvmlReader
from steptax.connectors.registry import connector
from tests.connectors.fake_nvml import FakeNvml, a100, t4

ROOT = Path(__file__).resolve().parents[2]
START_US = 1_772_359_200_000_000


class Clock:
    """A second goes by between two looks."""

    def __init__(self) -> None:
        self.now_us = START_US - 1_000_000

    def __call__(self) -> int:
        self.now_us += 1_000_000
        return self.now_us


def reader(nvml: FakeNvml) -> NvmlReader:
    return NvmlReader(nvml, "node-1", Clock())


def rows(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what is unknown."""
    found = live_batch(samples).rows.to_pylist()
    return [{k: v for k, v in row.items() if v is not None} for row in found]


def test_three_real_devices() -> None:
    found = reader(FakeNvml()).sample()
    assert orjson.loads(orjson.dumps(found)) == found
    first, second, third = rows(found)
    assert first == {
        "host": "node-1",
        "gpu_uuid": "GPU-513536b6-7d19-9063-b049-1e69664bb298",
        "ts_us": START_US,
        "gpu_index": 0,
        "gpu_model": "NVIDIA A100-SXM4-80GB",
        "memory_used_bytes": 50 << 20,
        "memory_total_bytes": 81920 << 20,
        "power_w": 67.03,
        "power_limit_w": 500.0,
        "energy_j": 91234.567,
        "temperature_c": 27.0,
        "memory_temperature_c": 44.0,
        "sm_clock_mhz": 1275.0,
        "memory_clock_mhz": 1593.0,
        "throttle_reasons": 0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "remapped_rows": 0,
        "xid": 0,
        "pcie_gen": 4,
        "pcie_width": 16,
        "pcie_gen_max": 4,
        "pcie_width_max": 16,
        "nvlink_errors": 0,
        "nvlink_up": 12,
        "mig_enabled": True,
        "processes": 0,
    }
    assert (second["util_ratio"], second["throttle_reasons"], second["processes"]) == (0.0, 1, 1)
    assert (second["pcie_width"], second["pcie_width_max"]) == (8, 16)
    assert (third["util_ratio"], third["power_w"]) == (0.65, 139.62)
    for absent in ("energy_j", "ecc_corrected", "remapped_rows", "nvlink_up", "mig_enabled"):
        assert absent not in third
    unavailable = found[2]["unavailable"]
    assert unavailable["energy_mj"] == "not supported"
    assert unavailable["nvlink_up"] == "not supported"
    assert "energy_mj is not available: not supported" in live_batch(found).notes


def test_a_lost_device_leaves_the_others_and_may_come_back() -> None:
    nvml = FakeNvml()
    sampler = reader(nvml)
    sampler.sample()
    nvml.lost = {1}
    for _ in range(2):
        first, second, third = rows(sampler.sample())
        assert second["health"] == "lost"
        assert second["gpu_uuid"] == "GPU-d37e67a5-91dd-3774-a5cb-99096249601a"
        assert "power_w" not in second
        assert (first["power_w"], third["power_w"]) == (67.03, 139.62)
    nvml.lost = set()
    nvml.calls.clear()
    # a device that is gone may take long to say so: it is not asked at every sample
    found = [rows(sampler.sample())[1].get("power_w") for _ in range(SLOW_EVERY)]
    assert found == [None] * (SLOW_EVERY - 2) + [26.78] * 2
    assert nvml.calls["nvmlDeviceGetHandleByIndex"] == 1


def test_a_device_that_is_lost_from_the_start_is_there_by_its_index() -> None:
    nvml = FakeNvml()
    nvml.lost = {0}
    found = rows(reader(nvml).sample())
    assert (found[0]["gpu_uuid"], found[0]["health"]) == ("index 0", "lost")
    assert [row.get("health") for row in found[1:]] == [None, None]


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "driver not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "driver and library versions differ"),
        (pynvml.NVML_ERROR_UNINITIALIZED, "driver not initialised"),
    ],
)
def test_a_driver_that_restarts_is_picked_up_again(number: int, told: str) -> None:
    nvml = FakeNvml()
    sampler = reader(nvml)
    sampler.sample()
    nvml.driver = number
    for _ in range(3):
        assert [row["health"] for row in rows(sampler.sample())] == [told] * 3
    nvml.driver = None
    found = rows(sampler.sample())
    assert [row["power_w"] for row in found] == [67.03, 26.78, 139.62]
    assert not any("health" in row for row in found)
    assert nvml.life == 2


@pytest.mark.parametrize(
    "absent",
    [
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature"),
    ],
)
def test_functions_that_were_renamed(absent: tuple[str, ...]) -> None:
    found = rows(reader(FakeNvml(absent=absent)).sample())
    assert [row["throttle_reasons"] for row in found] == [0, 1, 4]
    assert [row["temperature_c"] for row in found] == [27.0, 40.0, 27.0]


def test_functions_that_an_older_driver_has_not_are_asked_for_once() -> None:
    newer = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV")
    nvml = FakeNvml(unknown=newer)
    sampler = reader(nvml)
    for _ in range(5):
        found = rows(sampler.sample())
        assert [row["throttle_reasons"] for row in found] == [0, 1, 4]
        assert [row["temperature_c"] for row in found] == [27.0, 40.0, 27.0]
    assert [nvml.calls[name] for name in newer] == [3, 3]


def test_functions_that_the_library_has_not() -> None:
    absent = (
        *("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues", "nvmlEventSetCreate"),
        "nvmlDeviceGetNvLinkState",
    )
    found = reader(FakeNvml(absent=absent)).sample()
    assert found[0]["unavailable"]["energy_mj"] == "not in this library"
    assert found[0]["unavailable"]["nvlink_up"] == "not in this library"
    first = rows(found)[0]
    assert "xid" not in first
    assert "energy_j" not in first
    assert first["power_w"] == 67.03


def test_the_newest_xid_is_that_of_its_device() -> None:
    nvml = FakeNvml()
    sampler = reader(nvml)
    assert [row["xid"] for row in rows(sampler.sample())] == [0, 0, 0]
    nvml.xids = [(1, 48), (1, 79), (2, 13)]
    assert [row["xid"] for row in rows(sampler.sample())] == [0, 79, 13]
    assert [row["xid"] for row in rows(sampler.sample())] == [0, 79, 13]


def test_xids_are_unknown_once_nobody_listens() -> None:
    nvml = FakeNvml()
    sampler = reader(nvml)
    sampler.sample()
    nvml.absent = ("nvmlDeviceGetUUID",)
    nvml.xids = [(1, 79)]
    assert ["xid" in row for row in rows(sampler.sample())] == [False] * 3


def test_link_errors_add_up_and_links_that_are_down_are_not_counted() -> None:
    device = a100()
    device["links"][3] = 0
    device["fields"] |= {38: 5, 52: 1 << 33}
    found = rows(reader(FakeNvml(device)).sample())[0]
    assert (found["nvlink_up"], found["nvlink_errors"]) == (11, (1 << 33) + 5)


def test_link_errors_of_a_generation_that_counts_them_by_link() -> None:
    device = a100()
    device["links"] = [1, 1, 0]
    device["fields"] = {82: 44, (208, 0): 3, (208, 2): 1, (211, 1): 20, (215, 1): 100}
    nvml = FakeNvml(device, t4())
    sampler = reader(nvml)
    found = rows(sampler.sample())
    assert found[0]["nvlink_errors"] == 124
    assert found[0]["memory_temperature_c"] == 44.0
    # the T4 has no links: nobody asks for their fields
    assert "nvlink_errors" not in found[1]
    assert nvml.calls["nvmlDeviceGetFieldValues"] == 3


@pytest.mark.parametrize(
    ("told", "health"),
    [
        ((1, 2, 0, 0), None),
        ((1, 2, 1, 0), "memory rows wait for a reset to be remapped"),
        ((1, 2, 1, 1), "remapping of memory rows failed"),
    ],
)
def test_memory_that_could_not_be_remapped_is_told(told: tuple[int, ...], health: str) -> None:
    device = a100() | {"RemappedRows": told}
    (row,) = rows(reader(FakeNvml(device)).sample())
    assert row["remapped_rows"] == 3
    assert row.get("health") == health
    assert row["power_w"] == 67.03


def test_a_sample_costs_few_calls() -> None:
    nvml = FakeNvml(*(a100() for _ in range(8)))
    for index, device in enumerate(nvml.devices):
        device["UUID"] = f"GPU-{index}"
    sampler = reader(nvml)
    sampler.sample()
    nvml.calls.clear()
    for _ in range(SLOW_EVERY - 1):
        sampler.sample()
    # utilisation is not supported here and is not asked for again so soon
    assert nvml.calls["nvmlDeviceGetUtilizationRates"] == 0
    assert nvml.calls["nvmlDeviceGetNvLinkState"] == 0
    assert sum(nvml.calls.values()) <= (SLOW_EVERY - 1) * (8 * 8 + 2)
    for _ in range(RETRY_EVERY):
        sampler.sample()
    assert nvml.calls["nvmlDeviceGetUtilizationRates"] == 8
    # the A100 has twelve links: the others are asked for once
    assert nvml.calls["nvmlDeviceGetNvLinkState"] == 12 * 8 * (RETRY_EVERY // SLOW_EVERY)


# -- into the lake ---------------------------------------------------------------------------


def watch(lake: Lake, nvml: FakeNvml, **options: Any) -> DeviceWatch:
    ticks = iter(range(10_000))
    found = DeviceWatch(
        lake,
        nvml,
        "node-1",
        clock_us=options.pop("clock_us", Clock()),
        tick_s=lambda: float(next(ticks)),
        **options,
    )
    found.begin()
    return found


def test_samples_become_live_segments(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    nvml = FakeNvml()
    sampler = watch(lake, nvml)
    told = [one for _ in range(25) for one in sampler.sample()] + list(sampler.flush())
    stored = lake.read("device_samples")
    assert stored.num_rows == sum(one.rows for one in told) == 75
    assert len(lake.segments("device_samples")) < 25
    assert set(stored["source"].to_pylist()) == {"nvml:node-1"}
    moments = sorted(set(stored["ts_us"].to_pylist()))
    assert moments == [START_US + i * 1_000_000 for i in range(25)]


def test_a_lake_that_cannot_be_written_gets_everything_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    sampler = watch(lake, FakeNvml(), flush_s=0.0)
    append = Lake.append

    def full(*_: Any, **__: Any) -> list[Path]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lake, "append", full)
    told = [one for _ in range(4) for one in sampler.sample()]
    assert all(one.rows == 0 and "No space left" in (one.fault or "") for one in told)
    assert [one.held for one in told] == [3, 6, 9, 12]
    monkeypatch.setattr(Lake, "append", append)
    assert sum(one.rows for one in sampler.sample()) == 15
    assert lake.read("device_samples").num_rows == 15


def test_what_is_held_is_bounded_and_the_loss_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    sampler = watch(lake, FakeNvml(), held=6)
    notes = [note for _ in range(3) for one in sampler.sample() for note in one.notes]
    assert notes == ["3 oldest samples are lost: the lake could not be written"]
    assert sum(one.rows for one in sampler.flush()) == 6


def test_a_clock_that_was_set_back_repeats_no_moment(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    times = iter([10, 20, 15, 20, 30])
    sampler = watch(lake, FakeNvml(t4()), clock_us=lambda: next(times))
    told = [one for _ in range(5) for one in sampler.sample()]
    assert told == []
    list(sampler.flush())
    assert lake.read("device_samples")["ts_us"].to_pylist() == [10, 20, 30]


def test_devices_that_go_and_come_back_are_told_once(tmp_path: Path) -> None:
    nvml = FakeNvml()
    sampler = watch(Lake(tmp_path / "lake", create=True), nvml, flush_s=1e9)
    heard = []
    for lost in (set(), {1}, *[set()] * 11):
        nvml.lost = lost
        heard.append([note for one in sampler.sample() for note in one.notes])
    name = "device GPU-d37e67a5-91dd-3774-a5cb-99096249601a"
    # the first sample was taken before
    assert heard == [[], [f"{name}: lost"], *[[]] * 9, [f"{name}: answers again"], []]


def test_one_watch_a_node(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    sampler, other = watch(lake, FakeNvml()), watch(lake, FakeNvml())
    with sampler.alone(), pytest.raises(UserError, match="another watch"), other.alone():
        pass
    with other.alone():
        pass


def test_a_recording_gives_the_same_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    path = tmp_path / "node-1.jsonl"
    nvml = FakeNvml()
    sampler = watch(lake, nvml, record=path)
    for turn in range(12):
        nvml.lost = {2} if turn > 6 else set()
        list(sampler.sample())
    list(sampler.flush())
    live = lake.read("device_samples").to_pylist()
    again = [r for b in connector("nvml").read(path, Options()) for r in b.rows.to_pylist()]
    assert len(again) == len(live) == 36
    for found in (live, again):
        found.sort(key=lambda row: (row["gpu_uuid"], row["ts_us"]))
    for row, twin in zip(again, live, strict=True):
        for name in set(row) - {"source_row"}:
            assert row[name] == twin[name], name


def test_the_command(
    tmp_path: Path, steptax: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    record = tmp_path / "raw.jsonl"
    told = steptax("watch", "nvml", "--once", "--host", "node-9", "--record", record)
    assert told["accepted"] == {"device_samples": 3}
    assert Lake(tmp_path / "lake").read("device_samples")["host"].to_pylist() == ["node-9"] * 3
    assert record.read_text().count("\n") == 3


#: The command in a process of its own, with the fake in place of the library.
PROCESS = """
import sys
from tests.connectors.fake_nvml import FakeNvml
sys.modules["pynvml"] = FakeNvml()
from steptax.app.cli import main
main()
"""


def started(lake: Path, record: Path) -> subprocess.Popen[bytes]:
    """A watch that has taken a few samples."""
    before = record.read_text().count("\n") if record.exists() else 0
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", PROCESS, "watch", "nvml", "--lake", str(lake), "--json"),
            *("--host", "node-1", "--interval", "0.05", "--record", str(record)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not record.exists() or record.read_text().count("\n") < before + 9:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)
    return process


def test_a_watch_that_is_told_to_stop_stores_what_it_holds_and_a_killed_one_frees_the_node(
    tmp_path: Path,
) -> None:
    record = tmp_path / "raw.jsonl"
    killed = started(tmp_path / "lake", record)
    killed.kill()
    killed.communicate()
    taken = record.read_text().count("\n")
    stopped = started(tmp_path / "lake", record)
    stopped.terminate()
    printed, _ = stopped.communicate()
    assert stopped.returncode == 0
    stored = Lake(tmp_path / "lake").read("device_samples").num_rows
    assert stored == record.read_text().count("\n") - taken
    assert orjson.loads(printed.splitlines()[-1])["data"]["total"] == {"device_samples": stored}


def test_the_command_without_driver_or_device_says_so(
    steptax: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    nvml.driver = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    error = steptax("watch", "nvml", "--once", fails=2)
    assert "driver not loaded" in error["message"]
    nvml.driver, nvml.devices = None, []
    assert "no NVIDIA device" in steptax("watch", "nvml", "--once", fails=2)["message"]
    assert "expected what to follow" in steptax("watch", "steps", "--once", fails=2)["message"]
