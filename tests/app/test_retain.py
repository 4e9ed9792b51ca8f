"""Retention: old raw rows go, what they summed up to stays, whoever is killed when."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.errors import NotFoundError
from steptax.app.lake import Lake, kept, rollups
from steptax.app.lake.compact import compact
from steptax.app.lake.ingest import ingest
from steptax.app.lake.kept import dropped
from steptax.app.lake.retain import _TOGETHER, DAY_US, due, retain
from steptax.app.schema import Batch
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import ROLLUPS
from steptax.app.views.fleet.jobs import job_bills
from steptax.app.views.health import health_view
from steptax.app.views.job.extent import loss_by_step, step_summary
from steptax.app.views.job.history import history_view
from steptax.app.views.job.load import load_job, load_step
from steptax.app.views.workspace import Workspace, open_workspace
from tests.app.device_lake import START, STEPS, store_samples, store_steps
from tests.app.fleet_lake import rows
from tests.later_rollups import MORE, raise_version

JOB = "llm"
#: Later than all that ``device_lake`` stores.
AFTER_US = START + DAY_US
SPANS = {"first_us": None, "last_us": None}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A job of 60 steps and its devices, long ago, with the record that bills it."""
    made = Lake(tmp_path / "lake", create=True)
    store_steps(made, JOB)
    store_samples(made)
    job = {"job_id": JOB, "world_size": 8, "start_us": START, "end_us": START + 60_000_000}
    made.append("jobs", rows([job | {"state": "completed"}]), source="test")
    return made


def told(ws: Workspace) -> dict[str, Any]:
    """Everything that is told from sums, and the bill."""
    ask, in_steps = ws.engine.run, (State.SPLIT, State.WHOLE)
    bill = job_bills(ws, [ws.job(JOB)])[0].bill
    assert bill is not None
    assert bill.timeline is not None
    return {
        "steps": ask("history_steps", job_id=JOB).to_pylist(),
        "windows": sorted(
            ask("history_windows", job_id=JOB, step_block=256, window_steps=256).to_pylist(),
            key=lambda row: (row["rank"], row["block_step"]),
        ),
        "span": ask("history_span", job_id=JOB).to_pylist(),
        "bins": sorted(
            tuple(row.values())
            for row in ask("history_bins", job_id=JOB, step_block=1, window_steps=1).to_pylist()
        ),
        "summary": step_summary(ws, JOB).to_pylist(),
        "loss": loss_by_step(ws, JOB).to_pylist(),
        "days": ask("device_day_rows", **SPANS).to_pylist(),
        "minutes": ask("device_minute_rows", **SPANS).to_pylist(),
        # Steps that the phases of their ranks divided, and those of which the length is known.
        "held": [
            bill.timeline.gpu_us(*states)
            for states in [(State.SPLIT, State.WHOLE), *((s,) for s in State if s not in in_steps)]
        ],
    }


def test_without_drop_it_prints_and_changes_nothing(
    lake: Lake, steptax: Callable[..., Any]
) -> None:
    before = sorted(p for p in lake.root.rglob("*") if p.is_file())
    said = steptax("retain", "--days", "1")
    assert said["is_done"] is False
    assert {(g["table"], g["rows"]) for g in said["going"]} == {
        ("steps", 8 * STEPS),
        ("device_samples", 8 * (STEPS + 60)),
    }
    sizes = [s.path.stat().st_size for n in ("steps", "device_samples") for s in lake.segments(n)]
    assert said["bytes"] == sum(sizes)
    assert sorted(p for p in lake.root.rglob("*") if p.is_file()) == before
    assert steptax("retain", "--days", "36500", "--drop")["going"] == []
    assert "no roll-ups" in steptax("retain", "--days", "1", "--table", "ops", fails=2)["message"]
    for wrong in ("0", "-1", "nan", "inf", "1e9"):
        assert "0 days" in steptax("retain", "--days", wrong, fails=2)["message"]
    assert "nosuch" in steptax("retain", "--days", "1", "--job", "nosuch", fails=2)["message"]


def test_what_was_summed_up_is_told_as_before(lake: Lake, steptax: Callable[..., Any]) -> None:
    before = told(open_workspace(lake.root))
    said = steptax("retain", "--days", "1", "--drop")
    assert said["rows"] == 8 * STEPS + 8 * (STEPS + 60)
    assert said["dropped_so_far"]["steps"]["rows"] == 8 * STEPS
    ws = open_workspace(lake.root)
    assert ws.lake.segments("steps") == ws.lake.segments("device_samples") == []
    assert told(ws) == before
    assert retain(ws.lake, AFTER_US).dropped == ()
    # Sums that can be made again are not what it rests on, nor do later passes undo it.
    for path in (lake.root / "rollups").rglob("*.parquet"):
        path.unlink()
    ws.engine.roll_up()
    compact(ws.lake, minimum=2, grace_s=0.0)
    assert not list((lake.root / "tables" / "steps").rglob("*.parquet"))
    assert told(open_workspace(lake.root)) == before


