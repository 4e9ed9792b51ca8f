"""Hosts and devices to which more happens than chance would give them.

A host that runs much meets more failures than an idle one, and one that runs kinds of jobs that
fail often meets more still. So each place is held against what is expected of it by chance:

    expected = sum over kinds of job (rate of that kind in the fleet x its exposure at the place)

With that many expected, the count is Poisson if the place is like all others; its chance is that of
a count at least as large. Places are named while the share of false names stays below ``FALSE``
(Benjamini and Hochberg 1995), since of a thousand sound hosts fifty lie beyond a 5 % tail. The rate
holds the place's own failures too, which errs on the side of naming nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammainc

#: Share of the named places that may be named by chance.
FALSE = 0.05
#: Fewer than this are no repetition.
LEAST_COUNT = 2


@dataclass(frozen=True)
class Offender:
    """One place, what happened there, and what chance would have given it."""

    name: str
    count: int
    expected: float
    chance: float
    """Probability of a count at least as large at a place like all others."""
    exposure: float
    """What the expectation rests on, in the unit of the caller."""
    is_named: bool

    @property
    def times(self) -> float | None:
        """Count / expected."""
        return self.count / self.expected if self.expected else None


@dataclass(frozen=True)
class Placed:
    """One job (or device), how much it was exposed where, and what happened to it."""

    kind: str
    """Places are compared within a kind: jobs of one size fail alike."""
    exposure: float
    """Of the whole job."""
    shares: Mapping[str, float]
    """Part of it at each place, adding up to 1."""
    shared: int = 0
    """Events of which nobody says where: every place of the job took part in them."""
    at: Mapping[str, int] = field(default_factory=dict)
    """Events by the place that they are known to have been at."""


def offenders(jobs: Sequence[Placed]) -> tuple[Offender, ...]:
    """Every place, least likely first."""
    exposure: dict[str, float] = defaultdict(float)
    shared: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for job in jobs:
        exposure[job.kind] += job.exposure
        shared[job.kind] += job.shared
        if job.at:
            own[job.kind] += sum(job.at.values())
    counts: Counter[str] = Counter()
    expected: dict[str, float] = defaultdict(float)
    hours: dict[str, float] = defaultdict(float)
    for job in jobs:
        whole = exposure[job.kind]
        if not whole:
            continue
        for place, share in job.shares.items():
            here = job.exposure * share
            hours[place] += here
            counts[place] += job.shared + job.at.get(place, 0)
            expected[place] += (shared[job.kind] * job.exposure + own[job.kind] * here) / whole
    chances = {place: tail(counts[place], expected[place]) for place in hours}
    least = _threshold(list(chances.values()))
    found = [
        Offender(
            place,
            counts[place],
            expected[place],
            chances[place],
            hours[place],
            counts[place] >= LEAST_COUNT and chances[place] <= least,
        )
        for place in hours
    ]
    return tuple(sorted(found, key=lambda one: (one.chance, -one.count, one.name)))


def tail(count: int, expected: float) -> float:
    """Probability that a Poisson of mean ``expected`` is at least ``count``."""
    if not count:
        return 1.0
    return float(gammainc(count, expected)) if expected > 0 else 0.0


def _threshold(chances: Sequence[float]) -> float:
    """Largest chance that is still named, by the step-up rule; below 0 where none is."""
    ordered = np.sort(np.array(chances))
    passes = ordered <= FALSE * np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    return float(ordered[np.flatnonzero(passes)[-1]]) if passes.any() else -1.0
