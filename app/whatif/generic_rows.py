"""Operations of traces without a schedule that is known beforehand, such as a profiler's.

A *lane* is what a rank does by itself, kernel after kernel (or, without a device, host operation
after host operation). Communications run beside it, on streams of their own, and are matched over
the ranks by group, step and number in the step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.intervals import Ints
from steptax.app.whatif.findings import DroppedStep
from steptax.app.whatif.optypes import BACKWARD, FORWARD, canonical
from steptax.app.whatif.rows import numbers

STEP, READY, INPUT = "step", "ready", "input"
#: Types that make a lane busy. Copies run beside it.
LANE = frozenset(("kernel", "cpu"))
_BESIDE = frozenset((STEP, READY, INPUT, "h2d-copy", "copy", "memset"))
_SIZE = re.compile(r"/(\d+)$")


@dataclass(frozen=True, eq=False)
class Ops:
    """Columns of N operations in ``ranks``; times in nanoseconds."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    types: tuple[str, ...]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    streams: tuple[str, ...]
    rank: Ints
    """Index into ``ranks``, as all below index theirs."""
    step: Ints
    op_type: Ints
    name: Ints
    group: Ints
    """-1 where none is recorded."""
    stream: Ints
    seq: Ints
    size_bytes: Ints
    """-1 where not recorded."""
    start_ns: Ints
    end_ns: Ints

    def of(self, *names: str) -> npt.NDArray[np.bool_]:
        """[N] which operations are of one of these types."""
        return np.isin(self.op_type, [i for i, t in enumerate(self.types) if t in names])


@dataclass(eq=False)
class Collective:
    """One communication: what each member [M] recorded of it."""

    step: int
    op: str
    group: str | None
    seq: int
    size: int | None
    """Ranks of the group; None where not recorded."""
    rank: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    ready_ns: list[int | None] = field(default_factory=list)
    size_bytes: int = -1

    @property
    def signature(self) -> tuple[str, int, int]:
        """What is the same on all ranks that communicate alike."""
        return self.op, self.size_bytes, self.size or 0

    def __str__(self) -> str:
        """For people."""
        where = f" of group {self.group}" if self.group is not None else ""
        return f"{self.op} {self.seq}{where}"


@dataclass(frozen=True, eq=False)
class Matched:
    """All communications of the usable steps, and what was wrong with others."""

    steps: tuple[int, ...]
    collectives: list[Collective]
    dropped: tuple[DroppedStep, ...]
    warnings: tuple[str, ...]
    absent: bool
    """Whether members of groups are not in the trace."""


def is_generic(table: pa.Table) -> bool:
    """Whether ``table`` holds a profiler's operations, not those of a pipeline schedule."""
    if "op_type" not in table.column_names:
        return False
    types = {canonical(str(t)) for t in table["op_type"].unique().to_pylist()}
    return not types & {FORWARD, BACKWARD} and bool(types & {STEP, READY, *LANE})


def read_ops(table: pa.Table, where: str = "ops") -> Ops:
    """The columns of ``ops`` rows of one job.

    InputError when one that is needed has empty cells.
    """
    columns = {}
    for name in ("rank", "step", "start_ns", "duration_ns"):
        values, valid = numbers(table.column(name), f"{where}, {name}")
        if valid is not None:
            raise InputError("empty cell", where=f"{where}, {name}, row {np.argmin(valid) + 1}")
        columns[name] = values.astype(np.int64)
    if (columns["duration_ns"] < 0).any():
        row = int(np.argmax(columns["duration_ns"] < 0))
        raise InputError("negative duration", where=f"{where}, duration_ns, row {row + 1}")
    coded = {name: _coded(table, name) for name in ("op_type", "name", "group", "stream")}
    ranks, rank = np.unique(columns["rank"], return_inverse=True)
    steps, step = np.unique(columns["step"], return_inverse=True)
    return Ops(
        ranks=tuple(ranks.tolist()),
        steps=tuple(steps.tolist()),
        types=tuple(canonical(t) for t in coded["op_type"][0]),
        names=coded["name"][0],
        groups=coded["group"][0],
        streams=coded["stream"][0],
        rank=rank.astype(np.int64),
        step=step.astype(np.int64),
        op_type=coded["op_type"][1],
        name=coded["name"][1],
        group=coded["group"][1],
        stream=coded["stream"][1],
        seq=_filled(table, "seq"),
        size_bytes=_filled(table, "bytes"),
        start_ns=columns["start_ns"],
        end_ns=columns["start_ns"] + columns["duration_ns"],
    )


