"""The steps of one job as dense matrices, one row per step and one column per rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Flags, Floats, Ints, row_mean
from steptax.app.errors import IntegrityError, NotFoundError

#: Parts of a rank's own time; disjoint, and disjoint from communication.
PHASES = ("compute", "input", "checkpoint", "h2d", "gc", "other", "collective")
#: The parts of a step may exceed it by so much: they and the whole are read off different clocks.
CLOCKS_DIFFER_RATIO = 0.01
_TIMES = ("duration_us", "comm_us", "wait_us", "transfer_us", *(f"{p}_us" for p in PHASES))


@dataclass(frozen=True, eq=False)
class StepMatrix:
    """What each rank measured in each step; S steps, R ranks, microseconds.

    A matrix holds NaN where that rank did not report that value in that step; a column that
    nobody reported is ``None`` (or absent from ``phases``), never zero.
    """

    steps: Ints
    """[S] step numbers, ascending, attempts already resolved."""
    ranks: NDArray[np.int32]
    """[R] global ranks that reported at least once, ascending."""
    duration_us: Floats
    """[S, R] step start to step end on that rank."""
    world_size: int
    """Ranks that are paid for."""
    expected_ranks: int
    """Ranks that should report; fewer than the world where one rank stands for its group."""
    comm_us: Floats | None = None
    """[S, R] exposed communication as measured: transfer and waiting."""
    wait_us: Floats | None = None
    """[S, R] the part of it before the last peer had arrived, if the source splits it."""
    transfer_us: Floats | None = None
    """[S, R] the part of it after the last peer had arrived, if the source splits it."""
    phases: Mapping[str, Floats] = field(default_factory=dict)
    """Phase name (of ``PHASES``) to [S, R]; only phases that somebody measured."""
    start_us: Floats | None = None
    """[S, R] step start on that rank's clock."""
    tokens: Floats | None = None
    """[S, R] tokens of that rank in that step."""
    seq_sq_sum: Floats | None = None
    """[S, R] sum of squared sequence lengths, tokens^2."""
    loss: Floats | None = None
    """[S] training loss, mean over the ranks that reported one."""
    stage: NDArray[np.int32] | None = None
    """[R] pipeline stage; None unless it is known for every rank."""
    dp: NDArray[np.int32] | None = None
    """[R] data-parallel rank; None unless it is known for every rank."""
    work_is_partial: bool = False
    """Duration is the span of the whole step and compute alone is the rank's known work."""
    time_is_relative: bool = False
    """Durations are normalised: ratios hold, absolute times and money do not."""
    of_job: bool = False
    """One rank alone reports the step time of the whole job, as a log prints it."""

    @property
    def reported(self) -> Flags:
        """[S, R] True where a duration was reported."""
        return ~np.isnan(self.duration_us)

    @property
    def weight(self) -> Fraction:
        """Paid ranks that one expected rank stands for."""
        return Fraction(self.world_size, self.expected_ranks)

    @property
    def has_pipeline(self) -> bool:
        """True when ranks are known to sit on more than one pipeline stage."""
        return self.stage is not None and len(np.unique(self.stage)) > 1

    def select(self, steps: NDArray[np.intp], ranks: NDArray[np.intp]) -> StepMatrix:
        """The rows ``steps`` and columns ``ranks`` (positions); the ranks kept become expected."""
        grid = np.ix_(steps, ranks)

        def cut(values: Floats | None) -> Floats | None:
            return None if values is None else values[grid]

        return replace(
            self,
            steps=self.steps[steps],
            ranks=self.ranks[ranks],
            duration_us=self.duration_us[grid],
            expected_ranks=len(ranks),
            comm_us=cut(self.comm_us),
            wait_us=cut(self.wait_us),
            transfer_us=cut(self.transfer_us),
            phases={name: values[grid] for name, values in self.phases.items()},
            start_us=cut(self.start_us),
            tokens=cut(self.tokens),
            seq_sq_sum=cut(self.seq_sq_sum),
            loss=None if self.loss is None else self.loss[steps],
            stage=None if self.stage is None else self.stage[ranks],
            dp=None if self.dp is None else self.dp[ranks],
        )


def accounted_us(matrix: StepMatrix) -> Floats:
    """[S, R] phases plus communication that each report names; 0 where it names none.

    With ``work_is_partial`` only compute counts: the other phases may lie in another rank's
    shadow.
    """
    shape = matrix.duration_us.shape
    total = np.zeros(shape)
    for name, values in matrix.phases.items():
        if name == "compute" or not matrix.work_is_partial:
            total += np.nan_to_num(values)
    if matrix.work_is_partial:
        return total
    unknown = np.full(shape, np.nan)
    comm = unknown if matrix.comm_us is None else matrix.comm_us
    wait = np.zeros(shape) if matrix.wait_us is None else np.nan_to_num(matrix.wait_us)
    transfer = np.zeros(shape) if matrix.transfer_us is None else np.nan_to_num(matrix.transfer_us)
    return total + np.where(np.isnan(comm), wait + transfer, comm)


