"""What runs learn for their money, and when those that are under way will be done."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.completion import ASSUMES, completion
from steptax.app.format import format_interval, format_moment
from steptax.app.views.job.extent import step_summary
from steptax.app.views.job.learning import learning_view
from steptax.app.views.review.jobs import ReviewJobs
from steptax.app.views.review.models import ForecastRow, LearningRow
from steptax.app.views.workspace import Workspace
from steptax.app.words import day_text

#: Jobs whose learning is worked out, largest first: each takes a fraction of a second.
LISTED = 10
#: Loss that a price is stated for.
LOSS_STEP = 0.01
_US_PER_HOUR = 3.6e9
_KEPT = 256

_learned: OrderedDict[tuple[Any, ...], LearningRow] = OrderedDict()
_lock = Lock()


def learning_rows(ws: Workspace, jobs: ReviewJobs) -> tuple[tuple[LearningRow, ...], str]:
    """What the jobs of a review that report their loss learn, most GPU-hours first; and a note."""
    base = jobs.review.base
    printed = {str(row["job_id"]) for row in ws.engine.run("printed_loss_jobs").to_pylist()}
    known = [k for k in jobs.with_steps if base.steps[k].has_loss]
    of_log = (base.place[job_id] for job_id in printed if job_id in base.place)
    known = sorted({*known, *(k for k in of_log if jobs.is_in[k])})
    if not known:
        return (), (
            "no job of the period reports a loss: the recorder does (loss=), and so do the logs "
            "and trackers that steptax ingest reads"
        )
    known.sort(key=lambda k: (-int(jobs.held_us[k]), k))
    rows = tuple(_learning(ws, jobs, k) for k in known[:LISTED])
    left = f"; the largest {LISTED} of {len(known):,}" if len(known) > LISTED else ""
    return rows, (
        "of the whole job, whatever the period; two runs compare only at the same phase of their "
        f"learning-rate schedules and with the same tokenizer{left}"
    )


def _learning(ws: Workspace, jobs: ReviewJobs, k: int) -> LearningRow:
    job_id = str(jobs.review.base.jobs[k]["job_id"])
    price = jobs.price_of(k)
    versions = [ws.lake.version(name, job_id) for name in ("steps", "events", "printed_metrics")]
    key = (ws.key, job_id, price, ws.lake.version("jobs"), *versions)
    with _lock:
        if key in _learned:
            return _learned[key]
    view = learning_view(ws, job_id, price=price)
    made = LearningRow(
        job_id,
        view.last_loss,
        view.loss_per_usd,
        _price_of_loss(view.loss_per_usd),
        view.spent_usd,
        view.basis,
    )
    with _lock:
        _learned[key] = made
        while len(_learned) > _KEPT:
            _learned.popitem(last=False)
    return made


def _price_of_loss(slope: Measure) -> Measure:
    """Dollars for ``LOSS_STEP`` less of loss; none where the loss may not fall any more."""
    if slope.value is None:
        return Measure.missing("USD", slope.reason or "", level=slope.level)
    if slope.value <= 0 or (slope.low is not None and slope.low <= 0):
        return Measure.missing("USD", "the loss may not fall any more", level=slope.level)
    low = None if slope.high is None else LOSS_STEP / slope.high
    high = None if slope.low is None else LOSS_STEP / slope.low
    return Measure(LOSS_STEP / slope.value, "USD", low, high, level=slope.level)


def forecast_rows(
    ws: Workspace, jobs: ReviewJobs, whole: ReviewJobs
) -> tuple[tuple[ForecastRow, ...], str]:
    """Where the runs that are under way are heading; and what that assumes, or why there is none.

    ``whole`` are the same jobs over all of their time.
    """
    base = jobs.review.base
    running = [
        k
        for k in jobs.with_steps
        if base.steps[k].is_timed
        and base.jobs[k].get("state") in ("running", None)
        and base.jobs[k].get("end_us") is None
    ]
    if not running:
        return (), "no run with steps is known to be under way"
    planned = [k for k in running if base.jobs[k].get("target_steps")]
    without = len(running) - len(planned)
    said = f"it is not known how many steps are planned of {without:,} runs (target_steps)"
    if not planned:
        return (), said
    planned.sort(key=lambda k: (-int(jobs.held_us[k]), k))
    rows = tuple(_forecast(ws, whole, k) for k in planned[:LISTED])
    return rows, f"Assumes that {ASSUMES}." + (f" {said.capitalize()}." if without else "")


def _forecast(ws: Workspace, whole: ReviewJobs, k: int) -> ForecastRow:
    job = whole.review.base.jobs[k]
    job_id = str(job["job_id"])
    rows = step_summary(ws, job_id)
    step = np.asarray(rows["step"].to_numpy(), dtype=np.int64)
    target = int(job["target_steps"])
    if not rows.num_rows or rows["start_us"].null_count:
        none = "the steps carry no start times"
        hours, usd = Measure.missing("h", none), Measure.missing("USD", none)
        return ForecastRow(job_id, 0, target, hours, "unknown", usd, usd)
    end = np.asarray(rows["start_us"].to_numpy(), np.int64)
    end = end + np.asarray(rows["duration_us"].to_numpy(), np.int64)
    order = np.argsort(end, kind="stable")
    price, gpus = whole.price_of(k), whole.review.base.steps[k].world_size
    spent = whole.spend(k, whole.hours(k))
    made = completion(
        step[order],
        end[order],
        target,
        spent_usd=spent.value,
        usd_per_hour=None if price is None else float(price) * gpus,
        no_price=spent.reason or "no price is known",
    )
    return ForecastRow(
        job_id,
        made.done_steps,
        made.target_steps,
        made.left_hours,
        _ends_at(int(end.max()), made.left_hours),
        made.at_end_usd,
        made.left_usd,
    )


def _ends_at(newest_us: int, left: Measure) -> str:
    """The moment, with its band."""
    if left.value is None:
        return "unknown"
    text = format_moment(newest_us + round(left.value * _US_PER_HOUR))[:16]
    if format_interval(left) is None or left.low is None or left.high is None:
        return f"{text} UTC"
    low, high = (
        datetime.fromtimestamp((newest_us + bound * _US_PER_HOUR) / 1e6, UTC)
        for bound in (left.low, left.high)
    )
    return f"{text} UTC ({day_text(low)} {low:%H:%M} to {day_text(high)} {high:%H:%M})"
