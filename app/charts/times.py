"""In which unit a figure and its table tell times: chosen once for each, by their size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.views.job.models import FloatArray
from steptax.app.views.whatif.models import Curve

T = TypeVar("T", float, FloatArray)

#: From here on times are told in seconds, as in every sentence (``format_value``).
SECONDS_FROM_MS = 9_999.5
_PER_MS = {"µs": 1e3, "s": 1e-3}


def time_unit(values_ms: FloatArray | Iterable[float | None], own: str = "ms") -> str:
    """``ms``, or ``s`` where half of ``values_ms`` are longer than ten seconds.

    ``own`` is the unit of the source: only milliseconds are told otherwise.
    """
    values = np.array([np.nan if v is None else v for v in values_ms], dtype=float)
    known = values[np.isfinite(values)]
    is_long = own == "ms" and len(known) > 0 and float(np.median(known)) >= SECONDS_FROM_MS
    return "s" if is_long else own


def in_unit(value_ms: T, unit: str) -> T:
    """``value_ms`` in ``unit``; what is no unit of seconds stays as it is."""
    return value_ms * _PER_MS.get(unit, 1.0)


def in_measure(measure: Measure, unit: str) -> Measure:
    """A measure in milliseconds with its interval in ``unit``; of another unit it stays."""
    is_time = measure.unit == "ms" and unit in _PER_MS
    return measure.map(lambda ms: in_unit(ms, unit), unit) if is_time else measure


def curve_in_unit(curve: Curve) -> Curve:
    """A curve of milliseconds in the unit that suits its values; any other as it is."""
    if curve.y_unit != "ms":
        return curve
    unit = time_unit([y for line in curve.lines for y in line.y])

    def ends(values: Sequence[float | None] | None) -> tuple[float | None, ...] | None:
        return (
            None if values is None else tuple(v if v is None else in_unit(v, unit) for v in values)
        )

    lines = tuple(
        replace(line, y=ends(line.y) or (), low=ends(line.low), high=ends(line.high))
        for line in curve.lines
    )
    here, ceiling = curve.marker, curve.ceiling
    return replace(
        curve,
        y_unit=unit,
        lines=lines,
        marker=None if here is None else (here[0], in_unit(here[1], unit)),
        ceiling=None if ceiling is None else in_measure(ceiling, unit),
    )
