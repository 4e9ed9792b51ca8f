"""Jobs of the cost review, made when they are looked at, and what groups of them cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import overload

import numpy as np

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.job_days import DAY_US, NOBODY, OTHER
from steptax.app.compute.bill.ledger import Ledger
from steptax.app.compute.bill.waterfall_groups import unstated
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.spend.compared import Days
from steptax.app.compute.spend.totals import NOT_TOLD
from steptax.app.compute.stats.exact import int_sum, int_sums
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.views.fleet.groups import HELD_BY_NONE
from steptax.app.views.job.jobs import NO_STEPS
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import dollars
from steptax.app.views.review.executive_models import JobSummary
from steptax.app.views.review.models import ShowbackRow
from steptax.app.views.review.money import Review
from steptax.app.views.review.periods import day_of, inside
from steptax.app.words import rows_text

LEVELS = ("team", "project", "cluster", "owner")
UNMATCHED = "other services or nodes, which no job is known to have used"
#: What a bill has beside jobs.
OF_NO_JOB = (HELD_BY_NONE, UNMATCHED)
NO_BILL = (
    "no provider's bill is connected, so what was paid for and held by no job is unknown: "
    "steptax ingest focus FILE"
)


class ReviewJobs(Sequence[JobSummary]):
    """The jobs of a period, what can be won back first; each summary is made when it is asked for.

    A page shows some of fifty thousand; a file and a program get them all.
    """

    def __init__(self, review: Review, days: Days | None, cost: Price) -> None:
        base, rows = review.base, review.rows
        self.review, self.days, self.cost = review, days, cost
        keep = inside(review, days) & (review.owner >= 0)
        count = len(base.jobs)
        own = review.owner[keep]
        self.held_us = int_sums(own, rows.held_us[keep], count)
        self.usd = np.bincount(own, weights=rows.usd[keep], minlength=count)
        self.unpriced_us = int_sums(own, rows.unpriced_us[keep], count)
        self.recover_us = np.bincount(own, weights=rows.recover_us[keep], minlength=count)
        self.recover_usd = np.bincount(own, weights=rows.recover_usd[keep], minlength=count)
        self.told_us = np.bincount(own, weights=rows.told_us[keep], minlength=count)
        self.paid_us = np.bincount(own, weights=rows.paid_us[keep], minlength=count)
        places = _in_period(review, days, np.unique(own))
        back = -np.round(self.recover_us[places])
        held = -self.held_us[places].astype(np.float64)
        self.places = places[np.lexsort((base.ids[places], held, back))]
        self.is_in = np.zeros(count, dtype=np.bool_)
        """[J] whether the job is in the period."""
        self.is_in[places] = True

    def __len__(self) -> int:
        """Jobs of the period."""
        return len(self.places)

    @overload
    def __getitem__(self, at: int) -> JobSummary: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[JobSummary, ...]: ...
    def __getitem__(self, at: int | slice) -> JobSummary | tuple[JobSummary, ...]:
        """One of them, or some."""
        if isinstance(at, slice):
            return tuple(self._make(int(k)) for k in self.places[at])
        return self._make(int(self.places[at]))

    def __iter__(self) -> Iterator[JobSummary]:
        """All of them, made one by one."""
        return (self._make(int(k)) for k in self.places)

    def newest_first(self) -> Iterator[JobSummary]:
        """All of them in the order of ``ws.jobs()``."""
        return (self._make(int(k)) for k in np.sort(self.places))

    @property
    def hours_unknown(self) -> int:
        """Jobs whose GPU-hours are not known."""
        return int(np.count_nonzero(~self.review.base.hours_known[self.places]))

    @property
    def states_unknown(self) -> int:
        """Jobs whose state is not known."""
        codes, names = self.review.base.groups("state")
        unknown = names.index("") if "" in names else -1
        return int(np.count_nonzero(self.is_in & (codes == unknown)))

    @property
    def sums(self) -> int:
        """How many of them are no jobs, but sum what many used."""
        return int(np.count_nonzero(_is_sum(self.review)[self.places]))

    @property
    def text(self) -> str:
        """How many there are, in words."""
        return rows_text(len(self), self.sums)

    @property
    def with_steps(self) -> list[int]:
        """Places of the jobs of the period with steps."""
        return [k for k in self.review.base.steps if self.is_in[k]]

    @property
    def not_compared(self) -> list[int]:
        """Places of those with ranks that are not compared, where one of them may be slow."""
        return [k for k in self.with_steps if self.review.base.steps[k].left_out is not None]

    def share_of(self, k: int) -> Fraction:
        """How much of the recorded steps of the job at ``k`` lies in the period."""
        if self.days is None:
            return Fraction(1)
        facts = self.review.base.steps[k]
        whole = facts.recorded_us
        part = max(self.told_us[k], self.paid_us[k])
        return Fraction(min(part / whole, 1.0)) if whole else Fraction(0)

    def hours(self, k: int) -> Measure:
        """GPU-hours in the period of the job at ``k``."""
        if not self.review.base.hours_known[k]:
            reason = self.review.base.bills[k].reason
            return Measure.missing("GPU-hours", reason, level=Level.LOG)
        return Measure(int(self.held_us[k]) / GPU_US_PER_HOUR, "GPU-hours", level=Level.LOG)

    def spend(self, k: int, hours: Measure) -> Measure:
        """What it cost in the period."""
        if not self.review.is_priced_by_day:
            return dollars(hours, self.cost)
        if hours.value is None:
            return Measure.missing("USD", hours.reason or "", level=Level.LOG)
        if self.unpriced_us[k]:
            return Measure.missing("USD", self.review.no_price, level=Level.LOG)
        return Measure(float(self.usd[k]), "USD", level=Level.LOG)

    def waiting_us(self) -> Floats:
        """[J] GPU-microseconds in which ranks waited for a slower one."""
        return self._added("wait_us")

    def tokens(self) -> Floats:
        """[J] tokens of steps."""
        return self._added("tokens")

    def _added(self, name: str) -> Floats:
        keep = inside(self.review, self.days) & (self.review.owner >= 0)
        values: Floats = getattr(self.review.rows, name)[keep]
        count = len(self.review.base.jobs)
        added = np.bincount(self.review.owner[keep], weights=values, minlength=count)
        return added.astype(np.float64)

    def price_of(self, k: int) -> Decimal | None:
        """What a GPU-hour of the job at ``k`` costs, in the mean of the period."""
        if not self.review.is_priced_by_day:
            return self.cost.usd_per_gpu_hour
        hours = float(self.held_us[k] - self.unpriced_us[k]) / GPU_US_PER_HOUR
        usd = float(self.usd[k])
        return Decimal(repr(usd / hours)) if hours > 0 and usd > 0 else None

    def _make(self, k: int) -> JobSummary:
        job = self.review.base.jobs[k]
        hours = self.hours(k)
        spend = self.spend(k, hours)
        facts = self.review.base.steps.get(k)
        if facts is None:
            why = self.review.base.unread.get(job["job_id"], NO_STEPS)
            return JobSummary(
                job_id=job["job_id"],
                name=job.get("name"),
                team=job.get("team"),
                owner=job.get("owner"),
                state=job.get("state") or "unknown",
                start_us=job.get("start_us"),
                end_us=job.get("end_us"),
                world_size=job.get("world_size"),
                gpu_hours=hours,
                spend_usd=spend,
                straggler_tax=replace(_NO_TAX, reason=why),
                recoverable_gpu_hours=replace(_NO_HOURS, reason=why),
                recoverable_usd=replace(_NO_USD, reason=why),
                dominant_cause="unknown: " + why,
                coverage="job record only" if why == NO_STEPS else "steps not analysed",
                cause="unknown: " + why,
            )
        share = float(self.share_of(k))
        back = facts.summary.recoverable_gpu_hours.map(lambda h: h * share, "GPU-hours")
        if not self.review.is_priced_by_day:
            usd = dollars(back, self.cost)
        elif back.value is None:
            usd = Measure.missing("USD", back.reason or "", level=back.level)
        elif self.unpriced_us[k] or (back.value and not self.recover_usd[k]):
            usd = Measure.missing("USD", self.review.no_price, level=back.level)
        else:
            per_hour = float(self.recover_usd[k]) / back.value if back.value else 0.0
            usd = back.map(lambda h: h * per_hour, "USD", "price")
        return replace(
            facts.summary,
            gpu_hours=hours if hours.value is not None else facts.summary.gpu_hours,
            spend_usd=spend,
            recoverable_gpu_hours=back,
            recoverable_usd=usd,
            trend=facts.trend,
            # That there is none to repair is known.
            culprit=facts.culprit or ("nobody" if back.value == 0 else None),
            cause=facts.culprit_cause
            or facts.cause
            or f"not named; largest loss: {facts.summary.dominant_cause}",
        )


_NO_TAX = Ratio.missing("ratio", NO_STEPS, level=Level.LOG)
_NO_HOURS = Measure.missing("GPU-hours", NO_STEPS, level=Level.LOG)
_NO_USD = Measure.missing("USD", NO_STEPS, level=Level.LOG)


def _is_sum(review: Review) -> Flags:
    """[J] which rows are no jobs, but sum what many used."""
    return np.fromiter((bool(job.get("is_sum")) for job in review.base.jobs), np.bool_)


def _in_period(review: Review, days: Days | None, held: Ints) -> Ints:
    """Places of the jobs that held devices in the period, or started in it and nobody knows."""
    base = review.base
    if days is None:
        return np.arange(len(base.jobs))
    begin, end = day_of(days.first), day_of(days.last)
    unknown = [
        k
        for k in np.flatnonzero(~base.hours_known).tolist()
        if (start := base.jobs[k].get("start_us")) is not None and begin <= start // DAY_US <= end
    ]
    return np.union1d(held, np.array(unknown, dtype=np.int64))


def part_of(ledger: Ledger, share: Fraction) -> Ledger:
    """``share`` of every bucket of a ledger."""
    if share == 1:
        return ledger
    rows = tuple(
        replace(row, gpu_us=None if row.gpu_us is None else row.gpu_us * share, usd=None)
        for row in ledger.rows
    )
    return replace(ledger, rows=rows, paid_gpu_us=ledger.paid_gpu_us * share, paid_usd=None)


# -- showback -------------------------------------------------------------------------------------


def showback(jobs: ReviewJobs, level: str) -> tuple[ShowbackRow, ...]:
    """The jobs by ``level``, most GPU-hours first, then what was paid for and held by none."""
    review = jobs.review
    codes, names = review.base.groups(level)
    at = jobs.places
    group, count = codes[at], len(names)

    def added(values: Floats | Ints | Flags) -> list[float]:
        sums = np.bincount(group, weights=values[at].astype(np.float64), minlength=count)
        return [float(value) for value in sums]

    held = int_sums(group, jobs.held_us[at], count)
    known = added(review.base.hours_known)
    priced = added(jobs.unpriced_us == 0)
    usd, back, told = added(jobs.usd), added(jobs.recover_usd), added(jobs.told_us > 0)
    worth = added((jobs.told_us > 0) & (jobs.unpriced_us < np.maximum(jobs.held_us, 1)))
    unpriced, paid = added(jobs.unpriced_us), added(jobs.paid_us)
    sizes = np.bincount(group, minlength=count).tolist()
    sums = added(_is_sum(review))
    rows = []
    for k, name in enumerate(names):
        if not sizes[k]:
            continue
        hours = _some(int(held[k]) / GPU_US_PER_HOUR, "GPU-hours", known[k], sizes[k], "hours")
        money = known[k] and unpriced[k] < max(int(held[k]), 1)
        why = review.no_price if known[k] else hours.reason or ""
        spend = (
            _some(usd[k], "USD", min(known[k], priced[k]), sizes[k], "cost")
            if money
            else Measure.missing("USD", why)
        )
        recover = Measure.missing("USD", NOT_TOLD if paid[k] else NO_STEPS)
        if told[k]:
            recover = (
                _some(back[k], "USD", worth[k], sizes[k], "steps")
                if money and worth[k]
                else Measure.missing("USD", review.no_price if money else why)
            )
        counted = None if sums[k] else sizes[k]
        rows.append(ShowbackRow(name or unstated(level), counted, hours, spend, recover))
    rows.sort(key=lambda row: (-(row.gpu_hours.value or 0.0), row.name))
    return tuple(rows)


def _some(value: float, unit: str, known: float, of: int, what: str) -> Measure:
    """A sum over those of a group of which it is known."""
    if not known:
        return Measure.missing(unit, f"the {what} of none of them is known")
    left = of - round(known)
    warnings = (f"without {left:,} of {of:,} jobs, where it is unknown",) if left else ()
    return Measure(value, unit, level=Level.LOG, warnings=warnings)


def unallocated(review: Review, days: Days | None) -> ShowbackRow:
    """What was paid for and held by no job."""
    if not review.is_billed:
        hours, usd = Measure.missing("GPU-hours", NO_BILL), Measure.missing("USD", NO_BILL)
    else:
        own = inside(review, days) & (review.owner == NOBODY)
        held = int_sum(review.rows.held_us[own])
        hours = Measure(held / GPU_US_PER_HOUR, "GPU-hours", level=Level.LOG)
        usd = Measure(float(review.rows.usd[own].sum()), "USD", level=Level.LOG)
    none = Measure.missing("USD", "no job ran, so nothing waited")
    return ShowbackRow(HELD_BY_NONE, 0, hours, usd, none)


def unmatched(review: Review, days: Days | None) -> ShowbackRow | None:
    """What was charged for what no job is known to have used; None where nothing was."""
    own = inside(review, days) & (review.owner == OTHER)
    if not own.any():
        return None
    hours = Measure.missing("GPU-hours", "the charge does not tell of a device of a job")
    usd = Measure(float(review.rows.usd[own].sum()), "USD", level=Level.LOG)
    return ShowbackRow(UNMATCHED, 0, hours, usd, Measure.missing("USD", "no job used it"))
