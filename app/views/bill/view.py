"""The whole bill of a job, from its allocation to its end: what every paid GPU-second went into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.compute.bill.cost import exact_usd
from steptax.app.compute.bill.timeline import Allocation
from steptax.app.compute.bill.waterfall import job_ledger
from steptax.app.compute.bill.waterfall_rows import Waterfall, WaterfallRow
from steptax.app.compute.devices.claims import Lost
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.mfu.flops import Convention, Recompute, flops_per_token, hardware_factor
from steptax.app.compute.mfu.model_shape import ModelShape
from steptax.app.compute.mfu.peaks import peak
from steptax.app.compute.mfu.step_flops import StepFlops, step_flops
from steptax.app.compute.straggler.steps import StepMatrix, name_cell, without_inconsistent
from steptax.app.errors import IntegrityError, UserError
from steptax.app.format import format_measure
from steptax.app.moments import LAST_US
from steptax.app.queries.arrays import numbers_of
from steptax.app.views.bill.sharing import lost_findings
from steptax.app.views.job.extent import step_summary
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.models import Bill, BillLine
from steptax.app.views.pricing.given import NO_WORLD
from steptax.app.views.workspace import Workspace

#: Metrics that rest on the whole bill.
BILL_METRICS = (
    "scheduling_ratio",
    "ettr_ratio",
    "goodput_ratio",
    "mfu_ratio",
    "effective_mfu_ratio",
)
AT_RISK = "at_risk_gpu_hours"
US_PER_S = 1_000_000
_NO_RISK = Measure.missing("GPU-hours", "no steps are on record")
_SHAPE = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq_len", "experts", "topk")
NO_PENDING = "when the first training process began is not on record"
NO_STARTS = "the steps carry no start times, so they cannot be placed in the job's life"


def job_bill(
    ws: Workspace, loaded: LoadedJob, price: Decimal | None, lost: Sequence[Lost] = ()
) -> Bill:
    """The bill of ``loaded``'s job over its whole life; where there is none, the reason.

    ``lost`` are devices that it claims and the bill of another job holds
    (``fleet_jobs.devices_lost``).
    """
    if loaded.world_is_unknown:
        return without_bill(NO_WORLD)
    job_id = loaded.job["job_id"]
    steps = step_summary(ws, job_id)
    if not has_starts(steps):
        return without_bill(NO_STARTS)
    events = ws.engine.run("job_events", job_id=job_id).to_pylist()
    try:
        found, convention = job_waterfall(loaded.job, events, steps, loaded, lost)
    except (UserError, IntegrityError) as error:
        return without_bill(str(error))
    return bill_of(found, note_of(found, convention), price)


def bill_of(found: Waterfall, note: str, price: Decimal | None) -> Bill:
    """The bill of one job as it is shown, at ``price`` per GPU-hour."""
    if price is not None:
        found = found.priced(exact_usd(found.total_gpu_us / US_PER_S, price))
    measures = factors(found)
    return Bill(
        lines=_lines(found),
        metrics={name: measures.get(name) or _NO_RISK for name in (*BILL_METRICS, AT_RISK)},
        note=note,
        at_risk=found.at_risk,
        findings=tuple(finding.text for finding in found.findings),
        gpu_hours=measures["gpu_hours"],
        unexplained=measures["unexplained_ratio"],
        undone_steps=found.undone_steps,
    )


def factors(bill: Waterfall) -> dict[str, Measure]:
    """The measures of a bill by metric id, with what is not known of pending time kept apart.

    Without the moment when the first process began nobody knows how long it was pending: that is
    not zero, so scheduling goodput is unknown, or where devices that nobody held count too, at
    most what is shown; and ETTR, whose denominator leaves pending time out, is at least that.
    """
    found = bill.measures()
    pending, idle = (_row(bill, name) for name in ("pending", "unallocated"))
    if pending is not None and not pending.note:
        return found
    open_ratio = bill.gpu_us("unexplained") / bill.total_gpu_us if bill.total_gpu_us else 1
    # Pending time of some jobs alone tells little where most of the time is not explained at all.
    if idle is None and (pending is None or 2 * open_ratio > 1):
        found["scheduling_ratio"] = Measure.missing("ratio", NO_PENDING, level=Level.LOG)
    else:
        found["scheduling_ratio"] = _bounded(found["scheduling_ratio"], "at most this")
    found["ettr_ratio"] = _bounded(found["ettr_ratio"], "at least this")
    return found


def _row(bill: Waterfall, bucket: str) -> WaterfallRow | None:
    """The row of a bucket of which anything is known; in a sum its note says where it is not."""
    known = (row for row in bill.rows if row.bucket == bucket and row.gpu_us is not None)
    return next(known, None)


def _bounded(measure: Measure, bound: str) -> Measure:
    if measure.value is None:
        return measure
    return replace(measure, warnings=(*measure.warnings, f"{bound}: {NO_PENDING}"))


def has_starts(steps: pa.Table) -> bool:
    """Whether there are executed steps and they can be placed in time."""
    return steps.num_rows > 0 and bool(steps["start_us"][0].is_valid)


def job_waterfall(
    job: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    steps: pa.Table | None,
    loaded: LoadedJob | None,
    lost: Sequence[Lost] = (),
) -> tuple[Waterfall, str]:
    """The unpriced bill of a job and the convention of its FLOPs, empty where there are none.

    ``events`` and ``steps`` are its rows of the queries of these names. Without ``steps`` and
    ``loaded`` it rests on the job's record and its events alone. ``lost`` are devices that it
    claims and the bill of another job holds.

    Raises:
        UserError: durations are normalised, or neither record nor steps tell when it ran.
        IntegrityError: it ends before it starts or beyond any date, its parts exceed its steps, or
            those of every report exceed its duration, so that what is left over would be negative.
    """
    matrices: tuple[StepMatrix, ...] = ()
    flops, convention = StepFlops(None, reason="no per-rank steps are stored for this job"), ""
    until_us = None
    if loaded is not None:
        sound, bad = without_inconsistent(loaded.matrix)
        if bad.any() and not sound.reported.any():
            raise IntegrityError(
                f"rejected: the parts of all {int(bad.sum()):,} reports exceed their duration, so "
                "that the rest of a step would be negative; the first is "
                f"{name_cell(loaded.matrix, bad)}",
                where=str(job.get("job_id")),
            )
        # The reports that were taken out are named among the findings of the bill.
        matrices = (loaded.matrix,)
        flops, convention = _flops(job, sound)
        until_us = loaded.newest_us
    executed: Any = []
    if steps is not None:
        names = ("attempt", "step", "start_us", "duration_us")
        executed = {name: numbers_of(steps[name]) for name in names}
    bill = job_ledger(
        job,
        events,
        executed,
        matrices=matrices,
        flops=flops,
        until_us=until_us,
        taken=[Allocation(o.start_us, o.end_us, o.gpus) for o in lost],
    )
    if bill.timeline is not None and bill.timeline.span_us[1] >= LAST_US:
        raise IntegrityError(
            "its steps or its events say that it ran beyond the year 9999: one of their times is "
            "wrong",
            where=str(job.get("job_id")),
        )
    return replace(bill, findings=(*bill.findings, *lost_findings(lost))), convention


def without_bill(reason: str) -> Bill:
    """A bill that cannot be made, for ``reason``."""
    metrics = {name: Measure.missing("ratio", reason) for name in BILL_METRICS}
    metrics[AT_RISK] = Measure.missing("GPU-hours", reason)
    return Bill((), metrics, reason, None, ())


def _lines(found: Waterfall) -> tuple[BillLine, ...]:
    return tuple(
        BillLine(
            row.bucket,
            row.title,
            row.gpu_seconds,
            row.share_ratio,
            row.usd,
            row.is_loss,
            row.note or None,
            row.number,
        )
        for row in found.rows
    )


def note_of(found: Waterfall, convention: str) -> str:
    """What the bill of one job covers, and by which convention its FLOPs are counted."""
    text = f"Every {found.denominator} GPU-second of the job, once; the buckets add up exactly."
    if found.at_risk is not None and found.at_risk.value is not None:
        text += f" Work at risk since the last save: {format_measure(found.at_risk)}."
    if found.no_useful:
        return f"{text} The useful part is not known: {found.no_useful}."
    return f"{text} FLOPs by convention {convention}."


def _flops(job: Mapping[str, Any], matrix: StepMatrix) -> tuple[StepFlops, str]:
    """Useful time per step from the job's model shape, tokens and device; or why it is unknown."""
    sizes: dict[str, Any] = {name: job.get(name) for name in _SHAPE}
    shape = ModelShape(
        **sizes,
        causal=job.get("causal") is not False,
        params_total=job.get("params_total"),
        params_active=job.get("params_active"),
    )
    tokens = tokens_per_step(job, matrix)
    if tokens is None:
        return StepFlops(None, reason="tokens per step are not recorded"), ""
    convention = Convention.MEGATRON
    per_token = flops_per_token(shape, convention)
    if per_token.value is None:
        convention = Convention.SIX_N
        per_token = flops_per_token(shape, convention)
    if per_token.value is None:
        return StepFlops(None, reason=per_token.reason or "the model's shape is not known"), ""
    dtype = job.get("dtype") or "unknown"
    recompute = job.get("recompute")
    factor = hardware_factor(
        shape, convention, None if recompute is None else Recompute.read(recompute)
    )
    found = step_flops(
        {dtype: per_token.value * tokens},
        {dtype: peak(job.get("gpu_model"), job.get("dtype"))},
        hfu_factor=factor,
        convention=convention,
    )
    return found, convention


def tokens_per_step(job: Mapping[str, Any], matrix: StepMatrix) -> float | None:
    """Tokens of the whole job in a step: measured over the ranks, else as the job states them."""
    if matrix.tokens is not None and not np.isnan(matrix.tokens).any():
        return float(matrix.tokens.sum(axis=1).mean()) * float(matrix.weight)
    stated = job.get("tokens_per_step")
    return None if stated is None else float(stated)
