"""Which ranks were slow together: episodes that overlap in time, and the group they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, column_mean
from steptax.app.compute.straggler.rank_episodes import RankEpisode
from steptax.app.compute.straggler.recurring import Recurrence
from steptax.app.compute.straggler.rules import CauseRules, EpisodeRules

#: Groups of ranks, by the coordinates that their members share; the most telling first.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "host": ("host",),
    "expert": ("ep",),
    "tp_group": ("dp", "pp"),
    "dp_group": ("tp", "pp"),
    "replica": ("dp",),
    "stage": ("pp",),
}

Coordinates = Mapping[str, NDArray[np.int64]]
"""Coordinate of each rank [R] by kind: tp, pp, dp, ep, host; unknown kinds are absent."""


@dataclass(frozen=True)
class Joint:
    """Ranks that were slow together."""

    columns: tuple[int, ...]
    """The one with the largest excess first."""
    first: int
    last: int
    detected: int
    is_open: bool
    excess_ratio: float
    """Mean over the ranks."""
    kinds: tuple[str, ...]
    """Kinds of group that they make up, of ``GROUPS``; none for a single rank."""
    again: Recurrence | None = None
    """How the first of them is slow again and again, where it is not slow throughout."""

    @property
    def steps(self) -> int:
        """Length."""
        return self.last - self.first + 1


def slow_places(joint: Joint) -> NDArray[np.intp]:
    """Positions of the steps in which the first of its ranks is slow."""
    if joint.again is None:
        return np.arange(joint.first, joint.last + 1)
    places = joint.again.places
    return places[(places >= joint.first) & (places <= joint.last)]


def members(kind: str, places: Coordinates) -> list[NDArray[np.intp]]:
    """Positions of the members of every group of ``kind`` with several members, but not of all."""
    keys = [places[k] for k in GROUPS[kind] if k in places]
    if len(keys) < len(GROUPS[kind]):
        return []
    _, label = np.unique(np.stack(keys), axis=1, return_inverse=True)
    label = label.ravel()
    groups = [np.flatnonzero(label == g) for g in range(int(label.max(initial=-1)) + 1)]
    return [g for g in groups if 1 < len(g) < len(label)]


def join_episodes(
    episodes: Sequence[RankEpisode],
    places: Coordinates,
    rules: EpisodeRules,
    cause_rules: CauseRules,
    excess: Floats,
) -> list[Joint]:
    """Episodes as joint findings: a group that was slow together is one, others stay alone.

    ``excess`` [S, R] is what the episodes were found in.
    """
    groups = {kind: members(kind, places) for kind in GROUPS}
    rest = list(episodes)
    out = []
    while rest:
        seed = max(rest, key=lambda e: e.excess_ratio * e.steps)
        together = {e.column for e in rest if _overlap(seed, e) >= rules.joint_overlap_ratio}
        # An episode that was seen late, or in part, belongs to the one that spans it.
        within = {e.column: e for e in rest if _within(seed, e) >= rules.joint_overlap_ratio}
        best: list[RankEpisode] = [seed]
        for kind in GROUPS:
            for group in groups[kind]:
                if seed.column not in group:
                    continue
                slow = [within[c] for c in group.tolist() if c in within]
                alike = sum(e.column in together for e in slow)
                if 2 * alike >= len(group):
                    slow += _quietly(group, slow, seed, excess, cause_rules)
                if (
                    len(slow) >= max(2, cause_rules.group_share_ratio * len(group))
                    and 2 * alike >= len(group)
                    and len(slow) > len(best)
                ):
                    best = slow
        out.append(_joint(best, groups, cause_rules))
        gone = {id(e) for e in best}
        rest = [e for e in rest if id(e) not in gone]
    return out


def _overlap(one: RankEpisode, two: RankEpisode) -> float:
    shared = min(one.last, two.last) - max(one.first, two.first) + 1
    return max(0, shared) / max(one.steps, two.steps)


def _quietly(
    group: NDArray[np.intp],
    slow: Sequence[RankEpisode],
    seed: RankEpisode,
    excess: Floats,
    rules: CauseRules,
) -> list[RankEpisode]:
    """Other ranks of ``group`` that were slow while ``seed`` was, too little for an episode."""
    known = {e.column for e in slow}
    rest = [int(c) for c in group if int(c) not in known]
    span = excess[seed.first : seed.last + 1]
    typical = float(np.median([e.excess_ratio for e in slow]))
    means = column_mean(span[:, rest])
    return [
        replace(seed, column=c, excess_ratio=float(mean), again=None)
        for c, mean in zip(rest, means, strict=True)
        if mean >= rules.beside_ratio * typical
    ]


def _within(one: RankEpisode, two: RankEpisode) -> float:
    shared = min(one.last, two.last) - max(one.first, two.first) + 1
    return max(0, shared) / min(one.steps, two.steps)


def _joint(
    episodes: Sequence[RankEpisode],
    groups: Mapping[str, list[NDArray[np.intp]]],
    rules: CauseRules,
) -> Joint:
    ordered = sorted(episodes, key=lambda e: -e.excess_ratio)
    columns = tuple(e.column for e in ordered)
    return Joint(
        columns,
        int(np.median([e.first for e in ordered])),
        int(np.median([e.last for e in ordered])),
        min(e.detected for e in ordered),
        any(e.is_open for e in ordered),
        float(np.mean([e.excess_ratio for e in ordered])),
        kinds_of(columns, groups, rules),
        ordered[0].again if all(e.again is not None for e in ordered) else None,
    )


def kinds_of(
    columns: Sequence[int], groups: Mapping[str, list[NDArray[np.intp]]], rules: CauseRules
) -> tuple[str, ...]:
    """The kinds of group that ``columns`` make up: most of one group, and hardly anybody else."""
    if len(columns) < 2:
        return ()
    mine = set(columns)
    found = []
    for kind, several in groups.items():
        for group in several:
            shared = len(mine.intersection(group.tolist()))
            if shared >= rules.group_share_ratio * max(len(group), len(mine)):
                found.append(kind)
                break
    return tuple(found)
