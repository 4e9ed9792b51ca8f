"""Why spend changed from one period to another: price x volume x efficiency, to the cent.

    spend = price x (paid GPU-hours per hour in steps that count) x hours in steps that count
          = price x efficiency x volume

Each factor's effect is its mean over all orders in which the three can change one after the other
(Shapley 1953), so that no order is preferred and the effects add up to the change exactly. Of three
factors x y z:

    effect of x = (x1 - x0) (2 y0 z0 + y0 z1 + y1 z0 + 2 y1 z1) / 6

Time of jobs without steps has no efficiency that is known: there volume is what was held. What was
paid for and held by no job is an effect of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from steptax.app.compute.bill.cost import split_to_cents, to_cents

_ZERO = Fraction(0)
_THIRD = Fraction(1, 3)
_SIXTH = Fraction(1, 6)


@dataclass(frozen=True)
class Factors:
    """What one part of the fleet cost in a period, and what for."""

    usd: Fraction
    gpu_hours: Fraction
    """Paid."""
    step_hours: Fraction | None = None
    """Of it, in steps that count; None where that is not known."""


@dataclass(frozen=True)
class Variance:
    """The effects add up to ``after_usd - before_usd`` to the cent."""

    before_usd: Decimal
    after_usd: Decimal
    price_usd: Decimal
    volume_usd: Decimal
    efficiency_usd: Decimal
    unallocated_usd: Decimal
    """Change of what was paid for and held by no job."""
    efficiency_known_ratio: float
    """Share of both periods' spend of which efficiency is known."""

    @property
    def change_usd(self) -> Decimal:
        """What the effects add up to."""
        return self.after_usd - self.before_usd


def price_volume_efficiency(
    before: Mapping[str, Factors],
    after: Mapping[str, Factors],
    unallocated_usd: tuple[Fraction, Fraction] = (_ZERO, _ZERO),
) -> Variance:
    """Effects over parts of the fleet, by name; a part that one period lacks is new or gone.

    A part counts as volume where it is new or gone, since then nothing tells another price or
    another efficiency.
    """
    parts = []
    known = whole = _ZERO
    for name in sorted({*before, *after}):
        old, new = (_cents(side.get(name)) for side in (before, after))
        parts.append((old, new))
        spent = old.usd + new.usd
        whole += spent
        if _has_efficiency(old, new):
            known += spent
    idle = tuple(Fraction(to_cents(usd)) for usd in unallocated_usd)
    effects = [_effects(old, new) for old, new in parts]
    price, volume, efficiency = (sum((e[k] for e in effects), _ZERO) for k in range(3))
    cents = split_to_cents([price, volume, efficiency, idle[1] - idle[0]])
    before_usd = sum((old.usd for old, _ in parts), idle[0])
    after_usd = sum((new.usd for _, new in parts), idle[1])
    return Variance(
        to_cents(before_usd),
        to_cents(after_usd),
        cents[0],
        cents[1],
        cents[2],
        cents[3],
        float(known / whole) if whole else 0.0,
    )


def _cents(factors: Factors | None) -> Factors:
    """With money in whole cents, so that what is split is what is shown."""
    if factors is None:
        return Factors(_ZERO, _ZERO, _ZERO)
    return Factors(Fraction(to_cents(factors.usd)), factors.gpu_hours, factors.step_hours)


def _has_efficiency(old: Factors, new: Factors) -> bool:
    """Whether hours in steps are known wherever there are hours, and there are some."""
    sides = [side for side in (old, new) if side.gpu_hours]
    return bool(sides) and all(side.step_hours for side in sides)


def _effects(old: Factors, new: Factors) -> tuple[Fraction, Fraction, Fraction]:
    """Price, volume and efficiency; they add up to ``new.usd - old.usd``."""
    if not old.gpu_hours or not new.gpu_hours:
        return _ZERO, new.usd - old.usd, _ZERO
    price0, price1 = old.usd / old.gpu_hours, new.usd / new.gpu_hours
    if not _has_efficiency(old, new) or not old.step_hours or not new.step_hours:
        volume = (new.gpu_hours - old.gpu_hours) * (price0 + price1) / 2
        return new.usd - old.usd - volume, volume, _ZERO
    per0, per1 = old.gpu_hours / old.step_hours, new.gpu_hours / new.step_hours
    done0, done1 = old.step_hours, new.step_hours

    def share(a0: Fraction, a1: Fraction, b0: Fraction, b1: Fraction) -> Fraction:
        return (a0 * b0 + a1 * b1) * _THIRD + (a0 * b1 + a1 * b0) * _SIXTH

    return (
        (price1 - price0) * share(per0, per1, done0, done1),
        (done1 - done0) * share(price0, price1, per0, per1),
        (per1 - per0) * share(price0, price1, done0, done1),
    )
