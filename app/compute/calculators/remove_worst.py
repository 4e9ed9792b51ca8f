"""Taking out the slowest k ranks: replaced by typical ones, or the job shrunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.money import PRICE
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.order_stats import Array
from steptax.app.errors import UserError
from steptax.app.format import format_alike, format_share, format_value


@dataclass(frozen=True)
class Removal:
    """Mean time of the slowest rank per step, in the unit of the input.

    ``replaced``: k others, drawn from the remaining ranks' work, take their place. ``shrunk``:
    nobody does, and the rest share the same global batch.
    """

    removed: int
    ranks: tuple[int, ...]
    before: float
    replaced: float
    shrunk: float


def remove_worst_ranks(work: Array, count: int) -> Removal:
    """Take out the ``count`` ranks with the largest mean from work of shape (steps, ranks).

    The replacements' work in a step is the step's mean over the remaining ranks plus a deviation
    drawn from all that the remaining ranks showed in any step; its expected maximum is exact, by
    powers of that distribution.

    Raises:
        UserError: not between 0 and ranks - 1 of them, or a time that is missing or negative.
    """
    work = np.asarray(work, dtype=np.float64)
    if work.ndim != 2 or not work.size or not np.isfinite(work).all() or (work < 0).any():
        raise UserError("expected times of at least 0 for every step and rank", where="work")
    n = work.shape[1]
    if not 0 <= count < n:
        raise UserError(f"expected 0 to {n - 1} of {n} ranks, not {count}", where="worst")
    order = np.argsort(-work.mean(axis=0), kind="stable")
    rest = work[:, np.sort(order[count:])]
    slowest = rest.max(axis=1)
    replaced = slowest
    if count:
        mean = rest.mean(axis=1)
        deviation = np.sort((rest - mean[:, None]).ravel())
        replaced = mean + _max_with_draws(deviation, slowest - mean, count)
    return Removal(
        count,
        tuple(int(rank) for rank in order[:count]),
        float(work.max(axis=1).mean()),
        float(replaced.mean()),
        float(slowest.mean()) * n / (n - count),
    )


def _max_with_draws(values: Array, least: Array, draws: int) -> Array:
    """E[max(a, largest of ``draws`` from sorted ``values``)] for each a in ``least``."""
    level = np.arange(1, values.size + 1) / values.size
    jumps = np.diff(level**draws, prepend=0.0)
    above = np.append(np.cumsum((jumps * values)[::-1])[::-1], 0.0)
    position = np.searchsorted(values, least, side="right")
    reached = np.append(0.0, level**draws)[position]
    return np.asarray(least * reached + above[position])


@dataclass(frozen=True, kw_only=True)
class RemoveWorst(Result):
    """Steps and GPU time per step, before and after.

    ``recovered_ratio``: share of the GPU time that replacing saves. ``curve``: (k, step with k
    replaced, step with k fewer), ms.
    """

    headline: str = "recovered_ratio"

    recovered_ratio: Measure
    ceiling: Measure
    """Saved if all ranks worked like the fastest: no replacement gives more."""
    step_before_ms: Measure
    step_replaced_ms: Measure
    step_shrunk_ms: Measure
    gpu_s_before: Measure
    gpu_s_replaced: Measure
    gpu_s_shrunk: Measure
    recovered_usd_per_day: Measure
    payback_d: Measure
    curve: tuple[tuple[int, float, float], ...]


@calculator(
    name="remove-worst",
    title="Fixing the slowest ranks",
    formula="replace: max of the remaining and k draws from them; shrink: max of the remaining x "
    "N/(N - k); GPU time = GPUs x step",
    source="What-if on the worst workers: Lin et al., OSDI'25; global batch held",
    page="Without a rank that is always slow the step ends when the next slowest does, so the gain "
    "of each further one is smaller. Replacing keeps the batch per rank; shrinking spreads it over "
    "fewer. Ranks that were slow by chance will not be slow again: use means over many steps.",
    parameters=(
        Parameter("times_ms", "ms", "mean work of each rank", Kind.REALS, minimum=0),
        Parameter("worst", "", "how many of the slowest to take out", Kind.INT, minimum=0),
        Parameter("other_ms", "ms", "rest of the step, which stays", minimum=0),
        PRICE,
        Parameter("replacement_usd", "USD", "what taking them out costs once", minimum=0),
    ),
)
def remove_worst(
    *,
    times_ms: Sequence[float],
    worst: int,
    other_ms: float = 0.0,
    usd_per_gpu_hour: float | None = None,
    replacement_usd: float | None = None,
) -> RemoveWorst:
    """The step without the ``worst`` slowest of the ranks whose mean work is ``times_ms``.

    Raises:
        UserError: none would remain; all times are zero.
    """
    work = np.array([times_ms], dtype=np.float64)
    n = work.shape[1]
    if worst >= n:
        raise UserError(f"expected 0 to {n - 1} of {n} ranks, not {worst}", where="worst")
    steps = [remove_worst_ranks(work, k) for k in range(worst + 1)]
    last = steps[-1]
    before, replaced, shrunk = (other_ms + ms for ms in (last.before, last.replaced, last.shrunk))
    if before <= 0:
        raise UserError("expected a step that takes time", where="times_ms")
    recovered = 1 - replaced / before
    per_day = (
        Measure.missing("USD/d", "no price per GPU-hour was given")
        if usd_per_gpu_hour is None
        else Measure(recovered * n * 24 * usd_per_gpu_hour, "USD/d")
    )
    then, later, fewer = format_alike((before, replaced, shrunk), "ms")
    return RemoveWorst(
        recovered_ratio=Measure(recovered, "ratio"),
        ceiling=Measure(1 - (other_ms + float(work.min())) / before, "ratio"),
        step_before_ms=Measure(before, "ms"),
        step_replaced_ms=Measure(replaced, "ms"),
        step_shrunk_ms=Measure(shrunk, "ms"),
        gpu_s_before=Measure(n * before / 1000, "GPU-s"),
        gpu_s_replaced=Measure(n * replaced / 1000, "GPU-s"),
        gpu_s_shrunk=Measure((n - worst) * shrunk / 1000, "GPU-s"),
        recovered_usd_per_day=per_day,
        payback_d=_payback(per_day, replacement_usd),
        curve=tuple((r.removed, other_ms + r.replaced, other_ms + r.shrunk) for r in steps),
        sentence=f"Replacing {_slowest(worst)} of {n:,} ranks takes the step from "
        f"{then} to {later} and saves "
        f"{format_share(recovered)} of the GPU time{_worth(per_day)}; running without "
        f"{'it' if worst == 1 else 'them'} takes {fewer}.",
        warnings=("from one mean per rank: no band, and chance is taken as lasting",),
    )


def _worth(per_day: Measure) -> str:
    """What that is a day, where the price is known and something comes back."""
    if per_day.value is None or per_day.value <= 0:
        return ""
    return f", {format_value(per_day.value, 'USD')} a day"


def _slowest(worst: int) -> str:
    return "the slowest" if worst == 1 else f"the {worst:,} slowest"


def _payback(per_day: Measure, replacement_usd: float | None) -> Measure:
    if replacement_usd is None:
        return Measure.missing("d", "the cost of taking them out was not given")
    if per_day.value is None:
        return Measure.missing("d", per_day.reason or "the gain is not known in money")
    if per_day.value <= 0:
        return Measure.missing("d", "it saves nothing, so it never pays back")
    return Measure(replacement_usd / per_day.value, "d")


CALCULATORS = (remove_worst,)
