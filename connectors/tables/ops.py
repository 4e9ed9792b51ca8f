"""``ops``: per-operation traces of profiled steps, one row per operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.tables import cells
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    describe,
    make_plan,
    unused_note,
)
from steptax.connectors.tables.facts import JobFacts
from steptax.connectors.tables.meta import JobMeta, read_meta
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen, rank_facts, source_stem
from steptax.connectors.tables.steptargets import RANK, STEP
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, split_rows

#: No operation of a training step takes this long: then the numbers are not seconds.
_LONG_S = 1e3


def _place(name: str, doc: str, *aliases: str) -> Target:
    return Target(name, name, Kind.WHOLE, doc, aliases, required=True, floor=0, ceiling=INT32_MAX)


def _chunk(column: str, doc: str, alias: str) -> Target:
    """An index of which -1 means that none applies."""
    return Target(column, column, Kind.WHOLE, doc, (alias,), floor=-1, ceiling=INT32_MAX)


DP = _place("dp", "data parallel rank", "dp_rank")
PP = _place("pp", "pipeline stage", "stage", "pp_rank")
START = Target(
    "start",
    "start_ns",
    Kind.TIME_NS,
    "start, from the step's begin or since 1970; seconds",
    ("start_ts",),
    required=True,
    unit="s",
)
DURATION = Target(
    "duration",
    "duration_ns",
    Kind.TIME_NS,
    "duration; seconds",
    ("dur",),
    required=True,
    floor=0,
    unit="s",
)
CHUNKS = (
    _chunk("micro_batch", "micro-batch, -1 where none applies", "mb_id"),
    _chunk("model_chunk", "virtual stage inside its stage, -1 where none applies", "mc"),
    _chunk("global_chunk", "virtual stage over all stages, -1 where none applies", "gmc"),
)
TARGETS = (
    replace(RANK, aliases=()),
    replace(STEP, doc="optimiser step", aliases=()),
    DP,
    PP,
    Target("op_type", "op_type", Kind.TEXT, "type of operation", ("optype",), required=True),
    Target("seq", "seq", Kind.WHOLE, "number inside its type", ("seq_id",), required=True, floor=0),
    START,
    DURATION,
    *CHUNKS,
)


class OpsConnector(TabularConnector):
    """Rows of ``ops``, and the job's sizes from the trace and from the file beside it."""

    kind = "ops"
    version = 1
    title = "per-operation traces: Parquet, CSV, JSON Lines, with sizes in YAML (--meta)"
    table = "ops"
    targets = TARGETS
    doc = (
        "One row per operation of a profiled step, with the columns of the public artifact of "
        "Lin et al., OSDI'25; all of them are needed. Times are in seconds, unless a column's name "
        "or --time-unit says otherwise.\n"
        "--meta FILE.yaml gives dp_size, pp_size, tp_size, dsp_size, vpp_size and world_size; "
        "without it the world size is the number of ranks in the trace. Targets:\n"
        + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 3; InputError when a column is missing, sizes clash, or times are no seconds."""
        meta = self.beside(options)
        if options.world_size and meta.world_size not in (None, options.world_size):
            raise InputError(
                f"--world-size is {options.world_size}, but the file of sizes says "
                f"{meta.world_size}",
                where=str(options.meta),
                hint="leave --world-size out",
            )
        _, plan, rows = self.first_rows(source, options)
        _refuse_other_units(plan, rows.columns, options, str(source))
        return Capabilities(
            ("ops", "jobs", "ranks"),
            3,
            "every recorded operation of the profiled steps: what waits for what",
            "ranks that were not recorded, and what happens inside an operation",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError names the columns that are missing."""
        plan = make_plan(TARGETS, header, options, where)
        missing = [t for t in TARGETS if t.name not in plan.terms]
        if missing:
            names = ", ".join(
                f"{t.name} ({t.aliases[0]})" if t.aliases else t.name for t in missing
            )
            raise InputError(
                f"no column for {names}; the file has {', '.join(header.columns)}",
                where=where,
                hint=f"say which one it is: --map {missing[0].name}=COLUMN",
            )
        return replace(plan, notes=unused_note(plan))

    def beside(self, options: Options) -> JobMeta:
        """The sizes that ``--meta`` gives, if it does."""
        return read_meta(options.meta) if options.meta is not None else JobMeta()

    def begin(self, source: Path, options: Options) -> Run:
        """Number the operations across chunks and collect ranks."""
        _, plan, _ = self.first_rows(source, options)
        relative = plan.terms[DURATION.name][0].unit == "relative"
        return OpsRun(source, options, self.beside(options), relative=relative)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk; ``op_id`` counts inside the chunk.

        InputError when a coordinate exceeds the sizes: then they are another job's.
        """
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {t.column: screen.values(t) for t in TARGETS}
        for target in CHUNKS:
            found = values[target.column]
            values[target.column] = replace(found, null=found.null | (found.values < 0))
        _refuse_clash(screen, values, chunk.beside, raw.source)
        if options.world_size is not None:
            screen.refuse(
                values["rank"].values >= options.world_size,
                RANK,
                plan.terms["rank"][0].column,
                f"a rank below the world size {options.world_size}",
            )
        values["job_id"] = options.job_id or source_stem(raw.source)
        good = screen.keep(values)
        inverse, counts = _lanes(good)[1:]
        good = good.append_column("op_id", pa.array(_count_inside(inverse, counts)))
        jobs = pa.table({"job_id": good["job_id"].slice(0, 1)})
        return [
            Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes)),
            Batch("jobs", jobs),
            Batch("ranks", rank_facts(screen, good, values, (DP, PP))),
        ]


class OpsRun(JobFacts):
    """Numbers operations over chunks, and compares the sizes with the ranks seen."""

    def __init__(self, source: Path, options: Options, meta: JobMeta, *, relative: bool) -> None:
        named = {} if options.job_id else {"name": source_stem(str(source))}
        job: dict[str, Any] = {**named, **meta.job()}
        job["time_basis"] = "relative" if relative else "wall"
        if options.gpu_model is not None:
            job["gpu_model"] = options.gpu_model
        super().__init__(options, job)
        self._meta = meta
        self._seen: dict[tuple[int, int], int] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Let ``op_id`` go on from the chunks before."""
        if batch.table == "ops":
            batch = replace(batch, rows=self._numbered(batch.rows))
        yield from super().take(batch)

    def close(self) -> Iterator[Batch]:
        """One row per job and rank, and a note where the trace covers less than the sizes say."""
        for name, size in (("dp", self._meta.dp_size), ("pp", self._meta.pp_size)):
            seen = len({row[name] for row in self._ranks.values()})
            if size is not None and 0 < seen < size:
                self._notes.setdefault(
                    f"the trace covers {seen} of {size} {name} coordinates of the sizes"
                )
        yield from super().close()

    def _numbered(self, rows: pa.Table) -> pa.Table:
        lanes, inverse, counts = _lanes(rows)
        before = np.zeros(len(lanes), np.int64)
        for i, (step, rank) in enumerate(lanes.tolist()):
            before[i] = self._seen.get((step, rank), 0)
            self._seen[step, rank] = int(before[i] + counts[i])
        numbers = rows["op_id"].to_numpy() + before[inverse]
        return rows.set_column(rows.column_names.index("op_id"), "op_id", pa.array(numbers))


Ints = npt.NDArray[np.int64]


def _lanes(rows: pa.Table) -> tuple[Ints, Ints, Ints]:
    """The distinct (step, rank) of ``rows``, which of them each row is in, and their sizes."""
    pairs = np.column_stack([rows["step"].to_numpy(), rows["rank"].to_numpy().astype(np.int64)])
    lanes, inverse, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return lanes, inverse.reshape(-1), counts


def _count_inside(inverse: Ints, counts: Ints) -> Ints:
    """For each row how many rows of its group come before it."""
    order = np.argsort(inverse, kind="stable")
    begin = np.cumsum(counts) - counts
    numbers = np.empty(len(inverse), np.int64)
    numbers[order] = np.arange(len(inverse)) - begin[inverse[order]]
    return numbers


def _refuse_clash(screen: Screen, values: dict[str, Any], meta: JobMeta, source: str) -> None:
    sizes = {
        "dp": meta.dp_size,
        "pp": meta.pp_size,
        "model_chunk": meta.vpp_size,
        "rank": meta.world_size,
    }
    for column, size in sizes.items():
        if size is None:
            continue
        found = values[column]
        over = np.flatnonzero(~screen.failed & ~found.null & (found.values >= size))
        if len(over):
            row = int(over[0])
            raise InputError(
                f"{column} is {found.values[row]}, but the file of sizes has {size} of them",
                where=f"{source}, row {screen.rows.source_row[row]}",
                hint="is --meta of another job?",
            )


def _refuse_other_units(plan: Plan, columns: Any, options: Options, where: str) -> None:
    """Operations of many minutes are microseconds or so, unless the person says otherwise."""
    term = plan.terms[DURATION.name][0]
    if options.time_unit is not None or term.unit != "s" or plan.terms[DURATION.name][1:]:
        return
    found = cells.reals(columns[term.column])
    good = found.values[~found.null & ~found.bad]
    median = float(np.median(good)) if len(good) else 0.0
    if median > _LONG_S:
        raise InputError(
            f"half of the operations would take longer than {median:,.0f} s: the numbers of "
            f"{term.column!r} are hardly seconds",
            where=where,
            hint="pass --time-unit us (or ms, ns), or s if they are",
        )
