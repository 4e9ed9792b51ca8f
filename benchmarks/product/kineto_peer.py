"""The same analyses of a profiler trace here and in HolisticTraceAnalysis, side by side.

The peer runs in an interpreter of its own, which the user names; nothing of it is needed otherwise.
Each side reads each trace in a fresh process. Time is what the processor spent on loading the trace
(of a small one several times, of which the shortest counts) and, apart from it, on the temporal
breakdown and the overlap; memory is the peak of the process, and how much of that came after its
imports (Linux).

Of a small trace the peak is that of the imports, on both sides: here Python and NumPy, as looking
at a trace needs no Arrow, there pandas and more. Both find compiled bytecode.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CLOCK = """
import json, re, sys, time
from pathlib import Path
def peak_mib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
def begin():
    Path("/proc/self/clear_refs").write_text("5")  # The peak counts from here on.
    return peak_mib()
def best(load):  # Of several times where the trace is small: the first one warms up.
    least = None
    for _ in range(1 if Path(sys.argv[1]).stat().st_size > 4 << 20 else 5):
        found = None  # Else the one before would be held beside it.
        a = time.process_time()
        found = load()
        took = time.process_time() - a
        least = took if least is None else min(least, took)
    return found, least
"""
OURS = (
    _CLOCK
    + """
from steptax.app.compute.trace import breakdown as t
from steptax.app.views.profile.load import work_of_file
import steptax.connectors.kineto.reading
before = begin()
work, load = best(lambda: work_of_file(Path(sys.argv[1])))
b = time.process_time()
def told(device):
    found = t.time_breakdown(device)
    if found is None:
        return None
    return {
        "idle_us": found.idle_ns / 1e3, "compute_us": found.compute_ns / 1e3,
        "non_compute_us": found.non_compute_ns / 1e3, "overlap_ratio": found.overlap_ratio,
    }
exact = t.without_last_step(work.device, work.step_starts_ns)
out = {"exact": told(exact), "rounded": told(exact.in_whole_us())}
c = time.process_time()
print(json.dumps(out | {"load_s": load, "analyse_s": c - b, "peak_mib": peak_mib(),
                        "grew_mib": peak_mib() - before}))
"""
)
PEER = (
    _CLOCK
    + """
