"""A job too long to be read row by row: its roll-ups say what its rows say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from steptax.app.compute.stats.bins import ERROR_RATIO
from steptax.app.lake import Lake, rollups
from steptax.app.lake.compact import compact
from steptax.app.lake.retain import retain
from steptax.app.schema.rollups import STEP_BINS
from steptax.app.views.job import extent
from steptax.app.views.job.history import history_view
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.product.scale_data import JOB, SEGMENT_STEPS, fill, segments, slow_rank

RANKS, STEPS = 24, 4 * SEGMENT_STEPS + 9
PAIRS = (
    ("step_span", "history_span"),
    ("step_numbers", "history_numbers"),
    ("step_summary", "history_summary"),
    ("loss_by_step", "history_loss"),
)


@pytest.fixture
def big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A long job with a restart, in big and in small segments, that counts as big."""
    monkeypatch.setattr(extent, "BIG_ROWS", 1_000)
    monkeypatch.setattr(rollups, "ROLLED_ROWS", RANKS * SEGMENT_STEPS)
    lake = Lake(tmp_path / "lake", create=True)
    fill(lake, RANKS, STEPS)
    again = next(segments(RANKS, 40, seed=3))
    step = pa.array(again["step"].to_numpy() + 2 * SEGMENT_STEPS)
    again = again.set_column(again.column_names.index("step"), "step", step)
    attempt = pa.array(np.ones(again.num_rows, np.int32))
    again = again.set_column(again.column_names.index("attempt"), "attempt", attempt)
    loss = pa.array(np.linspace(4.0, 2.0, again.num_rows))
    lake.append("steps", again.append_column("loss", loss), source="test")
    return lake


@pytest.mark.parametrize("is_compacted", [False, True])
def test_roll_ups_say_what_rows_say(big: Lake, is_compacted: bool) -> None:
    if is_compacted:
        compact(big)
    engine = open_workspace(big.root).engine
    for of_rows, of_rollups in PAIRS:
        raw = engine.run(of_rows, job_id=JOB)
        rolled = engine.run(of_rollups, job_id=JOB)
        assert raw.column_names == rolled.column_names
        for name in raw.column_names:
            pairs = zip(rolled[name].to_pylist(), raw[name].to_pylist(), strict=True)
            for told, right in pairs:
                # Losses are summed as billionths, all else as it is.
                near = isinstance(right, float) and told == pytest.approx(right, abs=1e-9)
                assert near or told == right, (of_rows, name)


def test_the_slow_rank_of_the_whole_job_is_named(big: Lake) -> None:
    view = history_view(open_workspace(big.root), JOB)
    assert view is not None
    first = view.ranks[0]
    assert first.rank == slow_rank(RANKS)
    assert first.excess.value is not None
    assert 15 < first.excess.value < 30  # 44 ms in half of the steps
    assert first.slow_from_step == 256
    assert f"rank {first.rank} worked" in view.sentence
    assert view.steps == STEPS
    assert view.heat.excess_ms.shape == (RANKS, 3)
    assert len(view.series.steps) == STEPS
    assert set(view.series.slowest_rank[-50:]) == {slow_rank(RANKS)}


def test_median_and_95_percent_of_each_step_are_within_the_error_that_is_said(big: Lake) -> None:
    ws = open_workspace(big.root)
    view = history_view(ws, JOB)
    assert view is not None
    assert view.spread is not None
    work: dict[tuple[int, int], list[int]] = {}
    for row in big.read("steps", JOB).to_pylist():
        work.setdefault((row["step"], row["attempt"]), []).append(
            row["duration_us"] - row["comm_us"]
        )
    newest = {step: own for (step, _), own in sorted(work.items())}
    told = {0.5: view.series.work_p50_ms, 0.95: view.series.work_p95_ms}
    for ratio, found in told.items():
        exact = np.array([np.quantile(newest[int(s)], ratio) / 1000 for s in view.series.steps])
        assert np.all(np.abs(found - exact) <= view.spread.error_ratio * exact)
    whole = [value for own in newest.values() for value in own]
    assert view.spread.reports == len(whole)
    for ratio, measure in ((0.5, view.spread.p50), (0.95, view.spread.p95)):
        exact_ms = np.quantile(whole, ratio) / 1000
        assert measure.value == pytest.approx(exact_ms, rel=view.spread.error_ratio)
        assert measure.low is not None
        assert measure.high is not None
        assert measure.low <= exact_ms <= measure.high
    assert f"Half of {len(whole):,} reports" in view.spread.sentence
    assert "of each step" in view.spread.sentence
    assert "within 0.4 % of the exact ones." in view.spread.sentence
    # Rounded up: a bound that is said is one.
    assert view.spread.error_ratio >= ERROR_RATIO


def test_steps_that_were_dropped_before_bins_were_kept_have_no_median(
    big: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a version before them retained: what it left of rows cannot be made again."""
    with monkeypatch.context() as older:
        older.setattr(rollups, "ROLLUPS", tuple(r for r in rollups.ROLLUPS if r is not STEP_BINS))
        retain(big, 2**62, grace_s=0.0)
    for part in segments(RANKS, STEPS + 1):
        newest = part.filter(pc.equal(part["step"], STEPS))
        if newest.num_rows:
            big.append("steps", newest, source="test")
    view = history_view(open_workspace(big.root), JOB)
    assert view is not None
    assert view.steps == STEPS + 1
    assert np.flatnonzero(~np.isnan(view.series.work_p50_ms)).tolist() == [STEPS]
    assert view.spread is not None
    assert view.spread.reports == RANKS
    assert f"Of {STEPS:,} steps no bins were kept." in view.spread.sentence


def test_where_nothing_was_kept_nothing_is_said(big: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(rollups, "ROLLUPS", tuple(r for r in rollups.ROLLUPS if r is not STEP_BINS))
        retain(big, 2**62, grace_s=0.0)
    view = history_view(open_workspace(big.root), JOB)
    assert view is not None
    assert view.spread is None
    assert np.isnan(view.series.work_p95_ms).all()


def test_only_a_big_job_has_one(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    fill(Lake(tmp_path / "lake", create=True), RANKS, 40)
    assert steptax("job", JOB)["history"] is None


def test_the_command_tells_it(big: Lake, steptax: Callable[..., Any]) -> None:
    told = steptax("job", JOB, "--window", 60, "--lake", big.root)["history"]
    assert told["steps"] == STEPS
    assert told["ranks"][0]["rank"] == slow_rank(RANKS)
    spread = told["spread"]
    assert spread["p50"]["low"] <= spread["p50"]["value"] <= spread["p50"]["high"]
    assert spread["error_ratio"] == 0.004
