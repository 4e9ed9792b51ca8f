"""``measurements``: tables of what was measured of devices, one setting after the other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.app.schema.table import INT, INT32, REAL
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.tables.cells import Cells, names
from steptax.connectors.tables.columns import (
    INT32_MAX,
    Kind,
    Plan,
    Target,
    Term,
    describe,
    make_plan,
)
from steptax.connectors.tables.rows import Header, Rows
from steptax.connectors.tables.screen import Screen, source_stem
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

_TABLE = table("bench_results")
_ALIASES = {
    "run_id": ("run", "experiment"),
    "host": ("hostname", "node"),
    "gpu_uuid": ("uuid", "device"),
    "test": ("benchmark", "name", "metric", "workload"),
    "size": ("batch_size", "shape", "setting"),
    "dtype": ("precision",),
    "value": ("result", "score"),
    "p50": ("median",),
    "n": ("samples", "count"),
    "clock_mhz": ("sm_clock_mhz", "clock"),
    "power_w": ("average_power", "mean_power", "power"),
    "power_limit_w": ("power_limit",),
    "temperature_c": ("temperature",),
    "gpu_model": ("gpu", "gpu_name", "model"),
}
#: What other values of the row give, or nobody writes into a table.
_NOT_READ = {"source", "source_row", "ingested_at_us", "settings", "measured_at_us"}
#: Quantities that no device can have beyond these, both included.
_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "power_w": (0.0, 20_000.0),
    "power_limit_w": (0.0, 20_000.0),
    "clock_mhz": (0.0, 20_000.0),
    "temperature_c": (-50.0, 200.0),
}
_REQUIRED = ("test", "value")


def _targets() -> tuple[Target, ...]:
    found = []
    for column in _TABLE.columns:
        if column.name in _NOT_READ:
            continue
        kind, low, high = Kind.TEXT, None, None
        if column.type == REAL:
            kind, (low, high) = Kind.REAL, _BOUNDS.get(column.name, (None, None))
        elif column.type in (INT, INT32):
            kind, low, high = Kind.WHOLE, 0.0, INT32_MAX if column.type == INT32 else None
        found.append(
            Target(
                column.name,
                column.name,
                kind,
                column.doc,
                _ALIASES.get(column.name, ()),
                required=column.name in _REQUIRED,
                floor=low,
                ceiling=high,
            )
        )
    return tuple(found)


MEASURED_AT = Target(
    "measured_at", "measured_at_us", Kind.MOMENT, "when it was measured", ("timestamp", "time")
)
TARGETS = (*_targets(), MEASURED_AT)
_BY_NAME = {target.name: target for target in TARGETS}
#: Keys that a table need not have, and what they are without it.
_UNTOLD = {"host": "unknown", "gpu_uuid": "unknown", "size": "", "dtype": ""}


class MeasurementsConnector(TabularConnector):
    """Rows of ``bench_results``, each from one row of a table."""

    kind = "measurements"
    version = 1
    title = "tables of measurements: time, throughput, power per setting; CSV, JSON Lines, Parquet"
    table = "bench_results"
    targets = TARGETS
    doc = (
        "One measurement per row, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet: "
        "what was measured (test), its value, and whatever else is known: device, power, power "
        "limit, clock. The unit of the values is a column, else the end of the name of their "
        "column (time_per_epoch_s), else --time-unit, else unknown.\n"
        "Columns that no target takes are kept as settings of the row, so that a table of a sweep "
        "loses nothing. Without a run_id each row is a run of its own, called by file and line. "
        "Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 4; InputError when the table has no test or no value."""
        self.first_rows(source, options)
        return Capabilities(
            (self.table,),
            4,
            "what was measured of devices, at which setting, power and clock",
            "how it was measured; what a job of one's own would reach",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from, every other column as a setting."""
        if options.job_id is not None:
            raise InputError("measurements are of no job", where="--job", hint="leave --job out")
        # A moment without a unit is a setting like another, unless it is asked for.
        asked = MEASURED_AT.name in options.mapping or MEASURED_AT.column in options.mapping
        targets = TARGETS if asked or options.time_unit else TARGETS[:-1]
        plan = make_plan(targets, header, options, where)
        require(targets, plan, header, where)
        if not plan.unused:
            return plan
        return replace(plan, notes=(f"kept as settings: {', '.join(plan.unused)}",))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, _with_settings(plan))
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {t.column: screen.values(t) for t in TARGETS}
        if values["run_id"] is None:
            stem = source_stem(raw.source)
            ids = [f"{stem}:{row}" for row in rows.source_row.tolist()]
            none = np.zeros(len(rows), bool)
            values["run_id"] = Cells(pa.array(ids, pa.string()), none, none)
        else:
            column = plan.terms["run_id"][0].column
            screen.refuse(values["run_id"].null, _BY_NAME["run_id"], column, "a run")
        for name, untold in _UNTOLD.items():
            found = values[name]
            if found is None:
                values[name] = untold
            else:
                none = np.zeros(len(rows), bool)
                values[name] = Cells(found.values.fill_null(untold), none, none)
        if values["gpu_model"] is None:
            values["gpu_model"] = options.gpu_model
        if values["unit"] is None:
            values["unit"] = _unit_of(plan.terms["value"][0].column) or options.time_unit
        values["settings"] = _settings(rows, plan.unused)
        good = screen.keep(values)
        return [Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes))]


def _with_settings(plan: Plan) -> Plan:
    """The plan, by which the unused columns are read too."""
    terms = {**plan.terms, **{f"setting {name}": (Term(name),) for name in plan.unused}}
    return replace(plan, terms=terms)


def _settings(rows: Rows, columns: tuple[str, ...]) -> Cells | None:
    """The cells of ``columns`` of each row as a JSON object; what is empty is left out."""
    if not columns:
        return None
    texts = {name: names(rows.columns[name]).values.to_pylist() for name in columns}
    said = [
        json.dumps({name: own[i] for name, own in texts.items() if own[i] is not None})
        for i in range(len(rows))
    ]
    none = np.zeros(len(rows), bool)
    return Cells(pa.array(said, pa.string()), none, none)


_UNITS = {"s": "s", "ms": "ms", "us": "us", "w": "W", "j": "J", "tflops": "TFLOP/s"}
_UNITS |= {"pct": "%", "gb_per_s": "GB/s", "tokens_per_s": "tokens/s", "ratio": "ratio"}


def _unit_of(column: str) -> str | None:
    """The unit that the name of a column ends in; None where it has none that we know."""
    plain = column.strip().lower()
    found = [ending for ending in _UNITS if plain.endswith(f"_{ending}")]
    return _UNITS[max(found, key=len)] if found else None
