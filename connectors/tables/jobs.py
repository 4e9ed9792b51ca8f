"""``jobs``: tables of jobs or of usage, from a scheduler, an accounting export or a spreadsheet."""

from __future__ import annotations

from collections.abc import Mapping
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
from steptax.connectors.tables import device_hours
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.clock import clock_note
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    Term,
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
    "world_size": ("gpus", "num_gpus", "num_gpu", "n_gpus", "gpu_count", "ngpus"),
    "gpu_hours": ("gpu_h", "gpuhours"),
    "period": ("month", "billing_month", "billing_period"),
}
#: Columns that another value of the row gives, or that no file states.
_NOT_READ = {"time_basis", "source", "source_row", "ingested_at_us"}
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
#: What names a job or whose usage a row is: called a total, the row sums others.
_NAMING = ("job_id", "name", "team", "project", "cluster", "owner", "account", "period", "hosts")
#: The first column of a table without a job id and without a target of its own: a group's name.
_LABEL = Target("label", "label", Kind.TEXT, "what a row is called")


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
TARGETS = (*_STATED, *device_hours.TARGETS)
_BY_COLUMN = {t.column: t for t in TARGETS}
_LABELS = (*(_BY_COLUMN[name] for name in _NAMING), _LABEL)
#: What only a table of jobs, or of their usage, has; when something ran is in many a table.
_OF_JOBS = {"job_id", "gpu_hours"}
_OF_JOBS |= {t.name for t in (device_hours.GPU_TIME, *device_hours.BY_STATE.values())}
_HELD = {"world_size", device_hours.DEVICES.name, device_hours.SHARE.name}
_WHEN = {"start", "end", device_hours.RUN_TIME.name}


