"""However long a job is recorded, the number of its segments stays bounded."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.lake import Lake, Segment
from steptax.app.lake import compact as compaction
from steptax.app.lake.commits import Commit, CommitLog
from steptax.app.lake.compact import SMALL_ROWS, TARGET_ROWS, compact, plan
from steptax.app.lake.fold import FOLD_AGE_S, FOLD_RECORDS, fold_log
from steptax.app.queries import DuckEngine
from steptax.app.schema import table

RANKS, NODE_RANKS, DAY_S = 1024, 8, 86_400
STEPS = table("steps")
MINIMUM = 8
#: Of each of the two tiers at most this many are left by a pass.
LEFT = 2 * (MINIMUM - 1)


_PATH = Path("live")


def _segment(first: int, last: int, rows: int) -> Segment:
    """One of a plan that reads no file: its place in memory is its name."""
    return Segment("steps", "j", _PATH, first, last, rows)


def _merged(live: list[Segment]) -> tuple[list[Segment], int]:
    """The segments after a pass, and how many rows it wrote."""
    groups = list(plan(live, STEPS, minimum=MINIMUM))
    gone = {id(segment) for group in groups for segment in group}
    new = [
        _segment(min(s.first for s in g), max(s.last for s in g), sum(s.rows for s in g))
        for g in groups
    ]
    return [s for s in live if id(s) not in gone] + new, sum(s.rows for s in new)


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


@pytest.mark.parametrize("hours", [3, pytest.param(24, marks=pytest.mark.slow)])
def test_the_log_of_a_job_that_steps_each_second_stays_small(tmp_path: Path, hours: int) -> None:
    """The records of the merges above, of a job without a collector, folded each pass as they age.

    Real records of real names; the segments that they name were never written. Each node brings a
    file in 10 s, as senders to a bucket do: of a day 1.1 million names.
    """
    nodes, batch_s = RANKS // NODE_RANKS, 10
    lake = Lake(tmp_path / "lake", create=True)
    folder, now_us = "tables/steps/job=j", time.time_ns() // 1000
    begin_us = now_us - hours * 3_600_000_000
    live: list[Segment] = []
    named: dict[int, str] = {}  # of each live segment, by its place in memory
    replaced: list[str] = []
    most: Counter[str] = Counter()
    reader = Lake(lake.root)
    for minute in range(hours * 60):
        at_us = begin_us + minute * 60_000_000
        for first in range(minute * 60, minute * 60 + 60, batch_s):
            last = first + batch_s - 1
            for node in range(nodes):
                us, mark = begin_us + last * 1_000_000 + node, (first * nodes + node) * 2654435761
                name = f"live-{us:017d}-{first}-{last}-{NODE_RANKS * batch_s}-{mark % 2**32:08x}"
                live.append(_segment(first, last, NODE_RANKS * batch_s))
                named[id(live[-1])] = f"{folder}/{name}.parquet"
        for number, group in enumerate(plan(live, STEPS, minimum=MINIMUM)):
            gone = [named.pop(id(segment)) for segment in group]
            first, last = min(s.first for s in group), max(s.last for s in group)
            rows, merge_id = sum(s.rows for s in group), f"{minute:020x}{number:04x}"
            name = f"{folder}/part-{merge_id}-0-{first}-{last}-{rows}.parquet"
            lake.commit(Commit(merge_id, "compact", at_us, (name,), tuple(gone)))
            left = {id(segment) for segment in group}
            live = [s for s in live if id(s) not in left]
            live.append(_segment(first, last, rows))
            named[id(live[-1])] = name
            replaced += (p for p in gone if minute % 20 == 0 and "/live-" in p)
        with lake.commits.compacting(lake.root):
            # As old as it was then.
            age_s = time.time() - at_us / 1e6 + FOLD_AGE_S
            fold_log(lake, grace_s=0.0, age_s=age_s)
        if minute % 10 == 0:
            commits, refused = reader.commits.state()
            log = {p.name: p.stat().st_size for p in (lake.root / "commits").iterdir()}
            beside = sum(size for name, size in log.items() if name.endswith(".json"))
            told = {"files": len(log), "bytes": beside, "names": len(refused)}
            most |= Counter({**told, "commits": len(commits)})
    tracemalloc.start()
    fresh = CommitLog(lake.root / "commits")
    commits, refused = fresh.state()
    resident_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # Whatever was replaced is refused, and what lives is there.
    assert all(name in refused for name in replaced)
    assert sorted(named) == sorted(map(id, live))
    assert not any(name in refused for name in named.values())
    whole = {name for name in named.values() if "/part-" in name}
    assert {c.adds[0] for c in commits.values()} >= whole
    # The log beside 12 bytes a name, and what is resident of it, are those of the last two hours.
    held_hours = FOLD_AGE_S / 3600 + FOLD_RECORDS / 60
    names = 1.3 * held_hours * 3600 / batch_s * nodes
    assert most["names"] < names
    assert most["bytes"] < names * 100
    assert most["files"] < 1.3 * held_hours * 60 + 20
    assert most["commits"] < 1.3 * held_hours * 60 + hours * 4 + 20
    assert resident_bytes < names * 400
    spent = [len(run.digests) for run in fresh.folded.runs]
    assert sum(spent) > (hours - 2) * 3600 / batch_s * nodes
    assert len(spent) < 12


@given(st.lists(st.integers(1, TARGET_ROWS + 1), min_size=1, max_size=80), st.integers(2, 9))
@settings(max_examples=60)
def test_no_row_is_planned_twice_and_little_is_left(sizes: list[int], minimum: int) -> None:
    live = [_segment(k, k, rows) for k, rows in enumerate(sizes)]
    groups = list(plan(live, STEPS, minimum=minimum))
    planned = Counter(id(segment) for group in groups for segment in group)
    assert set(planned.values()) <= {1}
    assert all(len(group) > 1 for group in groups)
    for low, high in ((0, SMALL_ROWS), (SMALL_ROWS, TARGET_ROWS)):
        left = [s for s in live if low <= s.rows < high and id(s) not in planned]
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
