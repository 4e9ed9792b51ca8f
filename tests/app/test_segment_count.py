"""However long a job is recorded, the number of its segments stays bounded."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.lake import Lake, Segment
from steptax.app.lake import compact as compaction
from steptax.app.lake.compact import SMALL_ROWS, TARGET_ROWS, compact, plan
from steptax.app.queries import DuckEngine
from steptax.app.schema import table

RANKS, NODE_RANKS, DAY_S = 1024, 8, 86_400
STEPS = table("steps")
MINIMUM = 8
#: Of each of the two tiers at most this many are left by a pass.
LEFT = 2 * (MINIMUM - 1)


_numbers = itertools.count()


def _segment(first: int, last: int, rows: int) -> Segment:
    return Segment("steps", "j", Path(f"live-{next(_numbers):017d}"), first, last, rows)


def _merged(live: list[Segment]) -> tuple[list[Segment], int]:
    """The segments after a pass, and how many rows it wrote."""
    groups = list(plan(live, STEPS, minimum=MINIMUM))
    gone = {segment.path for group in groups for segment in group}
    new = [
        _segment(min(s.first for s in g), max(s.last for s in g), sum(s.rows for s in g))
        for g in groups
    ]
    return [s for s in live if s.path not in gone] + new, sum(s.rows for s in new)


@pytest.mark.parametrize(("batch_s", "hours"), [(10, 24), (1, 1)])
def test_a_job_that_steps_each_second_leaves_a_segment_for_each_million_rows(
    batch_s: int, hours: int
) -> None:
    """Every node of a 1,024-rank job sends its rows each ``batch_s``; a pass follows each minute.

    Logical time, with the plan that compaction itself follows: of a day 88 million rows.
    """
    nodes = RANKS // NODE_RANKS
    live: list[Segment] = []
    written = rows = most = 0
    for minute in range(hours * 60):
        for first in range(minute * 60, minute * 60 + 60, batch_s):
            last = first + batch_s - 1
            live += [_segment(first, last, NODE_RANKS * batch_s) for _ in range(nodes)]
        rows += RANKS * 60
        most = max(most, len(live) - rows // TARGET_ROWS)
        live, wrote = _merged(live)
        written += wrote
        assert len(live) <= rows // TARGET_ROWS + LEFT
    assert sum(segment.rows for segment in live) == rows == RANKS * hours * 3600
    # What a minute brings, whatever the hour.
    assert most <= nodes * 60 // batch_s + LEFT
    assert len(live) < 100
    # Each row is written a few times, not once for every pass.
    assert written / rows < 5


@given(st.lists(st.integers(1, TARGET_ROWS + 1), min_size=1, max_size=80), st.integers(2, 9))
@settings(max_examples=60)
def test_no_row_is_planned_twice_and_little_is_left(sizes: list[int], minimum: int) -> None:
    live = [_segment(k, k, rows) for k, rows in enumerate(sizes)]
    groups = list(plan(live, STEPS, minimum=minimum))
    planned = Counter(segment.path for group in groups for segment in group)
    assert set(planned.values()) <= {1}
    assert all(len(group) > 1 for group in groups)
    for low, high in ((0, SMALL_ROWS), (SMALL_ROWS, TARGET_ROWS)):
        left = [s for s in live if low <= s.rows < high and s.path not in planned]
        assert len(left) < minimum


@pytest.mark.slow
def test_files_of_a_day_are_merged_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with real segments: a step each ten minutes, and tiers smaller by as much."""
    shrunk = 512
    monkeypatch.setattr(compaction, "SMALL_ROWS", SMALL_ROWS // shrunk)
    monkeypatch.setattr(compaction, "TARGET_ROWS", TARGET_ROWS // shrunk)
    lake = Lake(tmp_path / "lake", create=True)
    ranks = np.arange(256)
    steps = DAY_S // 600
    for step in range(steps):
        columns = {
            "job_id": pa.repeat("j", len(ranks)),
            "attempt": pa.array(np.zeros(len(ranks), np.int32)),
            "step": pa.array(np.full(len(ranks), step)),
            "rank": pa.array(ranks.astype(np.int32)),
            "duration_us": pa.array(1000 + ranks * 7 + step),
        }
        rows = pa.table(columns)
        # Four senders, a batch of their own each.
        for part in range(4):
            lake.append("steps", rows.slice(part * 64, 64), source="recorder")
        if step % 3 == 2:
            compact(lake, grace_s=0)
            full = (step + 1) * len(ranks) // (TARGET_ROWS // shrunk)
            live = lake.segments("steps", "j")
            assert len(live) <= full + LEFT
            # Replaced files are gone too.
            assert len(list(lake.folder("steps", "j").iterdir())) == len(live)
    asked = {"job_id": "j", "first_step": 0, "last_step": steps}
    found = DuckEngine(lake).run("step_rows", **asked)  # type: ignore[arg-type]
    assert found.num_rows == steps * len(ranks)
    keys = found["step"].to_numpy() * len(ranks) + found["rank"].to_numpy()
    assert len(np.unique(keys)) == found.num_rows
    assert (found["duration_us"].to_numpy() == 1000 + keys % 256 * 7 + keys // 256).all()
