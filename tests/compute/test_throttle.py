"""Throttle masks: what is throttling and what is not."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.causes.throttle import (
    IDLE,
    REASONS,
    THROTTLES,
    THROTTLING,
    ThrottleTime,
    throttle_time,
)
from steptax.app.compute.devices.series import NO_MASK

MINUTE_US = 60_000_000


def time_of(found: list[tuple[str, int | None]], each_us: int) -> tuple[list[str], ThrottleTime]:
    """Devices in their order, and the time of masks by device."""
    names = sorted({device for device, _ in found})
    return names, throttle_time(
        np.array([names.index(device) for device, _ in found], dtype=np.int64),
        np.array([NO_MASK if mask is None else mask for _, mask in found], dtype=np.int64),
        np.full(len(found), each_us, dtype=np.int64),
        len(names),
    )


@pytest.mark.parametrize(
    ("mask", "named", "throttles"),
    [
        (0, (), False),
        (1, (), False),
        (2, ("applications_clocks",), False),
        (4, ("sw_power_cap",), True),
        (0x10, ("sync_boost",), False),
        (0x100, ("display_clocks",), False),
        (0x48, ("hw_slowdown", "hw_thermal"), True),
        (0xA0, ("sw_thermal", "hw_power_brake"), True),
        (5, (), False),  # an idle device is not throttled, whatever else is said
        (0x1000, (), False),
    ],
)
def test_bits(mask: int, named: tuple[str, ...], throttles: bool) -> None:
    _, found = time_of([("a", mask)], 7)
    assert tuple(name for name, us in found.by_reason_us.items() if us[0]) == named
    assert found.throttled_us[0] == (7 if throttles else 0)
    assert found.idle_us[0] == (7 if mask & 1 else 0)
    assert throttles == bool(THROTTLES & set(named))


def test_an_unknown_mask_is_neither_throttled_nor_free() -> None:
    _, found = time_of([("a", None), ("a", 4), ("a", 2)], MINUTE_US)
    assert found.unknown_us.tolist() == [MINUTE_US]
    assert found.throttled_us.tolist() == [MINUTE_US]
    assert found.free_us.tolist() == [MINUTE_US]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 0x1FF)), max_size=60))
def test_time_adds_up(found: list[tuple[str, int | None]]) -> None:
    names, told = time_of(found, 7)
    for place, name in enumerate(names):
        masks = [mask for device, mask in found if device == name]
        busy = [m for m in masks if m is not None and not m & IDLE]
        idle = [m for m in masks if m is not None and m & IDLE]
        assert told.unknown_us[place] == 7 * sum(m is None for m in masks)
        assert told.idle_us[place] == 7 * len(idle)
        assert told.throttled_us[place] == 7 * sum(bool(m & THROTTLING) for m in busy)
        assert told.free_us[place] == 7 * sum(not m & THROTTLING for m in busy)
        for bit, reason in REASONS.items():
            if bit != IDLE:
                assert told.by_reason_us[reason][place] == 7 * sum(bool(m & bit) for m in busy)


def test_a_recorded_night_of_four_devices(shared: Callable[[str], Path]) -> None:
    folder = shared("cases/19-throttle-bits")
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])
    with (folder / "clocks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    masks = [int(row["clocks_event_reasons"], 0) for row in rows]
    names, found = time_of(
        [(row["uuid"], mask) for row, mask in zip(rows, masks, strict=True)], MINUTE_US
    )
    minutes = dict(zip(names, (found.throttled_us // MINUTE_US).tolist(), strict=True))
    assert minutes == want["throttled_minutes"]
    by_reason = {k: int(v.sum()) // MINUTE_US for k, v in found.by_reason_us.items() if v.any()}
    assert {k: v for k, v in by_reason.items() if k in THROTTLES} == want["by_reason_minutes"]
    assert sum(minutes.values()) / 60 == want["throttled_gpu_hours"]
    assert found.idle_us.sum() // MINUTE_US == want["idle_minutes"]
    assert sum(mask != 0 for mask in masks) == want["naive_nonzero_mask_minutes"]
