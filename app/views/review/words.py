"""What the cost review says in words: its sentence, its numbers, what they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from steptax.app.compute.bill.job_days import OTHER
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.stats.exact import int_sum
from steptax.app.format import format_measure, format_share, format_usd, format_value
from steptax.app.metrics import check_metrics
from steptax.app.views.models import LedgerLine
from steptax.app.views.review.executive_models import Kpi
from steptax.app.views.review.jobs import UNMATCHED, ReviewJobs
from steptax.app.views.review.models import FixFirst, SilentSource
from steptax.app.views.review.money import Review
from steptax.app.views.review.periods import Periods, inside
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text, day_text

_US_PER_HOUR = 3.6e9
#: Where less of the hours was recorded in steps, these say nothing of where the time went.
_SLIVER = 0.01


def sentence(
    jobs: ReviewJobs,
    periods: Periods,
    hours: Measure,
    measured: Measure,
    lines: Sequence[LedgerLine],
    spend: Measure,
    first: FixFirst | None,
    idle: Measure,
    silent: Sequence[SilentSource],
) -> str:
    """What was paid, where it went, and what to fix first."""
    when = "" if periods.chosen is None else f", {periods.chosen.text}"
    if not len(jobs):
        if jobs.review.is_billed and spend.value is not None:
            return (
                f"You were billed {format_measure(spend)}{when}, and no job is known to have used "
                "any of it: nothing tells of jobs yet (steptax watch slurm, steptax ingest jobs "
                "FILE)."
            )
        return "There are no jobs in this period."
    known = len(jobs) - jobs.hours_unknown
    of = f"{known:,} of " if 0 < known < len(jobs) else ""
    whose = f"{format_measure(hours)} over {of}{jobs.text}"
    if jobs.review.is_billed and spend.value is not None:
        text = _billed(jobs, whose, when, idle)
    elif spend.value is not None:
        text = _paid(jobs, spend, whose, when)
    else:
        held = whose if hours.value is not None else jobs.text
        text = f"What you paid for {held}{when} is unknown: {spend.reason}."
    text += _where(lines, hours, measured, _rolled_back(jobs))
    if first is not None:
        text += f" Fix first: {first.what}, worth {first.worth}."
    elif lines and spend.value is not None and not _is_little(hours, measured):
        text += f" No persistent straggler was found, {_won_back(jobs)}."
    return text


def _won_back(jobs: ReviewJobs) -> str:
    """What one repair returns where no straggler was found: nothing, if all were compared."""
    base, open_ = jobs.review.base, jobs.not_compared
    if not open_:
        return "so nothing is to be won back by one repair"
    who = f"in {count_text(len(open_), 'job')} some ranks reported too few steps to be compared"
    if len(open_) == 1:
        who = f"in job {base.jobs[open_[0]]['job_id']} {base.steps[open_[0]].left_out}"
    return f"but {who}: what is to be won back there is unknown"


def _paid(jobs: ReviewJobs, spend: Measure, whose: str, when: str) -> str:
    """What was paid at prices, and for which part of the hours there is one."""
    rows = jobs.review.rows
    own = inside(jobs.review, jobs.days) & (jobs.review.owner >= 0)
    unpriced_us = int_sum(rows.unpriced_us[own])
    if not unpriced_us:
        return f"You paid {format_measure(spend)} for {whose}{when}."
    priced_us = int_sum(rows.held_us[own]) - unpriced_us
    priced, free = (format_value(us / _US_PER_HOUR, "GPU-hours") for us in (priced_us, unpriced_us))
    return (
        f"You paid {format_measure(spend)} for {priced} of the {whose}{when}; the other {free} "
        "have no price."
    )


def _billed(jobs: ReviewJobs, whose: str, when: str, idle: Measure) -> str:
    """What a provider billed, what of it became work, and what no job explains."""
    review = jobs.review
    keep = inside(review, jobs.days)
    own = keep & (review.owner >= 0)
    rows = review.rows
    cost = float(rows.usd[own].sum())
    free = idle.value or 0.0
    other = float(rows.usd[keep & (review.owner == OTHER)].sum())
    text = f"You were billed {format_usd(cost + free + other)}{when}: "
    text += _for_jobs(cost, whose, int_sum(rows.held_us[own]), int_sum(rows.unpriced_us[own]))
    hidden = bool(rows.open_us[own].any())
    # Of steps whose cost is not known nobody can say what went into them.
    told = own & (rows.unpriced_us == 0)
    if rows.step_us[told].any() or (rows.has_steps[told].any() and not hidden):
        share = rows.step_us[own] / np.maximum(rows.held_us[own], 1)
        work = format_usd(float((rows.usd[own] * share).sum()))
        text += f", of which {'at least ' if hidden else ''}{work} went into steps that count"
    else:
        text += ", and how much of that went into steps that count is unknown"
    parts = []
    if _shown(free):
        parts.append(f"{format_usd(free)} for devices that no job held")
    if _shown(other):
        parts.append(f"{format_usd(other)} for {UNMATCHED}")
    return f"{text}; {' and '.join(parts)}." if parts else f"{text}."


def _for_jobs(cost: float, whose: str, held_us: int, unpriced_us: int) -> str:
    """What jobs cost, as far as charges name them."""
    if held_us and unpriced_us == held_us and not cost:
        return f"what {whose} cost is unknown, since no charge names them"
    if not unpriced_us:
        return f"{format_usd(cost)} for {whose}"
    free = format_value(unpriced_us / _US_PER_HOUR, "GPU-hours")
    return f"{format_usd(cost)} for {whose}, {free} of it without any charge"


def _shown(usd: float) -> bool:
    """Whether an amount is a cent or more, either way."""
    return abs(usd) >= 0.005


def _rolled_back(jobs: ReviewJobs) -> float:
    """GPU-hours of steps that were executed and lost."""
    own = inside(jobs.review, jobs.days) & (jobs.review.owner >= 0)
    return int_sum(jobs.review.rows.lost_us[own]) / _US_PER_HOUR


def _where(
    lines: Sequence[LedgerLine], hours: Measure, measured: Measure, rolled_back: float
) -> str:
    """What the recorded steps say of where the time went."""
    if not lines:
        return " No job has per-rank steps, so where the time went is unknown."
    told = measured.value or 0.0
    if _is_little(hours, measured):
        text = format_value(told, "GPU-hours")
        return f" Only {text} of it were recorded in steps: too little to say where the time went."
    text = " Of it,"
    if hours.value and told < 0.95 * hours.value:
        text = f" On the {format_share(told / hours.value)} that was recorded in steps,"
    compute = next((line.share for line in lines if line.bucket == "compute"), None)
    if compute is not None:
        text += f" {format_share(compute)} was the ranks' own computing"
    else:
        text += " the ranks' own computing was not measured"
    losses = {line.title: line.share for line in lines if line.is_loss and line.share}
    if rolled_back and measured.value:
        losses["work that was rolled back"] = rolled_back / measured.value
    if losses:
        title, share = max(losses.items(), key=lambda item: item[1])
        # Beside computing: how much of that was lost is in the whole bill, for it takes FLOPs.
        text += f"; the largest loss beside it is {title} ({format_share(share)})"
    return f"{text}."


def _is_little(hours: Measure, measured: Measure) -> bool:
    """Whether next to nothing of the hours was recorded in steps."""
    return bool(hours.value) and (measured.value or 0.0) < _SLIVER * (hours.value or 0.0)


def kpis(
    hours: Measure,
    spend: Measure,
    tax: Ratio,
    tax_usd: Measure,
    recoverable: Measure,
    lines: Sequence[LedgerLine],
    review: Review,
) -> tuple[Kpi, ...]:
    """The headline numbers that every export has."""
    compute = next((line.share for line in lines if line.bucket == "compute"), None)
    share = (
        Ratio(compute, level=Level.PHASES)
        if compute is not None
        else Ratio.missing("ratio", "no job splits its steps into phases")
    )
    tax_text = format_measure(tax)
    if tax_usd.value is not None:
        tax_text += f" = {format_measure(tax_usd)}"
    shown = {
        "spend_usd": spend,
        "gpu_hours": hours,
        "compute_share_ratio": share,
        "straggler_tax_ratio": tax,
        "recoverable_usd": recoverable,
    }
    check_metrics(shown)
    return (
        Kpi(
            "Spend",
            spend,
            format_measure(spend) if spend.value is not None else spend.reason or review.no_price,
            "spend_usd",
            f"GPU-hours x price; {review.basis}",
        ),
        Kpi("GPU-hours", hours, format_measure(hours), "gpu_hours", "held by the jobs"),
        Kpi(
            "Own computing",
            share,
            format_measure(share),
            "compute_share_ratio",
            "compute phase / paid time of the recorded steps; not MFU",
        ),
        Kpi(
            "Straggler tax",
            tax,
            tax_text,
            "straggler_tax_ratio",
            "waiting for the slowest rank / paid time, weighted by GPU-hours",
        ),
        Kpi(
            "Recoverable",
            recoverable,
            format_measure(recoverable),
            "recoverable_usd",
            "what persistent stragglers cost beyond their peers' median, at this price",
        ),
    )


def ledger_note(measured_jobs: int, jobs: int, measured: Measure) -> str:
    """What the ledger of the recorded steps covers."""
    return (
        f"Recorded steps of {measured_jobs:,} of {jobs:,} jobs, "
        f"{format_measure(measured)}; the buckets add up to it exactly."
        if measured_jobs
        else "No job has per-rank steps with real times."
    )


def recorded(jobs: ReviewJobs) -> str:
    """Of how many jobs there are steps."""
    own = [jobs.review.base.steps[k] for k in jobs.with_steps]
    logs = sum(facts.is_of_job for facts in own)
    text = f"{len(own) - logs:,} of {jobs.text} have per-rank steps"
    return f"{text}, {logs:,} the step times of a log" if logs else text


def reconciled(ws: Workspace, review: Review) -> str:
    """Whether money rests on a bill."""
    if review.is_billed:
        return "reconciled with the connected bill below"
    if ws.lake.segments("charges"):
        return "not reconciled with the connected bill; the whole bill is"
    return "not reconciled with a bill"


def after_today(periods: Periods, today: date) -> tuple[str, ...]:
    """That devices are held on days that have not come: a start or an end may be wrong."""
    if periods.record is None or periods.record.last <= today:
        return ()
    return (
        f"jobs hold devices until {day_text(periods.record.last)}, and today is "
        f"{day_text(today)}: a start or an end may be wrong",
    )


def warnings_of(
    jobs: ReviewJobs, review: Review, silent: Sequence[SilentSource]
) -> tuple[str, ...]:
    """What limits the numbers."""
    warnings = [one.text for one in silent]
    unknown, states = jobs.hours_unknown, jobs.states_unknown
    if unknown:
        warnings.append(f"GPU-hours are unknown for {unknown:,} of {count_text(len(jobs), 'job')}")
    if states:
        warnings.append(
            f"the final state is unknown for {states:,} of {count_text(len(jobs), 'job')}"
        )
    own = [jobs.review.base.steps[k] for k in jobs.with_steps]
    relative = sum(facts.is_relative for facts in own)
    if relative:
        warnings.append(
            f"times of {count_text(relative, 'job')} are normalised: left out of the ledger"
        )
    sizeless = sum(facts.world_is_unknown for facts in own)
    if sizeless:
        warnings.append(
            f"how many ranks {count_text(sizeless, 'job')} had is not in their log: left out of "
            "the "
            "ledger"
        )
    return (*warnings, *review.warnings)
