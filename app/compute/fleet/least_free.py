"""How many devices were free at every moment: what could have been given back without a wait."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.stats.rows import Ints


def least_free(start_us: Ints, end_us: Ints, gpus: Ints, first_us: int, last_us: int) -> int:
    """Least devices that were free at once in [first, last); 0 in a span without length.

    ``start_us``, ``end_us`` and ``gpus`` [N] are stretches in which devices were free, in any
    order, several at once.
    """
    start, end = np.maximum(start_us, first_us), np.minimum(end_us, last_us)
    inside = end > start
    if last_us <= first_us or not inside.any():
        return 0
    moments = np.concatenate([[first_us, last_us], start[inside], end[inside]])
    changes = np.concatenate([[0, 0], gpus[inside], -gpus[inside]])
    edges, place = np.unique(moments, return_inverse=True)
    step = np.zeros(len(edges), dtype=np.int64)
    np.add.at(step, place, changes)
    return int(np.cumsum(step)[:-1].min())  # behind the last edge is nothing
