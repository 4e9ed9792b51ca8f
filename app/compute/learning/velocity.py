"""Learning velocity: how much loss a dollar buys, and when a target was reached.

Two runs compare only at the same phase of their learning-rate schedules, and across tokenizers
only in bits per byte. Both say so with every value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from steptax.app.compute.learning.curve import LearningCurve, ema
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.positive import require_positive
from steptax.app.compute.stats.resample import block_length, interval
from steptax.app.compute.stats.rows import Floats
from steptax.app.errors import UserError
from steptax.app.words import count_text

#: Fewer points than this give no slope worth showing.
MIN_POINTS = 8
#: Points of a window that the pairwise slopes are taken over; more are averaged in order.
_SLOPE_POINTS = 200
#: Share of all dollars that a window spans unless told.
_WINDOW_RATIO = 0.25
#: Half-life of the smoothing, as a share of the window's points.
_HALF_LIFE_RATIO = 0.05
_COMPARABLE = "compares only at the same phase of the learning-rate schedule and the same tokenizer"

_INPUTS = ("steps.loss", "paid dollars")


def marginal_velocity(
    curve: LearningCurve,
    *,
    method: str = "theil_sen",
    window_usd: float | None = None,
    replicates: int = 200,
    seed: int = 0,
) -> Measure:
    """Loss that a dollar buys, -dL/d$, over the last ``window_usd`` dollars, in loss/USD.

    The window is a quarter of all dollars if None, or the last eight points if it holds fewer.

    ``theil_sen``: the median of all pairwise slopes, which outliers cannot move (Sen 1968).
    ``local_linear``: a straight line through the smoothed loss, weighted towards its end (tricube).
    The interval resamples blocks of neighbouring residuals around the line (Künsch 1989).

    Raises:
        UserError: another method, a window that is not positive, or no replicates.
    """
    slopes: dict[str, Callable[[Floats, Floats], float]] = {
        "theil_sen": _theil_sen,
        "local_linear": _local_linear,
    }
    if method not in slopes:
        raise UserError(f"no method {method!r}", where="method", hint=", ".join(slopes))
    if window_usd is not None:
        require_positive(window_usd=window_usd)
    if not len(curve):
        return _missing("loss/USD", "no step that counts has a loss")
    width = _WINDOW_RATIO * curve.spent_usd if window_usd is None else window_usd
    inside = curve.paid_usd >= curve.paid_usd[-1] - width
    warnings = [_COMPARABLE]
    if window_usd is None and inside.sum() < MIN_POINTS <= len(curve):
        inside = np.arange(len(curve)) >= len(curve) - MIN_POINTS
        warnings.append(f"over the last {MIN_POINTS} points: a quarter of the dollars holds fewer")
    usd, loss = curve.paid_usd[inside], curve.loss[inside]
    if len(usd) < MIN_POINTS:
        return _missing(
            "loss/USD", f"{count_text(len(usd), 'point')} in the window, {MIN_POINTS} are needed"
        )
    if usd[-1] <= usd[0]:
        return _missing("loss/USD", "no dollars were paid in the window")
    usd, loss = _averaged(usd, _SLOPE_POINTS), _averaged(loss, _SLOPE_POINTS)
    slope_of = slopes[method]
    slope = slope_of(usd, loss)
    line = slope * (usd - usd.mean())
    residual = loss - loss.mean() - line
    drawn = _block_draws(len(usd), replicates, seed)
    low, high = interval(np.array([slope_of(usd, line + residual[row]) for row in drawn]))
    return Measure(
        -slope,
        "loss/USD",
        low=-float(high),
        high=-float(low),
        level=Level.LOG,
        inputs=_INPUTS,
        warnings=tuple(warnings),
    )


def dollars_to_target(
    curve: LearningCurve, target_loss: float, *, replicates: int = 200, seed: int = 0
) -> Measure:
    """Dollars that had been paid when the loss first reached the target.

    First passage of a monotone fit (isotonic regression), so that one lucky batch does not count
    as the target. The interval refits to resampled blocks of residuals; its upper end is open
    where some replicates do not get there. Missing if the fit has not reached the target: there
    is no extrapolation.

    Raises:
        UserError: a target that is not a number, or no replicates.
    """
    if not math.isfinite(target_loss):
        raise UserError(f"must be a number, not {target_loss}", where="target_loss")
    if len(curve) < MIN_POINTS:
        return _missing("USD", f"{count_text(len(curve), 'point')}, {MIN_POINTS} are needed")
    fit = _monotone(curve.loss)
    at = _first_passage(fit, target_loss)
    if at is None:
        return _missing("USD", f"not reached: {target_loss:g} against a fit down to {fit[-1]:.4g}")
    residual = curve.loss - fit
    paid = []
    for row in _block_draws(len(fit), replicates, seed):
        found = _first_passage(_monotone(fit + residual[row]), target_loss)
        paid.append(math.inf if found is None else float(curve.paid_usd[found]))
    ordered = np.sort(np.array(paid))
    # Order statistics, not interpolation: between a number and "never" there is no middle.
    low, high = ordered[int(0.025 * replicates)], ordered[math.ceil(0.975 * replicates) - 1]
    warnings = [_COMPARABLE]
    never = int(np.isinf(ordered).sum())
    if never:
        warnings.append(f"{never} of {replicates} resampled runs do not reach it")
    beyond = len(fit) - at
    if beyond < block_length(len(fit)):
        warnings.append(f"of the points only {beyond:,} at the end reach it")
    return Measure(
        float(curve.paid_usd[at]),
        "USD",
        low=float(low) if math.isfinite(low) else None,
        high=float(high) if math.isfinite(high) else None,
        level=Level.LOG,
        inputs=_INPUTS,
        warnings=tuple(warnings),
    )


def _missing(unit: str, reason: str) -> Measure:
    return Measure.missing(unit, reason, level=Level.LOG)


def _averaged(values: Floats, most: int) -> Floats:
    """Means over at most ``most`` runs of neighbours, of equal length up to one."""
    if len(values) <= most:
        return values
    edges = np.linspace(0, len(values), most + 1).astype(np.int64)
    return np.add.reduceat(values, edges[:-1]) / np.diff(edges)


def _theil_sen(x: Floats, y: Floats) -> float:
    """Median slope over all pairs with different x."""
    i, j = np.triu_indices(len(x), 1)
    run = x[j] - x[i]
    some = run > 0
    return float(np.median((y[j] - y[i])[some] / run[some]))


def _local_linear(x: Floats, y: Floats) -> float:
    """Slope at the end of x of the smoothed y, weights (1 - u^3)^3."""
    smooth = ema(y, max(1.0, _HALF_LIFE_RATIO * len(y)))
    weight = (1 - ((x[-1] - x) / (x[-1] - x[0])) ** 3) ** 3
    run = x - np.average(x, weights=weight)
    return float((weight * run) @ smooth / ((weight * run) @ run))


def _monotone(loss: Floats) -> Floats:
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(loss, increasing=False).x, dtype=np.float64)


def _first_passage(fit: Floats, target: float) -> int | None:
    """Index of the first value at or below ``target`` of a falling sequence."""
    at = int(np.searchsorted(-fit, -target))
    return at if at < len(fit) else None


def _block_draws(
    n: int, replicates: int, seed: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """[B, n] indices: blocks of neighbours, drawn with replacement, wrapping round."""
    if replicates < 1:
        raise UserError(f"must be at least 1, not {replicates}", where="replicates")
    length = block_length(n)
    blocks = -(-n // length)
    starts = np.random.default_rng(seed).integers(n, size=(replicates, blocks))
    index = (starts[:, :, None] + np.arange(length)) % n
    return index.reshape(replicates, -1)[:, :n]
