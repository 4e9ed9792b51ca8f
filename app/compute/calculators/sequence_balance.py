"""Dealing sequences to ranks by what they cost instead of as they come."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.order_stats import Array
from steptax.app.errors import UserError


@dataclass(frozen=True)
class SequenceCost:
    """Work of a rank: us_per_token * tokens + us_per_token_sq * sum of squares + fixed_us."""

    us_per_token: float
    us_per_token_sq: float
    fixed_us: float

    @property
    def equal_parts_tokens(self) -> float | None:
        """Length whose linear and quadratic parts are equal; None when nothing is quadratic."""
        return self.us_per_token / self.us_per_token_sq if self.us_per_token_sq > 0 else None


def fit_sequence_cost(tokens: Array, seq_sq_sum: Array, work_us: Array) -> SequenceCost:
    """Non-negative least squares on measured rank steps, all of shape (m,).

    Raises:
        UserError: fewer than four rank steps, or lengths that do not vary.
    """
    # Here, because this import takes most of a second and no calculator needs it.
    from scipy.optimize import nnls

    columns = np.column_stack((tokens, seq_sq_sum, np.ones_like(work_us))).astype(np.float64)
    if columns.shape[0] < 4 or np.linalg.matrix_rank(columns / columns.max(axis=0)) < 3:
        raise UserError(
            "expected at least 4 rank steps whose tokens and squared lengths vary independently",
            where="tokens, seq_sq_sum",
        )
    # Columns differ by many powers of ten; equal scales keep the solver's tolerance meaningful.
    scale = columns.max(axis=0)
    solution, _ = nnls(columns / scale, np.asarray(work_us, dtype=np.float64))
    return SequenceCost(*(float(v) for v in solution / scale))


def equal_parts_tokens(parameters: float, layers: int, query_width: float) -> float:
    """Length at which attention costs as much as the rest: P / (L d_q), causal.

    From cost(s) = 6 P s + 6 L d_q s^2. ``parameters`` excludes the input embedding, which costs
    nothing; ``query_width`` is heads times head size.
    """
    return parameters / (layers * query_width)


def relative_costs(lengths_tokens: Sequence[float], equal_parts: float) -> Array:
    """Cost of each sequence in tokens-worth of the linear part: s + s^2 / equal_parts."""
    s = np.asarray(lengths_tokens, dtype=np.float64)
    return s + s * s / equal_parts


def longest_first(costs: Array, ranks: int) -> Array:
    """Load of each rank when the costliest sequence left goes to the least loaded (Graham 1969).

    Its largest is at most 4/3 - 1/(3 ranks) times the best possible.
    """
    heap = [(0.0, rank) for rank in range(ranks)]
    loads = np.zeros(ranks)
    for cost in np.sort(costs)[::-1]:
        load, rank = heapq.heappop(heap)
        loads[rank] = load + float(cost)
        heapq.heappush(heap, (loads[rank], rank))
    return loads


@dataclass(frozen=True, kw_only=True)
class SequenceBalance(Result):
    """Slowest rank / mean rank, as dealt and balanced; ``bound`` is what no dealing can beat."""

    headline: str = "step_speedup"

    step_speedup: Measure
    ceiling: Measure
    """Speed-up of a dealing that reaches the bound."""
    imbalance_dealt: Measure
    imbalance_balanced: Measure
    imbalance_bound: Measure
    equal_parts_tokens: Measure


@calculator(
    name="sequence-balance",
    title="Balancing sequence lengths",
    formula="cost(s) = 6 P s + 6 L d_q s^2 ~ s + s^2/s*, s* = P/(L d_q); longest first onto the "
    "least loaded rank; bound = max(mean, costliest)",
    source="Lin et al., OSDI'25 (sequence-length imbalance); Graham 1969",
    page="Attention grows with the square of the length, so ranks with the same number of tokens "
    "do not have the same work. Long sequences are dealt first, each to the rank with the least so "
    "far. A sequence is not split: one that costs more than the mean sets the bound. Counts "
    "compute only, at equal efficiency for all lengths.",
    parameters=(
        Parameter(
            "lengths_tokens",
            "tokens",
            "lengths of the sequences of one step, in the order dealt",
            Kind.REALS,
            above=0,
        ),
        Parameter("ranks", "", "data-parallel ranks, dealt to in turn", Kind.INT, minimum=1),
        Parameter(
            "equal_parts_tokens",
            "tokens",
            "length at which attention costs as much as the rest",
            above=0,
        ),
        Parameter(
            "parameters", "", "parameters less the input embedding, instead of that length", above=0
        ),
        Parameter("layers", "", "layers", Kind.INT, minimum=1),
        Parameter("query_width", "", "heads times head size", above=0),
    ),
)
def sequence_balance(
    *,
    lengths_tokens: Sequence[float],
    ranks: int,
    equal_parts_tokens: float | None = None,
    parameters: float | None = None,
    layers: int | None = None,
    query_width: float | None = None,
) -> SequenceBalance:
    """What longest-first dealing gains over dealing in turn.

    Raises:
        UserError: neither or both ways of giving the cost; fewer sequences than ranks.
    """
    equal = _equal_parts(equal_parts_tokens, parameters, layers, query_width)
    if len(lengths_tokens) < ranks:
        raise UserError(
            f"expected at least one sequence per rank, {ranks}, not {len(lengths_tokens)}",
            where="lengths_tokens",
        )
    costs = relative_costs(lengths_tokens, equal)
    mean = float(costs.sum()) / ranks
    turns = np.bincount(np.arange(costs.size) % ranks, weights=costs, minlength=ranks)
    dealt = float(turns.max())
    balanced = float(longest_first(costs, ranks).max())
    bound = max(mean, float(costs.max()))
    return SequenceBalance(
        step_speedup=Measure(dealt / balanced, "x"),
        ceiling=Measure(dealt / bound, "x"),
        imbalance_dealt=Measure(dealt / mean, "x"),
        imbalance_balanced=Measure(balanced / mean, "x"),
        imbalance_bound=Measure(bound / mean, "x"),
        equal_parts_tokens=Measure(equal, "tokens"),
        sentence=f"The slowest rank computes {dealt / mean:.3f} times the mean as dealt and "
        f"{balanced / mean:.3f} times balanced: {dealt / balanced:.3f}x. No dealing gets below "
        f"{bound / mean:.3f}.",
        warnings=("compute only: communication and waiting on other causes stay",),
    )


def _equal_parts(
    equal_parts: float | None,
    parameters: float | None,
    layers: int | None,
    query_width: float | None,
) -> float:
    if parameters is None and layers is None and query_width is None and equal_parts is not None:
        return equal_parts
    if (
        parameters is not None
        and layers is not None
        and query_width is not None
        and equal_parts is None
    ):
        return equal_parts_tokens(parameters, layers, query_width)
    raise UserError(
        "expected equal_parts_tokens, or parameters with layers and query_width",
        where="equal_parts_tokens",
    )


CALCULATORS = (sequence_balance,)