def match(ops: Ops, usable: Sequence[int]) -> Matched:
    """Match communications over ranks in the steps ``usable`` (indices into ``ops.steps``).

    A step in which a group's members do not have the same number of them is dropped. Where no
    group is recorded, the n-th of a type is taken to be one communication of all ranks if all have
    as many and they overlap in time every time; else it is each rank's own.
    """
    found = _collect(ops, usable)
    dropped: dict[int, DroppedStep] = {}
    warnings: list[str] = []
    members: dict[str, set[int]] = {}
    for one in found.values():
        if one.group is not None:
            members.setdefault(one.group, set()).update(one.rank)
    for one in found.values():
        expected = members[one.group] if one.group is not None else None
        if expected and len(one.rank) < len(expected) and one.step not in dropped:
            missing = min(expected - set(one.rank))
            dropped[one.step] = DroppedStep(
                ops.steps[one.step],
                f"rank {ops.ranks[missing]} has no {one}, which others of its group have",
                ops.ranks[missing],
                str(one),
            )
    kept = [c for c in found.values() if c.step not in dropped]
    alone, whole = _without_group(kept, len(ops.ranks))
    if alone:
        warnings.append(
            f"{len(alone)} communications have no process group and do not match over the ranks: "
            "each counts as its rank's own, and nobody is seen to wait in them"
        )
    if whole:
        warnings.append(
            f"{whole} communications have no process group; the n-th of a kind is taken to be the "
            "same on all ranks, as they overlap in time"
        )
    kept = [c for c in kept if c.group is not None or id(c) not in alone] + [
        part for c in kept if id(c) in alone for part in _split(c)
    ]
    absent = sorted(
        {
            (c.group, c.size - len(members[c.group]))
            for c in kept
            if c.group is not None and c.size is not None and len(members[c.group]) < c.size
        }
    )
    for group, count in absent[:3]:
        warnings.append(
            f"{count} ranks of group {group} are not in the trace: waiting for them counts as "
            "transfer, and they cannot be named"
        )
    steps = tuple(s for s in usable if s not in dropped)
    return Matched(steps, kept, tuple(dropped.values()), tuple(warnings), bool(absent))


def _collect(ops: Ops, usable: Sequence[int]) -> dict[tuple[object, ...], Collective]:
    comm = ~ops.of(*LANE, *_BESIDE) & np.isin(ops.step, usable)
    found: dict[tuple[object, ...], Collective] = {}
    place: dict[tuple[object, ...], tuple[Collective, int]] = {}
    rows = np.flatnonzero(comm)
    for row in rows[np.argsort(ops.start_ns[rows], kind="stable")].tolist():
        key = _key(ops, row, ops.types[ops.op_type[row]])
        group = ops.groups[ops.group[row]] if ops.group[row] >= 0 else None
        size = _SIZE.search(group) if group is not None else None
        one = found.setdefault(
            key,
            Collective(
                int(ops.step[row]),
                ops.types[ops.op_type[row]],
                group,
                int(ops.seq[row]),
                int(size[1]) if size else None,
            ),
        )
        rank = int(ops.rank[row])
        if rank in one.rank:
            continue  # The same file twice.
        place[(*key, rank)] = one, len(one.rank)
        one.rank.append(rank)
        one.stream.append(int(ops.stream[row]))
        one.start_ns.append(int(ops.start_ns[row]))
        one.end_ns.append(int(ops.end_ns[row]))
        one.ready_ns.append(None)
        one.size_bytes = max(one.size_bytes, int(ops.size_bytes[row]))
    for row in np.flatnonzero(ops.of(READY) & np.isin(ops.step, usable)).tolist():
        key = (*_key(ops, row, canonical(ops.names[ops.name[row]])), int(ops.rank[row]))
        if key in place:
            one, at = place[key]
            one.ready_ns[at] = int(ops.start_ns[row])
    return found


def _key(ops: Ops, row: int, op: str) -> tuple[object, ...]:
    """Group, step and number; without a group the kind takes its place."""
    group = int(ops.group[row])
    return (group, "" if group >= 0 else op, int(ops.step[row]), int(ops.seq[row]))


def _without_group(kept: list[Collective], ranks: int) -> tuple[set[int], int]:
    """Those that do not match (by identity), and the number of those that do."""
    kinds: dict[str, list[Collective]] = {}
    for one in kept:
        if one.group is None:
            kinds.setdefault(one.op, []).append(one)
    alone: set[int] = set()
    whole = 0
    for some in kinds.values():
        fits = all(len(c.rank) == ranks and max(c.start_ns) <= min(c.end_ns) for c in some)
        if fits and ranks > 1:
            whole += len(some)
        else:
            alone.update(id(c) for c in some)
    return alone, whole


def _split(one: Collective) -> list[Collective]:
    """Each rank's part on its own."""
    return [
        replace(
            one,
            rank=[one.rank[i]],
            stream=[one.stream[i]],
            start_ns=[one.start_ns[i]],
            end_ns=[one.end_ns[i]],
            ready_ns=[one.ready_ns[i]],
        )
        for i in range(len(one.rank))
    ]


def _coded(table: pa.Table, name: str) -> tuple[tuple[str, ...], Ints]:
    """Distinct texts of a column and which each row has, -1 for none."""
    if name not in table.column_names:
        return (), np.full(table.num_rows, -1, np.int64)
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return tuple(str(v) for v in column.dictionary.to_pylist()), codes


def _filled(table: pa.Table, name: str) -> Ints:
    if name not in table.column_names:
        return np.full(table.num_rows, -1, np.int64)
    values, valid = numbers(table.column(name), name)
    out = values if valid is None else np.where(valid, values, -1)
    return out.astype(np.int64)
