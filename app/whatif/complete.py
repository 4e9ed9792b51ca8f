"""Which steps hold every operation exactly once, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from steptax.app.errors import InputError
from steptax.app.whatif.findings import DroppedStep
from steptax.app.whatif.index import Index
from steptax.app.whatif.rows import OpRows

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Keep:
    """Rows to keep ([N], bool), and what the others were."""

    mask: Flags
    dropped: tuple[DroppedStep, ...]
    left_out_dp: tuple[int, ...]
    warnings: tuple[str, ...]


def one_rank_each(rows: OpRows, index: Index) -> tuple[OpRows, str]:
    """Of several ranks at one data-parallel rank and stage the smallest, and a warning.

    Tensor-parallel ranks of one stage do the same operations, and the model knows one of them.
    """
    place = index.dp * index.stages + rows.stage
    smallest = np.full(index.ranks.size, np.iinfo(np.intp).max)
    np.minimum.at(smallest, place, rows.rank)
    ranks = len(np.unique(rows.rank))
    return rows.only(smallest[place] == rows.rank), (
        f"{ranks} ranks recorded at {len(np.unique(place))} places: the smallest rank of each "
        "stands for the others, whose own slowness is not seen"
    )


def refuse_moving_ranks(rows: OpRows, index: Index) -> None:
    """InputError when one rank is recorded at two places of the parallel layout."""
    ranks = np.sort(index.ranks[index.ranks >= 0])
    twice = ranks[1:] == ranks[:-1]
    if twice.any():
        rank = int(ranks[np.argmax(twice)])
        row = int(np.argmax(rows.rank == rank))
        raise InputError(
            "recorded at two places of the parallel layout",
            where=f"rank {rank}, first at step {rows.step[row]}",
            hint="rank, dp and stage must name one worker",
        )


def incomplete(rows: OpRows, index: Index) -> Keep:
    """Decide what to keep of a trace in which lanes differ.

    An operation is expected when half of the lanes or more have it. A row that repeats another
    with the same times is a copy. A data-parallel rank that is faulty in more than half of the
    steps is left out if others are not; then every step with a lane that lacks, repeats or adds
    an operation is dropped. InputError when no step is left.
    """
    warnings: list[str] = []
    copies = _copies(rows, index)
    if copies.any():
        row = int(np.argmax(copies))
        warnings.append(
            f"{int(copies.sum())} operations recorded twice with the same times and counted once, "
            f"first: step {rows.step[row]}, rank {rows.rank[row]}, "
            f"{index.operation(int(index.op[row]))}"
        )
    flat = np.bincount(index.cell[~copies], minlength=int(np.prod(index.shape)))
    count: npt.NDArray[np.intp] = flat.reshape(index.shape)
    expected = cast("Flags", 2 * np.count_nonzero(count, axis=(1, 2)) >= count[0].size)
    fault = np.where(expected[:, None, None], count != 1, count > 0)
    bad_lane = cast("Flags", fault.any(axis=0))
    kept_dp = cast("Flags", 2 * np.count_nonzero(bad_lane, axis=0) <= len(bad_lane))
    if not kept_dp.any():
        kept_dp[:] = True
    bad_step = cast("Flags", bad_lane[:, kept_dp].any(axis=1))
    dropped = tuple(
        _describe(index, count, fault & kept_dp, int(s)) for s in np.flatnonzero(bad_step)
    )
    if bad_step.all():
        raise InputError(
            f"no complete step among {len(dropped)}: {dropped[0].reason}",
            where=dropped[0].where,
            hint="every rank must record the same operations in a step",
        )
    keep_lane = ~bad_step[:, None] & kept_dp
    mask = expected[index.op] & keep_lane[index.step, index.dp] & ~copies
    left_out = tuple(index.dps[~kept_dp].tolist())
    for d in np.flatnonzero(~kept_dp)[:3]:
        s = int(np.argmax(bad_lane[:, d]))
        here = fault & (np.arange(len(kept_dp)) == d)
        first = _describe(index, count, here, s)
        warnings.append(
            f"data-parallel rank {index.dps[d]} is faulty in most steps and left out, "
            f"first: {first.where}: {first.reason}"
        )
    return Keep(mask, dropped, left_out, tuple(warnings))


def _copies(rows: OpRows, index: Index) -> Flags:
    """Rows that repeat an earlier row of their cell with the same times."""
    size = int(np.prod(index.shape))
    copies = np.zeros(len(rows), bool)
    twice = np.flatnonzero(np.bincount(index.cell, minlength=size)[index.cell] > 1)
    order = twice[np.lexsort((rows.duration[twice], rows.start[twice], index.cell[twice]))]
    same = np.ones(max(len(order) - 1, 0), bool)
    for column in (index.cell, rows.start, rows.duration):
        same &= column[order][1:] == column[order][:-1]
    copies[order[1:][same]] = True
    return copies


def _describe(index: Index, count: npt.NDArray[Any], fault: Flags, step: int) -> DroppedStep:
    """The first fault of a step: which rank, which operation, and how many there are."""
    label = int(index.steps[step])
    here = fault[:, step]
    op, dp = (int(v[0]) for v in np.nonzero(here))
    stage = int(index.op_stage[op])
    rank = int(index.ranks[dp, stage])
    name = index.operation(op)
    found = int(count[op, step, dp])
    missing = here & (count[:, step] == 0)
    faults = int(here.sum())
    more = f" ({faults} faults in this step)" if faults > 1 else ""
    if not count[index.op_stage == stage, step, dp].any():
        return DroppedStep(label, f"this rank recorded nothing{more}", _known(rank), None)
    if found == 0:
        last = step == len(index.steps) - 1
        what = "the recording ends early: " if last and (here == missing).all() else ""
        return DroppedStep(label, f"{what}operation missing{more}", _known(rank), name)
    if found > 1:
        reason = f"operation recorded {found} times, with different times{more}"
        return DroppedStep(label, reason, _known(rank), name)
    return DroppedStep(label, f"operation that most lanes do not have{more}", _known(rank), name)


def _known(rank: int) -> int | None:
    return rank if rank >= 0 else None
