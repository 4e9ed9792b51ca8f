"""When a rule fires and when it clears: a threshold, a duration, and hysteresis in both.

    quiet    -> pending   the value is beyond the threshold
    pending  -> firing    it stayed there for ``for_s``; back to quiet when it does not
    firing   -> clearing  the value is back beyond the clear threshold
    clearing -> quiet     it stayed there for ``clear_for_s``; back to firing when it does not

Between the two thresholds nothing moves: a pending rule goes on waiting only while the value is
beyond the threshold, a firing one clears only beyond the other. A value that is not known moves
nothing either and stops no clock: it is neither good nor bad news.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from steptax.app.errors import UserError

US_PER_S = 1_000_000


class Phase(StrEnum):
    """Where a rule stands for one job."""

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"
    CLEARING = "clearing"


class Change(StrEnum):
    """What somebody is told of."""

    FIRED = "fired"
    CLEARED = "cleared"


@dataclass(frozen=True)
class Limit:
    """``above`` or below ``threshold`` for ``for_s``; clear at ``clear`` for ``clear_for_s``."""

    threshold: float
    above: bool
    clear: float
    for_s: float = 0.0
    clear_for_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a clear threshold on the wrong side of the other.

        Raises:
            UserError: it would clear while it fires.
        """
        wrong = self.clear > self.threshold if self.above else self.clear < self.threshold
        if wrong:
            side = "at most" if self.above else "at least"
            raise UserError(
                f"expected {side} the threshold, {self.threshold:g}, not {self.clear:g}",
                where="clear",
            )

    def beyond(self, value: float) -> bool:
        """Whether ``value`` is bad."""
        return value > self.threshold if self.above else value < self.threshold

    def back(self, value: float) -> bool:
        """Whether ``value`` is good again."""
        return value <= self.clear if self.above else value >= self.clear


@dataclass(frozen=True)
class Standing:
    """A phase, and the moment since when."""

    phase: Phase
    since_us: int

    @property
    def is_open(self) -> bool:
        """Whether somebody was told that it fires, and not yet that it cleared."""
        return self.phase in (Phase.FIRING, Phase.CLEARING)


def advance(
    limit: Limit, before: Standing | None, value: float | None, at_us: int
) -> tuple[Standing, Change | None]:
    """The standing after a reading of ``value`` at ``at_us``, and what to tell of.

    A clock that went back (``at_us`` before the last change) starts the waiting anew rather than
    firing early.
    """
    now = before or Standing(Phase.QUIET, at_us)
    if value is None:
        return now, None
    if now.since_us > at_us:
        now = Standing(now.phase, at_us)
    waited_s = (at_us - now.since_us) / US_PER_S
    match now.phase:
        case Phase.QUIET | Phase.PENDING:
            if not limit.beyond(value):
                return (now if now.phase is Phase.QUIET else Standing(Phase.QUIET, at_us)), None
            begun = now if now.phase is Phase.PENDING else Standing(Phase.PENDING, at_us)
            long_enough = (at_us - begun.since_us) / US_PER_S >= limit.for_s
            return (Standing(Phase.FIRING, at_us), Change.FIRED) if long_enough else (begun, None)
        case Phase.FIRING:
            if not limit.back(value):
                return now, None
            if limit.clear_for_s == 0:
                return Standing(Phase.QUIET, at_us), Change.CLEARED
            return Standing(Phase.CLEARING, at_us), None
        case Phase.CLEARING:
            if not limit.back(value):
                return Standing(Phase.FIRING, at_us), None
            if waited_s >= limit.clear_for_s:
                return Standing(Phase.QUIET, at_us), Change.CLEARED
            return now, None
