"""Throttle masks: what is throttling, what is not, and who is the odd one."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.throttle import (
    IDLE,
    REASONS,
    THROTTLING,
    Sample,
    reasons,
    throttle_time,
    throttling,
)

MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("mask", "named", "held"),
    [
        (0, (), ()),
        (1, ("idle",), ()),
        (2, ("applications_clocks",), ()),
        (4, ("sw_power_cap",), ("sw_power_cap",)),
        (0x10, ("sync_boost",), ()),
        (0x100, ("display_clocks",), ()),
        (0x48, ("hw_slowdown", "hw_thermal"), ("hw_slowdown", "hw_thermal")),
        (0xA0, ("sw_thermal", "hw_power_brake"), ("sw_thermal", "hw_power_brake")),
        (5, ("idle", "sw_power_cap"), ()),
        (0x1000, ("bit 0x1000",), ()),
    ],
)
def test_bits(mask: int, named: tuple[str, ...], held: tuple[str, ...]) -> None:
    assert reasons(mask) == named
    assert throttling(mask) == held


def test_an_unknown_mask_is_neither_throttled_nor_free() -> None:
    assert throttling(None) is None
    found = throttle_time([Sample("a", None, MINUTE_US), Sample("a", 4, MINUTE_US)])
    assert found.unknown_us == MINUTE_US
    assert found.throttled_us == {"a": MINUTE_US}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 0x1FF)), max_size=60))
def test_time_adds_up(found: list[tuple[str, int | None]]) -> None:
    told = throttle_time(Sample(device, mask, 7) for device, mask in found)
    busy = [m for _, m in found if m is not None and not m & IDLE]
    assert told.unknown_us == 7 * sum(m is None for _, m in found)
    assert told.idle_us == 7 * sum(m is not None and bool(m & IDLE) for _, m in found)
    assert sum(told.throttled_us.values()) == 7 * sum(bool(m & THROTTLING) for m in busy)
    for bit, name in REASONS.items():
        want = 7 * sum(bool(m & bit) for m in busy) if bit & THROTTLING else 0
        assert told.by_reason_us.get(name, 0) == want


def test_the_odd_one_is_named_and_a_common_cause_is_not() -> None:
    one = throttle_time(Sample(d, 4 if d == "b" else 0, 1) for d in "abcd")
    assert one.odd == ("b",)
    assert throttle_time(Sample(d, 4, 1) for d in "abcd").odd == ()
    assert throttle_time(Sample(d, 0, 1) for d in "abcd").odd == ()


def test_a_recorded_night_of_four_devices(shared: Callable[[str], Path]) -> None:
    folder = shared("cases/19-throttle-bits")
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])
    with (folder / "clocks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    masks = [int(row["clocks_event_reasons"], 0) for row in rows]
    found = throttle_time(
        Sample(row["uuid"], mask, MINUTE_US) for row, mask in zip(rows, masks, strict=True)
    )
    minutes = {device: us // MINUTE_US for device, us in found.throttled_us.items()}
    assert minutes == want["throttled_minutes"]
    assert {k: v // MINUTE_US for k, v in found.by_reason_us.items()} == want["by_reason_minutes"]
    assert sum(minutes.values()) / 60 == want["throttled_gpu_hours"]
    assert found.idle_us // MINUTE_US == want["idle_minutes"]
    assert sum(mask != 0 for mask in masks) == want["naive_nonzero_mask_minutes"]
    assert found.odd[0] == "GPU-ffff0001"
