"""Columns of text or of any Arrow type as numbers, times and names, a whole column at a time.

Every function gives values with two masks beside them: ``null`` (nothing is there) and ``bad``
(something is there that is not what was asked for). Where either is set the value means nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.moments import FIRST_US, LAST_US
from steptax.connectors.devices.quantities import mask_of
from steptax.connectors.values import BadValueError

#: How sources write that there is nothing.
EMPTY = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "NaN", "nan", "-")
#: Factor from a unit to microseconds. A relative unit counts as a thousand microseconds.
TO_US = {
    "ns": 1e-3,
    "us": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "min": 60e6,
    "h": 3600e6,
    "relative": 1e3,
}
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
#: Beyond this a float no longer holds every whole number.
_EXACT = 2.0**53

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Cells:
    """A converted column; ``values`` mean something only where neither mask is set."""

    values: Any
    null: Mask
    bad: Mask


def reals(column: pa.Array) -> Cells:
    """Finite float64 values; not-a-number counts as null, infinity as bad."""
    typed, bad = _numeric(column)
    values = pc.cast(typed, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    nan = np.isnan(values)
    return Cells(values, nan & ~bad, bad | np.isinf(values))


def whole(column: pa.Array) -> Cells:
    """Whole numbers as int64, exact to the last digit; ``12.0`` is one, ``12.5`` is bad."""
    typed, bad = _numeric(column)
    floats = pc.cast(typed, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    null = np.isnan(floats) & ~bad
    usable = np.isfinite(floats)
    integral = usable & (np.abs(floats) <= 2.0**63) & (floats == np.rint(floats))
    exact = integral & (np.abs(floats) < _EXACT)
    values = np.where(exact, floats, 0.0).astype(np.int64)
    bad |= usable & ~integral | np.isinf(floats)
    coarse = np.flatnonzero(integral & ~exact)
    if len(coarse):
        # A float no longer holds these digits: go back to what was written.
        digits = [_exact(v) for v in column.take(pa.array(coarse)).to_pylist()]
        for i, value in zip(coarse.tolist(), digits, strict=True):
            if -(2**63) <= value < 2**63:
                values[i] = value
            else:
                bad[i] = True
    return Cells(values, null, bad)


def masks(column: pa.Array) -> Cells:
    """Bit masks in decimal or hexadecimal as int64; all 64 bits, a code for no value, are null."""
    found = whole(column)
    for row in np.flatnonzero(found.bad).tolist() if is_text(column.type) else ():
        try:
            value = mask_of(str(_shown(column[row].as_py())))
        except BadValueError:
            continue
        found.bad[row], found.null[row] = False, value is None
        found.values[row] = value or 0
    return found


def times_us(column: pa.Array, unit: str | None) -> Cells:
    """Durations in microseconds as float64, from numbers in ``unit`` or Arrow durations.

    Without a unit numbers are bad. Not rounded, so that a sum is rounded once.
    """
    if pa.types.is_duration(column.type):
        exact = pc.cast(column, pa.duration("ns")).cast(pa.int64())
        found = reals(exact)
        return Cells(found.values / 1e3, found.null, found.bad)
    found = reals(column)
    if unit is None:
        return Cells(found.values, found.null, ~found.null)
    scaled = _scaled(found, TO_US[unit])
    return Cells(scaled, found.null, found.bad | np.isinf(scaled))


def times_ns(column: pa.Array, unit: str) -> Cells:
    """Durations, or moments since any start, in whole nanoseconds as int64.

    From numbers in ``unit`` or Arrow durations; whole nanoseconds stay exact. Bad where they
    would not fit.
    """
    if pa.types.is_duration(column.type):
        return whole(pc.cast(column, pa.duration("ns")).cast(pa.int64()))
    if unit == "ns":
        exact = whole(column)
        if not exact.bad.any():
            return exact
    return _counted(reals(column), TO_US[unit] * 1e3)


def moments_us(column: pa.Array, unit: str | None) -> Cells:
    """Moments as int64 microseconds UTC since 1970; bad beyond the years 1 to 9999.

    From Arrow timestamps, numbers in ``unit``, or ISO 8601 text; text and timestamps without a
    zone count as UTC. Without a unit numbers are bad.
    """
    found = _moments_us(column, unit)
    beyond = (found.values < FIRST_US) | (found.values >= LAST_US)
    return Cells(found.values, found.null, found.bad | (beyond & ~found.null))


def _moments_us(column: pa.Array, unit: str | None) -> Cells:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        stamps = pc.cast(
            column, pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False
        )
        return _from_int(stamps.cast(pa.int64()))
    if unit is not None:
        found = reals(column)
        if not found.bad.any():
            return _scaled_moments(column, found, unit)
    text, null = _clean_text(column)
    for zone in ("UTC", None):
        try:
            stamps = pc.cast(text, pa.timestamp("us", tz=zone))
        except pa.ArrowInvalid:
            continue
        return _from_int(stamps.cast(pa.int64()))
    parsed = [_moment(value, unit) for value in text.to_pylist()]
    values = np.array([v if v is not None else 0 for v in parsed], np.int64)
    missing = np.array([v is None for v in parsed], bool)
    return Cells(values, null, missing & ~null)


def names(column: pa.Array) -> Cells:
    """Text without blanks around it, as an Arrow string array; what means nothing is null.

    A number keeps its digits; one that pandas widened (``7.0``) is written as the whole number.
    """
    if pa.types.is_floating(column.type):
        found = whole(column)
        if not found.bad.any():
            column = pa.array(found.values, mask=found.null | found.bad)
    text, null = _clean_text(column)
    return Cells(text, null, np.zeros(len(text), bool))


def cell_text(column: pa.Array, row: int) -> str:
    """One cell as a person would read it, at most 80 characters, quoted."""
    value = column[row].as_py()
    return "nothing" if value is None or value == "" else repr(value)[:80]


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds text or bytes, plain or by dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or kind in (pa.string_view(), pa.binary_view())
    )


def _numeric(column: pa.Array) -> tuple[pa.Array, Mask]:
    """``column`` as an Arrow array of numbers, and where it is none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    none_bad = np.zeros(len(column), bool)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.float64()), none_bad
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column, none_bad
    if pa.types.is_decimal(kind):
        return pc.cast(column, pa.float64()), none_bad
    if is_text(kind):
        return _text_numbers(column)
    return pa.nulls(len(column), pa.float64()), _valid(column)


