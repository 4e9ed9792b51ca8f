"""``device-samples``: tables of what devices said of themselves, from any monitor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.app.schema.table import INT, INT32
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
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

_TABLE = table("device_samples")
HOST = Target(
    "host",
    "host",
    Kind.TEXT,
    "node; else --host, else the file's name",
    ("hostname", "node", "instance", "machine", "server"),
)
DEVICE = Target(
    "device",
    "gpu_uuid",
    Kind.TEXT,
    "what tells the device: its UUID; else its index; else each node counts as one device",
    ("uuid", "gpu_uuid", "device_id", "gpu_id"),
)
MOMENT = Target(
    "ts",
    "ts_us",
    Kind.MOMENT,
    "moment of the sample; ISO 8601 or a number",
    ("timestamp", "time", "datetime", "at", "date"),
    required=True,
)


@dataclass(frozen=True)
class _Unit:
    """A unit: what its names end in, what one of it is in the unit of the column, its bounds.

    ``bare`` units are meant where a name has none.
    """

    ending: str
    scale: float
    low: float
    high: float
    bare: bool = False


_SHARE = (
    _Unit("ratio", 1.0, 0.0, 1.0),
    _Unit("pct", 0.01, 0.0, 100.0),
    _Unit("percent", 0.01, 0.0, 100.0),
)
_BYTES = tuple(
    _Unit(ending, scale, 0.0, 2.0**50 / scale)
    for ending, scale in (
        ("bytes", 1.0),
        ("mib", 2.0**20),
        ("gib", 2.0**30),
        ("mb", 1e6),
        ("gb", 1e9),
    )
)
_WATTS = (
    _Unit("w", 1.0, 0.0, 20_000.0, bare=True),
    _Unit("watts", 1.0, 0.0, 20_000.0),
    _Unit("kw", 1e3, 0.0, 20.0),
)
_JOULES = (_Unit("j", 1.0, 0.0, 2.0**53), _Unit("kwh", 3.6e6, 0.0, 2.0**30))
_DEGREES = tuple(
    _Unit(ending, 1.0, -50.0, 200.0, bare=ending == "c") for ending in ("c", "degc", "celsius")
)
_CLOCK = (_Unit("mhz", 1.0, 0.0, 20_000.0, bare=True), _Unit("ghz", 1e3, 0.0, 20.0))
#: Column: its units, and what files call it, without a unit.
_QUANTITIES: Mapping[str, tuple[tuple[_Unit, ...], tuple[str, ...]]] = {
    "util_ratio": (
        _SHARE,
        ("util", "gpu_util", "utilization", "utilisation", "gpu_utilization", "utilization_gpu"),
    ),
    "sm_active_ratio": (_SHARE, ("sm_active", "sm_activity")),
    "tensor_active_ratio": (_SHARE, ("tensor_active", "tensor_activity")),
    "memory_used_bytes": (_BYTES, ("memory_used", "mem_used", "fb_used")),
    "memory_total_bytes": (_BYTES, ("memory_total", "mem_total")),
    "power_w": (_WATTS, ("power", "power_draw", "power_usage", "gpu_power")),
    "power_limit_w": (_WATTS, ("power_limit",)),
    "energy_j": (_JOULES, ("energy",)),
    "temperature_c": (
        _DEGREES,
        ("temperature", "temp", "gpu_temp", "gpu_temperature", "temperature_gpu"),
    ),
    "memory_temperature_c": (_DEGREES, ("memory_temperature", "memory_temp")),
    "sm_clock_mhz": (_CLOCK, ("sm_clock", "clock", "clocks_sm")),
    "memory_clock_mhz": (_CLOCK, ("memory_clock", "mem_clock")),
}
_OTHERS = tuple(
    column
    for column in _TABLE.columns
    if column.name not in {*_TABLE.key, *_QUANTITIES, "source", "source_row", "ingested_at_us"}
    and column.name != "mig_enabled"
)
_OTHER_NAMES = {
    "gpu_index": ("index",),
    "gpu_model": ("model", "gpu_name"),
    "throttle_reasons": ("clocks_event_reasons", "clocks_throttle_reasons"),
}


def _measured() -> Iterable[tuple[Target, float]]:
    for column, (units, stems) in _QUANTITIES.items():
        doc = _TABLE.column(column).doc
        own = column.rpartition("_")[0]
        for unit in units:
            aliases = tuple(f"{stem}_{unit.ending}" for stem in stems if stem != own)
            bare = tuple(dict.fromkeys((own, *stems))) if unit.bare else ()
            name = f"{own}_{unit.ending}"
            yield (
                Target(
                    name,
                    name,
                    Kind.REAL,
                    f"{doc}, in {unit.ending}",
                    (*aliases, *bare),
                    floor=unit.low,
                    ceiling=unit.high,
                ),
                unit.scale,
            )


def _counted() -> Iterable[Target]:
    for column in _OTHERS:
        names = _OTHER_NAMES.get(column.name, ())
        if column.unit == "bits":
            yield Target(column.name, column.name, Kind.MASK, column.doc, names, floor=0)
        elif column.type in (INT, INT32):
            most = INT32_MAX if column.type == INT32 else None
            yield Target(
                column.name, column.name, Kind.WHOLE, column.doc, names, floor=0, ceiling=most
            )
        else:
            yield Target(column.name, column.name, Kind.TEXT, column.doc, names)


#: Targets of quantities, and what one of each is in the unit of its column.
_SCALES = {target.name: (target, scale) for target, scale in _measured()}
_FACTS = tuple(_counted())
TARGETS = (HOST, DEVICE, MOMENT, *(target for target, _ in _SCALES.values()), *_FACTS)
_COLUMN_OF = {
    f"{column.rpartition('_')[0]}_{unit.ending}": column
    for column, (units, _) in _QUANTITIES.items()
    for unit in units
}


class DeviceSamplesConnector(TabularConnector):
    """Rows of ``device_samples``, each from one row of a table."""

    kind = "device-samples"
    version = 2
    title = "tables of samples of devices from any monitor: CSV, JSON Lines, Parquet"
    table = "device_samples"
    targets = TARGETS
    doc = (
        "One row per device and moment, in CSV, TSV, JSON Lines (these also packed by gzip) or "
        "Parquet, as monitoring systems and published traces export them. Times are ISO 8601 (UTC "
        "where they name no zone) or numbers in the unit of the column's name, else of "
        "--time-unit.\n"
        "A quantity is read by the unit at the end of its column's name (gpu_util_pct, "
        "power_w, memory_used_mib); a share or a size without a unit could be anything and is not "
        "read: name the unit by the target, --map util_pct=value. Power alone is in W, a "
        "temperature in degrees Celsius, a clock in MHz. Cells without a value are unknown and not "
        "0; what no device can be is refused. Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 4; InputError when the table has no moment or nothing that was measured."""
        _, plan, _ = self.first_rows(source, options)
        return Capabilities(
            (self.table,),
            4,
            "activity, power, heat, clocks and errors of each device, as far as its columns go",
            "which job used a device, unless ranks name its UUID; what lies between two samples",
            is_guess=not plan.terms.keys() & {HOST.name, DEVICE.name, "gpu_index"},
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when something needed is not there."""
        plan = make_plan(TARGETS, header, options, where)
        require(TARGETS, plan, header, where)
        if not plan.terms.keys() & {*_SCALES, *(target.name for target in _FACTS)}:
            raise InputError(
                f"no column for anything that a device says of itself; the file has "
                f"{', '.join(header.columns)}",
                where=where,
                hint="say which one it is, and its unit by the target: --map util_pct=COLUMN",
            )
        notes = unused_note(plan)
        if HOST.name not in plan.terms and not options.extra.get("host"):
            notes += ("the node is called as the file is: pass --host or --map host=COLUMN",)
        if DEVICE.name not in plan.terms and "gpu_index" not in plan.terms:
            notes += ("no column tells devices apart: each node counts as one device",)
        return replace(plan, notes=notes)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {}
        for target in (HOST, DEVICE, MOMENT, *_FACTS):
            values[target.column] = screen.values(target)
        for name, (target, scale) in _SCALES.items():
            found = screen.values(target)
            if found is not None and values.get(_COLUMN_OF[name]) is None:
                values[_COLUMN_OF[name]] = _scaled(found, scale, _COLUMN_OF[name])
        if values["gpu_model"] is None:
            values["gpu_model"] = options.gpu_model
        if values["host"] is None:
            values["host"] = options.extra.get("host") or source_stem(raw.source)
        else:
            column = plan.terms[HOST.name][0].column
            screen.refuse(values["host"].null, HOST, column, "a node")
        if values["gpu_uuid"] is None:
            values["gpu_uuid"] = _by_index(values["gpu_index"], screen, plan)
        else:
            column = plan.terms[DEVICE.name][0].column
            screen.refuse(values["gpu_uuid"].null, DEVICE, column, "a device")
        good = screen.keep(values)
        return [Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes))]


def _scaled(cells: Cells, scale: float, column: str) -> Cells:
    """Values in the unit of ``column``."""
    values = np.where(cells.null, 0.0, cells.values) * scale
    if _TABLE.column(column).type == INT:
        values = np.rint(values).astype(np.int64)
    return Cells(values, cells.null, cells.bad)


def _by_index(index: Cells | None, screen: Screen, plan: Plan) -> Cells | str:
    """What a device is called that has no UUID: by its index, else as the only one of its node."""
    if index is None:
        return "place 0"
    target = next(target for target in _FACTS if target.name == "gpu_index")
    screen.refuse(index.null, target, plan.terms["gpu_index"][0].column, "a device")
    names = pa.array([f"index {place}" for place in index.values.tolist()], pa.string())
    return Cells(names, index.null, index.bad)
