"""Page queries of one big job, from roll-ups and from raw rows, beside other engines.

    python -m steptax.benchmarks.product.scale                       # 16,384 ranks x 10,000 steps
    python -m steptax.benchmarks.product.scale --ranks 4096 --steps 5000 --peers polars pandas

A seeded job is written into a lake (kept with ``--lake``) with its roll-ups. Then each question is
asked twice in a process of its own: *cold*, with the files in no cache where the system's can be
emptied (root, Linux), and *warm*. Peers read the same Parquet files and are asked the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from steptax.app.lake import Lake, rollups
from steptax.app.queries import DuckEngine
from steptax.app.schema.rollups import WINDOW_STEPS
from steptax.benchmarks.product.scale_data import JOB, SEGMENT_STEPS, segments, slow_rank

_CACHES = Path("/proc/sys/vm/drop_caches")
HEAT = 128

#: What pages ask: a named query and what it is given.
PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "extent of the job": ("history_span", {}),
    "every step": ("history_steps", {}),
    "ranks by blocks of steps": (
        "history_windows",
        {"step_block": WINDOW_STEPS, "window_steps": WINDOW_STEPS},
    ),
    "128 steps, all ranks": ("step_rows", {"first_step": 640, "last_step": 767}),
    "one step, all ranks": ("step_rows", {"first_step": 700, "last_step": 700}),
}

#: Whole scans of raw rows, in SQL; ``work`` is what a rank does before it is ready.
SCANS = {
    "per step max, mean, median": (
        "SELECT step, max(duration_us - comm_us), avg(duration_us - comm_us), "
        "median(duration_us - comm_us) FROM reports GROUP BY step ORDER BY step"
    ),
    "rank persistence": (
        "WITH usual AS (SELECT step, avg(duration_us - comm_us) AS mean "
        "FROM reports GROUP BY step) "
        "SELECT rank, avg(duration_us - comm_us - mean), "
        "count(*) FILTER (WHERE duration_us - comm_us > 1.04 * mean) "
        "FROM reports JOIN usual USING (step) GROUP BY rank ORDER BY rank"
    ),
    "heat map": (
        "SELECT rank // {rank_block} AS r, step // {step_block} AS s, "
        "max(duration_us - comm_us), avg(duration_us - comm_us) "
        "FROM reports GROUP BY r, s ORDER BY r, s"
    ),
    "one rank": (
        "SELECT step, duration_us, comm_us FROM reports WHERE rank = {slow_rank} ORDER BY step"
    ),
}
LIMITS_S = {"page": (0.5, 0.2), "scan": (8.0, 8.0)}


def files_of(lake: Lake) -> list[str]:
    """Segments of the job."""
    return [str(segment.path) for segment in lake.segments("steps", JOB)]


def numbers(lake: Lake) -> dict[str, int]:
    """What the scans are about."""
    span = DuckEngine(lake).run("history_span", job_id=JOB).to_pylist()[0]
    return {
        "rank_block": max(1, span["ranks"] // HEAT),
        "step_block": max(1, span["steps"] // HEAT),
        "slow_rank": slow_rank(span["ranks"]),
    }


def in_steptax(lake: Lake) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Pages' queries, and the scans in DuckDB as Steptax runs it."""
    import duckdb

    engine = DuckEngine(lake)
    for title, (name, given) in PAGES.items():
        yield f"page: {title}", partial(engine.run, name, job_id=JOB, **given)
    connection = duckdb.connect()
    connection.read_parquet(files_of(lake)).create_view("reports")
    for title, sql in SCANS.items():
        text = sql.format(**numbers(lake))
        yield f"scan: {title}", partial(_arrow, connection, text)


def _arrow(connection: Any, sql: str) -> Any:
    return connection.sql(sql).to_arrow_table()


