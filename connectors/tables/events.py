"""``events``: what happened to jobs between steps, as a table that people or tools write."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.schema import EVENT_KINDS, Batch
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.clock import clock_note
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    describe,
    make_plan,
    refuse_second_job,
    unused_note,
)
from steptax.connectors.tables.jobplace import place_in_job
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

_ALIASES = {
    "checkpoint": "checkpoint_save",
    "save": "checkpoint_save",
    "restore": "checkpoint_restore",
    "load": "checkpoint_restore",
    "crash": "failure",
    "failed": "failure",
    "preemption": "evict",
    "preempted": "evict",
    "evaluation": "eval",
    "validation": "eval",
}
JOB = Target("job_id", "job_id", Kind.TEXT, "the job; else --job, else the file's name", ("job",))
ATTEMPT = Target(
    "attempt",
    "attempt",
    Kind.WHOLE,
    "attempt number from 0; else --attempt",
    floor=0,
    ceiling=INT32_MAX,
)
KIND = Target(
    "kind",
    "kind",
    Kind.TEXT,
    f"one of {', '.join(EVENT_KINDS)}",
    ("event", "type", "event_type"),
    required=True,
)
START = Target(
    "start",
    "start_us",
    Kind.MOMENT,
    "begin; ISO 8601 or a number",
    ("time", "timestamp", "ts", "at"),
    required=True,
)
END = Target("end", "end_us", Kind.MOMENT, "end; none for a moment", ("until",))
TARGETS = (
    JOB,
    ATTEMPT,
    KIND,
    START,
    END,
    Target("ranks", "ranks", Kind.TEXT, "ranks concerned, as 0,3; none for all", ("rank",)),
    Target(
        "detail",
        "detail",
        Kind.TEXT,
        "free text; step=40 tells to which step a rollback or a restore goes back",
        ("message", "reason", "description"),
    ),
)


class EventsConnector(TabularConnector):
    """Rows of ``events``, each from one row of a table."""

    kind = "events"
    version = 1
    title = (
        "tables of what happened to jobs: failures, checkpoints, restarts; CSV, JSON Lines, Parquet"
    )
    table = "events"
    targets = TARGETS
    doc = (
        "One event per row, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet: what "
        "kind, when it began and, where it lasted, when it ended. Times are ISO 8601 (UTC where "
        "they name no zone) or numbers in the unit of the column's name, else of --time-unit. "
        "Kinds are compared without regard to case, blanks and dashes; an unknown one is "
        "rejected. Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the table has no kind or no begin."""
        self.first_rows(source, options)
        return Capabilities(
            ("events",),
            0,
            "failures, rollbacks, restarts, checkpoints, pauses and when they were",
            "steps and phases; why something failed, beyond its text",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when something needed is not there."""
        plan = make_plan(TARGETS, header, options, where)
        require(TARGETS, plan, header, where)
        refuse_second_job(JOB, plan, options)
        return replace(plan, notes=unused_note(plan))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {t.column: screen.values(t) for t in TARGETS}
        place_in_job(screen, values, JOB, options, raw.source)
        values["kind"] = _kinds(screen, values["kind"])
        start, end = values["start_us"], values["end_us"]
        if end is not None:
            mask = ~start.null & ~end.null & (end.values < start.values) & ~screen.failed
            screen.refuse_because(
                mask, "end", ["expected an end after the start"] * int(mask.sum())
            )
        good = screen.keep(values)
        notes = (*plan.notes, *rows.notes, *clock_note(good))
        return [Batch(self.table, good, screen.rejects(), notes)]


def _kinds(screen: Screen, cells: Cells) -> Cells:
    """Kinds in our words; a row with another one is refused."""
    words = [None if w is None else _kind(w) for w in cells.values.to_pylist()]
    told = cells.values.to_pylist()
    strange = [
        w is not None and w not in EVENT_KINDS and not failed
        for w, failed in zip(words, screen.failed.tolist(), strict=True)
    ]
    reasons = []
    for word, is_strange in zip(told, strange, strict=True):
        if is_strange:
            near = difflib.get_close_matches(word.lower(), EVENT_KINDS, 1)
            maybe = f"; is it {near[0]}?" if near else ""
            reasons.append(f"expected a kind of event, found {word!r:.80}{maybe}")
    screen.refuse_because(np.array(strange, bool), KIND.name, reasons)
    return Cells(pa.array(words, pa.string()), cells.null, cells.bad)


def _kind(word: str) -> str:
    plain = "_".join(word.lower().replace("-", " ").replace("_", " ").split())
    return _ALIASES.get(plain, plain)
