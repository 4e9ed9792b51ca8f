"""Which jobs a part of a distribution is made of: a bucket of the bill, a bar of a histogram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from heapq import nlargest

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.views.fleet.bill_models import USD, FleetBill, FleetGroup
from steptax.app.views.fleet.groups import HELD_BY_NONE
from steptax.app.views.fleet.job_groups import JobGroups
from steptax.app.views.review.jobs import ReviewJobs

#: Jobs that are listed.
LISTED = 200
#: Bars of a histogram of shares: twentieths.
BINS = 20
_S_PER_HOUR = 3600


@dataclass(frozen=True)
class BucketJob:
    """What one job has in a bucket."""

    job_id: str
    gpu_hours: float
    share: float | None
    """Of what the job held."""
    usd: float | Decimal | None
    """None without a price, or where it is not known."""


def of_bill(bill: FleetBill, bucket: str, most: int = LISTED) -> tuple[BucketJob, ...]:
    """The jobs of a bill by job with most time in ``bucket``."""
    groups: Iterable[FleetGroup] = bill.groups
    if isinstance(bill.groups, JobGroups):
        # Jobs of which nothing but the record is known have all of their time in one bucket.
        groups = [*bill.groups.told(), *bill.groups.silent(most)]
    found = []
    for group in groups:
        line = next((one for one in group.lines if one.bucket == bucket), None)
        if line is None or not line.gpu_seconds or group.name == HELD_BY_NONE:
            continue
        usd = line.cost if bill.currency == USD else None
        hours = line.gpu_seconds / _S_PER_HOUR
        share = hours / group.gpu_hours if group.gpu_hours else None
        found.append(BucketJob(group.name, hours, share, usd))
    return tuple(nlargest(most, found, key=lambda one: one.gpu_hours))


def of_steps(jobs: ReviewJobs, bucket: str, most: int = LISTED) -> tuple[BucketJob, ...]:
    """The jobs of a review with most time of their recorded steps in ``bucket``."""
    found = []
    for k in jobs.with_steps:
        facts = jobs.review.base.steps[k]
        row = facts.ledger.row(bucket)
        if not facts.is_timed or row is None or not row.gpu_us:
            continue
        hours = float(row.gpu_us * jobs.share_of(k) / GPU_US_PER_HOUR)
        price = jobs.price_of(k)
        usd = None if price is None else hours * float(price)
        job_id = str(jobs.review.base.jobs[k]["job_id"])
        found.append(BucketJob(job_id, hours, row.share_ratio, usd))
    return tuple(nlargest(most, found, key=lambda one: one.gpu_hours))


def bin_of(value: float) -> int:
    """Which bar of a histogram a share is in."""
    return min(max(int(value * BINS), 0), BINS - 1)


def bin_at_pct(value: object) -> int:
    """Which bar of a histogram is at ``value`` of its axis, in per cent."""
    return bin_of(float(str(value)) / 100)


def bin_text(number: int) -> str:
    """``15 to 20 %``."""
    return f"{100 * number // BINS} to {100 * (number + 1) // BINS} %"


def in_bin(
    values: Sequence[tuple[str, float]], number: int, most: int = LISTED
) -> tuple[tuple[str, float], ...]:
    """Jobs and their shares in one bar, largest first."""
    own = [(job_id, value) for job_id, value in values if bin_of(value) == number]
    return tuple(sorted(own, key=lambda pair: (-pair[1], pair[0]))[:most])
