"""The benchmark of a week of device samples, at a size that takes no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from steptax.app.lake import Lake
from steptax.app.schema.rollups import DAY_US
from steptax.benchmarks.product import device_week
from steptax.benchmarks.product.device_week import BEGIN_S, Fleet, answer_of, collect


def test_it_counts_every_sample_and_the_answer_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_week, "ROWS", 1 << 15)
    monkeypatch.setattr("steptax.app.lake.staging.roll_up", device_week.rollups.roll_up)
    lake = Lake(tmp_path / "lake", create=True)
    told = collect(lake.root, 16, 1, BEGIN_S, BEGIN_S + 3600)
    assert lake.row_counts()["device_samples"] == told.rows
    assert 0 < 16 * 3600 - told.rows < 16 * 3600 // 1000
    assert told.rollup_s > 0
    found = answer_of(lake.root, BEGIN_S * 1_000_000)
    assert found["equal"]
    assert found["by_day"] == {str(BEGIN_S * 1_000_000 // DAY_US): told.rows}
    # What differs from the rows is seen.
    rollup = next((lake.root / "rollups").rglob("device_days/**/*.parquet"))
    rollup.write_bytes(next(p for p in _others(rollup)).read_bytes())
    assert not answer_of(lake.root, BEGIN_S * 1_000_000)["equal"]


def _others(path: Path) -> list[Path]:
    return sorted(other for other in path.parent.iterdir() if other != path)


def test_the_same_seed_says_the_same() -> None:
    one, again, other = (Fleet(8, seed).said(BEGIN_S, 50) for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)
