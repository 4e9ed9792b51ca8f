"""When each rank is ready at the barrier, and how long it waits there: the one definition.

    work      a rank's own time before it is ready
    wait      ready while a peer is not
    transfer  the collective's own time once all are there
    arrival   how late a rank is ready, on a scale common to the ranks of a step

Which of the measured columns these come from is the *basis*, best first:

    wait      wait as measured; arrival = mean duration - wait
    comm      transfer = least communication of any rank in the step (the last to arrive hardly
              waits); wait = communication - transfer; arrival = mean duration - communication
    phases    work = sum of the phases (compute alone where the work is partial); the step lasts
              as long as its longest report; wait = largest work - work; arrival = work
    duration  durations that end before the barrier are work; rest as for phases. Durations that
              span the barrier are all alike and tell nothing.

With ``wait`` and ``comm`` the paid time of a step is the sum of its durations, with the others
the number of ranks times the longest. Method: Lin et al., OSDI'25, section 3.2, reduced to
per-rank totals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.measure import Level
from steptax.app.compute.stats.rows import (
    Flags,
    Floats,
    row_count,
    row_max,
    row_mean,
    row_min,
    row_sum,
)
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix

SYNCHRONISED = (
    "every rank reports the same step time to within {spread:.2f} %: these are wall times across "
    "the barrier, in which the slow rank and the waiting ones look alike; per-rank phases "
    "(compute_us) or time in collectives (comm_us) would tell"
)
OF_JOB = (
    "a log of the job gives the step time of all ranks together, not of each; per-rank step times, "
    "phases or time in collectives would tell"
)
NO_PEERS = (
    "one rank reports of {world} that are paid for, so there is nobody to compare it with; step "
    "times of the other ranks would tell"
)


class Basis(StrEnum):
    """Which measured columns the waits come from."""

    WAIT = "wait"
    COMM = "comm"
    PHASES = "phases"
    DURATION = "duration"


@dataclass(frozen=True)
class BasisChoice:
    """The basis of a job, what it was chosen from, and why nothing can be told if so."""

    basis: Basis
    level: Level
    inputs: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    unknown: str | None = None


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Work, wait and arrival of every rank in every step, in microseconds."""

    choice: BasisChoice
    work_us: Floats
    """[S, R]; NaN where not reported, as in all matrices here."""
    arrival_us: Floats
    """[S, R]"""
    wait_us: Floats
    """[S, R]"""
    transfer_us: Floats | None
    """[S, R]; None where the basis does not separate it."""
    step_us: Floats
    """[S] length of the step: paid time per rank."""
    paid_us: Floats
    """[S] paid time of the reporting ranks."""

    def of_steps(self, rows: slice | NDArray[np.intp]) -> Arrivals:
        """The same of the steps at ``rows``; nothing is copied of a slice."""
        return replace(
            self,
            work_us=self.work_us[rows],
            arrival_us=self.arrival_us[rows],
            wait_us=self.wait_us[rows],
            transfer_us=None if self.transfer_us is None else self.transfer_us[rows],
            step_us=self.step_us[rows],
            paid_us=self.paid_us[rows],
        )


def is_measured(values: Floats | None, reported: Flags, rules: StragglerRules) -> bool:
    """True when enough of the reports [S, R] carry ``values`` for it to be relied on."""
    if values is None:
        return False
    total = int(np.count_nonzero(reported))
    have = int(np.count_nonzero(reported & ~np.isnan(values)))
    return total > 0 and have >= rules.measured_share_ratio * total


def phase_sum_us(matrix: StepMatrix) -> Floats:
    """[S, R] sum of the phases of each report, compute alone where the work is partial.

    NaN where compute was not reported: without it the sum is not the rank's work.
    """
    total = matrix.phases["compute"].copy()
    if not matrix.work_is_partial:
        for name, values in matrix.phases.items():
            if name != "compute":
                total += np.nan_to_num(values)
    return total


