"""Damaged files: set aside and named, and the rest of the lake answers."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.errors import NotFoundError
from steptax.app.lake import Lake, Segment
from steptax.app.lake.compact import compact
from steptax.app.lake.quarantine import FOLDER, damage_of, segment_damage
from steptax.app.lake.rollups import rollup_path
from steptax.app.schema import table
from steptax.app.schema.rollups import DEVICES
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace
from tests.app.fleet_lake import RANKS, S, rows, steps, us

START = us(2026, 3, 1)
SEGMENTS = 4
STEPS = 5
Break = Callable[[Path], None]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[40:400] = b"\xff" * 360
    path.write_bytes(bytes(raw))


def zeros(path: Path) -> None:  # what a power loss can leave of a file
    path.write_bytes(b"\0" * path.stat().st_size)


BREAKS: tuple[Break, ...] = (cut, empty, overwrite, zeros)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A job in four segments of five steps."""
    lake = Lake(tmp_path_factory.mktemp("damage") / "lake", create=True)
    for part in range(SEGMENTS):
        first = part * STEPS
        found = steps("a", START + first * S, STEPS, length=S, first=first)
        lake.append("steps", rows(found), source="test")
    return lake


@pytest.fixture
def lake(stored: Lake, tmp_path: Path) -> Lake:
    return Lake(shutil.copytree(stored.root, tmp_path / "lake"))


def count(lake: Lake) -> int:
    return (
        open_workspace(lake.root)
        .engine.run("step_rows", job_id="a", first_step=0, last_step=1000)
        .num_rows
    )


@pytest.mark.parametrize("broken", BREAKS)
def test_the_rest_answers_and_the_damaged_one_is_named(
    lake: Lake, broken: Break, caplog: pytest.LogCaptureFixture
) -> None:
    whole = count(lake)
    assert whole == SEGMENTS * STEPS * RANKS
    victim = lake.segments("steps", "a")[1].path
    broken(victim)
    with caplog.at_level(logging.ERROR, logger="steptax.lake"):
        assert count(lake) == whole - STEPS * RANKS
    place = lake.relative(victim)
    assert place in caplog.text
    assert not victim.exists()
    assert (lake.root / FOLDER / place).exists()
    (aside,) = lake.set_aside()
    assert (aside.place, aside.is_moved) == (place, True)
    assert aside.reason
    # It is put back as it was, and all is there again.
    (lake.root / FOLDER / place).unlink()
    assert lake.set_aside() == []


