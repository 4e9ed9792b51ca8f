"""``jobs``: tables of jobs or of usage, from a scheduler, an accounting export or a spreadsheet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.app.schema.table import FLAG, INT, INT32, REAL, TEXT, Column
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    describe,
    make_plan,
    unused_note,
)
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen, source_stem
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, split_rows

#: Names that files give to columns of ``jobs``; the table's own name always counts.
_ALIASES = {
    "job_id": ("jobid", "job", "id"),
    "name": ("job_name", "jobname"),
    "owner": ("user", "username"),
    "state": ("status", "job_state"),
    "submit_us": ("submit", "submit_time", "submitted", "submitted_at"),
    "start_us": ("start", "start_time", "started", "started_at"),
    "end_us": ("end", "end_time", "ended", "ended_at", "finished_at"),
    "gpu_model": ("gpu_type", "gpu_name"),
    "world_size": ("gpus", "num_gpus", "n_gpus", "gpu_count", "ngpus"),
    "gpu_hours": ("gpu_h", "gpuhours"),
    "period": ("month", "billing_month", "billing_period"),
}
#: Columns that another value of the row gives, or that no file states.
_NOT_READ = {"time_basis", "source", "source_row", "ingested_at_us"}
RUN_TIME = Target(
    "run_time",
    "run_time",
    Kind.TIME,
    "time that the job held its devices; with the devices it gives gpu_hours where the file "
    "has none",
    ("hours", "duration", "runtime", "elapsed"),
    floor=0,
)
_STATES = {
    "running": ("running", "active"),
    "completed": ("completed", "succeeded", "success", "done", "finished", "complete"),
    "failed": ("failed", "error", "node_fail", "out_of_memory", "boot_fail", "crashed"),
    "cancelled": ("cancelled", "canceled", "killed", "preempted", "revoked"),
    "timeout": ("timeout", "deadline"),
    "pending": ("pending", "queued", "waiting"),
}
_STATE_OF = {word: state for state, words in _STATES.items() for word in words}
_TOTALS = ("total", "totals", "grand total", "subtotal", "sum total")


def _target(column: Column) -> Target | None:
    """How a column of ``jobs`` is read from text; None for one that is not."""
    aliases = _ALIASES.get(column.name, ())
    make = {
        TEXT: lambda: Target(column.name, column.name, Kind.TEXT, column.doc, aliases),
        INT: lambda: Target(column.name, column.name, Kind.WHOLE, column.doc, aliases, floor=0),
        INT32: lambda: Target(
            column.name, column.name, Kind.WHOLE, column.doc, aliases, floor=0, ceiling=INT32_MAX
        ),
        REAL: lambda: Target(column.name, column.name, Kind.REAL, column.doc, aliases, floor=0),
    }
    if column.name in _NOT_READ or column.type == FLAG:
        return None
    if column.unit == "us":
        name = column.name.removesuffix("_us")
        return Target(
            name, column.name, Kind.MOMENT, f"{column.doc}; ISO 8601 or a number", aliases
        )
    return make[column.type]()


_STATED = tuple(filter(None, map(_target, table("jobs").columns)))
TARGETS = (*_STATED, RUN_TIME)
_BY_COLUMN = {t.column: t for t in TARGETS}


class JobsConnector(TabularConnector):
    """Rows of ``jobs``, each from one row of a table."""

    kind = "jobs"
    version = 1
    title = "tables of jobs or of usage: CSV, TSV, JSON Lines (also .gz), Parquet"
    table = "jobs"
    targets = TARGETS
    doc = (
        "One row per job, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet. Ids and "
        "accounts stay text: 00077 keeps its zeros. Times are ISO 8601 (UTC where they name no "
        "zone) or numbers in the unit of the column's name, else of --time-unit.\n"
        "Without gpu_hours they are the devices times the run time, where the file has both. "
        "Without a job_id a row is called by its file and line, so that a usage table can be "
        "read. A row that is called a total is not a job and is rejected. Targets:\n"
        + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the table has nothing of a job."""
        if options.job_id is not None:
            raise InputError(
                "a table of jobs names its jobs itself",
                where="--job",
                hint="leave --job out, or pass --map job_id=COLUMN",
            )
        self.first_rows(source, options)
        return Capabilities(
            ("jobs",),
            0,
            "jobs, who pays for them, when they ran, and their GPU-hours as far as stated",
            "what happened inside a job: steps, phases, stragglers",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when there is nothing of a job."""
        plan = make_plan(_STATED, header, options, where)
        if "gpu_hours" not in plan.terms:
            # Only now a run time is of use, and only then its lack of a unit is a fault.
            plan = make_plan(TARGETS, header, options, where)
        if any(term.unit == "relative" for term in plan.terms.get(RUN_TIME.name, ())):
            raise InputError(
                "a normalised run time gives no GPU-hours",
                where=where,
                hint="pass --time-unit s, ms, us or ns",
            )
        if not plan.terms.keys() & {"job_id", "gpu_hours", "world_size", "run_time"}:
            raise InputError(
                f"no column for a job, its devices or its GPU-hours; the file has "
                f"{', '.join(header.columns)}",
                where=where,
                hint="say which ones they are: --map job_id=COLUMN --map gpu_hours=COLUMN",
            )
        notes = unused_note(plan)
        if "job_id" not in plan.terms:
            notes += ("there is no job id: each row is called by its file and line",)
        if "gpu_hours" not in plan.terms and {"world_size", "run_time"} <= plan.terms.keys():
            notes += ("GPU-hours are the devices times the run time of each row",)
        return replace(plan, notes=notes)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        _refuse_totals(screen)
        values: dict[str, Any] = {t.column: screen.values(t) for t in TARGETS}
        if values["job_id"] is None:
            stem = source_stem(raw.source)
            ids = pa.array([f"{stem}:{row}" for row in rows.source_row.tolist()], pa.string())
            none = np.zeros(len(rows), bool)
            values["job_id"] = Cells(ids, none, none)
        else:
            column = plan.terms["job_id"][0].column
            screen.refuse(values["job_id"].null, _BY_COLUMN["job_id"], column, "a job id")
        run_time = values.pop(RUN_TIME.column)
        if values["gpu_hours"] is None:
            values["gpu_hours"] = _gpu_hours(values["world_size"], run_time)
        notes: tuple[str, ...] = ()
        if values["state"] is not None:
            values["state"], notes = _states(values["state"])
        if values["gpu_model"] is None:
            values["gpu_model"] = options.gpu_model
        _refuse_backwards(screen, values)
        values["time_basis"] = "wall"
        good = screen.keep(values)
        return [Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes, *notes))]


def _refuse_totals(screen: Screen) -> None:
    """A row that sums the others would count everything twice."""
    for name in ("job_id", "name", "team", "period"):
        for term in screen.plan.terms.get(name, ()):
            text = screen.values(_BY_COLUMN[name])
            if text is None:
                continue
            total = pc.is_in(pc.utf8_lower(text.values), value_set=pa.array(_TOTALS))
            mask = total.to_numpy(zero_copy_only=False)
            screen.refuse(mask, _BY_COLUMN[name], term.column, "a job, not a total of others")


def _gpu_hours(world_size: Cells | None, run_time: Cells | None) -> Cells | None:
    """Devices times run time in hours; None where the file lacks one of them."""
    if world_size is None or run_time is None:
        return None
    null = world_size.null | run_time.null
    return Cells(world_size.values * (run_time.values / 3600e6), null, null)


def _states(cells: Cells) -> tuple[Cells, tuple[str, ...]]:
    """States in our words; one that we do not know is unknown, with a note."""
    words = pc.utf8_lower(cells.values).to_pylist()
    # Slurm says who cancelled: "CANCELLED by 1001".
    known = [_STATE_OF.get(word.split()[0]) if word else None for word in words]
    strange = sorted({w for w, s in zip(words, known, strict=True) if w and s is None})
    notes = tuple(
        f"state {word!r} is not one we know; it counts as unknown" for word in strange[:5]
    )
    null = np.array([state is None for state in known], bool)
    return Cells(pa.array(known, pa.string()), null, null), notes


def _refuse_backwards(screen: Screen, values: dict[str, Any]) -> None:
    """A job cannot end before it starts."""
    start, end = values["start_us"], values["end_us"]
    if start is None or end is None:
        return
    mask = ~start.null & ~end.null & (end.values < start.values) & ~screen.failed
    count = int(mask.sum())
    screen.refuse_because(mask, "end", ["expected an end after the start"] * count)
