"""Scenarios as stacks: which operations take their measured work, which their ideal.

*Keep X* has measured work in X and ideal work elsewhere; *fix X* the other way round; *launch X*
has measured work everywhere and launch delays in X (Lin et al., OSDI'25, section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.whatif.graph import Graph
from steptax.app.whatif.optypes import FIRST_OP, reported
from steptax.app.whatif.program import Program
from steptax.app.whatif.simulate import Choice, Stack
from steptax.app.whatif.trace import Floats, Trace

Flags = npt.NDArray[np.bool_]
Worker = tuple[int, int]
"""Positions of a worker: data-parallel rank, stage."""


@dataclass(frozen=True, eq=False)
class MainRows:
    """The stack of the main analysis, and what its rows are.

    Row 0 is the measured job without launch delays; ``fix_last`` the one whose last stage is
    ideal; ``stages`` and ``types`` those that keep one stage or one reported type.
    """

    stack: Stack
    fix_last: int | None
    stages: tuple[int, ...]
    types: dict[str, int]


def main_rows(trace: Trace, program: Program, own_s: Floats, ideal_s: Floats) -> MainRows:
    """Everything that the main analysis asks, as one stack.

    A single stage or data-parallel rank is the whole job, so it has no row of its own. Types
    that occur in the tail only follow the ideal run until there.
    """
    columns: list[Flags] = [np.ones(len(trace.op_type), bool)]
    fix_last = None
    stages: tuple[int, ...] = ()
    if trace.stages > 1:
        fix_last = 1
        columns.append(trace.op_stage != trace.stages - 1)
        stages = tuple(range(2, 2 + trace.stages))
        columns += [trace.op_stage == p for p in range(trace.stages)]
    groups = type_groups(trace)
    late = {g for g, ops in groups.items() if program.head_ops.isdisjoint(ops.tolist())}
    types = {}
    for name in sorted(groups, key=lambda g: g in late):
        types[name] = len(columns)
        keep = np.zeros(len(trace.op_type), bool)
        keep[groups[name]] = True
        columns.append(keep)
    full = len(columns) - len(late)
    each_dp = trace.shape[2] > 1
    if each_dp:
        columns += [np.ones(len(keep), bool), np.zeros(len(keep), bool)]
    stack = Stack(choose((own_s, ideal_s), columns), full, each_dp=each_dp)
    return MainRows(stack, fix_last, stages, types)


def choose(sources: tuple[Floats, Floats], first_where: Sequence[Flags]) -> Choice:
    """For each scenario a mask [O]: where it holds the first source is taken, else the second."""
    pick = np.empty((len(first_where[0]), len(first_where)), np.intp)
    for row, mask in enumerate(first_where):
        np.subtract(1, mask, out=pick[:, row], dtype=np.intp)
    return Choice(sources, pick)


def type_groups(trace: Trace) -> dict[str, npt.NDArray[np.intp]]:
    """Operations of each reported type: a send and its receive count as one type."""
    parts: dict[str, list[npt.NDArray[np.intp]]] = {}
    for name, rows in trace.rows_of.items():
        parts.setdefault(reported(name), []).append(np.arange(rows.start, rows.stop))
    return {name: np.concatenate(ops) for name, ops in parts.items()}


def worker_mask(trace: Trace, workers: Iterable[Worker]) -> Flags:
    """[P, D], true for ``workers``."""
    mask = np.zeros((trace.stages, trace.shape[2]), bool)
    for dp, stage in workers:
        mask[stage, dp] = True
    return mask


def mixed(trace: Trace, inside: Floats, outside: Floats, mask: Flags) -> Floats:
    """[O, S, D]: ``inside`` on the workers of ``mask`` [P, D], ``outside`` elsewhere.

    Either may be [O, S, D] or one value for all lanes, [O].
    """
    where = mask[trace.op_stage][:, None, :]
    a, b = (x[:, None, None] if x.ndim == 1 else x for x in (inside, outside))
    return np.where(where, a, b)


def given(*sources: Floats) -> Stack:
    """One scenario for each array of work."""
    pick = np.tile(np.arange(len(sources), dtype=np.intp), (len(sources[0]), 1))
    return Stack(Choice(sources, pick), len(sources))


def launch_groups(trace: Trace, graph: Graph) -> dict[str, npt.NDArray[np.intp]]:
    """As ``type_groups``, with the first operations of a step as a group of their own."""
    first = np.array(graph.first_ops, np.intp)
    groups = {n: np.setdiff1d(ops, first) for n, ops in type_groups(trace).items()}
    return {n: ops for n, ops in groups.items() if len(ops)} | {FIRST_OP: first}
