"""The parts of steps that count, from per-rank records, in the buckets of the whole bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from steptax.app.compute.bill.executions import Executions
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.bill.ledger import TITLES, Ledger, step_ledger
from steptax.app.compute.measure import Level
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.compute.straggler.arrival import Basis, arrivals
from steptax.app.compute.straggler.steps import (
    StepMatrix,
    accounted_us,
    name_cell,
    without_inconsistent,
)
from steptax.app.errors import IntegrityError, UserError

#: Buckets of the ledger of recorded steps to those of the whole bill; others keep their name.
_RENAMED = {
    "h2d": "host_gaps",
    "gc": "host_gaps",
    "other": "host_gaps",
    "collective": "host_gaps",
    "unsplit": "step_unsplit",
    "unrecorded": "ranks_unrecorded",
}
_LEFT = ("host_gaps", "comm_and_bubble", "comm_and_gaps")


@dataclass(frozen=True)
class Pipeline:
    """Sizes that fix the bubble of a pipeline schedule."""

    stages: int
    micro_batches: int
    chunks: int = 1
    """Virtual stages per stage."""

    @property
    def bubble_ratio(self) -> Fraction:
        """Bubble / whole step: (p - 1) / (v m + p - 1) (Narayanan et al., SC'21)."""
        idle = self.stages - 1
        return Fraction(idle, self.chunks * self.micro_batches + idle)


@dataclass(frozen=True, eq=False)
class StepSplit:
    """The parts of some executions that count."""

    places: Ints
    """[K] positions of the executions."""
    room_us: Ints
    """[K] time of a step that none of its ranks accounts for."""
    reports: Ints
    """[K] ranks that reported the step."""
    parts: dict[str, Fraction]
    """Bucket to GPU-microseconds, exact."""
    missing: dict[str, str]
    """Bucket that was not measured to the reason."""
    notes: dict[str, str]
    left: str
    """Bucket of what the measured parts leave over."""
    expected_ranks: int
    weight: Fraction
    """Paid ranks that one expected rank stands for."""
    level: Level
    findings: tuple[Finding, ...]

    @property
    def unsplit_ratio(self) -> Fraction:
        """Share of the time in reports that were not split."""
        total = sum(self.parts.values(), Fraction(0))
        if "compute" not in self.parts or self.left == "step_unsplit" or not total:
            return Fraction(0)
        return self.parts.get("step_unsplit", Fraction(0)) / total

    @property
    def unrecorded_ratio(self) -> Fraction:
        """Share of the time of ranks that did not report."""
        total = sum(self.parts.values(), Fraction(0))
        return self.parts.get("ranks_unrecorded", Fraction(0)) / total if total else Fraction(0)

    def without(self, taken_us: Ints) -> dict[str, Fraction]:
        """The parts when events took ``taken_us`` [K] out of what they left over."""
        parts = dict(self.parts)
        for bucket, ranks in (
            (self.left, self.reports),
            ("ranks_unrecorded", self.expected_ranks - self.reports),
        ):
            off = int((taken_us * ranks).sum()) * self.weight
            if off:
                parts[bucket] = parts.get(bucket, Fraction(0)) - off
        return parts


def split_steps(
    matrices: Sequence[StepMatrix], steps: Executions, pipeline: Pipeline | None = None
) -> list[StepSplit]:
    """The parts of the executions of ``steps`` that count and that ``matrices`` hold.

    Rows of other steps are left out, and so are reports whose parts exceed their whole, by name.
    With a ``pipeline`` and measured waits the structural bubble is told from waiting for
    stragglers: per rank and step the smaller of its wait and the bubble of the step.

    Raises:
        UserError: durations are normalised, so that they are no time.
        IntegrityError: two matrices hold the same step.
    """
    kept = np.flatnonzero(~steps.lost)
    by_step = dict(zip(steps.step[kept].tolist(), kept.tolist(), strict=True))
    seen: set[int] = set()
    splits = []
    for matrix in matrices:
        if matrix.time_is_relative:
            raise UserError("durations are normalised: shares hold, time and money do not")
        if twice := seen & (numbers := set(matrix.steps.tolist())):
            raise IntegrityError(f"step {min(twice)} is in two windows of the same job")
        seen |= numbers
        rows = np.array([k for k, s in enumerate(matrix.steps.tolist()) if s in by_step], dtype=int)
        if len(rows):
            part = matrix.select(rows, np.arange(len(matrix.ranks)))
            part = part.expecting(matrix.expected_ranks)
            places = np.array([by_step[s] for s in part.steps.tolist()], dtype=np.int64)
            splits.append(_split(part, places, steps, pipeline))
    return sorted(splits, key=lambda split: int(split.places.min()))


def _split(
    matrix: StepMatrix, places: Ints, steps: Executions, pipeline: Pipeline | None
) -> StepSplit:
    sound, bad = without_inconsistent(matrix)
    findings = []
    if bad.any():
        text = (
            f"{int(bad.sum()):,} reports have parts that exceed their duration and are left out, "
            f"the first is {name_cell(matrix, bad)}"
        )
        findings.append(Finding("rejected", text))
    ledger = step_ledger(sound, None)
    parts: dict[str, Fraction] = {}
    missing, notes = {}, {}
    for row in ledger.rows:
        bucket = _RENAMED.get(row.bucket, row.bucket)
        if row.gpu_us is not None:
            parts[bucket] = parts.get(bucket, Fraction(0)) + row.gpu_us
            if row.note:
                notes[bucket] = row.note
        elif bucket == row.bucket:
            missing[bucket] = row.note
    _bubble(sound, ledger, pipeline, parts, missing, notes)
    left = next((b for b in _LEFT if (r := ledger.row(b)) and r.is_rest), "step_unsplit")
    missing.setdefault("host_gaps", f"if any, they are in: {TITLES.get(left, TITLES['unsplit'])}")
    for bucket in parts:
        missing.pop(bucket, None)
    return StepSplit(
        places,
        np.minimum(_room(sound), steps.duration_us[places]),
        np.count_nonzero(sound.reported, axis=1).astype(np.int64),
        parts,
        missing,
        notes,
        left,
        sound.expected_ranks,
        sound.weight,
        ledger.level,
        tuple(findings),
    )


def _room(matrix: StepMatrix) -> Ints:
    """[S] whole microseconds that the rank with the fullest report does not account for.

    A step that reports a checkpoint of its own has none: its save is counted there.
    """
    least = np.empty(len(matrix.steps))
    for rows, part in matrix.parts():
        open_us = part.duration_us - accounted_us(part)
        least[rows] = np.where(np.isnan(open_us), np.inf, open_us).min(axis=1, initial=np.inf)
    saves = matrix.phases.get("checkpoint")
    if saves is not None:
        least = np.where(np.nan_to_num(saves).max(axis=1) > 0, 0.0, least)
    least = np.where(np.isinf(least), 0.0, least)
    # Parts are counted in whole microseconds, and may so be half of one longer each.
    more = (matrix.wait_us, matrix.transfer_us, matrix.comm_us)
    parts = [matrix.duration_us, *matrix.phases.values(), *(us for us in more if us is not None)]
    is_whole = all(_is_whole(us[k]) for us in parts for k in range(len(us)))
    margin = 0.0 if is_whole else len(parts) / 2
    return np.floor(np.maximum(least - margin, 0.0)).astype(np.int64)


def _is_whole(values: Floats) -> bool:
    """Whether all that is known of ``values`` are whole numbers."""
    return bool(((values == np.rint(values)) | np.isnan(values)).all())


def _bubble(
    matrix: StepMatrix,
    ledger: Ledger,
    pipeline: Pipeline | None,
    parts: dict[str, Fraction],
    missing: dict[str, str],
    notes: dict[str, str],
) -> None:
    """Move the structural bubble out of the measured waits, where both are known."""
    if not matrix.has_pipeline:
        return
    if ledger.basis.basis is not Basis.WAIT or ledger.basis.unknown is not None:
        return
    if pipeline is None:
        missing["pipeline_bubble"] = (
            "not told from waiting for stragglers: micro-batches per step are not known"
        )
        return
    arrived = arrivals(matrix, ledger.basis)
    bubble = arrived.step_us[:, None] * float(pipeline.bubble_ratio)
    waits = np.minimum(arrived.wait_us, bubble)
    whole = int(np.rint(np.nan_to_num(waits)).astype(np.int64).sum()) * matrix.weight
    whole = min(whole, parts["straggler_wait"])  # waits may have been cut to their reports
    parts["pipeline_bubble"] = whole
    parts["straggler_wait"] -= whole
    notes["pipeline_bubble"] = (
        "waiting up to the structural bubble of the schedule, (p - 1) / (v m + p - 1) of a step"
    )
    notes.pop("straggler_wait", None)
