"""What the attribution of a cause looks at: some steps of an episode, all ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.causes.groups import Joint, slow_places
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.arrival import Arrivals
from steptax.app.compute.straggler.steps import StepMatrix

#: Steps of an episode that are looked at, evenly spread.
_ROWS = 192


@dataclass(frozen=True, eq=False)
class Sample:
    """Some steps of an episode, all ranks: what the attribution looks at."""

    matrix: StepMatrix
    arrived: Arrivals
    excess_us: Floats
    """[K, R] work over the peers'."""
    cells: tuple[np.ndarray, np.ndarray]
    """Step and rank positions of the late reports."""


def sample_of(matrix: StepMatrix, arrived: Arrivals, excess_us: Floats, joint: Joint) -> Sample:
    """At most ``_ROWS`` slow steps of the episode of ``joint``."""
    slow = slow_places(joint)
    count = min(_ROWS, len(slow))
    rows = slow[np.unique(np.linspace(0, len(slow) - 1, count).astype(np.intp))]
    everyone = np.arange(len(matrix.ranks))
    columns = np.array(joint.columns, dtype=np.intp)
    step, rank = np.meshgrid(np.arange(len(rows)), columns, indexing="ij")
    return Sample(
        matrix.select(rows, everyone),
        arrived.of_steps(rows),
        excess_us[rows],
        (step.ravel(), rank.ravel()),
    )
