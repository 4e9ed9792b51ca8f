"""Which TP, PP or DP group is slow: over 1.1 times the median group (GREYHOUND, ATC'25)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.stats.changepoint import FALCON_RATIO
from steptax.app.compute.stats.rows import Floats, row_max

#: Which ranks form a group: those that agree in all other coordinates.
GROUP_KINDS = ("tp", "pp", "dp")

Places = Mapping[str, Sequence[int | None]]
"""Coordinate of each rank, by kind of coordinate."""


@dataclass(frozen=True)
class GroupSuspect:
    """A group whose slowest member takes longer than 1.1 times the median group's."""

    label: str
    ranks: tuple[int, ...]
    time_us: float
    over_median_ratio: float


@dataclass(frozen=True)
class GroupCheck:
    """The groups of one kind; ``reason`` says why they could not be compared."""

    kind: str
    groups: int
    suspects: tuple[GroupSuspect, ...]
    reason: str | None = None


def group_checks(work_us: Floats, ranks: Sequence[int], places: Places) -> tuple[GroupCheck, ...]:
    """FALCON's search for the slow group, for TP, PP and DP groups.

    ``work_us`` is [S, R], ``places`` holds the coordinate of each of the R ``ranks`` by kind. A
    group takes as long as its slowest member, mean over steps.
    """
    return tuple(_group_check(kind, work_us, ranks, places) for kind in GROUP_KINDS)


def _group_check(kind: str, work_us: Floats, ranks: Sequence[int], places: Places) -> GroupCheck:
    title = kind.upper()
    own = places.get(kind)
    if own is None or any(place is None for place in own):
        return GroupCheck(title, 0, (), f"the {title} coordinate of the ranks is not known")
    others = [k for k, column in places.items() if k != kind and None not in column]
    members: dict[tuple[int | None, ...], list[int]] = {}
    for i in range(len(ranks)):
        members.setdefault(tuple(places[k][i] for k in others), []).append(i)
    if any(len({own[i] for i in group}) < len(group) for group in members.values()):
        return GroupCheck(title, 0, (), f"the other coordinates do not tell {title} groups apart")
    if max(map(len, members.values())) < 2:
        return GroupCheck(title, len(members), (), f"every {title} group is a single rank")
    if len(members) < 3:
        return GroupCheck(
            title,
            len(members),
            (),
            f"{len(members):,} {title} group(s): three are needed to compare",
        )
    times = {key: float(np.nanmean(row_max(work_us[:, group]))) for key, group in members.items()}
    middle = float(np.median(list(times.values())))
    suspects = [
        GroupSuspect(
            " · ".join(f"{k.upper()} {v}" for k, v in zip(others, key, strict=True)) or "all",
            tuple(int(ranks[i]) for i in members[key]),
            time,
            time / middle,
        )
        for key, time in times.items()
        if middle > 0 and time > (1 + FALCON_RATIO) * middle
    ]
    suspects.sort(key=lambda s: -s.over_median_ratio)
    return GroupCheck(title, len(members), tuple(suspects))
