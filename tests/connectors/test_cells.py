"""Columns of text or any type as numbers, times and names."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.connectors.tables import cells

GOOD, NULL, BAD = "good", "null", "bad"


def seen(found: cells.Cells) -> list[Any]:
    """Values as a list, with NULL and BAD in their places."""
    values = found.values.to_pylist() if isinstance(found.values, pa.Array) else found.values
    return [
        BAD if bad else NULL if null else (value if isinstance(value, str) else value.item())
        for value, null, bad in zip(values, found.null, found.bad, strict=True)
    ]


def text(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def test_empty_marks_are_null_and_words_are_bad() -> None:
    found = cells.reals(text(*cells.EMPTY, None, " 1.5 ", "+2", "-3e2", ".5", "x", "1_0", "0x10"))
    n = len(cells.EMPTY) + 1
    assert seen(found) == [NULL] * n + [1.5, 2.0, -300.0, 0.5, BAD, BAD, BAD]


def test_no_infinite_value_gets_through() -> None:
    assert seen(cells.reals(text("1e999", "inf", "-Infinity", "1"))) == [BAD, BAD, BAD, 1.0]
    assert seen(cells.reals(text("x", "inf", "-1e999"))) == [BAD, BAD, BAD]
    assert seen(cells.reals(pa.array([math.inf, math.nan, 2.0]))) == [BAD, NULL, 2.0]
    assert seen(cells.times_us(text("1e308", "1"), "s")) == [BAD, 1e6]
    assert seen(cells.times_ns(text("1e308", "1"), "s")) == [BAD, 1_000_000_000]


def test_whole_numbers_are_exact_to_the_last_digit() -> None:
    large = 2**53 + 1
    found = cells.whole(text(str(large), "12.0", "12.5", "1e3", "-7", "", str(2**63)))
    assert seen(found) == [large, 12, BAD, 1000, -7, NULL, BAD]
    typed = cells.whole(pa.array([large, None, -1], pa.int64()))
    assert seen(typed) == [large, NULL, -1]
    assert seen(cells.whole(pa.array([2**64 - 1, 5], pa.uint64()))) == [BAD, 5]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_any_int64_as_text_comes_back(numbers: list[int]) -> None:
    assert seen(cells.whole(text(*map(str, numbers)))) == numbers
    assert seen(cells.whole(pa.array(numbers, pa.int64()))) == numbers


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_any_finite_float_as_text_comes_back(numbers: list[float]) -> None:
    assert cells.reals(text(*map(repr, numbers))).values.tolist() == numbers


@given(st.lists(st.text(max_size=12), min_size=1, max_size=30))
def test_any_text_is_a_number_null_or_bad_as_in_python(values: list[str]) -> None:
    found = cells.reals(text(*values))
    for value, got, null, bad in zip(values, found.values, found.null, found.bad, strict=True):
        if not null and not bad:
            assert got == float(value)


def test_types_of_parquet() -> None:
    assert seen(cells.reals(pa.array([Decimal("1.25"), None]))) == [1.25, NULL]
    assert seen(cells.reals(pa.array([True, None]))) == [BAD, NULL]
    assert seen(cells.reals(pa.array(["1.5", "x"]).dictionary_encode())) == [1.5, BAD]
    assert seen(cells.reals(pa.array(["2", ""], pa.large_string()))) == [2.0, NULL]
    assert seen(cells.reals(pa.array([b"2", b"\xff"], pa.binary()))) == [2.0, BAD]
    assert seen(cells.reals(pa.array([[1], None]))) == [BAD, NULL]
    assert seen(cells.reals(pa.nulls(2))) == [NULL, NULL]


@pytest.mark.parametrize(
    ("unit", "us"),
    [("ns", 0.0015), ("us", 1.5), ("ms", 1500), ("s", 1.5e6), ("min", 9e7), ("h", 5.4e9)],
)
def test_units_of_durations(unit: str, us: float) -> None:
    assert seen(cells.times_us(text("1.5"), unit)) == [pytest.approx(us, rel=1e-15)]


def test_a_relative_unit_counts_as_a_thousand_microseconds() -> None:
    assert seen(cells.times_us(text("476"), "relative")) == [476_000.0]


def test_a_duration_without_unit_is_bad_but_arrow_durations_know_theirs() -> None:
    assert seen(cells.times_us(text("1", ""), None)) == [BAD, NULL]
    typed = pa.array([timedelta(milliseconds=2), None], pa.duration("ms"))
    assert seen(cells.times_us(typed, None)) == [2000.0, NULL]
    assert seen(cells.times_ns(typed, "s")) == [2_000_000, NULL]


def test_nanoseconds_of_today_stay_exact() -> None:
    stamp = 1_700_000_000_123_456_789
    assert seen(cells.times_ns(text(str(stamp)), "ns")) == [stamp]
    assert seen(cells.moments_us(text(str(stamp), str(stamp - 400)), "ns")) == [
        1_700_000_000_123_457,
        1_700_000_000_123_456,
    ]


def test_moments_are_iso_text_or_numbers_with_a_unit() -> None:
    want = int(datetime(2025, 1, 31, 22, tzinfo=UTC).timestamp()) * 1_000_000
    for written in (
        ["2025-01-31T22:00:00Z"],
        ["2025-01-31 22:00:00"],
        ["2025-01-31T23:00:00+01:00", "2025-01-31 22:00"],
        ["2025-01-31T22:00:00.000000000Z"],
    ):
        assert seen(cells.moments_us(text(*written), None)) == [want] * len(written)
    assert seen(cells.moments_us(text(str(want / 1e6)), "s")) == [want]
    mixed = cells.moments_us(text("2025-01-31T22:00:00Z", str(want // 1000), "x", ""), "ms")
    assert seen(mixed) == [want, want, BAD, NULL]
    assert seen(cells.moments_us(text("1738360800", "2025-01-31 22:00", "20250131"), None)) == [
        BAD,
        want,
        BAD,
    ]


def test_moments_of_parquet() -> None:
    stamp = datetime(2017, 10, 9, 7, 1, 55)
    want = int(stamp.replace(tzinfo=UTC).timestamp()) * 1_000_000
    assert seen(cells.moments_us(pa.array([stamp, None]), None)) == [want, NULL]
    assert seen(cells.moments_us(pa.array([stamp], pa.timestamp("ns", "UTC")), None)) == [want]
    day = int(datetime(2017, 10, 9, tzinfo=UTC).timestamp()) * 1_000_000
    assert seen(cells.moments_us(pa.array([date(2017, 10, 9)]), None)) == [day]


def test_names_stay_text() -> None:
    assert seen(cells.names(text("00077", " 1021000_0 ", "N/A", None))) == [
        "00077",
        "1021000_0",
        NULL,
        NULL,
    ]
    assert seen(cells.names(pa.array([7.0, None]))) == ["7", NULL]
    assert seen(cells.names(pa.array([1021000, None]))) == ["1021000", NULL]
    assert seen(cells.names(pa.array([7.5]))) == ["7.5"]


def test_a_cell_is_shown_short_and_quoted() -> None:
    assert cells.cell_text(text("x" * 500), 0) == "'" + "x" * 79
    assert cells.cell_text(text(None), 0) == "nothing"
    assert cells.cell_text(text(""), 0) == "nothing"


def test_masks_are_boolean_arrays() -> None:
    found = cells.reals(text("1", "x"))
    assert found.bad.dtype == np.bool_
    assert found.null.dtype == np.bool_
