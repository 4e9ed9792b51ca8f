"""What a job's losses cost: from its steps, or from what it printed and logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.compute.learning.record import LossRecord, paid_since
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.format import format_measure, format_value
from steptax.app.queries.arrays import numbers_of
from steptax.app.views.job.extent import loss_by_step, step_span
from steptax.app.views.pricing.given import NO_PRICE, NO_WORLD, RELATIVE_TIME
from steptax.app.views.whatif.models import Known, Numbers
from steptax.app.views.workspace import Workspace

#: Points of the curve that a view holds.
_POINTS = 200
NO_LOSS = "the job reports no loss"
NO_TARGET = "no target was given: --target-loss"
NO_TIMES = "the losses carry no times, so what was paid until them is not known"
NO_BEGIN = "what was paid before the first loss is not known: nothing says when the job began"
ONLY_STEPS = (
    "the steps carry no start times: only they are paid for here, not the time between them"
)
MEANS = "the log prints one step in several: only the printed ones are paid for here"


@dataclass(frozen=True)
class LearningPoint:
    """A step that counts: its loss, and all dollars that had been paid when it ended."""

    step: int
    loss: float
    paid_usd: float


@dataclass(frozen=True)
class LearningView:
    """Loss over cumulative paid dollars: its slope at the end, and the price of a target."""

    loss_per_usd: Measure
    usd_to_target: Measure
    spent_usd: Measure
    lost_usd: Measure
    target_loss: float | None
    last_loss: Measure
    basis: str
    warnings: tuple[str, ...]
    points: tuple[LearningPoint, ...]
    """At most a few hundred, evenly chosen, the last among them."""

    @property
    def is_known(self) -> bool:
        """Whether the job reports a loss at all."""
        return self.last_loss.value is not None


def learning_view(
    ws: Workspace,
    job_id: str,
    *,
    price: Decimal | None,
    target_loss: float | None = None,
    last_steps: int | None = None,
) -> LearningView:
    """Learning of ``job_id`` over its last ``last_steps`` losses (None: all).

    Raises NotFoundError for an unknown job.
    """
    from steptax.app.compute.learning.velocity import dollars_to_target, marginal_velocity

    record = loss_record(ws, job_id, price=price).last(last_steps)
    known = record.reported()
    curve = record.curve() if len(known.step) else None
    if curve is None:
        reason = record.reason or NO_LOSS

        def none(unit: str) -> Measure:
            return Measure.missing(unit, reason, level=Level.LOG)

        last = Measure(float(known.loss[-1]), "", level=Level.LOG) if len(known.step) else none("")
        return LearningView(
            none("loss/USD"),
            none("USD"),
            none("USD"),
            none("USD"),
            target_loss,
            last,
            record.basis,
            record.warnings,
            (),
        )
    chosen = np.unique(np.linspace(0, len(curve) - 1, min(len(curve), _POINTS)).astype(np.int64))
    return LearningView(
        loss_per_usd=marginal_velocity(curve),
        usd_to_target=(
            Measure.missing("USD", NO_TARGET, level=Level.LOG)
            if target_loss is None
            else dollars_to_target(curve, target_loss)
        ),
        spent_usd=Measure(curve.spent_usd, "USD", level=Level.LOG),
        lost_usd=Measure(curve.lost_usd, "USD", level=Level.LOG),
        target_loss=target_loss,
        last_loss=Measure(float(known.loss[-1]), "", level=Level.LOG),
        basis=record.basis,
        warnings=record.warnings,
        points=tuple(
            LearningPoint(int(curve.step[i]), float(curve.loss[i]), float(curve.paid_usd[i]))
            for i in chosen
        ),
    )


def learning_inputs(record: LossRecord) -> dict[str, Known]:
    """The inputs of the calculator of this name, from the losses of a job."""
    known = record.reported()
    if not len(known.step):
        reason = record.reason or NO_LOSS
        return {name: Numbers(None, "", reason) for name in ("loss", "usd", "steps")}
    usd = known.usd
    return {
        "loss": Numbers(tuple(known.loss.tolist()), ""),
        "steps": Numbers(tuple(known.step.astype(np.float64).tolist()), ""),
        "usd": Numbers(None if usd is None else tuple(usd.tolist()), "USD", record.reason),
    }


def learning_text(view: LearningView) -> str:
    """A few lines for a terminal; empty where the job reports no loss."""
    if not view.is_known:
        return ""
    last = format_value(view.last_loss.value, "")
    lines = [f"Learning ({view.basis}): last loss {last}"]
    if view.loss_per_usd.reason == view.spent_usd.reason and view.spent_usd.reason:
        return "\n".join([*lines, f"  in dollars: {view.spent_usd.reason}"])
    lines += [
        f"  a dollar buys: {format_measure(view.loss_per_usd)}",
        f"  paid: {format_measure(view.spent_usd)}, of it for steps that were run again: "
        f"{format_measure(view.lost_usd)}",
    ]
    if view.target_loss is not None:
        lines.append(f"  to loss {view.target_loss:g}: {format_measure(view.usd_to_target)}")
    notes = dict.fromkeys((*view.warnings, *view.loss_per_usd.warnings))
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def loss_record(ws: Workspace, job_id: str, *, price: Decimal | None) -> LossRecord:
    """The losses of ``job_id`` in the order of time, and what was paid for each.

    Steps that are placed in time go before what was printed, and that before steps that are not.
    ``price`` is in USD per GPU-hour. Raises NotFoundError for an unknown job.
    """
    job = ws.job(job_id)
    steps = loss_by_step(ws, job_id)
    printed = ws.engine.run("printed_loss", job_id=job_id)
    has_steps = steps.num_rows > 0 and steps["loss"].null_count < steps.num_rows
    has_printed = printed.num_rows > 0 and printed["loss"].null_count < printed.num_rows
    placed = has_steps and not steps["start_us"].null_count
    timed = has_printed and not printed["at_us"].null_count
    if placed or (has_steps and not timed):
        return _of_steps(ws, job, steps, price, placed=placed)
    if has_printed:
        return _of_printed(ws, job, printed, price)
    return LossRecord(np.zeros(0, np.int64), np.zeros(0), None, NO_LOSS, "no loss")


def _of_steps(
    ws: Workspace, job: Mapping[str, Any], rows: pa.Table, price: Decimal | None, *, placed: bool
) -> LossRecord:
    step, loss = _ints(rows, "step"), _reals(rows, "loss")
    duration = _ints(rows, "duration_us")
    basis = f"{len(step):,} recorded steps"
    # Not those of a step: in roll-ups a rank that tells of it twice counts twice there.
    ranks = int(step_span(ws, str(job["job_id"]))["ranks"])
    of_job = job.get("time_basis") == "log" and ranks == 1
    gpus = job.get("world_size") or (None if of_job else ranks)
    reason = _no_dollars(job, price, gpus)
    if not placed:
        order = np.arange(len(step))
        ends, begin = np.cumsum(duration), 0
        warnings: tuple[str, ...] = (MEANS if of_job else ONLY_STEPS,)
    else:
        end = _ints(rows, "start_us") + duration
        order = np.argsort(end, kind="stable")
        ends = end[order]
        begin = int(_ints(rows, "start_us").min())
        if (told := _begin(ws, job)) is not None:
            begin = min(begin, told)
        warnings = ()
    usd = None if reason else paid_since(ends, begin, int(gpus or 0), float(price or 0))
    return LossRecord(step[order], loss[order], usd, reason, basis, warnings)


def _of_printed(
    ws: Workspace, job: Mapping[str, Any], rows: pa.Table, price: Decimal | None
) -> LossRecord:
    step, loss = _ints(rows, "step"), _reals(rows, "loss")
    source = str(rows["source"][0].as_py()).split(":", 1)[0]
    basis = f"{len(step):,} values of {rows['printed_as'][0].as_py()!r}, {source}"
    reason = _no_dollars(job, price, job.get("world_size"))
    if rows["at_us"].null_count:
        return LossRecord(step, loss, None, reason or NO_TIMES, basis)
    at_us = _ints(rows, "at_us")
    order = np.argsort(at_us, kind="stable")
    begin = _begin(ws, job)
    warnings: tuple[str, ...] = ()
    if begin is None or begin >= at_us.min():
        begin, warnings = int(at_us.min()), (NO_BEGIN,)
    gpus = int(job.get("world_size") or 0)
    usd = None if reason else paid_since(at_us[order], begin, gpus, float(price or 0))
    return LossRecord(step[order], loss[order], usd, reason, basis, warnings)


def _no_dollars(job: Mapping[str, Any], price: Decimal | None, gpus: Any) -> str | None:
    """Why dollars are not known; None where they are."""
    if job.get("time_basis") == "relative":
        return RELATIVE_TIME
    if price is None:
        return NO_PRICE
    return None if gpus else NO_WORLD


def _begin(ws: Workspace, job: Mapping[str, Any]) -> int | None:
    """When the job's devices were first paid for, as far as anything says so."""
    events = ws.engine.run("job_events", job_id=job["job_id"]).to_pylist()
    said = [e["start_us"] for e in events if e["kind"] in ("allocated", "process_start")]
    if job.get("start_us") is not None:
        said.append(job["start_us"])
    return min(said, default=None)


def _ints(rows: pa.Table, name: str) -> Ints:
    return np.asarray(numbers_of(rows[name]), dtype=np.int64)


def _reals(rows: pa.Table, name: str) -> Floats:
    return np.asarray(numbers_of(rows[name].cast(pa.float64())), dtype=np.float64)