def test_a_job_of_which_nothing_is_left_says_what_was_set_aside(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    lake.append("steps", rows(steps("a", START, STEPS, length=S)), source="test")
    (segment,) = lake.segments("steps", "a")
    cut(segment.path)
    with pytest.raises(NotFoundError, match="is damaged and set aside") as told:
        job_view(open_workspace(lake.root), "a", price=None)
    assert lake.relative(segment.path) in told.value.message
    assert "backup" in str(told.value.hint)


def test_reading_whole_tables_and_merging_do_without_it_too(lake: Lake) -> None:
    cut(lake.segments("steps", "a")[0].path)
    assert lake.read("steps", "a").num_rows == (SEGMENTS - 1) * STEPS * RANKS
    empty(lake.segments("steps", "a")[0].path)
    compact(lake, minimum=2)
    compact(lake, minimum=2)
    assert len(lake.segments("steps", "a")) == 1
    assert count(lake) == (SEGMENTS - 2) * STEPS * RANKS
    assert len(lake.set_aside()) == 2


def test_where_nothing_can_be_moved_it_is_passed_over(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = lake.segments("steps", "a")[0].path
    cut(victim)

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "rename", read_only)
    monkeypatch.setattr(Path, "mkdir", read_only)
    ws = open_workspace(lake.root)
    assert (
        ws.engine.run("step_rows", job_id="a", first_step=0, last_step=1000).num_rows
        == (SEGMENTS - 1) * STEPS * RANKS
    )
    assert victim.exists()
    (aside,) = ws.lake.set_aside()
    assert not aside.is_moved


def test_lines_of_a_recorder_that_are_torn(lake: Lake) -> None:
    folder = lake.folder("steps", "a")
    name = f"live-{1:017d}-90-90-2-00000000.jsonl"
    good = '{"job_id":"a","attempt":0,"step":90,"rank":0,"duration_us":5,"source":"x"'
    (folder / name).write_text(f'{good},"ingested_at_us":1}}\n{good},"inge\n')
    assert count(lake) == SEGMENTS * STEPS * RANKS
    (aside,) = lake.set_aside()
    assert "line 2 is no JSON" in aside.reason


def line(**values: object) -> str:
    row = {"job_id": "a", "attempt": 0, "step": 90, "rank": 0, "duration_us": 5, "source": "x"}
    return orjson.dumps(row | values).decode()


WRONG_LINES = (
    "[1, 2]",
    "5",
    '"x"',
    line(duration_us="abc"),
    line(duration_us=[1]),
    line(duration_us={"a": 1}),
    line(duration_us=3 * 10**9),
    line(duration_us=1.5),
    line(rank="first"),
    line(source=["x"]),
)


@pytest.mark.parametrize("wrong", WRONG_LINES)
def test_lines_of_other_types_fail_no_question(lake: Lake, wrong: str) -> None:
    path = lake.folder("steps", "a") / f"live-{1:017d}-90-90-2-00000000.jsonl"
    path.write_text(f"{wrong}\n")
    segment = next(s for s in lake.segments("steps", "a") if s.path == path)
    assert segment_damage(lake.root, segment)
    assert count(lake) >= SEGMENTS * STEPS * RANKS  # the engine takes 1.5 for 2
    assert lake.read("steps", "a").num_rows == SEGMENTS * STEPS * RANKS
    (aside,) = lake.set_aside()
    assert aside.place == lake.relative(path)
    assert count(lake) == SEGMENTS * STEPS * RANKS


@pytest.mark.parametrize("values", [["abc"], ["5"], [2**40], [0.5], [[1]]])
@pytest.mark.parametrize("moment", [1, 2 * 10**15])  # first or last among its neighbours
def test_a_segment_of_other_types_fails_no_question(
    lake: Lake, values: list[Any], moment: int
) -> None:
    one = lake.read("steps", "a").slice(0, 1)
    column = one.schema.get_field_index("rank")
    path = lake.folder("steps", "a") / f"live-{moment:017d}-90-90-1-00000000.parquet"
    pq.write_table(one.set_column(column, "rank", pa.array(values)), path)
    segment = next(s for s in lake.segments("steps", "a") if s.path == path)
    assert "rank" in (segment_damage(lake.root, segment) or "")
    ws = open_workspace(lake.root)
    answer = ws.engine.run("step_rows", job_id="a", first_step=0, last_step=1000)
    assert answer.schema.field("rank").type == pa.int32()
    assert answer.num_rows - SEGMENTS * STEPS * RANKS == len(lake.segments("steps", "a")) - SEGMENTS


def test_numbers_that_are_stored_as_text_are_answered_as_numbers(lake: Lake) -> None:
    spec = table("steps")
    for segment in lake.segments("steps", "a"):
        one = pq.read_table(segment.path, partitioning=None)
        for name in ("rank", "tokens"):
            column = one.schema.get_field_index(name)
            one = one.set_column(column, name, one[name].cast(pa.string()))
        pq.write_table(one, segment.path)
    ws = open_workspace(lake.root)
    answer = ws.engine.run("step_rows", job_id="a", first_step=0, last_step=1000)
    for name in ("rank", "tokens"):
        assert answer.schema.field(name).type == spec.arrow.field(name).type


def test_what_lies_in_the_quarantine_is_named_whatever_its_note_says(lake: Lake) -> None:
    victim = lake.segments("steps", "a")[0].path
    cut(victim)
    count(lake)
    (note,) = (lake.root / FOLDER).rglob("*.reason.json")
    for text in ("", "[1]", "{}", '{"reason": 1, "found_us": "x"}'):
        note.write_text(text)
        (aside,) = lake.set_aside()
        assert aside.place == lake.relative(victim)


def test_a_damaged_commit_is_named_and_its_input_can_be_stored_again(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    path = tmp_path / "a.csv"
    lines = [f"{step},{rank},10" for step in range(3) for rank in range(2)]
    path.write_text("step,rank,duration_ms\n" + "\n".join(lines) + "\n")
    root = tmp_path / "lake"
    first = steptax("ingest", "steps", str(path), "--job", "j", "--lake", str(root))
    assert first["tables"]["steps"]["accepted"] == 6
    (record,) = (root / "commits").glob("*.json")
    cut(record)
    lake = Lake(root)
    assert lake.segments("steps") == []
    (aside,) = lake.set_aside()
    assert aside.place == f"commits/{record.name}"
    again = steptax("ingest", "steps", str(path), "--job", "j", "--lake", str(root))
    assert again["tables"]["steps"]["accepted"] == 6
    assert sum(s.rows for s in Lake(root).segments("steps")) == 6
    assert Lake(root).read("steps", "j").num_rows == 6


def test_a_damaged_roll_up_is_made_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    samples = [
        {"host": "n", "gpu_uuid": "g", "ts_us": START + k * S, "power_w": 500.0 + k % 7}
        for k in range(20_000)
    ]
    (segment,) = lake.append("device_samples", rows(samples), source="test")
    ask = open_workspace(lake.root).engine
    before = ask.run("device_sums_by_day", first_us=0, last_us=2**62).to_pylist()
    path = rollup_path(lake.root, DEVICES, "device_hours", segment)
    zeros(path)
    assert ask.run("device_sums_by_day", first_us=0, last_us=2**62).to_pylist() == before
    assert damage_of(path) is None
    assert lake.set_aside() == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_every_flipped_bit_of_the_values_is_found(
    stored: Lake, tmp_path: Path, place: float, bit: int
) -> None:
    segment: Segment = stored.segments("steps", "a")[0]
    raw = bytearray(segment.path.read_bytes())
    footer = int.from_bytes(raw[-8:-4], "little") + 8
    at = 4 + int(place * (len(raw) - footer - 4))
    raw[at] ^= 1 << bit
    broken = tmp_path / segment.path.name
    broken.write_bytes(bytes(raw))
    if damage_of(broken) is None:
        # A bit of a header that nothing hangs on: the values are those that were written.
        import pyarrow.parquet as pq

        assert pq.read_table(broken).equals(pq.read_table(segment.path))


BEAT = {"rank": 0, "ts_us": START, "state": "running", "step": 1, "phase": "idle"}
STRANGE_BEATS = (
    {"a": 1},
    [1],
    [[]],
    "x",
    None,
    {**BEAT, "rank": "0"},
    {**BEAT, "rank": -1},
    {**BEAT, "ts_us": 2**63 - 1},
    {**BEAT, "ts_us": None},
    {**BEAT, "state": ["running"]},
    {**BEAT, "step": "one"},
    {**BEAT, "last_step_done": 0.5},
    {**BEAT, "phase": "compute", "step": None},
    {**BEAT, "phase": "collective"},
    {**BEAT, "host": 5},
    {**BEAT, "overhead_us_mean": "little"},
    {**BEAT, "rows_written": [1]},
)


def test_heartbeats_of_another_shape_are_named_and_the_others_count(
    lake: Lake, steptax: Callable[..., Any]
) -> None:
    folder = lake.root / "live" / "job=a"
    folder.mkdir(parents=True)
    (folder / "rank-000000.json").write_bytes(orjson.dumps(BEAT))
    (folder / "beats-x.json").write_bytes(orjson.dumps([{"a": 1}, {**BEAT, "rank": 1}]))
    (folder / "rank-000099.json").write_text("{torn")
    for k, beat in enumerate(STRANGE_BEATS, 1):
        (folder / f"rank-{k:06d}.json").write_bytes(orjson.dumps(beat))
    assert [beat["rank"] for beat in lake.heartbeats("a")] == [0, 1]
    root = str(lake.root)
    assert steptax("job", "a", "--lake", root)
    assert len(steptax("health", "--lake", root)["recorders"]) == 2
    said = [one["text"] for one in steptax("doctor", "--lake", root)["findings"]]
    assert sum("no heartbeat" in text for text in said) == len(STRANGE_BEATS) + 2


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"format": "1"}', '{"format": true}', "\x00"])
def test_a_lake_that_does_not_say_its_format_is_refused_with_what_to_do(
    lake: Lake, steptax: Callable[..., Any], text: str
) -> None:
    (lake.root / "LAKE.json").write_text(text)
    error = steptax("jobs", "--lake", str(lake.root), fails=2)
    assert (error["kind"], error["where"]) == ("InputError", str(lake.root / "LAKE.json"))
    assert '{"format": 1}' in error["hint"]
    data = steptax("doctor", "--lake", str(lake.root), exits=3)
    failed = {one["check"] for one in data["findings"] if one["state"] == "fail"}
    assert failed == {"lake", "sources"}


COMMIT = {
    "id": "abc",
    "kind": "ingest",
    "created_us": START,
    "adds": [],
    "removes": [],
    "detail": {"source": "x"},
}
STRANGE_COMMITS = (
    [COMMIT],
    {**COMMIT, "id": 5},
    {**COMMIT, "kind": ["ingest"]},
    {**COMMIT, "created_us": "yesterday"},
    {**COMMIT, "created_us": True},
    {**COMMIT, "created_us": 2**63},
    {**COMMIT, "adds": "tables"},
    {**COMMIT, "adds": [5]},
    {**COMMIT, "removes": ["tables/../../elsewhere"]},
    {**COMMIT, "removes": ["/etc/hostname"]},
    {**COMMIT, "detail": [1]},
    {**COMMIT, "detail": {"accepted": [1]}},
    {**COMMIT, "detail": {"accepted": {"steps": "many"}}},
    {**COMMIT, "detail": {"notes": "text"}},
    {**COMMIT, "kind": "retain"},
    {**COMMIT, "kind": "retain", "detail": {"table": "steps", "job_id": 5, "rows": 1}},
)


def test_commits_of_another_shape_are_named_and_the_others_count(
    lake: Lake, steptax: Callable[..., Any]
) -> None:
    (lake.root / "commits").mkdir(exist_ok=True)
    (lake.root / "commits" / "abc.json").write_bytes(orjson.dumps(COMMIT))
    for k, commit in enumerate(STRANGE_COMMITS):
        (lake.root / "commits" / f"strange-{k}.json").write_bytes(orjson.dumps(commit))
    assert [*lake.commits.all()] == ["abc"]
    root = str(lake.root)
    assert steptax("job", "a", "--lake", root)
    assert steptax("health", "--lake", root)
    said = [one["text"] for one in steptax("doctor", "--lake", root, exits=3)["findings"]]
    assert sum("commits/strange-" in text for text in said) == len(STRANGE_COMMITS)
    assert not any("the check itself failed" in text for text in said)
