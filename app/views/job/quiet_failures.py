"""The three quiet failures of a job, as lines for a page and a command."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.rows import Floats, row_max
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.arrival import arrivals
from steptax.app.compute.straggler.quiet_failures import (
    StalledGpus,
    SyncStalls,
    stalled_gpus,
    sync_stalls,
    warm_up,
)
from steptax.app.compute.straggler.result import StragglerResult
from steptax.app.compute.straggler.steps import StepMatrix, without_inconsistent
from steptax.app.format import format_measure
from steptax.app.views.job.extent import step_summary
from steptax.app.views.job.load import load_job
from steptax.app.views.pricing.given import RELATIVE_TIME
from steptax.app.views.workspace import Workspace

_T = TypeVar("_T", SyncStalls, StalledGpus)
STRAGGLERS, STALLS, STALLED = "Stragglers", "Synchronisation stalls", "Stalled GPUs"


@dataclass(frozen=True)
class QuietLine:
    """One number of one failure."""

    failure: str
    title: str
    measure: Measure
    note: str = ""

    @property
    def text(self) -> str:
        """The number with its band, or why there is none."""
        return format_measure(self.measure)


@dataclass(frozen=True)
class QuietFailures:
    """All lines, and one sentence."""

    job_id: str
    sentence: str
    lines: tuple[QuietLine, ...]
    worst_step: int | None
    """The step of the longest stall."""

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "job_id": self.job_id,
            "sentence": self.sentence,
            "worst_step": self.worst_step,
            "lines": [
                {"failure": line.failure, "title": line.title, "note": line.note or None}
                | line.measure.as_json()
                for line in self.lines
            ],
        }


def quiet_failures(ws: Workspace, job_id: str, *, last_steps: int | None = 500) -> QuietFailures:
    """The three quiet failures of ``job_id``: its window, and for stalls its whole life.

    NotFoundError for an unknown job or one without steps.
    """
    loaded = load_job(ws, ws.job(job_id), last_steps=last_steps)
    sound, _ = without_inconsistent(loaded.matrix)
    return quiet_of(ws, job_id, analyse_stragglers(loaded.matrix), sound)


def quiet_of(
    ws: Workspace, job_id: str, result: StragglerResult, sound: StepMatrix
) -> QuietFailures:
    """The same, of steps that have been analysed: ``sound`` are those that are consistent.

    ``result`` has the mean as its ideal, as ``analyse_stragglers`` has by itself.
    """
    part = sound.select(result.coverage.step_places, result.coverage.rank_places)
    told = result.basis.unknown is None and result.ranks is not None
    relative = part.time_is_relative
    step_us = row_max(part.duration_us)
    wait_us = arrivals(part, result.basis).wait_us if told else None
    stalls = sync_stalls(part.steps, wait_us, step_us)
    stalled = _stalled(ws, job_id, part, step_us)
    if relative:
        stalls, stalled = _without_times(stalls), _without_times(stalled)
    return QuietFailures(
        job_id,
        _sentence(result.tax_ratio, stalls, stalled),
        (
            QuietLine(STRAGGLERS, "waiting for slow ranks", result.tax_ratio, "straggler tax"),
            QuietLine(STRAGGLERS, "of it always the same ranks", result.persistent_ratio),
            QuietLine(STRAGGLERS, "of it ever other ranks", result.transient_ratio),
            QuietLine(STALLS, "steps that stalled", stalls.steps),
            QuietLine(STALLS, "time lost in them", stalls.lost_ratio),
            QuietLine(
                STALLS,
                "longest mean wait",
                stalls.longest_ms,
                "" if stalls.worst_step is None else f"step {stalls.worst_step:,}",
            ),
            QuietLine(STALLED, "until the job was steady", stalled.steady_s),
            QuietLine(STALLED, "lost until then", stalled.warm_up_lost_s),
            QuietLine(STALLED, "a save takes", stalled.checkpoint_s, "shortest to longest"),
            QuietLine(STALLED, "spread of saves", stalled.checkpoint_cv_ratio),
            QuietLine(STALLED, "steps far longer than usual", stalled.spikes),
            QuietLine(STALLED, "of them by input", stalled.input_spikes),
            QuietLine(STALLED, "pauses between steps, in all", stalled.pauses_s),
            QuietLine(STALLED, "longest pause", stalled.longest_pause_s),
        ),
        stalls.worst_step,
    )


def _stalled(ws: Workspace, job_id: str, part: StepMatrix, step_us: Floats) -> StalledGpus:
    relative = part.time_is_relative
    input_us = part.phases.get("input")
    rows = step_summary(ws, job_id)
    numbers = {
        name: np.array(rows[name].to_pylist(), dtype=float)
        for name in ("attempt", "step", "start_us", "duration_us")
    }
    known = np.isfinite(numbers["duration_us"])
    has_starts = (
        bool(known.any()) and not relative and bool(np.isfinite(numbers["start_us"][known]).all())
    )
    order = np.lexsort((numbers["step"][known], numbers["attempt"][known]))
    attempts = numbers["attempt"][known][order].astype(np.int64)
    duration_us = numbers["duration_us"][known][order]
    warm = warm_up(attempts, duration_us)
    return stalled_gpus(
        attempts,
        numbers["start_us"][known][order] if has_starts else None,
        duration_us,
        _saves_us(ws, job_id, part),
        input_us=None if input_us is None else row_max(input_us),
        window_us=step_us,
        is_warm_up=np.isin(part.steps, numbers["step"][known][order][warm]),
    )


def _without_times(found: _T) -> _T:
    """The same without absolute times, which normalised durations do not tell; counts hold."""
    gone: dict[str, Any] = {
        field.name: Measure.missing(value.unit, RELATIVE_TIME)
        for field in fields(found)
        if isinstance(value := getattr(found, field.name), Measure) and value.unit in ("s", "ms")
    }
    return replace(found, **gone)


def _saves_us(ws: Workspace, job_id: str, part: StepMatrix) -> list[float]:
    """Durations of saves: as events tell them, else as the ranks' own phases do."""
    told = [
        float(event["end_us"] - event["start_us"])
        for event in ws.engine.run("job_events", job_id=job_id).to_pylist()
        if event["kind"] == "checkpoint_save" and event["end_us"] is not None
    ]
    phase = part.phases.get("checkpoint")
    if told or phase is None or part.time_is_relative:
        return told
    longest = np.nan_to_num(row_max(phase))
    return [float(us) for us in longest[longest > 0]]


def _sentence(tax: Measure, stalls: SyncStalls, stalled: StalledGpus) -> str:
    found = []
    if tax.value is not None and tax.value >= 0.01:
        found.append(f"waiting for slow ranks takes {format_measure(_plain(tax))}")
    if stalls.steps.value:
        found.append(
            f"{stalls.steps.value:,.0f} steps stalled and cost {format_measure(stalls.lost_ratio)}"
        )
    if stalled.warm_up_lost_s.value is not None and stalled.warm_up_lost_s.value >= 1:
        found.append(f"warming up took {format_measure(stalled.steady_s)}")
    if stalled.pauses_s.value:
        found.append(f"pauses between steps took {format_measure(stalled.pauses_s)}")
    if not found:
        return "Nothing quiet was found in what is recorded."
    text = "; ".join(found)
    return f"{text[:1].upper()}{text[1:]}."


def _plain(measure: Measure) -> Measure:
    return Measure(measure.value, measure.unit, reason=measure.reason)
