"""What the diagnosis of a job says of fail-slow, and its cause in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.causes.model import Diagnosis, Finding, Scope
from steptax.app.compute.fleet.slow import CAUSE_UNKNOWN, Episode, SlowFact, is_fail_slow
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.views.job.causes import slow_steps_us
from steptax.app.views.job.jobs import Analysed, hours_of_all_steps


def slow_fact(analysed: Analysed, diagnosis: Diagnosis) -> SlowFact:
    """How slow a job was, and its fail-slows among what was diagnosed."""
    loaded, result = analysed.loaded, analysed.result
    hours = hours_of_all_steps(analysed).value
    found = [f for f in diagnosis.findings if is_fail_slow(f)]
    episodes = tuple(_episode(analysed, finding, hours) for finding in found)
    gpus = None if loaded.world_is_unknown else loaded.matrix.world_size
    return SlowFact(
        str(loaded.job["job_id"]),
        gpus,
        hours,
        result.slowdown_ratio,
        result.waste_ratio,
        episodes,
        # That none of the others is slow says nothing of a rank that is not compared.
        diagnosis.reason or (None if episodes else result.verdict.why_open),
        None if hours is None else _waiting_hours(analysed),
    )


def _waiting_hours(analysed: Analysed) -> float | None:
    row = analysed.ledger.row("straggler_wait")
    return None if row is None or row.gpu_us is None else float(row.gpu_us / GPU_US_PER_HOUR)


def _episode(analysed: Analysed, finding: Finding, hours: float | None) -> Episode:
    loaded = analysed.loaded
    seconds = None
    if not loaded.matrix.time_is_relative:
        seconds = float(np.sum(slow_steps_us(loaded.matrix, finding))) / 1e6
    lost = finding.lost_ratio
    places = [loaded.places.get(rank, {}) for rank in finding.ranks]
    cause = finding.cause.cause
    return Episode(
        finding.place,
        finding.ranks if finding.scope is Scope.RANKS else (),
        tuple(sorted({str(p["host"]) for p in places if p.get("host")})),
        tuple(sorted({str(p["gpu_uuid"]) for p in places if p.get("gpu_uuid")})),
        CAUSE_UNKNOWN if cause is None else cause.value,
        finding.excess_ratio,
        seconds,
        finding.is_open,
        None if lost is None or hours is None else max(lost, 0.0) * hours,
    )


def cause_text(findings: Sequence[Finding]) -> str | None:
    """The cause of what costs most, where, and how sure that is; None where none is named."""
    named = [finding for finding in findings if finding.cause.is_named]
    if not named:
        return None
    worst = max(named, key=lambda finding: finding.lost_ratio or 0.0)
    sure = spoken_ratio(worst.cause.confidence)
    return f"{worst.cause.text} ({worst.place}, confidence {sure})"
