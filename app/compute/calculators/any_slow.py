"""The chance that at least one rank of a step is slow."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import betaincinv

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.order_stats import any_slow_ratio
from steptax.app.compute.stats.scaling import bad_rank_upper_ratio
from steptax.app.errors import UserError
from steptax.app.format import format_share


@dataclass(frozen=True, kw_only=True)
class AnySlow(Result):
    """``any_slow_ratio``: P(at least one); ``expected_slow``: mean number of slow ranks."""

    headline: str = "any_slow_ratio"

    any_slow_ratio: Ratio
    expected_slow: Measure
    slow_ratio: Ratio


@calculator(
    name="any-slow",
    title="At least one slow rank",
    formula="P = 1 - (1 - p)^N; mean number = N p; nothing slow among n seen: p <= 3/n (95 %)",
    source="Binomial law; rule of three: Hanley & Lippman-Hand 1983; interval: Clopper & Pearson "
    "1934",
    page="A synchronous step is slow as soon as one of its ranks is. Give the chance of a rank "
    "being slow, or how many were slow of those you looked at. Ranks are taken as independent: "
    "ranks that share a switch or a node are slow together: fewer slow steps, each worse.",
    parameters=(
        Parameter("ranks", "", "ranks that wait for each other", Kind.INT, minimum=1),
        Parameter("slow_ratio", "ratio", "chance that a rank is slow", minimum=0, maximum=1),
        Parameter(
            "observed_ranks", "", "ranks looked at, instead of a chance", Kind.INT, minimum=1
        ),
        Parameter("observed_slow", "", "of these, how many were slow", Kind.INT, minimum=0),
    ),
)
def any_slow(
    *,
    ranks: int,
    slow_ratio: float | None = None,
    observed_ranks: int | None = None,
    observed_slow: int = 0,
) -> AnySlow:
    """P(any slow) of ``ranks``, from a chance or from a count; a count brings a 95 % interval.

    Raises:
        UserError: neither or both ways of giving the chance; more slow ranks than ranks.
    """
    bound: tuple[str, ...] = ()
    low, high = None, None
    if slow_ratio is not None and observed_ranks is None:
        chance = slow_ratio
        sentence = (
            f"{format_share(any_slow_ratio(chance, ranks))} of steps have a slow rank "
            f"among {ranks:,}."
        )
    elif observed_ranks is not None and slow_ratio is None:
        chance, low, high = _observed(observed_ranks, observed_slow)
        bound = ("95 % upper bound 3/n",) if observed_slow == 0 else ()
        sentence = (
            f"With {observed_slow:,} slow of {observed_ranks:,} ranks seen, "
            f"{format_share(any_slow_ratio(low, ranks))} to "
            f"{format_share(any_slow_ratio(high, ranks))} of steps have "
            f"a slow rank among {ranks:,}."
        )
    else:
        raise UserError(
            "expected either the chance or a count of ranks looked at",
            where="slow_ratio",
            hint="--slow-ratio, or --observed-ranks and --observed-slow",
        )
    rate = Ratio(chance, low=low, high=high, warnings=bound)
    return AnySlow(
        any_slow_ratio=Ratio(
            any_slow_ratio(chance, ranks),
            low=None if low is None else any_slow_ratio(low, ranks),
            high=None if high is None else any_slow_ratio(high, ranks),
            warnings=bound,
        ),
        expected_slow=rate.map(lambda p: p * ranks, "ranks"),
        slow_ratio=rate,
        sentence=sentence,
        warnings=("ranks are taken as independent",),
    )


def _observed(ranks: int, slow: int) -> tuple[float, float, float]:
    """Rate, and the ends of its 95 % interval; the upper end alone when none was slow."""
    if slow > ranks:
        raise UserError(f"expected at most {ranks} slow ranks, not {slow}", where="observed_slow")
    if slow == 0:
        return 0.0, 0.0, bad_rank_upper_ratio(ranks)
    low = float(betaincinv(slow, ranks - slow + 1, 0.025))
    high = 1.0 if slow == ranks else float(betaincinv(slow + 1, ranks - slow, 0.975))
    return slow / ranks, low, high


CALCULATORS = (any_slow,)
