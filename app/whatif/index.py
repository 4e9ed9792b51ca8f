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
#: Largest table from a number to its position, 400 MB.
_MOST_SPAN = 50_000_000


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


def index_rows(rows: OpRows) -> Index:
    """Index ``rows``; InputError when coordinates cannot be those of a pipeline.

    Three arrays of N are all that is allocated: the first touch of memory is what takes time here.
    """
    stages = int(rows.stage.max()) + 1
    seqs = _seqs(rows)
    key = rows.type_code.astype(np.intp)
    for count, column in ((stages, rows.stage), (seqs, rows.seq)):
        key *= count
        key += column
    ops, op_table = _labels(key, 0, len(rows.types) * stages * seqs)
    spare = rows.step.astype(np.intp)
    steps, step_table, first = _compact(spare)
    dps, dp_table, first_dp = _compact(rows.dp)
    lanes = len(steps) * len(dps)
    cell = (op_table * lanes).take(key)
    spare -= first
    cell += (step_table * len(dps)).take(spare, out=key, mode="clip")
    spare[:] = rows.dp
    spare -= first_dp
    place = dp_table.take(spare, out=key, mode="clip")
    cell += place
    complete = False
    if len(ops) * lanes == len(rows):
        seen = np.zeros(len(rows), bool)
        seen[cell] = True
        complete = bool(seen.all())
    place *= stages
    place += rows.stage
    ranks = np.full(len(dps) * stages, -1, np.intp)
    ranks[place] = rows.rank
    one_rank = bool((ranks.take(place, out=spare, mode="clip") == rows.rank).all())
    by_dp = ranks.reshape(len(dps), stages)
    _refuse_gaps(by_dp)
    return Index(
        cell=cell,
        op_type=ops // (stages * seqs),
        op_stage=ops // seqs % stages,
        op_seq=ops % seqs,
        steps=steps,
        dps=dps,
        ranks=by_dp,
        stages=stages,
        complete=complete,
        one_rank=one_rank,
    )


def _labels(values: npt.NDArray[Any], low: int, span: int) -> tuple[Ids, Ids]:
    """Distinct values, and a table from value - ``low`` to the position among them."""
    if span > _MOST_SPAN:
        raise InputError(f"values from {low} to {low + span - 1} are too far apart to be numbers")
    seen = np.zeros(span, bool)
    seen[values - low if low else values] = True
    return np.flatnonzero(seen) + low, np.cumsum(seen) - 1


def _compact(values: npt.NDArray[Any]) -> tuple[Ids, Ids, int]:
    """Distinct values, a table from value - first to the position among them, and the first.

    Equal neighbours are skipped first: rows mostly come in long runs of one step and one rank.
    """
    runs = np.flatnonzero(values[1:] != values[:-1])
    heads = np.append(values[runs], values[-1]).astype(np.intp)
    low, high = int(heads.min()), int(heads.max())
    labels, table = _labels(heads, low, high - low + 1)
    return labels, table, low


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
