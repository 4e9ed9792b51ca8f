"""Jobs of a fleet by how they ended and by how many devices they held.

A state that no source tells stays ``unknown``: it is in no share of failures, and opens the
interval of that share, from none of those jobs having failed to all of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.words import count_text

UNKNOWN_STATE = "unknown"
#: States of jobs that did not end.
OPEN_STATES = frozenset({"running", "pending"})
FAILED = "failed"
#: Least number of devices of each class.
SIZE_EDGES = (1, 2, 8, 16, 64, 256, 1024, 4096)
NO_DEVICES = "none"
SIZE_UNKNOWN = "not stated"
GPU_HOURS = "GPU-hours"
SUMMED = "the source sums many jobs, and does not state how many there were"


@dataclass(frozen=True, slots=True)
class JobFact:
    """What the fleet view needs to know of one job."""

    job_id: str
    state: str
    """As in the jobs table; ``unknown`` where no source tells."""
    gpus: int | None
    gpu_hours: float | None
    """Over its whole life; None where not known."""
    failures: int | None
    """How often it was interrupted by a failure; None where not known."""
    evictions: int = 0
    """How often it had to make room, which is no failure."""
    is_sum: bool = False
    """Whether it is no job, but what many jobs used: its hours count, and no job is counted."""

    @property
    def size(self) -> str:
        """Its class of size."""
        return size_class(self.gpus)


@dataclass(frozen=True)
class StateRow:
    """The jobs that ended in one way."""

    state: str
    jobs: int | None
    """None where a source sums jobs: how many there were is not known."""
    jobs_share: float | None
    gpu_hours: Measure
    gpu_hours_share: Measure
    """Of the GPU-hours that are known."""

    @property
    def name(self) -> str:
        """Its state, as a group of jobs."""
        return self.state


@dataclass(frozen=True)
class GroupRow:
    """The jobs of one group: a class of size, a team, a month of start."""

    name: str
    jobs: int | None
    """None where a source sums jobs: how many there were is not known."""
    gpu_hours: Measure
    gpu_hours_share: Measure
    jobs_by_state: dict[str, int]
    """Without what sums jobs."""
    gpu_hours_by_state: dict[str, float]
    failed_jobs: Measure
    failed_gpu_hours: Measure

    @property
    def size(self) -> str:
        """Its class of size, of a row of ``by_size``."""
        return self.name


@dataclass(frozen=True)
class FailureShares:
    """Failures among the jobs that ended, counted in two ways; they may differ by far."""

    by_jobs: Measure
    by_gpu_hours: Measure


@lru_cache(maxsize=4096)
def size_class(gpus: int | None) -> str:
    """``1``, ``2-7``, ``8-15``, ... ``4,096+``; ``none`` for no device, ``not stated`` for None."""
    if gpus is None:
        return SIZE_UNKNOWN
    if gpus < 1:
        return NO_DEVICES
    for low, above in pairwise(SIZE_EDGES):
        if gpus < above:
            return f"{low:,}" if above - low == 1 else f"{low:,}-{above - 1:,}"
    return f"{SIZE_EDGES[-1]:,}+"


def size_order(size: str) -> int:
    """Sorts classes of size, those without a number last."""
    if size in (NO_DEVICES, SIZE_UNKNOWN):
        return 10**9 + (size == SIZE_UNKNOWN)
    return int(size.split("-")[0].rstrip("+").replace(",", ""))


def hours_of(facts: Iterable[JobFact]) -> Measure:
    """GPU-hours of these jobs together; those that are not known are counted in a warning."""
    return _hours([fact.gpu_hours for fact in facts])


def _hours(values: Sequence[float | None]) -> Measure:
    known = [hours for hours in values if hours is not None]
    if not known:
        return Measure.missing(GPU_HOURS, "GPU-hours are known of none of these jobs")
    left = len(values) - len(known)
    said = (
        (f"without {left:,} of {count_text(len(values), 'job')}, where they are unknown",)
        if left
        else ()
    )
    return Measure(math.fsum(known), GPU_HOURS, level=Level.LOG, warnings=said)


def failure_shares(facts: Iterable[JobFact]) -> FailureShares:
    """Share of jobs that failed among those that ended, and of their GPU-hours."""
    listed = list(facts)
    return _failure_shares(_hours_by_state(listed), Counter(f.state for f in listed if f.is_sum))


def _hours_by_state(facts: Iterable[JobFact]) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = defaultdict(list)
    for fact in facts:
        found[fact.state].append(fact.gpu_hours)
    return found


def _failure_shares(
    by_state: Mapping[str, Sequence[float | None]], sums: Mapping[str, int]
) -> FailureShares:
    """``by_state`` are the GPU-hours of each job in each state, ``sums`` how many are no jobs."""
    ended = {state: own for state, own in by_state.items() if state not in OPEN_STATES}
    timed = {state: [h for h in own if h is not None] for state, own in ended.items()}
    said: tuple[str, ...] = ()
    if left := _count(ended) - _count(timed):
        said = (f"without {count_text(left, 'job')}, whose GPU-hours are unknown",)
    return FailureShares(_share_of_jobs(ended, sums), _share(timed, GPU_HOURS, said))


def _share_of_jobs(ended: Mapping[str, Sequence[float | None]], sums: Mapping[str, int]) -> Measure:
    """Failed / ended, by count; what sums jobs tells of no count."""
    left = sum(sums.get(state, 0) for state in ended)
    single = {state: [1.0] * (len(own) - sums.get(state, 0)) for state, own in ended.items()}
    if left and not _count(single):
        return Measure.missing("ratio", SUMMED)
    text = f"{left:,} {'sum' if left == 1 else 'sums'} of many jobs"
    said = (f"without {text}: how many there were is not stated",)
    return _share({state: own for state, own in single.items() if own}, "jobs", said[: bool(left)])


def _count(by_state: Mapping[str, Sequence[float | None]]) -> int:
    return sum(map(len, by_state.values()))


def _share(by_state: Mapping[str, Sequence[float]], what: str, said: tuple[str, ...]) -> Measure:
    """Failed / known to have ended, by weight; open by what is not known."""
    whole = math.fsum(chain.from_iterable(by_state.values()))
    none = by_state.get(UNKNOWN_STATE, ())
    unknown = math.fsum(none)
    failed = math.fsum(by_state.get(FAILED, ()))
    count = _count(by_state)
    if not count:
        return Measure.missing("ratio", "no job has ended")
    if len(none) == count:
        return Measure.missing(
            "ratio", f"how it ended is known of none of {count_text(count, 'job')}"
        )
    known = whole - unknown
    if known <= 0:
        return Measure.missing("ratio", f"the jobs whose end is known have no {what}")
    if unknown <= 0:
        return Ratio(min(failed / known, 1.0), level=Level.LOG, warnings=said)
    return Ratio(
        min(failed / known, 1.0),
        low=failed / whole,
        high=min((failed + unknown) / whole, 1.0),
        level=Level.LOG,
        warnings=(
            f"{what} of unknown state are left out; the interval is from none of them failed to "
            "all of them",
            *said,
        ),
    )


def by_state(facts: Sequence[JobFact]) -> tuple[StateRow, ...]:
    """The states by GPU-hours, largest first."""
    whole = hours_of(facts)
    sums = Counter(fact.state for fact in facts if fact.is_sum)
    rows = []
    for state, own in _hours_by_state(facts).items():
        hours = _hours(own)
        jobs = None if sums[state] else len(own)
        share = None if sums else len(own) / len(facts)
        rows.append(StateRow(state, jobs, share, hours, _part(hours, whole)))
    return tuple(sorted(rows, key=lambda row: (-(row.gpu_hours.value or 0.0), -(row.jobs or 0))))


def by_size(facts: Sequence[JobFact]) -> tuple[GroupRow, ...]:
    """The classes of size in their order."""
    return tuple(
        sorted(by_group(facts, [f.size for f in facts]), key=lambda row: size_order(row.name))
    )


def by_group(facts: Sequence[JobFact], names: Sequence[str]) -> tuple[GroupRow, ...]:
    """The groups of ``facts`` [N] by the name of each [N], most GPU-hours first."""
    groups: dict[str, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    summed: dict[str, Counter[str]] = defaultdict(Counter)
    for fact, name in zip(facts, names, strict=True):
        groups[name][fact.state].append(fact.gpu_hours)
        if fact.is_sum:
            summed[name][fact.state] += 1
    whole = hours_of(facts)
    rows = []
    for name, states in groups.items():
        hours = _hours(list(chain.from_iterable(states.values())))
        timed = {state: [h for h in own if h is not None] for state, own in states.items()}
        sums = summed.get(name, Counter())
        shares = _failure_shares(states, sums)
        rows.append(
            GroupRow(
                name,
                None if sums else _count(states),
                hours,
                _part(hours, whole),
                {s: n for s, own in states.items() if (n := len(own) - sums[s])},
                {state: math.fsum(own) for state, own in timed.items() if own},
                shares.by_jobs,
                shares.by_gpu_hours,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-(row.gpu_hours.value or 0.0), row.name)))


def _part(hours: Measure, whole: Measure) -> Measure:
    if hours.value is None:
        return Measure.missing("ratio", hours.reason or "")
    if not whole.value:
        return Measure.missing("ratio", "no job held a GPU for any time")
    return Ratio(min(hours.value / whole.value, 1.0), level=hours.level)
