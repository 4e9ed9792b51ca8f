"""What every rank does: operation by operation, size by size, and who arrives last.

Every call begins behind a barrier and is timed to its end on the rank (blocking), so small sizes
show latency; the figure of a call is that of the slowest rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steptax.app.errors import UserError
from steptax.benchmarks.hardware.backend import UnsupportedError
from steptax.benchmarks.hardware.comm import ITEM_BYTES, OPERATIONS, PARTED, Comm

#: Bytes that one rank sends in the timed part of a repeat of a size, about.
_GPU_BUDGET_BYTES = 64 << 30
_CPU_BUDGET_BYTES = 64 << 20
LEAST_ITERATIONS = 4
ARRIVAL_BYTES = 1 << 16


@dataclass(frozen=True)
class Sweep:
    """What to run. Sizes go from ``first_bytes`` to ``last_bytes`` by ``factor``."""

    operations: tuple[str, ...] = OPERATIONS
    first_bytes: int = 8
    last_bytes: int = 8 << 30
    factor: int = 2
    warmup: int = 5
    iterations: int = 20
    repeats: int = 5
    arrivals: int = 60
    """Rounds of own work and an all-reduce that show who comes last."""

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        for op in self.operations:
            if op not in OPERATIONS:
                raise UserError(f"no collective {op!r}", where="--op", hint=", ".join(OPERATIONS))
        if not ITEM_BYTES <= self.first_bytes <= self.last_bytes:
            raise UserError(
                f"sizes from {self.first_bytes} to {self.last_bytes} bytes hold none of at least "
                f"{ITEM_BYTES}",
                where="--min-bytes",
            )
        if self.factor < 2:
            raise UserError("sizes must grow", where="--factor", hint="2 doubles them")
        for name, least in (("warmup", 0), ("iterations", 1), ("repeats", 1)):
            if getattr(self, name) < least:
                raise UserError(f"must be at least {least}", where=f"--{name}")

    def sizes(self, op: str, ranks: int, most_bytes: int) -> list[int]:
        """Sizes of an operation: each a whole number of elements, of one per rank where parted."""
        least = ITEM_BYTES * (ranks if op in PARTED else 1)
        out = []
        size = self.first_bytes
        while size <= min(self.last_bytes, most_bytes):
            whole = size // least * least
            if whole and whole not in out:
                out.append(whole)
            size *= self.factor
        return out


def run_rank(comm: Comm, sweep: Sweep) -> dict[str, Any] | None:
    """Run the sweep as one rank. Rank 0 gets what every rank measured, the others None.

    ``cells``: {op, size, wrong, times_us [rank][repeat][iteration]}; ``arrivals``: rounds of each
    rank with start_us, work_us, duration_us; ``ranks``: who they are; ``notes``.
    """
    notes: dict[str, None] = {comm.note: None} if comm.note else {}
    most = comm.most_bytes()
    if most < sweep.last_bytes:
        notes[f"sizes end at what fits in memory: {most:,} bytes"] = None
    arrivals = _arrivals(comm, sweep.arrivals)
    cells: dict[tuple[str, int], dict[str, Any]] = {}
    for repeat in range(sweep.repeats):
        for op in (o for o in sweep.operations if o in comm.operations):
            for size in sweep.sizes(op, comm.size, most):
                try:
                    found, wrong = _one(comm, sweep, op, size, repeat)
                except UnsupportedError as why:
                    notes[f"{op} is left out: {why}"] = None
                    break
                cell: dict[str, Any] = cells.setdefault((op, size), {"times_us": [], "wrong": 0})
                cell["times_us"].append(found)
                cell["wrong"] += wrong
    mine: dict[str, Any] = {
        "rank": comm.rank,
        "host": comm.host,
        "device_id": comm.device_id,
        "device_model": comm.device_model,
        "arrivals": arrivals,
        "cells": [{"op": op, "size": size, **cell} for (op, size), cell in cells.items()],
    }
    every = comm.everyone(mine)
    if comm.rank != 0:
        return None
    return {
        "library": comm.driven_by,
        "notes": list(notes),
        "ranks": [{k: r[k] for k in ("rank", "host", "device_id", "device_model")} for r in every],
        "arrivals": [r["arrivals"] for r in every],
        "cells": [
            {
                "op": cell["op"],
                "size": cell["size"],
                "wrong": sum(r["cells"][place]["wrong"] for r in every),
                "times_us": [r["cells"][place]["times_us"] for r in every],
            }
            for place, cell in enumerate(mine["cells"])
        ],
    }


def _one(comm: Comm, sweep: Sweep, op: str, size: int, repeat: int) -> tuple[list[float], int]:
    """Times of one repeat on this rank, and the wrong elements of one more run."""
    exchange = comm.exchange(op, size)
    exchange.fill(1000 * repeat)
    budget = _CPU_BUDGET_BYTES if comm.device_id.startswith("cpu") else _GPU_BUDGET_BYTES
    # By size and not by the clock: every rank must come to the same number.
    iterations = min(sweep.iterations, max(LEAST_ITERATIONS, budget // size))
    warmup = min(sweep.warmup, iterations)
    times = []
    for turn in range(warmup + iterations):
        exchange.reset()
        comm.barrier()
        began = time.perf_counter_ns()
        exchange.run()
        if turn >= warmup:
            times.append((time.perf_counter_ns() - began) / 1e3)
    exchange.fill(None)
    exchange.reset()
    comm.barrier()
    exchange.run()
    return times, exchange.wrong()


def _arrivals(comm: Comm, rounds: int) -> list[dict[str, int]]:
    """Rounds of the same own work on every rank, each ended by an all-reduce without a barrier.

    Whoever waits least in it came last: that needs no clock that the ranks share.
    """
    work, exchange = comm.own_work(), comm.exchange("all_reduce", ARRIVAL_BYTES)
    exchange.fill(1)
    for _ in range(3):
        work()
        exchange.reset()
        exchange.run()
    out = []
    for _ in range(rounds):
        exchange.reset()
        began = time.perf_counter_ns()
        work()
        worked_us = (time.perf_counter_ns() - began) // 1000
        start_us, began = time.time_ns() // 1000, time.perf_counter_ns()
        exchange.run()
        took_us = (time.perf_counter_ns() - began) // 1000
        out.append({"start_us": start_us, "work_us": worked_us, "duration_us": took_us})
    return out


def slowest_of(times_us: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """[repeat][iteration] of the slowest rank, from [rank][repeat][iteration]."""
    return [
        [max(values) for values in zip(*(rank[repeat] for rank in times_us), strict=True)]
        for repeat in range(len(times_us[0]))
    ]
