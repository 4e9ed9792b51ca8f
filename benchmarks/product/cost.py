"""What a fleet's rows take: ``python -m steptax.benchmarks.product.cost``.

Bytes of a row are measured: seeded jobs, samples and a profile are stored, and their files weighed.
Requests of a store are counted (see ``cost_requests``). All else follows from those, the number of
GPUs, the seconds of a step, limits in the code, and what is labelled as an assumption.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.ingest import ingest_folder
from steptax.app.lake import Lake
from steptax.app.lake.compact import TARGET_ROWS
from steptax.app.lake.rollups import FEW_PARTS
from steptax.app.schema.rollups import ROLLUPS, SPAN_STEPS, WINDOW_STEPS
from steptax.app.views.job.history import block_of
from steptax.app.views.job.load import MAX_ROWS
from steptax.app.views.job.shape import drawn_columns
from steptax.benchmarks.product import flags, kineto
from steptax.benchmarks.product.scale_data import EPOCH_US, JOB, segments
from steptax.connectors.base import Options

if TYPE_CHECKING:
    from steptax.benchmarks.product.cost_requests import Requests

#: Ranks of the jobs that are weighed: bytes of the big one count, the small one shows what a job of
#: few ranks takes beside it. Each has one full segment, as a compactor leaves them.
SMALL_RANKS, RANKS = 256, 4_096
DEVICES, SAMPLES = 64, 1024
PROFILE = kineto.Job(ranks=2, steps=16, layers=96)
GPUS = (1_024, 16_384, 100_000)
GPUS_OF_NODE = 8
STEP_S, SAMPLE_S = 1.0, 10.0
#: Assumption: operations (kernels and what launched them) of a step of a rank that is profiled.
OPS_A_STEP = 5_000
#: Assumption: list prices of Amazon S3 Standard in us-east-1, https://aws.amazon.com/s3/pricing/:
#: USD of a thousand PUT, COPY, POST or LIST, of a thousand GET and others, and of a GB for a month.
PUT_USD, GET_USD, MONTH_USD = 0.005, 0.0004, 0.023
_DAY_S = 86_400


@dataclass(frozen=True)
class Sizes:
    """Bytes on disk."""

    rank_step: float
    """Of a row of ``steps``."""
    step: float
    """Of a step in all roll-ups that have rows of steps."""
    rank_window: float
    """Of a rank in a window of steps in the roll-up of ranks."""
    sample: float = 0.0
    """Of a row of ``device_samples``."""
    op: float = 0.0
    """Of a row of ``ops``, which a profile of a step gives."""
    collective: float = 0.0
    """Of a row of ``collectives``."""


def measured(ranks: int = RANKS) -> Sizes:
    """Store seeded rows, and weigh them."""
    steps = max(1, TARGET_ROWS // ranks)
    with tempfile.TemporaryDirectory(prefix="steptax-cost-") as folder:
        lake = Lake(Path(folder) / "lake", create=True)
        for part in segments(ranks, steps, segment_steps=steps):
            lake.append("steps", part, source="benchmark")
        lake.append("device_samples", _samples(), source="benchmark")
        of_steps = of_windows = 0.0
        for rollup in (rollup for rollup in ROLLUPS if rollup.table == "steps"):
            place = lake.root / "rollups" / f"{rollup.name}-{rollup.version}"
            files = [path for path in place.rglob("*.parquet") if f"job={JOB}" in path.parts]
            taken = sum(path.stat().st_size for path in files)
            if "rank" in rollup.keys:
                of_windows += taken / sum(pq.read_metadata(path).num_rows for path in files)
            else:
                of_steps += taken / steps
        return Sizes(
            _weighed(lake, "steps", JOB),
            of_steps,
            of_windows,
            _weighed(lake, "device_samples"),
            *_profile_sizes(),
        )


@cache
def _profile_sizes() -> tuple[float, float]:
    """Bytes of an operation and of a collective of a profile."""
    with tempfile.TemporaryDirectory(prefix="steptax-cost-") as folder:
        lake = Lake(Path(folder) / "lake", create=True)
        traces = Path(folder) / "traces"
        traces.mkdir()
        kineto.write(PROFILE, traces)
        ingest_folder(lake, "kineto", traces, Options(job_id="profile"))
        return _weighed(lake, "ops"), _weighed(lake, "collectives")


def _weighed(lake: Lake, name: str, job_id: str | None = None) -> float:
    found = lake.segments(name, job_id)
    return sum(s.path.stat().st_size for s in found) / sum(s.rows for s in found)


def _samples() -> pa.Table:
    number = np.arange(DEVICES * SAMPLES)
    dice = np.random.default_rng(0)
    device, second = number // SAMPLES, number % SAMPLES
    return pa.table(
        {
            "host": [f"node-{k // 8}" for k in device],
            "gpu_uuid": [f"GPU-{k:08d}" for k in device],
            "ts_us": EPOCH_US + second * 1_000_000,
            "util_ratio": dice.integers(90, 101, len(number)) / 100,
            "power_w": dice.integers(500, 700, len(number)).astype(float),
            "temperature_c": dice.integers(50, 70, len(number)).astype(float),
            "memory_used_bytes": 60 * 2**30 + dice.integers(0, 64, len(number)) * 2**20,
            "sm_clock_mhz": dice.integers(115, 133, len(number)) * 15.0,
        }
    )


def rank_window_rows(gpus: int, steps: int) -> int:
    """Rows of the roll-up of ranks of a day, and of what adds them up.

    A window that spans segments has a row in each, and a segment that spans windows one of each.
    """
    of_segment = _steps_of(gpus)
    windows = len({(step // of_segment, step // WINDOW_STEPS) for step in range(steps)})
    spans = [steps // span for span in SPAN_STEPS if span // of_segment >= FEW_PARTS]
    return gpus * (windows + sum(spans))


def _steps_of(gpus: int) -> int:
    """Steps of a full segment: a compactor adds whole ones until it has the rows."""
    return -(-TARGET_ROWS // gpus)


def _column_steps(gpus: int, steps: int) -> int:
    blocks = -(-steps // block_of(gpus, steps)[0])
    return round(steps / drawn_columns(blocks, gpus))


def table(sizes: Sizes, gpus: Sequence[int] = GPUS, step_s: float = STEP_S) -> list[list[str]]:
    """Rows of text: what, and its value for each fleet; all GPUs step every ``step_s`` seconds."""
    steps = int(_DAY_S / step_s)
    raw = [n * steps for n in gpus]
    rolled = [
        (steps * sizes.step + rank_window_rows(n, steps) * sizes.rank_window) / 1e9 for n in gpus
    ]
    samples = [n * _DAY_S / SAMPLE_S for n in gpus]
    profile = [n * OPS_A_STEP for n in gpus]
    return [
        ["GPUs in one job", *(f"{n:,}" for n in gpus)],
        ["rows of steps a day, million", *(f"{rows / 1e6:,.0f}" for rows in raw)],
        ["GB of steps a day", *(f"{rows * sizes.rank_step / 1e9:,.2f}" for rows in raw)],
        ["full segments a day", *(f"{steps / _steps_of(n):,.0f}" for n in gpus)],
        ["roll-ups of them, GB a day", *(f"{n:,.2f}" for n in rolled)],
        [
            f"samples of devices a day, million, each {SAMPLE_S:.0f} s",
            *(f"{rows / 1e6:,.0f}" for rows in samples),
        ],
        ["GB of samples a day", *(f"{rows * sizes.sample / 1e9:,.2f}" for rows in samples)],
        [
            f"operations of one profiled step, million, {OPS_A_STEP:,} a rank (assumed)",
            *(f"{rows / 1e6:,.0f}" for rows in profile),
        ],
        ["GB of one profiled step", *(f"{rows * sizes.op / 1e9:,.2f}" for rows in profile)],
        ["steps that a page reads row by row", *(f"{MAX_ROWS // n:,}" for n in gpus)],
        [
            "steps of a column of a day's heat map, about",
            *(f"{_column_steps(n, steps):,}" for n in gpus),
        ],
    ]


def store_table(requests: Requests, gpus: Sequence[int] = GPUS) -> list[list[str]]:
    """Rows of text: what a lake in an object store is asked in a day, and its list price."""

    def counts(who: str, kind: str) -> list[float]:
        return [requests.a_day(who, kind, n / GPUS_OF_NODE) for n in gpus]

    def usd(who: str) -> list[float]:
        asked = zip(counts(who, "PUT"), counts(who, "LIST"), counts(who, "GET"), strict=True)
        return [((put + lists) * PUT_USD + get * GET_USD) / 1000 for put, lists, get in asked]

    replaced = [requests.replaced_a_day(n / GPUS_OF_NODE) for n in gpus]
    return [
        ["GPUs in one job", *(f"{n:,}" for n in gpus)],
        ["PUT of recorders a day, million", *_millions(counts("recorders", "PUT"))],
        ["PUT of recorders a second", *(f"{n / _DAY_S:,.0f}" for n in counts("recorders", "PUT"))],
        ["PUT of the compactor a day", *(f"{n:,.0f}" for n in counts("compactor", "PUT"))],
        ["LIST of the compactor a day", *(f"{n:,.0f}" for n in counts("compactor", "LIST"))],
        ["GET of the compactor a day, million", *_millions(counts("compactor", "GET"))],
        ["LIST of a live page a day, million", *_millions(counts("page", "LIST"))],
        ["GET of a live page a day, million", *_millions(counts("page", "GET"))],
        ["log of commits, GB a day as written", *_gigabytes(n * requests.record for n in replaced)],
        ["of that once folded, GB", *_gigabytes(n * requests.folded for n in replaced)],
        ["USD a day: recorders", *(f"{n:,.2f}" for n in usd("recorders"))],
        ["USD a day: compactor", *(f"{n:,.2f}" for n in usd("compactor"))],
        ["USD a day: a live page that is open all day", *(f"{n:,.2f}" for n in usd("page"))],
    ]


def _millions(counts: Iterable[float]) -> list[str]:
    return [f"{n / 1e6:,.2f}" for n in counts]


def _gigabytes(sizes: Iterable[float]) -> list[str]:
    return [f"{n / 1e9:,.2f}" for n in sizes]


def markdown(sizes: Sizes) -> str:
    """The table for the documents: sizes to two digits, which any machine measures alike."""
    whole = Sizes(*(float(f"{size:.2g}") for size in vars(sizes).values()))
    head, *rows = table(whole)
    return "\n".join(
        [
            f"Bytes on disk, as measured of a job of {RANKS:,} ranks: {whole.rank_step} of a rank "
            f"in a step, {whole.step:,.0f} of a step in its roll-ups, {whole.rank_window:.0f} of "
            f"a rank in a window of {WINDOW_STEPS} steps, {whole.sample} of a sample of a device, "
            f"{whole.op} of an operation of a profile, {whole.collective} of a collective. A step "
            f"takes {STEP_S:.0f} s.",
            "",
            *_marked(head, rows),
        ]
    )


def store_markdown(requests: Requests) -> str:
    """What a store is asked, for the documents."""
    head, *rows = store_table(requests)
    return "\n".join(_marked(head, rows))


def _marked(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def main(arguments: list[str] | None = None) -> int:
    """Print the sizes and the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--gpus", type=flags.count, nargs="+", default=list(GPUS))
    parser.add_argument("--step-s", type=flags.amount, default=STEP_S)
    parser.add_argument("--requests", action="store_true", help="count those of a store too")
    asked = parser.parse_args(arguments)
    small, sizes = measured(SMALL_RANKS), measured(RANKS)
    print(f"{'bytes on disk':24}{f'{SMALL_RANKS:,} ranks':>14}{f'{RANKS:,} ranks':>14}")
    for name, size in vars(sizes).items():
        print(f"{name:24}{vars(small)[name]:14.2f}{size:14.2f}")
    _print(table(sizes, asked.gpus, asked.step_s))
    if asked.requests:
        try:
            from steptax.benchmarks.product.cost_requests import counted

            requests = counted()
        except ImportError as error:
            print(f"requests are not counted: {error} (pip install '.[dev]')")
            return 1
        print(
            f"\nassumed list prices: {PUT_USD} USD for 1,000 PUT or LIST, {GET_USD} for 1,000 GET"
        )
        _print(store_table(requests, asked.gpus))
    return 0


def _print(rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        print(f"{row[0]:72}" + "".join(f"{cell:>14}" for cell in row[1:]))


if __name__ == "__main__":
    raise SystemExit(main())
