"""``scalars``: tables of numbers by job and step, as trackers and published traces export them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.logs.marks import printed
from steptax.connectors.tables.cells import Cells, is_text, names, reals
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    Term,
    describe,
    make_plan,
    refuse_second_job,
    unused_note,
)
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.jobplace import place_in_job
from steptax.connectors.tables.rows import Header, Rows
from steptax.connectors.tables.screen import Screen
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

JOB = Target(
    "job_id", "job_id", Kind.TEXT, "the job; else --job, else the file's name", ("job", "run")
)
ATTEMPT = Target(
    "attempt",
    "attempt",
    Kind.WHOLE,
    "attempt number from 0; else --attempt",
    floor=0,
    ceiling=INT32_MAX,
)
STEP = Target(
    "step",
    "step",
    Kind.WHOLE,
    "optimiser step",
    ("iteration", "iter", "global_step"),
    required=True,
    floor=0,
)
RANK = Target(
    "rank",
    "rank",
    Kind.WHOLE,
    "global rank that it speaks of; else the job",
    ("worker",),
    floor=0,
    ceiling=INT32_MAX,
)
AT = Target(
    "at",
    "at_us",
    Kind.MOMENT,
    "when it was noted; seconds where its column names no unit",
    ("wall_time", "timestamp", "time"),
    unit="s",
)
NAME = Target(
    "name", "name", Kind.TEXT, "what the value is, where each row has one", ("tag", "metric", "key")
)
VALUE = Target("value", "value", Kind.TEXT, "the value of a row that names what it is", ())
_PLACE = (JOB, ATTEMPT, STEP, RANK, AT)
TARGETS = (*_PLACE, NAME, VALUE)


class ScalarsConnector(TabularConnector):
    """Rows of ``printed_metrics``: one per value of a table."""

    kind = "scalars"
    version = 1
    title = "tables of any numbers by job and step: CSV, JSON Lines, Parquet"
    table = "printed_metrics"
    targets = TARGETS
    doc = (
        "One row per step (of a job, of a rank) with a column for each number, or one row per "
        "number with a column that names it and one for its value, in CSV, TSV, JSON Lines (these "
        "also packed by gzip) or Parquet: losses, learning rates, spreads of step times, whatever "
        "a tracker or a published trace holds. They are kept beside what is computed here and "
        "never mixed with it. Every column that no target takes is a number of its own; what is "
        "no number is kept as text, an empty cell is nothing. Step times of ranks are read by the "
        "kind steps. Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the table has no step or no number."""
        self.first_rows(source, options)
        return Capabilities(
            ("jobs", self.table),
            0,
            "the numbers that the table holds, step by step, under their own names",
            "steps, phases and ranks, unless a number is one of them",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; every other column is a metric."""
        plan = make_plan(TARGETS, header, options, where)
        require(TARGETS, plan, header, where)
        refuse_second_job(JOB, plan, options)
        terms = dict(plan.terms)
        if not terms.keys() >= {NAME.name, VALUE.name}:
            # A column called value is a metric of its own where none says what it is.
            beside = [terms.pop(t.name)[0].column for t in (NAME, VALUE) if t.name in terms]
            terms |= {f"metric {c}": (Term(c),) for c in (*plan.unused, *beside)}
            if terms.keys() <= {target.name for target in _PLACE}:
                raise InputError(
                    f"no column for a number; the file has {', '.join(header.columns)}",
                    where=where,
                    hint="a number by step is a column of its own, beside job, step and rank",
                )
            return Plan(terms, (), plan.notes)
        return replace(plan, notes=unused_note(plan))

    def begin(self, source: Path, options: Options) -> Run:
        """The jobs are told once, at the end."""
        return _Jobs()

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {t.column: screen.values(t) for t in _PLACE}
        place_in_job(screen, values, JOB, options, raw.source)
        values["subject"] = _subjects(values["rank"], len(rows))
        if NAME.name in plan.terms:
            told = screen.values(NAME)
            assert told is not None
            screen.refuse(told.null, NAME, plan.terms[NAME.name][0].column, "a name")
            parts = [_named(told, rows, plan.terms[VALUE.name][0].column)]
        else:
            metrics = [t[0].column for name, t in plan.terms.items() if name.startswith("metric ")]
            parts = [_metric(rows, column) for column in metrics]
        kept = [_without_nothing(screen.keep({**values, **part})) for part in parts]
        good = pa.concat_tables(kept, promote_options="permissive")
        return [Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes))]


class _Jobs(Run):
    """Notes which jobs there are."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Pass on."""
        if batch.rows.num_rows:
            self._ids.update(dict.fromkeys(pc.unique(batch.rows["job_id"]).to_pylist()))
        yield batch

    def close(self) -> Iterator[Batch]:
        """One row per job."""
        if self._ids:
            rows = [{"job_id": job_id, "name": job_id} for job_id in sorted(self._ids)]
            yield Batch("jobs", rows_of("jobs", rows))

    def state(self) -> dict[str, Any]:
        """The jobs so far."""
        return {"jobs": list(self._ids)}

    def restore(self, state: Any) -> None:
        """Go on from what ``state`` gave."""
        self._ids = dict.fromkeys(state["jobs"])


def _subjects(rank: Cells | None, count: int) -> Cells | str:
    """Whom each row is of: its rank, else the job."""
    if rank is None:
        return "job"
    said = [
        "job" if gone else f"rank {value}"
        for value, gone in zip(rank.values.tolist(), rank.null.tolist(), strict=True)
    ]
    return Cells(pa.array(said, pa.string()), np.zeros(count, bool), np.zeros(count, bool))


def _metric(rows: Rows, column: str) -> dict[str, Any]:
    """The cells of a column that is a metric."""
    common = printed(column, "")
    return {
        **_values(rows.columns[column]),
        "name": common.name,
        "unit": common.unit or None,
        "printed_as": column,
    }


def _named(told: Cells, rows: Rows, column: str) -> dict[str, Any]:
    """The cells of a column of values, of which each row says what it is."""
    coded = told.values.dictionary_encode()
    common = [printed(name, "") if name else None for name in coded.dictionary.to_pylist()]

    def spread(words: list[str | None]) -> Cells:
        return Cells(pa.array(words, pa.string()).take(coded.indices), told.null, told.bad)

    return {
        **_values(rows.columns[column]),
        "name": spread([None if one is None else one.name for one in common]),
        "unit": spread([None if one is None else one.unit or None for one in common]),
        "printed_as": told,
    }


def _values(column: pa.Array) -> dict[str, Cells]:
    """What a column says, as numbers where it is one, and letter by letter.

    Text such as nan or N/A says that there is no number; a NaN in a column of numbers is how
    tools write that there is nothing.
    """
    number = reals(column)
    gone = number.null | number.bad
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    else:
        text = names(column).values
    null = text.is_null().to_numpy(zero_copy_only=False)
    return {
        "value": Cells(np.where(gone, 0.0, number.values), gone, gone),
        "text": Cells(pc.utf8_slice_codeunits(text, 0, 200), null, null),
    }


def _without_nothing(rows: pa.Table) -> pa.Table:
    """Rows of which anything is said: an empty cell is no row."""
    return rows.filter(pc.is_valid(rows["text"]))
