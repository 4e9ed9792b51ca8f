"""Launching more workers than needed and dropping the slowest."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.expected_max import DISTRIBUTIONS
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.order_stats import standard_order_mean
from steptax.app.format import format_share

#: Largest spread that a break-even is looked for in.
_WIDEST_CV = 3.0


@dataclass(frozen=True, kw_only=True)
class BackupWorkers(Result):
    """Waiting for N of N + b workers against waiting for all N + b.

    ``net_gain``: step speed-up / cost factor; above 1 it pays. ``normalised_speedup`` is against
    N workers without backups, per worker paid. ``break_even_cv_ratio``: the least spread at which
    it pays.
    """

    headline: str = "net_gain"

    net_gain: Measure
    ceiling: Measure
    """Net gain if the gradients waited for came after the mean work: dropping more gives less."""
    step_speedup: Measure
    waited_over_mean: Measure
    """Step / mean work of a worker, waiting for N of N + b."""
    waited_sd: Measure
    """The same, in standard deviations above the mean."""
    cost_factor: Measure
    normalised_speedup: Measure
    break_even_cv_ratio: Measure
    dropped_ratio: Ratio


@calculator(
    name="backup-workers",
    title="Backup workers",
    formula="pays iff E[X(N+b:N+b)] / E[X(N:N+b)] > (N + b)/N; normalised speed-up = "
    "E[X(N:N)] / E[X(N:N+b)] N/(N+b)",
    source="Chen et al. 2016, Revisiting Distributed Synchronous SGD; Abadi et al., OSDI'16",
    page="Take the first N of N + b gradients and drop the rest. It buys the distance between the "
    "slowest and the N-th, and pays for b more workers. It helps against slowness that moves from "
    "rank to rank; a worker that is always slow is better replaced. Dropping gradients changes the "
    "effective batch, and always the same data if always the same worker is late.",
    parameters=(
        Parameter("workers", "", "gradients waited for, N", Kind.INT, minimum=1),
        Parameter("backups", "", "workers launched beyond these, b", Kind.INT, minimum=1),
        Parameter("cv_ratio", "ratio", "spread between ranks in a step: sd / mean", minimum=0),
        Parameter("distribution", "", "shape of the spread", Kind.CHOICE, choices=DISTRIBUTIONS),
    ),
)
def backup_workers(
    *, workers: int, backups: int, cv_ratio: float | None = None, distribution: str = "normal"
) -> BackupWorkers:
    """Gain and cost of ``backups`` workers beyond ``workers``."""
    total = workers + backups
    cost = total / workers
    even = _break_even_cv(workers, total, distribution)
    if cv_ratio is None:
        reason = "the spread between ranks was not given"
        net = speedup = normalised = most = over_mean = Measure.missing("x", reason)
        above = Measure.missing("sd", reason)
        sentence = f"Waiting for {workers:,} of {total:,}"
    else:
        waited = standard_order_mean(workers, total, cv_ratio, distribution)
        gain = standard_order_mean(total, total, cv_ratio, distribution) / waited
        plain = standard_order_mean(workers, workers, cv_ratio, distribution)
        speedup = Measure(gain, "x")
        net = Measure(gain / cost, "x")
        most = Measure(max(gain * waited, gain) / cost, "x")
        over_mean = Measure(waited, "x")
        above = (
            Measure((waited - 1) / cv_ratio, "sd")
            if cv_ratio
            else Measure.missing("sd", "there is no spread")
        )
        normalised = Measure(plain / waited / cost, "x")
        verdict = "pays" if gain > cost else "does not pay"
        sentence = (
            f"Waiting for {workers:,} of {total:,} {verdict}: {gain:.3f}x as fast for {cost:.3f}x "
            "the workers"
        )
    least = (
        even.reason
        if even.value is None
        else f"it pays above a spread of {format_share(even.value)} of mean"
    )
    return BackupWorkers(
        headline="break_even_cv_ratio" if cv_ratio is None else "net_gain",
        net_gain=net,
        ceiling=most,
        step_speedup=speedup,
        waited_over_mean=over_mean,
        waited_sd=above,
        cost_factor=Measure(cost, "x"),
        normalised_speedup=normalised,
        break_even_cv_ratio=even,
        dropped_ratio=Ratio(backups / total),
        sentence=f"{sentence}; {least}.",
        warnings=(
            f"drops {format_share(backups / total)} of the gradients: the effective batch changes",
        ),
    )


def _break_even_cv(workers: int, total: int, distribution: str) -> Measure:
    """The spread at which the step speed-up equals the cost factor."""
    # Here, because this import takes most of a second and no other calculator needs it.
    from scipy.optimize import brentq

    def surplus(cv: float) -> float:
        slowest = standard_order_mean(total, total, cv, distribution)
        return slowest / standard_order_mean(workers, total, cv, distribution) - total / workers

    # A normal spread so wide that times turn negative means nothing; stop where the mean of the
    # waited-for order statistic does.
    widest = _WIDEST_CV
    while standard_order_mean(workers, total, widest, distribution) <= 0:
        widest /= 2
    if surplus(widest) <= 0:
        return Measure.missing("ratio", f"it does not pay at any spread up to {widest:.3g}")
    return Measure(float(brentq(surplus, 0.0, widest, xtol=1e-12)), "ratio")


CALCULATORS = (backup_workers,)
