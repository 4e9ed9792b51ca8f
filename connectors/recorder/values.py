"""Bringing what a caller gave to what a column holds, so that no row can spoil a segment."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from steptax.connectors.recorder.columns import Column

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
#: A line of JSON must stay far below the block size of those who read it.
TEXT_CAP = 4_000


def text(value: object) -> str:
    """``value`` as text that every encoder takes: no lone surrogates, at most 4,000 characters."""
    return str(value)[:TEXT_CAP].encode("utf-8", "replace").decode("utf-8")


def whole(value: Any, most: int = INT64_MAX) -> int:
    """``value`` as an integer in ``0..most``; takes numpy integers and floats such as 7e9.

    Raises TypeError or ValueError when it is none, or lives on an accelerator (reading it there
    would wait for the device).
    """
    if type(value) is int and 0 <= value <= most:
        return value
    if getattr(value, "is_cuda", False):
        raise TypeError("a number on the device cannot be read without waiting for the device")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    number = operator.index(value)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not in 0..{most}")
    return number


def real(value: Any) -> float:
    """``value`` as a finite float; raises TypeError or ValueError when it is none."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def _flag(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r} is neither true nor false")


def _int32(value: Any) -> int:
    return whole(value, INT32_MAX)


_READERS: dict[str, Callable[[Any], Any]] = {
    "text": text,
    "int": whole,
    "int32": _int32,
    "real": real,
    "flag": _flag,
}


def row_of(
    columns: Iterable[Column], given: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """The entries of ``given`` that ``columns`` can hold, and what is wrong with the others."""
    kinds = {column.name: column.kind for column in columns}
    row: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in dict(given or {}).items():
        if value is None:
            continue
        if name not in kinds:
            wrong.append(f"there is no column {text(name)!r}")
            continue
        try:
            row[name] = _READERS[kinds[name]](value)
        except Exception as error:  # str() and float() of a foreign object may raise anything
            wrong.append(f"{name}: {error}")
    return row, wrong


def rank_list(ranks: Any) -> str | None:
    """Ranks as an event holds them: comma separated text, or None for all."""
    if ranks is None:
        return None
    if isinstance(ranks, str):
        return text(ranks)
    if isinstance(ranks, Iterable):
        return text(",".join(str(_int32(rank)) for rank in ranks))
    return str(_int32(ranks))
