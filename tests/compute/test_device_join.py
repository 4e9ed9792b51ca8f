"""Which samples are of a rank's device: by identity only, never by equal numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from steptax.app.compute.devices.join import RankDevice, join_devices
from steptax.app.compute.devices.series import SeriesName

A = "GPU-d37e67a5-91dd-3774-a5cb-99096249601a"
B = "GPU-513536b6-7d19-9063-b049-1e69664bb298"


def reason_of(rank: RankDevice, *names: SeriesName) -> str:
    (one,) = join_devices([rank], names)
    assert one.series == ()
    assert one.reason is not None
    return one.reason


def test_numbers_of_the_scheduler_are_not_those_of_the_monitor(
    shared: Callable[[str], Path],
) -> None:
    folder = shared("cases/09-gpu-index-mismatch")
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])

    def rows(name: str) -> list[dict[str, str]]:
        with (folder / name).open(newline="") as file:
            return list(csv.DictReader(file))

    telemetry = rows("telemetry.csv")
    names = [SeriesName(row["host"], row["uuid"], "dcgm") for row in telemetry]
    uuid_of = {(row["host"], row["device_minor"]): row["uuid"] for row in rows("gpu_map.csv")}
    for row in rows("allocations.csv"):
        place = row["host"], row["device_minor"]
        told = RankDevice(0, row["host"], uuid_of[place], int(row["device_minor"]))
        (one,) = join_devices([told], names)
        assert names[one.series[0]].gpu_uuid == want[row["job_id"]]["uuid"]
        assert int(telemetry[one.series[0]]["gpu_util_pct"]) == want[row["job_id"]]["util"]
        # without the map equal numbers are not joined
        blind = RankDevice(0, row["host"], None, int(row["device_minor"]))
        assert "GPU not identified" in reason_of(blind, *names)


@pytest.mark.parametrize(
    ("told", "sampled"),
    [
        (A, A),
        (A, A.removeprefix("GPU-").upper()),
        (A.removeprefix("GPU-"), A),
        ("0x4fd3a1b2c3d4e5f6", "0x4FD3A1B2C3D4E5F6"),
        # AMD: as torch gives it (HIP puts the digits in the place of bytes), rocm-smi and amd-smi
        ("GPU-34666433-6131-6232-6333-643465356636", "0x4fd3a1b2c3d4e5f6"),
        ("GPU-30346564-6662-3131-3761-313761303764", "0x4edfb117a17a07d"),
        ("67ff740f-0000-1000-80c6-3ac3c3c637f9", "0x67c63ac3c3c637f9"),
    ],
)
def test_one_identity_in_several_spellings(told: str, sampled: str) -> None:
    (one,) = join_devices([RankDevice(3, "n1", told)], [SeriesName("n1.cluster", sampled, "x")])
    assert one.series == (0,)


def test_an_identity_holds_on_any_name_of_the_node_and_two_monitors_are_one_device() -> None:
    names = [SeriesName("pod-7", A, "dcgm"), SeriesName("n1", B, "nvml"), SeriesName("n1", A, "y")]
    (one,) = join_devices([RankDevice(0, "n1", A)], names)
    assert one.series == (0, 2)


def test_a_short_identity_is_one_of_its_host() -> None:
    names = [SeriesName("n1", "0", "x"), SeriesName("n2", "0", "x")]
    (one,) = join_devices([RankDevice(0, "n2.cluster", "0")], names)
    assert one.series == (1,)
    assert "no samples" in reason_of(RankDevice(0, "n3", "0"), *names)


@pytest.mark.parametrize(
    "uuid",
    [
        *(None, "", " ", "unknown", "N/A", "index 3", "pci 0000:01:00.0"),
        "GPU-58580000-0000-0000-0000-000000000000",  # XX: what HIP says of a device without one
    ],
)
def test_what_is_no_identity_joins_nothing(uuid: str | None) -> None:
    same = SeriesName("n1", uuid or "", "x")
    assert "GPU not identified" in reason_of(RankDevice(0, "n1", uuid, 3), same)


def test_an_instance_is_not_its_card() -> None:
    mig = RankDevice(0, "n1", f"MIG-{A.removeprefix('GPU-')}")
    assert "MIG" in reason_of(mig, SeriesName("n1", A, "nvml"))


def test_reasons_say_what_there_is() -> None:
    rank = RankDevice(0, "n1", A)
    assert "none is there on n1" in reason_of(rank)
    assert "1 other device on n1 has some" in reason_of(rank, SeriesName("n1", B, "nvml"))
