"""From the coordinates of a row to its cell (operation, step, data-parallel rank)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.errors import InputError
from steptax.app.whatif.arrays import distinct
from steptax.app.whatif.rows import OpRows

Ids = npt.NDArray[np.intp]

#: Sequence numbers of one type in one step; more cannot be operations of a pipeline.
_MOST_SEQ = 1_000_000
#: Most places in the table of operations, 400 MB.
_MOST_KEYS = 50_000_000


@dataclass(frozen=True, eq=False)
class Index:
    """Where each of N rows belongs.

    ``cell`` [N] is the flat position in an array [O, S, D]. ``op_type`` indexes ``types``, which is
    alphabetical and holds only types that occur. ``complete`` says that each cell has
    exactly one row, and ``one_rank`` that each (dp, stage) is always the same rank, as ``ranks``
    [D, P] has it (-1 where nothing is recorded).
    """

    cell: Ids
    types: tuple[str, ...]
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

    def operation(self, op: int) -> str:
        """For people: ``forward-send 3 of stage 1``."""
        return f"{self.types[self.op_type[op]]} {self.op_seq[op]} of stage {self.op_stage[op]}"

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


def index_rows(rows: OpRows) -> Index:
    """Index ``rows``; InputError when coordinates cannot be those of a pipeline.

    Rows mostly come in long runs of one step and rank: what is the same over a run is worked out
    once for it.
    """
    stages = int(rows.stage.max()) + 1
    seqs = _seqs(rows)
    types = tuple(sorted(set(rows.types)))
    if len(types) * stages * seqs > _MOST_KEYS:
        raise InputError(
            f"{len(types)} types x {stages} stages x {seqs} sequence numbers are too many",
            where="operations",
        )
    begin, length = _runs(rows.step, rows.dp, rows.stage, rows.rank)
    _refuse_negative(rows, begin)
    stage = rows.stage[begin].astype(np.intp)
    steps, step = distinct(rows.step[begin])
    dps, dp = distinct(rows.dp[begin])
    lanes = len(steps) * len(dps)
    code = np.array([types.index(t) for t in rows.types], np.intp) * (stages * seqs)
    key = code.take(rows.type_code)
    key += np.repeat(stage * seqs, length)
    key += rows.seq
    seen = np.zeros(len(types) * stages * seqs, bool)
    seen[key] = True
    ops = np.flatnonzero(seen)
    cell = ((np.cumsum(seen) - 1) * lanes).take(key)
    cell += np.repeat(step * len(dps) + dp, length)
    complete = False
    if len(ops) * lanes == len(rows):
        found = np.zeros(len(rows), bool)
        found[cell] = True
        complete = bool(found.all())
    ranks = np.full((len(dps), stages), -1, np.intp)
    ranks[dp, stage] = rows.rank[begin]
    _refuse_gaps(ranks)
    used, op_type = distinct(ops // (stages * seqs))
    return Index(
        cell=cell,
        types=tuple([types[t] for t in used.tolist()]),
        op_type=op_type,
        op_stage=ops // seqs % stages,
        op_seq=ops % seqs,
        steps=steps,
        dps=dps,
        ranks=ranks,
        stages=stages,
        complete=complete,
        one_rank=bool((ranks[dp, stage] == rows.rank[begin]).all()),
    )


def _runs(*columns: npt.NDArray[Any]) -> tuple[Ids, Ids]:
    """First row and length of each run in which no column changes."""
    change = np.zeros(len(columns[0]), bool)
    change[0] = True
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    begin = np.flatnonzero(change)
    return begin, np.diff(begin, append=len(change))


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


def _refuse_negative(rows: OpRows, begin: Ids) -> None:
    """Ranks count from 0; of each run of rows the first, at ``begin``, is looked at."""
    row = begin[np.argmin(rows.rank[begin])]
    if rows.rank[row] < 0:
        raise InputError(
            f"rank {rows.rank[row]} is recorded: they count from 0",
            where=f"step {rows.step[row]}, {rows.types[rows.type_code[row]]}",
        )


def _refuse_gaps(ranks: Ids) -> None:
    """``ranks`` [D, P] must have somebody on every stage."""
    absent = np.flatnonzero((ranks < 0).all(axis=0))
    if len(absent):
        raise InputError(
            f"pipeline stage {', '.join(map(str, absent[:5].tolist()))} is not recorded, stage "
            f"{ranks.shape[1] - 1} is",
            where="stage",
            hint="stages count from 0; without one of them nothing can be said of the others",
        )
