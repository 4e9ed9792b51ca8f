"""What to fix first: all that can be won back, largest first, each with its own next action.

What a slow rank costs is known from its steps, and what was rolled back from the steps that do not
count. Of what failed jobs held it is not known how much was saved: there an amount is the most that
can come back. Of what nobody held counts what was free at every moment.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.job_days import DAY_US, NOBODY
from steptax.app.compute.bill.waterfall_groups import unstated
from steptax.app.compute.fleet.least_free import least_free
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.exact import int_sum
from steptax.app.compute.stats.rows import Flags
from steptax.app.format import format_measure, format_share, format_usd
from steptax.app.views.review.executive_models import JobSummary
from steptax.app.views.review.jobs import ReviewJobs
from steptax.app.views.review.models import FixFirst
from steptax.app.views.review.periods import day_of, inside
from steptax.app.words import count_text

FAILED = "failed"
_CENT = 0.005
_NO_RATE = Measure.missing("USD/day", "it is not known how much of it comes back")


def fixes(jobs: ReviewJobs) -> tuple[FixFirst, ...]:
    """All that can be won back in the period, largest first; by GPU-hours where a cost is unknown.

    A job that failed counts once, with all that it held.
    """
    stragglers = _Stragglers(jobs)
    made = (_straggler(jobs, stragglers), _failed(jobs), _rolled_back(jobs), _idle(jobs))
    found = [one for one in made if one is not None]
    by_usd = stragglers.is_priced and all(one.worth_usd.value is not None for one in found)

    def size(one: FixFirst) -> float:
        return (one.worth_usd if by_usd else one.worth_gpu_hours).value or 0.0

    found.sort(key=lambda one: (-size(one), one.what))
    whole = sum(size(one) for one in found) + stragglers.others(by_usd=by_usd)
    return tuple(replace(one, worth=_worth(one, size(one) / whole)) for one in found if whole)


class _Stragglers:
    """Jobs with a persistent straggler, without those that failed: these count with all they held.

    ``first`` is where the costliest stands in ``places``: by what it costs, or by GPU-hours where
    the cost of one of them is not known.
    """

    def __init__(self, jobs: ReviewJobs) -> None:
        is_one = (jobs.recover_us > 0) & ~_has_failed(jobs)
        self.places = at = jobs.places[is_one[jobs.places]]
        self.hours = jobs.recover_us[at] / GPU_US_PER_HOUR
        self.usd = jobs.recover_usd[at]
        self.is_priced = not len(at) or bool(
            (jobs.unpriced_us[at] == 0).all() and (self.usd > 0).all()
        )
        sizes = self.usd if self.is_priced else self.hours
        self.first = int(sizes.argmax()) if len(at) else None

    def others(self, *, by_usd: bool) -> float:
        """USD, or GPU-hours, that the stragglers of all of them but the first cost."""
        sizes = self.usd if by_usd else self.hours
        return float(np.delete(sizes, self.first).sum()) if self.first is not None else 0.0


def _worth(found: FixFirst, share: float) -> str:
    """An amount, and its part of all that can be won back."""
    amount = found.worth_usd if found.worth_usd.value is not None else found.worth_gpu_hours
    most = "at most " if found.is_most else ""
    return f"{most}{format_measure(amount)}, {format_share(share)} of all that can be won back"


def _straggler(jobs: ReviewJobs, stragglers: _Stragglers) -> FixFirst | None:
    """The job whose persistent straggler costs most."""
    if stragglers.first is None:
        return None
    k = int(stragglers.places[stragglers.first])
    first = jobs[int(np.flatnonzero(jobs.places == k)[0])]
    facts, hours = jobs.review.base.steps[k], first.recoverable_gpu_hours
    price = jobs.price_of(k)
    per_day = Measure.missing("USD/day", "the job does not run")
    if jobs.review.base.jobs[k].get("state") == "running":
        per_day = Measure.missing("USD/day", jobs.review.no_price)
        if price is not None and facts.recoverable_hours_per_day is not None:
            # Of the same share of time as what came back so far, so with the same interval.
            rate = facts.recoverable_hours_per_day * float(price) / (hours.value or 1.0)
            per_day = hours.map(lambda h: h * rate, "USD/day")
    return FixFirst(
        what=f"job {first.job_id}",
        worth="",
        why=f"{first.culprit or 'a slow rank'} holds the others up; "
        + _why(facts.culprit_cause, first)
        + (f"; tax {first.trend} in its last quarter" if first.trend else ""),
        action=facts.action,
        job_id=first.job_id,
        owner=first.owner or first.team,
        worth_usd=first.recoverable_usd,
        worth_gpu_hours=hours,
        per_day_usd=per_day,
    )


def _why(cause: str | None, first: JobSummary) -> str:
    return first.dominant_cause if cause is None else f"cause: {cause}"


def _has_failed(jobs: ReviewJobs) -> Flags:
    """[J] jobs of the period that failed."""
    states, names = jobs.review.base.groups("state")
    failed = names.index(FAILED) if FAILED in names else -1
    return np.asarray(jobs.is_in & (states == failed))


def _failed(jobs: ReviewJobs) -> FixFirst | None:
    """What jobs that failed held: at most that is lost; None where no job is known to have."""
    own = np.flatnonzero(_has_failed(jobs))
    held = int_sum(jobs.held_us[own])
    if not held:
        return None
    codes, teams = jobs.review.base.groups("team")
    by_team = np.bincount(codes[own], weights=jobs.held_us[own].astype(np.float64))
    worst, most = teams[int(by_team.argmax())] or unstated("team"), float(by_team.max())
    usd = Measure(float(jobs.usd[own].sum()), "USD")
    if jobs.unpriced_us[own].any():
        usd = Measure.missing("USD", jobs.review.no_price)
    summed = any(jobs.review.base.jobs[k].get("is_sum") for k in own.tolist())
    where = f"; most of it of team {worst}: {format_share(most / held)}" if len(teams) > 1 else ""
    share = format_share(held / int_sum(jobs.held_us))
    return FixFirst(
        what="jobs that failed" if summed else f"{count_text(len(own), 'job')} that failed",
        worth="",
        why=f"they held {share} of the GPU-hours{where}; what of it was saved is not known",
        action="find out why they failed: steptax fleet names the hosts on which jobs fail most; "
        "steps or events of jobs tell what was lost",
        job_id=None,
        owner=None,
        worth_usd=usd,
        worth_gpu_hours=Measure(held / GPU_US_PER_HOUR, "GPU-hours"),
        per_day_usd=_NO_RATE,
        is_most=True,
    )


def _rolled_back(jobs: ReviewJobs) -> FixFirst | None:
    """Steps that jobs executed and then lost, as they went back to an earlier one."""
    review, rows = jobs.review, jobs.review.rows
    own = inside(review, jobs.days) & (review.owner >= 0) & (rows.lost_us > 0)
    own[own] = ~_has_failed(jobs)[review.owner[own]]
    if not own.any():
        return None
    lost, held = rows.lost_us[own], rows.held_us[own]
    by_job = np.bincount(review.owner[own], weights=lost.astype(np.float64))
    worst = int(by_job.argmax())
    job, count = review.base.jobs[worst], np.count_nonzero(by_job)
    job_id, whole = str(job["job_id"]), int(jobs.held_us[worst])
    usd = Measure(float((rows.usd[own] * (lost / held)).sum()), "USD")
    if rows.unpriced_us[own].any():
        usd = Measure.missing("USD", review.no_price)
    part = format_share(float(by_job[worst]) / whole)
    return FixFirst(
        what="work that was rolled back"
        + (f" of job {job_id}" if count == 1 else f" of {count_text(int(count), 'job')}"),
        worth="",
        why=f"job {job_id} executed steps and went back behind them: {part} of its time",
        action="find out why it stopped, and save more often: steptax calc checkpoint-interval "
        "says how often pays",
        job_id=job_id,
        owner=job.get("owner") or job.get("team"),
        worth_usd=usd,
        worth_gpu_hours=Measure(int_sum(lost) / GPU_US_PER_HOUR, "GPU-hours"),
        per_day_usd=_NO_RATE,
        is_most=True,
    )


def _idle(jobs: ReviewJobs) -> FixFirst | None:
    """What was paid for and held by nobody: what was free at every moment can be given back.

    The rest is room between jobs: how much of it is needed is not known, and it does not count.
    """
    review, rows = jobs.review, jobs.review.rows
    own = inside(review, jobs.days) & (review.owner == NOBODY)
    usd, free_us = float(rows.usd[own].sum()), int_sum(rows.held_us[own])
    if not review.is_billed or usd < _CENT:
        return None
    paid = float(rows.usd[inside(review, jobs.days)].sum())
    said = f"{format_share(usd / paid)} of the bill" if paid > usd else "all of the bill"
    count, us = _always_free(jobs)
    if not free_us or not count:
        return None
    back = min(count * us / free_us, 1.0)
    hours = free_us / GPU_US_PER_HOUR
    return FixFirst(
        what="devices that no job held",
        worth="",
        why=f"{count_text(count, 'device')} or more were free at every moment; with those that "
        f"were free at some moments {format_usd(usd)} was for devices that no job held, {said}",
        action="give the devices back that are always free, or fill them: steptax ledger --by day "
        "says when they were",
        job_id=None,
        owner=None,
        worth_usd=Measure(usd * back, "USD", usd * back, usd),
        worth_gpu_hours=Measure(hours * back, "GPU-hours", hours * back, hours),
        per_day_usd=Measure.missing("USD/day", "whether it goes on is not known"),
    )


def _always_free(jobs: ReviewJobs) -> tuple[int, int]:
    """Devices that were free at every moment of the period that is billed, and its length."""
    free, days = jobs.review.free, jobs.days
    if free is None:
        return 0, 0
    first, last = free.first_us, free.last_us
    if days is not None:
        first = max(first, day_of(days.first) * DAY_US)
        last = min(last, (day_of(days.last) + 1) * DAY_US)
    return least_free(free.start_us, free.end_us, free.gpus, first, last), max(last - first, 0)
