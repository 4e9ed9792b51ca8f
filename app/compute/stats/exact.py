"""Sums of many exact numbers."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Ints

_HALF = 32
_LOW = (1 << _HALF) - 1


def exact_sum(values: Iterable[Fraction]) -> Fraction:
    """Their sum, exact: what has one denominator, most of it whole, is added as whole numbers."""
    sums: dict[int, int] = {}
    for value in values:
        sums[value.denominator] = sums.get(value.denominator, 0) + value.numerator
    return sum((Fraction(part, whole) for whole, part in sums.items()), Fraction(0))


def int_sum(values: NDArray[Any]) -> int:
    """Sum of int64 or of Python ints [N]: 64 bits of GPU-microseconds are 2.56e9 GPU-hours.

    ``ndarray.sum`` wraps there. The halves of fewer than 2**31 numbers cannot.
    """
    if values.dtype == object:
        return sum(values.tolist())
    return (int((values >> _HALF).sum()) << _HALF) + int((values & _LOW).sum())


def int_sums(place: Ints, values: NDArray[Any], count: int) -> NDArray[Any]:
    """Sums of ``values`` [N] by ``place`` [N] in 0..count-1: int64, Python ints if one is larger.

    ``values`` are int64 or Python ints.
    """
    if values.dtype == object:
        large = np.zeros(count, dtype=object)
        np.add.at(large, place, values)
        return large
    high, low = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(high, place, values >> _HALF)
    np.add.at(low, place, values & _LOW)
    high += low >> _HALF
    low &= _LOW
    if not len(high) or int(np.abs(high).max()) < 1 << (_HALF - 2):
        return (high << _HALF) + low
    return np.asarray((high.astype(object) << _HALF) + low.astype(object))
