"""Numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def spoken_us(value_us: float) -> str:
    """A duration to three digits in a unit that suits it: ``200 ms``, ``26.1 s``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        # 999.5 would be spoken as 1000 of the smaller unit
        if abs(value_us) >= 0.9995 * size:
            return f"{_three_digits(value_us / size)} {unit}"
    return f"{_three_digits(value_us)} µs"


def spoken_ratio(value: float) -> str:
    """A share in percent: ``3.4 %``, ``82 %``."""
    return f"{value:.1%}".replace("%", " %") if abs(value) < 0.0995 else f"{value * 100:.0f} %"


def spoken_list(items: Sequence[object], limit: int = 6) -> str:
    """``0, 1 and 2``, or the first ones ``and 4 more``."""
    words = [str(item) for item in items]
    if len(words) > limit:
        words = [*words[:limit], f"{len(words) - limit:,} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _three_digits(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:,.{digits}f}"
