"""What the jobs that run now say, and the error budgets, for the rules of alerts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from steptax.app.alerts.rules import BURN_FAST, BURN_SLOW, SILENT_S, STOPPED_RANKS
from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.burn import FAST, Burn
from steptax.app.errors import NotFoundError
from steptax.app.views.fleet.capacity import burn_of, objectives, standing_text
from steptax.app.views.job.models import JobView
from steptax.app.views.job.unread import unread
from steptax.app.views.job.view import job_view
from steptax.app.views.review.burn_words import burn_note
from steptax.app.views.workspace import Workspace

#: A job whose newest rows are older than this does not run any more, whatever its record says.
LIVE_S = 3600.0


@dataclass(frozen=True)
class Reading:
    """What one job, or one scope, says at one moment.

    ``values`` are by metric id; a missing one says why.
    """

    job_id: str
    values: Mapping[str, Measure]
    sentence: str
    """What the job's card says."""
    problem: str | None = None
    """Why the job could not be read; then it has no values."""
    is_scope: bool = False
    """Whether ``job_id`` is no job but a scope with an objective: ``all``, ``team:red``."""
    alarms: Mapping[str, float] = field(default_factory=dict)
    """By metric id the value from which on it is an alarm, where no rule says another."""


def readings(
    ws: Workspace, *, price: Decimal | None = None, now_us: int | None = None
) -> Iterator[Reading]:
    """One reading of every job that runs: it has signs of life, or rows of the last hour."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    for job_id in running_jobs(ws, now):
        try:
            view = job_view(ws, job_id, price=price, now_us=now)
        except Exception as error:  # the rules of all other jobs hold on
            yield Reading(job_id, {}, "", unread(job_id, error).reason)
            continue
        if view.header.state in (None, "running") and _is_fresh(view):
            yield reading_of(view)


def burn_readings(
    ws: Workspace, *, price: Decimal | None = None, now_us: int | None = None
) -> Iterator[Reading]:
    """One reading of every scope that an objective is set for and that has jobs.

    A window of which nothing is known up to now has no value: it neither rings nor clears.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    for entry in objectives(ws, now):
        try:
            row = burn_of(ws, entry, price, now)
        except NotFoundError:  # no job of that scope is left
            continue
        except Exception as error:  # the rules of all other scopes hold on
            reason = unread(entry.scope, error).reason
            yield Reading(entry.scope, {}, "", reason, is_scope=True)
            continue
        named = {BURN_FAST if one.window == FAST else BURN_SLOW: one for one in row.burns}
        yield Reading(
            row.scope,
            {name: _rate(one) for name, one in named.items()},
            standing_text(row),
            is_scope=True,
            alarms={name: one.level for name, one in named.items()},
        )


def _rate(one: Burn) -> Measure:
    return Measure.missing(one.rate.unit, burn_note(one)) if one.is_stale else one.rate


def running_jobs(ws: Workspace, now_us: int) -> tuple[str, ...]:
    """Jobs that may run: with signs of life, or with rows that came within the hour."""
    since_us = now_us - int(LIVE_S * 1e6)
    fresh = {
        job_id
        for commit in ws.ingests()
        if commit.created_us >= since_us
        for job_id in commit.detail.get("job_ids", ())
    }
    with_steps = ws.job_ids_with_steps()
    return tuple(sorted((fresh | set(ws.lake.live_job_ids())) & with_steps))


def _is_fresh(view: JobView) -> bool:
    age_s = view.coverage.newest_age_s
    return view.coverage.is_live or (age_s is not None and age_s < LIVE_S)


def reading_of(view: JobView) -> Reading:
    """What the view of a job says to the rules."""
    age_s = view.coverage.newest_age_s
    values = dict(view.metrics) | {
        SILENT_S: Measure.missing("s", "no row has a time")
        if age_s is None
        else Measure(age_s, "s"),
        STOPPED_RANKS: Measure(float(len(view.coverage.stopped)), ""),
    }
    return Reading(view.header.job_id, values, view.card.sentence)
