"""From the coordinates of a row to its cell (operation, step, data-parallel rank)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.errors import InputError
from steptax.app.whatif.rows import OpRows

Ids = npt.NDArray[np.intp]

#: Sequence numbers of one type in one step; more cannot be operations of a pipeline.
_MOST_SEQ = 1_000_000


@dataclass(frozen=True, eq=False)
class Index:
    """Where each of N rows belongs.

    ``cell`` [N] is the flat position in an array [O, S, D]. ``complete`` says that each cell has
    exactly one row, and ``one_rank`` that each (dp, stage) is always the same rank, as ``ranks``
    [D, P] has it (-1 where nothing is recorded).
    """

    cell: Ids
    op_type: Ids
    op_stage: Ids
    op_seq: Ids
    steps: Ids
    dps: Ids
    ranks: Ids
    stages: int
    complete: bool
    one_rank: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """Operations, steps, data-parallel ranks."""
        return len(self.op_type), len(self.steps), len(self.dps)

    @cached_property
    def op(self) -> Ids:
        """[N] operation of each row."""
        return self.cell // (len(self.steps) * len(self.dps))

    @cached_property
    def step(self) -> Ids:
        """[N] position of each row in ``steps``."""
        return self.cell // len(self.dps) % len(self.steps)

    @cached_property
    def dp(self) -> Ids:
        """[N] position of each row in ``dps``."""
        return self.cell % len(self.dps)


@dataclass(frozen=True, eq=False)
class Compact:
    """Distinct values in ascending order, and ``table.take(at)`` the position of each row's."""

    labels: Ids
    table: Ids
    at: Ids

    def position(self) -> Ids:
        """[N] position of each row's value among ``labels``."""
        return self.table.take(self.at)


def compact(values: npt.NDArray[Any], *, low: int | None = None, span: int | None = None) -> Compact:
    """As ``np.unique`` with its inverse, by a table instead of a sort where the range allows it.

    ``low`` and ``span`` bound the values where that is known.
    """
    low = int(values.min()) if low is None else low
    span = int(values.max()) - low + 1 if span is None else span
    if span > 4 * len(values) + 65_536:
        labels, position = np.unique(values, return_inverse=True)
        return Compact(labels.astype(np.intp), np.arange(len(labels)), position.astype(np.intp))
    at = values.astype(np.intp, copy=bool(low))
    if low:
        at -= low
    seen = np.zeros(span, bool)
    seen[at] = True
    return Compact(np.flatnonzero(seen) + low, np.cumsum(seen) - 1, at)


def index_rows(rows: OpRows) -> Index:
    """Index ``rows``; InputError when coordinates cannot be those of a pipeline."""
    stages = _stages(rows.stage)
    seqs = _seqs(rows)
    key = rows.type_code.astype(np.intp)
    for count, column in ((stages, rows.stage), (seqs, rows.seq)):
        key *= count
        key += column
    op = compact(key, low=0, span=len(rows.types) * stages * seqs)
    step, dp = compact(rows.step), compact(rows.dp)
    lanes = len(step.labels) * len(dp.labels)
    cell = (op.table * lanes).take(op.at)
    cell += (step.table * len(dp.labels)).take(step.at)
    place = dp.position()
    cell += place
    complete = False
    if len(op.labels) * lanes == len(rows):
        seen = np.zeros(len(rows), bool)
        seen[cell] = True
        complete = bool(seen.all())
    ranks = np.full(len(dp.labels) * stages, -1, np.intp)
    place *= stages
    place += rows.stage
    ranks[place] = rows.rank
    return Index(
        cell=cell,
        op_type=op.labels // (stages * seqs),
        op_stage=op.labels // seqs % stages,
        op_seq=op.labels % seqs,
        steps=step.labels,
        dps=dp.labels,
        ranks=ranks.reshape(len(dp.labels), stages),
        stages=stages,
        complete=complete,
        one_rank=bool((ranks.take(place) == rows.rank).all()),
    )


def _seqs(rows: OpRows) -> int:
    """One more than the largest sequence number."""
    seqs = int(rows.seq.max()) + 1
    if seqs > _MOST_SEQ or rows.seq.min() < 0:
        row = int(np.argmax(rows.seq) if seqs > _MOST_SEQ else np.argmin(rows.seq))
        raise InputError(
            f"sequence number {rows.seq[row]} of {rows.types[rows.type_code[row]]}: they count "
            "from 0 inside one step, rank and type",
            where=f"step {rows.step[row]}, rank {rows.rank[row]}",
        )
    return seqs


def _stages(stage: npt.NDArray[Any]) -> int:
    stages = int(stage.max()) + 1
    found = np.zeros(stages, bool)
    found[stage] = True
    if not found.all():
        absent = np.flatnonzero(~found)
        raise InputError(
            f"pipeline stage {', '.join(map(str, absent[:5].tolist()))} is not recorded, stage "
            f"{stages - 1} is",
            where="stage",
            hint="stages count from 0; without one of them nothing can be said of the others",
        )
    return stages
