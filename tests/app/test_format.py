"""Numbers as people read them: sized, with their unit, never zero for missing."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Measure
from steptax.app.format import (
    format_age,
    format_alike,
    format_count,
    format_hours,
    format_interval,
    format_measure,
    format_moment,
    format_share,
    format_usd,
    format_value,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "$0.00"),
        (0.0042, "$0.0042"),
        (0.01, "$0.01"),
        (0.5, "$0.50"),
        (0.999, "$1.00"),
        (12.4, "$12.40"),
        (999.4, "$999.40"),
        (999.6, "$1,000"),
        (6680, "$6,680"),
        (41_200, "$41,200"),
        (99_960, "$100k"),
        (512_000, "$512k"),
        (999_600, "$1.00M"),
        (1_240_000, "$1.24M"),
        (4.21e9, "$4.21B"),
        (-3.2e6, "−$3.20M"),
        (1e-9, "<$0.01"),
        (Decimal("1234.50"), "$1,234"),
        (None, "unknown"),
    ],
)
def test_dollars_are_compact(value: float | None, text: str) -> None:
    assert format_usd(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_240_000.5, "USD", "$1,240,000.50"),
        (0.00421234, "USD", "$0.00421234"),
        (0.924972, "USD", "$0.92"),
        (0.9999999, "ratio", ">99.9999 %"),
        (0.12345678, "ratio", "12.3457 %"),
        (17.4, "ms", "17.400000 ms"),
        (1.474, "x", "1.474000×"),
    ],
)
def test_full_keeps_what_compact_drops(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit, full=True) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.123, "ratio", "12.3 %"),
        (0.0001, "ratio", "<0.1 %"),
        (-0.0001, "ratio", "about 0 %"),
        (0.0, "ratio", "0.0 %"),
        (1.0, "ratio", "100.0 %"),
        (0.9994, "ratio", "99.9 %"),
        (0.99951, "ratio", ">99.9 %"),
        (0.999999, "ratio", ">99.9 %"),
        (1 - 4e-11, "ratio", ">99.9 %"),
        (sum([0.1] * 10), "ratio", "100.0 %"),
        (1.0004, "ratio", "100.0 %"),
        (1.474, "x", "1.47×"),
        (0.85, "ms", "850 µs"),
        (17.4, "ms", "17.4 ms"),
        (512, "ms", "512 ms"),
        (12_340, "ms", "12.3 s"),
        (17_400, "us", "17.4 ms"),
        (0, "us", "0 µs"),
        (3.2, "s", "3,200 ms"),
        (-1.2, "ms", "−1.20 ms"),
        (1_410_000, "GPU-hours", "1.41M GPU-hours"),
        (4.481, "GPU-hours", "4.48 GPU-hours"),
        (6680, "USD/day", "$6,680/day"),
        (278.3, "USD/h", "$278.30/h"),
        (8, "", "8.00"),
    ],
)
def test_a_value_has_a_readable_size(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_bounds_are_written_in_the_size_of_the_value() -> None:
    assert format_measure(Measure(17.4, "ms", 14.9, 19.8)) == "17.4 ms (14.9–19.8)"
    assert format_measure(Measure(0.95, "ms", 0.9, 1.1)) == "950 µs (900–1,100)"
    assert format_measure(Measure(6680, "USD/day", 5720, 7600)) == "$6,680/day (5,720–7,600)"
    assert format_measure(Measure(1.0, "ms", -2, 3)) == "1.00 ms (−2.00 to 3.00)"
    assert format_interval(Measure(1.0, "ms", low=0.5)) is None


def test_missing_is_unknown_with_its_reason_and_never_zero() -> None:
    text = format_measure(Measure.missing("USD", "no price is set"))
    assert text == "unknown: no price is set"
    for missing in (format_share(None), format_usd(None), format_count(None), format_age(None)):
        assert missing == "unknown"
    assert format_moment(None) == "unknown"


@given(st.floats(1e-7, 1e14), st.sampled_from(["USD", "ratio", "ms", "us", "GPU-hours", "x"]))
def test_a_positive_value_never_reads_as_zero(value: float, unit: str) -> None:
    text = format_value(value, unit)
    digits = re.sub(r"[^1-9]", "", text)
    assert digits, text


@given(st.floats(0.01, 9e14))
def test_compact_dollars_are_within_one_percent(value: float) -> None:
    text = format_usd(value)
    size = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1], 1.0)
    read = float(re.sub(r"[^0-9.]", "", text)) * size
    # A price below a dollar is rounded to two digits, anything else to at least three.
    assert read == pytest.approx(value, rel=0.051 if value < 1 else 0.0051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.02, "20 ms"),
        (0.42, "0.4 s"),
        (14, "14 s"),
        (119, "119 s"),
        (200, "3 min"),
        (7000, "117 min"),
        (9000, "2 h"),
        (200_000, "2 days"),
        (-1, "0 ms"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


def test_moments_are_utc() -> None:
    assert format_moment(1_764_338_585_000_000) == "2025-11-28 14:03:05 UTC"
    assert format_moment(2**62) == format_moment(-(2**62)) == "beyond any date"


def test_counts() -> None:
    assert format_count(4096) == "4,096"
    assert format_count(0) == "0"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (9.9, "s", "9,900 ms"),
        (165.04, "s", "165 s"),
        (999, "s", "999 s"),
        (999.6, "s", "16.7 min"),
        (6_171, "s", "103 min"),
        (103_187, "s", "28.7 h"),
        (2_816, "min", "46.9 h"),
        (12.5, "min", "750 s"),
        (5e6, "s", "1,389 h"),
        (0, "min", "0 min"),
    ],
)
def test_spans_of_time_are_told_in_the_unit_that_suits_them(
    value: float, unit: str, text: str
) -> None:
    assert format_value(value, unit) == text


def test_bounds_that_are_written_like_the_value_are_no_interval() -> None:
    assert format_interval(Measure(0.7221, "ratio", 0.72205, 0.72214)) is None
    assert format_interval(Measure(0.7221, "ratio", 0.721, 0.72214)) == "72.1–72.2"


@pytest.mark.parametrize(
    ("hours", "text"),
    [(12_930.456, "12,930.46"), (0.0, "0.00"), (2.222e-7, "0.00000022"), (3.7333, "3.73")],
)
def test_hours_of_a_ledger_have_no_powers_of_ten(hours: float, text: str) -> None:
    assert format_hours(hours) == text


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ((2_005.0, 45_900.0), "ms", ("2.00 s", "45.9 s")),
        ((45_900.0, 2_005.0, None), "ms", ("45.9 s", "2.00 s", "unknown")),
        ((2_005.0, 5_900.0), "ms", ("2,005 ms", "5,900 ms")),
        ((0.0, 45_900.0), "ms", ("0 s", "45.9 s")),
        ((0.4, 45_900.0), "ms", ("<0.001 s", "45.9 s")),
        ((0.0, 0.0), "ms", ("0 ms", "0 ms")),
        ((None, None), "ms", ("unknown", "unknown")),
        ((0.5, 0.25), "ratio", ("50.0 %", "25.0 %")),
    ],
)
def test_spans_beside_each_other_are_in_one_unit(
    values: tuple[float | None, ...], unit: str, texts: tuple[str, ...]
) -> None:
    assert format_alike(values, unit) == texts
    assert len({text.split()[-1] for text in texts if text != "unknown"}) <= 1


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=5))
def test_one_span_alone_reads_as_it_always_does(values_ms: list[float]) -> None:
    assert format_alike(values_ms[:1], "ms") == (format_value(values_ms[0], "ms"),)
    assert len({text.split()[-1] for text in format_alike(values_ms, "ms")}) == 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (19.0, "steps", "19 steps"),
        (1.0, "steps", "1 step"),
        (0.0, "failures", "0 failures"),
        (1.0, "failures", "1 failure"),
        (99_999.0, "ranks", "99,999 ranks"),
        (1_240_000.0, "steps", "1.24M steps"),
        (2.5, "failures", "2.50 failures"),  # as many as are expected
    ],
)
def test_what_is_counted_has_no_tenths(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_bounds_of_what_is_counted_keep_their_digits() -> None:
    assert format_measure(Measure(3.0, "failures", 0.62, 8.77)) == "3 failures (0.62–8.77)"
