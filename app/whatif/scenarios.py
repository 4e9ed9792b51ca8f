"""Scenarios as stacks: which operations take their measured work, which their ideal.

*Keep X* has measured work in X and ideal work elsewhere; *fix X* the other way round; *launch X*
has measured work everywhere and launch delays in X (Lin et al., OSDI'25, section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.whatif.graph import Graph
from steptax.app.whatif.optypes import FIRST_OP, reported
from steptax.app.whatif.program import Program
from steptax.app.whatif.simulate import Choice, Stack
from steptax.app.whatif.trace import Floats, Trace

Worker = tuple[int, int]
"""Positions of a worker: data-parallel rank, stage."""


@dataclass(frozen=True, eq=False)
class MainRows:
    """The stack of the main analysis, and what its rows are.

    ``ORIGINAL`` is the measured job without launch delays, ``IDEAL`` the one in which all is
    ideal, ``FIXED`` and ``KEPT`` with some workers ideal, and all but them. ``fix_last`` has the
    last stage ideal; ``stages`` and ``types`` keep one stage or one reported type.
    """

    stack: Stack
    fix_last: int | None
    stages: tuple[int, ...]
    types: dict[str, int]


ORIGINAL, IDEAL, FIXED, KEPT = range(4)


def main_rows(
    trace: Trace, program: Program, own_s: Floats, ideal_s: Floats, workers: Sequence[Worker]
) -> MainRows:
    """Everything that the main analysis asks, as one stack, ``workers`` fixed and kept in it.

    A single stage or data-parallel rank is the whole job, so it has no row of its own. Types
    that occur in the tail only follow the ideal run until there.
    """
    count = len(trace.op_type)
    sources = (
        own_s,
        ideal_s,
        mixed(trace, ideal_s, own_s, workers, whole=False),
        mixed(trace, own_s, ideal_s, workers, whole=False),
    )
    theirs = np.isin(trace.op_stage, [stage for _, stage in workers])
    columns: list[npt.NDArray[Any]] = [
        np.full(count, ORIGINAL),
        np.full(count, IDEAL),
        np.where(theirs, FIXED, ORIGINAL),
        np.where(theirs, KEPT, IDEAL),
    ]

    def keep(mask: npt.NDArray[np.bool_]) -> int:
        columns.append(np.where(mask, ORIGINAL, IDEAL))
        return len(columns) - 1

    fix_last = None
    stages: tuple[int, ...] = ()
    if trace.stages > 1:
        fix_last = keep(trace.op_stage != trace.stages - 1)
        stages = tuple(keep(trace.op_stage == p) for p in range(trace.stages))
    groups = type_groups(trace)
    late = {g for g, ops in groups.items() if program.head_ops.isdisjoint(ops.tolist())}
    types = {}
    for name in sorted(groups, key=lambda g: g in late):
        mask = np.zeros(count, bool)
        mask[groups[name]] = True
        types[name] = keep(mask)
    full = len(columns) - len(late)
    each_dp = trace.shape[2] > 1
    if each_dp:
        columns += columns[ORIGINAL : IDEAL + 1]
    choice = Choice(sources, np.stack(columns, axis=1, dtype=np.intp))
    return MainRows(Stack(choice, full, IDEAL, each_dp=each_dp), fix_last, stages, types)


def type_groups(trace: Trace) -> dict[str, npt.NDArray[np.intp]]:
    """Operations of each reported type: a send and its receive count as one type."""
    parts: dict[str, list[npt.NDArray[np.intp]]] = {}
    for name, rows in trace.rows_of.items():
        parts.setdefault(reported(name), []).append(np.arange(rows.start, rows.stop))
    return {name: np.concatenate(ops) for name, ops in parts.items()}


def mixed(
    trace: Trace,
    inside: Floats,
    outside: Floats,
    workers: Iterable[Worker],
    *,
    whole: bool = True,
) -> Floats:
    """[O, S, D]: ``inside`` on ``workers``, ``outside`` elsewhere.

    Either may be [O, S, D] or one value for all lanes, [O]. Without ``whole`` the stages on which
    there is none of ``workers`` are left undefined.
    """
    out = np.empty(trace.shape)
    if whole:
        out[...] = outside[:, None, None] if outside.ndim == 1 else outside
    dps: dict[int, list[int]] = {}
    for dp, stage in workers:
        dps.setdefault(stage, []).append(dp)
    for stage, here in dps.items():
        ops = np.flatnonzero(trace.op_stage == stage)
        if not whole:
            out[ops] = outside[ops, None, None] if outside.ndim == 1 else outside[ops]
        for dp in here:
            out[ops, :, dp] = inside[ops, None] if inside.ndim == 1 else inside[ops, :, dp]
    return out


def given(*sources: Floats) -> Stack:
    """One scenario for each array of work."""
    pick = np.tile(np.arange(len(sources), dtype=np.intp), (len(sources[0]), 1))
    return Stack(Choice(sources, pick), len(sources))


def launch_groups(trace: Trace, graph: Graph) -> dict[str, npt.NDArray[np.intp]]:
    """As ``type_groups``, with the first operations of a step as a group of their own."""
    first = np.array(graph.first_ops, np.intp)
    groups = {n: ops[~np.isin(ops, first)] for n, ops in type_groups(trace).items()}
    return {n: ops for n, ops in groups.items() if len(ops)} | {FIRST_OP: first}
