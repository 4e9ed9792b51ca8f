"""The peak that a utilisation is measured against, with all that a reader must know of it.

Every peak is dense. A figure "with sparsity" is twice the dense one and is converted once, here;
a figure that does not say which of the two it is is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from steptax.app.compute.mfu.device_table import Device, canonical_dtype, identify
from steptax.app.compute.stats.positive import require_positive
from steptax.app.errors import UserError

#: How closely a ratio must meet 2 or 1/2 to be taken for the sparse-for-dense mistake.
_TWICE_TOLERANCE = 0.02
#: By how much a stated peak may differ from the table before a warning.
_AGREE_TOLERANCE = 0.02


class Basis(StrEnum):
    """What a stated peak counts."""

    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True)
class Peak:
    """Dense peak of one device in TFLOP/s, or the reason why none is known."""

    dtype: str
    tflops: float | None
    device: str | None = None
    """Key in the table of devices; None for a peak that a person gave."""
    achievable_tflops: float | None = None
    """Best matrix-multiply rate that was measured on such a device (MAMF)."""
    source: str = ""
    warnings: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def flops_per_s(self) -> float | None:
        """The peak in FLOP/s."""
        return None if self.tflops is None else self.tflops * 1e12


def _warnings(row: Device, dtype: str) -> tuple[str, ...]:
    said = []
    if f"{dtype}_tflops" in row.unverified:
        said.append(f"the {dtype} peak of {row.key} is not checked against a source")
    if row.counting:
        said.append(f"{row.key}: {row.counting}")
    return tuple(said)


def peak(name: str | None, dtype: str | None) -> Peak:
    """Dense peak of the device called ``name`` at a precision, from the table.

    Without a device, a precision or a table entry there is no peak, only the reason: a peak
    borrowed from another device gives a utilisation that is several times off.
    """
    found = identify(name)
    canonical = canonical_dtype(dtype)
    shown = canonical or dtype or "unknown"
    if found.device is None:
        return Peak(shown, None, reason=found.reason)
    row = found.device
    if canonical is None:
        why = "the precision is not known" if dtype is None else f"no peaks for precision {dtype!r}"
        return Peak(shown, None, row.key, reason=why)
    tflops = row.peak_tflops.get(canonical)
    if tflops is None:
        return Peak(canonical, None, row.key, reason=f"no {canonical} peak of {row.key} is known")
    return Peak(
        canonical,
        tflops,
        row.key,
        row.mamf_tflops.get(canonical),
        row.source,
        _warnings(row, canonical),
    )


def peak_at_clock(name: str | None, dtype: str | None, clock_mhz: float) -> Peak:
    """The peak at the clock that the device really runs: peak * clock / clock of the peak.

    clock * multiply-adds per clock and unit * 2 * units, so it scales with the clock. None where
    the table does not know at which clock the peak is stated.

    Raises:
        UserError: the clock is not positive.
    """
    require_positive(clock_mhz=clock_mhz)
    full = peak(name, dtype)
    row = identify(name).device
    if full.tflops is None or row is None:
        return full
    if row.spec_clock_mhz is None:
        reason = f"the clock at which the peak of {row.key} is stated is not known"
        return dataclasses.replace(full, tflops=None, achievable_tflops=None, reason=reason)
    scale = clock_mhz / row.spec_clock_mhz
    said = f"at {clock_mhz:g} MHz; the peak of {full.tflops:g} TFLOP/s is stated at "
    return dataclasses.replace(
        full,
        tflops=full.tflops * scale,
        achievable_tflops=None,
        warnings=(*full.warnings, f"{said}{row.spec_clock_mhz:g} MHz"),
    )


def mixed_peak(parts: Sequence[tuple[Peak, float]]) -> Peak:
    """One peak for work that mixes precisions; ``parts`` are peaks with their share of the FLOPs.

    1 / sum(share / peak): the rate at which all the work would go if each part ran at its own
    peak. Without one of the peaks there is none, and why; the same for the achievable rates.

    Raises:
        UserError: shares that are negative or do not sum to 1.
    """
    shares = [share for _, share in parts]
    if not parts or min(shares) < 0 or abs(math.fsum(shares) - 1) > 1e-9:
        raise UserError(f"must be shares that sum to 1, not {shares}", where="shares")
    used = [(part, share) for part, share in parts if share > 0]
    if len(used) == 1:
        return used[0][0]
    dtype = "+".join(part.dtype for part, _ in used)
    device = used[0][0].device
    lacking = next((part for part, _ in used if part.tflops is None), None)
    if lacking is not None:
        return Peak(dtype, None, device, reason=lacking.reason)
    achievable: float | None = None
    if all(part.achievable_tflops is not None for part, _ in used):
        achievable = 1 / math.fsum(share / (part.achievable_tflops or 1) for part, share in used)
    return Peak(
        dtype,
        1 / math.fsum(share / (part.tflops or 1) for part, share in used),
        device,
        achievable,
        "; ".join(dict.fromkeys(part.source for part, _ in used)),
        tuple(dict.fromkeys(text for part, _ in used for text in part.warnings)),
    )


def given_peak(
    tflops: float, basis: str | None, dtype: str | None, device_name: str | None = None
) -> Peak:
    """A peak that a person or a catalogue states, as a dense one.

    ``basis`` is ``dense`` or ``sparse`` (halved here, once); None gives no peak. If the device is
    known too, a value that is twice or half of the table's is pointed out.

    Raises:
        UserError: the value is not positive, or the basis is another word.
    """
    require_positive(peak_tflops=tflops)
    canonical = canonical_dtype(dtype) or dtype or "unknown"
    row = identify(device_name).device
    key = row.key if row else None
    if basis is None or not basis.strip():
        reason = "catalogue row has no basis: dense or with sparsity differs by a factor of two"
        return Peak(canonical, None, key, reason=reason)
    try:
        kind = Basis(basis.strip().lower())
    except ValueError:
        raise UserError(f"no basis {basis!r}", where="basis", hint="dense or sparse") from None
    dense = tflops / 2 if kind is Basis.SPARSE else tflops
    warnings: tuple[str, ...] = ()
    known = row.peak_tflops.get(canonical) if row else None
    if known is not None:
        warnings = _compare(dense, known, f"{key} at {canonical}")
    achievable = row.mamf_tflops.get(canonical) if row else None
    return Peak(canonical, dense, key, achievable, "given", warnings)


def _compare(given: float, known: float, what: str) -> tuple[str, ...]:
    """What a given dense peak says next to the one in the table."""
    ratio = given / known
    if abs(ratio - 2) <= 2 * _TWICE_TOLERANCE:
        return (f"{given:g} TFLOP/s is twice the dense peak of {what} ({known:g}): with sparsity?",)
    if abs(ratio - 0.5) <= 0.5 * _TWICE_TOLERANCE:
        return (f"{given:g} TFLOP/s is half the dense peak of {what} ({known:g}): halved twice?",)
    if abs(ratio - 1) > _AGREE_TOLERANCE:
        return (f"{given:g} TFLOP/s is not the dense peak of {what}, which is {known:g}",)
    return ()


def link_warnings(gb_per_s: float, device_name: str | None) -> tuple[str, ...]:
    """What to say of a stated link speed: "900 GB/s" of an H100 counts both directions.

    Raises:
        UserError: the speed is not positive.
    """
    require_positive(link_gb_per_s=gb_per_s)
    row = identify(device_name).device
    one_way = row.scale_up_gb_per_s if row else None
    if row and one_way and abs(gb_per_s / one_way - 2) <= 2 * _TWICE_TOLERANCE:
        return (
            f"{gb_per_s:g} GB/s is twice what {row.key} moves in one direction ({one_way:g}): "
            "both directions together?",
        )
    return ()
