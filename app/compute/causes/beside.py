"""Who else is slow beside the ranks of a finding: counted, so that evidence says what holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steptax.app.compute.causes.groups import Coordinates
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.stats.rows import Floats, Ints, row_mean
from steptax.app.compute.straggler.rules import CauseRules

#: What speaks for a cause, and what against it.
Sides = tuple[tuple[str, ...], tuple[str, ...]]


def slow_beside(excess: Floats, columns: Sequence[int], rules: CauseRules) -> Ints:
    """Positions of other ranks with a good share of the mean excess of ``columns``.

    ``excess`` [K, R] is over the peers, in any unit, in the steps of the finding.
    """
    means = row_mean(excess.T)
    mine = list(columns)
    typical = float(np.nanmean(means[mine]))
    with np.errstate(invalid="ignore"):
        slow = means >= rules.beside_ratio * typical
    slow[mine] = False
    return np.flatnonzero(slow).astype(np.int64)


def host_sides(
    excess: Floats, columns: Sequence[int], places: Coordinates, rules: CauseRules
) -> Sides:
    """How much of the host of ``columns`` is slow, and whether other hosts are as well."""
    host = places["host"]
    own = host[columns[0]]
    mine = int(np.count_nonzero(host[list(columns)] == own))
    for_it = f"{mine} of the {int(np.count_nonzero(host == own)):,} ranks of that host together"
    beside = slow_beside(excess, columns, rules)
    other = beside[host[beside] != own]
    share = f"{spoken_ratio(rules.beside_ratio)} of their excess"
    if not len(other):
        return (for_it, f"no rank of another host has {share}"), ()
    hosts = len(np.unique(host[other]))
    where = "another host" if hosts == 1 else f"{hosts} other hosts"
    ranks = "rank has" if len(other) == 1 else "ranks have"
    return (for_it,), (f"{len(other):,} {ranks} at least {share} at the same time on {where}",)


def expert_sides(
    excess: Floats, columns: Sequence[int], places: Coordinates, rules: CauseRules
) -> Sides:
    """How much of an expert place is slow, in how many replicas and hosts, and who else is."""
    mine = list(columns)
    place = int(places["ep"][mine[0]])
    all_of = np.flatnonzero(places["ep"] == place)
    text = f"{len(mine):,} of the {len(all_of):,} ranks with the experts of place {place} are slow "
    text += "together"
    if "dp" in places:
        replicas = [len(np.unique(places["dp"][who])) for who in (mine, all_of)]
        text += f", in {replicas[0]} of {replicas[1]} replicas"
    against = []
    if "host" in places:
        hosts = len(np.unique(places["host"][mine]))
        text += f", on {hosts} host{'' if hosts == 1 else 's'}"
        if hosts == 1:
            against.append("they are all on one host, which they share as well")
    against += _others(excess, columns, rules)
    return (text,), tuple(against)


def link_sides(excess: Floats, columns: Sequence[int], over: float, rules: CauseRules) -> Sides:
    """How much longer transfers take, and whether other groups' do too; ``over`` is of a step."""
    for_it = f"their transfers take {spoken_ratio(over)} of a step longer once all peers are there"
    against = _others(excess, columns, rules)
    if against:
        return (for_it,), against
    return (
        for_it,
        f"no other rank has {spoken_ratio(rules.beside_ratio)} of their excess",
    ), ()


def _others(excess: Floats, columns: Sequence[int], rules: CauseRules) -> tuple[str, ...]:
    beside = slow_beside(excess, columns, rules)
    if not len(beside):
        return ()
    share = spoken_ratio(rules.beside_ratio)
    many = "rank has" if len(beside) == 1 else "ranks have"
    return (f"{len(beside)} other {many} at least {share} of their excess at the same time",)
