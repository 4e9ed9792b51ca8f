"""A lake with rows of every table, in segments of every kind: what engines are compared on.

Values repeat, so that joins meet and groups have members; what may be null often is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.app.lake.ingest import ingest
from steptax.app.lake.lake import stamp
from steptax.app.lake.rollups import ROLLED_ROWS
from steptax.app.lake.segments import job_folder
from steptax.app.schema import TABLES, Batch, Table, table
from steptax.app.schema.rollups import DAY_US

BEGIN_US = 1_746_000_000_000_000 // DAY_US * DAY_US
JOBS = ("a", "b", "c/ü d")
_HOSTS = ("h1", "h2", "h3")
#: Columns whose values the texts of queries name, or that must be plausible.
_VALUES: dict[str, Callable[[random.Random], Any]] = {
    "job_id": lambda r: r.choice(JOBS),
    "run_id": lambda r: r.choice(("a", "a#1", "a,b", "ab", "z")),
    "host": lambda r: r.choice(_HOSTS),
    "gpu_uuid": lambda r: f"GPU-{r.randrange(4)}",
    "hosts": lambda r: r.choice(("h1,h2", "h3", "h1, h4", "")),
    "ts_us": lambda r: BEGIN_US + r.randrange(2 * DAY_US // 1_000_000) * 1_000_000,
    "start_us": lambda r: BEGIN_US + r.randrange(1000),
    "step": lambda r: r.randrange(12),
    "rank": lambda r: r.randrange(6),
    "attempt": lambda r: r.randrange(3),
    "kind": lambda r: r.choice(("failure", "evict", "checkpoint_save", "restart")),
    "name": lambda r: r.choice(("loss", "lr")),
    "subject": lambda r: r.choice(("job", "rank")),
    "op_type": lambda r: r.choice(("forward-compute", "backward-compute", "dp-sync", "kernel")),
    "table": lambda r: r.choice(("charges", "steps")),
    "throttle_reasons": lambda r: r.choice((0, 1, 4, 0x40, 0x41)),
    "util_ratio": lambda r: r.choice((0.0, 0.05, 0.1, 0.25, 1.0, math.nan, r.random())),
    "temperature_c": lambda r: r.choice((40.0, 55.5, 90.0005)),
    "power_w": lambda r: r.uniform(0, 700),
    "xid": lambda r: r.choice((0, 0, 0, 31, 79)),
    "duration_us": lambda r: r.randrange(1, 1000),
    "duration_ns": lambda r: r.randrange(1, 1000),
}


def _value(field: pa.Field, rng: random.Random) -> Any:
    if field.nullable and rng.random() < 0.3:
        return None
    if field.name in _VALUES:
        return _VALUES[field.name](rng)
    if pa.types.is_string(field.type):
        return rng.choice(("x", "y", "Z", "é", "10", "9"))
    if pa.types.is_integer(field.type):
        return rng.randrange(40)
    if pa.types.is_floating(field.type):
        return rng.choice((0.1, 1e-3, 2.5, rng.uniform(-10, 10)))
    if pa.types.is_boolean(field.type):
        return rng.random() < 0.5
    return Decimal(rng.randrange(10_000)) / 100


def rows_of(spec: Table, count: int, rng: random.Random, taken: set[tuple[Any, ...]]) -> pa.Table:
    """About ``count`` rows of a table as a connector gives them, none with a key in ``taken``."""
    fields = [f for f in spec.arrow if f.name not in ("source", "ingested_at_us")]
    keys = {f.name for f in fields if f.name in spec.key}
    taken = set() if spec.latest_wins else taken  # known again, but once in an input
    columns = {}
    for f in fields:
        kind = f.with_nullable(f.nullable and f.name not in keys)
        pool = [_value(kind, rng) for _ in range(count if f.name in keys else min(count, 200))]
        columns[f.name] = pool if len(pool) == count else rng.choices(pool, k=count)
    rows = []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        key = tuple(row.get(name) for name in spec.key)
        if key not in taken:
            taken.add(key)
            rows.append(row)
    return pa.table({f.name: pa.array([row[f.name] for row in rows], f.type) for f in fields})


def generated_lake(root: Path, *, seed: int = 7) -> Lake:
    """Appends, an ingest, JSON Lines, merged and rolled-up segments, of every table."""
    rng = random.Random(seed)
    lake = Lake(root, create=True)
    taken: dict[str, set[tuple[Any, ...]]] = {name: set() for name in TABLES}

    def made(name: str, count: int) -> pa.Table:
        return rows_of(table(name), count, rng, taken[name])

    for turn in range(3):
        for name in TABLES:
            lake.append(name, made(name, 50), source=f"nvml:{turn}")
        if turn == 1:
            compact(lake, minimum=2)
    lake.append("device_samples", made("device_samples", ROLLED_ROWS + 500), source="dcgm:h")
    lake.append("device_samples", _some_days_without_xid(), source="dcgm:h")
    batches = [Batch(name, made(name, 30)) for name in TABLES]
    ingest(lake, batches, ingest_id="0" * 24, source="file")
    _as_lines(lake, made("steps", 40))
    return lake


def _some_days_without_xid() -> pa.Table:
    """One device that told no Xid code on the first day, and one on the next."""
    names = ("host", "gpu_uuid", "ts_us", "xid")
    days = [("h9", "GPU-9", BEGIN_US, None), ("h9", "GPU-9", BEGIN_US + DAY_US, 79)]
    spec = {f.name: f.type for f in table("device_samples").arrow}
    return pa.table({n: pa.array([day[k] for day in days], spec[n]) for k, n in enumerate(names)})


def _as_lines(lake: Lake, rows: pa.Table) -> None:
    """As a recorder without pyarrow writes them."""
    whole = stamp(table("steps"), rows, "recorder", BEGIN_US)
    for job in JOBS:
        own = [row for row in whole.to_pylist() if row["job_id"] == job]
        name = f"live-{BEGIN_US:017d}-0-11-{len(own)}-0123abcd.jsonl"
        path = lake.root / "tables" / "steps" / job_folder(job) / name
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in own))
