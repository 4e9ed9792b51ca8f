"""The steps of one job as dense matrices, one row per step and one column per rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Flags, Floats, Ints, row_mean
from steptax.app.errors import IntegrityError, NotFoundError

#: Parts of a rank's own time; disjoint, and disjoint from communication.
PHASES = ("compute", "input", "checkpoint", "h2d", "gc", "other", "collective")
#: The parts of a step may exceed it by so much: they and the whole are read off different clocks.
CLOCKS_DIFFER_RATIO = 0.01
#: Reports that are added up at once: what that takes along stays in the processor's cache.
_CELLS_AT_ONCE = 1 << 17
#: Step numbers, or ranks.
Whole = TypeVar("Whole", np.int32, np.int64)
_TIMES = ("duration_us", "comm_us", "wait_us", "transfer_us", *(f"{p}_us" for p in PHASES))


@dataclass(frozen=True, eq=False)
class StepMatrix:
    """What each rank measured in each step; S steps, R ranks, microseconds.

    A matrix holds NaN where that rank did not report that value in that step; a column that
    nobody reported is ``None`` (or absent from ``phases``), never zero. Nobody writes into any of
    these arrays: selections share them.
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

    @cached_property
    def inconsistent(self) -> Flags:
        """[S, R] where the parts exceed the duration by more than 1 % of it and 1 ms."""
        bad: Flags = np.empty(self.duration_us.shape, dtype=bool)
        step = max(1, _CELLS_AT_ONCE // max(1, bad.shape[1]))
        for first in range(0, len(bad), step):
            rows = slice(first, first + step)
            duration = self.duration_us[rows]
            with np.errstate(invalid="ignore"):
                over = _accounted_us(self, rows) - duration
                bad[rows] = over > CLOCKS_DIFFER_RATIO * duration + 1000.0
        bad.flags.writeable = False  # whoever asks again gets the same
        return bad

    def select(self, steps: NDArray[np.intp], ranks: NDArray[np.intp]) -> StepMatrix:
        """The rows ``steps`` and columns ``ranks`` (positions); the ranks kept become expected."""
        grid = _grid(steps, ranks, self.duration_us.shape)

        def cut(values: Floats | None) -> Floats | None:
            return None if values is None else values[grid]

        part = replace(
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
        if "inconsistent" in self.__dict__:
            part.__dict__["inconsistent"] = self.inconsistent[grid]
        return part

    def parts(self) -> Iterator[tuple[slice, StepMatrix]]:
        """Stretches of steps, about so many reports that what is made of them stays in the cache.

        Each with its rows here. The ranks that should report are those of the whole.
        """
        everyone = np.arange(len(self.ranks))
        step = max(1, _CELLS_AT_ONCE // max(1, len(everyone)))
        for first in range(0, max(1, len(self.steps)), step):
            rows = slice(first, min(first + step, len(self.steps)))
            part = self.select(np.arange(rows.start, rows.stop), everyone)
            yield rows, part.expecting(self.expected_ranks)

    def expecting(self, ranks: int) -> StepMatrix:
        """The same where so many ranks should report."""
        other = replace(self, expected_ranks=ranks)
        if "inconsistent" in self.__dict__:
            other.__dict__["inconsistent"] = self.inconsistent
        return other


def accounted_us(matrix: StepMatrix) -> Floats:
    """[S, R] phases plus communication that each report names; 0 where it names none.

    With ``work_is_partial`` only compute counts: the other phases may lie in another rank's
    shadow.
    """
    return _accounted_us(matrix, slice(None))


def _accounted_us(matrix: StepMatrix, rows: slice) -> Floats:
    """[K, R] ``accounted_us`` of the steps at the positions ``rows``."""
    total = np.zeros(matrix.duration_us[rows].shape)
    for name, values in matrix.phases.items():
        if name == "compute" or not matrix.work_is_partial:
            total += np.nan_to_num(values[rows])
    if matrix.work_is_partial:
        return total
    split = np.zeros(total.shape)
    for part in (matrix.wait_us, matrix.transfer_us):
        if part is not None:
            split += np.nan_to_num(part[rows])
    if matrix.comm_us is not None:
        comm = matrix.comm_us[rows]
        split = np.where(np.isnan(comm), split, comm)
    return total + split


def _grid(
    steps: NDArray[np.intp], ranks: NDArray[np.intp], shape: tuple[int, ...]
) -> tuple[slice | NDArray[np.intp], ...]:
    """An index of these rows and columns; without a copy where all of them are asked for."""
    if not np.array_equal(ranks, np.arange(shape[1])):
        return np.ix_(steps, ranks)
    if len(steps) and np.array_equal(steps, np.arange(steps[0], steps[0] + len(steps))):
        return (slice(int(steps[0]), int(steps[0]) + len(steps)),)
    return (steps,)


def inconsistent_cells(matrix: StepMatrix) -> Flags:
    """[S, R] True where the parts exceed the duration by more than 1 % of it and 1 ms."""
    return matrix.inconsistent


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


class RepeatedError(IntegrityError):
    """Two rows are the same step and rank: ``repeats`` chooses among them."""


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

    Raises NotFoundError when there is no row; RepeatedError when two rows are the same step and
    rank; IntegrityError when a time is negative, when a row has no duration, or when the world is
    smaller than the ranks.
    """
    step = np.asarray(columns["step"], dtype=np.int64)
    if not len(step):
        raise NotFoundError("no step was recorded", hint="ingest per-rank step times of this job")
    rank = np.asarray(columns["rank"], dtype=np.int32)
    steps, row = _places(step)
    ranks, column = _places(rank)
    shape = (len(steps), len(ranks))
    flat = row * shape[1]
    flat += column
    del row, column
    expected = len(ranks) if expected_ranks is None else expected_ranks
    if not len(ranks) <= expected <= world_size:
        raise IntegrityError(
            f"{len(ranks):,} ranks reported, {expected:,} should report, and {world_size:,} are "
            "paid for",
            hint="the world size or the number of expected ranks is wrong",
        )
    if len(flat) > shape[0] * shape[1] or np.bincount(flat).max() > 1:
        times = np.bincount(flat, minlength=shape[0] * shape[1])
        first = int(np.argmax(times > 1))
        raise RepeatedError(
            f"{times[first]} rows for one step and rank",
            where=f"step {steps[first // shape[1]]}, rank {ranks[first % shape[1]]}",
            hint="keep one attempt of each step before the rows are brought together",
        )

    def dense(name: str) -> Floats | None:
        given = columns.get(name)
        if given is None:
            return None
        values = np.asarray(given)
        if values.dtype.kind == "f" and np.isnan(values).all():
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
    if duration is None or np.isnan(columns["duration_us"]).any():
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


def _places(numbers: NDArray[Whole]) -> tuple[NDArray[Whole], NDArray[np.intp]]:
    """The distinct ones of ``numbers`` [N], ascending, and the place of each in them.

    By a table of what lies between the least and the largest where that is no longer than a few
    times the values: nothing needs to be sorted then.
    """
    least, most = int(numbers.min()), int(numbers.max())
    if most - least >= 4 * len(numbers):
        found, place = np.unique(numbers, return_inverse=True)
        return found, place
    offset = numbers - least
    there = np.zeros(most - least + 1, dtype=bool)
    there[offset] = True
    held = np.flatnonzero(there)
    table = np.zeros(len(there), dtype=np.intp)
    table[held] = np.arange(len(held))
    return (held + least).astype(numbers.dtype), table[offset]


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
