"""Hosts that hold a large part of the ranks, held against each other as one.

Where half of the ranks are slow together, that is their noise to a test that looks at each of them
alone, and the median of all ranks lies between the halves. The typical rank of a host against that
of the others is told as well as any rank against its peers.
"""

from __future__ import annotations

import numpy as np

from steptax.app.compute.causes.groups import Coordinates, Joint
from steptax.app.compute.causes.job import noise_sd
from steptax.app.compute.stats.changepoint import change_points
from steptax.app.compute.stats.rows import Floats, column_mean, row_quantile
from steptax.app.compute.straggler.episodes import usual_step_us, warm_up_steps
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.compute.straggler.rank_episodes import dated_span
from steptax.app.compute.straggler.rules import CauseRules, EpisodeRules
from steptax.app.compute.straggler.tables import Used

#: Of smaller hosts each rank is told from its peers.
_LEAST_SHARE_RATIO = 0.25
_LEAST_RANKS = 4
#: In rough noise a difference of fewer standard deviations of a step is not told.
_LEAST_SDS = 2.0


def slow_hosts(
    used: Used, excess: Floats, places: Coordinates, rules: EpisodeRules, cause_rules: CauseRules
) -> list[Joint]:
    """Large hosts most of whose ranks were slow for a while, where no more than half of all were.

    ``excess`` [S, R] is that of the ranks, a share of the usual step.
    """
    stage = used.matrix.stage
    if "host" not in places or (stage is not None and len(np.unique(stage)) > 1):
        return []
    host = places["host"]
    names, count = np.unique(host, return_counts=True)
    if len(names) < 2 or count.min() < max(_LEAST_RANKS, _LEAST_SHARE_RATIO * len(host)):
        return []
    typical = np.stack(
        [row_quantile(used.arrived.work_us[:, host == name], 0.5)[0] for name in names], axis=1
    )
    over = (typical - peer_median(typical)) / usual_step_us(used.arrived.step_us)
    out = []
    for place, name in enumerate(names):
        columns = np.flatnonzero(host == name)
        span = None if 2 * len(columns) > len(host) else _slow_span(over[:, place], used, rules)
        if span is None:
            continue
        first, last, ratio = span
        means = column_mean(excess[first : last + 1][:, columns])
        alike = np.mean(means >= cause_rules.beside_ratio * ratio)
        if alike < cause_rules.group_share_ratio:
            continue
        ordered = tuple(int(c) for c in columns[np.argsort(-means, kind="stable")])
        is_open = last == len(over) - 1
        # Change points look at all steps: when it could first be told is not known sooner.
        out.append(Joint(ordered, first, last, last, is_open, ratio, ("host",)))
    return out


def _slow_span(over: Floats, used: Used, rules: EpisodeRules) -> tuple[int, int, float] | None:
    """First and last step in which ``over`` [S], a share of the step, is long, and its mean."""
    warm = warm_up_steps(used.arrived.step_us, rules)
    level = 1.0 + over
    places = np.arange(warm, len(level), dtype=np.int64)
    segments = change_points(places, level[warm:], min_change_ratio=rules.job_change_ratio).segments
    slow = [s for s in segments if s.mean - 1.0 >= rules.job_ratio and s.steps >= rules.min_steps]
    lasting = sum(s.steps for s in slow)
    cost = sum((s.mean - 1.0) * s.steps for s in slow)
    if lasting < rules.min_steps or cost < rules.least_cost_steps:
        return None
    noise = noise_sd(level, segments)
    if cost / lasting < noise * max(_LEAST_SDS, rules.job_sds * float(np.sqrt(2.0 / lasting))):
        return None
    first, last = dated_span(over, rules)
    lasting = sum(max(0, min(s.last_step, last) - max(s.first_step, first) + 1) for s in slow)
    # A host that comes and goes is told by its ranks.
    if lasting < rules.persistence_ratio * (last - first + 1):
        return None
    return first, last, float(np.nanmean(over[first : last + 1]))
