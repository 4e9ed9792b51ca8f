"""Whether a node is accepted: each figure against its first basis, and its Xid errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptax.app.compute.bench.bases import Basis, BasisKind, Figure, bases
from steptax.app.compute.bench.compare import (
    TIME_UNITS,
    Comparison,
    Status,
    best_value,
    compare,
    median_of,
    worst,
)
from steptax.app.compute.causes.xid import XidMeaning, xid_meaning
from steptax.app.compute.measure import Measure
from steptax.app.compute.spoken import spoken_ratio


@dataclass(frozen=True)
class Check:
    """One figure: its verdict by the first basis, and what the others say beside it."""

    figure: Figure
    status: Status
    basis: Basis | None
    comparison: Comparison | None
    reason: str
    others: tuple[tuple[Basis, Measure], ...] = ()
    """Further bases, with the gap to each."""


@dataclass(frozen=True)
class Acceptance:
    """A node (or all ranks) with its checks and Xids."""

    host: str
    status: Status
    sentence: str
    checks: tuple[Check, ...]
    xids: tuple[tuple[str, XidMeaning], ...]
    """Device and what the error means."""
    warnings: tuple[str, ...]


def accept(
    host: str,
    figures: Sequence[Figure],
    history: Sequence[Figure],
    xids: Sequence[tuple[str, int]] = (),
    baseline_run: str | None = None,
) -> Acceptance:
    """Judge the figures of one run on ``host``; ``xids`` are devices with their error codes."""
    best = _best_gemm(figures)
    checks = tuple(_check(f, history, baseline_run, best) for f in figures)
    meanings = tuple((device, xid_meaning(code)) for device, code in dict.fromkeys(xids))
    judged = [c.status for c in checks if c.comparison is not None]
    status = worst([*judged, *(m.status for _, m in meanings)])
    warnings = []
    compared = sum(c.comparison is not None and c.comparison.p is not None for c in checks)
    if compared >= 20:
        warnings.append(
            f"{compared} figures were tested at p <= 0.05: about {compared // 20} would reach it "
            "by chance if nothing differed; of those only gaps of more than 5 % count"
        )
    return Acceptance(
        host, status, _sentence(host, checks, meanings), checks, meanings, tuple(warnings)
    )


def _best_gemm(figures: Sequence[Figure]) -> Mapping[tuple[str, str, str], float]:
    """Best multiply of each device and type: a reference is of the best shape, not of each."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for f in figures:
        if f.test == "gemm":
            found.setdefault((*f.where, f.dtype), []).append(f.value)
    return {key: best_value(values, "TFLOP/s") for key, values in found.items()}


def _check(
    figure: Figure,
    history: Sequence[Figure],
    baseline_run: str | None,
    best: Mapping[tuple[str, str, str], float],
) -> Check:
    found = bases(figure, history, baseline_run)
    is_best = best.get((*figure.where, figure.dtype)) == figure.value
    if figure.test == "gemm" and not is_best:
        found = [b for b in found if b.kind is not BasisKind.REFERENCE]
    others = tuple((b, _gap(figure, b)) for b in found[1:])
    if not found:
        reason = "nothing to compare with: no earlier run, no fleet, no reference"
        return Check(figure, Status.UNCLEAR, None, None, reason)
    first = found[0]
    if first.kind is BasisKind.SPEC:
        share = 1 - (_gap(figure, first).value or 0.0)
        text = "more than there can be: check the unit" if share > 1 else "a spec is no threshold"
        reason = f"{spoken_ratio(share)} of the spec; {text}"
        return Check(figure, Status.UNCLEAR, first, None, reason, others)
    compared = compare(figure.repeats, first.values, figure.unit)
    return Check(figure, compared.status, first, compared, compared.reason, others)


def _gap(figure: Figure, basis: Basis) -> Measure:
    base = median_of(basis.values)
    ratio = base / figure.value if figure.unit in TIME_UNITS else figure.value / base
    return Measure(1 - ratio, "ratio")


def _sentence(host: str, checks: Sequence[Check], xids: Sequence[tuple[str, XidMeaning]]) -> str:
    judged = [c for c in checks if c.comparison is not None]
    grave = [m for _, m in xids if m.status is not Status.PASS]
    if not judged and not grave:
        return f"{host}: no verdict, since there is nothing to compare with yet"
    by = {status: sum(c.status is status for c in judged) for status in Status}
    parts = [f"{by[s]} {s}" for s in reversed(Status) if by[s]]
    parts += [f"Xid {m.xid}: {m.action}" for m in grave]
    verdict = worst([*(c.status for c in judged), *(m.status for _, m in xids)])
    return f"{host}: {verdict} ({', '.join(parts)} of {len(judged)} figures)"
