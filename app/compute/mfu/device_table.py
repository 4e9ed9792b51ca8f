"""The table of devices, and which row a reported name means.

The table is data: ``data/devices.csv``, one row per device and form factor, dense peaks only (no
structured sparsity), links in one direction, each row with its source. Fields named in a row's
``unverified`` come from memory of the literature: they may be used with a warning, never cited.

A name is matched whole, never by a part of it, and there is no default: "H100" alone could be an
SXM, a PCIe or an NVL part, whose peaks differ by a third, so it is refused with the candidates.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from steptax.app.errors import NotFoundError

_TABLE = Path(__file__).parents[1] / "data" / "devices.csv"
_SEPARATORS = re.compile(r"[\s_\-/]+")

#: Matrix-multiply precisions of the table.
DTYPES = ("bf16", "fp16", "tf32", "fp8")
_SPELLINGS = {
    "bf16": "bf16|bfloat16|torch.bfloat16|bf16-mixed|bf16-true|bf16_mixed",
    "fp16": "fp16|float16|half|torch.float16|16-mixed|16-true|fp16-mixed",
    "tf32": "tf32|tensorfloat32|tensorfloat-32",
    "fp8": "fp8|float8|e4m3|float8_e4m3fn|fp8_e4m3|8-mixed|mxfp8|fp8-mixed",
}
_DTYPE_OF = {name: dtype for dtype, names in _SPELLINGS.items() for name in names.split("|")}


@dataclass(frozen=True)
class Device:
    """One row of the table; None where no source states a value.

    Peaks and achievable rates are for one device as the key names it, in TFLOP/s. ``mamf``:
    maximum achievable matrix-multiply rate, the best shape that was measured.
    """

    key: str
    vendor: str
    name: str
    form_factor: str
    peak_tflops: dict[str, float]
    """Dense peak by precision."""
    mamf_tflops: dict[str, float]
    """Measured achievable rate by precision."""
    hbm_gb: float | None
    hbm_tb_per_s: float | None
    scale_up_gb_per_s: float | None
    """Links to the peers of the node, one direction."""
    tdp_w: float | None
    spec_clock_mhz: float | None
    """Clock at which the peak is stated."""
    unverified: frozenset[str]
    """Columns that were not checked against a source."""
    counting: str
    """What a device is, where frameworks count otherwise."""
    note: str
    source: str
    names: tuple[re.Pattern[str], ...]
    ambiguous: tuple[re.Pattern[str], ...]


@dataclass(frozen=True)
class Identity:
    """Which device a name means: one, or none with ``reason`` and the ``candidates``."""

    device: Device | None
    candidates: tuple[str, ...] = ()
    reason: str | None = None


def _number(text: str) -> float | None:
    return float(text) if text else None


def _patterns(text: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(part) for part in text.split(";") if part)


def _by_dtype(row: dict[str, str], prefix: str) -> dict[str, float]:
    found = {dtype: _number(row.get(f"{prefix}{dtype}_tflops", "")) for dtype in DTYPES}
    return {dtype: value for dtype, value in found.items() if value is not None}


@cache
def devices() -> tuple[Device, ...]:
    """All rows, in the order of the table."""
    with _TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(
            Device(
                key=row["key"],
                vendor=row["vendor"],
                name=row["name"],
                form_factor=row["form_factor"],
                peak_tflops=_by_dtype(row, ""),
                mamf_tflops=_by_dtype(row, "mamf_"),
                hbm_gb=_number(row["hbm_gb"]),
                hbm_tb_per_s=_number(row["hbm_tb_per_s"]),
                scale_up_gb_per_s=_number(row["scale_up_gb_per_s"]),
                tdp_w=_number(row["tdp_w"]),
                spec_clock_mhz=_number(row["spec_clock_mhz"]),
                unverified=frozenset(filter(None, row["unverified"].split(";"))),
                counting=row["counting"],
                note=row["note"],
                source=row["source"],
                names=_patterns(row["names"]),
                ambiguous=_patterns(row["ambiguous"]),
            )
            for row in csv.DictReader(file)
        )


def _plain(name: str) -> str:
    """Lower case, separators as one space: "NVIDIA-H100-80GB-HBM3" as a label prints it."""
    return _SEPARATORS.sub(" ", name.lower().replace("(r)", "").replace("(tm)", "")).strip()


def device(key: str) -> Device:
    """The row with this key.

    Raises:
        NotFoundError: there is none.
    """
    for row in devices():
        if row.key.lower() == key.lower():
            return row
    known = ", ".join(row.key for row in devices())
    raise NotFoundError(f"no device {key!r} in the table", where="device", hint=known)


def identify(name: str | None) -> Identity:
    """The device that ``name`` means: a key of the table, or a name as the device reports itself.

    Spaces, hyphens and underscores count alike, as does case. A name that fits several rows, or
    that does not say whether it counts a package or a die, gives no device but the candidates.
    """
    if name is None or not name.strip():
        return Identity(None, reason="no device name is known")
    plain = _plain(name)
    exact = [
        row
        for row in devices()
        if plain == _plain(row.key) or any(p.fullmatch(plain) for p in row.names)
    ]
    if len(exact) == 1:
        return Identity(exact[0])
    maybe = exact or [r for r in devices() if any(p.fullmatch(plain) for p in r.ambiguous)]
    if maybe:
        keys = tuple(row.key for row in maybe)
        return Identity(
            None, keys, f"{name!r} does not say which device it is: {' or '.join(keys)}"
        )
    if re.search(r"\bmig\b", plain):
        return Identity(
            None, reason=f"{name!r} is a slice of a device, which has no peak of its own"
        )
    return Identity(None, reason=f"{name!r} is not in the table of devices")


def canonical_dtype(dtype: str | None) -> str | None:
    """``bf16``, ``fp16``, ``tf32`` or ``fp8`` for the usual spellings; None for anything else."""
    return None if dtype is None else _DTYPE_OF.get(dtype.strip().lower())
