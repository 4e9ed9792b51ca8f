"""The bill of one job: every GPU-second that was paid, in exactly one bucket.

Buckets 0 to 13 and their order follow the additive reading of ML Productivity Goodput (Google,
2024) and of ETTR (ByteRobust, SOSP'25): outside of steps by the clock (``timeline``), inside of
steps by what ranks measured (``ledger``), and inside of computing by model FLOPs. What nothing
tells apart stays together in a coarser bucket that says so, and the rest has a bucket of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from steptax.app.compute.bill.attempt_layer import Cover
from steptax.app.compute.bill.attempts import History, history
from steptax.app.compute.bill.cost import exact_usd
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR, Denominator
from steptax.app.compute.bill.instep import Inner, inner_buckets
from steptax.app.compute.bill.job_events import BREAKS, SAVE, Finding, Rows
from steptax.app.compute.bill.paid_time import idle_time, join, without_taken
from steptax.app.compute.bill.step_split import Pipeline, StepSplit, split_steps
from steptax.app.compute.bill.timeline import Allocation, Painted, Timeline, held, paint
from steptax.app.compute.bill.waterfall_rows import Labels, Source, Waterfall, amounts, make_rows
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.mfu.step_flops import StepFlops
from steptax.app.compute.straggler.steps import StepMatrix
from steptax.app.errors import IntegrityError, NotFoundError, UserError

_US_PER_S = 1_000_000


def job_ledger(
    job: Mapping[str, Any],
    events: Rows,
    steps_summary: Rows | None,
    *,
    matrices: Sequence[StepMatrix] = (),
    flops: StepFlops | None = None,
    paid: Sequence[Allocation] | None = None,
    allocations: Sequence[Allocation] | None = None,
    taken: Sequence[Allocation] = (),
    denominator: Denominator = Denominator.PAID,
    usd_per_gpu_hour: Decimal | None = None,
    until_us: int | None = None,
    resources: Collection[str] = (),
) -> Waterfall:
    """The waterfall of one job, exact in GPU-microseconds and closing to the cent.

    What a view must pass:

    ``job``            its row of the ``jobs`` table. Needed: ``world_size`` (or a matrix), and
                       ``start_us`` with ``end_us``. Without them the job counts from its first to
                       its last sign of life (or to ``until_us``, the time of the newest data, while
                       it runs), and says so. ``pp_size``, ``vpp_size`` and ``micro_batches`` tell
                       the pipeline bubble; ``team``, ``project``, ``cluster``, ``owner`` label it.
    ``events``         all of its rows of ``events``, of every attempt, in any order.
    ``steps_summary``  all executed steps of every attempt, not of the newest alone: per attempt and
                       step the earliest ``start_us`` and the longest ``duration_us`` over ranks
                       (or rows per rank, with ``rank``). None takes them from ``matrices``, and
                       then rolled-back steps are not seen.
    ``matrices``       per-rank records of some or all steps that count, as disjoint windows. Steps
                       in none of them are whole in bucket ``step_unsplit``.
    ``flops``          useful time of a step (``step_flops``); None leaves computing whole.
    ``paid``           what was paid for over time, e.g. a reservation of more devices than the job
                       holds; None takes what it holds as paid.
    ``allocations``    what the job held over time, if that is not ``world_size`` devices from
                       ``start_us`` to ``end_us``: requeues, growing and shrinking. Where they
                       overlap the later one counts.
    ``taken``          of what it held by this, devices that another job had (``paid_time``): they
                       are in the bill of that one alone.
    ``resources``      ``resource_id`` of the bill's rows that it ran on, for ``reconcile``.

    The order of rows changes nothing.

    Raises:
        NotFoundError: no world size, or nothing tells when the job ran.
        UserError: durations are normalised, or the price is not positive.
        IntegrityError: the job ends before it starts, holds more than was paid for by more than a
            second, or its parts exceed its steps; by name.
    """
    name = str(job.get("job_id"))
    if job.get("time_basis") == "relative":
        raise UserError("durations are normalised: shares hold, time and money do not", where=name)
    world_size = _world_size(job, name, matrices, allocations)
    rows = _summary(matrices) if steps_summary is None else steps_summary
    record = history(events, rows, origin_us=job.get("start_us") or 0)
    findings = list(record.findings)
    if allocations is None:
        span = _span(job, name, record, world_size, until_us, findings)
        allocations = _without_releases(span, record, findings)
    if taken:
        allocations = without_taken(allocations, taken)
    splits = split_steps(matrices, record.steps, _pipeline(job))
    painted = paint(record, allocations, _cover(record, splits))
    inner = inner_buckets(painted, record.steps, splits, flops or StepFlops(None), world_size)
    line = painted.timeline
    if paid is not None and denominator is Denominator.PAID:
        line = join(line, idle_time(paid, [held(allocations)], name))
    source = _source(line, record, inner, paid, denominator)
    bill = make_waterfall(
        source,
        line,
        Waterfall(
            labels=Labels(name, *(job.get(k) for k in ("team", "project", "cluster", "owner"))),
            denominator=denominator,
            rows=(),
            total_gpu_us=Fraction(0),
            total_usd=None,
            level=_level(record, splits),
            has_steps=bool((~record.steps.lost).any()),
            no_useful=inner.no_useful,
            at_risk=_at_risk(record, painted),
            findings=(*findings, *painted.findings, *inner.findings),
            resources=frozenset(resources),
            steps_on_record=len(np.unique(record.steps.step)),
            undone_steps=_undone(record),
        ),
    )
    if usd_per_gpu_hour is None:
        return bill
    return bill.priced(exact_usd(bill.total_gpu_us / _US_PER_S, usd_per_gpu_hour))


def _undone(record: History) -> int:
    """Steps beyond the newest one that counts: training went back and has not come so far again."""
    steps = record.steps
    kept = steps.step[~steps.lost]
    return len(np.unique(steps.step[steps.step > kept.max(initial=-1)]))


def make_waterfall(source: Source, part: Timeline, frame: Waterfall) -> Waterfall:
    """``frame`` filled with what happened in ``part`` of the timeline of ``source``, unpriced."""
    total = Fraction(part.gpu_us())
    rows = make_rows(amounts(source, part), source.missing, source.notes, total)
    return replace(
        frame, rows=rows, total_gpu_us=total, total_usd=None, source=source, timeline=part
    )


def _world_size(
    job: Mapping[str, Any],
    name: str,
    matrices: Sequence[StepMatrix],
    allocations: Sequence[Allocation] | None,
) -> int:
    """Devices of the job, as its record or its matrices say; they must agree."""
    said = {int(matrix.world_size) for matrix in matrices}
    if job.get("world_size"):
        said.add(int(job["world_size"]))
    if not said and allocations:
        said = {max(a.gpus for a in allocations)}
    if not said:
        raise NotFoundError(
            "it is not known how many devices the job holds",
            where=name,
            hint="give world_size in the job's record",
        )
    if len(said) > 1:
        raise IntegrityError(f"the job holds {sorted(said)} devices at once", where=name)
    return said.pop()


def _summary(matrices: Sequence[StepMatrix]) -> Rows:
    """Steps of matrices as rows per rank."""
    columns: dict[str, list[Any]] = {"step": [], "rank": [], "start_us": [], "duration_us": []}
    for matrix in matrices:
        at = np.argwhere(matrix.reported)
        unknown = np.full(matrix.duration_us.shape, np.nan)
        start = unknown if matrix.start_us is None else matrix.start_us
        columns["step"] += matrix.steps[at[:, 0]].tolist()
        columns["rank"] += matrix.ranks[at[:, 1]].tolist()
        columns["start_us"] += start[matrix.reported].tolist()
        columns["duration_us"] += matrix.duration_us[matrix.reported].tolist()
    return columns


def _span(
    job: Mapping[str, Any],
    name: str,
    record: History,
    world_size: int,
    until_us: int | None,
    findings: list[Finding],
) -> Allocation:
    """From when to when the job held its devices."""
    start, end = job.get("start_us"), job.get("end_us")
    attempts = record.attempts
    if start is None:
        if not attempts:
            raise NotFoundError("nothing tells when the job ran", where=name)
        start = min(attempt.begin_us for attempt in attempts)
        findings.append(Finding("inferred", "no start on record: counted from its first sign"))
    if end is None:
        signs = [attempt.end_us for attempt in attempts] + ([] if until_us is None else [until_us])
        end = max([start, *signs])
        findings.append(Finding("inferred", "no end on record: counted to its last sign of life"))
    if end < start:
        raise IntegrityError(f"the job ends {start - end} us before it starts", where=name)
    return Allocation(int(start), int(end), world_size)


def _without_releases(
    span: Allocation, record: History, findings: list[Finding]
) -> list[Allocation]:
    """``span`` without the time between runs in which the job held nothing.

    A run that was allocated anew, after the processes of the one before it had ended, got other
    devices or the same ones again: in between they were the cluster's. Without its own
    ``allocated`` event a run goes on in the allocation of the one before.
    """
    held, start = [], span.start_us
    for before, after in pairwise(record.attempts):
        again = after.moment("allocated")
        ends = [e.last_us for e in before.events if e.kind == "process_end"]
        released = max(ends, default=None)
        if again is None or released is None or not before.is_over:
            continue
        if max(start, before.end_us) <= released < again <= min(after.begin_us, span.end_us):
            held.append(replace(span, start_us=start, end_us=released))
            start = again
            findings.append(
                Finding(
                    "released",
                    f"between its runs it held nothing for {(again - released) / 60e6:,.1f} min",
                )
            )
    return [*held, replace(span, start_us=start)]


def _pipeline(job: Mapping[str, Any]) -> Pipeline | None:
    stages, micro_batches = job.get("pp_size"), job.get("micro_batches")
    if not stages or not micro_batches:
        return None
    return Pipeline(int(stages), int(micro_batches), int(job.get("vpp_size") or 1))


def _cover(record: History, splits: Sequence[StepSplit]) -> Cover:
    """Which steps have measured parts, and what events inside of a step may take out of it."""
    steps = record.steps
    covered = np.zeros(len(steps), dtype=np.bool_)
    room = np.where(steps.lost, 0, steps.duration_us)
    for split in splits:
        covered[split.places] = True
        room[split.places] = split.room_us
    return Cover(covered, room)


def _source(
    line: Timeline,
    record: History,
    inner: Inner,
    paid: Sequence[Allocation] | None,
    denominator: Denominator,
) -> Source:
    """What is known to be zero if nothing is in it, and why the rest is not known."""
    missing = dict(inner.missing)
    known = {"unexplained"}
    told = bool(record.events) or len(record.steps) > 0
    started = bool(record.attempts) and record.attempts[0].moment("process_start") is not None
    if denominator is Denominator.ALLOCATED:
        missing["unallocated"] = "not part of the denominator: allocated time"
    elif paid is None:
        missing["unallocated"] = "what was paid for is not known: held time is taken as paid"
    else:
        known.add("unallocated")
    no_start = "no start of a training process is on record"
    no_step = "no first step is on record"
    no_record = "no events and no steps are on record"
    no_pause = no_step if record.events else "no events are on record"
    for bucket, is_known, reason in (
        ("pending", started, no_start),
        ("startup", started and record.steps_told, no_start if not started else no_step),
        ("recovery", told and record.steps_told, no_step if told else no_record),
        ("lost_work", len(record.steps) > 0, "no steps are on record"),
        ("checkpoint", any(e.kind == SAVE for e in record.events), "no saves are on record"),
        # A scheduler tells when processes ran, and nothing of what they paused for.
        ("other_blocking", bool(record.events) and record.steps_told, no_pause),
    ):
        if is_known:
            known.add(bucket)
        else:
            missing[bucket] = reason
    notes = dict(inner.notes)
    notes["pending_and_startup"] = no_start
    if not record.steps_told:
        notes["recovery"] = f"until the next run began, and maybe longer: {no_step}"
    if not told:
        notes["unexplained"] = "nothing was recorded of what the job did"
    if any(e.kind in BREAKS for e in record.events):
        notes["lost_work"] = (
            "steps that were rolled back, and what a failure broke off, at most as long as the "
            "longest step of its attempt"
        )
    return Source(line, inner.buckets, frozenset(known), missing, notes)


def _level(record: History, splits: Sequence[StepSplit]) -> Level:
    levels = [split.level for split in splits]
    levels.append(Level.STEP_TIME if len(record.steps) else Level.LOG)
    return max(levels)


def _at_risk(record: History, painted: Painted) -> Measure:
    """Work since the last save, which a failure at the end would lose."""
    unit = "GPU-hours"
    saves = [e.last_us for e in record.events if e.kind == SAVE]
    if not saves:
        return Measure.missing(unit, "no saves are on record", level=Level.LOG)
    since = record.steps.start_us >= max(saves)
    return Measure(
        float(Fraction(int(painted.visible_gpu_us[since].sum()), GPU_US_PER_HOUR)),
        unit,
        level=Level.STEP_TIME,
        inputs=("steps", SAVE),
    )
