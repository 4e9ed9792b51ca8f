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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammainc

from steptax.app.compute.stats.rows import Floats, Ints

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


@dataclass(frozen=True, eq=False)
class Exposures:
    """The same of many jobs [J] as columns, with a row [N] for each job and place."""

    kind: Ints
    """[J] code."""
    exposure: Floats
    """[J]"""
    shared: Ints
    """[J]"""
    job: Ints
    """[N] place in the columns of jobs."""
    place: Ints
    """[N] place in ``names``."""
    share: Floats
    """[N]"""
    at: Ints
    """[N] events known to have been at that place."""
    names: Sequence[str]


def offenders(jobs: Sequence[Placed]) -> tuple[Offender, ...]:
    """Every place, least likely first."""
    kinds: dict[str, int] = {}
    names: dict[str, int] = {}
    rows = [
        (k, names.setdefault(place, len(names)), share, job.at.get(place, 0))
        for k, job in enumerate(jobs)
        for place, share in job.shares.items()
    ]
    return worst_places(
        Exposures(
            np.array([kinds.setdefault(job.kind, len(kinds)) for job in jobs], dtype=np.int64),
            np.array([job.exposure for job in jobs], dtype=np.float64),
            np.array([job.shared for job in jobs], dtype=np.int64),
            np.array([job for job, *_ in rows], dtype=np.int64),
            np.array([place for _, place, *_ in rows], dtype=np.int64),
            np.array([share for _, _, share, _ in rows], dtype=np.float64),
            np.array([at for *_, at in rows], dtype=np.int64),
            list(names),
        )
    )


def worst_places(found: Exposures) -> tuple[Offender, ...]:
    """Every place at which anything was exposed, least likely first."""
    kinds = int(found.kind.max(initial=-1)) + 1
    whole = np.bincount(found.kind, found.exposure, kinds)
    shared = np.bincount(found.kind, found.shared, kinds)
    kind = found.kind[found.job]
    own = np.bincount(kind, found.at, kinds)
    used = whole[kind] > 0
    kind, job, place = kind[used], found.job[used], found.place[used]
    count = len(found.names)
    here = found.exposure[job] * found.share[used]
    hours = np.bincount(place, here, count)
    events = np.bincount(place, found.shared[job] + found.at[used], count).astype(np.int64)
    due = (shared[kind] * found.exposure[job] + own[kind] * here) / whole[kind]
    expected = np.bincount(place, due, count).astype(np.float64)
    seen = np.bincount(place, minlength=count) > 0
    chances = _tails(events, expected)
    least = _threshold(chances[seen])
    named = (events >= LEAST_COUNT) & (chances <= least)
    columns = (events, expected, chances, hours, named)
    every = [
        Offender(name, *values)
        for name, is_seen, *values in zip(
            found.names, seen.tolist(), *(c.tolist() for c in columns), strict=True
        )
        if is_seen
    ]
    return tuple(sorted(every, key=lambda one: (one.chance, -one.count, one.name)))


def tail(count: int, expected: float) -> float:
    """Probability that a Poisson of mean ``expected`` is at least ``count``."""
    return float(_tails(np.array([count]), np.array([expected]))[0])


def _tails(count: Ints, expected: Floats) -> Floats:
    above = np.where(expected > 0, gammainc(np.maximum(count, 1), np.maximum(expected, 0)), 0.0)
    return np.where(count > 0, above, 1.0)


def _threshold(chances: Floats) -> float:
    """Largest chance that is still named, by the step-up rule; below 0 where none is."""
    ordered = np.sort(chances)
    passes = ordered <= FALSE * np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    return float(ordered[np.flatnonzero(passes)[-1]]) if passes.any() else -1.0
