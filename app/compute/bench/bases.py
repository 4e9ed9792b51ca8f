"""What a benchmark figure is held against: own baseline, fleet median, reference, spec."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from steptax.app.compute.bench.compare import median_of
from steptax.app.compute.mfu.device_table import Device, identify

_DATA = Path(__file__).parents[1] / "data"
#: Other devices that make a fleet.
LEAST_FLEET = 3
#: From which size on an all-reduce shows bandwidth.
_LARGE_BYTES = 1 << 30


class BasisKind(StrEnum):
    """In the order in which they are asked for."""

    BASELINE = "own baseline"
    FLEET = "fleet median"
    REFERENCE = "reference"
    SPEC = "spec"


@dataclass(frozen=True)
class Basis:
    """Values to compare with; one value has no spread. A spec is never reached: it is a share."""

    kind: BasisKind
    values: tuple[float, ...]
    source: str


@dataclass(frozen=True)
class Figure:
    """One figure of a device, or of all ranks of a collective."""

    run_id: str
    host: str
    device_id: str
    device_model: str | None
    test: str
    size: str
    dtype: str
    unit: str
    repeats: tuple[float, ...]
    """Median of each repeat; a single value where its source gives no spread."""
    measured_at_us: int
    ranks: int | None = None
    nodes: int | None = None
    library: str | None = None
    """What computed or moved the data, with its version."""
    backend: str | None = None
    """``cuda``, ``rocm`` or ``cpu``."""

    @property
    def what(self) -> tuple[str, str, str, str, int | None, int | None]:
        """Figures that may be compared have this in common."""
        return self.test, self.size, self.dtype, self.unit, self.ranks, self.nodes

    @property
    def where(self) -> tuple[str, str]:
        """Host and device."""
        return self.host, self.device_id

    @property
    def value(self) -> float:
        """The headline."""
        return median_of(self.repeats)


def bases(own: Figure, history: Sequence[Figure], baseline_run: str | None = None) -> list[Basis]:
    """The bases that there are for ``own``, in their order.

    The baseline is ``baseline_run``, else the device's oldest other run; the fleet are the newest
    runs of at least three other devices of the same model.
    """
    same = [f for f in history if f.what == own.what and f.run_id != own.run_id]
    found = [_baseline(own, same, baseline_run), _fleet(own, same), _reference(own), _spec(own)]
    return [basis for basis in found if basis is not None]


def _baseline(own: Figure, same: Sequence[Figure], run_id: str | None) -> Basis | None:
    mine = [f for f in same if f.where == own.where and run_id in (None, f.run_id)]
    earlier = [f for f in mine if f.measured_at_us < own.measured_at_us or run_id is not None]
    if not earlier:
        return None
    first = min(earlier, key=lambda f: f.measured_at_us)
    return Basis(BasisKind.BASELINE, first.repeats, f"run {first.run_id}")


def _fleet(own: Figure, same: Sequence[Figure]) -> Basis | None:
    newest: dict[tuple[str, str], Figure] = {}
    for figure in sorted(same, key=lambda f: f.measured_at_us):
        if figure.where != own.where and figure.device_model == own.device_model:
            newest[figure.where] = figure
    if len(newest) < LEAST_FLEET:
        return None
    values = tuple(f.value for f in newest.values())
    return Basis(BasisKind.FLEET, values, f"median of {len(newest)} other devices")


@cache
def _references() -> tuple[dict[str, str], ...]:
    with (_DATA / "bench_reference.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@cache
def _busbw_references() -> tuple[dict[str, str], ...]:
    with (_DATA / "busbw_reference.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def _reference(own: Figure) -> Basis | None:
    device = identify(own.device_model).device
    if device is None:
        return None
    for row in _references():
        if (row["device"], row["test"], row["dtype"], row["unit"]) == (
            device.key,
            own.test,
            own.dtype,
            own.unit,
        ):
            return Basis(BasisKind.REFERENCE, (float(row["value"]),), row["source"])
    if own.test == "gemm" and own.dtype in device.mamf_tflops:
        best = device.mamf_tflops[own.dtype]
        return Basis(BasisKind.REFERENCE, (best,), f"best shape (MAMF): {device.source}")
    return _busbw_reference(own, device)


def _busbw_reference(own: Figure, device: Device) -> Basis | None:
    if not own.test.endswith(" busbw") or not own.size.isdecimal():
        return None
    if int(own.size) < _LARGE_BYTES:
        return None
    rows = [
        row
        for row in _busbw_references()
        if row["device"] == device.key
        and row["collective"] == own.test.removesuffix(" busbw")
        and (row["nodes"], row["ranks"]) == (str(own.nodes), str(own.ranks))
    ]
    if not rows:
        return None
    # Which algorithm ran is not known here: the slower one is what can be asked for.
    least = min(rows, key=lambda row: float(row["busbw_gb_per_s"]))
    text = f"{least['algorithm'] or 'any algorithm'}: {least['source']}"
    return Basis(BasisKind.REFERENCE, (float(least["busbw_gb_per_s"]),), text)


def _spec(own: Figure) -> Basis | None:
    device = identify(own.device_model).device
    if device is None:
        return None
    value: float | None = None
    if own.test == "gemm":
        value = device.peak_tflops.get(own.dtype)
    elif own.test.startswith("memory ") and device.hbm_tb_per_s is not None:
        value = device.hbm_tb_per_s * 1e3
    elif own.test.startswith("link d2d"):
        value = device.scale_up_gb_per_s
    return None if value is None else Basis(BasisKind.SPEC, (value,), device.source)
