"""What is said of the whole history of a job: of all its ranks, and of the steps that it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.charts.heatmap import columns_note
from steptax.app.lake import Lake
from steptax.app.views.job import extent
from steptax.app.views.job.history import LISTED_RANKS, HistoryView, history_view
from steptax.app.views.workspace import open_workspace

Told = Callable[..., HistoryView]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """History of a job of ``ranks`` ranks; ``slow`` are (rank, first step, last step, µs more)."""
    monkeypatch.setattr(extent, "BIG_ROWS", 1)

    def make(
        ranks: int, first: int, last: int, slow: list[tuple[int, int, int, int]]
    ) -> HistoryView:
        steps = np.arange(first, last + 1)
        work = np.full((ranks, len(steps)), 100_000)
        for rank, begin, end, more_us in slow:
            work[rank, (steps >= begin) & (steps <= end)] += more_us
        count = work.size
        duration = np.broadcast_to(work.max(axis=0) + 10_000, work.shape)
        lake = Lake(tmp_path / "lake", create=True)
        rows = {
            "job_id": pa.array(["run"] * count),
            "attempt": np.zeros(count, np.int32),
            "step": np.tile(steps, ranks),
            "rank": np.repeat(np.arange(ranks, dtype=np.int32), len(steps)),
            "start_us": np.tile(1_772_000_000_000_000 + steps * 1_000_000, ranks),
            "duration_us": duration.ravel(),
            "comm_us": (duration - work).ravel(),
            "compute_us": work.ravel(),
        }
        lake.append("steps", pa.table(rows), source="test")
        view = history_view(open_workspace(lake.root), "run")
        assert view is not None
        return view

    return make


def test_one_more_rank_is_one(told: Told) -> None:
    view = told(40, 0, 599, [(7, 0, 599, 30_000), (9, 300, 599, 20_000)])
    assert view.sentence == (
        "Over all 600 steps rank 7 worked +29.0 ms a step beyond its peers' mean, slow in 3 of 3 "
        "blocks of 256 steps, first in steps 0 to 255, and 1 more rank stood out."
    )


def test_ranks_that_stood_out_are_counted_beyond_those_that_are_listed(told: Told) -> None:
    slow = 3 * LISTED_RANKS
    view = told(20 * slow, 0, 511, [(rank, 0, 511, 30_000 + rank) for rank in range(slow)])
    assert f"and {slow - 1} more ranks stood out." in view.sentence


def test_a_rank_that_was_slow_for_one_block_of_many_is_not_lost_behind_the_listed(
    told: Told,
) -> None:
    """Over the whole job others exceed more, though never by enough."""
    lasting = [(rank, 0, 5_119, 3_000) for rank in range(LISTED_RANKS + 5)]
    view = told(400, 0, 5_119, [*lasting, (399, 512, 767, 20_000)])
    assert all(row.rank != 399 for row in view.ranks)
    assert "rank 399 worked" in view.sentence
    assert "slow in 1 of 20 blocks of 256 steps, first in steps 512 to 767." in view.sentence


def test_blocks_have_only_steps_that_the_job_has(told: Told) -> None:
    """Blocks begin at multiples of 256; this job begins inside one, and ends inside one."""
    view = told(8, 1_000, 1_299, [(2, 1_000, 1_299, 30_000)])
    assert view.ranks[0].slow_from_step == 1_000
    assert "first in steps 1,000 to 1,023." in view.sentence
    assert view.heat.columns == [(1_000, 1_023), (1_024, 1_279), (1_280, 1_299)]


def test_a_job_of_one_block_has_no_first_one(told: Told) -> None:
    view = told(8, 0, 59, [(2, 0, 59, 30_000)])
    assert view.sentence == (
        "Over all 60 steps rank 2 worked +26.2 ms a step beyond its peers' mean."
    )
    assert columns_note(view.heat, view.block_steps) == "a column is 60 steps"


def test_of_a_job_of_one_block_nothing_is_said_of_blocks(told: Told) -> None:
    assert told(8, 0, 0, []).sentence == "Over all 1 step no rank stood out."


def test_a_column_of_one_step_is_one_step(told: Told) -> None:
    view = told(8, 0, 0, [])
    assert columns_note(view.heat, view.block_steps) == "a column is 1 step"
