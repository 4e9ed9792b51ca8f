"""One input of a calculator: what it is, what it may be, and how a given value is read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Any

from steptax.app.compute.calculators.units import accepted, convert, parse
from steptax.app.errors import UserError

#: By how much an input without a band of its own is moved, either way.
SWING = 0.10

#: The largest value of a unit that a person can mean; beyond it lies a slip of the keyboard.
LARGEST: dict[str, float] = {
    "us": 1e15,
    "ms": 1e12,
    "s": 1e9,
    "h": 1e6,
    "d": 1e5,
    "ratio": 1e3,
    "x": 1e9,
    "USD": 1e12,
    "USD/GPU-hour": 1e4,
    "USD/kWh": 1e3,
    "W": 1e6,
    "bytes": 1e18,
    "GB/s": 1e6,
    "TFLOP/s": 1e6,
    "EFLOP": 1e15,
    "1/s": 1e12,
    "1/min": 1e9,
    "1/h": 1e6,
    "tokens": 1e10,
    "steps": 1e9,
}
#: The same for a count without a unit, and for a number without one.
LARGEST_COUNT = 1e9
LARGEST_NUMBER = 1e18


class Kind(StrEnum):
    """What a parameter holds."""

    REAL = "real"
    INT = "int"
    CHOICE = "choice"
    REALS = "reals"
    TEXT = "text"


@dataclass(frozen=True)
class Parameter:
    """One input. ``default`` and ``required`` are read off the function, never written twice.

    ``minimum`` and ``maximum`` are allowed values; ``above`` is a bound that is not allowed.
    ``swing_ratio`` is by how much the sensitivity moves it, either way, where nothing better is
    known; 0 for what is counted and so known exactly.
    """

    name: str
    unit: str
    help: str
    kind: Kind = Kind.REAL
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    swing_ratio: float = SWING
    default: object = None
    required: bool = False

    @property
    def largest(self) -> float:
        """The largest value that is read, whether it is allowed or not."""
        if self.unit in LARGEST:
            return LARGEST[self.unit]
        return LARGEST_COUNT if self.kind is Kind.INT else LARGEST_NUMBER

    @property
    def expected(self) -> str:
        """What is accepted, in words, e.g. ``a number of ms above 0``."""
        if self.kind is Kind.CHOICE:
            return "one of " + ", ".join(self.choices)
        if self.kind is Kind.TEXT:
            return "a text"
        noun = {Kind.REAL: "a number", Kind.INT: "a whole number", Kind.REALS: "numbers"}[self.kind]
        words = noun + {"": "", "ratio": " as a ratio", "x": " as a factor"}.get(
            self.unit, f" of {self.unit}"
        )
        if self.above is not None:
            words += f" above {self.above:g}"
        if self.minimum is not None and self.maximum is not None:
            words += f" in {self.minimum:g}..{self.maximum:g}"
        elif self.minimum is not None:
            words += f" of at least {self.minimum:g}"
        elif self.maximum is not None:
            words += f" of at most {self.maximum:g}"
        return words

    def read(self, value: object) -> Any:
        """``value`` checked, converted to this unit and of the declared kind.

        Raises:
            UserError: names the parameter, what was expected and what was found.
        """
        if self.kind is Kind.CHOICE:
            if value not in self.choices:
                raise self._refuse(value)
            return value
        if self.kind is Kind.TEXT:
            if not isinstance(value, str) or not value.strip():
                raise self._refuse(value)
            return value.strip()
        if self.kind is Kind.REALS:
            items = value.split(",") if isinstance(value, str) else value
            if not isinstance(items, Iterable):
                raise self._refuse(value)
            numbers = tuple(self._number(item) for item in items)
            if not numbers:
                raise self._refuse(value)
            return numbers
        number = self._number(value)
        if self.kind is Kind.REAL:
            return number
        if number != int(number):
            raise self._refuse(value)
        return int(number)

    def convert(self, value: float, unit: str) -> float:
        """``value``, given in ``unit``, in this parameter's unit.

        Raises:
            UserError: the units are of different dimensions.
        """
        converted = convert(value, unit, self.unit)
        if converted is None:
            raise self._refuse(f"{value:g} {unit}", accepted(self.unit))
        return converted

    def clip(self, value: float) -> float:
        """The nearest value between minimum and maximum."""
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        return min(max(value, low), high)

    def _number(self, value: object) -> float:
        if isinstance(value, str):
            parsed = parse(value, self.unit)
            if parsed is None:
                raise self._refuse(value, accepted(self.unit))
            number = parsed
        elif isinstance(value, bool) or not isinstance(value, Real):
            raise self._refuse(value)
        else:
            number = float(value)
        inside = (
            math.isfinite(number)
            and (self.above is None or number > self.above)
            and self.clip(number) == number
        )
        if inside and abs(number) > self.largest:
            raise self._refuse(value, f"the largest that makes sense is {self.largest:,.0f}")
        if not inside:
            percent = self.unit == "ratio" and self.maximum == 1 and 1 < number <= 100
            hint = f"{number:g} % is {number / 100:g}" if percent else None
            raise self._refuse(value, hint)
        return number

    def _refuse(self, value: object, hint: str | None = None) -> UserError:
        return UserError(f"expected {self.expected}, not {value!r}", where=self.name, hint=hint)
