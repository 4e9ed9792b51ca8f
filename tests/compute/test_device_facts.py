"""Facts of each rank's device beside its peers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.devices.facts import FIGURES, DeviceFacts, device_facts
from steptax.app.compute.devices.findings import Kind, device_findings
from steptax.app.compute.devices.join import RankDevice
from steptax.app.compute.devices.sums import Xid
from tests.compute.device_rows import SECOND_US, series

TICKS = 60
WINDOW = (0, TICKS * SECOND_US)


def uuid(rank: int) -> str:
    return f"GPU-{rank:08x}-aaaa-bbbb"


def rows(rank: int, **told: Any) -> list[dict[str, Any]]:
    """A minute of a healthy device at work; a callable gives the value of each second."""
    usual = {
        "util_ratio": 0.98,
        "power_w": lambda t: 600.0 + t % 7,
        "power_limit_w": 700.0,
        "temperature_c": 60.0,
        "sm_clock_mhz": 1755.0,
        "throttle_reasons": 0,
        "ecc_uncorrected": 0,
        "remapped_rows": 0,
        "xid": 0,
        "pcie_gen": 5,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlink_errors": 0,
        "nvlink_up": 18,
    } | told
    return [
        {"gpu_uuid": uuid(rank), "ts_us": t * SECOND_US}
        | {name: value(t) if callable(value) else value for name, value in usual.items()}
        for t in range(TICKS)
    ]


def facts(*devices: list[dict[str, Any]], ranks: int | None = None) -> tuple[DeviceFacts, ...]:
    samples = series([row for device in devices for row in device], end_us=WINDOW[1])
    places = [RankDevice(r, "node", uuid(r)) for r in range(ranks or len(devices))]
    return device_facts(places, samples, WINDOW)


def findings(*devices: list[dict[str, Any]]) -> list[tuple[int, Kind]]:
    return [(f.facts.rank, f.kind) for f in device_findings(facts(*devices))]


def test_healthy_devices_have_no_finding() -> None:
    found = facts(*(rows(r) for r in range(4)))
    assert device_findings(found) == ()
    for one in found:
        assert one.reason is None
        assert one.observed.value == 1.0
        assert one.at_work.value == 1.0
        assert one.stale.value == 0.0
        assert one.value("sm_clock_mhz") == one["sm_clock_mhz"].peers.value == 1755.0
        assert one.value("throttled_ratio") == 0.0
        assert one.xids == ()
        assert one.xid_reason is None


def test_a_hot_device_is_slower_than_its_peers_and_says_why() -> None:
    hot = rows(
        1,
        sm_clock_mhz=lambda t: 1110.0 if t >= 12 else 1755.0,
        throttle_reasons=lambda t: 0x60 if t >= 12 else 0,
        temperature_c=lambda t: 88.0 if t >= 12 else 61.0,
    )
    found = facts(rows(0), hot, rows(2), rows(3))
    one = found[1]
    assert one.throttled_by["sw_thermal"] == one.throttled_by["hw_thermal"] == 0.8
    assert one.throttled_by["sw_power_cap"] == 0.0
    assert one.value("throttled_ratio") == 0.8
    assert one.value("sm_clock_mhz") == pytest.approx(0.8 * 1110 + 0.2 * 1755)
    assert one["sm_clock_mhz"].ratio == pytest.approx((0.8 * 1110 + 0.2 * 1755) / 1755)
    assert one["temperature_max_c"].difference == 28.0
    kinds = [(f.facts.rank, f.kind) for f in device_findings(found)]
    assert kinds == [(1, Kind.CLOCK), (1, Kind.THROTTLED), (1, Kind.HOT)]


def test_time_at_rest_says_nothing_of_the_clock() -> None:
    def half(busy: Any, idle: Any) -> Any:
        return lambda t: busy if t < 30 else idle

    resting = {
        "util_ratio": half(0.98, 0.0),
        "sm_clock_mhz": half(1755.0, 345.0),
        "throttle_reasons": half(0, 1),
        "pcie_gen": half(5, 1),
        "power_w": lambda t: (600.0 if t < 30 else 80.0) + t % 7,
    }
    found = facts(rows(0), rows(1, **resting), rows(2))
    assert found[1].value("sm_clock_mhz") == 1755.0
    assert found[1].value("pcie_gen") == 5.0
    assert found[1].at_work.value == 0.5
    assert found[1].value("util_ratio") == pytest.approx(0.49)
    assert device_findings(found) == ()
    asleep = facts(rows(0, util_ratio=0.0, throttle_reasons=1, sm_clock_mhz=345.0), rows(1))
    assert asleep[0].value("sm_clock_mhz") is None
    assert asleep[0]["sm_clock_mhz"].own.reason == (
        "the device was never seen at work in the window"
    )
    # the clock of a device at rest is no peer's
    assert asleep[1]["sm_clock_mhz"].peers.value is None


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"power_limit_w": 500.0}, Kind.POWER_LIMIT),
        ({"ecc_uncorrected": lambda t: t // 50}, Kind.ECC),
        ({"remapped_rows": lambda t: 3 + t // 50}, Kind.REMAPPED),
        ({"pcie_width": 8}, Kind.PCIE),
        ({"pcie_width": 8, "pcie_width_max": 8}, Kind.PCIE),
        ({"pcie_gen": 3}, Kind.PCIE),
        ({"nvlink_up": 17}, Kind.NVLINK_DOWN),
        ({"nvlink_errors": lambda t: 40 * t}, Kind.NVLINK_ERRORS),
        ({"xid": lambda t: 79 if t > 40 else 0}, Kind.XID),
        ({"temperature_c": lambda t: 75.0 + t % 2}, Kind.HOT),
        ({"throttle_reasons": lambda t: 0x80 if t % 2 else 0}, Kind.THROTTLED),
        ({"throttle_reasons": 0x4}, Kind.THROTTLED),
        ({"sm_clock_mhz": 1600.0}, Kind.CLOCK),
    ],
)
def test_what_is_out_of_line(told: dict[str, Any], kind: Kind) -> None:
    assert findings(rows(0), rows(1), rows(2, **told), rows(3)) == [(2, kind)]


@pytest.mark.parametrize(
    "told",
    [
        {"throttle_reasons": 0x4},  # all are at their power limit
        {"remapped_rows": 3, "ecc_uncorrected": 2},  # of before the window
        {"nvlink_errors": lambda t: t // 30},
        {"nvlink_up": 12},
        {"sm_clock_mhz": 1000.0},
    ],
)
def test_what_is_usual_here(told: dict[str, Any]) -> None:
    assert findings(*(rows(r, **told) for r in range(4))) == []


def test_counters_count_from_the_beginning_of_the_window() -> None:
    one, two = facts(
        rows(0, ecc_uncorrected=lambda t: 7 if t < 20 else 9 if t < 40 else 1),
        rows(1, ecc_uncorrected=lambda t: 7 if t == 3 else None),
    )
    # a driver that was loaded anew counts from 0
    assert one.value("ecc_uncorrected") == 2 + 1
    assert one.totals["ecc_uncorrected"].value == 1
    assert two.value("ecc_uncorrected") is None
    assert "told only once" in str(two["ecc_uncorrected"].own.reason)
    assert two.totals["ecc_uncorrected"].value == 7


def test_codes_are_told_with_their_moment() -> None:
    one, two, three = facts(
        rows(0, xid=lambda t: 0 if t < 10 else 48 if t < 20 else 79),
        rows(1, xid=31),
        rows(2, xid=None),
    )
    assert one.xids == (Xid(48, 10 * SECOND_US, True), Xid(79, 20 * SECOND_US, True))
    assert two.xids == (Xid(31, 0, False),)
    assert three.xids == ()
    assert three.xid_reason == "the device does not tell its Xids"


def test_a_device_that_is_gone() -> None:
    lost = rows(1)[:30] + [
        {"gpu_uuid": uuid(1), "ts_us": t * SECOND_US, "health": "lost"} for t in range(30, TICKS)
    ]
    found = facts(rows(0), lost, rows(2))
    assert found[1].health == {"lost": 0.5}
    assert found[1].observed.value == 1.0
    assert found[1].at_work.value == 0.5
    assert found[1].value("sm_clock_mhz") == 1755.0
    assert [f.kind for f in device_findings(found)] == [Kind.HEALTH]


def test_repeated_values_enter_nothing() -> None:
    hung = rows(
        1,
        power_w=lambda t: 600.0 + t if t < 30 else 111.0,
        sm_clock_mhz=lambda t: 1755.0 if t < 30 else 999.0,
        throttle_reasons=lambda t: 0 if t < 30 else 0x40,
        temperature_c=lambda t: 60.0 if t < 30 else 99.0,
    )
    found = facts(rows(0), hung, rows(2))
    one = found[1]
    # the first of the repeated ones was measured
    assert one.stale.value == pytest.approx(29 / 60)
    assert one.observed.value == pytest.approx(31 / 60)
    assert one.throttled_by["hw_thermal"] == pytest.approx(1 / 31)
    assert one.value("sm_clock_mhz") == pytest.approx((30 * 1755 + 999) / 31)
    assert one.newest_us == 30 * SECOND_US
    assert Kind.STALE in [f.kind for f in device_findings(found)]


def test_what_is_not_told_is_missing_with_its_reason() -> None:
    bare = [{"gpu_uuid": uuid(1), "ts_us": t * SECOND_US, "power_w": 300.0 + t} for t in range(60)]
    found = facts(rows(0), bare, ranks=3)
    assert found[1].value("power_w") == pytest.approx(329.5)
    for name in ("sm_clock_mhz", "throttled_ratio", "ecc_uncorrected", "pcie_width", "util_ratio"):
        assert found[1].value(name) is None
        assert found[1][name].own.reason == f"the device does not tell its {FIGURES[name].title}"
    assert found[1].throttled_by == {}
    # the third rank's device was never sampled
    assert found[2].samples == 0
    assert found[2].reason is not None
    assert found[2].reason.startswith("no samples of GPU-00000002")
    assert {a.own.reason for a in found[2].figures.values()} == {found[2].reason}
    assert device_findings(found) == ()


def test_one_sample_says_how_it_is_and_not_how_it_was() -> None:
    found = facts(*([row for row in rows(r) if row["ts_us"] == 0] for r in range(2)))
    assert found[0].value("sm_clock_mhz") == 1755.0
    assert found[0].value("throttled_ratio") == 0.0
    assert found[0].at_work.value is None
    assert found[0].observed.value == 0.0


def test_peers_are_of_the_same_model_and_group() -> None:
    samples = series(
        row | {"gpu_model": model}
        for r, model in enumerate(("H100", "H100", "A100", "H100", "H100"))
        for row in rows(r, sm_clock_mhz=1000.0 + 100 * r)
    )
    ranks = [RankDevice(r, "node", uuid(r)) for r in range(5)]
    found = device_facts(ranks, samples, WINDOW)
    assert [one["sm_clock_mhz"].peers.value for one in found] == [1300, 1300, None, 1100, 1100]
    by_stage = device_facts(ranks, samples, WINDOW, groups=(0, 0, 0, 1, 1))
    assert [one["sm_clock_mhz"].peers.value for one in by_stage] == [1100, 1000, None, 1400, 1300]


def test_two_monitors_of_one_device_are_one_device() -> None:
    keep = ("gpu_uuid", "ts_us", "util_ratio")
    other = [
        {name: row[name] for name in keep} | {"host": "pod", "monitor": "dcgm"} for row in rows(0)
    ]
    (one, _) = facts([*rows(0), *other], rows(1))
    assert one.monitors == ("nvml", "dcgm")
    assert one.samples == 2 * TICKS
    assert one.observed.value == 1.0
    assert one.value("util_ratio") == pytest.approx(0.98)


def test_the_odd_card_of_a_recorded_night(shared: Callable[[str], Path]) -> None:
    with shared("cases/19-throttle-bits/clocks.csv").open(newline="") as file:
        samples = series(
            {
                "gpu_uuid": row["uuid"],
                "ts_us": int(row["t_s"]) * SECOND_US,
                "throttle_reasons": int(row["clocks_event_reasons"], 0),
                "sm_clock_mhz": float(row["sm_clock_mhz"]),
                "power_w": float(row["power_w"]),
            }
            for row in csv.DictReader(file)
        )
    names = [name.gpu_uuid for name in samples.names]
    ranks = [RankDevice(r, "node", name) for r, name in enumerate(names)]
    found = device_facts(ranks, samples, (0, 120 * 60 * SECOND_US))
    # the idle half hour counts for none of them
    assert found[1].throttled_by["sw_power_cap"] == 1.0
    assert found[1].value("sm_clock_mhz") == 1005.0
    assert found[2].throttled_by["hw_thermal"] == pytest.approx(1 / 3)
    assert found[3].throttled_by["sw_power_cap"] == 0.0
    assert found[3].clock_held_by["applications_clocks"] == 1.0
    worst = device_findings(found)[0]
    assert (worst.facts.gpu_uuid, worst.kind) == ("GPU-ffff0001", Kind.CLOCK)
    throttled = [f.facts.gpu_uuid for f in device_findings(found) if f.kind is Kind.THROTTLED]
    assert throttled == ["GPU-ffff0001", "GPU-ffff0002"]


def test_time_that_two_monitors_saw_counts_once() -> None:
    told = rows(0)
    late = [row | {"host": "pod-2"} for row in told if row["ts_us"] >= 30 * SECOND_US]
    # the exporter was started anew under another name: both halves are of one device
    (one,) = facts([row for row in told if row["ts_us"] < 30 * SECOND_US] + late)
    assert one.observed.value == 1.0
    both = facts([row for row in told if row["ts_us"] < 40 * SECOND_US] + late, rows(1))
    assert [one.observed.value for one in both] == [1.0, 1.0]
    apart = facts(rows(0)[:15] + [row | {"host": "pod-2"} for row in told[45:]], rows(1)[:30])
    assert [one.observed.value for one in apart] == [0.5, 0.5]


@given(
    st.lists(
        st.lists(st.tuples(st.none() | st.integers(0, 0xFF), st.none() | st.floats(0, 1))),
        max_size=5,
    )
)
def test_shares_are_shares_and_no_figure_is_invented(
    found: list[list[tuple[int | None, float | None]]],
) -> None:
    devices = [
        [
            {"gpu_uuid": uuid(d), "ts_us": t, "throttle_reasons": mask, "util_ratio": util}
            | {"power_w": 1.0 * t}
            for t, (mask, util) in enumerate(told)
        ]
        for d, told in enumerate(found)
    ]
    samples = series([row for device in devices for row in device], end_us=100)
    ranks = [RankDevice(d, "node", uuid(d)) for d in range(len(found))]
    for one, told in zip(device_facts(ranks, samples, (0, 100)), found, strict=True):
        assert one.samples == len(told)
        throttled = one.value("throttled_ratio")
        if throttled is None:
            assert one.throttled_by == {}
        else:
            assert max(one.throttled_by.values()) <= throttled + 1e-12
            assert throttled <= min(1.0, sum(one.throttled_by.values())) + 1e-12
        utils = [util for _, util in told if util is not None]
        value = one.value("util_ratio")
        assert (value is None) == (not utils)
        if value is not None:
            assert min(utils) - 1e-9 <= value <= max(utils) + 1e-9
        for name in ("sm_clock_mhz", "ecc_uncorrected", "pcie_width"):
            assert one.value(name) is None


def test_one_slow_device_of_many_is_named_alone() -> None:
    count = 256
    found = facts(*(rows(r, sm_clock_mhz=900.0 if r == 77 else 1755.0) for r in range(count)))
    (one,) = device_findings(found)
    assert (one.facts.rank, one.kind) == (77, Kind.CLOCK)
    assert np.isclose(one.size, 1 - 900 / 1755)