def choose_basis(matrix: StepMatrix, rules: StragglerRules) -> BasisChoice:
    """The best basis that the columns of ``matrix`` allow."""
    reported = matrix.reported
    warnings: list[str] = []
    if matrix.of_job:
        return BasisChoice(Basis.DURATION, Level.LOG, ("duration_us",), unknown=OF_JOB)
    if len(matrix.ranks) < 2 and matrix.world_size > 1:
        return BasisChoice(
            Basis.DURATION,
            Level.STEP_TIME,
            ("duration_us",),
            unknown=NO_PEERS.format(world=matrix.world_size),
        )
    if matrix.has_pipeline:
        warnings.append(
            "per-rank estimate without a dependency graph: on published pipeline traces it is "
            "within 10 % of the simulated slowdown; with few micro-batches per stage it is too "
            "high, by a third where they are as many as stages, as the bubble hides slowness"
        )
    if not matrix.work_is_partial:
        if is_measured(matrix.wait_us, reported, rules):
            return BasisChoice(
                Basis.WAIT, Level.PHASES, ("duration_us", "wait_us"), tuple(warnings)
            )
        if is_measured(matrix.comm_us, reported, rules):
            warnings.append(
                "transfer is taken as the least communication of any rank in a step; where every "
                "rank waits for another in turn, waiting is under-stated"
            )
            return BasisChoice(
                Basis.COMM, Level.PHASES, ("duration_us", "comm_us"), tuple(warnings)
            )
        for name, values in (("wait_us", matrix.wait_us), ("comm_us", matrix.comm_us)):
            if values is not None:
                warnings.append(f"{name} is missing in too many reports and is not used")
    if is_measured(matrix.phases.get("compute"), reported, rules) and not _ends_before_barrier(
        matrix, rules
    ):
        names = ["compute"] if matrix.work_is_partial else list(matrix.phases)
        inputs = ("duration_us", *(f"{name}_us" for name in names))
        return BasisChoice(Basis.PHASES, Level.PHASES, inputs, tuple(warnings))
    spread = spread_ratio(matrix.duration_us)
    unknown = None
    if len(matrix.ranks) > 1 and spread < rules.synchronised_spread_ratio:
        unknown = SYNCHRONISED.format(spread=100 * spread)
    elif len(matrix.ranks) > 1:
        warnings.append(
            "step times differ between the ranks of a step, so they are taken to end before the "
            "barrier; a rank that skips the barrier would look fast"
        )
    return BasisChoice(Basis.DURATION, Level.STEP_TIME, ("duration_us",), tuple(warnings), unknown)


def spread_ratio(duration_us: Floats) -> float:
    """Median over steps of (longest - shortest) / longest over the ranks of a step."""
    several = row_count(duration_us) > 1
    longest = row_max(duration_us[several])
    if not (longest > 0).any():
        return 0.0
    shortest = row_min(duration_us[several])
    return float(np.median((longest - shortest)[longest > 0] / longest[longest > 0]))


def _ends_before_barrier(matrix: StepMatrix, rules: StragglerRules) -> bool:
    """True when durations vary over ranks as much as the phases do.

    A barrier inside the duration levels it: whoever works less waits more. Where the durations
    keep at least half of the spread of the phases there is no barrier inside, and the duration
    holds time of the rank's own that no phase names.
    """
    if (
        matrix.work_is_partial
        or len(matrix.ranks) < 2
        or spread_ratio(matrix.duration_us) < rules.synchronised_spread_ratio
    ):
        return False
    work = phase_sum_us(matrix)
    span = [float(np.nanmedian(row_max(v) - row_min(v))) for v in (matrix.duration_us, work)]
    return span[0] >= 0.5 * span[1]


def reported_cells(matrix: StepMatrix, basis: Basis) -> Flags:
    """[S, R] True where a report carries all that ``basis`` needs."""
    cells = matrix.reported
    needed = {
        Basis.WAIT: matrix.wait_us,
        Basis.COMM: matrix.comm_us,
        Basis.PHASES: matrix.phases.get("compute"),
        Basis.DURATION: matrix.duration_us,
    }[basis]
    return cells if needed is None else cells & ~np.isnan(needed)


def arrivals(matrix: StepMatrix, choice: BasisChoice) -> Arrivals:
    """Work, wait and arrival from the columns of ``choice``; see the head of this module."""
    cells = reported_cells(matrix, choice.basis)
    duration = np.where(cells, matrix.duration_us, np.nan)
    transfer: Floats | None = None
    if choice.basis in (Basis.WAIT, Basis.COMM):
        step = row_mean(duration)
        if choice.basis is Basis.WAIT and matrix.wait_us is not None:
            wait = np.where(cells, matrix.wait_us, np.nan)
            transfer = _measured_transfer(matrix, wait)
            comm = wait if transfer is None else wait + np.nan_to_num(transfer)
            arrival = step[:, None] - wait
        else:
            assert matrix.comm_us is not None
            comm = np.where(cells, matrix.comm_us, np.nan)
            transfer = np.where(cells, row_min(comm)[:, None], np.nan)
            wait = comm - transfer
            arrival = step[:, None] - comm
        return Arrivals(choice, duration - comm, arrival, wait, transfer, step, row_sum(duration))
    work = duration
    if choice.basis is Basis.PHASES:
        work = np.where(cells, phase_sum_us(matrix), np.nan)
    step = row_max(duration)
    wait = row_max(work)[:, None] - work
    return Arrivals(choice, work, work, wait, None, step, step * row_count(duration))


def _measured_transfer(matrix: StepMatrix, wait: Floats) -> Floats | None:
    """[S, R] transfer as measured, else communication less waiting; None if neither is there."""
    if matrix.transfer_us is not None:
        return np.where(np.isnan(wait), np.nan, matrix.transfer_us)
    return None if matrix.comm_us is None else matrix.comm_us - wait
