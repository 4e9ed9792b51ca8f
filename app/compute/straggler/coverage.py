"""Which steps and ranks a per-rank comparison can rest on."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.spoken import spoken_list, spoken_ratio
from steptax.app.compute.stats.rows import Flags, Ints
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix

#: Ranks that are told one by one.
_LISTED = 6


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
    left_out: tuple[int, ...]
    """Ranks that are not compared, as far as their numbers are known."""
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
    def who_is_left_out(self) -> str | None:
        """``rank 3``, ``ranks 3 and 5`` or ``12 of 1,024 ranks``; None where all are compared."""
        count = self.ranks_expected - self.ranks_used
        if not count:
            return None
        if len(self.left_out) != count or count > _LISTED:
            return f"{count:,} of {self.ranks_expected:,} ranks"
        return f"{'rank' if count == 1 else 'ranks'} {spoken_list(self.left_out)}"

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
    Rather than leave a rank out, fewer steps with every rank are used where they go on until now.
    """
    steps, ranks = cells.shape
    complete = np.count_nonzero(cells, axis=1) == matrix.expected_ranks
    used_steps, used_ranks = _choose(cells, complete, rules)
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
        left_out=_left_out(matrix, used_ranks),
        missing_reports=int(missing),
        rejected_reports=rejected_reports,
        complete=complete,
        step_places=np.flatnonzero(used_steps),
        rank_places=np.flatnonzero(used_ranks),
    )


def _left_out(matrix: StepMatrix, used: Flags) -> tuple[int, ...]:
    """Numbers of the ranks that are not ``used`` [R], and of those that never reported."""
    silent = set(range(matrix.expected_ranks)) - set(matrix.ranks.tolist())
    if len(silent) != matrix.expected_ranks - len(matrix.ranks):
        silent = set()  # each stands for a group, and which one would is not known
    return tuple(sorted({*matrix.ranks[~used].tolist(), *silent}))


def _choose(cells: Flags, complete: Flags, rules: StragglerRules) -> tuple[Flags, Flags]:
    """The steps [S] and the ranks [R] to use of ``cells`` [S, R]."""
    steps, ranks = cells.shape
    everyone = np.ones(ranks, dtype=bool)
    often = np.count_nonzero(cells, axis=0) >= rules.rank_reports_ratio * steps
    nearly_all = _reported_by(cells, often, rules), often
    count = np.count_nonzero(complete)
    if count < max(1, rules.complete_steps_ratio * steps):
        # Who joined late, or reports seldom, may be whom the others wait for.
        whole = count >= rules.complete_steps and not often.all()
        return (complete, everyone) if whole and _goes_on(complete, rules) else nearly_all
    # Where a rank has stopped reporting, what the others do since is not to be missed.
    choices = [(complete, everyone), (_reported_by(cells, everyone, rules), everyone)]
    if np.count_nonzero(often) > 1:
        choices.append(nearly_all)
    if ranks > 2:  # of few ranks nearly all are all
        choices.append((np.count_nonzero(cells, axis=1) >= ranks - 1, everyone))
    return next((one for one in choices if _goes_on(one[0], rules)), choices[0])


def _reported_by(cells: Flags, used: Flags, rules: StragglerRules) -> Flags:
    """[S] steps that nearly all of the ``used`` ranks reported."""
    least = rules.step_reports_ratio * max(1, int(np.count_nonzero(used)))
    return np.asarray(np.count_nonzero(cells[:, used], axis=1) >= least)


def _goes_on(used: Flags, rules: StragglerRules) -> bool:
    """Whether the newest of the ``used`` steps [S] is about the newest of all, by their pauses."""
    newest = np.flatnonzero(used)[-rules.complete_steps :]
    if not len(newest):
        return False
    pause = float(newest[-1] - newest[0]) / (len(newest) - 1) if len(newest) > 1 else 1.0
    return len(used) - 1 - int(newest[-1]) <= rules.complete_pauses * pause
