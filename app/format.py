"""One place that turns numbers into text, for pages, charts and commands.

A value that is missing is never printed as zero: it is ``unknown``, with its reason where there is
one. A value too small for its digits is printed as a bound (``<0.1 %``), not as zero, and a share
that is not quite all is not printed as all (``>99.9 %``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from statistics import median

from steptax.app.compute.measure import Measure
from steptax.app.moments import FIRST_US, LAST_US
from steptax.app.words import count_text

UNKNOWN = "unknown"
#: Units of spans of time, in microseconds.
_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6}
#: From how many microseconds on a span is told in which unit, and its size in microseconds.
_SPANS = (
    (7_199.5e6, "h", 3_600e6),
    (999.5e6, "min", 60e6),
    (9_999.5e3, "s", 1e6),
    (999.5, "ms", 1e3),
    (0.0, "µs", 1.0),
)
MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"

#: Powers of thousand with their letter, largest first. Thousands themselves are spelled out below
#: 100,000, where ``$41,200`` reads better than ``$41.2k``.
_LETTERS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_SPELLED_BELOW = 1e5
#: Units of what comes in whole ones, as it is counted: ``19 steps``. Expected ones have fractions.
_COUNTED = frozenset({"steps", "failures", "ranks", "nodes", "events"})


def format_measure(measure: Measure, *, full: bool = False) -> str:
    """Value with unit and interval, e.g. ``17.4 ms (14.9–19.8)``; ``unknown: why`` without one."""
    if measure.value is None:
        return f"{UNKNOWN}: {measure.reason}"
    text = format_value(measure.value, measure.unit, full=full)
    interval = format_interval(measure, full=full)
    return text if interval is None else f"{text} ({interval})"


def format_value(value: float | None, unit: str, *, full: bool = False) -> str:
    """``value`` in a readable size of ``unit``; with ``full``, also the digits rounded away."""
    if value is None:
        return UNKNOWN
    if unit in _COUNTED and float(value).is_integer() and abs(value) < _SPELLED_BELOW:
        text = count_text(abs(round(value)), unit.removesuffix("s"))
        return f"{MINUS}{text}" if value < 0 else text
    return _Scale.of(value, unit, full=full).text(value)


def format_alike(values: Sequence[float | None], unit: str) -> tuple[str, ...]:
    """Values that are read beside each other: spans of time in one unit, that of their middle.

    So ``2.00 s`` stands beside ``45.9 s``, and not ``2,005 ms``. Of any other ``unit`` each as
    ``format_value`` has it.
    """
    known = [abs(value) for value in values if value is not None]
    if unit not in _US or not known:
        return tuple(format_value(value, unit) for value in values)
    like = median(known) or max(known)
    scales = [None if v is None else _Scale.span(v, unit, full=False, like=like) for v in values]
    return tuple(
        UNKNOWN if value is None or scale is None else scale.text(value)
        for value, scale in zip(values, scales, strict=True)
    )


def format_exact(value: float | None, unit: str) -> str:
    """All digits, two decimals at the least, without the zeros that end them: ``864 GPU-hours``.

    Money keeps its cents.
    """
    if value is None:
        return UNKNOWN
    scale = _Scale.of(value, unit, full=True)
    scale.decimals = max(2, scale.decimals)
    text = scale.text(value)
    found = re.match(r"(.*\.)(\d+)(.*)$", text)
    if found is None:
        return text
    before, decimals, after = found.groups()
    least = 2 if unit.startswith("USD") else 0
    kept = decimals[:least] + decimals[least:].rstrip("0")
    return f"{before if kept else before[:-1]}{kept}{after}"


def format_interval(measure: Measure, *, full: bool = False) -> str | None:
    """Both bounds in the size of the value, e.g. ``14.9–19.8``.

    None without both, and where both are written as the value is.
    """
    if measure.value is None or measure.low is None or measure.high is None:
        return None
    scale = _Scale.of(measure.value, measure.unit, full=full)
    low, high = scale.digits(measure.low), scale.digits(measure.high)
    if low == high == scale.digits(measure.value):
        return None
    return f"{low}{DASH}{high}" if not low.startswith(MINUS) else f"{low} to {high}"


def format_range(measure: Measure) -> str:
    """Both bounds with their unit, e.g. ``60.2–72.0 %``, for a column beside that of the value.

    Empty where ``format_interval`` has none.
    """
    interval = format_interval(measure)
    if interval is None or measure.value is None:
        return ""
    scale = _Scale.of(measure.value, measure.unit, full=False)
    return f"{scale.before}{interval}{scale.after}"


def format_usd(value: Decimal | float | None, *, full: bool = False) -> str:
    """Dollars, compact: ``$1.24M``, ``$6,680``, ``$12.40``, ``$0.0042``."""
    return UNKNOWN if value is None else format_value(float(value), "USD", full=full)


def format_share(value: float | None) -> str:
    """A share of one in percent: ``12.3 %``."""
    return format_value(value, "ratio")


def format_count(value: int | None) -> str:
    """A whole number with separators: ``4,096``."""
    return UNKNOWN if value is None else f"{value:,}".replace("-", MINUS)


def format_hours(hours: float) -> str:
    """GPU-hours in a column that adds up: two decimals; of few, what tells them from nothing."""
    return f"{hours:,.2f}" if hours >= 10 or not hours else format_value(hours, "")


def format_age(seconds: float | None) -> str:
    """A span of time in its largest sensible unit: ``0.4 s``, ``14 s``, ``3 min``, ``5 days``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.0995:
        return f"{max(seconds, 0.0) * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, size, word in ((119.5, 1, "s"), (7170.0, 60, "min"), (172_000.0, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {word}"
    return count_text(round(seconds / 86_400), "day")