def inconsistent_cells(matrix: StepMatrix) -> Flags:
    """[S, R] True where the parts exceed the duration by more than 1 % of it and 1 ms."""
    allowed_us = CLOCKS_DIFFER_RATIO * matrix.duration_us + 1000.0
    with np.errstate(invalid="ignore"):
        return accounted_us(matrix) - matrix.duration_us > allowed_us


def without_inconsistent(matrix: StepMatrix) -> tuple[StepMatrix, Flags]:
    """The matrix with its inconsistent reports taken out whole, and which ones [S, R] they were."""
    bad = inconsistent_cells(matrix)
    if not bad.any():
        return matrix, bad
    return replace(matrix, duration_us=np.where(bad, np.nan, matrix.duration_us)), bad


def name_cell(matrix: StepMatrix, cells: Flags) -> str:
    """``step 12, rank 3`` for the first True of ``cells`` [S, R]."""
    step, rank = np.argwhere(cells)[0]
    return f"step {matrix.steps[step]}, rank {matrix.ranks[rank]}"


def build_matrix(
    columns: Mapping[str, NDArray[np.generic]],
    *,
    world_size: int,
    topology: Mapping[int, tuple[int | None, int | None]] | None = None,
    expected_ranks: int | None = None,
    work_is_partial: bool = False,
    time_is_relative: bool = False,
    of_job: bool = False,
) -> StepMatrix:
    """Bring long columns into dense form.

    ``columns`` holds equally long arrays under the names of the ``steps`` table: ``step``,
    ``rank`` and ``duration_us`` must be there; ``comm_us``, ``wait_us``, ``transfer_us``, the
    phases (``compute_us``, ...), ``start_us``, ``tokens``, ``seq_sq_sum`` and ``loss`` may be,
    with NaN for null. ``topology`` gives (pipeline stage, data-parallel rank) per rank.
    ``expected_ranks`` defaults to the ranks seen.

    Raises NotFoundError when there is no row; IntegrityError when two rows are the same step and
    rank, when a time is negative, when a row has no duration, or when the world is smaller than
    the ranks.
    """
    step = np.asarray(columns["step"], dtype=np.int64)
    if not len(step):
        raise NotFoundError("no step was recorded", hint="ingest per-rank step times of this job")
    rank = np.asarray(columns["rank"], dtype=np.int32)
    steps, row = np.unique(step, return_inverse=True)
    ranks, column = np.unique(rank, return_inverse=True)
    shape = (len(steps), len(ranks))
    flat = row * shape[1] + column
    expected = len(ranks) if expected_ranks is None else expected_ranks
    if not len(ranks) <= expected <= world_size:
        raise IntegrityError(
            f"{len(ranks)} ranks reported, {expected} should report, and {world_size} are paid for",
            hint="the world size or the number of expected ranks is wrong",
        )
    times = np.bincount(flat, minlength=shape[0] * shape[1])
    if (times > 1).any():
        first = int(np.argmax(times > 1))
        raise IntegrityError(
            f"{times[first]} rows for one step and rank",
            where=f"step {steps[first // shape[1]]}, rank {ranks[first % shape[1]]}",
            hint="keep one attempt of each step before the rows are brought together",
        )

    def dense(name: str) -> Floats | None:
        given = columns.get(name)
        if given is None:
            return None
        values = np.asarray(given, dtype=np.float64)
        if np.isnan(values).all():
            return None
        if name in _TIMES and (values < 0).any():
            first = int(np.argmax(values < 0))
            raise IntegrityError(
                f"{name} is {values[first]:g}, but a duration cannot be negative",
                where=f"step {step[first]}, rank {rank[first]}",
            )
        out = np.full(shape[0] * shape[1], np.nan)
        out[flat] = values
        return out.reshape(shape)

    duration = dense("duration_us")
    if duration is None or np.isnan(np.asarray(columns["duration_us"], dtype=np.float64)).any():
        raise IntegrityError("a row of steps has no duration_us")
    loss = dense("loss")
    return StepMatrix(
        steps=steps,
        ranks=ranks,
        duration_us=duration,
        world_size=world_size,
        expected_ranks=expected,
        comm_us=dense("comm_us"),
        wait_us=dense("wait_us"),
        transfer_us=dense("transfer_us"),
        phases={p: values for p in PHASES if (values := dense(f"{p}_us")) is not None},
        start_us=dense("start_us"),
        tokens=dense("tokens"),
        seq_sq_sum=dense("seq_sq_sum"),
        loss=None if loss is None else row_mean(loss),
        stage=_place(ranks, topology, 0),
        dp=_place(ranks, topology, 1),
        work_is_partial=work_is_partial,
        time_is_relative=time_is_relative,
        of_job=of_job,
    )


def _place(
    ranks: NDArray[np.int32],
    topology: Mapping[int, tuple[int | None, int | None]] | None,
    axis: int,
) -> NDArray[np.int32] | None:
    """Coordinate ``axis`` of every rank, or None if it is unknown for one of them."""
    if topology is None:
        return None
    places = [topology.get(int(r), (None, None))[axis] for r in ranks]
    if any(place is None for place in places):
        return None
    return np.array(places, dtype=np.int32)
