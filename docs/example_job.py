"""Writes the files that the commands of these pages read, into ``examples/``.

    python docs/example_job.py

A made job of 8 ranks, `llm-7b`, whose rank 5 computes at 80 % speed from step 120 on while its
GPU gets hot: `llm-7b.csv` has its steps, `llm-7b-gpus.csv` what nvidia-smi would have said,
`jobs.csv` the accounting of six weeks and `offers.csv` what devices are offered for.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

RANKS = 8
STEPS = 300
SLOW_RANK = 5
SLOW_FROM_STEP = 120
OFFERS = """provider,segment,gpu_model,form_factor,region,term,usd_per_gpu_hour,observed_on
Alpha,neocloud,H100,SXM,us-east,on-demand,2.99,2026-11-01
Alpha,neocloud,B200,SXM,us-east,on-demand,5.50,2026-11-01
Beta,neocloud,H200,SXM,us-east,on-demand,3.80,2026-11-01
"""
BEGIN = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)


def main(folder: Path) -> None:
    """Write every file of the example into ``folder``."""
    folder.mkdir(exist_ok=True)
    moments = _write_steps(folder / "llm-7b.csv")
    _write_devices(folder / "llm-7b-gpus.csv", moments)
    _write_accounting(folder / "jobs.csv")
    (folder / "offers.csv").write_text(OFFERS, encoding="utf-8")


def _write_steps(file: Path) -> list[datetime]:
    """One row per step and rank; returns when each step began."""
    dice = random.Random(7)
    rows: list[list[object]] = []
    begin, moments = BEGIN, []
    for step in range(STEPS):
        slow = step >= SLOW_FROM_STEP
        compute_ms = [
            dice.gauss(400, 4) * (1.25 if slow and rank == SLOW_RANK else 1)
            for rank in range(RANKS)
        ]
        longest_ms, transfer_ms = max(compute_ms), dice.gauss(60, 2)
        step_ms = longest_ms + transfer_ms
        for rank, own_ms in enumerate(compute_ms):
            wait_ms = longest_ms - own_ms
            rows.append(
                [
                    "llm-7b", step, rank, begin.isoformat(timespec="microseconds"),
                    f"{step_ms:.3f}", f"{own_ms:.3f}",
                    f"{wait_ms + transfer_ms:.3f}", f"{wait_ms:.3f}",
                    8192, "node-0", _uuid(rank), rank,
                ]
            )  # fmt: skip
        moments.append(begin)
        begin += timedelta(milliseconds=step_ms)
    head = (
        "job_id,step,rank,start,duration_ms,compute_ms,comm_ms,wait_ms,tokens,"
        "host,gpu_uuid,local_rank"
    )
    _write(file, head.split(","), rows)
    return moments


def _write_devices(file: Path, moments: Sequence[datetime]) -> None:
    """What nvidia-smi says of each device every few steps."""
    head = (
        "timestamp, index, uuid, name, utilization.gpu [%], power.draw [W], temperature.gpu, "
        "clocks.current.sm [MHz], clocks_event_reasons.active"
    )
    dice = random.Random(8)
    rows = []
    for step in range(0, STEPS, 4):
        for rank in range(RANKS):
            hot = rank == SLOW_RANK and step >= SLOW_FROM_STEP
            rows.append(
                [
                    moments[step].strftime("%Y/%m/%d %H:%M:%S.000"), rank, _uuid(rank),
                    "NVIDIA H100 80GB HBM3", "99 %", f"{dice.gauss(480 if hot else 655, 6):.2f} W",
                    89 if hot else 64, "1410 MHz" if hot else "1755 MHz",
                    # The bit of a hardware thermal slowdown.
                    "0x0000000000000040" if hot else "0x0000000000000000",
                ]
            )  # fmt: skip
    _write(file, head.split(", "), rows)


def _write_accounting(file: Path) -> None:
    """Jobs of three teams over the six weeks before; spend grows, one in six fails."""
    dice = random.Random(9)
    teams = (
        ("research", "vision", "kim"),
        ("research", "speech", "lee"),
        ("ads", "ranking", "ann"),
    )
    rows: list[list[object]] = []
    for day in range(-41, 0):
        for team, project, owner in dice.sample(teams, dice.choice((1, 1, 2))):
            begin = BEGIN + timedelta(days=day, minutes=dice.randrange(600))
            end = begin + timedelta(hours=dice.uniform(2, 14))
            state = dice.choice(("completed",) * 4 + ("failed", "cancelled"))
            rows.append(
                [
                    f"{project}-{len(rows):02}", team, project, "a", owner, state,
                    f"{begin:%Y-%m-%dT%H:%MZ}", f"{end:%Y-%m-%dT%H:%MZ}",
                    dice.choice((8, 16, 32, 64) if day < -14 else (16, 32, 64, 128)),
                ]
            )  # fmt: skip
    head = "job_id,team,project,cluster,owner,state,start,end,gpus"
    _write(file, head.split(","), rows)


def _uuid(rank: int) -> str:
    return f"GPU-{rank:08x}-0000-4000-8000-{rank:012x}"


def _write(file: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(head)
        writer.writerows(rows)


if __name__ == "__main__":
    main(Path("examples"))