def _text_numbers(column: pa.Array) -> tuple[pa.Array, Mask]:
    if pa.types.is_string(column.type):
        try:  # the common case: every cell is a number
            return pc.cast(column, pa.float64()), np.zeros(len(column), bool)
        except pa.ArrowInvalid:
            pass
    text, _ = _clean_text(column)
    try:
        return pc.cast(text, pa.float64()), np.zeros(len(text), bool)
    except pa.ArrowInvalid:
        pass
    infinite = pc.match_substring_regex(text, r"^[+-]?inf(inity)?$", ignore_case=True)
    good = pc.or_(pc.match_substring_regex(text, _NUMBER), infinite)
    bad = pc.invert(pc.fill_null(good, True)).to_numpy(zero_copy_only=False)
    return pc.cast(pc.if_else(good, text, None), pa.float64()), bad


def _clean_text(column: pa.Array) -> tuple[pa.Array, Mask]:
    """``column`` as trimmed text in which what means nothing is null, and where that is."""
    try:
        text = pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Bytes that are no text, or a nested type: shown as they are, so that a reject can.
        text = pa.array([_shown(v) for v in column.to_pylist()], pa.string())
    text = pc.utf8_trim_whitespace(text)
    empty = pc.is_in(text, value_set=pa.array(EMPTY))
    text = pc.if_else(empty, pa.scalar(None, pa.string()), text)
    return text, text.is_null().to_numpy(zero_copy_only=False)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _valid(column: pa.Array) -> Mask:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)


def _from_int(column: pa.Array) -> Cells:
    null = ~_valid(column)
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return Cells(values, null, np.zeros(len(values), bool))


def _exact(value: Any) -> int:
    """The whole number that was written, where a float is too coarse; 0 where it is none."""
    try:
        return int(value)
    except ValueError:
        return int(float(value))


def _scaled_moments(column: pa.Array, found: Cells, unit: str) -> Cells:
    """Numbers in ``unit`` as whole microseconds; nanoseconds of today exceed a float's digits."""
    if unit == "ns":
        digits = whole(column)
        if not digits.bad.any():
            return Cells((digits.values + 500) // 1000, digits.null, digits.bad)
    return _counted(found, TO_US[unit])


def _counted(found: Cells, factor: float) -> Cells:
    """Values times ``factor`` as whole numbers, rounded only once.

    Whole part and fraction are scaled apart: a float does not hold today in nanoseconds.
    """
    far = np.abs(_scaled(found, factor)) >= 2.0**62
    values = np.where(found.null | found.bad | far, 0.0, found.values)
    if factor < 1:
        return Cells(np.rint(values * factor).astype(np.int64), found.null, found.bad | far)
    floor = np.floor(values)
    rest = np.rint((values - floor) * factor).astype(np.int64)
    counted = floor.astype(np.int64) * int(factor) + rest
    return Cells(counted, found.null, found.bad | far)


def _scaled(found: Cells, factor: float) -> Floats:
    """Values times ``factor``, 0 where there is none; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.where(found.null | found.bad, 0.0, found.values) * factor)


def _moment(value: str | None, unit: str | None) -> int | None:
    """One moment in microseconds, or None where there is none."""
    if value is None:
        return None
    if re.match(_NUMBER, value):
        scaled = float(value) * TO_US[unit] if unit else math.inf
        return round(scaled) if abs(scaled) < 2.0**62 else None
    try:
        found = datetime.fromisoformat(value)
        stamp = found if found.tzinfo else found.replace(tzinfo=UTC)
        return (stamp - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None