class JobsConnector(TabularConnector):
    """Rows of ``jobs``, each from one row of a table."""

    kind = "jobs"
    version = 4
    title = "tables of jobs or of usage: CSV, TSV, JSON Lines (also .gz), Parquet"
    table = "jobs"
    targets = TARGETS
    doc = (
        "One row per job, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet. Ids and "
        "accounts stay text: 00077 keeps its zeros. Times are ISO 8601 (UTC where they name no "
        "zone) or numbers in the unit of the column's name, else of --time-unit.\n"
        "Without gpu_hours they are the GPU-time, else the devices times the run time, where the "
        "file has both; parts of devices (gpu_share) count as parts, and a job that waits held "
        "nothing. --map takes sums and differences, for a clock without a calendar too: "
        "run_time=end_time-start_time. A row that sums a fleet by final state (complete_gpu_time, "
        "cancel_gpu_time, fail_gpu_time) is one row per state, called ID:STATE. "
        "Without a job_id a row is called by its file and line, so that a usage table can be "
        "read. Both are sums of the usage of many jobs: their hours count, and no jobs are counted "
        "of them. A row that is called a total, in whatever column names a job, a group or its "
        "month, is not a job and is rejected. Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the table has nothing of a job."""
        if options.job_id is not None:
            raise InputError(
                "a table of jobs names its jobs itself",
                where="--job",
                hint="leave --job out, or pass --map job_id=COLUMN",
            )
        _, plan, _ = self.first_rows(source, options)
        terms = plan.terms.keys()
        return Capabilities(
            ("jobs",),
            0,
            "jobs, who pays for them, when they ran, and their GPU-hours as far as stated",
            "what happened inside a job: steps, phases, stragglers",
            is_guess=not (terms & _OF_JOBS or (terms & _HELD and terms & _WHEN)),
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when there is nothing of a job."""
        # A time that nothing needs is not read, so that it is no fault where its unit is not known.
        asked = {target.name for target in device_hours.TARGETS} & options.mapping.keys()
        plan = make_plan(TARGETS if asked else _STATED, header, options, where)
        if "gpu_hours" not in plan.terms:
            plan = make_plan(TARGETS, header, options, where)
        times = (device_hours.RUN_TIME, device_hours.GPU_TIME, *device_hours.BY_STATE.values())
        if any(t.unit == "relative" for own in times for t in plan.terms.get(own.name, ())):
            raise InputError(
                "a normalised run time gives no GPU-hours",
                where=where,
                hint="pass --time-unit s, ms, us or ns",
            )
        needed = {"job_id", "gpu_hours", "world_size", *(t.name for t in device_hours.TARGETS)}
        if not plan.terms.keys() & needed:
            raise InputError(
                f"no column for a job, its devices or its GPU-hours; the file has "
                f"{', '.join(header.columns)}",
                where=where,
                hint="say which ones they are: --map job_id=COLUMN --map gpu_hours=COLUMN",
            )
        notes = unused_note(plan)
        if "job_id" not in plan.terms:
            notes += ("there is no job id: each row is called by its file and line",)
        if "gpu_hours" not in plan.terms and (how := device_hours.told(plan)):
            notes += (how,)
        first = header.columns[0]
        if "job_id" not in plan.terms and first not in plan.wanted:
            plan = replace(plan, terms={**plan.terms, _LABEL.name: (Term(first),)})
        return replace(plan, notes=notes)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        _refuse_totals(screen)
        values: dict[str, Any] = {t.column: screen.values(t) for t in _STATED}
        if values["job_id"] is None:
            stem = source_stem(raw.source)
            ids = pa.array([f"{stem}:{row}" for row in rows.source_row.tolist()], pa.string())
            none = np.zeros(len(rows), bool)
            values["job_id"] = Cells(ids, none, none)
        else:
            column = plan.terms["job_id"][0].column
            screen.refuse(values["job_id"].null, _BY_COLUMN["job_id"], column, "a job id")
        notes: tuple[str, ...] = ()
        if values["state"] is not None:
            values["state"], notes = _states(values["state"])
        held = device_hours.held_by(screen, values["world_size"])
        values["world_size"] = held.world_size
        if values["gpu_hours"] is None:
            values["gpu_hours"] = _of_those_that_ran(held.gpu_hours, values["state"])
        if values["gpu_model"] is None:
            values["gpu_model"] = options.gpu_model
        _refuse_backwards(screen, values)
        values["time_basis"] = "wall"
        by_state = {s: screen.values(t) for s, t in device_hours.BY_STATE.items()}
        told = {s: time for s, time in by_state.items() if time is not None}
        values["is_sum"] = True if told or _is_usage(plan) else None
        parts = [_in_state(values, s, time) for s, time in told.items()]
        good = pa.concat_tables([screen.keep(part) for part in parts or [values]])
        notes = (*plan.notes, *rows.notes, *notes, *clock_note(good))
        return [Batch(self.table, good, screen.rejects(), notes)]


def _is_usage(plan: Plan) -> bool:
    """Whether rows say no more than who used how much: no job, no devices, no moment, no end."""
    named = {"job_id", "name", "world_size", "state", "submit", "start", "end"}
    return not plan.terms.keys() & named


def _refuse_totals(screen: Screen) -> None:
    """A row that sums the others would count everything twice."""
    for target in _LABELS:
        for term in screen.plan.terms.get(target.name, ()):
            text = screen.values(target)
            if text is None:
                continue
            total = pc.is_in(pc.utf8_lower(text.values), value_set=pa.array(_TOTALS))
            mask = total.to_numpy(zero_copy_only=False)
            screen.refuse(mask, target, term.column, "a job, not a total of others")


def _of_those_that_ran(hours: Cells | None, state: Cells | None) -> Cells | None:
    """Hours, which are none of a job that still waits."""
    if hours is None or state is None:
        return hours
    waits = pc.fill_null(pc.equal(state.values, "pending"), False).to_numpy(zero_copy_only=False)
    none = hours.null & waits
    null = hours.null & ~waits
    return Cells(np.where(none, 0.0, hours.values), null, null)


def _in_state(values: Mapping[str, Any], state: str, time_us: Cells) -> dict[str, Any]:
    """The part of each row that is of jobs in ``state``, as a row of its own."""
    ids = pc.binary_join_element_wise(values["job_id"].values, state, ":")
    job_id = Cells(ids, values["job_id"].null, values["job_id"].bad)
    hours = device_hours.hours_of(time_us)
    return {**values, "job_id": job_id, "state": state, "gpu_hours": hours}


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
