"""Who is slow inside the collectives, from probes of the links between neighbours.

In a collective all ranks wait for the slowest, so their times cannot tell who it is. A probe times
each link of a ring of the ranks by itself, as FALCON does (Wu et al., "FALCON: Pinpointing and
Mitigating Stragglers for Large-Scale Hybrid-Parallel Training", 2024):

    own        the faster of a rank's two links: a rank that is slow is slow on both
    reference  median of the links that do not touch the rank, between hosts and inside of one apart
    slow       own > (1 + slow_over_ratio) reference in a probe; for good where the 10th percentile
               of own over the probes exceeds the 75th of the reference by as much

The percentiles keep a busy processor, which delays now this exchange and now that one, from passing
for a slow link. A link is slow in the same way against all others, where neither of its ends is.
What it costs is an upper bound: a collective that is bound by its slowest link lasts as long as
that one,

    cost <= transfer (1 - reference / own)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

Link = tuple[int, int]


@dataclass(frozen=True)
class LinkRules:
    """Thresholds; shares are of 1."""

    slow_over_ratio: float = 0.5
    """A link is slow when it takes longer than its reference by more than this."""
    own_quantile: float = 0.1
    reference_quantile: float = 0.75
    """... for good, when these quantiles over the probes are as far apart."""
    min_probes: int = 4
    """With fewer probes nothing is said."""


@dataclass(frozen=True)
class SlowLinks:
    """A rank or a link that is slow for good: medians over the probes, in microseconds."""

    ranks: tuple[int, ...]
    """One rank, or the two ends of a link."""
    links: tuple[tuple[Link, float], ...]
    """The links that are meant, with their time."""
    own_us: float
    reference_us: float
    probes: int
    slow_probes: int
    first_step: int
    """Of the first probe in which it was slow."""

    @property
    def is_rank(self) -> bool:
        """Whether a rank is slow, on all of its links."""
        return len(self.ranks) == 1

    @property
    def saved_ratio(self) -> float:
        """Share of the transfer that is gone at most once it is as fast as the reference."""
        return 1.0 - self.reference_us / self.own_us


@dataclass(frozen=True)
class LinkFindings:
    """What the probes of a job tell: slow ranks and links, slowest first, or why nothing."""

    ranks: tuple[SlowLinks, ...] = ()
    links: tuple[SlowLinks, ...] = ()
    probes: int = 0
    reason: str | None = None


@dataclass
class _Tally:
    own_us: list[float]
    reference_us: list[float]
    slow_steps: list[int]

    def found(self, ranks: tuple[int, ...], times: _Times, rules: LinkRules) -> SlowLinks | None:
        """The finding, where it is slow for good."""
        probes, slow = len(self.own_us), len(self.slow_steps)
        if probes < rules.min_probes or not slow:
            return None
        least = float(np.quantile(self.own_us, rules.own_quantile))
        most = float(np.quantile(self.reference_us, rules.reference_quantile))
        if not least > (1.0 + rules.slow_over_ratio) * most:
            return None
        own, reference = median(self.own_us), median(self.reference_us)
        meant = [link for link in sorted(times) if set(ranks) <= set(link)]
        links = tuple((link, median(times[link])) for link in meant)
        return SlowLinks(ranks, links, own, reference, probes, slow, self.slow_steps[0])


_Times = Mapping[Link, Sequence[float]]


def judge_links(
    columns: Mapping[str, NDArray[np.int64]],
    hosts: Mapping[int, str | None],
    rules: LinkRules | None = None,
) -> LinkFindings:
    """Slow ranks and links of ``columns``: equally long ``attempt``, ``step``, ``rank``, ``peer``
    and ``duration_us``, one entry per probe, rank and neighbour. ``hosts`` is where ranks run.
    """
    rules = rules or LinkRules()
    probes = _probes(columns)
    if len(probes) < rules.min_probes:
        return LinkFindings(
            probes=len(probes),
            reason=f"{len(probes)} link probes are too few, {rules.min_probes} would do",
        )
    ranks: dict[int, _Tally] = defaultdict(lambda: _Tally([], [], []))
    links: dict[Link, _Tally] = defaultdict(lambda: _Tally([], [], []))
    times: dict[Link, list[float]] = defaultdict(list)
    for step, probe in probes:
        for link, time_us in probe.items():
            times[link].append(time_us)
        for rank in {end for link in probe for end in link}:
            _compare_rank(rank, step, probe, hosts, ranks[rank], rules)
        for link in probe:
            others = _like(probe, link, hosts, [other for other in probe if other != link])
            _note(links[link], step, probe[link], others, rules)
    if not any(tally.own_us for tally in ranks.values()):
        return LinkFindings(
            probes=len(probes), reason="there is no other link of its kind to compare a rank's with"
        )
    slow = [t.found((rank,), times, rules) for rank, t in ranks.items()]
    found = sorted((s for s in slow if s is not None), key=lambda s: -s.own_us)
    blamed = {rank for one in found for rank in one.ranks}
    pairs = [t.found(link, times, rules) for link, t in links.items() if not blamed & set(link)]
    return LinkFindings(
        tuple(found),
        tuple(sorted((p for p in pairs if p is not None), key=lambda s: -s.own_us)),
        len(probes),
    )


def _probes(columns: Mapping[str, NDArray[np.int64]]) -> list[tuple[int, dict[Link, float]]]:
    """Step and time of each link, probe by probe; the longer time where both ends tell."""
    found: dict[tuple[int, int], dict[Link, float]] = defaultdict(dict)
    names = ("attempt", "step", "rank", "peer", "duration_us")
    for attempt, step, rank, peer, time_us in zip(
        *(columns[n].tolist() for n in names), strict=True
    ):
        probe, link = found[attempt, step], (min(rank, peer), max(rank, peer))
        probe[link] = max(float(time_us), probe.get(link, 0.0))
    return [(step, found[attempt, step]) for attempt, step in sorted(found)]


def _compare_rank(
    rank: int,
    step: int,
    probe: Mapping[Link, float],
    hosts: Mapping[int, str | None],
    tally: _Tally,
    rules: LinkRules,
) -> None:
    """The faster of the rank's links, for its kind; a rank with one link cannot be told from it."""
    own = [link for link in probe if rank in link]
    if len(own) < 2:
        return
    others = [link for link in probe if rank not in link]
    compared = [(probe[link], like) for link in own if (like := _like(probe, link, hosts, others))]
    if len(compared) == len(own):
        _note(tally, step, *min(compared, key=lambda c: c[0] / median(c[1])), rules)


def _like(
    probe: Mapping[Link, float],
    link: Link,
    hosts: Mapping[int, str | None],
    others: Sequence[Link],
) -> list[float]:
    """Times of the ``others`` that are of the link's kind: inside of a host, or between two."""

    def inside(one: Link) -> bool:
        return hosts.get(one[0]) == hosts.get(one[1])

    return [probe[other] for other in others if inside(other) == inside(link)]


def _note(
    tally: _Tally, step: int, own_us: float, others_us: Sequence[float], rules: LinkRules
) -> None:
    if not others_us or not own_us > 0:
        return
    reference_us = median(others_us)
    tally.own_us.append(own_us)
    tally.reference_us.append(reference_us)
    if own_us > (1.0 + rules.slow_over_ratio) * reference_us:
        tally.slow_steps.append(step)
