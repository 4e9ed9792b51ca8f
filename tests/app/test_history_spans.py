"""A long job's windows, added up over wider spans: what raw rows give, whatever comes or goes."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from steptax.app.lake import Lake, rollups
from steptax.app.lake.compact import compact
from steptax.app.lake.retain import retain
from steptax.app.queries import DuckEngine
from steptax.app.schema.rollups import SPAN_STEPS, WINDOW_STEPS
from steptax.app.views.job.history import MOST_CELLS, block_of
from steptax.benchmarks.product.scale_data import EPOCH_US, JOB, SEGMENT_STEPS, segments
from tests.app.fleet_lake import rows

SPAN = SPAN_STEPS[0]
RANKS, STEPS = 3, 3 * SPAN + 100


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Lake(tmp_path_factory.mktemp("spans") / "lake", create=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollups, "ROLLED_ROWS", 64)
        for part in segments(RANKS, STEPS):
            made.append("steps", part, source="test")
    return made.root


@pytest.fixture
def lake(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The whole job, to change."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 64)
    shutil.copytree(whole, tmp_path / "lake")
    return Lake(tmp_path / "lake")


def asked(lake: Lake, window: int = SPAN) -> list[dict[str, Any]]:
    found = DuckEngine(lake).run(
        "history_windows", job_id=JOB, step_block=2 * SPAN, window_steps=window
    )
    return sorted(found.to_pylist(), key=lambda row: (row["rank"], row["block_step"]))


def raw(lake: Lake) -> list[dict[str, Any]]:
    """The same by hand, of one attempt."""
    sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in lake.read("steps", JOB).to_pylist():
        held = sums[row["rank"], row["step"] // (2 * SPAN) * 2 * SPAN]
        held[0] += 1
        held[1] += row["duration_us"] - (row["comm_us"] or 0)
    return [
        {"rank": rank, "block_step": block, "row_count": count, "work_sum_us": work}
        for (rank, block), (count, work) in sorted(sums.items())
    ]


def spans(lake: Lake) -> list[Path]:
    return sorted((lake.root / "rollups").rglob("span-*.parquet"))


def late(lake: Lake, step: int, count: int = 1) -> Path:
    """Rows that come when all others are stored, of a rank that was not there."""
    told = [
        {"job_id": JOB, "attempt": 0, "step": step + k, "rank": RANKS, "start_us": EPOCH_US,
         "duration_us": 7}
        for k in range(count)
    ]  # fmt: skip
    (path,) = lake.append("steps", rows(told), source="test")
    return path


def test_it_is_what_raw_rows_give_and_the_newest_span_is_not_stored(lake: Lake) -> None:
    expected = raw(lake)
    assert asked(lake, WINDOW_STEPS) == expected
    assert spans(lake) == []
    assert asked(lake) == expected
    assert [path.name.split("-")[:3] for path in spans(lake)] == [
        ["span", str(SPAN), str(k)] for k in range(3)
    ]
    # A span holds one row of each rank where its parts had one each.
    assert sum(pq.read_metadata(path).num_rows for path in spans(lake)) == 3 * RANKS


@pytest.mark.parametrize("count", [1, 70])
def test_what_comes_late_is_counted(lake: Lake, count: int) -> None:
    """In a small segment, and in one that is summed up and so is of the span."""
    before = asked(lake), spans(lake)
    late(lake, SPAN + 5, count)
    assert asked(lake) == raw(lake) != before[0]
    new = {*spans(lake)} - {*before[1]}
    assert len(new) == (count > 64)
    assert len(spans(lake)) == 3


def test_a_window_is_of_the_attempt_that_told_most_of_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt ran a few steps of the first span once more, and all of the second."""
    before = asked(lake, SPAN)
    for part in list(segments(RANKS, STEPS))[7 : 2 * SPAN // SEGMENT_STEPS]:
        again = pa.array([1] * part.num_rows, pa.int32())
        more = part.set_column(part.column_names.index("attempt"), "attempt", again)
        index = part.column_names.index("compute_us")
        slow = pc.add(more["compute_us"], 1_000_000)
        slow_comm = pc.subtract(more["comm_us"], 1_000_000)
        more = more.set_column(index, "compute_us", slow)
        more = more.set_column(more.column_names.index("comm_us"), "comm_us", slow_comm)
        lake.append("steps", more, source="test")
    added = asked(lake)
    assert spans(lake)
    monkeypatch.setattr(rollups, "FEW_PARTS", 10**9)  # nothing is added up before it is asked for
    assert asked(lake) == added
    first = [row["work_sum_us"] for row in before if row["block_step"] == 0]
    now = [row["work_sum_us"] for row in added if row["block_step"] == 0]
    assert [b - a for a, b in zip(first, now, strict=True)] == [SPAN * 1_000_000] * RANKS


def test_what_goes_leaves_nothing_behind(lake: Lake) -> None:
    expected = asked(lake)
    old = spans(lake)
    compact(lake, minimum=2, grace_s=0.0)
    assert not [path for path in old if path.exists()]
    assert asked(Lake(lake.root)) == expected
    asked(lake)
    retain(lake, 2**62, grace_s=0.0)
    assert lake.segments("steps") == spans(lake) == []
    assert asked(Lake(lake.root)) == expected


@pytest.mark.parametrize("how", ["torn", "gone"])
def test_one_that_is_damaged_is_made_again(lake: Lake, how: str) -> None:
    expected = asked(lake)
    path = spans(lake)[1]
    if how == "torn":
        path.write_bytes(path.read_bytes()[:-30])
    else:
        path.unlink()
    assert asked(lake) == expected
    assert len(spans(lake)) == 3


def test_a_disk_that_cannot_be_written_answers(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(rollups, "write_rollup", full)
    assert asked(lake) == raw(lake)
    assert spans(lake) == []


@pytest.mark.parametrize("ranks", [1, 1_024, 16_384, 100_000])
@pytest.mark.parametrize("steps", [1, 10_000, 86_400, 30 * 86_400])
def test_cells_are_few_and_made_of_whole_windows(ranks: int, steps: int) -> None:
    block, window = block_of(ranks, steps)
    assert window in (WINDOW_STEPS, *SPAN_STEPS)
    assert block % window == 0
    assert ranks * -(-steps // block) <= max(MOST_CELLS, ranks)
    # Rows of windows that are read stay within a few times the cells.
    assert block < 16 * window or window == SPAN_STEPS[-1]