def in_polars(lake: Lake) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The scans in polars, streaming."""
    import polars as pl

    told = numbers(lake)
    work = (pl.col("duration_us") - pl.col("comm_us")).alias("work")
    rows = pl.scan_parquet(files_of(lake)).select("step", "rank", "duration_us", "comm_us", work)
    usual = rows.group_by("step").agg(pl.col("work").mean().alias("mean"))
    beyond = pl.col("work") - pl.col("mean")
    plans = (
        rows.group_by("step")
        .agg(
            pl.col("work").max().alias("max"),
            pl.col("work").mean().alias("mean"),
            pl.col("work").median().alias("median"),
        )
        .sort("step"),
        rows.join(usual, on="step")
        .group_by("rank")
        .agg(beyond.mean().alias("excess"), (pl.col("work") > 1.04 * pl.col("mean")).sum())
        .sort("rank"),
        rows.group_by(
            (pl.col("rank") // told["rank_block"]).alias("r"),
            (pl.col("step") // told["step_block"]).alias("s"),
        )
        .agg(pl.col("work").max().alias("max"), pl.col("work").mean().alias("mean"))
        .sort("r", "s"),
        rows.filter(pl.col("rank") == told["slow_rank"])
        .select("step", "duration_us", "comm_us")
        .sort("step"),
    )
    for title, plan in zip(SCANS, plans, strict=True):
        yield f"scan: {title}", partial(plan.collect, engine="streaming")


def in_pandas(lake: Lake) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The scans in pandas, whose rows lie in memory once they have been read."""
    import pandas as pd

    told = numbers(lake)
    kept: list[pd.DataFrame] = []

    def rows() -> pd.DataFrame:
        if not kept:
            columns = ["step", "rank", "duration_us", "comm_us"]
            parts = [pd.read_parquet(f, columns=columns) for f in files_of(lake)]
            kept.append(pd.concat(parts, ignore_index=True))
            kept[0]["work"] = kept[0]["duration_us"] - kept[0]["comm_us"]
        return kept[0]

    def persistence() -> pd.DataFrame:
        own = rows()
        mean = own.groupby("step")["work"].transform("mean")
        told = pd.DataFrame(
            {"rank": own["rank"], "x": own["work"] - mean, "slow": own["work"] > 1.04 * mean}
        )
        return told.groupby("rank").agg({"x": "mean", "slow": "sum"})

    calls: tuple[Callable[[], Any], ...] = (
        lambda: rows().groupby("step")["work"].agg(["max", "mean", "median"]),
        persistence,
        lambda: (
            rows()
            .groupby([rows()["rank"] // told["rank_block"], rows()["step"] // told["step_block"]])[
                "work"
            ]
            .agg(["max", "mean"])
        ),
        lambda: rows().loc[rows()["rank"] == told["slow_rank"]].sort_values("step"),
    )
    yield from zip((f"scan: {title}" for title in SCANS), calls, strict=True)


ENGINES = {"steptax": in_steptax, "polars": in_polars, "pandas": in_pandas}


def worker(lake: Path, engine: str, title: str) -> None:
    """One question, cold and warm, and the peak memory of the process."""
    call = dict(ENGINES[engine](Lake(lake)))[title]
    took_s = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        took_s.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cold_s": took_s[0], "warm_s": min(took_s[1:]), "peak_mib": peak}))


def measure(lake: Path, engine: str, title: str) -> dict[str, float]:
    """The same in a process of its own, on files in no cache where that can be had."""
    if os.access(_CACHES, os.W_OK):
        os.sync()
        _CACHES.write_text("1")
    command = [sys.executable, "-m", __spec__.name, "--lake", str(lake), "--one", engine, title]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def fill(root: Path, ranks: int, steps: int) -> None:
    """Write the job and its roll-ups, and say how fast each was."""
    lake = Lake(root, create=True)
    begin = time.perf_counter()
    kept = rollups.ROLLED_ROWS
    rollups.ROLLED_ROWS = ranks * SEGMENT_STEPS + 1  # made below, by themselves
    rows = 0
    for part in segments(ranks, steps):
        lake.append("steps", part, source="benchmark")
        rows += part.num_rows
    stored_s = time.perf_counter() - begin
    rollups.ROLLED_ROWS = kept
    begin = time.perf_counter()
    rollups.roll_up(root, "steps", [s.path for s in lake.segments("steps", JOB)])
    rolled_s = time.perf_counter() - begin
    size = sum(Path(f).stat().st_size for f in files_of(lake))
    small = sum(f.stat().st_size for f in (root / "rollups").rglob("*.parquet"))
    print(f"{rows:,} rows made and stored in {stored_s:.1f} s, {size / rows:.2f} bytes each")
    speed = rows / rolled_s / 1e6
    print(f"roll-ups in {rolled_s:.1f} s: {speed:.1f} M rows/s, {small / 2**20:.1f} MiB")


def main() -> int:
    """Fill, ask, print; 1 where a page or a scan is slower than its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--lake", type=Path, help="kept; filled where it is not there")
    parser.add_argument("--peers", nargs="*", default=[], choices=["polars", "pandas"])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        worker(asked.lake, *asked.one)
        return 0
    place = nullcontext(asked.lake) if asked.lake else tempfile.TemporaryDirectory()
    missed = 0
    with place as folder:
        root = Path(folder)
        if not (root / "LAKE.json").exists():
            fill(root, asked.ranks, asked.steps)
        for engine in ("steptax", *asked.peers):
            for title, _ in ENGINES[engine](Lake(root)):
                found = measure(root, engine, title)
                cold_s, warm_s = LIMITS_S[title.partition(":")[0]]
                late = engine == "steptax" and (
                    found["cold_s"] > cold_s or found["warm_s"] > warm_s
                )
                missed += late
                print(
                    f"{engine:8} {title:32} cold {found['cold_s']:6.2f} s  "
                    f"warm {found['warm_s']:6.2f} s  peak {found['peak_mib']:7.0f} MiB"
                    f"{'  over its limit' if late else ''}",
                    flush=True,
                )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