import logging, warnings
from importlib.metadata import version
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
before = begin()
found, load = best(lambda: TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/"))
b = time.process_time()
try:
    times = found.get_temporal_breakdown(visualize=False).iloc[0]
    overlap = found.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
    told = {
        "idle_us": float(times["idle_time(us)"]), "compute_us": float(times["compute_time(us)"]),
        "non_compute_us": float(times["non_compute_time(us)"]),
        "overlap_ratio": None if overlap != overlap else float(overlap) / 100,
    }
except IndexError:  # No device in the trace.
    told = None
c = time.process_time()
print(json.dumps({"told": told, "load_s": load, "analyse_s": c - b, "peak_mib": peak_mib(),
                  "grew_mib": peak_mib() - before, "version": version("HolisticTraceAnalysis"),
                  "pandas": version("pandas")}))
"""
)
#: Nanoseconds are kept here and rounded away there, unless its environment says otherwise.
_UNROUNDED = {"HTA_DISABLE_NS_ROUNDING": "1"}
#: The peer prints the overlap in hundredths of a percent.
_OVERLAP_STEP = 0.5e-4


@dataclass(frozen=True)
class Side:
    """What one side said of a trace; ``parts`` is None where it found no device."""

    parts: Mapping[str, float | None] | None
    load_s: float
    analyse_s: float
    peak_mib: float
    grew_mib: float


@dataclass(frozen=True)
class Duel:
    """One trace on both sides; ``exact`` without the peer's rounding, ``rounded`` with it."""

    path: Path
    ours_exact: Side
    ours_rounded: Side
    peer_exact: Side
    peer_rounded: Side
    peer_version: str

    @property
    def agree(self) -> bool:
        """Whether both say the same, to the microsecond, with the rounding and without it."""
        pairs = ((self.ours_exact, self.peer_exact), (self.ours_rounded, self.peer_rounded))
        return all(_same(ours.parts, peer.parts) for ours, peer in pairs)

    @property
    def times_faster(self) -> float:
        """How much longer the peer takes to load the trace."""
        return self.peer_rounded.load_s / self.ours_rounded.load_s

    @property
    def memory_share(self) -> float:
        """Peak of the process here, as a share of the peer's."""
        return self.ours_rounded.peak_mib / self.peer_rounded.peak_mib

    def lines(self) -> list[str]:
        """For people."""
        out = [f"{self.path.name} ({self.path.stat().st_size / 2**20:.1f} MiB)"]
        for title, ours, peer in (
            ("exact", self.ours_exact, self.peer_exact),
            ("whole microseconds", self.ours_rounded, self.peer_rounded),
        ):
            out.append(f"  {title}: here {_said(ours.parts)}")
            out.append(f"  {' ' * len(title)}  peer {_said(peer.parts)}")
        ours, peer = self.ours_rounded, self.peer_rounded
        out.append("  the same to the microsecond" if self.agree else "  THEY DIFFER")
        out.append(
            f"  load {ours.load_s:.3f} s here, {peer.load_s:.3f} s there: {self.times_faster:.1f} "
            f"times faster; analyse {ours.analyse_s:.3f} s, {peer.analyse_s:.3f} s"
        )
        out.append(
            f"  peak {ours.peak_mib:.0f} MiB here, {peer.peak_mib:.0f} MiB there: "
            f"{self.memory_share:.2f} of it; of it for the trace {ours.grew_mib:.0f} MiB, "
            f"{peer.grew_mib:.0f} MiB"
        )
        return out


class RefusedError(Exception):
    """A side does not read a trace; the text says which, and why."""


def duel(path: Path, peer_python: Path) -> Duel:
    """Both sides on ``path``; RefusedError where one does not read it."""
    with tempfile.TemporaryDirectory() as bytecode:
        keep = {"PYTHONPYCACHEPREFIX": bytecode}
        nothing = Path(bytecode) / "nothing.json"
        nothing.write_text('{"traceEvents": []}')
        for python, program in ((Path(sys.executable), OURS), (peer_python, PEER)):
            with contextlib.suppress(RefusedError):  # what was imported by then is compiled
                _run(python, program, nothing, keep)
        ours = _run(Path(sys.executable), OURS, path, keep)
        rounded = _run(peer_python, PEER, path, keep)
        exact = _run(peer_python, PEER, path, keep | _UNROUNDED)
    name = f"HolisticTraceAnalysis {rounded['version']} with pandas {rounded['pandas']}"
    return Duel(
        path,
        _side(ours, "exact"),
        _side(ours, "rounded"),
        _side(exact, "told"),
        _side(rounded, "told"),
        name,
    )


def _run(python: Path, program: str, path: Path, more: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-c", program, str(path.resolve())],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | more,
    )
    if done.returncode:
        side = "here" if program is OURS else "by the peer"
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise RefusedError(f"{path.name}: not read {side}: {last[0]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _side(found: Mapping[str, Any], parts: str) -> Side:
    names = ("load_s", "analyse_s", "peak_mib", "grew_mib")
    return Side(found[parts], *(found[name] for name in names))


def _same(ours: Mapping[str, float | None] | None, peer: Mapping[str, float | None] | None) -> bool:
    if ours is None or peer is None:
        return ours is peer
    for name, value in ours.items():
        other = peer[name]
        if value is None or other is None:
            if value is not other:
                return False
            continue
        limit = _OVERLAP_STEP + 1e-9 if name == "overlap_ratio" else 1.0
        if abs(value - other) > limit:
            return False
    return True


def _said(parts: Mapping[str, float | None] | None) -> str:
    if parts is None:
        return "no device"
    overlap = parts["overlap_ratio"]
    times = ", ".join(
        f"{name} {parts[f'{name}_us']:,.1f} us" for name in ("idle", "compute", "non_compute")
    )
    return f"{times}, overlap {'none' if overlap is None else f'{overlap:.2%}'}"
