"""What every straggler statistic begins with; the newest steps, which need no more than that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.straggler.arrival import Arrivals, arrivals, choose_basis, reported_cells
from steptax.app.compute.straggler.coverage import Coverage, cover
from steptax.app.compute.straggler.result import StepTable
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix, name_cell, without_inconsistent
from steptax.app.compute.straggler.tables import step_table

DEFAULT_RULES = StragglerRules()


@dataclass(frozen=True, eq=False)
class Look:
    """Which reports are used, and who arrived when in them."""

    matrix: StepMatrix
    """Without inconsistent reports."""
    part: StepMatrix
    """The used steps and ranks of it."""
    coverage: Coverage
    arrived: Arrivals
    warnings: tuple[str, ...]
    reason: str | None
    """Why nothing can be told; None when it can."""


def look(matrix: StepMatrix, rules: StragglerRules) -> Look:
    """Choose what is measured of waiting, the reports that carry it, and the ranks and steps."""
    matrix, bad = without_inconsistent(matrix)
    choice = choose_basis(matrix, rules)
    cells = reported_cells(matrix, choice.basis)
    coverage = cover(matrix, cells, rules, rejected_reports=int(np.count_nonzero(bad)))
    warnings = list(choice.warnings)
    if bad.any():
        warnings.append(
            f"{np.count_nonzero(bad):,} reports are left out because their parts exceed their "
            f"duration, first {name_cell(matrix, bad)}"
        )
    warnings += [said for said in (coverage.label, coverage.missing) if said]
    reason = choice.unknown or coverage.reason
    if reason is None and coverage.ranks_used < 2 and matrix.world_size > 1:
        reason = (
            f"only one of {coverage.ranks_expected:,} ranks reported enough steps to be compared"
        )
    part = matrix.select(coverage.step_places, coverage.rank_places)
    arrived = arrivals(part, choice)
    if reason is None and not arrived.paid_us.sum() > 0:
        reason = "all recorded durations are zero"
    return Look(matrix, part, coverage, arrived, tuple(warnings), reason)


def newest_steps(matrix: StepMatrix, *, rules: StragglerRules = DEFAULT_RULES) -> StepTable:
    """The steps of ``analyse_stragglers`` alone: what takes a twentieth of its time.

    One entry per recorded step; NaN and rank -1 where a step is not complete enough to be used or
    its waits cannot be told.
    """
    seen = look(matrix, rules)
    return step_table(seen.matrix, seen.coverage, None if seen.reason else seen.arrived)