def test_views_say_what_is_gone_and_never_zero(lake: Lake) -> None:
    retain(lake, AFTER_US)
    ws = open_workspace(lake.root)
    gone = dropped(lake, "steps", JOB)
    assert gone is not None
    assert gone.sentence.startswith(f"{8 * STEPS:,} raw rows of steps 0 to {STEPS - 1} were drop")
    with pytest.raises(NotFoundError, match="no raw rows of steps any more: 480 raw rows"):
        load_job(ws, ws.job(JOB), last_steps=None)
    with pytest.raises(NotFoundError, match="no raw rows of step 7: 480 raw rows"):
        load_step(ws, JOB, 7)
    view = history_view(ws, JOB)
    assert view is not None
    assert view.note == gone.sentence
    assert (view.steps, view.rows) == (STEPS, 8 * STEPS)
    assert view.ranks[0].rank == 5
    bill = job_bills(ws, [ws.job(JOB)])[0].bill
    assert bill is not None
    assert "480 raw rows" in (bill.no_useful or "")
    split = {row.bucket: row for row in bill.rows}
    assert split["straggler_wait"].gpu_us is None
    assert split["step_unsplit"].gpu_seconds == 480.0
    warnings = " ".join(health_view(ws).warnings)
    assert f"steps: {gone.sentence}" in warnings
    assert "device_samples: 960 raw rows from 2026-02-28 23:59" in warnings


def test_the_newest_rows_stay_and_the_page_says_which_are_gone(lake: Lake) -> None:
    newer = [
        {
            "job_id": JOB,
            "attempt": 0,
            "step": STEPS + step,
            "rank": rank,
            "start_us": AFTER_US + DAY_US + step * 1_000_000,
            "duration_us": 1_000_000,
            "compute_us": 700_000,
            "comm_us": 300_000,
        }
        for step in range(10)
        for rank in range(8)
    ]
    lake.append("steps", rows(newer), source="test")
    before = told(open_workspace(lake.root))
    assert [g.rows for g in due(lake, AFTER_US, tables=["steps"])] == [8 * STEPS]
    retain(lake, AFTER_US, tables=["steps"])
    ws = open_workspace(lake.root)
    assert told(ws) == before
    loaded = load_job(ws, ws.job(JOB), last_steps=None)
    assert (loaded.window.first_step, loaded.window.last_step) == (STEPS, STEPS + 9)
    assert (loaded.window.stored_first_step, loaded.window.is_all) == (0, False)
    assert "480 raw rows of steps 0 to 59 were dropped on" in (loaded.window.note or "")


def test_rows_that_come_again_do_not_count_twice(lake: Lake) -> None:
    again = lake.read("steps", JOB)
    before = told(open_workspace(lake.root))
    retain(lake, AFTER_US)
    names = [name for name in again.column_names if name not in ("source", "ingested_at_us")]
    late = again.select(names).set_column(
        names.index("step"), "step", pa.array([s + 1 for s in again["step"].to_pylist()])
    )
    found = ingest(lake, [Batch("steps", late)], ingest_id="ab", source="again")
    assert found.accepted == {"steps": 8}  # those of the one step that is new
    assert "472 rows of steps were left out, for sums that outlived their rows" in found.notes[0]
    after = told(open_workspace(lake.root))
    assert after["steps"][:-1] == before["steps"]
    assert len(after["steps"]) == STEPS + 1


#: Ends a pass by SIGKILL: before its commit, after it, and once some of its files are gone.
_KILLED = """
import os, signal, sys
from pathlib import Path
from steptax.app.lake import Lake
from steptax.app.lake.retain import retain
lake = Lake(Path(sys.argv[1]))
end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "before":
    lake.commit = end
elif sys.argv[2] == "after":
    commit = lake.commit
    lake.commit = lambda c: (commit(c), end())
else:
    lake.discard = lambda names: ((lake.root / next(iter(names))).unlink(), end())
retain(lake, int(sys.argv[3]), grace_s=0.0)
"""


