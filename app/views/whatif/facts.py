"""One job's window, analysed, and what a what-if can read off it.

Parts of a step are means over ranks and steps, so that they add up to the mean step; their
intervals are 95 %, by moving-block bootstrap over steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.resample import block_means, interval
from steptax.app.compute.stats.rows import Floats, row_max, row_mean
from steptax.app.compute.stats.scaling import VarianceParts, variance_parts
from steptax.app.compute.straggler.arrival import Arrivals
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.steps import CLOCKS_DIFFER_RATIO, StepMatrix
from steptax.app.errors import UserError
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.job.metrics import HOURS_PER_DAY
from steptax.app.views.pricing.given import NO_WORLD, RELATIVE_TIME
from steptax.app.views.whatif.models import Repair

REPLICATES = 400


@dataclass(frozen=True, eq=False)
class Facts:
    """A job's analysed window, and what can be read off it."""

    loaded: LoadedJob
    result: StragglerResult
    part: StepMatrix
    arrived: Arrivals
    told: bool
    """Who waits for whom can be told."""
    price: Decimal | None

    @property
    def level(self) -> Level:
        """What the numbers rest on."""
        return self.result.basis.level

    def none(self, unit: str, reason: str) -> Measure:
        """No value, and why."""
        return Measure.missing(unit, reason, level=self.level)

    @property
    def unknown(self) -> str | None:
        """Why no absolute time can be split, if so."""
        if self.part.time_is_relative:
            return RELATIVE_TIME
        return None if self.told else self.why

    @property
    def why(self) -> str:
        """Why it cannot be told who waits for whom."""
        return self.result.basis.unknown or self.result.verdict.text.rstrip(".")

    def ms(self, measure: Measure) -> Measure:
        """Microseconds of the analysis as ms; normalised ones are no time."""
        if self.part.time_is_relative:
            return self.none("ms", RELATIVE_TIME)
        return measure.map(lambda us: us / 1000.0, "ms")

    def count(self, value: float, unit: str = "") -> Measure:
        """A value without an interval."""
        return Measure(value, unit, level=self.level)

    @property
    def ranks(self) -> Measure:
        """Ranks of the job; a log of it need not say how many there are."""
        if self.loaded.world_is_unknown:
            return self.none("", NO_WORLD)
        return self.count(float(self.part.world_size))

    def parts_ms(self) -> dict[str, Measure]:
        """Mean compute, transfer, wait and rest of a step, in ms; they add up to it."""
        names = ("compute", "comm", "wait", "other")
        if self.unknown is not None:
            return {name: self.none("ms", self.unknown) for name in names}
        known: dict[str, Floats] = {"wait": row_mean(self.arrived.wait_us)}
        reasons: dict[str, str] = {}
        compute, transfer = self.part.phases.get("compute"), self.arrived.transfer_us
        if compute is None:
            reasons["compute"] = "compute_us was not recorded"
        else:
            known["compute"] = row_mean(compute)
        if transfer is None:
            reasons["comm"] = (
                "communication cannot be told from gaps of the host: comm_us was not recorded"
            )
        else:
            known["comm"] = row_mean(transfer)
        if reasons:
            reasons["other"] = f"cannot be told from the rest: {'; '.join(reasons.values())}"
        else:
            known["other"] = self.arrived.step_us - sum(known.values())
        measures = self._means(known)
        rest = measures.get("other")
        if rest is not None and rest.value is not None and rest.value < 0:
            measures["other"] = self._overlap(
                -rest.value, sum(m.value or 0 for m in measures.values())
            )
        return {
            name: measures[name] if name in measures else self.none("ms", reasons[name])
            for name in names
        }

    def _overlap(self, over_ms: float, step_ms: float) -> Measure:
        """The rest where the parts exceed the step; none where clocks explain it."""
        text = f"the measured parts overlap the step by {over_ms:.3g} ms"
        if over_ms > CLOCKS_DIFFER_RATIO * step_ms:
            return self.none("ms", text)
        return Measure(0.0, "ms", 0.0, 0.0, level=self.level, warnings=(text,))

    def _means(self, known: Mapping[str, Floats]) -> dict[str, Measure]:
        """Means over steps of columns in us, as ms with intervals."""
        values = np.column_stack(list(known.values())) / 1000.0
        values = values[np.isfinite(values).all(axis=1)]
        if not len(values):
            return {name: self.none("ms", "no step has all its parts") for name in known}
        low = high = None
        if len(values) > 1:
            low, high = interval(block_means(values, replicates=REPLICATES, seed=0))
        return {
            name: Measure(
                float(values[:, i].mean()),
                "ms",
                None if low is None else float(low[i]),
                None if high is None else float(high[i]),
                level=self.level,
                inputs=self.result.basis.inputs,
                warnings=self.result.basis.warnings,
            )
            for i, name in enumerate(known)
        }

    def spread(self) -> VarianceParts | str:
        """How work varies over ranks and steps, or why that is not known."""
        if not self.told:
            return self.why
        try:
            return variance_parts(self.arrived.work_us)
        except UserError as problem:
            return problem.message

    def repairs(self) -> tuple[Repair, ...]:
        """The costliest 1, 2, ... ranks, and all that the job's card calls slow for good."""
        curve, verdict = self.result.curve, self.result.verdict
        ranks = tuple(point.rank for point in curve)
        found = [(ranks[: k + 1], point.recoverable) for k, point in enumerate(curve)]
        if verdict.kind is Kind.WORKER and len(verdict.ranks) > len(ranks):
            found.append((verdict.ranks, self.result.recoverable_ratio))
        per_day = self.part.world_size * HOURS_PER_DAY
        return tuple(
            Repair(of, share, share.map(lambda r: r * per_day, "GPU-hours/day", "world_size"))
            for of, share in found
            if share.value is not None
        )

    def pauses(self, phase: str) -> tuple[Floats, Floats] | str:
        """Longest pause of each step [S] in us, and all cells [S, R]; or why there are none."""
        cells = self.part.phases.get(phase)
        if cells is None:
            return f"{phase}_us was not recorded"
        if self.part.time_is_relative:
            return RELATIVE_TIME
        longest = np.nan_to_num(row_max(cells))
        if not (longest > 0).any():
            return f"no step of this window has a {phase} time"
        return longest, cells
