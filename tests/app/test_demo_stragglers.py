"""Each way of being slow shows in the records as what it is: ratios between ranks, wide margins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.demo.job import DemoConfig, DemoJob
from steptax.app.lake import Lake

pytestmark = pytest.mark.slow

SLOW = 2
WORKERS = 3
STEPS = 30
WARM_UP = 5


def train(lake: Path, straggler: str) -> dict[str, np.ndarray]:
    """Run a job to its end; each recorded column as an array (steps, ranks), without warm-up."""
    job = DemoJob(
        DemoConfig(
            lake,
            "job-1",
            workers=WORKERS,
            straggler=straggler,
            straggler_rank=SLOW,
            steps=STEPS,
            step_target_ms=80,
            checkpoint_every=10,
        )
    )
    try:
        job.start()
        state = job.wait()
        assert state.failure is None
    finally:
        job.stop()
    return columns(Lake(lake).read("steps", "job-1"))


def columns(rows: pa.Table) -> dict[str, np.ndarray]:
    """Columns of ``rows`` by name, as float arrays (steps, ranks); null becomes NaN."""
    rows = rows.sort_by([("step", "ascending"), ("rank", "ascending")])
    assert rows.num_rows == STEPS * WORKERS
    return {
        name: np.array(
            [np.nan if v is None else v for v in rows[name].to_pylist()], dtype=float
        ).reshape(STEPS, WORKERS)[WARM_UP:]
        for name in (
            "duration_us",
            "compute_us",
            "comm_us",
            "input_us",
            "gc_us",
            "other_us",
            "checkpoint_us",
            "tokens",
            "seq_sq_sum",
            "loss",
        )
    }


def excess(values: np.ndarray) -> float:
    """Mean of the slow rank over the mean of the others."""
    means = np.nan_to_num(values).mean(axis=0)
    return float(means[SLOW] / np.delete(means, SLOW).mean())


def share_of_steps(found: np.ndarray) -> float:
    """Share of steps in which the slow rank is the one."""
    return float((found == SLOW).mean())


def test_sequence_straggler_has_longer_documents_and_nothing_else(tmp_path: Path) -> None:
    seen = train(tmp_path / "lake", "sequence")
    assert excess(seen["seq_sq_sum"]) > 1.6
    assert excess(seen["tokens"]) == 1
    assert excess(seen["compute_us"]) > 1.15
    # The last to arrive waits least, and makes the others wait.
    assert share_of_steps(seen["comm_us"].argmin(axis=1)) > 0.6
    assert excess(seen["comm_us"]) < 0.8
    # Lengths really vary from step to step, on every rank.
    assert (seen["seq_sq_sum"].std(axis=0) > 0).all()
    # One loss for all ranks, and it falls.
    assert (seen["loss"] == seen["loss"][:, :1]).all()
    assert seen["loss"][-5:].mean() < seen["loss"][:5].mean() - 0.5


def test_compute_straggler_computes_the_same_for_longer(tmp_path: Path) -> None:
    seen = train(tmp_path / "lake", "compute")
    assert excess(seen["compute_us"]) > 1.15
    assert 0.8 < excess(seen["seq_sq_sum"]) < 1.25
    assert share_of_steps(seen["comm_us"].argmin(axis=1)) > 0.6
    checkpoints = np.nan_to_num(seen["checkpoint_us"])
    assert checkpoints[:, 0].any()
    assert not checkpoints[:, 1:].any()


def test_input_straggler_waits_for_its_storage(tmp_path: Path) -> None:
    seen = train(tmp_path / "lake", "input")
    assert excess(seen["input_us"]) > 5
    assert excess(seen["compute_us"]) < 1.5
    assert 0.8 < excess(seen["seq_sq_sum"]) < 1.25


def test_gc_straggler_pauses_every_few_steps(tmp_path: Path) -> None:
    seen = train(tmp_path / "lake", "gc")
    pauses = np.nan_to_num(seen["gc_us"])
    assert excess(pauses) > 5
    assert excess(seen["compute_us"]) < 2
    slow = pauses[:, SLOW]
    collects = (np.arange(WARM_UP, STEPS) % 3) == 2
    assert np.median(slow[collects]) > 5 * np.median(slow[~collects])


def test_without_a_straggler_all_compute_alike(tmp_path: Path) -> None:
    seen = train(tmp_path / "lake", "none")
    means = seen["compute_us"].mean(axis=0)
    assert means.max() < 2 * means.min()
    squares = seen["seq_sq_sum"].mean(axis=0)
    assert squares.max() < 1.3 * squares.min()
