"""Page queries of one big job, from roll-ups and from raw rows, beside other engines.

    python -m steptax.benchmarks.product.scale                       # 16,384 ranks x 10,000 steps
    python -m steptax.benchmarks.product.scale --ranks 4096 --steps 5000 --peers polars pandas

A seeded job is written into a lake (kept with ``--lake``) with its roll-ups, beside a few small
ones: pages about all jobs must not read through the big one. Then each question is asked in a
process of its own: *cold*, with the files in no cache where the system's can be emptied (root,
Linux), and *warm*. A *page* rests on roll-ups, a *window* reads raw rows of some steps, a *scan*
all of them. Peers read the same Parquet files and are asked the same. Processor seconds are those
of the fastest warm answer: what else runs on the machine disturbs them less. Last, a real server
answers whole pages, drawn to the end, twice, and tells the most memory that it held.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from steptax.app.lake import Lake, Segment, rollups
from steptax.app.queries import DuckEngine
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import SPAN_STEPS, WINDOW_STEPS
from steptax.app.views.fleet.load import load_jobs
from steptax.app.views.job.extent import FEW_JOBS, step_summaries
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.benchmarks.product import flags
from steptax.benchmarks.product.process import forget_files, of_its_own, peak_mib
from steptax.benchmarks.product.scale_data import JOB, SEGMENT_STEPS, segments, slow_rank

HEAT = 128
#: Rows that are put in order at once for exact medians: all of them take two GiB.
TOGETHER_ROWS = 16_000_000

#: What pages ask: a named query and what it is given.
PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "page: extent of the job": ("history_span", {}),
    "page: every step": ("history_steps", {}),
    "page: ranks by blocks of steps": (
        "history_windows",
        {"step_block": WINDOW_STEPS, "window_steps": WINDOW_STEPS},
    ),
    "page: ranks by spans of steps": (
        "history_windows",
        {"step_block": SPAN_STEPS[0], "window_steps": SPAN_STEPS[0]},
    ),
    "page: work by bins, each 8 steps": ("history_bins", {"step_block": 8, "window_steps": 1}),
    "page: 95 % of work, each step": (
        "history_quantiles",
        {"step_block": 1, "window_steps": 1, "quantile_ratio": 0.95},
    ),
    "window: 128 steps, all ranks": ("step_cells", {"first_step": 640, "last_step": 767}),
    "window: one step, all ranks": ("step_cells", {"first_step": 700, "last_step": 700}),
}

MEDIAN = "per step max, mean, median"
#: The same by groups of segments that have no step in common: who has put them apart may ask so.
MEDIAN_APART = f"{MEDIAN}, in parts"
#: Whole scans of raw rows, in SQL; ``work`` is what a rank does before it is ready.
SCANS = {
    MEDIAN: (
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
#: Cold and warm.
LIMITS_S = {"page": (0.5, 0.2), "window": (0.5, 0.5), "scan": (8.0, 8.0)}


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
        yield title, partial(engine.run, name, job_id=JOB, **given)
    ws = open_workspace(lake.root)
    yield "page: steps of all jobs", partial(step_summaries, ws, ws.job_ids())
    yield "page: rows of all small jobs", partial(_small, ws)
    segments = lake.segments("steps", JOB)
    for title, sql in SCANS.items():
        text = sql.format(**numbers(lake))
        yield f"scan: {title}", partial(_scanned, duckdb.connect(), text, [segments])
    parts = apart(segments, TOGETHER_ROWS)
    yield f"scan: {MEDIAN_APART}", partial(_scanned, duckdb.connect(), SCANS[MEDIAN], parts)


def _small(ws: Workspace) -> int:
    return sum(1 for _ in load_jobs(ws, [row for row in ws.jobs() if row["job_id"] != JOB]))


def apart(segments: Sequence[Segment], rows: int) -> list[list[Segment]]:
    """Groups of at least ``rows`` rows, if there are, no two of which have a step in common."""
    groups: list[list[Segment]] = []
    end = -1
    for one in sorted(segments, key=lambda segment: segment.first):
        if groups and (one.first <= end or sum(s.rows for s in groups[-1]) < rows):
            groups[-1].append(one)
        else:
            groups.append([one])
        end = max(end, one.last)
    return groups


def _scanned(connection: Any, sql: str, parts: Sequence[Sequence[Segment]]) -> pa.Table:
    found = []
    for part in parts:
        files = [str(segment.path) for segment in part]
        connection.read_parquet(files).create_view("reports", replace=True)
        found.append(connection.sql(sql).to_arrow_table())
    return pa.concat_tables(found)


def in_polars(lake: Lake) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The scans in polars, streaming."""
    import polars as pl

    told = numbers(lake)
    work = (pl.col("duration_us") - pl.col("comm_us")).alias("work")
    rows = pl.scan_parquet(files_of(lake)).select("step", "rank", "duration_us", "comm_us", work)
    usual = rows.group_by("step").agg(pl.col("work").mean().alias("mean"))
    beyond = pl.col("work") - pl.col("mean")

    def medians(own: pl.LazyFrame) -> pl.LazyFrame:
        per_step = own.group_by("step").agg(
            pl.col("work").max().alias("max"),
            pl.col("work").mean().alias("mean"),
            pl.col("work").median().alias("median"),
        )
        return per_step.sort("step")

    def in_parts() -> pl.DataFrame:
        found = []
        for part in apart(lake.segments("steps", JOB), TOGETHER_ROWS):
            own = pl.scan_parquet([str(one.path) for one in part])
            own = own.select("step", work)
            found.append(medians(own).collect(engine="streaming"))
        return pl.concat(found)

    plans = (
        medians(rows),
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
    yield f"scan: {MEDIAN_APART}", in_parts


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
    """One question, cold and warm, and the peak memory of the process, with and without its start.

    The libraries of all engines are loaded before the question is asked, whoever answers it.
    """
    call = dict(ENGINES[engine](Lake(lake)))[title]
    start_mib = peak_mib()
    took_s, cpu_s = [], []
    for _ in range(3):
        begin, used = time.perf_counter(), time.process_time()
        call()
        took_s.append(time.perf_counter() - begin)
        cpu_s.append(time.process_time() - used)
    told = {"cold_s": took_s[0], "warm_s": min(took_s[1:]), "cpu_s": min(cpu_s[1:])}
    peak = peak_mib()
    print(json.dumps(told | {"peak_mib": peak, "asked_mib": peak - start_mib}))


def measure(lake: Path, engine: str, title: str) -> dict[str, float]:
    """The same in a process of its own, on files in no cache where that can be had."""
    forget_files()
    return of_its_own(__spec__.name, "--lake", str(lake), "--one", engine, title)


def _beside(own: dict[str, float], peer: dict[str, float]) -> str:
    """How much of a peer's time and memory is ours."""
    if own is peer:
        return ""
    parts = (
        ("warm", "warm_s"),
        ("cpu", "cpu_s"),
        ("memory", "peak_mib"),
        ("of it for the question", "asked_mib"),
    )
    ratios = (f"{what} {own[name] / peer[name]:.2f}" for what, name in parts if peer[name])
    return f"  ours / theirs: {', '.join(ratios)}"


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
    for k in range(FEW_JOBS):
        for part in segments(8, 16):
            named = pa.array([f"small-{k}"] * part.num_rows)
            lake.append("steps", part.set_column(0, "job_id", named), source="benchmark")
    rollups.ROLLED_ROWS = kept
    segments_of_job = [s.path for s in lake.segments("steps", JOB)]
    with _timed_by_rollup() as took_s:
        begin = time.perf_counter()
        rollups.roll_up(root, "steps", segments_of_job)
        rolled_s = time.perf_counter() - begin
    took_s["writing and finding files"] = rolled_s - sum(took_s.values())
    name, given = PAGES["page: ranks by spans of steps"]
    DuckEngine(lake).run(name, job_id=JOB, **given)  # whoever asks first adds them up
    size = sum(Path(f).stat().st_size for f in files_of(lake))
    small = sum(f.stat().st_size for f in (root / "rollups").rglob("*.parquet"))
    print(f"{rows:,} rows made and stored in {stored_s:.1f} s, {size / rows:.2f} bytes each")
    speed = rows / rolled_s / 1e6
    print(f"roll-ups in {rolled_s:.1f} s: {speed:.1f} M rows/s, {small / 2**20:.1f} MiB")
    print("  of it " + ", ".join(f"{name} {part_s:.1f} s" for name, part_s in took_s.items()))


@contextmanager
def _timed_by_rollup() -> Iterator[dict[str, float]]:
    """How long rows are summed up for each roll-up, while it lasts."""
    took_s: dict[str, float] = {}
    made = rollups._of_file

    def timed(connection: Any, rollup: Rollup, *rest: Any) -> dict[str, pa.Table]:
        begin = time.perf_counter()
        found = made(connection, rollup, *rest)
        name = " and ".join(rollup.levels).replace("_", " ")
        took_s[name] = took_s.get(name, 0.0) + time.perf_counter() - begin
        return found

    rollups._of_file = timed  # type: ignore[assignment]
    try:
        yield took_s
    finally:
        rollups._of_file = made


def main() -> int:
    """Fill, ask, print; 1 where a page or a scan is slower than its limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=flags.count, default=16_384)
    parser.add_argument("--steps", type=flags.count, default=10_000)
    parser.add_argument("--lake", type=Path, help="kept; filled where it is not there")
    parser.add_argument("--peers", nargs="*", default=[], choices=["polars", "pandas"])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        worker(asked.lake, *asked.one)
        return 0
    place = nullcontext(asked.lake) if asked.lake else tempfile.TemporaryDirectory()
    missed = 0
    ours: dict[str, dict[str, float]] = {}
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
                own = ours.setdefault(title, found)
                print(
                    f"{engine:8} {title:32} cold {found['cold_s']:6.2f} s  "
                    f"warm {found['warm_s']:6.2f} s  cpu {found['cpu_s']:6.2f} s  "
                    f"peak {found['peak_mib']:7.0f} MiB, {found['asked_mib']:6.0f} for the question"
                    f"{'  over its limit' if late else ''}{_beside(own, found)}",
                    flush=True,
                )
                if engine != "steptax" and title == f"scan: {MEDIAN}":
                    apart_ours = ours[f"scan: {MEDIAN_APART}"]
                    print(f"{'':8} {'ours in parts, theirs whole':32}{_beside(apart_ours, found)}")
        missed += _dashboard(root)
    return 1 if missed else 0


def _dashboard(root: Path) -> bool:
    """Print what a page server of this lake takes; whether that is too much."""
    # Not above: what it needs would be in the memory of each question.
    from steptax.benchmarks.product.scale_pages import MOST_MIB, dashboard

    told = dashboard(root, JOB)
    for page, first_s in told.first_s.items():
        print(f"server   page {page:27} first {first_s:5.2f} s  again {told.again_s[page]:5.2f} s")
    is_bad = told.peak_mib > MOST_MIB or bool(told.errors)
    print(f"server   peak {told.peak_mib:,.0f} MiB{'  over its limit' if is_bad else ''}")
    for error in told.errors:
        print(f"  {error}")
    return is_bad


if __name__ == "__main__":
    raise SystemExit(main())
