"""A week of device samples: ``python -m steptax.benchmarks.product.device_week --days 7``.

``--devices`` devices, eight to a host, say what they do every second for ``--days`` days; a device
in a thousand is away for ten minutes of each day, and single samples are lost. They are ingested in
stretches of about a million rows, each one input with its own commit, as a collector of a fleet
hands them over. Then another process asks for one day: of every device its samples, utilisation,
power, heat and errors. *Cold* is a process that has just started, on files that the system holds in
no cache where it may be emptied (root, Linux), or else on files that it may hold.

Correct is checked too: the samples of every day against the generator, and one day of one host
against a query on its raw rows.
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
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.lake import Lake, rollups, staging
from steptax.app.lake.ingest import ingest
from steptax.app.queries import DuckEngine
from steptax.app.schema import Batch
from steptax.app.schema.rollups import DAY_US
from steptax.benchmarks.product import flags

#: A Monday, 00:00 UTC.
BEGIN_S = 1_745_798_400
PER_HOST = 8
ROWS = 1 << 20
_CACHES = Path("/proc/sys/vm/drop_caches")

Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    ``rows_per_s`` is of the whole, with making the rows up; ``ingest_s``, of which ``rollup_s`` is
    a part, and ``generate_s`` are summed over collectors. A day's answer is cold and warm.
    """

    rows: int
    segments: int
    collectors: int
    wall_s: float
    rows_per_s: float
    ingest_s: float
    rollup_s: float
    generate_s: float
    raw_bytes: int
    rollup_bytes: int
    raw_bytes_per_row: float
    caches_emptied: bool
    day_cold_s: float
    day_warm_s: float
    week_warm_s: float
    ingest_peak_mib: float
    answer_peak_mib: float
    is_correct: bool


