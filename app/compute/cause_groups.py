"""Which ranks were slow together: episodes that overlap in time, and the group they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.episodes import RankEpisode
from steptax.app.compute.rules import CauseRules, EpisodeRules

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

    @property
    def steps(self) -> int:
        """Length."""
        return self.last - self.first + 1


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
) -> list[Joint]:
    """Episodes as joint findings: a group that was slow together is one, others stay alone."""
    groups = {kind: members(kind, places) for kind in GROUPS}
    rest = list(episodes)
    out = []
    while rest:
        seed = max(rest, key=lambda e: e.excess_ratio * e.steps)
        together = [e for e in rest if _overlap(seed, e) >= rules.joint_overlap_ratio]
        by_column = {e.column: e for e in together}
        best: list[RankEpisode] = [seed]
        for kind in GROUPS:
            for group in groups[kind]:
                if seed.column not in group:
                    continue
                slow = [by_column[c] for c in group.tolist() if c in by_column]
                if len(slow) >= max(2, cause_rules.group_share_ratio * len(group)) and len(
                    slow
                ) > len(best):
                    best = slow
        out.append(_joint(best, groups, cause_rules))
        gone = {id(e) for e in best}
        rest = [e for e in rest if id(e) not in gone]
    return out


def _overlap(one: RankEpisode, two: RankEpisode) -> float:
    shared = min(one.last, two.last) - max(one.first, two.first) + 1
    return max(0, shared) / max(one.steps, two.steps)


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
