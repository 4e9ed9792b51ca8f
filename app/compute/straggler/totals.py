"""Sums over the used reports, and the measures that are ratios of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.resample import interval
from steptax.app.compute.stats.rows import (
    Floats,
    column_mean,
    row_max,
    row_mean,
    row_min,
    row_quantile,
    row_sum,
)
from steptax.app.compute.straggler.tables import Used


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums per step, and how to turn ratios of them into measures."""

    used: Used
    ideal: str
    warnings: tuple[str, ...]
    wait_us: Floats
    """[S] waiting summed over ranks."""
    saving_us: Floats
    """[S] step time less the ideal one."""

    @classmethod
    def of(cls, used: Used, ideal: str, warnings: tuple[str, ...]) -> Totals:
        """Sum the waiting, and the saving against ``ideal``."""
        arrived = used.arrived
        mean = row_mean(arrived.arrival_us)
        reference = mean
        if ideal == "min":
            reference = row_min(arrived.arrival_us)
        elif ideal != "mean":
            (reference,) = row_quantile(arrived.arrival_us, 0.5 if ideal == "median" else 0.1)
        # The mean rank's waiting, which measured waits may leave above zero for every rank, and
        # what the reference rank would wait beyond it.
        saving = row_mean(arrived.wait_us) + (mean - reference)
        return cls(used, ideal, warnings, row_sum(arrived.wait_us), saving)

    def measure(self, value: float, unit: str, drawn: Floats | None = None, *notes: str) -> Measure:
        """A measure with the evidence of this job, and its interval from replicates [B]."""
        choice = self.used.arrived.choice
        low, high = (None, None) if drawn is None else map(float, interval(drawn))
        kind = Ratio if unit == "ratio" else Measure
        return kind(
            float(value),
            unit,
            low,
            high,
            choice.level,
            choice.inputs,
            (*self.warnings, *notes),
        )

    def share(self, amount_us: Floats, whole_us: Floats) -> Measure:
        """Sum of ``amount_us`` [S] over sum of ``whole_us`` [S], with its interval."""
        drawn = self.used.draw(np.stack([amount_us, whole_us], axis=1))
        # Replicates of steps that all took no time have no ratio.
        ratios = None if drawn is None or not (drawn[:, 1] > 0).all() else drawn[:, 0] / drawn[:, 1]
        return self.measure(amount_us.sum() / whole_us.sum(), "ratio", ratios)

    def saved(self, sooner_us: Floats) -> Measure:
        """Share of paid time that comes back when steps end ``sooner_us`` [S]."""
        return self.share(sooner_us, self.used.arrived.step_us)

    def slowdown(self) -> tuple[Measure, Measure]:
        """Slowdown and waste against the ideal; missing where the ideal leaves no time."""
        step_us = self.used.arrived.step_us
        ideal_us = step_us - self.saving_us
        if not ideal_us.sum() > 0:
            reason = f"no time is left in a step whose ranks are all like the {self.ideal} one"
            return Measure.missing("x", reason), Ratio.missing("ratio", reason)
        drawn = self.used.draw(np.stack([step_us, ideal_us], axis=1))
        ratios = None if drawn is None or not (drawn > 0).all() else drawn[:, 0] / drawn[:, 1]
        note = f"ideal: every rank like the {self.ideal} one"
        slowdown = self.measure(step_us.sum() / ideal_us.sum(), "x", ratios, note)
        waste = self.measure(
            self.saving_us.sum() / step_us.sum(),
            "ratio",
            None if ratios is None else 1 - 1 / ratios,
            note,
        )
        return slowdown, waste

    def lasting(self) -> tuple[Measure, Measure]:
        """Persistent and transient part of the tax."""
        wait_us = self.used.arrived.wait_us
        paid = self.used.arrived.paid_us.sum()
        reports = np.count_nonzero(~np.isnan(wait_us))
        least = float(np.nanmin(column_mean(wait_us))) * reports
        return (
            self.measure((float(np.nansum(wait_us)) - least) / paid, "ratio"),
            self.measure(least / paid, "ratio"),
        )

    def stages(self) -> tuple[Measure, Measure]:
        """Part of the tax between stages (latest stage mean less the mean of all) and the rest."""
        stage, arrival = self.used.matrix.stage, self.used.arrived.arrival_us
        if stage is None:
            missing = Ratio.missing("ratio", "the pipeline stage of the ranks is not known")
            return missing, missing
        means = np.stack([row_mean(arrival[:, stage == p]) for p in np.unique(stage)], axis=1)
        # The latest stage lies between the mean and the latest rank; rounding of arrivals, which
        # are large against the waiting in a level job, may say otherwise.
        mean_wait_us = row_mean(self.used.arrived.wait_us)
        ahead = np.clip(row_max(means) - row_mean(arrival), 0.0, mean_wait_us)
        between = ahead.sum() / self.used.arrived.step_us.sum()
        tax = self.wait_us.sum() / self.used.arrived.paid_us.sum()
        return self.measure(between, "ratio"), self.measure(tax - between, "ratio")
