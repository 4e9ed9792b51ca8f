"""Calendar boundaries cut time once, in every zone, and the parts add up."""

from __future__ import annotations

import csv
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.apportion import (
    GpuSpan,
    Unit,
    apportion,
    local_us,
    pieces,
    to_us,
    zone,
)
from steptax.app.errors import InputError, IntegrityError, UserError

HOUR_US = 3_600_000_000
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Havana", "Pacific/Apia"]
)
MOMENTS = st.integers(to_us(datetime(2009, 1, 1, tzinfo=UTC)), 1_800_000_000_000_000)


def at(text: str) -> int:
    return to_us(datetime.fromisoformat(text))


def test_a_month_boundary_is_not_counted_twice(shared: Callable[[str], Path]) -> None:
    spans = []
    with shared("cases/14-month-boundary-counted-twice/jobs.csv").open() as file:
        for row in csv.DictReader(file):
            spans.append(GpuSpan(at(row["start"]), at(row["end"]), int(row["gpus"])))
    months = apportion(spans, Unit.MONTH)
    hours = {month: us / HOUR_US for month, us in months.items()}
    assert hours == pytest.approx({"2025-01": 208.0, "2025-02": 1376.5333, "2025-03": 48.5333})
    whole = sum((s.end_us - s.start_us) * s.gpus for s in spans)
    assert sum(months.values()) == whole
    assert whole / HOUR_US == pytest.approx(1633.0667, abs=1e-4)
    assert sum(apportion(spans, Unit.DAY).values()) == whole


def test_a_real_accounting_file_by_calendar_month(shared: Callable[[str], Path]) -> None:
    spans = []
    for line in shared("fleet/xdmod_phillips_sacct.psv").read_text().splitlines():
        fields = line.split("|")
        resources = dict(part.split("=", 1) for part in fields[22].split(",") if "=" in part)
        gpus = int(resources.get("gres/gpu", 0))
        if gpus:
            spans.append(GpuSpan(at(fields[12] + "+00:00"), at(fields[13] + "+00:00"), gpus))
    months = apportion(spans, Unit.MONTH)
    assert {month: round(us / HOUR_US, 2) for month, us in months.items()} == {
        "2016-12": 465.49,
        "2017-01": 41.42,
    }


@settings(max_examples=150)
@given(
    start=MOMENTS,
    length=st.integers(0, 200 * 24 * HOUR_US),
    unit=st.sampled_from(list(Unit)),
    tz=ZONES,
)
def test_pieces_touch_and_add_up(start: int, length: int, unit: Unit, tz: str) -> None:
    found = pieces(start, start + length, unit, tz)
    assert sum(p.end_us - p.start_us for p in found) == length
    assert all(p.end_us > p.start_us for p in found)
    assert all(a.end_us == b.start_us for a, b in pairwise(found))
    periods = [p.period for p in found]
    assert periods == sorted(set(periods))
    for piece in found:
        for moment in (piece.start_us, piece.end_us - 1):
            day = datetime.fromtimestamp(moment // 1_000_000, zone(tz)).strftime("%Y-%m-%d")
            assert day.startswith(piece.period)


@settings(max_examples=60)
@given(
    spans=st.lists(
        st.builds(
            lambda start, length, gpus: GpuSpan(start, start + length, gpus),
            MOMENTS,
            st.integers(0, 90 * 24 * HOUR_US),
            st.integers(1, 4096),
        ),
        max_size=6,
    ),
    unit=st.sampled_from(list(Unit)),
    tz=ZONES,
)
def test_apportioning_preserves_the_sum_in_any_order(
    spans: list[GpuSpan], unit: Unit, tz: str
) -> None:
    found = apportion(spans, unit, tz)
    assert sum(found.values()) == sum((s.end_us - s.start_us) * s.gpus for s in spans)
    assert found == apportion(spans[::-1], unit, tz)
    assert list(found) == sorted(found)


def test_days_of_a_zone_with_daylight_saving_have_their_own_length() -> None:
    spring = pieces(at("2025-03-29T23:00:00+00:00"), at("2025-03-30T22:00:00+00:00"), Unit.DAY)
    assert [p.period for p in spring] == ["2025-03-29", "2025-03-30"]
    berlin = pieces(
        at("2025-03-29T23:00:00+00:00"), at("2025-03-30T22:00:00+00:00"), Unit.DAY, "Europe/Berlin"
    )
    assert [(p.period, (p.end_us - p.start_us) // HOUR_US) for p in berlin] == [("2025-03-30", 23)]
    autumn = pieces(
        at("2025-10-25T22:00:00+00:00"), at("2025-10-26T23:00:00+00:00"), Unit.DAY, "Europe/Berlin"
    )
    assert [(p.period, (p.end_us - p.start_us) // HOUR_US) for p in autumn] == [("2025-10-26", 25)]


def test_a_zone_that_skipped_a_day_has_none_of_it() -> None:
    found = pieces(
        at("2011-12-29T10:00:00+00:00"), at("2011-12-31T10:00:00+00:00"), Unit.DAY, "Pacific/Apia"
    )
    assert [(p.period, (p.end_us - p.start_us) // HOUR_US) for p in found] == [
        ("2011-12-29", 24),
        ("2011-12-31", 24),
    ]


def test_local_times_are_read_by_the_clock_of_their_zone() -> None:
    summer = local_us(datetime(2025, 7, 1, 12), "Europe/Berlin")
    assert summer == at("2025-07-01T10:00:00+00:00")
    twice = datetime(2025, 10, 26, 2, 30)
    with pytest.raises(InputError, match="twice"):
        local_us(twice, "Europe/Berlin")
    first, second = (local_us(twice, "Europe/Berlin", fold=k) for k in (0, 1))
    assert second - first == HOUR_US
    assert first == at("2025-10-26T00:30:00+00:00")
    with pytest.raises(InputError, match="no clock"):
        local_us(datetime(2025, 3, 30, 2, 30), "Europe/Berlin")
    with pytest.raises(UserError, match="offset of its own"):
        local_us(datetime(2025, 3, 30, 2, 30, tzinfo=UTC), "Europe/Berlin")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="no time zone 'Mars/Olympus'"):
        pieces(0, 1, Unit.DAY, "Mars/Olympus")
    with pytest.raises(UserError, match="no time zone"):
        zone("../etc/passwd")
    with pytest.raises(IntegrityError, match="ends before it starts"):
        pieces(5, 4, Unit.DAY)
    assert pieces(5, 5, Unit.DAY) == []
    assert apportion([], Unit.MONTH) == {}
