"""The newest steps are told early with the figures that the whole analysis gives of them."""

from __future__ import annotations

import numpy as np
import pytest

from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.look import newest_steps
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix


def matrix(*, comm: bool, missing: float = 0.0, seed: int = 3) -> StepMatrix:
    rng = np.random.default_rng(seed)
    work = 1000.0 + rng.normal(0, 20, (40, 6)) + 150.0 * (np.arange(6) == 4)
    step, rank = np.indices(work.shape)
    here = (rng.random(work.shape) >= missing).ravel()
    columns = {"step": step, "rank": rank, "duration_us": np.full(work.shape, 1400.0)}
    if comm:
        columns["comm_us"] = 1400.0 - work
    return build_matrix(
        {name: values.ravel()[here] for name, values in columns.items()},
        world_size=6,
        expected_ranks=6,
    )


@pytest.mark.parametrize("comm", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_they_are_those_of_the_analysis(comm: bool, missing: float) -> None:
    found = newest_steps(matrix(comm=comm, missing=missing))
    whole = analyse_stragglers(matrix(comm=comm, missing=missing)).steps
    for name in ("steps", "complete", "used", "tax_ratio", "step_us", "last_rank", "max_us"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), err_msg=name)
    assert np.isfinite(found.tax_ratio).any() == comm
    if comm and not missing:
        assert set(found.last_rank) == {4}
