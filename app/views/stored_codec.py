"""Results as text and back: plain values, exact numbers, arrays, and the classes that are named.

Nothing else can be written, and nothing else is ever made of a file: what is read from a lake may
have been put there by somebody else. Read back, a value is checked as a new one is. Plain values
stand for themselves; every other one is a list that begins with what it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import orjson


class Codec:
    """Writes and reads values of some classes: dataclasses and enumerations."""

    def __init__(self, *classes: type[Any]) -> None:
        self._classes = {one.__name__: one for one in classes}
        self._fields = {
            name: tuple(f.name for f in fields(one))
            for name, one in self._classes.items()
            if is_dataclass(one)
        }

    def to_text(self, value: Any) -> bytes:
        """``value`` as JSON; TypeError for what cannot be written."""
        return orjson.dumps(self._written(value))

    def of_text(self, text: bytes | str) -> Any:
        """What ``to_text`` wrote; some Exception for anything else."""
        return self._made(orjson.loads(text))

    def _written(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else ["int", str(value)]
        if kind is float or kind is np.float64:
            return float(value) if math.isfinite(value) else ["float", str(float(value))]
        if kind is Fraction:
            return ["exact", str(value.numerator), str(value.denominator)]
        if kind is Decimal:
            return ["decimal", str(value)]
        if kind is tuple or kind is list:
            return [kind.__name__, *map(self._written, value)]
        if kind is frozenset:
            return ["set", *sorted(map(self._written, value), key=repr)]
        if isinstance(value, Mapping):
            return ["map", *([self._written(k), self._written(v)] for k, v in value.items())]
        if kind is np.ndarray and value.dtype == np.int64 and value.ndim == 1:
            return ["ints", value.tolist()]
        name = kind.__name__
        if self._classes.get(name) is not kind:
            raise TypeError(f"a {name} cannot be stored")
        if isinstance(value, Enum):
            return ["of", name, value.value]
        return ["of", name, *(self._written(getattr(value, f)) for f in self._fields[name])]

    def _made(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        if value[0] == "of":
            return self._classes[value[1]](*map(self._made, value[2:]))
        if value[0] == "map":
            return {self._made(key): self._made(one) for key, one in value[1:]}
        if value[0] in _GROUPS:
            return _GROUPS[value[0]](map(self._made, value[1:]))
        return _PLAIN[value[0]](value)


_GROUPS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list, "set": frozenset}
_PLAIN: dict[str, Callable[[list[Any]], Any]] = {
    "float": lambda value: float(value[1]),
    "int": lambda value: int(value[1]),
    "exact": lambda value: Fraction(int(value[1]), int(value[2])),
    "decimal": lambda value: Decimal(value[1]),
    "ints": lambda value: np.array(value[1], dtype=np.int64),
}