def format_moment(timestamp_us: int | None) -> str:
    """A time stamp in microseconds as ``2026-11-28 14:03:05 UTC``."""
    if timestamp_us is None:
        return UNKNOWN
    if not FIRST_US <= timestamp_us < LAST_US:
        return "beyond any date"
    return datetime.fromtimestamp(timestamp_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


#: By this much shares that are all of it may add up to less than one, in binary. A chance of
#: 1 - 4e-11 is not noise: it is no certainty.
_NOISE_RATIO = 1e-12


class _Scale:
    """How numbers of one size and unit are written, so that a value and its bounds agree."""

    def __init__(self, factor: float, decimals: int, before: str, after: str) -> None:
        self.factor = factor
        self.decimals = decimals
        self.before = before
        self.after = after

    @classmethod
    def of(cls, value: float, unit: str, *, full: bool) -> _Scale:
        """Choose by ``value``; an unknown unit is appended as it is."""
        if unit == "ratio":
            return cls(100.0, 4 if full else 1, "", " %")
        if unit == "x":
            return cls(1.0, 6 if full else 2, "", "×")
        if unit in _US:
            return cls.span(value, unit, full=full, like=value)
        if unit.startswith("USD"):
            return cls._compact(value, "$", unit.removeprefix("USD"), money=True, full=full)
        return cls._compact(value, "", f" {unit}" if unit else "", money=False, full=full)

    @classmethod
    def span(cls, value: float, unit: str, *, full: bool, like: float) -> _Scale:
        """How a span of time is written, in the unit that suits ``like``; digits by itself."""
        to_us = _US[unit]
        size_us, like_us = abs(value) * to_us, abs(like) * to_us
        word, size = next((word, size) for least, word, size in _SPANS if like_us >= least)
        if like_us == 0:  # no size to choose by: keep the unit it came in
            word, size = ({"us": "µs"}.get(unit, unit), to_us)
        decimals = 6 if full else min(3, _decimals(size_us / size, significant=3))
        return cls(to_us / size, decimals, "", f" {word}")

    @classmethod
    def _compact(cls, value: float, before: str, after: str, *, money: bool, full: bool) -> _Scale:
        size = abs(value)
        least = 2 if money else 0
        if full:
            # Cents for what has dimes; below them the digits that are there.
            exact = least if money and size >= 0.0995 else max(least, _decimals(size, 6))
            return cls(1.0, exact, before, after)
        for power, letter in _LETTERS:
            # 999.6k would round to 1000k, so the larger letter starts a little earlier.
            if size >= max(power * 0.9995, _SPELLED_BELOW * 0.9995):
                decimals = _decimals(size / power, significant=3)
                return cls(1 / power, decimals, before, letter + after)
        if money:
            decimals = 0 if size >= 999.5 else 2 if size >= 0.995 else max(2, _decimals(size, 2))
            # A whole number of cents has no tenths of them: $0.01, not $0.010.
            if round(size, decimals) == round(size, 2):
                decimals = min(decimals, 2)
            return cls(1.0, decimals, before, after)
        return cls(1.0, _decimals(size, significant=3), before, after)

    @property
    def is_share(self) -> bool:
        """Whether one is all there is."""
        return self.after == " %"

    def digits(self, value: float) -> str:
        """The number alone, signed, without currency and unit."""
        scaled = value * self.factor
        text = f"{abs(scaled):,.{self.decimals}f}"
        sign = MINUS if scaled < 0 and float(text.replace(",", "")) != 0 else ""
        return f"{sign}{text}"

    def text(self, value: float) -> str:
        """The number with currency and unit; a bound where rounding gives nothing, or all."""
        smallest = 10.0**-self.decimals
        if 0 < abs(value * self.factor) < smallest / 2:
            if value < 0:
                return f"about {self.before}0{self.after}"
            return f"<{self.before}{smallest:.{self.decimals}f}{self.after}"
        rounded = round(value * self.factor, self.decimals)
        if self.is_share and value < 1 - _NOISE_RATIO and rounded >= self.factor:
            return f">{self.factor - smallest:.{self.decimals}f}{self.after}"
        body = self.digits(value)
        if body.startswith(MINUS):
            return f"{MINUS}{self.before}{body.removeprefix(MINUS)}{self.after}"
        return f"{self.before}{body}{self.after}"


def _decimals(size: float, significant: int) -> int:
    """Decimals that leave ``significant`` digits of ``size``, at most eight."""
    if size == 0:
        return 0
    exponent = math.floor(math.log10(size))
    # 9.996 at three digits rounds to 10.0: one decimal fewer than its own exponent says.
    if round(size, max(0, significant - 1 - exponent)) >= 10.0 ** (exponent + 1):
        exponent += 1
    return min(8, max(0, significant - 1 - exponent))
