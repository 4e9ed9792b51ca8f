"""Failures of a job as its events tell them."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.bill.job_events import BREAKS, Event, read_events
from steptax.app.compute.measure import Level, Measure
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.workspace import Workspace

NO_EVENTS = "no events of this job are recorded"
US_PER_S = 1e6
US_PER_H = 3.6e9


@dataclass(frozen=True)
class FailureRecord:
    """What was counted, over how long, and what a failure cost until the next step."""

    count: Measure
    hours: Measure
    mtbf_s: Measure
    per_h: Measure
    restart_s: Measure


def failure_record(ws: Workspace, loaded: LoadedJob) -> FailureRecord:
    """Failures and evictions of the whole job, whatever the window of its steps."""
    rows = ws.engine.run("job_events", job_id=loaded.job["job_id"]).to_pylist()
    events, _ = read_events(rows)
    span_us = _span_us(loaded, events)
    if not events or span_us <= 0:
        reason = NO_EVENTS if not events else "its events are all of one moment"
        return FailureRecord(
            *(Measure.missing(u, reason, level=Level.LOG) for u in ("", "h", "s", "1/h", "s"))
        )
    broken = [event for event in events if event.kind in BREAKS]
    hours = span_us / US_PER_H
    count = len(broken)
    none = f"no failure in the {hours:.3g} h of its events"
    return FailureRecord(
        count=Measure(float(count), "", level=Level.LOG, inputs=("events",)),
        hours=Measure(hours, "h", level=Level.LOG, inputs=("events",)),
        mtbf_s=_rate(span_us / US_PER_S / count if count else None, "s", none),
        per_h=_rate(count / hours if count else None, "1/h", none),
        restart_s=_restart(events, broken, none),
    )


def _span_us(loaded: LoadedJob, events: tuple[Event, ...]) -> int:
    """From the first to the last that is known of the job."""
    moments = [event.start_us for event in events] + [event.last_us for event in events]
    moments += [t for t in (loaded.job.get("start_us"), loaded.job.get("end_us")) if t]
    if loaded.newest_us is not None:
        moments.append(loaded.newest_us)
    return max(moments) - min(moments) if moments else 0


def _rate(value: float | None, unit: str, reason: str) -> Measure:
    if value is None:
        return Measure.missing(unit, reason, level=Level.LOG)
    return Measure(value, unit, level=Level.LOG, inputs=("events",))


def _restart(events: tuple[Event, ...], broken: list[Event], reason: str) -> Measure:
    """Mean time from a failure to the first step after it."""
    steps = sorted(event.start_us for event in events if event.kind == "first_step")
    waits = [
        next((step - event.start_us for step in steps if step > event.start_us), None)
        for event in broken
    ]
    known = [wait for wait in waits if wait is not None]
    if not known:
        reason = "no first step after a failure is recorded" if broken else reason
        return Measure.missing("s", reason, level=Level.LOG)
    return Measure(sum(known) / len(known) / US_PER_S, "s", level=Level.LOG, inputs=("events",))
