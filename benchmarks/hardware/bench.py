"""One run of ``steptax bench``: what is asked for, measured, and put into rows."""

from __future__ import annotations

import importlib
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steptax.app.errors import UserError, install_hint
from steptax.benchmarks.hardware import blocks, gemm, launch, links, memory
from steptax.benchmarks.hardware.backend import Backend, BlockShape, open_backends
from steptax.benchmarks.hardware.case import Case
from steptax.benchmarks.hardware.collectives import Sweep, run_rank
from steptax.benchmarks.hardware.launch_ranks import Place, has_torch, launched, start_local
from steptax.benchmarks.hardware.rows import Row, of_arrivals, of_collectives, of_results
from steptax.benchmarks.hardware.runner import Result, run_cases
from steptax.benchmarks.hardware.shm_comm import ShmComm
from steptax.benchmarks.hardware.software import versions
from steptax.benchmarks.hardware.telemetry import Telemetry
from steptax.benchmarks.hardware.timing import Plan

NAMES = ("gemm", "memory", "launch", "attention", "mlp", "collectives", "links")


@dataclass(frozen=True)
class Request:
    """What to measure. None leaves a value to what fits the machine."""

    names: tuple[str, ...]
    run_id: str | None = None
    backend: str = "auto"
    dtypes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    model: BlockShape | None = None
    warmup: int | None = None
    iterations: int | None = None
    repeats: int = 5
    seconds: float | None = None
    ranks: int | None = None
    sweep: Sweep = field(default_factory=Sweep)
    last_bytes: int | None = None
    factor: int | None = None
    burden_rank: int | None = None
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        """Refuse names that there are not."""
        unknown = [name for name in self.names if name not in NAMES]
        if unknown or not self.names:
            raise UserError(
                f"no benchmark {unknown[0]!r}" if unknown else "name a benchmark",
                where="NAME",
                hint=f"any of {', '.join(NAMES)}",
            )


@dataclass
class BenchRun:
    """A finished run: rows for the lake, and what the terminal shows beside them."""

    run_id: str
    host: str
    began_us: int
    software: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    collective_rows: list[Row] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Readings of the devices during the run, as the NVML reader gives them."""
    collectives: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    silent: bool = False
    """Whether this process is a rank other than 0: the first one tells and stores."""


def run_bench(request: Request, say: Callable[[str], None] = lambda _text: None) -> BenchRun:
    """Run what is asked for; ``say`` is told how far it is.

    UserError where a flag cannot hold here, or a rank fails.
    """
    place = launched(os.environ)
    began_us = time.time_ns() // 1000
    host = platform.node() or "unknown"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began_us / 1e6))
    run = BenchRun(request.run_id or f"bench-{stamp}-{host}", host, began_us)
    single = tuple(name for name in request.names if name != "collectives")
    if "collectives" in request.names:
        _require_collective(request, place)
    if place is not None and place.size > 1 and single:
        raise UserError(
            f"{', '.join(single)} run once on a node, not in each of {place.size} ranks",
            where="NAME",
            hint="under torchrun or srun name collectives alone",
        )
    if single:
        _devices(request, single, run, say)
    if "collectives" in request.names:
        _collectives(request, run, place, say)
    return run


def _devices(
    request: Request, names: Sequence[str], run: BenchRun, say: Callable[[str], None]
) -> None:
    backends = open_backends(request.backend)
    first = backends[0]
    run.software |= versions(
        backends, importlib.import_module("torch") if _by_torch(first) else None
    )
    if not first.is_gpu:
        run.notes.append(
            f"no GPU: the CPU was measured, {first.device_model or 'of unknown model'}, by "
            f"{first.driven_by}"
        )
    plan = _plan(request, first)
    with Telemetry(nvml_module(), run.host) as telemetry:
        outcome = run_cases(backends, _cases(request, names, backends), plan, telemetry, say)
        if telemetry.reason is not None:
            run.notes.append(f"clocks, power and temperature are unknown: {telemetry.reason}")
        run.samples = telemetry.samples
    if not outcome.results and "collectives" not in request.names:
        raise _nothing(request, first, outcome.notes)
    run.results = outcome.results
    errors = {(r.backend.device_id, r.window.xid) for r in outcome.results if r.window.xid}
    run.notes += [f"Xid {xid} on {device} during the run" for device, xid in sorted(errors)]
    run.notes += outcome.notes
    run.rows += of_results(outcome.results, run.run_id, run.host, run.began_us, run.software)


def _nothing(request: Request, first: Backend, notes: Sequence[str]) -> UserError:
    by_type = request.dtypes and not set(request.dtypes) & set(first.dtypes)
    return UserError(
        f"nothing can be measured here: {'; '.join(notes)}",
        where="--dtype" if by_type else "NAME",
        hint=f"{first.driven_by} on {first.kind} multiplies in {', '.join(first.dtypes)}"
        if by_type
        else "gemm, memory and launch run everywhere",
    )


def _by_torch(backend: Backend) -> bool:
    return backend.driven_by.startswith("torch")


def _plan(request: Request, first: Backend) -> Plan:
    """mamf-finder's 50 and 100 iterations on a GPU; on a CPU what a minute holds."""
    usual = Plan(50, 100, seconds=5.0) if first.is_gpu else Plan(2, 30, seconds=0.3)
    given = {n: getattr(request, n) for n in ("warmup", "iterations", "seconds")}
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(usual, repeats=request.repeats, **changes)


