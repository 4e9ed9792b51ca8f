"""Reading a quantity that a person typed, and turning it into the unit that a formula wants."""

from __future__ import annotations

import re

#: Unit -> dimension and factor to that dimension's base. Only units of one dimension convert.
_UNITS: dict[str, tuple[str, float]] = {
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "min": ("time", 60.0),
    "h": ("time", 3600.0),
    "d": ("time", 86400.0),
    "ratio": ("share", 1.0),
    "%": ("share", 0.01),
    "x": ("factor", 1.0),
    "USD": ("money", 1.0),
    "USD/GPU-hour": ("price of a GPU-hour", 1.0),
    "USD/kWh": ("price of energy", 1.0),
    "W": ("power", 1.0),
    "kW": ("power", 1e3),
    "bytes": ("size", 1.0),
    "KiB": ("size", 2.0**10),
    "MiB": ("size", 2.0**20),
    "GiB": ("size", 2.0**30),
    "KB": ("size", 1e3),
    "MB": ("size", 1e6),
    "GB": ("size", 1e9),
    "bytes/s": ("bandwidth", 1.0),
    "GB/s": ("bandwidth", 1e9),
    "GiB/s": ("bandwidth", 2.0**30),
    "TFLOP/s": ("compute rate", 1e12),
    "PFLOP/s": ("compute rate", 1e15),
    "EFLOP": ("compute", 1e18),
    "ZFLOP": ("compute", 1e21),
    "1/s": ("rate", 1.0),
    "1/min": ("rate", 1 / 60),
    "1/h": ("rate", 1 / 3600),
    "1/d": ("rate", 1 / 86400),
}

_NUMBER = re.compile(
    r"\s*(?P<money>\$)?\s*(?P<number>[-+]?(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)?(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"\s*(?P<unit>.*?)\s*"
)


def convert(value: float, unit: str, to: str) -> float | None:
    """``value`` in the unit ``to``; None when the two are not of one dimension."""
    if unit == to:
        return value
    source, target = _UNITS.get(unit), _UNITS.get(to)
    if source is None or target is None or source[0] != target[0]:
        return None
    return value * source[1] / target[1]


def parse(text: str, unit: str) -> float | None:
    """The number in ``text``, in ``unit``; a unit that is written there is converted.

    ``"1.5 s"`` for a parameter in ms is 1500; ``"34.59 %"`` for a ratio is 0.3459; ``"$2.00"`` is
    money. Without a unit, the number is taken to be in ``unit``. None when there is no number, or
    a unit of another dimension.
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not any(c.isdigit() for c in match["number"]):
        return None
    if match["money"] and not unit.startswith("USD"):
        return None
    value = float(match["number"].replace(",", "").replace("_", ""))
    return convert(value, match["unit"], unit) if match["unit"] else value


def accepted(unit: str) -> str | None:
    """The units that convert to ``unit``, in words; None when it stands alone."""
    if unit not in _UNITS:
        return None
    dimension = _UNITS[unit][0]
    same = [name for name, (other, _) in _UNITS.items() if other == dimension]
    return f"{dimension} in {', '.join(same)}" if len(same) > 1 else None
