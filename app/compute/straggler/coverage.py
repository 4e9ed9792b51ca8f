"""Which steps and ranks a per-rank comparison can rest on."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.stats.rows import Flags, Ints
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix


@dataclass(frozen=True, eq=False)
class Coverage:
    """What was recorded, what of it is used, and who has stopped reporting."""

    steps_total: int
    steps_used: int
    steps_incomplete: int
    """Steps in which an expected rank is missing."""
    ranks_expected: int
    ranks_seen: int
    ranks_used: int
    world_size: int
    newest_step: int
    last_step: Ints
    """[R] newest step of each rank seen."""
    stopped_ranks: tuple[int, ...]
    """Ranks whose newest step lags the newest of all by more than the allowed recorded steps."""
    missing_reports: int
    """Reports of the used ranks that the used steps lack; statistics leave them out."""
    rejected_reports: int
    """Reports whose parts exceed their whole; they count as not reported."""
    complete: Flags
    """[S] True where every expected rank made a usable report."""
    step_places: NDArray[np.intp]
    """Positions of the used steps."""
    rank_places: NDArray[np.intp]
    """Positions of the used ranks."""

    @property
    def weight(self) -> Fraction:
        """Paid ranks that one expected rank stands for."""
        return Fraction(self.world_size, self.ranks_expected)

    @property
    def label(self) -> str | None:
        """``on 9 of 10 ranks`` when some are left out, else None."""
        if self.ranks_used == self.ranks_expected:
            return None
        return f"on {self.ranks_used:,} of {self.ranks_expected:,} ranks"

    @property
    def missing(self) -> str | None:
        """How many reports the used steps lack, None where they lack none."""
        if not self.missing_reports:
            return None
        cells = self.steps_used * self.ranks_used
        reports = "report is" if self.missing_reports == 1 else "reports are"
        return (
            f"{self.missing_reports:,} of {cells:,} {reports} missing "
            f"({spoken_ratio(self.missing_reports / cells)}): they count for nothing, not as zero"
        )

    @property
    def _together(self) -> str:
        count = int(np.count_nonzero(self.complete))
        return f"only {count:,}" if count else "none"

    @property
    def reason(self) -> str | None:
        """Why nothing can be compared, or None when it can."""
        if self.steps_used and self.ranks_used:
            return None
        return (
            f"no step was reported by enough ranks: {self.ranks_seen:,} of {self.ranks_expected:,} "
            f"ranks reported {self.steps_total:,} steps, and {self._together} of them together"
        )


def cover(
    matrix: StepMatrix, cells: Flags, rules: StragglerRules, *, rejected_reports: int = 0
) -> Coverage:
    """Choose steps and ranks from the usable reports ``cells`` [S, R].

    Steps with every expected rank are used when they are at least half of all (``rules``). If
    not, the ranks that reported nearly all steps are, with the steps that nearly all of those
    reported: of a thousand ranks one is missing in most steps when one row in a thousand is lost.
    """
    steps, ranks = cells.shape
    complete = np.count_nonzero(cells, axis=1) == matrix.expected_ranks
    used_steps, used_ranks = complete, np.ones(ranks, dtype=bool)
    if np.count_nonzero(complete) < max(1, rules.complete_steps_ratio * steps):
        used_ranks = np.count_nonzero(cells, axis=0) >= rules.rank_reports_ratio * steps
        least = rules.step_reports_ratio * max(1, int(np.count_nonzero(used_ranks)))
        used_steps = np.count_nonzero(cells[:, used_ranks], axis=1) >= least
        if not used_ranks.all() and np.count_nonzero(complete) >= rules.complete_steps:
            # Who joined late, or reports seldom, may be whom the others wait for.
            used_steps, used_ranks = complete, np.ones(ranks, dtype=bool)
    missing = np.count_nonzero(~cells[np.ix_(used_steps, used_ranks)])
    last = np.where(
        matrix.reported.any(axis=0), steps - 1 - np.argmax(matrix.reported[::-1], axis=0), 0
    )
    stopped = matrix.ranks[steps - 1 - last > rules.stopped_lag_steps]
    return Coverage(
        steps_total=steps,
        steps_used=int(np.count_nonzero(used_steps)),
        steps_incomplete=int(np.count_nonzero(~complete)),
        ranks_expected=matrix.expected_ranks,
        ranks_seen=ranks,
        ranks_used=int(np.count_nonzero(used_ranks)),
        world_size=matrix.world_size,
        newest_step=int(matrix.steps[-1]),
        last_step=matrix.steps[last],
        stopped_ranks=tuple(int(r) for r in stopped),
        missing_reports=int(missing),
        rejected_reports=rejected_reports,
        complete=complete,
        step_places=np.flatnonzero(used_steps),
        rank_places=np.flatnonzero(used_ranks),
    )
