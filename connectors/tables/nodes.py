"""``nodes``: inventories of clusters, what each node holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.columns import (
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

CLUSTER = Target(
    "cluster", "cluster", Kind.TEXT, "cluster or pool; else the file's name", ("pool", "partition")
)
HOST = Target(
    "host",
    "host",
    Kind.TEXT,
    "node",
    ("hostname", "node", "node_name", "nodename", "name", "sn", "machine"),
    required=True,
)
MODEL = Target(
    "gpu_model", "gpu_model", Kind.TEXT, "device of the node", ("model", "gpu_type", "gpu_name")
)
GPUS = Target(
    "gpus",
    "gpus",
    Kind.WHOLE,
    "devices of the node; 0 = none",
    ("gpu", "num_gpus", "gpu_count", "gpu_num", "n_gpus", "ngpus", "gpu_capacity_num"),
    required=True,
    floor=0,
    ceiling=4096,
)
#: Name, aliases and what one of it is in CPUs.
_CPUS = (
    ("cpus", ("cpu", "cpu_num", "num_cpus", "cpu_count", "cores"), 1.0),
    ("cpu_milli", ("cpu_millicores",), 1e-3),
)
_MEMORY = (
    ("memory_bytes", ("mem_bytes",), 1.0),
    ("memory_mib", ("mem_mib",), 2.0**20),
    ("memory_gib", ("mem_gib",), 2.0**30),
    ("memory_gb", ("mem_gb",), 1e9),
)


def _targets(names: tuple[tuple[str, tuple[str, ...], float], ...], doc: str) -> tuple[Target, ...]:
    return tuple(
        Target(name, name, Kind.REAL, doc, aliases, floor=0, ceiling=2.0**50)
        for name, aliases, _ in names
    )


TARGETS = (
    CLUSTER,
    HOST,
    MODEL,
    GPUS,
    *_targets(_CPUS, "processors of the node; milli = thousandths"),
    *_targets(_MEMORY, "memory of the node"),
    Target("listed", "listed_us", Kind.MOMENT, "when it was listed", ("observed", "updated")),
)
_BY_NAME = {target.name: target for target in TARGETS}


class NodesConnector(TabularConnector):
    """Rows of ``nodes``, each from one row of a table."""

    kind = "nodes"
    version = 1
    title = "inventories of clusters: nodes, their devices, processors and memory; CSV, Parquet"
    table = "nodes"
    targets = TARGETS
    doc = (
        "One row per node, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet: how "
        "many devices it has and which. It says what there is, also where no job ever ran and no "
        "monitor looks; a node that is listed again is known by its cluster and name, and the "
        "newest row holds. A node without devices has 0 of them; a row without a count is "
        "rejected. The unit of memory is in the column's name. Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the table has no node or no count of devices."""
        self.first_rows(source, options)
        return Capabilities(
            (self.table,),
            0,
            "which devices there are, node by node",
            "whether they were up, who held them, and what they did",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when something needed is not there."""
        if options.job_id is not None:
            raise InputError("an inventory is of no job", where="--job", hint="leave --job out")
        plan = make_plan(TARGETS, header, options, where)
        require(TARGETS, plan, header, where)
        notes = unused_note(plan)
        if CLUSTER.name not in plan.terms:
            notes += (f"the cluster is called as the file is, {source_stem(where)}",)
        return replace(plan, notes=notes)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {
            target.column: screen.values(target) for target in (CLUSTER, HOST, MODEL, GPUS)
        }
        values["listed_us"] = screen.values(_BY_NAME["listed"])
        values["cpus"] = _first(screen, _CPUS)
        memory = _first(screen, _MEMORY)
        if memory is not None:
            memory = Cells(np.rint(memory.values).astype(np.int64), memory.null, memory.bad)
        values["memory_bytes"] = memory
        if values["cluster"] is None:
            values["cluster"] = source_stem(raw.source)
        else:
            column = plan.terms[CLUSTER.name][0].column
            screen.refuse(values["cluster"].null, CLUSTER, column, "a cluster")
        if values["gpu_model"] is None:
            values["gpu_model"] = options.gpu_model
        good = screen.keep(values)
        return [Batch(self.table, good, screen.rejects(), (*plan.notes, *rows.notes))]


def _first(screen: Screen, names: tuple[tuple[str, tuple[str, ...], float], ...]) -> Cells | None:
    """The first of several spellings of a quantity that the table has, in the table's unit."""
    for name, _, scale in names:
        found = screen.values(_BY_NAME[name])
        if found is not None:
            values = np.where(found.null, 0.0, found.values) * scale
            return Cells(values, found.null, found.bad)
    return None
