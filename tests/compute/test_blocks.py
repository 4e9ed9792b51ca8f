"""Matrices are worked through in stretches of steps: wherever they are cut, it is the same."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.stats import resample
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler import blame, peers, recover, steps
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix

#: Less than a step, about one, some, and all at once.
SIZES = (1, 5, 12, 1 << 17)


def with_holes(steps_: int, ranks: int, seed: int) -> Floats:
    """Arrivals [S, R] of which some, and all of a step or of a rank, were not reported."""
    dice = np.random.default_rng(seed)
    values = dice.integers(0, 50, (steps_, ranks)).astype(np.float64)
    values[dice.random(values.shape) < (0.0, 0.3, 0.9)[seed % 3]] = np.nan
    if seed % 2 and steps_ and ranks > 1:
        values[:, seed % ranks] = np.nan
    return values


def of_parts(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    for module in (blame, peers, recover, steps):
        monkeypatch.setattr(module, "_CELLS_AT_ONCE", cells)


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("cells", SIZES)
def test_a_stretch_says_what_each_of_its_steps_says(
    cells: int, count: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_parts(monkeypatch, cells)
    for seed in range(12):
        arrival = with_holes(count, ranks, seed)
        rows = [arrival[k : k + 1] for k in range(count)]
        middle = peers.peer_median(arrival)
        np.testing.assert_array_equal(
            middle, np.concatenate([np.empty((0, ranks)), *map(peers.peer_median, rows)])
        )
        every = tuple(axis.ravel() for axis in np.indices(arrival.shape))
        np.testing.assert_array_equal(
            peers.peer_median_at(arrival, (every[0], every[1])), middle.ravel()
        )
        charged = np.nan_to_num(blame.blame_us(arrival)).sum(axis=0)
        np.testing.assert_allclose(blame.blame_sum_us(arrival), charged, rtol=1e-12)
        excess = arrival - middle
        for chosen in ([], [0], list(range(ranks))):
            saved = recover.saved_us(arrival, excess, np.array(chosen, dtype=np.intp))
            for k, row in enumerate(rows):
                own = recover.saved_us(row, excess[k : k + 1], np.array(chosen, dtype=np.intp))
                np.testing.assert_array_equal(saved[k], own[0])
        there = ~np.isnan(arrival).all(axis=1)
        each = recover.saved_by_each_us(arrival[there], excess[there])
        alone = [
            recover.saved_us(arrival[there], excess[there], np.array([k])).sum()
            for k in range(ranks)
        ]
        np.testing.assert_allclose(each, alone if ranks > 1 else [0.0], atol=1e-9)


def job(of_few: bool) -> StepMatrix:
    """30 steps of 6 ranks, of which some reports lack, and the parts of some exceed them."""
    dice = np.random.default_rng(3)
    step, rank = (axis.ravel() for axis in np.indices((30, 6)))
    kept = dice.random(len(step)) < 0.9
    compute = dice.integers(40_000, 60_000, len(step)) + np.where(rank == 4, 20_000, 0)
    duration = np.where(dice.random(len(step)) < 0.05, 30_000, 90_000)
    columns = {
        "step": 7 * step,
        "rank": rank,
        "duration_us": duration,
        "compute_us": compute,
        "comm_us": np.where(dice.random(len(step)) < 0.02, np.nan, 90_000.0 - compute),
    }
    if of_few:
        columns.pop("comm_us")
    return build_matrix({name: values[kept] for name, values in columns.items()}, world_size=8)


@pytest.mark.parametrize("of_few", [False, True])
def test_wherever_a_job_is_cut_it_is_told_and_priced_alike(
    of_few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for cells in SIZES:
        of_parts(monkeypatch, cells)
        matrix = job(of_few)
        assert matrix.inconsistent.any()
        result = analyse_stragglers(matrix)
        places = [k for rows, _ in matrix.parts() for k in range(rows.start, rows.stop)]
        assert places == list(range(len(matrix.steps)))
        sound, _ = steps.without_inconsistent(matrix)
        said = (result.verdict, result.tax_ratio, result.recoverable_ratio)
        told.append((said, step_ledger(sound, Decimal(2)), matrix.inconsistent))
    for said, ledger, bad in told[1:]:
        assert (said, ledger) == told[0][:2]
        np.testing.assert_array_equal(bad, told[0][2])


def test_columns_of_intervals_share_their_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    values = with_holes(20, 7, 1)
    whole = resample.mean_intervals(values, replicates=50, seed=3)
    monkeypatch.setattr(resample, "_MEANS_AT_ONCE", 100)
    for one, other in zip(
        whole, resample.mean_intervals(values, replicates=50, seed=3), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