class Fleet:
    """What the devices say; the same for the same seed, stretch by stretch."""

    def __init__(self, devices: int, seed: int) -> None:
        self.devices = devices
        self.seed = seed
        self._host = pa.array([f"node-{k // PER_HOST:04d}" for k in range(devices)])
        self._uuid = pa.array([f"GPU-{k:08x}-5eed-4bad-cafe-{seed:012x}" for k in range(devices)])

    def said(self, first_s: int, seconds: int) -> pa.Table:
        """Rows of ``seconds`` seconds from ``first_s`` on, device by device."""
        draw = np.random.default_rng([self.seed, first_s])
        device = np.repeat(np.arange(self.devices, dtype=np.int32), seconds)
        at_s = np.tile(np.arange(first_s, first_s + seconds, dtype=np.int64), self.devices)
        there = self._there(device, at_s, draw)
        device, at_s = device[there], at_s[there]
        count = len(device)
        # A job of six hours, then a quarter of an hour without one; hosts begin apart.
        busy = (at_s - BEGIN_S + device // PER_HOST * 97) % 22_500 < 21_600
        noise = draw.integers(0, 16, count, dtype=np.uint8)
        hot = device % 331 == 7
        # Where a device stands: idle, busy, or busy and hot; each with sixteen values.
        state = (busy * (1 + hot)) * np.uint8(16) + noise
        columns = {
            "host": self._host.take(pa.array(device)),
            "gpu_uuid": self._uuid.take(pa.array(device)),
            "ts_us": pa.array(at_s * 1_000_000),
            "gpu_index": pa.array(device % PER_HOST),
            "gpu_model": pa.repeat(pa.scalar("NVIDIA H100 80GB HBM3"), count),
            **{name: pa.array(values[state]) for name, values in _SAID.items()},
            "ecc_corrected": pa.array((at_s - BEGIN_S) // 86_400 * (device % 97 == 3)),
            "xid": pa.array(np.zeros(count, dtype=np.int64)),
        }
        return pa.table(columns)

    def _there(self, device: Any, at_s: Any, draw: np.random.Generator) -> Bools:
        away = (device % 1000 == 5) & ((at_s - BEGIN_S) % 86_400 // 600 == 33)
        lost = draw.integers(0, 1 << 16, len(at_s), dtype=np.uint16) == 0
        return np.asarray(~(away | lost))


_NOISE = np.arange(16)
#: What is said in each state and for each of sixteen values of a die.
_SAID = {
    "util_ratio": np.concatenate([_NOISE * 0.0, *[(100 - _NOISE // 4) / 100] * 2]),
    "sm_active_ratio": np.concatenate([_NOISE * 0.0, *[0.5 + _NOISE / 64] * 2]),
    "memory_used_bytes": np.repeat(np.array([1 << 30, 75 << 30, 75 << 30]), 16),
    "power_w": np.concatenate([88.0 + _NOISE // 8, *[640.0 + 3 * _NOISE] * 2]),
    "temperature_c": np.concatenate([31.0 + _NOISE * 0, 58.0 + _NOISE // 4, 80.0 + _NOISE // 4]),
    "sm_clock_mhz": np.concatenate(
        [345.0 + _NOISE * 0, 1980.0 + _NOISE * 0, 1980.0 - 15 * (_NOISE > 11)]
    ),
    "throttle_reasons": np.concatenate([_NOISE * 0 + 1, _NOISE * 0, (_NOISE > 11) * 0x20]),
}


@dataclass(frozen=True)
class Day:
    """What one collector did of one day."""

    day: int
    rows: int
    ingest_s: float
    generate_s: float
    rollup_s: float
    peak_mib: float


def collect(lake: Path, devices: int, seed: int, first_s: int, end_s: int) -> Day:
    """Ingest what the devices say from ``first_s`` to ``end_s``, stretch by stretch."""
    fleet, store, at_s = Fleet(devices, seed), Lake(lake), first_s
    rolled = _Stopwatch(rollups.roll_up)
    setattr(staging, "roll_up", rolled)  # noqa: B010 (no name of its interface)
    count, spent_s, generate_s = 0, 0.0, 0.0
    while at_s < end_s:
        until_s = min(end_s, at_s + max(1, ROWS // devices))
        begin = time.perf_counter()
        batch = Batch("device_samples", fleet.said(at_s, until_s - at_s))
        middle = time.perf_counter()
        done = ingest(store, [batch], ingest_id=f"{at_s:024x}", source="device-week")
        spent_s += time.perf_counter() - middle
        generate_s += middle - begin
        count += done.accepted["device_samples"]
        at_s = until_s
    return Day(first_s // 86_400, count, spent_s, generate_s, rolled.spent_s, _peak_mib())


def run(lake: Path, *, devices: int, days: float, seed: int, collectors: int) -> Outcome:
    """Ingest, answer in another process, check."""
    store = Lake(lake, create=True)
    end_s = BEGIN_S + round(days * 86_400)
    spans = [(at, min(end_s, at + 86_400)) for at in range(BEGIN_S, end_s, 86_400)]
    begin = time.perf_counter()
    done = []
    with ProcessPoolExecutor(collectors, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(collect, lake, devices, seed, *span) for span in spans]
        for one in as_completed(asked):
            done.append(one.result())
            told = f"day {len(done)} of {len(spans)}: {done[-1].rows:,} rows"
            print(f"{told}, {time.perf_counter() - begin:,.0f} s", file=sys.stderr, flush=True)
    wall_s = time.perf_counter() - begin
    total = sum(day.rows for day in done)
    emptied = _empty_caches()
    answer = _ask(lake, spans[len(spans) // 2][0] * 1_000_000)
    raw = _size(lake / "tables")
    return Outcome(
        rows=total,
        segments=len(store.segments("device_samples")),
        collectors=collectors,
        wall_s=wall_s,
        rows_per_s=total / wall_s,
        ingest_s=sum(day.ingest_s for day in done),
        rollup_s=sum(day.rollup_s for day in done),
        generate_s=sum(day.generate_s for day in done),
        raw_bytes=raw,
        rollup_bytes=_size(lake / "rollups"),
        raw_bytes_per_row=raw / total,
        caches_emptied=emptied,
        day_cold_s=answer["day_cold_s"],
        day_warm_s=answer["day_warm_s"],
        week_warm_s=answer["week_warm_s"],
        ingest_peak_mib=max(day.peak_mib for day in done),
        answer_peak_mib=answer["peak_mib"],
        is_correct=answer["by_day"] == {str(d.day): d.rows for d in done} and answer["equal"],
    )


class _Stopwatch:
    """Calls ``what`` and adds up how long it took."""

    def __init__(self, what: Any) -> None:
        self._what = what
        self.spent_s = 0.0

    def __call__(self, *given: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._what(*given, **named)
        finally:
            self.spent_s += time.perf_counter() - begin


def _ask(lake: Path, day_us: int) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, "--answer", str(day_us), "--lake", str(lake)]
    found: dict[str, Any] = json.loads(subprocess.check_output(command))
    return found


def answer_of(lake: Path, day_us: int) -> dict[str, Any]:
    """Ask for the day twice, then for all days; check the day of one host against raw rows."""
    begin = time.perf_counter()
    engine = DuckEngine(Lake(lake))
    last_us = day_us + DAY_US - 1
    day = engine.run("device_day_rows", first_us=day_us, last_us=last_us)
    cold = time.perf_counter()
    engine.run("device_day_rows", first_us=day_us, last_us=last_us)
    warm = time.perf_counter()
    week = engine.run("device_day_rows", first_us=None, last_us=None)
    whole = time.perf_counter()
    peak = _peak_mib()
    by_day: dict[str, int] = {}
    for bucket, samples in zip(
        week["bucket_us"].to_pylist(), week["samples"].to_pylist(), strict=True
    ):
        key = str(bucket // DAY_US)
        by_day[key] = by_day.get(key, 0) + samples
    return {
        "day_cold_s": cold - begin,
        "day_warm_s": warm - cold,
        "week_warm_s": whole - warm,
        "peak_mib": peak,
        "by_day": by_day,
        "equal": _equals_raw(engine, day.to_pylist()),
    }


def _equals_raw(engine: DuckEngine, day: list[dict[str, Any]]) -> bool:
    """Whether the first host's day is what its raw rows add up to, by another query."""
    host, begin_us = day[0]["host"], day[0]["bucket_us"]
    paths = [
        str(s.path)
        for s in engine.lake.segments(
            "device_samples", first_step=begin_us, last_step=begin_us + DAY_US - 1
        )
    ]
    with engine._database.cursor() as cursor:
        raw = cursor.execute(
            "SELECT gpu_uuid, count(*), sum(CAST(round(power_w * 1000) AS BIGINT)), "
            "max(temperature_c) "
            "FROM read_parquet(?) WHERE host = ? AND ts_us >= ? AND ts_us < ? GROUP BY ALL",
            [paths, host, begin_us, begin_us + DAY_US],
        ).fetchall()
    told = {
        (r["gpu_uuid"], r["samples"], r["power_mw_sum"], r["temperature_mc_max"] / 1000)
        for r in day
        if r["host"] == host
    }
    return told == set(raw)


def _empty_caches() -> bool:
    """Make the system forget files that it holds in memory; whether it did."""
    os.sync()
    try:
        _CACHES.write_text("3")
    except OSError:
        return False
    return True


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _peak_mib() -> float:
    """Peak of resident memory: the system's own mark, since what began us counts in getrusage."""
    try:
        told = Path("/proc/self/status").read_text()
        return int(told.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=flags.count, default=1024)
    parser.add_argument("--days", type=flags.amount, default=0.1)
    parser.add_argument("--seed", type=flags.whole, default=1)
    parser.add_argument("--collectors", type=flags.count, default=1, help="days ingested at once")
    parser.add_argument("--lake", type=Path, help="keep the lake here; else it is deleted")
    parser.add_argument("--answer", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer is not None:
        print(json.dumps(answer_of(given.lake, given.answer)))
        return
    sizes = {"devices": given.devices, "days": given.days, "seed": given.seed}
    sizes["collectors"] = given.collectors
    if given.lake is not None:
        outcome = run(given.lake, **sizes)
    else:
        with tempfile.TemporaryDirectory(prefix="steptax-week-") as folder:
            outcome = run(Path(folder) / "lake", **sizes)
    shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(outcome).items()}
    print(json.dumps(shown, indent=1))
    if not outcome.is_correct:
        raise SystemExit("the roll-up differs from the rows")


if __name__ == "__main__":
    main()
