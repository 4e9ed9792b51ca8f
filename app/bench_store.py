"""Benchmark results into the lake: our own runs, and tests of NCCL that are run here."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steptax.app.errors import InputError, UserError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.ingest import fingerprint, ingest
from steptax.app.schema import Batch
from steptax.benchmarks.hardware.bench import BenchRun
from steptax.connectors.base import Options
from steptax.connectors.devices.nvml import live_batch
from steptax.connectors.tables.facts import rows_of


def store_run(lake: Lake, run: BenchRun) -> None:
    """Store a run's figures, its arrival rounds and the readings of its devices.

    UserError where the lake holds another run of that name.
    """
    ingest_id = fingerprint([], "bench", run.run_id)
    if ingest_id in lake.commits.all():
        raise UserError(
            f"the lake holds a run {run.run_id!r} already",
            where="--name",
            hint="leave the flag out: runs are then named by their time",
        )
    batches = [Batch("bench_results", rows_of("bench_results", run.rows))] if run.rows else []
    if run.collective_rows:
        batches.append(Batch("collectives", rows_of("collectives", run.collective_rows)))
    if run.samples:
        batches.append(live_batch(run.samples))
    ingest(
        lake,
        batches,
        ingest_id=ingest_id,
        source=f"bench:{run.host}",
        detail={"connector": "bench", "version": 1, "options": {"run": run.run_id}},
    )


@dataclass(frozen=True)
class NcclTestsRun:
    """What a test that was run here gave."""

    run_id: str
    accepted: int
    rejected: int
    notes: tuple[str, ...]


def run_nccl_tests(
    lake: Lake, program: Path, arguments: Sequence[str], run_id: str | None, timeout_s: float
) -> NcclTestsRun:
    """Run ``program`` and read what it prints with the ``nccl-tests`` connector.

    UserError where it cannot be started, fails, does not end in time, or prints no table.
    """
    name = next((Path(a).name for a in (str(program), *arguments) if "_perf" in a), program.name)
    run = run_id or f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    command = [str(program), *arguments]
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False
        )
    except OSError as error:
        raise UserError(
            f"cannot be started: {error.strerror}",
            where=str(program),
            hint="build nccl-tests (make MPI=1) and name one of build/*_perf",
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"did not end within {timeout_s:g} s: a rank may hang",
            where=shown,
            hint="fewer sizes (-e), or --timeout",
        ) from None
    said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    if done.returncode:
        raise UserError(
            f"ended with {done.returncode}: {said[-1] if said else 'it said nothing'}",
            where=shown,
            hint="run it by hand first; NCCL_DEBUG=INFO shows where it fails",
        )
    with tempfile.TemporaryDirectory(prefix="steptax-bench-") as folder:
        path = Path(folder) / f"{name}.txt"
        path.write_bytes(done.stdout)
        try:
            result = ingest_file(lake, "nccl-tests", path, Options(job_id=run))
        except InputError as error:
            raise UserError(error.message, where=shown, hint=error.hint) from None
    return NcclTestsRun(
        run,
        result.accepted.get("bench_results", 0),
        result.rejected.get("bench_results", 0),
        result.notes,
    )
