"""Bins of the ranks' work: parts add up to the whole, and quantiles of them to those of rows."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.stats.bins import ERROR_RATIO, Bins, edges, quantiles
from steptax.app.lake import Lake, ScopedLake, rollups
from steptax.app.lake.compact import compact
from steptax.app.lake.retain import retain
from steptax.app.queries import DuckEngine
from steptax.app.schema import table
from steptax.app.schema.rollups import SPAN_STEPS, STEP_BINS
from steptax.app.views.job.spread import spread_block_of
from steptax.benchmarks.product.scale_data import JOB, SEGMENT_STEPS, segments
from tests.own_bins import bin_of

RANKS, STEPS = 12, 3 * SEGMENT_STEPS
Row = dict[str, Any]


def reports(rows: list[Row]) -> pa.Table:
    """Rows of steps with all columns of the table."""
    spec = table("steps").arrow
    known = [{"job_id": "a", "attempt": 0, "step": 0, "source": "t", **row} for row in rows]
    return pa.table({f.name: pa.array([r.get(f.name) for r in known], f.type) for f in spec})


def binned(rows: pa.Table) -> pa.Table:
    return rollups.made(STEP_BINS, rows)["step_bins"]


def merged(*parts: pa.Table) -> pa.Table:
    connection = duckdb.connect()
    connection.register("parts", pa.concat_tables(parts))
    return connection.sql(
        f"{STEP_BINS.merged_sql('step_bins', 'parts')} ORDER BY ALL"
    ).to_arrow_table()


def test_every_edge_of_a_bin_is_where_it_is_defined() -> None:
    numbers = {(k << shift) + d for k in range(127, 257) for shift in range(45) for d in (-1, 0, 1)}
    numbers |= {-5, 0, 1, 2**62, 2**63 - 1}
    rows = reports([{"rank": k, "duration_us": v} for k, v in enumerate(sorted(numbers))])
    wanted = Counter(bin_of(v) for v in numbers)
    found = binned(rows)
    # One row a bin, so nothing is lost in a dict.
    assert (
        dict(zip(*(found[c].to_pylist() for c in ("work_bin", "row_count")), strict=True)) == wanted
    )


_row = st.fixed_dictionaries(
    {
        "attempt": st.integers(0, 1),
        "step": st.integers(0, 5),
        "duration_us": st.integers(0, 2**45) | st.integers(400_000, 402_000),
    },
    optional={"comm_us": st.integers(0, 2**20), "compute_us": st.integers(0, 2**20)},
)
_rows = st.lists(_row, max_size=12)


@settings(max_examples=12)
@given(_rows, _rows, _rows)
def test_parts_add_up_in_any_order(a: list[Row], b: list[Row], c: list[Row]) -> None:
    one, two, three = (binned(reports(part)) for part in (a, b, c))
    whole = binned(reports([*a, *b, *c]))
    assert merged(merged(one, two), three).equals(whole)
    assert merged(one, merged(two, three)).equals(whole)
    assert merged(three, one, two).equals(whole)


_deed = st.sampled_from(["append", "compact", "lose"])


@settings(max_examples=6)
@given(st.lists(st.tuples(_deed, st.lists(_row, min_size=1, max_size=8)), max_size=5))
def test_whatever_happens_it_equals_what_raw_rows_give(deeds: list[tuple[str, list[Row]]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollups, "ROLLED_ROWS", 4)
        lake = Lake(Path(folder), create=True)
        for number, (deed, rows) in enumerate(deeds):
            if deed == "append":
                told = reports([{"rank": 100 * number + k, **r} for k, r in enumerate(rows)])
                lake.append("steps", told.drop_columns(["source", "ingested_at_us"]), source="t")
            elif deed == "compact":
                compact(lake, minimum=2, grace_s=0)
            else:
                for path in sorted((lake.root / "rollups").rglob("*.parquet"))[::2]:
                    path.unlink()
        raw = lake.read("steps", "a")
        newest = raw.group_by("step").aggregate([("attempt", "max")]).to_pylist()
        kept = {(r["step"], r["attempt_max"]) for r in newest}
        own = [r for r in binned(raw).to_pylist() if (r["step"], r["attempt"]) in kept]
        wanted = sorted((r["step"], r["work_bin"], r["row_count"]) for r in own)
        found = DuckEngine(lake).run("history_bins", job_id="a", step_block=1, window_steps=1)
        assert list(zip(*(c.to_pylist() for c in found.columns), strict=True)) == wanted


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(rollups, "ROLLED_ROWS", RANKS * 100)
    made = Lake(tmp_path / "lake", create=True)
    for part in segments(RANKS, STEPS):
        made.append("steps", part, source="test")
    return made


def work_of(lake: Lake, block: int) -> dict[int, list[int]]:
    """Work of all reports by blocks of steps."""
    found: dict[int, list[int]] = {}
    for row in lake.read("steps", JOB).to_pylist():
        step = row["step"]
        found.setdefault(step - step % block, []).append(row["duration_us"] - row["comm_us"])
    return found


@pytest.mark.parametrize("block", [1, 8, 256])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.95, 1.0])
def test_quantiles_are_those_of_raw_rows(lake: Lake, block: int, ratio: float) -> None:
    engine, asked = DuckEngine(lake), {"step_block": block, "window_steps": 1}
    told = engine.run("history_bins", job_id=JOB, **asked)
    bins = Bins(*(column.to_numpy() for column in told.columns))
    found = quantiles(bins, ratio)
    exact = work_of(lake, block)
    assert found.group.tolist() == sorted(exact)
    for k, group in enumerate(sorted(exact)):
        right = np.quantile(exact[group], ratio)
        assert abs(found.value[k] - right) <= ERROR_RATIO * right
    # The query that finds them by itself: the value of that rank lies between its ends.
    rows = engine.run("history_quantiles", job_id=JOB, quantile_ratio=ratio, **asked).to_pylist()
    assert [row["block_step"] for row in rows] == sorted(exact)
    for row in rows:
        own = sorted(exact[row["block_step"]])
        right = own[max(int(np.ceil(ratio * len(own))) - 1, 0)]
        low, high = edges(np.array([bin_of(right)]))
        assert (row["work_low_us"], row["work_high_us"]) == (low[0], high[0])
        assert row["row_count"] == len(own)


@pytest.mark.parametrize(("ratio", "wanted"), [(0.07, 7), (0.29, 29), (0.55, 55), (0.95, 95)])
def test_a_share_in_binary_is_meant_as_it_is_written(
    ratio: float, wanted: int, tmp_path: Path
) -> None:
    """0.07 * 100 is 7.000000000000001."""
    lake = Lake(tmp_path / "lake", create=True)
    told = reports([{"rank": k, "duration_us": k + 1} for k in range(100)])
    lake.append("steps", told.drop_columns(["source", "ingested_at_us"]), source="t")
    asked = {"step_block": 1, "window_steps": 1, "quantile_ratio": ratio}
    (row,) = DuckEngine(lake).run("history_quantiles", job_id="a", **asked).to_pylist()
    assert (row["work_low_us"], row["work_high_us"]) == (wanted, wanted)


def test_wide_windows_are_stored_once_and_tell_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = SPAN_STEPS[0]
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 64)
    lake = Lake(tmp_path / "lake", create=True)
    for part in segments(2, 2 * span + 100):
        lake.append("steps", part, source="test")
    asked = {"job_id": JOB, "step_block": span}
    single = DuckEngine(lake).run("history_bins", window_steps=1, **asked)
    assert not list((lake.root / "rollups").rglob("span-*.parquet"))
    assert DuckEngine(lake).run("history_bins", window_steps=span, **asked).equals(single)
    stored = sorted(p.name for p in (lake.root / "rollups").rglob("step_bins/**/span-*.parquet"))
    assert [name.split("-")[:3] for name in stored] == [["span", str(span), str(k)] for k in (0, 1)]
    # A reader of some teams gets sums of what may be seen, of none here.
    lake.append("jobs", pa.table({"job_id": [JOB], "team": ["x"]}), source="test")
    seen = DuckEngine(ScopedLake(lake.root, ["x"])).run("history_bins", window_steps=span, **asked)
    assert seen.equals(single)
    hidden = DuckEngine(ScopedLake(lake.root, ["y"])).run(
        "history_bins", window_steps=span, **asked
    )
    assert hidden.num_rows == 0


def test_they_outlive_the_rows(lake: Lake) -> None:
    asked = {"job_id": JOB, "step_block": 8, "window_steps": 1}
    before = DuckEngine(lake).run("history_bins", **asked)
    retain(lake, 2**62, grace_s=0.0)
    assert lake.segments("steps") == []
    assert DuckEngine(Lake(lake.root)).run("history_bins", **asked).equals(before)


@pytest.mark.parametrize("steps", [1, 2_000, 2_001, 10_000, 86_400, 262_144, 30 * 86_400, 10**8])
def test_a_figure_gets_as_many_medians_as_it_shows(steps: int) -> None:
    block, window = spread_block_of(steps)
    assert window in (1, *SPAN_STEPS)
    assert block % window == 0
    assert (block == 1) == (steps <= 2_000)
    assert steps / block <= 2_000
    # Bins of single steps are added up of few steps alone.
    assert window > 1 or steps <= 2_000 * 128
