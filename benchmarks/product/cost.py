"""What a fleet's rows take: ``python -m steptax.benchmarks.product.cost``.

Bytes of a row are measured: a seeded job and seeded samples are stored, and their files weighed.
All else follows from those, the number of GPUs, the seconds of a step, and limits in the code.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from steptax.app.lake import Lake
from steptax.app.lake.compact import TARGET_ROWS
from steptax.app.schema.rollups import WINDOW_STEPS
from steptax.app.views.job.history import block_of
from steptax.app.views.job.load import MAX_ROWS
from steptax.benchmarks.product.scale_data import EPOCH_US, JOB, fill

RANKS, STEPS = 256, 2 * WINDOW_STEPS
DEVICES, SAMPLES = 64, 1024
GPUS = (1_024, 16_384, 100_000)
STEP_S, SAMPLE_S = 1.0, 10.0
_DAY_S = 86_400


@dataclass(frozen=True)
class Sizes:
    """Bytes on disk."""

    rank_step: float
    """Of a row of ``steps``."""
    step: float
    """Of a step in the roll-up of steps."""
    rank_window: float
    """Of a rank in a window of steps in the roll-up of ranks."""
    sample: float
    """Of a row of ``device_samples``."""


def measured() -> Sizes:
    """Store seeded rows, and weigh them."""
    with tempfile.TemporaryDirectory(prefix="steptax-cost-") as folder:
        lake = Lake(Path(folder) / "lake", create=True)
        rows = fill(lake, RANKS, STEPS)
        lake.append("device_samples", _samples(), source="benchmark")
        raw = sum(s.path.stat().st_size for s in lake.segments("steps", JOB))
        samples = sum(s.path.stat().st_size for s in lake.segments("device_samples"))
        rolled = {
            name: sum(
                f.stat().st_size for f in (lake.root / "rollups").glob(f"{name}-*/**/*.parquet")
            )
            for name in ("step-totals", "rank-windows")
        }
        windows = RANKS * len(lake.segments("steps", JOB))
        return Sizes(
            raw / rows,
            rolled["step-totals"] / STEPS,
            rolled["rank-windows"] / windows,
            samples / (DEVICES * SAMPLES),
        )


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


def table(sizes: Sizes, gpus: Sequence[int] = GPUS, step_s: float = STEP_S) -> list[list[str]]:
    """Rows of text: what, and its value for each fleet; all GPUs step every ``step_s`` seconds."""
    steps = _DAY_S / step_s
    raw = [n * steps for n in gpus]
    segments = [rows / TARGET_ROWS for rows in raw]
    # A window that spans two segments has a row in each.
    windows = [n * (steps / WINDOW_STEPS + parts) for n, parts in zip(gpus, segments, strict=True)]
    rolled = [
        (parts * _steps_of(n) * sizes.step + rows * sizes.rank_window) / 1e9
        for n, parts, rows in zip(gpus, segments, windows, strict=True)
    ]
    samples = [n * _DAY_S / SAMPLE_S for n in gpus]
    return [
        ["GPUs in one job", *(f"{n:,}" for n in gpus)],
        ["rows of steps a day, million", *(f"{rows / 1e6:,.0f}" for rows in raw)],
        ["GB of steps a day", *(f"{rows * sizes.rank_step / 1e9:,.2f}" for rows in raw)],
        ["full segments a day", *(f"{n:,.0f}" for n in segments)],
        ["roll-ups of them, GB a day", *(f"{n:,.2f}" for n in rolled)],
        [
            f"samples of devices a day, million, each {SAMPLE_S:.0f} s",
            *(f"{rows / 1e6:,.0f}" for rows in samples),
        ],
        ["GB of samples a day", *(f"{rows * sizes.sample / 1e9:,.2f}" for rows in samples)],
        ["steps that a page reads row by row", *(f"{MAX_ROWS // n:,}" for n in gpus)],
        [
            "steps of a cell of a day's heat map",
            *(f"{block_of(n, int(steps))[0]:,}" for n in gpus),
        ],
    ]


def _steps_of(gpus: int) -> float:
    """Steps of a full segment."""
    return max(1.0, TARGET_ROWS / gpus)


def markdown(sizes: Sizes) -> str:
    """The table for the documents: sizes in tenths of a byte, which any machine measures alike."""
    whole = Sizes(*(round(size, 1) for size in vars(sizes).values()))
    head, *rows = table(whole)
    lines = [
        f"Bytes on disk, as measured: {whole.rank_step} of a rank in a step, "
        f"{whole.step} of a step in its roll-up, {whole.rank_window} of a rank in a window "
        f"of {WINDOW_STEPS} steps, {whole.sample} of a sample of a device. A step takes "
        f"{STEP_S:.0f} s.",
        "",
        f"| {' | '.join(head)} |",
        f"|---|{'---:|' * (len(head) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the sizes and the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--gpus", type=int, nargs="*", default=list(GPUS))
    parser.add_argument("--step-s", type=float, default=STEP_S)
    asked = parser.parse_args(arguments)
    sizes = measured()
    for name, size in vars(sizes).items():
        print(f"{name:12}{size:8.2f} bytes")
    for row in table(sizes, asked.gpus, asked.step_s):
        print(f"{row[0]:58}" + "".join(f"{cell:>14}" for cell in row[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
