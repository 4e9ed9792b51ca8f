"""What sampling a node's devices costs: ``python -m steptax.benchmarks.product.nvml_agent``.

A real ``steptax watch nvml`` runs as a process of its own for ``--seconds`` after it has started,
on ``--devices`` devices each ``--interval-s`` seconds, into a lake on this disk. Its processor time
over that span is read from ``/proc`` (Linux), so interpreter, reader, rows, Parquet and looking for
a signal to stop are all in it; starting up is not, and is given apart.

The library is replaced at its boundary: every function of NVML answers at once, with the library's
own structures, as a device that has everything (18 links, ECC, MIG off). **What the real library
and its driver take for a call is not in the figure**: it is theirs, differs between drivers, and is
mostly waiting. The number of calls that the agent makes is printed, to be multiplied by it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from steptax.app.lake import Lake
from steptax.benchmarks.product import flags
from steptax.connectors.devices.nvml_calls import SLOW_EVERY
from steptax.connectors.devices.nvml_reader import NvmlReader

#: A node's agent may take this share of one core.
TARGET_RATIO = 0.01
#: Once it has stored its first samples it is at work as for days to come.
SETTLED = "*.parquet"
LINKS = 18
_FIELDS = {82: 60}
_PROCESS = """
import sys
from steptax.benchmarks.product.nvml_agent import Answers
sys.modules["pynvml"] = Answers({devices})
from steptax.app.cli import main
main()
"""


def _utilization() -> Any:
    found = pynvml.c_nvmlUtilization_t()
    found.gpu, found.memory = 98, 60
    return found


def _memory() -> Any:
    found = pynvml.c_nvmlMemory_t()
    found.total, found.used = 80 << 30, 71 << 30
    return found


def _fields(_handle: int, asked: list[int]) -> list[Any]:
    found = []
    for number in asked:
        value = pynvml.c_nvmlFieldValue_t()
        value.nvmlReturn, value.valueType = 0, 3
        value.value.ullVal = _FIELDS.get(number, 0)
        found.append(value)
    return found


class Answers:
    """NVML with ``devices`` healthy devices at work; power and energy move from call to call."""

    def __init__(self, devices: int) -> None:
        self.calls: Counter[str] = Counter()
        self._ticks = 0
        utilization, memory = _utilization(), _memory()
        self._answers: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "575.57.08",
            "nvmlDeviceGetCount": lambda: devices,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle:08x}-1111-2222-3333-444444444444",
            "nvmlDeviceGetName": lambda _: "NVIDIA H100 80GB HBM3",
            "nvmlEventSetCreate": lambda: "events",
            "nvmlDeviceRegisterEvents": lambda *_: None,
            "nvmlEventSetWait_v2": self._no_event,
            "nvmlDeviceGetUtilizationRates": lambda _: utilization,
            "nvmlDeviceGetMemoryInfo": lambda _: memory,
            "nvmlDeviceGetPowerUsage": lambda _: 600_000 + self._tick() % 7919,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: 10**12 + 600 * self._tick(),
            "nvmlDeviceGetTemperatureV": lambda *_: 62,
            "nvmlDeviceGetClockInfo": lambda _, kind: 1755 if kind == 1 else 2619,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 4,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 5,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: 5,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
            "nvmlDeviceGetTotalEccErrors": lambda *_: 0,
            "nvmlDeviceGetRemappedRows": lambda _: (0, 0, 0, 0),
            "nvmlDeviceGetMigMode": lambda _: [0, 0],
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=4711)],
            "nvmlDeviceGetFieldValues": _fields,
            "nvmlDeviceGetNvLinkState": self._link,
        }

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_answers", {}).get(name)
        if found is None:
            raise AttributeError(name)
        self.calls[name] += 1
        return found

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    @staticmethod
    def _no_event(*_: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)

    @staticmethod
    def _link(_handle: int, link: int) -> int:
        if link >= LINKS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return 1


@dataclass(frozen=True)
class Outcome:
    """What the agent took. ``core_ratio`` is of one core, over the span after its start."""

    devices: int
    interval_s: float
    span_s: float
    core_ratio: float
    start_cpu_s: float
    rows_stored: int
    resident_mb: float
    calls_per_s: float
    """Calls of the library at this interval, the mean over fast and slow samples."""
    bytes_per_row: float
    target_ratio: float = TARGET_RATIO
    not_in_it: str = "what the real library and its driver take for each call"


def calls_per_sample(devices: int) -> float:
    """Calls of the library for one sample, the mean over as many as slow values hold for."""
    nvml = Answers(devices)
    reader = NvmlReader(nvml, "node", lambda: time.time_ns() // 1000)
    reader.sample()
    # The first sample also asks for links that are not there; the next ten are the usual ones.
    nvml.calls.clear()
    for _ in range(SLOW_EVERY):
        reader.sample()
    return sum(nvml.calls.values()) / SLOW_EVERY


def measure(
    devices: int, interval_s: float, seconds: float, folder: Path, *, sign: str = SETTLED
) -> Outcome:
    """Let the agent run for ``seconds`` after its start, with its lake in ``folder``.

    A file in it like ``sign`` shows that it has started.
    """
    lake = folder / "lake"
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _PROCESS.format(devices=devices), "watch", "nvml"),
            *("--lake", str(lake), "--host", "node", "--interval", str(interval_s), "--json"),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not list(lake.rglob(sign)):
            if process.poll() is not None:
                raise RuntimeError(f"the agent left with {process.returncode}")
            time.sleep(0.05)
        begin_s, before_s = time.monotonic(), _cpu_s(process.pid)
        time.sleep(seconds)
        span_s, after_s = time.monotonic() - begin_s, _cpu_s(process.pid)
        resident = _resident_mb(process.pid)
    finally:
        process.terminate()
        process.wait()
    found = Lake(lake)
    rows = found.read("device_samples").num_rows
    size = sum(segment.path.stat().st_size for segment in found.segments("device_samples"))
    return Outcome(
        devices=devices,
        interval_s=interval_s,
        span_s=round(span_s, 2),
        core_ratio=round((after_s - before_s) / span_s, 5),
        start_cpu_s=round(before_s, 2),
        rows_stored=rows,
        resident_mb=round(resident, 1),
        calls_per_s=round(calls_per_sample(devices) / interval_s, 1),
        bytes_per_row=round(size / max(1, rows), 1),
    )


def _cpu_s(pid: int) -> float:
    """Processor seconds that a process took up to now."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def main(arguments: list[str] | None = None) -> int:
    """Command line: 0 where the agent keeps to its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=flags.count, default=8)
    parser.add_argument("--interval-s", type=flags.amount, default=1.0)
    parser.add_argument("--seconds", type=flags.amount, default=60.0)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="steptax-nvml-") as folder:
        outcome = measure(args.devices, args.interval_s, args.seconds, Path(folder))
    print(json.dumps(asdict(outcome), indent=1))
    return 0 if outcome.core_ratio < TARGET_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
