"""Ranks that cost much in fewer than half of the steps: slow lately, again and again, or no longer.

A vote of the steps knows none of them. Who became slow late in the window and still is has an
episode that has not ended; who comes and goes has a recurrence; who was slow and no longer is made
the others wait all the same, and that was not "a different rank from step to step".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Flags, Floats, row_max
from steptax.app.compute.straggler.episodes import excess_ratios, find_episodes
from steptax.app.compute.straggler.rank_episodes import RankEpisode, told_until
from steptax.app.compute.straggler.recurring import Recurrence, goes_on, recurrence, usual_steps
from steptax.app.compute.straggler.result import RankTable
from steptax.app.compute.straggler.rules import (
    EPISODE_RULES,
    RECURRING_RULES,
    RecurringRules,
    StragglerRules,
)
from steptax.app.compute.straggler.tables import Used

#: Costly ranks that are looked at, largest mean excess first.
_MOST = 16


@dataclass(frozen=True)
class Passed:
    """A rank that made the others wait for a while; steps are numbers, both included."""

    place: int
    first_step: int
    last_step: int
    share_ratio: float
    """Of what the slowest rank of each step is over its peers."""
    is_open: bool
    """It is slow still, for too few steps to be called slow for good."""


@dataclass(frozen=True)
class Spells:
    """What there is besides ranks that are slow in most steps; keys are positions of ranks."""

    lately: Mapping[int, int] = field(default_factory=dict)
    """First slow step of ranks that became slow late in the window."""
    recurring: Mapping[int, Recurrence] = field(default_factory=dict)
    passed: Passed | None = None
    most: tuple[int, float] | None = None
    """Who else explains at least half of what the slowest ranks cost, and how much of it."""
    seen: frozenset[int] = frozenset()
    """Ranks of which there is any episode."""


def find_spells(
    used: Used,
    table: RankTable,
    costly: NDArray[np.intp],
    rules: RecurringRules = RECURRING_RULES,
) -> Spells:
    """What there is among the ``costly`` ranks that are not surely slow in most steps."""
    steps, step_us = used.matrix.steps, used.arrived.step_us
    often = slow_in_most(table, used.step_us, used.rules)
    wanted = [int(place) for place in costly[:_MOST] if not often[place]]
    if not wanted:
        return Spells()
    excess = excess_ratios(used.arrived.work_us, step_us, used.matrix.stage)
    excess[~usual_steps(used.arrived.work_us, rules)] = np.nan
    found = [e for e in find_episodes(excess, step_us, EPISODE_RULES) if e.column in wanted]
    lately = {
        e.column: int(steps[e.first])
        for e in found
        if e.is_open
        and e.again is None
        and told_until(excess[:, e.column]) - e.first >= used.rules.lately_steps
    }
    compared = used.excess_us.copy()
    compared[np.isnan(excess)] = np.nan
    typical = typical_us(table)
    again = {}
    least_us = typical + used.rules.worker_excess_ratio * used.step_us
    for place in wanted:
        if place in lately or float(np.nanmean(compared[:, place])) < least_us:
            continue
        one = recurrence(compared, place, typical, rules)
        if one is not None and goes_on(one, told_until(compared[:, place]), rules):
            again[place] = one
    passed = None
    if not lately and not again and not often[costly].any():
        passed = _passed(excess, found, steps)
    most = _most(used.excess_us, wanted, typical)
    return Spells(lately, again, passed, most, frozenset(e.column for e in found))


def _most(excess_us: Floats, wanted: list[int], typical: float) -> tuple[int, float] | None:
    place = wanted[0]
    share = (float(np.nanmean(excess_us[:, place])) - typical) / float(
        np.nanmean(row_max(excess_us))
    )
    return (place, share) if share >= EPISODE_RULES.persistence_ratio else None


def slow_in_most(table: RankTable, mean_step_us: float, rules: StragglerRules) -> Flags:
    """[R] ranks that are slow in most steps, by more than the slowest healthy one is by chance."""
    least_us = typical_us(table) + rules.worker_surely_ratio * mean_step_us
    with np.errstate(invalid="ignore"):
        often = table.persistence_ratio >= rules.worker_persistence_ratio
        return np.asarray(often & (table.excess_surely_us >= least_us))


def typical_us(table: RankTable) -> float:
    """Mean excess of the typical rank, at least 0."""
    known = table.excess_us[~np.isnan(table.excess_us)]
    return max(0.0, float(np.median(known))) if len(known) else 0.0


def _passed(excess: Floats, found: list[RankEpisode], steps: np.ndarray) -> Passed | None:
    """The rank whose episodes explain at least half of what the slowest ranks cost."""
    total = float(np.nansum(row_max(excess)))
    by_rank: dict[int, float] = {}
    for e in found:
        by_rank[e.column] = by_rank.get(e.column, 0.0) + e.excess_ratio * e.steps
    place = max(by_rank, key=lambda c: by_rank[c], default=None)
    if place is None or not by_rank[place] >= EPISODE_RULES.persistence_ratio * total:
        return None
    mine = [e for e in found if e.column == place]
    first, last = min(e.first for e in mine), max(e.last for e in mine)
    return Passed(
        place, int(steps[first]), int(steps[last]), by_rank[place] / total, mine[-1].is_open
    )
