"""``mlperf-results``: tables of results of MLPerf Training, one row per system and benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.money.bill import filled
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    describe,
    lacking,
    make_plan,
    unused_note,
)
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

UNKNOWN = "unknown"


def _time(name: str, doc: str, *aliases: str, required: bool = False) -> Target:
    # MLPerf states minutes; a column that names another unit is taken at its word.
    return Target(
        name, f"{name}_s", Kind.TIME, doc, aliases, required=required, floor=0, unit="min"
    )


def _count(name: str, doc: str, *aliases: str) -> Target:
    return Target(name, name, Kind.WHOLE, doc, aliases, floor=1, ceiling=INT32_MAX)


ROUND = Target("round", "round", Kind.TEXT, "round, as 5.1", ("version",))
TRAIN = _time(
    "train",
    "time to train; minutes unless the column says otherwise",
    "time_to_train",
    "latency",
    "score",
    "result",
    required=True,
)
TIMES = (
    TRAIN,
    _time("shortest", "shortest run", "run_min", "fastest"),
    _time("longest", "longest run", "run_max", "slowest"),
)
KEYS = (
    Target(
        "submitter", "submitter", Kind.TEXT, "who submitted", ("organization", "org"), required=True
    ),
    Target(
        "system",
        "system",
        Kind.TEXT,
        "system",
        ("system_id", "platform", "system_name"),
        required=True,
    ),
    Target(
        "benchmark",
        "benchmark",
        Kind.TEXT,
        "what was trained",
        ("model", "model_mlc"),
        required=True,
    ),
)
TARGETS = (
    ROUND,
    *KEYS,
    TRAIN,
    Target(
        "gpu_model",
        "gpu_model",
        Kind.TEXT,
        "device",
        ("accelerator", "accelerator_model_name", "accelerator_name"),
    ),
    _count(
        "gpus", "devices that trained", "accelerators", "total_accelerators", "num_accelerators"
    ),
    _count("nodes", "nodes", "number_of_nodes", "num_nodes"),
    _count("runs", "runs that it is taken from"),
    *TIMES[1:],
    Target("division", "division", Kind.TEXT, "closed or open"),
    Target("availability", "availability", Kind.TEXT, "whether it can be had", ("category",)),
    Target("software", "software", Kind.TEXT, "framework and versions", ("framework",)),
    Target("source_url", "source_url", Kind.TEXT, "where it was published", ("source", "url")),
)


class MlperfResultsConnector(TabularConnector):
    """Rows of ``public_results``, each from one row of a table."""

    kind = "mlperf-results"
    version = 1
    title = "result tables of MLPerf Training, a row per system and benchmark: CSV, Parquet"
    table = "public_results"
    targets = TARGETS
    doc = (
        "One result per row, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet: who "
        "submitted which system, what was trained on how many devices, and how long it took. "
        "Times are minutes, as MLPerf states them, unless the column's name says otherwise. A "
        "result without a time (a benchmark that was not run) is rejected. A table without a "
        "round is stored under 'unknown'. Results are shown as recomputed from the public logs, "
        "not verified by MLCommons. Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when a table has no submitter, system, benchmark or time."""
        if options.job_id is not None:
            raise InputError("results are of no job of yours", where="--job", hint="leave it out")
        self.first_rows(source, options)
        return Capabilities(
            ("public_results",),
            0,
            "how long public systems took to train public models, and on how many devices",
            "your own model, data and code; what the hours cost: that is in prices",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when something needed is not there."""
        plan = make_plan(TARGETS, header, options, where)
        if lacking(TARGETS, plan):
            require(TARGETS, plan, header, where)
        return replace(plan, notes=unused_note(plan))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {t.column: screen.values(t) for t in TARGETS}
        values[ROUND.column] = filled(values[ROUND.column], None, len(rows), UNKNOWN)
        for target in (*KEYS, TRAIN):
            cells = values[target.column]
            screen.refuse(cells.null, target, plan.terms[target.name][0].column, "a value")
        for target in TIMES:
            cells = values[target.column]
            if cells is not None:
                zero = ~cells.null & ~cells.bad & (cells.values <= 0)
                screen.refuse(zero, target, plan.terms[target.name][0].column, "a time above 0")
                values[target.column] = replace(
                    cells, values=np.where(cells.null, 0, cells.values) / 1e6
                )
        good = screen.keep(values)
        return [Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes))]
