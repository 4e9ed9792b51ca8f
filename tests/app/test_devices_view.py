"""Devices of a job: samples joined to its ranks over the time of its steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.charts.devices import devices_table
from steptax.app.cli import main
from steptax.app.compute.devices.findings import Kind
from steptax.app.errors import NotFoundError
from steptax.app.lake import Lake
from steptax.app.views.devices import view as module
from steptax.app.views.devices.text import coverage, finding_text, lines, notes, verdict
from steptax.app.views.devices.view import DevicesView, devices_view
from steptax.app.views.workspace import open_workspace
from tests.app import device_lake
from tests.app.device_lake import HOT, RANKS, START, STEPS, store_ranks, store_samples, store_steps
from tests.app.fleet_lake import HOUR, S, job, rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(tmp_path / "lake", create=True)
    store_steps(found, "a")
    return found


def view(lake: Lake, **options: Any) -> DevicesView:
    return devices_view(open_workspace(lake.root), "a", **options)


def test_the_hot_device_is_first_with_its_peers_beside_it(lake: Lake) -> None:
    store_ranks(lake, "a")
    store_samples(lake)
    found = view(lake)
    assert found.window_us == (START, START + STEPS * S)
    assert found.known == RANKS
    assert [one.rank for one in found.facts] == [HOT, 0, 1, 2, 3, 4, 6, 7]
    worst = found.facts[0]
    assert worst.host == "node-1"
    # the sample before the window and those after it do not count
    assert worst.samples == STEPS
    assert worst.throttled_by["sw_thermal"] == pytest.approx(50 / 60)
    assert worst["sm_clock_mhz"].peers.value == 1755.0
    assert [f.kind for f in found.findings] == [Kind.CLOCK, Kind.THROTTLED, Kind.HOT]
    assert verdict(found) == (
        "Rank 5's GPU ran at 1,218 MHz while its peers ran at 1,755 (thermal slowdown 83.3 % of "
        "its time at work)."
    )
    (line,) = lines(found)
    assert "node-1" in line
    assert "reached 88 °C while its peers reached 62" in line
    assert "8 of 8 ranks' devices observed by nvml, 100.0 % of the time" in coverage(found)
    assert notes(found) == ()


def test_the_last_steps_are_the_window(lake: Lake) -> None:
    store_ranks(lake, "a")
    store_samples(lake, {HOT: lambda s: device_lake.hot(s) if s < 30 else {}})
    assert view(lake, last_steps=10).findings == ()
    assert view(lake, last_steps=10).window_us == (START + 50 * S, START + 60 * S)
    assert view(lake).facts[0].throttled_by["sw_thermal"] == pytest.approx(20 / 60)


def test_equal_numbers_are_not_joined(lake: Lake) -> None:
    store_ranks(lake, "a", gpu_uuid=None)
    store_samples(lake)
    found = view(lake)
    assert found.known == 0
    assert found.findings == ()
    assert verdict(found) == (
        "Nothing is known of the devices: GPU not identified: the rank's record has only a number "
        "of its device (3), which others count differently (and 7 alike)."
    )
    assert "0 of 8 ranks' devices" in coverage(found)


def test_devices_that_were_not_sampled_are_not_healthy(lake: Lake) -> None:
    store_ranks(lake, "a")
    store_samples(lake, {}, devices=range(6))
    found = view(lake)
    assert verdict(found).startswith("None of the 6 devices that are known is out of line")
    assert [one.rank for one in found.facts if one.reason] == [6, 7]
    (note,) = notes(found)
    assert note.startswith("2 not known: no samples of GPU-00000006")
    table = devices_table(found)
    keys = [column.key for column in table.columns]
    by_rank = {row[0]: dict(zip(keys, row, strict=True)) for row in table.rows}
    assert (by_rank[0]["finding"], by_rank[0]["throttled_by"]) == ("nothing", "nothing")
    assert by_rank[6]["finding"] is by_rank[6]["throttled_ratio"] is by_rank[6]["xid"] is None
    assert "no samples" in by_rank[6]["unknown"]
    assert by_rank[0]["pcie"] == "gen 5 x16 of gen 5 x16"


def test_a_collector_that_hung_is_told_and_its_values_are_not(lake: Lake) -> None:
    stuck = {"power_w": 111.0, "sm_clock_mhz": 300.0}
    store_ranks(lake, "a")
    store_samples(lake, {3: lambda s: stuck if s >= 20 else {}})
    found = view(lake)
    one = found.facts[0]
    assert (one.rank, [f.kind for f in found.findings]) == (3, [Kind.STALE])
    # the first of the repeated ones was a measurement
    assert one.value("sm_clock_mhz") == pytest.approx((20 * 1755 + 300) / 21, rel=1e-6)
    assert one.stale.value == pytest.approx(39 / 60)
    assert "was not observed for 65.0 %: a collector repeated old values" in lines(found)[0]


def test_two_monitors_complete_each_other(lake: Lake) -> None:
    store_ranks(lake, "a")
    store_samples(lake)
    exporter = [
        {
            "host": f"pod-{rank}",
            "gpu_uuid": device_lake.uuid(rank),
            "ts_us": START + second * S + 400_000,
            "util_ratio": 0.99,
            "memory_temperature_c": 80.0 + rank,
        }
        for rank in range(RANKS)
        for second in range(0, STEPS, 15)
    ]
    lake.append("device_samples", rows(exporter), source="prometheus:dcgm")
    worst = view(lake).facts[0]
    assert worst.monitors == ("nvml", "prometheus")
    assert worst.host == "node-1"
    assert worst.value("memory_temperature_max_c") == 85.0
    assert worst.value("sm_clock_mhz") == pytest.approx(1217.5)
    assert worst.observed.value == 1.0


ODD = {
    "power_limit": ({"power_limit_w": 500.0}, "was limited to 500 W while its peers were limited"),
    "pcie": ({"pcie_width": 8}, "had PCIe gen 5 x8 of gen 5 x16, its peers x16"),
    "nvlink_down": ({"nvlink_up": 17}, "had 17 NVLink links up at the least (its peers: 18)"),
    "xid": ({"xid": 79}, "gave Xid 79 (fell off the bus) of before, or at the start"),
    "health": ({"health": "lost"}, "was reported as lost for 100.0 % of the time observed"),
    "throttled": ({"throttle_reasons": 0x80}, "was held back: power brake 100.0 %"),
    "clock": (
        {"sm_clock_mhz": 1410.0, "throttle_reasons": 0x2},
        "ran at 1,410 MHz while its peers ran at 1,755 (a clock that was set 100.0 % of its time",
    ),
    "hot": ({"temperature_c": 90.0}, "reached 90 °C while its peers reached 62"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_out_of_line_is_said(lake: Lake, kind: str) -> None:
    told, text = ODD[kind]
    store_ranks(lake, "a")
    store_samples(lake, {2: lambda _: told})
    (finding,) = view(lake).findings
    assert (finding.facts.rank, finding.kind.value) == (2, kind)
    assert finding_text(finding).startswith(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ecc_uncorrected", "had 3 more uncorrected memory errors (its peers: 0)"),
        ("remapped_rows", "had 3 more memory rows remapped (its peers: 0)"),
        ("nvlink_errors", "had 3,000 more NVLink errors (its peers: 0)"),
    ],
)
def test_counters_that_grew_are_said(lake: Lake, name: str, text: str) -> None:
    grown = 3000 if name == "nvlink_errors" else 3
    store_ranks(lake, "a")
    store_samples(lake, {2: lambda s: {name: 5 + (grown if s > 30 else 0)}})
    (finding,) = view(lake).findings
    assert finding_text(finding) == text


def test_a_window_with_too_many_samples_is_cut_and_says_so(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_ranks(lake, "a")
    store_samples(lake)
    monkeypatch.setattr(module, "MAX_SAMPLES", 240)
    found = view(lake)
    assert found.window_us == (START + 30 * S, START + 60 * S)
    assert found.facts[0].throttled_by["sw_thermal"] == 1.0
    assert "only the newest part" in found.warnings[0]
    assert "480 samples" in found.warnings[0]


def test_samples_of_other_jobs_devices_are_not_read(lake: Lake) -> None:
    store_ranks(lake, "a")
    store_samples(lake, {}, devices=range(RANKS))
    store_samples(lake, {9: device_lake.hot}, devices=range(8, 12))
    found = view(lake)
    assert found.findings == ()
    assert len(found.facts) == RANKS


def test_without_steps_in_real_time_the_record_tells_the_window(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    lake.append("jobs", rows([job("a", START, START + HOUR, world_size=9)]), source="t")
    store_ranks(lake, "a")
    store_samples(lake)
    found = view(lake)
    assert found.window_us == (START, START + HOUR)
    assert found.facts[0].observed.value == pytest.approx(90 / 3600)
    assert found.warnings == ("1 rank has no record of where they run",)


def test_what_is_lacking_is_said(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match="no record"):
        view(lake)
    with pytest.raises(NotFoundError, match="there is no job"):
        devices_view(open_workspace(lake.root), "b")
    lake.append("jobs", rows([{"job_id": "c"}]), source="t")
    store_ranks(lake, "c")
    with pytest.raises(NotFoundError, match="when job 'c' ran is not known"):
        devices_view(open_workspace(lake.root), "c")


def test_the_command(
    lake: Lake,
    steptax: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store_ranks(lake, "a")
    store_samples(lake, devices=range(7))
    data = steptax("devices", "a")
    assert data["verdict"].startswith("Rank 5's GPU ran at 1,218 MHz")
    assert data["findings"][0]["kind"] == "clock"
    first, last = data["ranks"][0], data["ranks"][-1]
    assert first["rank"] == HOT
    assert first["figures"]["sm_clock_mhz"]["own"]["value"] == pytest.approx(1217.5)
    assert first["figures"]["sm_clock_mhz"]["own"]["unit"] == "MHz"
    assert first["figures"]["sm_clock_mhz"]["peers"]["value"] == 1755.0
    assert first["throttled_by"]["sw_thermal"] == pytest.approx(5 / 6)
    assert first["totals"]["ecc_uncorrected"]["value"] == 0
    assert (last["rank"], last["xid_reason"]) == (7, last["reason"])
    assert last["figures"]["power_w"]["own"] | {"value": None} == last["figures"]["power_w"]["own"]
    assert steptax("devices", "a", "--window", 10)["window_basis"] == "steps 50 to 59"
    assert "there is no job 'b'" in steptax("devices", "b", fails=2)["message"]
    monkeypatch.setattr(sys, "argv", ["steptax", "devices", "a"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert "Rank 5's GPU ran at 1,218 MHz" in said
    assert said.count("1 not known: no samples of") == 1
