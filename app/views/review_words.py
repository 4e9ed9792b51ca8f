"""What the cost review says in words: its sentence, its numbers, what they rest on."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.format import format_measure, format_share, format_usd, format_value
from steptax.app.metrics import check_metrics
from steptax.app.views.executive_models import Kpi
from steptax.app.views.fleet_bill_models import jobs_text
from steptax.app.views.models import LedgerLine
from steptax.app.views.price import NO_PRICE
from steptax.app.views.review_jobs import ReviewJobs
from steptax.app.views.review_models import FixFirst, SilentSource
from steptax.app.views.review_money import Review
from steptax.app.views.review_periods import Periods
from steptax.app.views.workspace import Workspace

_US_PER_HOUR = 3.6e9
#: Parts of the whole below which nobody reads a percentage.
_SLIVER = 0.001


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
    if not len(jobs):
        return "There are no jobs in this period."
    paid = f"{format_measure(spend)} for " if spend.value is not None else ""
    known = len(jobs) - jobs.hours_unknown
    of = f"{known:,} of " if 0 < known < len(jobs) else ""
    text = f"You paid {paid}{format_measure(hours)} over {of}{jobs_text(len(jobs))}"
    text += "" if periods.chosen is None else f", {periods.chosen.text}"
    text += f", {format_usd(idle.value)} of it for devices that no job held." if idle.value else "."
    text += _where(lines, hours, measured)
    if jobs.recover_us[jobs.places].any() and first is not None and first.job_id is not None:
        back = jobs.recover_usd if first.worth_usd.value is not None else None
        unit = "GPU-hours" if back is None else "USD"
        total = float(jobs.recover_us.sum() / _US_PER_HOUR if back is None else back.sum())
        worth = first.worth_gpu_hours if back is None else first.worth_usd
        text += (
            f" Fix job {first.job_id} first: it would have returned {format_measure(worth)} of "
            f"{format_measure(Measure(total, unit))}."
        )
        text += "" if spend.value is not None else " Set a price per GPU-hour to see dollars."
    elif spend.value is None and jobs.review.no_price == NO_PRICE:
        text += " Set a price per GPU-hour to see dollars."
    elif lines:
        text += " No persistent straggler was found, so nothing is to be won back by one repair."
    return text


def recorded_share(recorded: float, hours: float) -> str:
    """Of how much of ``hours`` what follows is said; of a sliver hours say more than a share."""
    if recorded < _SLIVER * hours:
        return f"On the {format_value(recorded, 'GPU-hours')} that were recorded in steps,"
    return f"On the {format_share(recorded / hours)} that was recorded in steps,"


def _where(lines: Sequence[LedgerLine], hours: Measure, measured: Measure) -> str:
    """What the recorded steps say of where the time went."""
    if not lines:
        return " No job has per-rank steps, so where the time went is unknown."
    if hours.value and measured.value is not None and measured.value < 0.95 * hours.value:
        text = " " + recorded_share(measured.value, hours.value)
    else:
        text = " Of it,"
    compute = next((line.share for line in lines if line.bucket == "compute"), None)
    if compute is not None:
        text += f" {format_share(compute)} was the ranks' own computing"
    else:
        text += " the ranks' own computing was not measured"
    losses = {line.title: line.share for line in lines if line.is_loss and line.share}
    if losses:
        title, share = max(losses.items(), key=lambda item: item[1])
        text += f"; the largest loss is {title} ({format_share(share)})"
    return f"{text}."


def kpis(
    hours: Measure,
    spend: Measure,
    tax: Ratio,
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
    wait = next((line for line in lines if line.bucket == "straggler_wait"), None)
    wait_usd = None if wait is None else wait.usd
    tax_text = format_measure(tax) + (f" = ${wait_usd:,.2f}" if wait_usd is not None else "")
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
    text = f"{len(own) - logs:,} of {len(jobs):,} jobs have per-rank steps"
    return f"{text}, {logs:,} the step times of a log" if logs else text


def reconciled(ws: Workspace, review: Review) -> str:
    """Whether money rests on a bill."""
    if review.is_billed:
        return "reconciled with the connected bill below"
    if ws.lake.segments("charges"):
        return "not reconciled with the connected bill; the whole bill is"
    return "not reconciled with a bill"


def warnings_of(
    jobs: ReviewJobs, review: Review, silent: Sequence[SilentSource]
) -> tuple[str, ...]:
    """What limits the numbers."""
    warnings = [one.text for one in silent]
    unknown, states = jobs.hours_unknown, jobs.states_unknown
    if unknown:
        warnings.append(f"GPU-hours are unknown for {unknown:,} of {len(jobs):,} jobs")
    if states:
        warnings.append(f"the final state is unknown for {states:,} of {len(jobs):,} jobs")
    own = [jobs.review.base.steps[k] for k in jobs.with_steps]
    relative = sum(facts.is_relative for facts in own)
    if relative:
        warnings.append(f"{relative} jobs have normalised times and are left out of the ledger")
    sizeless = sum(facts.world_is_unknown for facts in own)
    if sizeless:
        warnings.append(
            f"{sizeless:,} jobs are known from a log that does not say how many ranks they have, "
            "and are left out of the ledger"
        )
    return (*warnings, *review.warnings)
