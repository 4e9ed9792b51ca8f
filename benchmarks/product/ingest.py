"""How many rows a second each connector reads, and the lake stores.

    python -m steptax.benchmarks.product.ingest [--mib 4] [--rows 500000] [--kinds steps kineto]

*Read*: an example of each kind, its lines repeated until it has ``--mib`` (of a trace the events of
a made-up job; of what cannot be lengthened so, the example itself again and again), is read into
rows, rejects and all; nothing is stored. *Store*: tables of ``--rows`` different rows go through
``ingest`` into a new lake, so looking for repeats, encoding and roll-ups are in it. Each kind has a
process of its own; rates are by processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from steptax.app.errors import SteptaxError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.benchmarks.product import flags
from steptax.benchmarks.product.kineto import large
from steptax.benchmarks.product.process import of_its_own, peak_mib
from steptax.benchmarks.product.scale_data import EPOCH_US, JOB, SEGMENT_STEPS, segments
from steptax.connectors.base import Options
from steptax.connectors.registry import CONNECTORS, connector

EXAMPLES = Path(__file__).resolve().parents[2] / "tests" / "connectors" / "examples"
#: Formats whose first line names the columns, and those of which any line stands alone.
HEADED, LINED = frozenset({".csv", ".psv"}), frozenset({".log", ".jsonl", ".prom", ".txt"})
#: What cannot be lengthened is read for so long.
ENOUGH_S = 0.3
STORED = ("steps", "device-samples")


@dataclass(frozen=True)
class Read:
    """One kind. ``rows`` are accepted ones; ``whole`` is whether one long input was read."""

    kind: str
    mib: float
    rows: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    whole: bool


def grown(example: Path, mib: float, folder: Path) -> Path:
    """``example`` with its lines repeated up to ``mib``; itself where it is no list of lines."""
    head, body = b"", example.read_bytes()
    if example.suffix in HEADED:
        head, _, body = body.partition(b"\n")
        head += b"\n"
    elif example.suffix not in LINED:
        return example
    body = body if body.endswith(b"\n") else body + b"\n"
    target = folder / example.name
    target.write_bytes(head + body * max(1, int(mib * 2**20 / len(body))))
    return target


def read(kind: str, mib: float) -> Read:
    """Read an example of ``kind`` that was made as long as it can be."""
    reader = connector(kind)
    example = min(EXAMPLES.glob(f"{kind}.*"))
    with tempfile.TemporaryDirectory() as name:
        source = large(mib, Path(name)) if kind == "kineto" else grown(example, mib, Path(name))

        def once(path: Path) -> int:
            return sum(batch.rows.num_rows for batch in reader.read(path, Options()))

        few = once(example)
        begin, used = time.perf_counter(), time.process_time()
        try:
            rows = once(source)
        except SteptaxError:  # said twice, it is no document of its kind
            rows = few
        copies = source.stat().st_size / example.stat().st_size
        # Lines that repeat a step or a job give no rows.
        is_long = source != example and rows > few * copies / 4
        if is_long:
            size = source.stat().st_size
        else:
            size = rows = 0
            begin, used = time.perf_counter(), time.process_time()
            while time.process_time() - used < ENOUGH_S:
                rows += once(example)
                size += example.stat().st_size
        wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - used
        return Read(kind, size / 2**20, rows, wall_s, cpu_s, peak_mib(), is_long)


def store(kind: str, count: int) -> Read:
    """Ingest ``count`` different rows of ``kind`` into a new lake."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"{kind}.csv"
        pc.write_csv(_steps(count) if kind == "steps" else _samples(count), path)
        lake = Lake(Path(name) / "lake", create=True)
        begin, used = time.perf_counter(), time.process_time()
        done = ingest_file(lake, kind, path, Options())
        wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - used
        rows = sum(done.accepted.values())
        return Read(kind, path.stat().st_size / 2**20, rows, wall_s, cpu_s, peak_mib(), True)


def _steps(count: int) -> pa.Table:
    ranks = max(8, count // SEGMENT_STEPS)
    rows = next(segments(ranks, SEGMENT_STEPS)).slice(0, count)
    columns = {n: rows[n] for n in ("step", "rank", "duration_us", "compute_us", "comm_us")}
    return pa.table({"job_id": pa.repeat(JOB, rows.num_rows), **columns})


def _samples(count: int) -> pa.Table:
    number = np.arange(count)
    dice = np.random.default_rng(0)
    return pa.table(
        {
            "host": pa.array([f"node-{k}" for k in range(16)]).take(pa.array(number // 8 % 16)),
            "gpu_uuid": pa.array([f"GPU-{k:04d}" for k in range(128)]).take(pa.array(number % 128)),
            "ts_us": EPOCH_US + number // 128 * 1_000_000,
            "power_w": dice.integers(100, 700, count),
            "temperature_c": dice.integers(30, 90, count),
            "util_ratio": dice.integers(0, 101, count) / 100,
        }
    )


def _line(what: str, told: Read) -> str:
    note = "" if told.whole else "  (the example again and again)"
    return (
        f"{what:7}{told.kind:18}{told.mib:8.1f} MiB{told.rows:10,} rows  "
        f"wall {told.wall_s:6.2f} s  cpu {told.cpu_s:6.2f} s{told.rows / told.cpu_s:12,.0f} rows/s"
        f"{told.mib / told.cpu_s:8.1f} MiB/s  peak {told.peak_mib:5.0f} MiB{note}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Print one line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--mib", type=flags.amount, default=4.0, help="of each input that is read")
    parser.add_argument(
        "--rows", type=flags.count, default=500_000, help="of each table that is stored"
    )
    parser.add_argument("--kinds", nargs="+", default=sorted(CONNECTORS), metavar="KIND")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.kinds) - set(CONNECTORS)):
        parser.error(f"no connector is called {unknown[0]}: steptax connectors lists them")
    if asked.one:
        what, kind = asked.one
        told = read(kind, asked.mib) if what == "read" else store(kind, asked.rows)
        print(json.dumps(vars(told)))
        return 0
    if not EXAMPLES.is_dir():
        parser.error("the examples are part of the source tree: run this from a checkout")
    wanted = [("read", kind) for kind in asked.kinds]
    wanted += [("store", kind) for kind in STORED if kind in asked.kinds]
    for what, kind in wanted:
        own = ("--mib", str(asked.mib), "--rows", str(asked.rows), "--one", what, kind)
        print(
            _line(what, Read(**of_its_own("steptax.benchmarks.product.ingest", *own))), flush=True
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
