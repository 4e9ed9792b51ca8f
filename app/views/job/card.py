"""The straggler card."""

from __future__ import annotations

from typing import Any

import numpy as np

from steptax.app.compute.bill.ledger import TITLES
from steptax.app.compute.causes.hints import Explanation, Hint
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.straggler.onset import Onset
from steptax.app.compute.straggler.result import Kind, StragglerResult, Verdict
from steptax.app.format import format_share
from steptax.app.views.job.actions import next_action
from steptax.app.views.job.card_standing import Standing, leading_cause, standing
from steptax.app.views.job.cause_models import FindingRow
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.job.metrics import HOURS_PER_DAY
from steptax.app.views.job.models import Card
from steptax.app.views.models import LedgerLine, Price
from steptax.app.views.pricing.given import NO_WORLD, dollars, level_text

#: Steps named as the ones to look at.
LISTED_STEPS = 8
#: What costs per hour and day are of: nobody knows how much of the next day is spent in steps.
_MEAN = "of steps, the mean of those looked at"
_WHILE = "of steps, as long as it is slow"


def build_card(
    loaded: LoadedJob,
    result: StragglerResult,
    metrics: dict[str, Measure],
    ledger: tuple[LedgerLine, ...],
    price: Price,
    since: Onset,
    findings: tuple[FindingRow, ...] = (),
) -> Card:
    """The card of a job; what cannot be known says why. ``since`` is the onset of the culprit.

    The cause is that of the finding about the culprit, costliest first in ``findings``; the
    evidence of the phases alone stands in where there is none.
    """
    verdict, explanation = result.verdict, result.explanation
    hint = explanation.hints[0] if explanation.hints else None
    culprit = verdict.culprit
    dominant = explanation.dominant
    now = standing(result, findings)
    why = leading_cause(result, findings, now)
    costs = _costs(loaded, metrics, price, now)
    return Card(
        verdict=verdict.kind.value,
        sentence=now.sentence,
        job_utilisation=metrics["job_utilisation_ratio"],
        step_ms=metrics["step_ms"],
        ideal_step_ms=metrics["ideal_step_ms"],
        slowdown=result.slowdown_ratio,
        straggler_tax=result.tax_ratio,
        dominant_cause=dominant_loss(ledger, result.tax_ratio),
        culprit_rank=culprit,
        culprit_ranks=verdict.ranks,
        culprit_place=None if culprit is None else _place(loaded.places.get(culprit)),
        culprit_scope=None if culprit is None else _scope(loaded.places.get(culprit)),
        phase=None if dominant is None else dominant.phase,
        phase_share=_phase_share(explanation),
        excess_ms=metrics["excess_ms"],
        excess_against=(
            "of every step, on all ranks alike"
            if result.slow_links is not None
            else "over the median of the same pipeline stage's other ranks"
            if loaded.matrix.has_pipeline
            else "over the median of the other ranks"
        ),
        persistence=metrics["persistence_ratio"],
        persistence_of="steps" if result.slow_links is None else "link probes",
        stability=metrics["stability_ratio"],
        since=since.text,
        since_step=since.first_step,
        probable_cause=_cause(verdict, hint, explanation) if why is None else why.sentence,
        evidence_for=(() if hint is None else hint.evidence_for)
        if why is None
        else why.evidence_for,
        evidence_against=(
            (() if hint is None else hint.evidence_against) if why is None else why.evidence_against
        ),
        would_settle=(() if hint is None else hint.settle) if why is None else why.would_settle,
        cost_per_hour_usd=costs[0],
        cost_per_day_usd=costs[1],
        cost_basis=_MEAN if now.lead is None else _WHILE,
        cost_since_usd=_cost_since(metrics, now),
        cost_window_usd=metrics["recoverable_usd"]
        if now.lead is None or culprit is not None
        else now.lead.cost_usd,
        next_action=next_action(result, findings, str(loaded.job["job_id"])),
        confidence=None if why is None or why.cause is None else why.confidence,
        level=level_text(result.basis.level),
        estimate_note=(
            "per-rank estimate, no dependency graph" if loaded.matrix.has_pipeline else None
        ),
        slow_steps=_slow_steps(result, culprit),
    )


def _costs(
    loaded: LoadedJob, metrics: dict[str, Measure], price: Price, now: Standing
) -> tuple[Measure, Measure]:
    """Per hour and per day, as long as it goes on: nothing where it is over."""
    if now.over is not None:
        return Measure.missing("USD/h", now.over), Measure.missing("USD/day", now.over)
    if now.lead is None:
        return metrics["recoverable_usd_per_hour"], metrics["recoverable_usd_per_day"]
    if loaded.world_is_unknown:
        return Measure.missing("USD/h", NO_WORLD), Measure.missing("USD/day", NO_WORLD)
    hours = now.lead.while_slow.map(
        lambda share: share * loaded.matrix.world_size, "GPU-hours per hour", "world_size"
    )
    daily = hours.map(lambda value: value * HOURS_PER_DAY, "GPU-hours per day")
    return dollars(hours, price, unit="USD/h"), dollars(daily, price, unit="USD/day")


