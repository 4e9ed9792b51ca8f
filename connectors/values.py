"""Values of parsed documents that are checked: numbers and texts, or what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_INT64 = 2**63


_INT32 = 2**31


class BadValueError(Exception):
    """A value that is not what its field holds; the text says what was expected and found."""

    def __init__(
        self, field: str, expected: str, found: object, *, said: str | None = None
    ) -> None:
        """``said`` is what was found, where that is better said than shown."""
        super().__init__(f"expected {expected}, found {said or short(found)}")
        self.field = field


def whole_number(row: Mapping[str, Any], field: str, *, floor: int = 0, small: bool = False) -> int:
    """A whole number that must be there, also where it is written as text.

    ``small`` bounds it to 32 bits. BadValueError otherwise.
    """
    found = optional_number(row, field, floor=floor, small=small)
    if found is None:
        raise BadValueError(field, "a whole number", row.get(field))
    return found


def optional_number(
    row: Mapping[str, Any], field: str, *, floor: int = 0, small: bool = False
) -> int | None:
    """As ``whole_number``; None where the field is absent or null."""
    found = row.get(field)
    if found is None:
        return None
    value = _as_whole(found)
    limit = _INT32 if small else _INT64
    if value is None or not floor <= value < limit:
        wanted = f"a whole number of at least {floor}" if floor > -limit else "a whole number"
        raise BadValueError(field, wanted, found)
    return value


def _as_whole(found: Any) -> int | None:
    """A whole number, also one written as text or as a float; None for anything else."""
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, float) and math.isfinite(found) and found.is_integer():
        return int(found)
    written = isinstance(found, str) and re.fullmatch(r"\s*-?\d{1,19}\s*", found)
    return int(found) if written else None


def real_number(row: Mapping[str, Any], field: str) -> float | None:
    """A number of at least 0; None where it is absent, null or not a number (``"nan"``).

    BadValueError for anything else, also for an infinite or negative one.
    """
    found = row.get(field)
    if found is None:
        return None
    value: float | None = None
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        value = _as_float(found)
    elif isinstance(found, str):
        try:
            value = float(found)
        except ValueError:
            value = None
    if value is None or math.isinf(value) or value < 0:
        raise BadValueError(field, "a number of at least 0", found)
    return None if math.isnan(value) else value


def _as_float(found: float) -> float:
    try:
        return float(found)
    except OverflowError:
        return math.inf


def text_value(row: Mapping[str, Any], field: str) -> str | None:
    """A text, also where it is written as a number; None where it is absent, null or blank."""
    found = row.get(field)
    if isinstance(found, (dict, list, bool)):
        raise BadValueError(field, "a text", found)
    return None if found is None or not str(found).strip() else str(found)


def short(found: object) -> str:
    """A value as a person may see it in a reason: at most 80 characters."""
    text = repr(found) if not isinstance(found, (dict, list)) else type(found).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