def _cases(request: Request, names: Sequence[str], backends: Sequence[Backend]) -> list[Case]:
    first = backends[0]
    dtypes = request.dtypes or first.dtypes
    model = request.model or blocks.default_model(first)
    found: list[Case] = []
    for name in names:
        if name == "gemm":
            found += gemm.cases(first, dtypes, request.sizes, request.model)
        elif name == "memory":
            found += memory.cases(first, request.memory_bytes)
        elif name == "launch":
            found += launch.cases(first)
        elif name == "links":
            found += links.cases(backends)
        else:
            flag = None if request.model is None else "--model"
            found += blocks.cases(name, model, dtypes, flag)
    return found


def nvml_module() -> Any:
    """The module ``pynvml``; None where nvidia-ml-py is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _require_collective(request: Request, place: Place | None) -> None:
    """Refuse operations of which none can run, before anything is measured."""
    if place is not None or (has_torch() and request.backend != "numpy"):
        return
    if not set(request.sweep.operations) & set(ShmComm.operations):
        raise UserError(
            f"without torch {', '.join(request.sweep.operations)} cannot run: only "
            f"{', '.join(ShmComm.operations)} can",
            where="--op",
            hint=f"{install_hint('gpu')}, which has gloo for CPUs too; or name --op all_reduce",
        )


def _collectives(
    request: Request, run: BenchRun, place: Place | None, say: Callable[[str], None]
) -> None:
    torch = has_torch() and request.backend != "numpy"
    if request.backend == "torch" and not torch:
        open_backends("torch")  # says what is missing
    gpus = importlib.import_module("torch").cuda.device_count() if torch else 0
    if place is not None and request.ranks not in (None, place.size):
        raise UserError(f"the launcher started {place.size} ranks", where="--ranks")
    sweep = _sweep(request, on_gpu=gpus > 0)
    if place is not None:
        if not torch:
            raise UserError("torch is not installed", where="bench collectives")
        if request.burden_rank is not None:
            raise UserError("only for ranks that it starts itself", where="--burden-rank")
        found = _as_rank(place, sweep)
        run.silent = found is None
    else:
        ranks = request.ranks or max(2, gpus)
        if gpus and ranks > gpus:
            raise UserError(f"{ranks} ranks on {gpus} GPUs", where="--ranks")
        say(f"collectives: {ranks} ranks on this machine")
        found = start_local(
            ranks,
            sweep,
            torch=torch,
            timeout_s=request.timeout_s,
            burden_rank=request.burden_rank,
        )
    if found is None:
        return
    if not found["cells"]:
        why = "; ".join(found["notes"]) or "no size between --min-bytes and --max-bytes is whole"
        raise UserError(f"no collective was measured: {why}", where="--op")
    run.collectives = found
    run.notes += [note for note in found["notes"] if note not in run.notes]
    software = run.software or {"python": platform.python_version()}
    run.rows += of_collectives(found, run.run_id, run.began_us, software)
    run.collective_rows = of_arrivals(found, run.run_id)
    run.software = software | {"collectives": found["library"]}


def _as_rank(place: Place, sweep: Sweep) -> dict[str, Any] | None:
    from steptax.benchmarks.hardware.torch_comm import TorchComm

    comm = TorchComm(
        importlib.import_module("torch"),
        rank=place.rank,
        size=place.size,
        local_rank=place.local_rank,
        init_method=place.init_method,
    )
    try:
        return run_rank(comm, sweep)
    finally:
        comm.close()


def _sweep(request: Request, *, on_gpu: bool) -> Sweep:
    """8 B to 8 GiB on GPUs; on CPUs to 4 MiB, and fewer iterations, so that it ends soon."""
    usual: dict[str, Any] = {"repeats": request.repeats}
    if not on_gpu:
        usual |= {"last_bytes": 4 << 20, "warmup": 2, "iterations": 10, "factor": 4}
    given = {n: getattr(request, n) for n in ("warmup", "iterations", "last_bytes", "factor")}
    return replace(request.sweep, **usual | {name: v for name, v in given.items() if v is not None})