def _cost_since(metrics: dict[str, Measure], now: Standing) -> Measure | None:
    """Per day since the culprit became slow, where the costs are the mean of a longer time."""
    told = metrics["recoverable_since_usd_per_day"]
    return None if told.value is None or now.lead is not None or now.over is not None else told


def dominant_loss(ledger: tuple[LedgerLine, ...], tax: Measure | None = None) -> str:
    """The largest bucket that is not the ranks' own computing, in words.

    Waiting is told as the straggler ``tax`` where that stands beside it: the tax is of steps that
    all ranks reported, the ledger of all steps, and two figures of one thing would be one too many.
    """
    shares = {line.title: line.share for line in ledger if line.is_loss and line.share}
    if not shares:
        return "no loss was measured"
    title, share = max(shares.items(), key=lambda item: item[1])
    of_loss = format_share(share / sum(shares.values()))
    if tax is not None and tax.value is not None and title == TITLES["straggler_wait"]:
        return f"{title}: the straggler tax, {of_loss} of the loss"
    return f"{title} ({format_share(share)} of paid time, {of_loss} of the loss)"


def _phase_share(explanation: Explanation) -> Measure:
    dominant = explanation.dominant
    if dominant is None:
        return Ratio.missing("ratio", explanation.reason or "no phase was measured")
    # Phases can make up for each other, so the largest may carry more than the whole excess.
    return Ratio(min(1.0, max(0.0, dominant.share_ratio)), "ratio")


def _cause(verdict: Verdict, hint: Hint | None, explanation: Explanation) -> str:
    kind = verdict.kind
    compared = "" if verdict.left_out is None else " that is compared"
    nobody = f"not named: no rank{compared} is slow for good"
    if kind is Kind.STAGE:
        return "pipeline partitioning: the stage has more work than the others, on all its ranks"
    if kind is Kind.NONE:
        return nobody
    if kind is Kind.UNTELLABLE:
        return "not named: it cannot be told who is slow"
    if kind is Kind.MOST:
        return f"not named: {explanation.reason}"
    if kind is Kind.SELDOM:
        return _of_nobody(nobody, explanation, "in its slow steps that rank")
    if kind in (Kind.MOVING, Kind.PASSED):
        return _of_nobody(nobody, explanation, "whichever rank is last")
    if hint is None:
        return explanation.reason or "cause not named: the evidence does not single one out"
    # Other phases can be shorter than the peers', so one may carry more than the whole excess.
    share = format_share(min(1.0, hint.share_ratio))
    return f"{hint.title} ({share} of the excess; confidence not scored)"


def _of_nobody(known: str, explanation: Explanation, who: str) -> str:
    """Of lateness that moves from rank to rank: what it is spent on is known, not whose fault."""
    dominant = explanation.dominant
    if dominant is None or not dominant.excess_us > 0:
        return known
    share = format_share(min(1.0, dominant.share_ratio))
    return f"{known}; {who} spends {share} of its time over its peers' in {dominant.phase}"


def _place(place: dict[str, Any] | None) -> str | None:
    if place is None:
        return None
    parts = []
    if place.get("host"):
        parts.append(f"host {place['host']}")
    if place.get("gpu_index") is not None:
        parts.append(f"GPU {place['gpu_index']}")
    if place.get("gpu_uuid"):
        parts.append(str(place["gpu_uuid"]))
    if place.get("pid") is not None:
        parts.append(f"process {place['pid']}")
    return ", ".join(parts) or None


def _scope(place: dict[str, Any] | None) -> str | None:
    if place is None:
        return None
    names = (("tp", "TP rank"), ("pp", "PP stage"), ("dp", "DP replica"), ("cp", "CP rank"))
    parts = [f"{title} {place[key]}" for key, title in names if place.get(key) is not None]
    return " · ".join(parts) or None


def _slow_steps(result: StragglerResult, culprit: int | None) -> tuple[int, ...]:
    """The used steps with the most waiting, of the culprit's where there is one."""
    table = result.steps
    wait = np.where(table.used, table.wait_sum_us, -np.inf)
    if culprit is not None:
        wait = np.where(table.last_rank == culprit, wait, -np.inf)
    order = np.argsort(-wait, kind="stable")[:LISTED_STEPS]
    return tuple(int(table.steps[i]) for i in order if np.isfinite(wait[i]) and wait[i] > 0)
