"""A year of a fleet: ``python -m steptax.benchmarks.product.fleet_year --jobs 50000``.

Synthetic, and named so in every row: jobs of a scheduler's log over a year, lognormal in length and
in powers of two by size, of twelve teams on three clusters. A part of them (``--told``) also says
on which devices it ran and what happened to it, and a smaller part (``--steps``) has per-rank
steps, some with a slow rank. Then one process opens the Executive and one the Fleet page's views,
and asks for every filter and every level that these pages offer, each for the first time. *Cold* is
a process that has just started, on files that the system holds in no cache where it may be emptied
(root, Linux); the start of Python and its imports are told apart.

The whole bill is checked against sums over the generated rows, to the cent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.lake import Lake
from steptax.benchmarks.product import flags
from steptax.benchmarks.product.device_week import _empty_caches, _peak_mib

#: 2025-11-01, 00:00 UTC.
BEGIN_US = 1_761_955_200_000_000
HOUR_US = 3_600_000_000
YEAR_US = 365 * 24 * HOUR_US
PRICE = Decimal("2.13")
RANKS, STEPS = 8, 60
_PLACES = ("", "cluster-0-", "cluster-1-", "cluster-2-")
SOURCE = "synthetic: fleet_year"
STATES = ("completed", "failed", "cancelled", "timeout", "running")
_SHARES = (0.66, 0.2, 0.1, 0.035, 0.005)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SIZE_SHARES = (0.52, 0.09, 0.09, 0.17, 0.05, 0.03, 0.02, 0.015, 0.01, 0.004, 0.001)


def make_jobs(jobs: int, seed: int) -> pa.Table:
    """The jobs of a year; the same for the same seed."""
    random = np.random.default_rng(seed)
    start = BEGIN_US + np.sort(random.integers(0, YEAR_US, jobs))
    size = random.choice(SIZES, jobs, p=_SIZE_SHARES)
    hours = np.minimum(random.lognormal(0.3 + 0.12 * np.log2(size), 1.4), 24.0 * 14)
    end = start + (hours * HOUR_US).astype(np.int64)
    state = random.choice(STATES, jobs, p=_SHARES)
    team = random.integers(0, 12, jobs)
    return pa.table(
        {
            "job_id": [f"synthetic-{k:06d}" for k in range(jobs)],
            "name": [f"synthetic run {k % 997}" for k in range(jobs)],
            "team": [f"team-{k:02d}" if k else None for k in team.tolist()],
            "project": [f"project-{k:02d}" for k in (team * 3 + random.integers(0, 3, jobs))],
            "cluster": [f"cluster-{k}" for k in random.integers(0, 3, jobs)],
            "owner": [f"user-{k:03d}" for k in random.integers(0, 200, jobs)],
            "state": state.tolist(),
            "gpu_model": ["H100 SXM"] * jobs,
            "hosts": _hosts(size, random),
            "world_size": size.astype(np.int32),
            "submit_us": start - random.integers(0, HOUR_US, jobs),
            "start_us": start,
            "end_us": pa.array(end, mask=state == "running"),
        }
    )


def _hosts(size: np.ndarray[Any, Any], random: np.random.Generator) -> list[str]:
    """Nodes of eight devices that the scheduler names; node 13 gets three times its share."""
    first = random.integers(0, 256, len(size))
    first[random.random(len(size)) < 2 / 256] = 13
    return [
        ",".join(f"node-{(k + i) % 256:03d}" for i in range(max(1, n // 8)))
        for k, n in zip(first.tolist(), size.tolist(), strict=True)
    ]


def make_lake(
    root: Path, jobs: int, told: int, steps: int, seed: int, *, billed: bool = False
) -> pa.Table:
    """A lake with such a year, and a bill of its hosts if ``billed``; returns its jobs."""
    lake = Lake(root, create=True)
    rows = make_jobs(jobs, seed)
    lake.append("jobs", rows, source=SOURCE)
    random = np.random.default_rng([seed, 1])
    chosen = np.sort(random.choice(jobs, told, replace=False)) if told else np.zeros(0, int)
    for place in chosen.tolist():
        job = {name: rows[name][place].as_py() for name in rows.column_names}
        lake.append("ranks", _ranks(job, random), source=SOURCE)
        lake.append("events", _events(job), source=SOURCE)
    if billed:
        lake.append("charges", _charges(), source=SOURCE)
    for place in chosen[:steps].tolist():
        job_id, start = rows["job_id"][place].as_py(), rows["start_us"][place].as_py()
        lake.append("steps", _steps(job_id, start, random), source=SOURCE)
    return rows


def _ranks(job: dict[str, Any], random: np.random.Generator) -> pa.Table:
    count = min(int(job["world_size"]), 64)
    first = int(random.integers(0, 256)) * 8
    device = [first + rank for rank in range(count)]
    return pa.table(
        {
            "job_id": [job["job_id"]] * count,
            "rank": pa.array(range(count), pa.int32()),
            "host": [f"{job['cluster']}-node-{k // 8 % 256:03d}" for k in device],
            "gpu_uuid": [f"GPU-{k % 2048:08x}-{job['cluster']}" for k in device],
        }
    )


def _charges() -> pa.Table:
    """What each host costs in each of thirteen times four weeks, eight devices at the price.

    The hosts are those that ranks name, and those that the scheduler names of jobs without ranks.
    """
    month_us = YEAR_US // 13
    hosts = [f"{place}node-{n:03d}" for place in _PLACES for n in range(256)]
    keys = [(host, m) for host in hosts for m in range(13)]
    cost = (Decimal(8 * month_us) / HOUR_US * PRICE).quantize(Decimal("0.01"))
    return pa.table(
        {
            "provider": ["synthetic"] * len(keys),
            "invoice": [f"synthetic-{m:02d}" for _, m in keys],
            "line": [f"{host}-{m:02d}" for host, m in keys],
            "charge_start_us": [BEGIN_US + m * month_us for _, m in keys],
            "charge_end_us": [BEGIN_US + (m + 1) * month_us for _, m in keys],
            "effective_cost": [cost] * len(keys),
            "billed_cost": [cost] * len(keys),
            "currency": ["USD"] * len(keys),
            "resource_id": [host for host, _ in keys],
        }
    )


def _events(job: dict[str, Any]) -> pa.Table:
    start, end = job["start_us"], job["end_us"]
    moments = [("allocated", start), ("process_start", start + 60_000_000)]
    moments.append(("first_step", start + 180_000_000))
    if job["state"] == "failed" and end is not None:
        moments.append(("failure", end))
    return pa.table(
        {
            "job_id": [job["job_id"]] * len(moments),
            "attempt": pa.array([0] * len(moments), pa.int32()),
            "kind": [kind for kind, _ in moments],
            "start_us": [at for _, at in moments],
        }
    )


def _steps(job_id: str, start_us: int, random: np.random.Generator) -> pa.Table:
    """Steps of a second; in one job of five rank 3 computes a tenth longer."""
    is_slow = random.random() < 0.2
    step, rank = np.divmod(np.arange(STEPS * RANKS), RANKS)
    compute = random.normal(700_000, 5_000, STEPS * RANKS).astype(np.int64)
    compute[rank == 3] += 100_000 * is_slow
    comm = 1_000_000 - compute
    return pa.table(
        {
            "job_id": [job_id] * len(step),
            "attempt": np.zeros(len(step), np.int32),
            "step": step,
            "rank": rank.astype(np.int32),
            "start_us": start_us + 180_000_000 + step * 1_000_000,
            "duration_us": np.full(len(step), 1_000_000, np.int32),
            "compute_us": compute.astype(np.int32),
            "comm_us": comm.astype(np.int32),
        }
    )


def expected_usd(rows: pa.Table, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Fraction:
    """What ``chosen`` rows cost by their record alone, exact."""
    start, end = (rows[name].to_numpy(zero_copy_only=False) for name in ("start_us", "end_us"))
    size = rows["world_size"].to_numpy()
    keep = chosen & ~np.isnan(end.astype(float))
    held = sum(
        (int(b) - int(a)) * int(n)
        for a, b, n in zip(start[keep], end[keep], size[keep], strict=True)
    )
    return Fraction(held, HOUR_US) * Fraction(PRICE)


def answer_of(root: Path, page: str) -> dict[str, Any]:
    """Seconds of what the ``executive`` or the ``fleet`` page asks for, in this process."""
    began = time.perf_counter()
    import_module("pandas")  # every page and every table of a command has it
    from steptax.app.compute.fleet.states import size_class
    from steptax.app.views.fleet.bill import fleet_bill
    from steptax.app.views.fleet.filter import FleetFilter
    from steptax.app.views.fleet.view import fleet_view
    from steptax.app.views.review.budget import budget_view
    from steptax.app.views.review.executive import executive_view
    from steptax.app.views.workspace import open_workspace

    imports_s = time.perf_counter() - began
    now_us = BEGIN_US + YEAR_US
    took: dict[str, float] = {}
    cpu: dict[str, float] = {}

    def timed(name: str, make: Callable[[], Any]) -> Any:
        wall, busy = time.perf_counter(), time.process_time()
        made = make()
        took[name] = time.perf_counter() - wall
        cpu[name] = time.process_time() - busy
        return made

    def executive() -> Any:
        ws = open_workspace(root)
        view = executive_view(ws, price=PRICE, now_us=now_us)
        fleet_bill(ws, by="team", price=PRICE)
        budget_view(ws, price=PRICE, now_us=now_us)
        return view

    if page == "fleet":
        ws = open_workspace(root)
        view = timed("open: fleet page", lambda: fleet_view(ws, price=PRICE, now_us=now_us))
        filters = {
            "team": FleetFilter(team=("team-03",)),
            "project": FleetFilter(project=("project-10",)),
            "cluster": FleetFilter(cluster=("cluster-1",)),
            "state": FleetFilter(state=("completed",)),
            "size": FleetFilter(size=(size_class(8),)),
            "date": FleetFilter(first=date(2026, 3, 1), last=date(2026, 3, 31)),
        }
        for name, only in filters.items():
            timed(f"fleet by {name}", lambda only=only: fleet_view(ws, price=PRICE, only=only))  # type: ignore[misc]
        return {
            "imports_s": imports_s,
            "jobs": view.jobs,
            "took_s": took,
            "cpu_s": cpu,
            "peak_mib": _peak_mib(),
        }
    timed("open: executive page", executive)
    ws = open_workspace(root)
    for by in ("project", "cluster", "owner", "month", "day", "job"):
        timed(f"bill by {by}", lambda by=by: fleet_bill(ws, by=by, price=PRICE))  # type: ignore[misc]
    timed("bill of allocated", lambda: fleet_bill(ws, by="team", denominator="allocated"))
    timed("bill at another price", lambda: fleet_bill(ws, by="team", price=Decimal(3)))
    timed("executive at another price", lambda: executive_view(ws, price=Decimal(3), now_us=now_us))
    first_us, last_us = BEGIN_US + YEAR_US // 2, BEGIN_US + YEAR_US * 7 // 12
    timed(
        "executive of a month",
        lambda: executive_view(ws, price=PRICE, first_us=first_us, last_us=last_us, now_us=now_us),
    )
    bill = fleet_bill(ws, by="team", price=PRICE)
    return {
        "imports_s": imports_s,
        "took_s": took,
        "cpu_s": cpu,
        "peak_mib": _peak_mib(),
        "bill_usd": None if bill.total is None else str(bill.total.cost),
        "groups_usd": {group.name: str(group.cost) for group in bill.groups},
    }


def run(
    root: Path, jobs: int, told: int, steps: int, seed: int, *, billed: bool = False
) -> dict[str, Any]:
    """Make the lake if it is not there yet; ask a process that has just started.

    What jobs that have ended come to is stored at the first reading, and read at every other: that
    first one is told apart.
    """
    if (root / "LAKE.json").exists():
        rows = make_jobs(jobs, seed)
    else:
        rows = make_lake(root, jobs, told, steps, seed, billed=billed)
    first = {page: _asked(root, page) for page in ("executive", "fleet")} if told else {}
    emptied = _empty_caches()
    found = _asked(root, "fleet")
    _empty_caches()
    other = _asked(root, "executive")
    found["took_s"] = other.pop("took_s") | found["took_s"]
    found["cpu_s"] = other.pop("cpu_s") | found["cpu_s"]
    found["peak_mib"] = max(other.pop("peak_mib"), found["peak_mib"])
    found = other | found
    found["caches_emptied"] = emptied
    found["first_reading"] = {
        f"{clock} {name}": round(seconds, 2)
        for one in first.values()
        for clock in ("took_s", "cpu_s")
        for name, seconds in one[clock].items()
        if name.startswith("open")
    }
    filters = [s for name, s in found["took_s"].items() if not name.startswith("open")]
    found["slowest_filter_s"] = max(filters)
    if (
        not told and not billed
    ):  # what events say changes a bill, what records say can be added up here
        exact = expected_usd(rows, np.ones(len(rows), bool))
        found["is_correct"] = str(Decimal(round(exact * 100)) / 100) == found["bill_usd"]
    return found


def _asked(root: Path, page: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "steptax.benchmarks.product.fleet_year"]
    done = subprocess.run(
        [*command, "--lake", str(root), "--answer", page],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=flags.count, default=50_000)
    parser.add_argument(
        "--told", type=flags.whole, default=1_000, help="jobs with ranks and events"
    )
    parser.add_argument("--steps", type=flags.whole, default=100, help="of them, those with steps")
    parser.add_argument("--seed", type=flags.whole, default=1)
    parser.add_argument("--lake", type=Path, help="keep the lake here; else it is deleted")
    parser.add_argument("--answer", choices=("executive", "fleet"), help=argparse.SUPPRESS)
    parser.add_argument("--billed", action="store_true", help="with a provider's bill")
    given = parser.parse_args()
    if given.answer:
        print(json.dumps(answer_of(given.lake, given.answer)))
        return
    sizes = {"jobs": given.jobs, "told": given.told, "steps": given.steps, "seed": given.seed}
    sizes["billed"] = given.billed
    if given.lake is not None:
        found = run(given.lake, **sizes)
    else:
        with tempfile.TemporaryDirectory(prefix="steptax-year-") as folder:
            found = run(Path(folder) / "lake", **sizes)
    print(json.dumps(found, indent=1))
    if found.get("is_correct") is False:
        raise SystemExit("the bill differs from the rows")


if __name__ == "__main__":
    main()
