"""Pooled cells of a heat map: what plain Python finds in the cells that each of them stands for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.views.job import shape
from steptax.app.views.job.models import Pooling
from steptax.app.views.job.shape import heat_map

_excess = st.integers(-(10**9), 10**9).map(float) | st.just(math.nan)
_matrix = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda size: st.lists(
        st.lists(_excess, min_size=size[1], max_size=size[1]), min_size=size[0], max_size=size[0]
    )
)


@settings(max_examples=60)
@given(_matrix, st.integers(1, 30), st.integers(1, 9), st.sampled_from(["largest", "mean"]))
def test_a_cell_is_pooled_of_what_is_known(
    rows: list[list[float]], most: int, least_ranks: int, pooled_by: Pooling
) -> None:
    """What is missing is not zero: beside it what is below zero stays what it is."""
    excess_us = np.array(rows)
    steps, ranks = excess_us.shape
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "MAX_HEAT_CELLS", max(most, least_ranks))
        patch.setattr(shape, "LEAST_HEAT_RANKS", least_ranks)
        heat = heat_map(excess_us, np.arange(ranks), np.arange(steps), pooled_by)
    runs = [[*itertools.pairwise(e.tolist())] for e in (heat.rank_edges, heat.step_edges)]
    assert heat.excess_ms.shape == (len(runs[0]), len(runs[1]))
    for row, column in np.ndindex(heat.excess_ms.shape):
        own = excess_us[slice(*runs[1][column]), slice(*runs[0][row])].ravel().tolist()
        held = [value / 1000.0 for value in own if not math.isnan(value)]
        cell = float(heat.excess_ms[row, column])
        if not held:
            assert math.isnan(cell)
        elif pooled_by == "largest":
            assert cell == max(held)
        else:
            rounding = 1e-14 * sum(map(abs, held))
            assert cell == pytest.approx(math.fsum(held) / len(held), abs=rounding)


def test_who_is_early_beside_a_gap_is_not_drawn_as_on_time() -> None:
    excess_us = np.full((400, 200), -5_000.0)
    excess_us[::2, ::2] = math.nan
    heat = heat_map(excess_us, np.arange(200), np.arange(400))
    assert heat.excess_ms.size < excess_us.size
    assert np.unique(heat.excess_ms).tolist() == [-5.0]
