"""How slow the slowest of N ranks is when nothing is wrong with any of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.order_stats import (
    any_slow_ratio,
    blom_max_mean,
    gumbel_max_mean,
    nested_max_mean,
    normal_max_mean,
    normal_max_sd,
    standard_order_mean,
)
from steptax.app.compute.stats.scaling import MAX_REACH, FaultModel, bad_rank_upper_ratio
from steptax.app.errors import UserError

DISTRIBUTIONS = ("normal", "lognormal", "exponential")


@dataclass(frozen=True, kw_only=True)
class ExpectedMax(Result):
    """``slowdown``: E[max] / mean; ``standard_max``: m_N, that of normal draws in their sd.

    ``blom`` and ``gumbel`` are approximations of m_N, shown for comparison only. ``any_bad_ratio``
    is the chance of a bad rank; ``bad_rank_upper_ratio`` what seeing none of them leaves open.
    """

    headline: str = "slowdown"

    slowdown: Measure
    tax_ratio: Measure
    expected_max_ms: Measure
    standard_max: Measure
    sd_of_max: Measure
    blom: Measure
    gumbel: Measure
    any_bad_ratio: Measure
    bad_rank_upper_ratio: Measure


@calculator(
    name="expected-max",
    title="The slowest of N",
    formula="E[max] = mean + sd sqrt(1 - rho) m_N, m_N = integral of x N phi(x) Phi(x)^(N-1); "
    "with bad ranks: + (1 - (1 - p)^N) max(0, their work - E[max])",
    source="Order statistics: Arnold, Balakrishnan & Nagaraja 1992; approximations: Blom 1958, "
    "Gumbel 1958",
    page="With N equal ranks that vary at random, the step still takes the time of the unluckiest "
    "one. Use the spread between ranks inside a step, not the spread over the whole run: what all "
    "ranks share makes nobody wait. Where the distribution is not given, the value is for a normal "
    "one and the band reaches to an exponential one of the same mean and spread. Ranks that were "
    "measured speak for at most 64 times as many: beyond, say how many ranks are bad and how slow "
    "they are, for faults that rare were not seen.",
    parameters=(
        Parameter("ranks", "", "ranks that wait for each other", Kind.INT, minimum=1),
        Parameter("cv_ratio", "ratio", "spread between ranks in a step: sd / mean", minimum=0),
        Parameter("mean_ms", "ms", "mean work of a rank", above=0),
        Parameter("distribution", "", "shape of the spread", Kind.CHOICE, choices=DISTRIBUTIONS),
        Parameter(
            "correlation_ratio",
            "ratio",
            "share of the variance that all ranks have in common",
            minimum=0,
            maximum=1,
        ),
        Parameter("ranks_per_node", "", "ranks that share a node", Kind.INT, minimum=1),
        Parameter(
            "node_share_ratio",
            "ratio",
            "share of the remaining variance that lies between nodes",
            minimum=0,
            maximum=1,
        ),
        Parameter(
            "observed_ranks", "", "ranks that the spread was measured on", Kind.INT, minimum=1
        ),
        Parameter(
            "bad_rank_ratio",
            "ratio",
            "chance that a rank is bad: with bad_slowdown, a fault model",
            minimum=0,
            maximum=1,
        ),
        Parameter("bad_slowdown", "x", "work of a bad rank / mean work", minimum=1),
    ),
)
def expected_max(
    *,
    ranks: int,
    cv_ratio: float | None = None,
    mean_ms: float | None = None,
    distribution: str | None = None,
    correlation_ratio: float = 0.0,
    ranks_per_node: int | None = None,
    node_share_ratio: float | None = None,
    observed_ranks: int | None = None,
    bad_rank_ratio: float | None = None,
    bad_slowdown: float | None = None,
) -> ExpectedMax:
    """E[max] over ``ranks``, relative and in ms, with m_N and its approximations.

    Missing, with its reason, for more than 64 times the ranks measured without a fault model.

    Raises:
        UserError: node arguments that do not go together, or with another shape than normal; half
            a fault model.
    """
    faults = _fault_model(bad_rank_ratio, bad_slowdown)
    m = normal_max_mean(ranks)
    no_spread = "the spread between ranks was not given"
    # m_N holds for independent normal ranks; of others the distance follows from the step itself.
    above = m
    if cv_ratio is None:
        slowdown = Measure.missing("x", no_spread)
    else:
        own = cv_ratio * math.sqrt(1 - correlation_ratio)
        by_chance = _slowdown(ranks, own, distribution, ranks_per_node, node_share_ratio)
        slowdown = _reached(by_chance, ranks, observed_ranks, faults)
        if cv_ratio and by_chance.value is not None:
            above = (by_chance.value - 1) / cv_ratio
    if mean_ms is None:
        in_ms = Measure.missing("ms", "the mean work was not given")
    else:
        in_ms = slowdown.map(lambda factor: factor * mean_ms, "ms")
    sentence = f"The slowest of {ranks:,} lies {above:.2f} standard deviations above the mean."
    if cv_ratio is not None and slowdown.value is None:
        sentence = f"No answer: {slowdown.reason}."
    if slowdown.value is not None:
        sentence += f" The step takes {slowdown.value:.3f} times the mean work"
        if slowdown.low is not None and slowdown.high is not None:
            sentence += f" ({slowdown.low:.3f} to {slowdown.high:.3f})"
        sentence += "."
    return ExpectedMax(
        headline="standard_max" if cv_ratio is None else "slowdown",
        slowdown=slowdown,
        tax_ratio=slowdown.map(lambda factor: 1 - 1 / factor, "ratio"),
        expected_max_ms=in_ms,
        standard_max=Measure(m, "sd"),
        sd_of_max=Measure(normal_max_sd(ranks), "sd"),
        blom=Measure(blom_max_mean(ranks), "sd"),
        gumbel=Measure.missing("sd", "needs at least 2 ranks")
        if ranks < 2
        else Measure(gumbel_max_mean(ranks), "sd"),
        any_bad_ratio=Measure.missing("ratio", "no fault model was given")
        if faults is None
        else Ratio(any_slow_ratio(faults.bad_rank_ratio, ranks)),
        bad_rank_upper_ratio=Measure.missing("ratio", "the ranks measured were not given")
        if observed_ranks is None
        else Ratio(bad_rank_upper_ratio(observed_ranks), warnings=("95 % upper bound, none seen",)),
        sentence=sentence,
        warnings=slowdown.warnings,
    )


def _fault_model(ratio: float | None, slowdown: float | None) -> FaultModel | None:
    if ratio is None and slowdown is None:
        return None
    if ratio is None or slowdown is None:
        absent = "bad_rank_ratio" if ratio is None else "bad_slowdown"
        raise UserError("expected bad_rank_ratio and bad_slowdown together", where=absent)
    return FaultModel(ratio, slowdown)


def _reached(
    slowdown: Measure, ranks: int, observed: int | None, faults: FaultModel | None
) -> Measure:
    """The answer as far as the ranks measured speak for it, with the bad ones added."""
    said = list(slowdown.warnings)
    if observed is not None and ranks > observed:
        said.append(f"extrapolated from {observed:,} ranks to {ranks:,}")
        if faults is None and ranks > MAX_REACH * observed:
            return Measure.missing(
                "x",
                f"{ranks:,} ranks are more than {MAX_REACH} times the {observed:,} measured: give "
                "bad_rank_ratio and bad_slowdown (a fault model), for the measured ones cannot "
                "tell",
            )
    if faults is None:
        return replace(slowdown, warnings=tuple(said))
    said.append("includes the bad ranks of the fault model given")
    bad, slow = any_slow_ratio(faults.bad_rank_ratio, ranks), faults.bad_slowdown
    added = slowdown.map(lambda base: base + bad * max(0.0, slow - base), "x")
    return replace(added, warnings=tuple(said))


def _slowdown(
    ranks: int,
    cv: float,
    distribution: str | None,
    ranks_per_node: int | None,
    node_share_ratio: float | None,
) -> Measure:
    if (ranks_per_node is None) != (node_share_ratio is None):
        raise UserError(
            "expected ranks_per_node and node_share_ratio together", where="ranks_per_node"
        )
    if ranks_per_node is not None and node_share_ratio is not None:
        if distribution not in (None, "normal"):
            raise UserError("expected normal beside node effects", where="distribution")
        if ranks % ranks_per_node:
            raise UserError(f"expected a divisor of {ranks}", where="ranks_per_node")
        node_sd = cv * math.sqrt(node_share_ratio)
        rank_sd = cv * math.sqrt(1 - node_share_ratio)
        return Measure(
            1 + nested_max_mean(ranks // ranks_per_node, ranks_per_node, node_sd, rank_sd), "x"
        )
    if distribution is not None:
        return Measure(standard_order_mean(ranks, ranks, cv, distribution), "x")
    shapes = [standard_order_mean(ranks, ranks, cv, shape) for shape in DISTRIBUTIONS]
    return Measure(
        shapes[0],
        "x",
        min(shapes),
        max(shapes),
        warnings=("distribution not given: normal, with the band up to exponential",),
    )


CALCULATORS = (expected_max,)
