"""What a run has learned, against what has been paid for it.

Loss is taken over the steps that count; dollars over everything that was paid, so that a step that
was run, lost and run again costs twice and learns once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.stats.positive import require_positive
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.errors import UserError


@dataclass(frozen=True)
class LearningCurve:
    """Retained points in their order: step [K], loss [K], cumulative paid dollars [K].

    ``paid_usd`` is all that was spent until the end of that step, lost steps and time between
    sessions included. ``lost_usd`` is what the steps cost that were later run again.
    """

    step: Ints
    loss: Floats
    paid_usd: Floats
    spent_usd: float
    """All that was paid, whether a retained step followed or not."""
    lost_usd: float

    def __len__(self) -> int:
        """Retained points."""
        return len(self.step)


def superseded(step: Sequence[int] | Ints) -> Flags:
    """Which rows, in the order of time, were rolled back: a later row has the same or a lower step.

    A drop in the step number is a restart from a checkpoint; everything from there on is redone.
    """
    steps = np.asarray(step, dtype=np.int64)
    if not len(steps):
        return np.zeros(0, dtype=np.bool_)
    later = np.minimum.accumulate(steps[::-1])[::-1]
    return np.append(steps[:-1] >= later[1:], False)


def learning_curve(
    step: Sequence[int], loss: Sequence[float | None], usd: Sequence[float]
) -> LearningCurve:
    """The curve of a run from its rows in the order of time.

    ``usd`` [N] is what was paid since the row before (or since the start): step time times price
    times devices, and the time between sessions with the first row after it. A row without loss
    (None or NaN) costs and tells nothing.

    Raises:
        UserError: lengths that differ, or a cost below zero.
    """
    steps = np.asarray(step, dtype=np.int64)
    values = np.array([math.nan if v is None else v for v in loss], dtype=np.float64)
    cost = np.asarray(usd, dtype=np.float64)
    if not len(steps) == len(values) == len(cost):
        raise UserError(
            f"{len(steps)} steps, {len(values)} losses and {len(cost)} costs", where="usd"
        )
    if not np.all(np.isfinite(cost) & (cost >= 0)):
        raise UserError("a cost must be zero or more", where="usd")
    lost = superseded(steps)
    keep = ~lost & np.isfinite(values)
    return LearningCurve(
        steps[keep],
        values[keep],
        np.cumsum(cost)[keep],
        float(cost.sum()),
        float(cost[lost].sum()),
    )


def bits_per_byte(loss_nats: float, tokens: int, text_bytes: int) -> float:
    """Loss that compares across tokenizers: loss / ln 2 * tokens / bytes of the same text.

    Raises:
        UserError: no tokens or no bytes.
    """
    require_positive(tokens=tokens, text_bytes=text_bytes)
    return loss_nats / math.log(2) * tokens / text_bytes


def ema(values: Floats, half_life: float) -> Floats:
    """Exponential moving average in which a point counts half after ``half_life`` points.

    Weights are normalised, so the first points are not pulled towards zero.

    Raises:
        UserError: the half-life is not positive.
    """
    require_positive(half_life=half_life)
    decay = 0.5 ** (1 / half_life)
    out = np.empty(len(values))
    total = weight = 0.0
    for k, value in enumerate(values):
        total = decay * total + value
        weight = decay * weight + 1
        out[k] = total / weight
    return out
