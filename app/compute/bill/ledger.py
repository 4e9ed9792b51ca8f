"""Where the paid time of the recorded steps went: buckets that add up to it exactly.

Every report is cut, in whole microseconds, into its phases, its waiting, its transfer and what is
left; what is left has a bucket of its own, named after what it can hold given what was measured.
Buckets that were not measured are None, never zero. A report whose parts exceed its whole by more
than 1 % of it and 1 ms is refused; up to that, where clocks differ and digits are rounded, its
parts are cut to it evenly, so that no bucket is below zero and the sum holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from steptax.app.compute.bill.cost import exact_usd, split_to_cents, to_cents
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Flags, Floats, Ints, row_max
from steptax.app.compute.straggler.arrival import (
    Basis,
    BasisChoice,
    arrivals,
    choose_basis,
)
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import (
    PHASES,
    StepMatrix,
    accounted_us,
    inconsistent_cells,
    name_cell,
)
from steptax.app.errors import IntegrityError
from steptax.app.format import format_share

DEFAULT_RULES = StragglerRules()

TITLES = {
    "compute": "compute",
    "input": "input stall",
    "exposed_comm": "exposed communication",
    "pipeline_bubble": "pipeline bubble",
    "straggler_wait": "straggler wait",
    "checkpoint": "checkpoint",
    "h2d": "host-to-device copies",
    "gc": "garbage collector",
    "other": "other measured time",
    "collective": "collectives before they are joined",
    "host_gaps": "host and launch gaps",
    "comm_and_bubble": "communication and bubble, not separable without a dependency graph",
    "comm_and_gaps": "communication and host gaps, not separable without time in collectives",
    "unsplit": "step time that was not split into phases",
    "unrecorded": "ranks that did not report",
}
"""Bucket id to its name, in the order in which rows are listed."""


#: What parts exceed their reports by is told from one part in so many of the paid time on.
LEAST_TOLD = 10_000

#: A bucket below zero keeps its time, so that the sum holds, and is no share of anything.
OVERLAP = "negative: the measured parts overlap the steps by that much"


def share_of(part_us: Fraction | None, whole_us: Fraction) -> float | None:
    """``part_us`` of the whole; None of nothing, and of what is less than nothing."""
    if part_us is None or part_us < 0 or not whole_us:
        return None
    return float(part_us / whole_us)


@dataclass(frozen=True)
class LedgerRow:
    """One bucket."""

    bucket: str
    title: str
    gpu_us: Fraction | None
    """GPU-microseconds, exact; None when not measured."""
    share_ratio: float | None
    """Of the paid time; None where parts overlap so that the bucket is negative."""
    usd: Decimal | None
    """To the cent; None without a price."""
    note: str = ""
    is_rest: bool = False
    """What is left once the measured parts are taken out."""

    @property
    def gpu_seconds(self) -> float | None:
        """GPU-seconds, for showing; ``gpu_us`` is exact."""
        return None if self.gpu_us is None else float(self.gpu_us / 1_000_000)


@dataclass(frozen=True)
class Ledger:
    """All buckets of the recorded steps; the measured ones add up to ``paid_gpu_us``."""

    rows: tuple[LedgerRow, ...]
    paid_gpu_us: Fraction
    """GPU-microseconds, exact."""
    paid_usd: Decimal | None
    usd_per_gpu_hour: Decimal | None
    weight: Fraction
    """Paid ranks that one expected rank stands for."""
    basis: BasisChoice

    def __post_init__(self) -> None:
        """Refuse a ledger that does not close."""
        total = sum((r.gpu_us for r in self.rows if r.gpu_us is not None), Fraction(0))
        if total != self.paid_gpu_us:
            raise IntegrityError(f"buckets hold {total} of {self.paid_gpu_us} paid GPU-us")
        if self.paid_usd is not None:
            money = sum((r.usd for r in self.rows if r.usd is not None), Decimal(0))
            if money != self.paid_usd:
                raise IntegrityError(f"buckets cost {money} of {self.paid_usd} USD paid")

    @property
    def unexplained_ratio(self) -> Measure:
        """Share of the paid time that no measured part explains; missing where parts overlap."""
        if not self.paid_gpu_us:
            return Measure.missing("ratio", "all recorded durations are zero", level=self.level)
        left = sum((r.gpu_us for r in self.rows if r.is_rest and r.gpu_us), Fraction(0))
        if left < 0:
            return Measure.missing("ratio", OVERLAP, level=self.level)
        return Measure(
            float(left / self.paid_gpu_us), "ratio", level=self.level, inputs=self.basis.inputs
        )

    @property
    def level(self) -> Level:
        """Evidence level of the split."""
        return self.basis.level

    def row(self, bucket: str) -> LedgerRow | None:
        """The row called ``bucket``, or None when this ledger has none."""
        return next((row for row in self.rows if row.bucket == bucket), None)


def step_ledger(
    matrix: StepMatrix,
    usd_per_gpu_hour: Decimal | None,
    *,
    rules: StragglerRules = DEFAULT_RULES,
) -> Ledger:
    """The ledger of the recorded steps of ``matrix``, with money if there is a price.

    Normalised durations have shares but no money.

    Recorded ranks that stand for their group are weighted by world size / expected ranks. An
    expected rank that did not report a step was paid for all the same: as long as the longest
    report of that step, in bucket ``unrecorded``.

    Raises IntegrityError, naming step and rank, for a report whose parts exceed its whole (see
    ``steps.without_inconsistent``), and UserError for a price that is not positive.
    """
    bad = inconsistent_cells(matrix)
    if bad.any():
        excess = float((accounted_us(matrix) - matrix.duration_us)[bad][0])
        raise IntegrityError(
            f"the parts of this step exceed its duration by {excess:.0f} us",
            where=name_cell(matrix, bad),
            hint="phases and communication must be disjoint parts of the duration",
        )
    choice = choose_basis(matrix, rules)
    cut = _cut(matrix, choice)
    price = None if matrix.time_is_relative else usd_per_gpu_hour
    return _priced(cut, price, matrix.weight, choice)


@dataclass
class _Cut:
    """Whole microseconds per bucket over the recorded ranks, and what to say of them."""

    left: str
    """The bucket of what is left of a report."""
    us: dict[str, int | None]
    """None: not measured."""
    notes: dict[str, str]
    paid_us: int
    """Counted before anything is cut, so that the buckets can be checked against it."""

    def add(self, bucket: str, us: int) -> None:
        self.us[bucket] = (self.us.get(bucket) or 0) + us


def _whole(values: Floats, cells: Flags) -> Ints:
    """[S, R] whole microseconds; 0 outside of ``cells`` and where nothing was measured."""
    return np.rint(np.where(cells & ~np.isnan(values), values, 0.0)).astype(np.int64)


def _cut(matrix: StepMatrix, choice: BasisChoice) -> _Cut:
    """Cut every report into its buckets."""
    cut = _Cut(_left_over(matrix, choice), {}, {}, 0)
    for name in PHASES:
        # Few sources tell a collective from communication: no line without it.
        is_told = name in matrix.phases and (name == "compute" or not matrix.work_is_partial)
        if not is_told and name != "collective":
            cut.us[name] = None
    if choice.unknown is not None:
        cut.us["straggler_wait"], cut.notes["straggler_wait"] = None, choice.unknown
    over = missing = 0
    for _, part in matrix.parts():
        cut_over, unreported = _cut_part(cut, part, choice)
        over, missing = over + cut_over, missing + unreported
    if over * LEAST_TOLD > cut.paid_us:
        cut.notes[cut.left] = (
            "the parts of some reports exceed them, by "
            f"{format_share(over / max(cut.paid_us, 1))} in all: "
            "they are cut to their report"
        )
    cut.us.setdefault("exposed_comm", None)
    if missing:
        cut.notes["unrecorded"] = (
            f"{missing:,} reports are missing; each is counted as long as the longest "
            "report of its step"
        )
    _pipeline_bubble(cut, matrix)
    _remarks(cut, matrix, choice)
    return cut


def _cut_part(cut: _Cut, matrix: StepMatrix, choice: BasisChoice) -> tuple[int, int]:
    """Add some steps to ``cut``; by how much parts exceeded reports, how many reports lack."""
    arrived = arrivals(matrix, choice)
    reported = matrix.reported
    longest = np.rint(np.nan_to_num(row_max(matrix.duration_us))).astype(np.int64)
    split = reported & ~np.isnan(arrived.work_us)
    rest = _whole(matrix.duration_us, reported)
    if choice.basis in (Basis.PHASES, Basis.DURATION) and choice.unknown is None:
        # Here the duration may end before the barrier: the rank is paid until the last is ready.
        rest = np.where(reported, longest[:, None], 0)
    cut.paid_us += int(rest.sum())
    parts: dict[str, Ints] = {}

    def take(bucket: str, values: Floats) -> None:
        parts[bucket] = _whole(values, split)
        np.subtract(rest, parts[bucket], out=rest)

    for name in PHASES:
        if name in matrix.phases and (name == "compute" or not matrix.work_is_partial):
            take(name, matrix.phases[name])
    if choice.unknown is None:
        take("straggler_wait", arrived.wait_us)
    merged = matrix.has_pipeline and choice.basis is Basis.COMM
    if arrived.transfer_us is not None and choice.unknown is None:
        take("comm_and_bubble" if merged else "exposed_comm", arrived.transfer_us)
    over = _fit(parts, rest)
    for bucket, us in parts.items():
        cut.add(bucket, int(us.sum()))
    cut.add(cut.left, int(rest[split].sum()))
    if not split[reported].all():
        cut.add("unsplit", int(rest[~split].sum()))
    missing = matrix.expected_ranks - np.count_nonzero(reported, axis=1)
    if missing.any():
        cut.add("unrecorded", int((missing * longest).sum()))
        cut.paid_us += int((missing * longest).sum())
    return over, int(missing.sum())


def _fit(parts: Mapping[str, Ints], rest: Ints) -> int:
    """Cut the ``parts`` of each report to it where they exceed it, evenly, and its ``rest`` to 0.

    All are [S, R] whole microseconds and are changed in place. Returns by how much they did.
    """
    cells = rest < 0
    if not cells.any():
        return 0
    own = np.stack([us[cells] for us in parts.values()])
    total = own.sum(axis=0)
    wanted = total + rest[cells]
    fitted = np.floor(own * (wanted / total)).astype(np.int64)
    # What rounding leaves belongs to the largest part, of which it is the least share.
    fitted[fitted.argmax(axis=0), np.arange(len(wanted))] += wanted - fitted.sum(axis=0)
    for us, values in zip(parts.values(), fitted, strict=True):
        us[cells] = values
    rest[cells] = 0
    return int((total - wanted).sum())


def _left_over(matrix: StepMatrix, choice: BasisChoice) -> str:
    """The bucket for what is left of a report, named after what it can hold."""
    if choice.unknown is not None or "compute" not in matrix.phases:
        return "unsplit"
    if choice.basis is not Basis.PHASES or matrix.world_size == 1:
        return "host_gaps"
    return "comm_and_bubble" if matrix.has_pipeline else "comm_and_gaps"


def _pipeline_bubble(cut: _Cut, matrix: StepMatrix) -> None:
    """Without pipeline stages there is no bubble; with them only a graph separates it."""
    cut.us["pipeline_bubble"] = None
    if matrix.stage is None:
        cut.notes["pipeline_bubble"] = "the pipeline stage of the ranks is not known"
    elif matrix.has_pipeline:
        cut.notes["pipeline_bubble"] = "needs a dependency graph of the step (per-operation trace)"
    else:
        cut.us["pipeline_bubble"] = 0
        cut.notes["pipeline_bubble"] = "one pipeline stage"


def _remarks(cut: _Cut, matrix: StepMatrix, choice: BasisChoice) -> None:
    """What a reader must know of each bucket."""
    for bucket, value in cut.us.items():
        if value is None:
            holder = "comm_and_bubble" if "comm_and_bubble" in cut.us else cut.left
            where = holder if bucket == "exposed_comm" else cut.left
            cut.notes.setdefault(bucket, f"not measured; if any, it is in: {TITLES[where]}")
    if choice.unknown is None and matrix.has_pipeline:
        cut.notes["straggler_wait"] = "includes waiting for heavier pipeline stages"
    if choice.basis is Basis.COMM and cut.us["exposed_comm"] is not None:
        cut.notes["exposed_comm"] = "the least communication of any rank in each step"


def _priced(
    cut: _Cut, usd_per_gpu_hour: Decimal | None, weight: Fraction, choice: BasisChoice
) -> Ledger:
    """Rows in their order, with money that adds up to the cent."""
    held = {b: None if us is None else us * weight for b, us in cut.us.items()}
    known = {b: us for b in TITLES if (us := held.get(b)) is not None}
    paid = cut.paid_us * weight
    money: dict[str, Decimal] = {}
    paid_usd = None
    if usd_per_gpu_hour is not None:
        exact = [exact_usd(us / 1_000_000, usd_per_gpu_hour) for us in known.values()]
        money = dict(zip(known, split_to_cents(exact), strict=True))
        paid_usd = to_cents(exact_usd(paid / 1_000_000, usd_per_gpu_hour))
    rows = tuple(
        LedgerRow(
            bucket,
            title,
            held[bucket],
            share_of(known.get(bucket), paid),
            money.get(bucket),
            cut.notes.get(bucket, ""),
            is_rest=bucket in (cut.left, "unsplit", "unrecorded"),
        )
        for bucket, title in TITLES.items()
        if bucket in held
    )
    return Ledger(rows, paid, paid_usd, usd_per_gpu_hour, weight, choice)
