"""What a period of a fleet adds up to, and the headline figures that follow from it.

Everything that is known of jobs is spread over the days on which they held devices: money and time
as they were held, what steps did in proportion to the time in steps that count.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR, Denominator, Goodput
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.stats.exact import int_sum, int_sums
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.format import format_share

NO_STEPS = "no job has per-rank steps"
NOT_TOLD = "the steps of no job tell whether a rank is slow for good"
NO_WAITING = "no job has per-rank phases or collective times"
NO_TOKENS = "the tokens of a step are not on record"
NO_SAVES = "no checkpoint is on record"
NO_TIME = "no job held a device in this period"
_BILLION = 1e9
#: What of it is lost in rounding.
_ALL = 1e-9


@dataclass(frozen=True, eq=False)
class ReviewRows:
    """One entry [N] per job and day; amounts that are not known are 0 here and not counted."""

    day: Ints
    held_us: Ints
    """Paid for: held by the job, or by none."""
    billed_us: Ints
    """Of it, in a bill that tells what happened in it; the rest is known from its steps alone."""
    step_us: Ints
    open_us: Ints
    unscheduled_us: Ints
    lost_us: Ints
    """In steps that were rolled back."""
    has_steps: Ints
    """1 where the job has steps at all."""
    usd: Floats
    unpriced_us: Ints
    """Of ``held_us``, what it cost is not known."""
    paid_us: Floats
    """In recorded steps in which waiting can be told."""
    wait_us: Floats
    wait_usd: Floats
    told_us: Floats
    """In recorded steps in which stragglers can be looked for."""
    recover_us: Floats
    recover_usd: Floats
    tokens: Floats
    token_usd: Floats
    """Cost of jobs whose tokens are known."""
    saves: Floats
    save_usd: Floats
    """Cost of jobs whose saves are known."""
    unpriced_paid_us: Floats
    """Of ``paid_us``, what it cost is not known; the same of what stragglers, tokens and saves
    rest on."""
    unpriced_told_us: Floats
    unpriced_tokens: Floats
    unpriced_saves: Floats

    def sums(self, keep: Flags) -> Totals:
        """Over the rows that ``keep`` [N] takes."""
        values = {f.name: getattr(self, f.name)[keep] for f in fields(self) if f.name != "day"}
        return Totals(
            **{
                name: int_sum(own) if own.dtype.kind == "i" else own.sum().item()
                for name, own in values.items()
            }
        )

    def by_bin(self, place: Ints, count: int) -> list[Totals]:
        """Sums of the rows of each bin 0..count-1; ``place`` [N] below 0 is in none."""
        inside = np.flatnonzero(place >= 0)
        own = place[inside]
        columns = {}
        for f in fields(self):
            if f.name == "day":
                continue
            values = getattr(self, f.name)[inside]
            if values.dtype.kind == "i":
                columns[f.name] = int_sums(own, values, count).tolist()
            else:
                columns[f.name] = np.bincount(own, weights=values, minlength=count).tolist()
        return [Totals(**{n: values[k] for n, values in columns.items()}) for k in range(count)]


@dataclass(frozen=True)
class Totals:
    """Sums of ``ReviewRows``."""

    held_us: int
    billed_us: int
    step_us: int
    open_us: int
    unscheduled_us: int
    lost_us: int
    has_steps: int
    usd: float
    unpriced_us: int
    paid_us: float
    wait_us: float
    wait_usd: float
    told_us: float
    recover_us: float
    recover_usd: float
    tokens: float
    token_usd: float
    saves: float
    save_usd: float
    unpriced_paid_us: float
    unpriced_told_us: float
    unpriced_tokens: float
    unpriced_saves: float

    @property
    def gpu_hours(self) -> float:
        """Held and paid for."""
        return self.held_us / GPU_US_PER_HOUR

    @property
    def is_priced(self) -> bool:
        """Whether the cost of any of it is known."""
        return self.held_us > self.unpriced_us or self.usd != 0


def figures(totals: Totals, no_price: str) -> dict[str, Measure]:
    """The headline figures by metric id; ``no_price`` says why money is not known."""
    spend = _money(totals, totals.usd, no_price)
    untold = NOT_TOLD if totals.paid_us else NO_STEPS
    return {
        "cost_usd": spend,
        "gpu_hours": Measure(totals.gpu_hours, "GPU-hours", level=Level.LOG),
        "goodput_ratio": _goodput(totals),
        "straggler_tax_ratio": Ratio(totals.wait_us / totals.paid_us, level=Level.PHASES)
        if totals.paid_us
        else Ratio.missing("ratio", NO_WAITING),
        "straggler_tax_usd": _of_priced(
            totals.wait_usd, totals.paid_us, totals.unpriced_paid_us, NO_WAITING, no_price
        ),
        "usd_per_billion_tokens": _per(
            totals.token_usd, totals.tokens, totals.unpriced_tokens, NO_TOKENS, no_price, _BILLION
        ),
        "usd_per_checkpoint": _per(
            totals.save_usd, totals.saves, totals.unpriced_saves, NO_SAVES, no_price
        ),
        "recoverable_usd": _of_priced(
            totals.recover_usd, totals.told_us, totals.unpriced_told_us, untold, no_price
        ),
        "recoverable_gpu_hours": Measure(
            totals.recover_us / GPU_US_PER_HOUR, "GPU-hours", level=Level.PHASES
        )
        if totals.told_us
        else Measure.missing("GPU-hours", untold),
    }


def _money(totals: Totals, usd: float, no_price: str) -> Measure:
    if not totals.held_us and not totals.usd:
        return Measure.missing("USD", NO_TIME)
    if not totals.is_priced:
        return Measure.missing("USD", no_price)
    warnings: tuple[str, ...] = ()
    if totals.unpriced_us:
        part = totals.unpriced_us / totals.held_us
        warnings = (f"without {format_share(part)} of the time, whose cost is not known",)
    return Measure(usd, "USD", level=Level.LOG, inputs=("GPU-hours", "price"), warnings=warnings)


def _of_priced(usd: float, rests_on: float, unpriced: float, nothing: str, why: str) -> Measure:
    """Dollars that follow from ``rests_on``, of which ``unpriced`` cost nobody knows what."""
    if not rests_on:
        return Measure.missing("USD", nothing)
    part = unpriced / rests_on
    if part > 1 - _ALL:
        return Measure.missing("USD", why)
    warnings: tuple[str, ...] = ()
    if part > 0:
        warnings = (f"without {format_share(part)} of it, whose cost is not known",)
    return Measure(usd, "USD", level=Level.LOG, inputs=("GPU-hours", "price"), warnings=warnings)


def _per(
    usd: float, count: float, unpriced: float, nothing: str, why: str, scale: float = 1.0
) -> Measure:
    """Dollars per piece, over the pieces whose cost is known."""
    whole = _of_priced(usd, count, unpriced, nothing, why)
    return whole.map(lambda value: value / (count - unpriced) * scale, "USD")


def _goodput(totals: Totals) -> Measure:
    return Goodput(
        Denominator.PAID,
        Fraction(totals.billed_us),
        Fraction(totals.billed_us - totals.unscheduled_us),
        Fraction(totals.step_us) if totals.has_steps else None,
        None,
        Level.LOG,
        no_steps=NO_STEPS,
        unexplained_gpu_us=Fraction(totals.open_us),
    ).measures()["goodput_ratio"]
