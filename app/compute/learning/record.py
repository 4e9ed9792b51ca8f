"""The losses of a job in the order of time, each with what was paid since the one before.

Paid is the time that the job held its devices, from its allocation on: steps that failed or were
rolled back, restarts and pauses cost as much as steps that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.learning.curve import LearningCurve, learning_curve
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.errors import UserError

_US_PER_HOUR = 3.6e9


@dataclass(frozen=True, eq=False)
class LossRecord:
    """Rows in the order of time: step [N], loss [N] (NaN: none was reported), dollars [N].

    ``usd`` is None where they are not known, for ``reason``.
    """

    step: Ints
    loss: Floats
    usd: Floats | None
    reason: str | None
    basis: str
    """For people: where the losses are from."""
    warnings: tuple[str, ...] = ()

    def last(self, rows: int | None) -> LossRecord:
        """Its newest ``rows`` (None: all)."""
        if rows is None or rows >= len(self.step):
            return self
        part = slice(len(self.step) - rows, None)
        usd = None if self.usd is None else self.usd[part]
        return LossRecord(
            self.step[part], self.loss[part], usd, self.reason, self.basis, self.warnings
        )

    def reported(self) -> LossRecord:
        """The rows with a loss; what was paid for the others is added to the next of them."""
        there = np.isfinite(self.loss)
        usd = None
        if self.usd is not None:
            total = np.cumsum(self.usd)[there]
            usd = np.diff(total, prepend=0.0)
        return LossRecord(
            self.step[there], self.loss[there], usd, self.reason, self.basis, self.warnings
        )

    def curve(self) -> LearningCurve | None:
        """Loss over dollars of the steps that count; None where dollars are not known."""
        if self.usd is None:
            return None
        return learning_curve(self.step.tolist(), self.loss.tolist(), self.usd.tolist())


def paid_since(
    end_us: Sequence[int] | Ints, begin_us: int, gpus: int, usd_per_gpu_hour: float
) -> Floats:
    """Dollars between one end and the next [N], the first from ``begin_us`` on.

    ``end_us`` are moments in ascending order. What ends before the beginning costs nothing.

    Raises:
        UserError: moments that fall, no devices, or a price below zero.
    """
    ends = np.asarray(end_us, dtype=np.int64)
    if np.any(np.diff(ends) < 0):
        raise UserError("moments must not fall", where="end_us")
    if gpus < 1:
        raise UserError(f"must be at least 1, not {gpus}", where="gpus")
    if not usd_per_gpu_hour >= 0:
        raise UserError(f"must be zero or more, not {usd_per_gpu_hour}", where="usd_per_gpu_hour")
    gone_us = np.diff(np.maximum(ends, begin_us), prepend=begin_us)
    return gone_us.astype(np.float64) * (gpus * usd_per_gpu_hour / _US_PER_HOUR)
