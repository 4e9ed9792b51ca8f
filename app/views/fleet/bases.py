"""What each headline number of the fleet is a share of: it may be few of all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steptax.app.compute.fleet.failures import FailureRate
from steptax.app.compute.fleet.slow import FailSlowRow, Spread
from steptax.app.compute.fleet.states import OPEN_STATES, UNKNOWN_STATE, JobFact, hours_of
from steptax.app.compute.measure import Measure
from steptax.app.format import format_measure, format_share
from steptax.app.words import count_text


def bases(
    jobs: Sequence[JobFact],
    metrics: Mapping[str, Measure],
    hours: Measure,
    rate: FailureRate,
    slow: FailSlowRow,
    speeds: int,
    ettr: Spread,
) -> dict[str, str]:
    """By metric id, in words; what is not known has no base.

    ``speeds`` are jobs of which it is known how slow they are.
    """
    ended = [f for f in jobs if f.state not in OPEN_STATES and f.state != UNKNOWN_STATE]
    single = [f for f in ended if not f.is_sum]
    every = sum(not f.is_sum for f in jobs)
    told = {
        "failed_jobs_ratio": f"of the {len(single):,} of {count_text(every, 'job')} that are "
        "known to have ended",
        "failed_gpu_hours_ratio": _of_hours(hours_of(ended), hours),
        "mtbf_gpu_hours": f"{rate.failures:,} failures in {rate.gpu_hours:,.0f} GPU-hours",
        "fail_slow_jobs_ratio": f"{slow.affected:,} of {count_text(slow.jobs, 'job')} in which "
        "it can be told",
        "slow_jobs_ratio": f"of the {count_text(speeds, 'job')} whose per-rank steps tell it",
        "ettr_ratio": _of_jobs(len(jobs), ettr.jobs),
        "unallocated_ratio": "of all that was paid for, over the whole record",
    }
    return {name: text for name, text in told.items() if metrics[name].value is not None and text}


def _of_jobs(jobs: int, told: int) -> str:
    """Of the time of all jobs, of which some tell it; the rest is between the bounds."""
    if told == jobs:
        return f"of {count_text(jobs, 'job')}"
    return f"of all {count_text(jobs, 'job')}, of which {told:,} tell it"


def _of_hours(part: Measure, whole: Measure) -> str:
    if part.value is None or not whole.value:
        return ""
    share = format_share(min(part.value / whole.value, 1.0))
    return f"of the {format_measure(part)} of what ended, {share} of all"
