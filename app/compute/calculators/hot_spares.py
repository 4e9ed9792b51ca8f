"""How many spare nodes keep a job from waiting for repairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import pdtr, pdtrik

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError
from steptax.app.format import format_share


def spares_needed(failures_per_h: float, repair_h: float, coverage_ratio: float) -> int:
    """Smallest s with P(nodes in repair <= s) >= coverage; their number is Poisson(rate * repair).

    (Little's law with independent repairs: the number in service of M/G/infinity.)
    """
    mean = failures_per_h * repair_h
    if mean == 0:
        return 0
    count = max(0, math.ceil(float(pdtrik(coverage_ratio, mean))) - 1)
    while float(pdtr(count, mean)) < coverage_ratio:
        count += 1
    return count


@dataclass(frozen=True, kw_only=True)
class HotSpares(Result):
    """``cost_ratio``: spares / nodes; ``benefit_ratio``: time saved / time; net: the difference."""

    headline: str = "spares"

    spares: Measure
    mean_in_repair: Measure
    ceiling: Measure
    """Benefit of a swap that takes no time."""
    cost_ratio: Measure
    benefit_ratio: Measure
    net_ratio: Measure


@calculator(
    name="hot-spares",
    title="Hot spares",
    formula="s = Poisson quantile(coverage; failures per h x repair h); cost s/N; benefit "
    "(requeue - swap) x failures per h",
    source="Poisson law of units in repair (Little 1961); sized at the 99th percentile as in "
    "ByteRobust, SOSP'25",
    page="A spare that stands ready turns a requeue into a swap. Enough spares are those that "
    "cover the nodes in repair at the same moment. They cost their share of the cluster all the "
    "time, and save at each failure; spares that also run other work cost less than this says.",
    parameters=(
        Parameter("failures_per_h", "1/h", "node failures per hour over all nodes", minimum=0),
        Parameter("repair_h", "h", "until a failed node is back", minimum=0),
        Parameter(
            "coverage_ratio",
            "ratio",
            "share of the time in which spares must suffice",
            above=0,
            maximum=0.999999,
        ),
        Parameter("nodes", "", "nodes of the job", Kind.INT, minimum=1),
        Parameter("requeue_s", "s", "time lost at a failure without a spare", minimum=0),
        Parameter("swap_s", "s", "time lost at a failure with one", minimum=0),
    ),
)
def hot_spares(
    *,
    failures_per_h: float,
    repair_h: float,
    coverage_ratio: float = 0.99,
    nodes: int | None = None,
    requeue_s: float | None = None,
    swap_s: float | None = None,
) -> HotSpares:
    """Spares, and whether they pay where nodes and times are given.

    Raises:
        UserError: a swap that takes longer than a requeue.
    """
    if requeue_s is not None and swap_s is not None and swap_s > requeue_s:
        raise UserError(f"expected at most requeue_s, {requeue_s:g} s", where="swap_s")
    spares = spares_needed(failures_per_h, repair_h, coverage_ratio)
    cost = (
        Measure.missing("ratio", "the number of nodes was not given")
        if nodes is None
        else Measure(spares / nodes, "ratio")
    )
    # The time lost to failures is a share of all time, so it cannot exceed it.
    down = None if requeue_s is None else requeue_s / 3600 * failures_per_h
    if down is not None and down > 1:
        no_end = Measure.missing("ratio", "the next failure comes before the requeue is done")
    else:
        no_end = Measure.missing("ratio", "the times with and without a spare were not given")
    benefit = (
        no_end
        if down is None or down > 1 or requeue_s is None or swap_s is None
        else Measure((requeue_s - swap_s) / 3600 * failures_per_h, "ratio")
    )
    sentence = (
        f"{spares} spare nodes cover {coverage_ratio:.4g} of the time "
        f"({failures_per_h * repair_h:.3g} are in repair on average)"
    )
    if cost.value is not None and benefit.value is not None:
        net = Measure(benefit.value - cost.value, "ratio")
        sentence += f"; they cost {format_share(cost.value)} of the job's nodes"
        sentence += f" and save {format_share(benefit.value)} of the time"
    else:
        net = Measure.missing("ratio", cost.reason or benefit.reason or "")
    return HotSpares(
        spares=Measure(float(spares), "nodes"),
        mean_in_repair=Measure(failures_per_h * repair_h, "nodes"),
        ceiling=Measure.missing("ratio", "the time without a spare was not given")
        if down is None
        else (no_end if down > 1 else Measure(down, "ratio")),
        cost_ratio=cost,
        benefit_ratio=benefit,
        net_ratio=net,
        sentence=sentence + ".",
        warnings=("failures are taken as independent",),
    )


CALCULATORS = (hot_spares,)