@pytest.mark.parametrize("moment", ["before", "after", "deleting"])
def test_a_pass_that_is_killed_loses_and_doubles_nothing(lake: Lake, moment: str) -> None:
    before = told(open_workspace(lake.root))
    command = [sys.executable, "-c", _KILLED, str(lake.root), moment, str(AFTER_US)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    ws = open_workspace(lake.root)
    assert told(ws) == before
    is_hidden = moment != "before"
    assert (ws.lake.segments("device_samples") == []) is is_hidden
    retain(ws.lake, AFTER_US, grace_s=0.0)
    compact(ws.lake, minimum=2, grace_s=0.0)
    after = open_workspace(lake.root)
    assert told(after) == before
    assert after.lake.segments("steps") == []
    assert not list((lake.root / "tables" / "steps").rglob("*.parquet"))
    named = {name for c in after.lake.commits.all().values() for name in c.adds}
    files = {after.lake.relative(p) for p in (lake.root / "kept").rglob("*.parquet")}
    assert files == {name for name in named if name.startswith("kept/")}


def test_a_damaged_record_costs_no_sums_of_rows_that_are_gone(lake: Lake) -> None:
    """A part that no record names is of a pass that was killed, unless a record cannot be read."""
    before = told(open_workspace(lake.root))
    retain(lake, AFTER_US)
    parts = sorted((lake.root / kept.FOLDER).rglob("*.parquet"))
    records = {p: p.read_bytes() for p in (lake.root / "commits").glob("*.json")}
    for path in records:
        path.write_bytes(b"{")
    retain(Lake(lake.root), 0)
    assert sorted((lake.root / kept.FOLDER).rglob("*.parquet")) == parts
    for path, body in records.items():  # from a backup
        path.write_bytes(body)
    assert told(open_workspace(lake.root)) == before


def test_small_and_big_segments_and_lines_are_summed_up_alike(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever had a roll-up before has one after, and so has what had none."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 100)
    before = told(open_workspace(lake.root))
    more = lake.folder("steps", JOB) / "live-00001-60-60-1-abcdef01.jsonl"
    more.write_text(
        f'{{"job_id": "{JOB}", "attempt": 0, "step": 60, "rank": 0, "start_us": {START}, '
        f'"duration_us": 5, "source": "r", "ingested_at_us": {START}}}\n'
    )
    retain(Lake(lake.root), AFTER_US)
    after = told(open_workspace(lake.root))
    assert after["steps"][:-1] == before["steps"]
    assert (after["steps"][-1]["step"], after["steps"][-1]["duration_us"]) == (60, 5)


@pytest.mark.parametrize("place", ["rollups", "tables"])
def test_what_is_damaged_does_not_keep_the_rest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any], place: str
) -> None:
    """A roll-up is made again from its segment; a segment that lacks one is set aside."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 100)
    later = [
        {"job_id": JOB, "attempt": 0, "step": 60 + k, "rank": 0, "start_us": START + k,
         "duration_us": 5}
        for k in range(120)
    ]  # fmt: skip
    (segment,) = lake.append("steps", rows(later), source="test")
    before = told(open_workspace(lake.root))
    assert len(before["steps"]) == 180
    rolled = next((lake.root / "rollups").rglob(segment.name))
    if place == "rollups":
        rolled.write_bytes(rolled.read_bytes()[:-30])
    else:
        rollups.forget(lake.root, "steps", segment)
        # How old its rows are can be read, how long they took cannot.
        footer = pq.read_metadata(segment)
        told_of = footer.row_group(0).column(footer.schema.names.index("duration_us"))
        begin = told_of.dictionary_page_offset or told_of.data_page_offset
        held = bytearray(segment.read_bytes())
        held[begin : begin + told_of.total_compressed_size] = bytes(told_of.total_compressed_size)
        segment.write_bytes(held)
    said = steptax("retain", "--days", "1", "--drop")
    ws = open_workspace(lake.root)
    assert ws.lake.segments("steps") == []
    if place == "rollups":
        assert told(ws) == before
        assert ws.lake.set_aside() == []
    else:
        assert said["dropped_so_far"]["steps"]["rows"] == 8 * STEPS
        assert [one.place for one in ws.lake.set_aside()] == [ws.lake.relative(segment)]
        assert ws.engine.run("history_steps", job_id=JOB).to_pylist() == before["steps"][:60]


def reports(step: int, ranks: int = 2, start_us: int = START) -> pa.Table:
    """What each rank of a step reported, which took a microsecond longer than the step before."""
    told = [
        {"job_id": JOB, "attempt": 0, "step": step, "rank": rank, "start_us": start_us,
         "duration_us": 1000 + step, "comm_us": 100, "tokens": 7}
        for rank in range(ranks)
    ]  # fmt: skip
    return rows(told)


def test_however_many_segments_go_each_is_summed_up(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    count = 2 * _TOGETHER + 1
    for step in range(count):
        lake.append("steps", reports(step), source="test")
    before = open_workspace(lake.root).engine.run("history_steps", job_id=JOB).to_pylist()
    assert [row["step"] for row in before] == list(range(count))
    (gone,) = retain(lake, AFTER_US).dropped
    assert (len(gone.segments), gone.rows) == (count, 2 * count)
    after = open_workspace(lake.root).engine.run("history_steps", job_id=JOB).to_pylist()
    assert after == before


@pytest.mark.parametrize("is_of_lines", [False, True])
def test_a_segment_is_as_old_as_its_newest_row(lake: Lake, is_of_lines: bool) -> None:
    """Of a job that ran for long in one segment, as an import of its whole log is."""
    old, new = reports(60), reports(61, start_us=AFTER_US + 5)
    if is_of_lines:
        made = lake.folder("steps", JOB) / "live-00001-60-61-2-abcdef01.jsonl"
        made.write_text(
            "".join(
                f'{{"job_id": "{JOB}", "attempt": 0, "step": {step}, "rank": 0, "start_us": {at}, '
                f'"duration_us": 5, "source": "r", "ingested_at_us": {START}}}\n'
                for step, at in ((60, START), (61, AFTER_US + 5))
            )
        )
        lake = Lake(lake.root)
    else:
        (made,) = lake.append("steps", pa.concat_tables([old, new]), source="test")
    assert made.name not in {s.path.name for g in due(lake, AFTER_US + 5) for s in g.segments}
    retain(lake, AFTER_US + 5)
    assert [s.path.name for s in lake.segments("steps", JOB)] == [made.name]
    assert {*lake.read("steps", JOB)["step"].to_pylist()} == {60, 61}
    # A moment later it is, as a whole.
    assert [g.newest_us for g in due(lake, AFTER_US + 6, tables=["steps"])] == [AFTER_US + 5]


@pytest.mark.parametrize("old", ROLLUPS, ids=lambda rollup: rollup.name)
def test_sums_of_an_older_definition_are_told_where_their_rows_are_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, old: Rollup
) -> None:
    """A release that raises a version, with a column more, does not lose what retention left."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 100)
    again = lake.read("steps", JOB).drop_columns(["source", "ingested_at_us"])
    before = told(open_workspace(lake.root))
    retain(lake, AFTER_US)
    raise_version(monkeypatch, old)
    after = told(open_workspace(lake.root))
    for row in after["days"]:
        assert row.pop(MORE.name, None) is None  # of what was summed up before it nobody knows it
    assert after == before
    # Rows that come again are known still, and newer ones are told beside them, gone or not.
    found = ingest(lake, [Batch("steps", again)], ingest_id="ab", source="again")
    assert found.accepted.get("steps", 0) == 0
    for step in range(STEPS, STEPS + 3):
        lake.append("steps", reports(step), source="test")
    store_samples(lake)
    newer = told(open_workspace(lake.root))
    assert newer["steps"][:STEPS] == before["steps"]
    assert [row["row_count"] for row in newer["steps"][STEPS:]] == [2, 2, 2]
    assert sum(row["samples"] for row in newer["days"]) == 2 * sum(
        row["samples"] for row in before["days"]
    )
    retain(lake, AFTER_US)
    assert lake.segments("steps") == lake.segments("device_samples") == []
    # Both are there, each where it was made.
    names = {path.name for path in (lake.root / kept.FOLDER).iterdir()}
    assert {f"{old.name}-{old.version}", f"{old.name}-{old.version + 1}"} <= names
    assert told(open_workspace(lake.root)) == newer


def test_a_roll_up_of_other_buckets_has_another_name() -> None:
    """Sums that retention left are of these keys and widths for ever: a change needs a new name."""
    minute_us, hour_us = 60_000_000, 3_600_000_000
    widths = {"device_minutes": minute_us, "device_hours": hour_us, "device_days": 24 * hour_us}
    assert {r.name: (r.table, r.keys, r.at, r.bucket, dict(r.levels)) for r in ROLLUPS} == {
        "devices": ("device_samples", ("host", "gpu_uuid"), "ts_us", "bucket_us", widths),
        "step-totals": ("steps", ("job_id", "attempt"), "step", "step", {"step_totals": 1}),
        "rank-windows": (
            "steps", ("job_id", "attempt", "rank"), "step", "window_step", {"rank_windows": 256}
        ),
        "step-bins": ("steps", ("job_id", "attempt", "work_bin"), "step", "step", {"step_bins": 1}),
    }  # fmt: skip
