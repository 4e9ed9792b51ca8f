"""Who was slow over a whole job, from sums over blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.straggler.history import SLOW_RATIO, history, waiting_ratio


@settings(max_examples=60)
@given(
    ranks=st.integers(2, 9),
    blocks=st.integers(1, 6),
    seed=st.integers(0, 1_000),
    lost=st.floats(0, 0.5),
)
def test_it_is_what_the_rows_give(ranks: int, blocks: int, seed: int, lost: float) -> None:
    dice = np.random.default_rng(seed)
    width = 4
    work = dice.integers(1, 1_000, (ranks, blocks * width)).astype(float)
    work[dice.random(work.shape) < lost] = np.nan
    parts = work.reshape(ranks, blocks, width)
    rows = (~np.isnan(parts)).sum(axis=2)
    rank, block = np.nonzero(rows)
    if not len(rank):
        return
    sums = np.nansum(parts, axis=2)
    order = dice.permutation(len(rank))
    found = history(
        rank[order],
        block[order] * width,
        rows[rank, block][order],
        sums[rank, block][order].astype(np.int64),
    )
    for i, r in enumerate(found.ranks):
        for j, first in enumerate(found.blocks):
            of_block = parts[:, first // width]
            own = of_block[r]
            if np.isnan(own).all():
                assert np.isnan(found.excess_us[i, j])
                continue
            assert found.work_us[i, j] == pytest.approx(np.nanmean(own))
            assert found.excess_us[i, j] == pytest.approx(np.nanmean(own) - np.nanmean(of_block))
        assert found.mean_work_us[i] == pytest.approx(np.nanmean(work[r]))


def test_peers_are_those_of_the_stage() -> None:
    rank = np.repeat(np.arange(4), 2)
    block = np.tile([0, 256], 4)
    work = np.array([100, 100, 100, 100, 300, 300, 300, 360]) * 256
    rows = np.full(8, 256)
    alone = history(rank, block, rows, work)
    assert alone.excess_us[2, 0] == 100
    staged = history(rank, block, rows, work, stage=np.array([0, 0, 1, 1]))
    assert staged.excess_us[2, 0] == 0
    assert staged.excess_us[3].tolist() == [0, 30]
    assert staged.is_slow.tolist() == [[False] * 2, [False] * 2, [False] * 2, [False, True]]
    assert SLOW_RATIO * 330 < 30


def test_waiting_is_what_the_ranks_lack_to_the_longest() -> None:
    work = np.array([[60, 60, 100], [50, 50, 50]])
    step = np.array([100, 0])
    got = waiting_ratio(np.array([3, 3]), step, work.sum(axis=1), work.max(axis=1))
    assert got[0] == pytest.approx(80 / 300)
    assert np.isnan(got[1])  # nothing was paid, so nothing can be told
