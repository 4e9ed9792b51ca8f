"""Expected order statistics: how slow the slowest of N ranks is.

A synchronous step ends when its last rank does, so the step time is a maximum. Every function
here takes and gives plain numbers in the unit of the caller (milliseconds, or multiples of a
standard deviation), holds no state and draws no random number. Normal and lognormal values are
exact to about ten digits by quadrature; exponential ones are closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, betaln, digamma, log_ndtr, ndtr, ndtri

from steptax.app.errors import UserError

Array = npt.NDArray[np.float64]

#: Points of the trapezoid rule. For a smooth density that vanishes at both ends it converges
#: faster than any power of the spacing, so more points would only add rounding.
_POINTS = 1024
#: Probability left out at either end.
_CUT = 1e-18


def require_ranks(n: int, name: str = "ranks") -> int:
    """``n`` if it is a whole number of at least one.

    Raises:
        UserError: it is not.
    """
    if isinstance(n, bool) or int(n) != n or n < 1:
        raise UserError(f"{name} must be a whole number of at least 1, not {n}", where=name)
    return int(n)


@lru_cache(maxsize=512)
def _score_weights(k: int, n: int, reach: float) -> tuple[Array, Array]:
    """Nodes z and weights (sum 1) of the density of the k-th smallest of n standard normals.

    ``reach`` widens the upper end, for functions of z that grow like exp(reach * z).
    """
    low = float(ndtri(betaincinv(k, n - k + 1, _CUT)))
    # 1 - U(k:n) has the law of U(n-k+1:n); working from that side keeps digits near one.
    high = -float(ndtri(betaincinv(n - k + 1, k, _CUT))) + reach
    z = np.linspace(low, high, _POINTS)
    log_density = (k - 1) * log_ndtr(z) + (n - k) * log_ndtr(-z) - z * z / 2 - betaln(k, n - k + 1)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    z.setflags(write=False)
    weight.setflags(write=False)
    return z, weight


def order_mean(
    k: int, n: int, value_of_score: Callable[[Array], Array], *, reach: float = 0.0
) -> float:
    """E[X(k:n)], the mean of the k-th smallest of n independent draws.

    The distribution is given by ``value_of_score``: the increasing function that turns a standard
    normal score into a value, x = Q(Phi(z)). ``reach`` is its exponential growth rate, if any.

    Raises:
        UserError: k is not in 1..n.
    """
    n = require_ranks(n)
    if not 1 <= k <= n:
        raise UserError(f"the place must lie in 1..{n}, not {k}", where="k")
    z, weight = _score_weights(int(k), n, reach)
    return float(weight @ value_of_score(z))


def normal_order_mean(k: int, n: int) -> float:
    """E[Z(k:n)] of standard normals: integral of z over its density, by quadrature."""
    # The middle one of an odd number has mean zero; the quadrature would leave its rounding.
    if 2 * k == n + 1:
        return 0.0
    return order_mean(k, n, lambda z: z)


def normal_max_mean(n: int) -> float:
    """m_N: by how many standard deviations the slowest of N exceeds the mean.

    m_N is the integral of x N phi(x) Phi(x)^(N-1).
    """
    return normal_order_mean(n, n)


def normal_max_sd(n: int) -> float:
    """Standard deviation of the largest of N standard normals."""
    n = require_ranks(n)
    z, weight = _score_weights(n, n, 0.0)
    mean = float(weight @ z)
    return math.sqrt(float(weight @ (z - mean) ** 2))


def lognormal_order_mean(k: int, n: int, sigma: float) -> float:
    """E[X(k:n)] of lognormals with median 1 and log-standard-deviation ``sigma``."""
    return order_mean(k, n, lambda z: np.exp(sigma * z), reach=float(math.ceil(max(sigma, 0.0))))


def lognormal_sigma(cv: float) -> float:
    """Log-standard-deviation of the lognormal whose sd / mean is ``cv``."""
    return math.sqrt(math.log1p(cv * cv))


def exponential_order_mean(k: int, n: int, mean: float = 1.0) -> float:
    """E[X(k:n)] of exponentials: mean * (H_n - H_(n-k)), exact (Renyi 1953)."""
    n = require_ranks(n)
    if not 1 <= k <= n:
        raise UserError(f"the place must lie in 1..{n}, not {k}", where="k")
    return mean * float(digamma(n + 1) - digamma(n - k + 1))


def standard_order_mean(k: int, n: int, cv: float, distribution: str) -> float:
    """E[X(k:n)] / mean for draws with the given sd / mean.

    ``normal``, ``lognormal``, or ``exponential`` (a constant plus an exponential, with that mean
    and sd).

    Raises:
        UserError: another distribution.
    """
    if distribution in ("lognormal", "exponential") and n == k == 1:
        return 1.0
    if distribution == "normal":
        return 1 + cv * normal_order_mean(k, n)
    if distribution == "exponential":
        return 1 + cv * (exponential_order_mean(k, n) - 1)
    if distribution == "lognormal":
        sigma = lognormal_sigma(cv)
        return lognormal_order_mean(k, n, sigma) * math.exp(-sigma * sigma / 2)
    raise UserError(
        f"no distribution {distribution!r}",
        where="distribution",
        hint="normal, lognormal or exponential",
    )


def correlated_max_mean(mean: float, sd: float, correlation: float, n: int) -> float:
    """E[max] when ranks share a factor: mean + sd * sqrt(1 - correlation) * m_N.

    What all ranks have in common moves the whole step and makes nobody wait.

    Raises:
        UserError: the correlation is not in 0..1.
    """
    if not 0 <= correlation <= 1:
        raise UserError(f"must lie in 0..1, not {correlation}", where="correlation")
    return mean + sd * math.sqrt(1 - correlation) * normal_max_mean(n)


@lru_cache(maxsize=256)
def nested_max_mean(nodes: int, ranks_per_node: int, node_sd: float, rank_sd: float) -> float:
    """E[max] over nodes * ranks_per_node ranks of node effect + rank effect, both normal, mean 0.

    With F the law of one node's slowest rank, this is the mean of the largest of ``nodes`` draws
    from F. It is at least node_sd * m_nodes + rank_sd * m_per_node, which takes the slowest rank
    of the slowest node; the slowest rank of all may sit elsewhere.

    Raises:
        UserError: a count below 1 or a negative sd.
    """
    nodes = require_ranks(nodes, "nodes")
    ranks_per_node = require_ranks(ranks_per_node, "ranks_per_node")
    if node_sd < 0 or rank_sd < 0:
        raise UserError("a standard deviation cannot be negative", where="node_sd, rank_sd")
    if rank_sd == 0:
        return node_sd * normal_max_mean(nodes)
    if node_sd == 0:
        return rank_sd * normal_max_mean(nodes * ranks_per_node)
    reach = 9.0 * (node_sd + rank_sd)
    x = np.linspace(-reach, reach, 1201)[:, None]
    # The narrower of the two effects is summed over its nodes, so that what remains is smooth.
    if rank_sd <= node_sd:
        slowest, weight = _score_weights(ranks_per_node, ranks_per_node, 0.0)
        exceed = ndtr(-(x - rank_sd * slowest) / node_sd) @ weight
    else:
        effect, weight = _score_weights(1, 1, 0.0)
        scores = (x - node_sd * effect) / rank_sd
        exceed = -np.expm1(ranks_per_node * log_ndtr(scores)) @ weight
    below = np.exp(nodes * np.log1p(-np.minimum(exceed, 1 - 1e-16)))
    return reach - float(np.trapezoid(below, x[:, 0]))


def blom_max_mean(n: int) -> float:
    """Blom's approximation of m_N, for comparison: within 0.8 %."""
    n = require_ranks(n)
    return float(ndtri((n - 0.375) / (n + 0.25)))


def gumbel_max_mean(n: int) -> float:
    """The extreme-value approximation of m_N, for comparison: +5 % at 8, +0.3 % at 16,384.

    Raises:
        UserError: n is below 2, where it does not exist.
    """
    n = require_ranks(n)
    if n < 2:
        raise UserError("the extreme-value form needs at least 2 ranks", where="ranks")
    b = -float(ndtri(1 / n))
    density = math.exp(-b * b / 2) / math.sqrt(2 * math.pi)
    return b + float(np.euler_gamma) / (n * density)


def any_slow_ratio(slow_ratio: float, n: int) -> float:
    """P(at least one of N is slow) = 1 - (1 - p)^N, exact for tiny p.

    Raises:
        UserError: p is not in 0..1.
    """
    n = require_ranks(n)
    if not 0 <= slow_ratio <= 1:
        raise UserError(f"must lie in 0..1, not {slow_ratio}", where="slow_ratio")
    if slow_ratio == 1:
        return 1.0
    return -math.expm1(n * math.log1p(-slow_ratio))
