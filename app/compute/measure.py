"""A number that knows its unit, its interval, its evidence, and why it may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

from steptax.app.errors import IntegrityError


class Level(IntEnum):
    """The evidence ladder: what a number rests on."""

    LOG = 0
    """Job log or accounting only."""
    STEP_TIME = 1
    """Per-rank step time."""
    PHASES = 2
    """Per-rank phases."""
    TRACE = 3
    """Per-operation trace."""
    DEVICE = 4
    """Device health."""

    @property
    def label(self) -> str:
        """For people, e.g. ``L2 per-rank phases``."""
        words = (
            "job log",
            "per-rank step time",
            "per-rank phases",
            "per-operation trace",
            "device health",
        )
        return f"L{int(self)} {words[self]}"


#: Units that leave open whether 0.5 is a half or half a hundredth, and of what.
_WITHOUT_BASE = frozenset({"%", "percent", "pct"})


@dataclass(frozen=True)
class Measure:
    """A computed value, or the reason why there is none.

    ``low`` and ``high`` bound it (95 % unless ``warnings`` says otherwise); ``inputs`` names the
    columns used. A value that is not finite is never kept: missing is ``None`` with a ``reason``.
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    level: Level | None = None
    inputs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None

    def __post_init__(self) -> None:
        """Refuse a value that cannot be shown."""
        if self.unit in _WITHOUT_BASE:
            raise IntegrityError(f"a value in {self.unit} does not say of what: give a ratio")
        if self.value is None:
            if not self.reason:
                raise IntegrityError("a missing value needs its reason")
            return
        if not math.isfinite(self.value):
            raise IntegrityError(f"a value must be finite, not {self.value} {self.unit}")
        for bound in (self.low, self.high):
            if bound is not None and not math.isfinite(bound):
                raise IntegrityError(f"a bound must be finite, not {bound} {self.unit}")

    @classmethod
    def missing(cls, unit: str, reason: str, *, level: Level | None = None) -> Self:
        """No value, and why."""
        return cls(None, unit, level=level, reason=reason)

    @property
    def bounds(self) -> tuple[float, float]:
        """Between what it lies; its value twice where nothing bounds it. Not of a missing one."""
        assert self.value is not None
        low = self.value if self.low is None else self.low
        return low, self.value if self.high is None else self.high

    @property
    def sign_is_open(self) -> bool:
        """Whether its bounds leave open on which side of 0 it is."""
        return self.low is not None and self.high is not None and self.low < 0 < self.high

    def map(self, function: Callable[[float], float], unit: str, *inputs: str) -> Measure:
        """Apply a monotone function to value and bounds; a missing value stays missing."""
        low = None if self.low is None else function(self.low)
        high = None if self.high is None else function(self.high)
        if low is not None and high is not None and low > high:
            low, high = high, low
        return Measure(
            None if self.value is None else function(self.value),
            unit,
            low=low,
            high=high,
            level=self.level,
            inputs=self.inputs + inputs,
            warnings=self.warnings,
            reason=self.reason,
        )

    def as_json(self) -> dict[str, Any]:
        """The form that every command and export prints."""
        out: dict[str, Any] = {
            "value": self.value,
            "unit": self.unit,
            "low": self.low,
            "high": self.high,
            "level": None if self.level is None else f"L{int(self.level)}",
            "reason": self.reason,
        }
        if self.inputs:
            out["inputs"] = list(self.inputs)
        if self.warnings:
            out["warnings"] = list(self.warnings)
        return out


@dataclass(frozen=True)
class Ratio(Measure):
    """A share: must lie in [0, 1], or it is an error with its reason, never shown."""

    unit: str = field(default="ratio")

    def __post_init__(self) -> None:
        """A share outside [0, 1] is a fault of its computation."""
        super().__post_init__()
        if self.value is not None and not -1e-12 <= self.value <= 1 + 1e-12:
            raise IntegrityError(f"a share must lie in 0..1, not {self.value}")
        for bound in (self.low, self.high):
            if bound is not None and not -1e-9 <= bound <= 1 + 1e-9:
                raise IntegrityError(f"a bound of a share must lie in 0..1, not {bound}")
