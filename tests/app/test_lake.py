"""The store: whole or nothing, once, and never in the way."""

from __future__ import annotations

import faulthandler
import multiprocessing as mp
import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from steptax.app.errors import InputError, NotFoundError
from steptax.app.lake import Lake
from steptax.app.lake.compact import UNFINISHED_S, compact
from steptax.app.lake.ingest import ingest
from steptax.app.lake.segments import job_folder, job_of_folder, parse_name
from steptax.app.queries import DuckEngine
from steptax.app.schema import TABLES, Batch, Reject, table


def steps(job: str, first: int, count: int, ranks: int = 4, duration_us: int = 1000) -> pa.Table:
    """``count`` steps of ``ranks`` ranks."""
    number = [first + i for i in range(count) for _ in range(ranks)]
    rank = [r for _ in range(count) for r in range(ranks)]
    return pa.table(
        {
            "job_id": [job] * len(rank),
            "attempt": pa.array([0] * len(rank), pa.int32()),
            "step": pa.array(number, pa.int64()),
            "rank": pa.array(rank, pa.int32()),
            "duration_us": pa.array([duration_us + r for r in rank], pa.int64()),
            "source_row": pa.array(range(2, len(rank) + 2), pa.int64()),
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


def test_every_table_declares_keys_units_and_provenance() -> None:
    for spec in TABLES.values():
        for key in spec.key:
            if key not in {"source", "source_row"}:
                assert not spec.column(key).nullable, f"{spec.name}.{key} is a key"
        for column in spec.columns:
            assert column.doc, f"{spec.name}.{column.name}"
            for suffix, unit in (("_us", "us"), ("_ns", "ns"), ("_bytes", "bytes"), ("_w", "W")):
                if column.name.endswith(suffix):
                    assert column.unit == unit, f"{spec.name}.{column.name}"
        assert {"source", "source_row", "ingested_at_us"} <= set(spec.names)
        assert spec.by_job <= ("job_id" in spec.key)


@pytest.mark.parametrize("job", ["a", "a/b", "../x", "job 1", "Zürich|1021000_0", "'; DROP", "%2F"])
def test_any_text_is_a_job_id(lake: Lake, job: str) -> None:
    assert job_of_folder(job_folder(job)) == job
    assert "/" not in job_folder(job)
    lake.append("steps", steps(job, 0, 1), source="t")
    assert lake.job_ids("steps") == [job]
    assert DuckEngine(lake).run("step_span", job_id=job)["row_count"].to_pylist() == [4]


def test_stray_and_temporary_files_are_no_segments(lake: Lake) -> None:
    lake.append("steps", steps("j", 0, 1), source="t")
    folder = lake.folder("steps", "j")
    (folder / ".live-00000000000000001-0-0-4-abcdef01.parquet.tmp").write_bytes(b"torn")
    (folder / "notes.txt").write_text("x")
    (folder / "part-0123456789abcdef01234567-0-0-0-4.parquet").write_bytes(b"uncommitted")
    assert [s.rows for s in lake.segments("steps", "j")] == [4]
    assert parse_name("live-00000000000000001-3-9-4-12345678.jsonl") is not None


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no lake"):
        Lake(tmp_path)
    (tmp_path / "LAKE.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="format 99"):
        Lake(tmp_path)


def test_the_same_input_twice_adds_nothing(lake: Lake) -> None:
    batches = [Batch("steps", steps("j", 0, 10))]
    first = ingest(lake, batches, ingest_id="ab", source="steps:a")
    version = lake.version("steps", "j")
    again = ingest(lake, batches, ingest_id="ab", source="steps:a")
    assert (first.already, again.already) == (False, True)
    assert again.accepted == {"steps": 0}
    assert lake.version("steps", "j") == version
    assert lake.row_counts()["steps"] == 40


def test_whatever_rows_are_others_makes_another_version(lake: Lake) -> None:
    """Also where there are as many segments, rows and bytes as before."""
    seen = {lake.version("steps", "j")}

    def is_new() -> bool:
        version = Lake(lake.root).version("steps", "j")
        assert lake.version("steps", "j") == version  # whoever asks, and however often
        is_other = version not in seen
        seen.add(version)
        return is_other

    for first in (0, 1):
        lake.append("steps", steps("j", first, 1), source="s")
        assert is_new()
    assert len(lake.segments("steps", "j")) == 2
    compact(lake, minimum=2, grace_s=0)
    assert is_new()
    lake.append("steps", steps("j", 2, 1), source="s")
    assert is_new()
    assert len(lake.segments("steps", "j")) == 2
    # One goes, and its step comes again with other values.
    newest = max(lake.segments("steps", "j"), key=lambda segment: segment.first)
    newest.path.unlink()
    lake.append("steps", steps("j", 2, 1, duration_us=2000), source="s")
    assert [(s.first, s.rows) for s in lake.segments("steps", "j")].count((2, 4)) == 1
    assert len(lake.segments("steps", "j")) == 2
    assert is_new()
    # Another job is not concerned.
    other = lake.version("steps", "k")
    lake.append("steps", steps("j", 3, 1), source="s")
    assert is_new()
    assert lake.version("steps", "k") == other


def test_a_grown_input_adds_only_what_is_new(lake: Lake) -> None:
    ingest(lake, [Batch("steps", steps("j", 0, 10))], ingest_id="aa", source="s")
    grown = ingest(lake, [Batch("steps", steps("j", 0, 12))], ingest_id="bb", source="s")
    assert grown.accepted == {"steps": 8}
    assert grown.stored_before == {"steps": 40}
    assert grown.rejected == {}
    assert lake.row_counts()["steps"] == 48


def test_a_repeated_row_is_a_reject_that_names_both_rows(lake: Lake) -> None:
    rows = steps("j", 0, 2, ranks=2)
    result = ingest(
        lake,
        [Batch("steps", pa.concat_tables([rows, rows.slice(3, 1)]))],
        ingest_id="aa",
        source="s",
    )
    assert result.accepted["steps"] == 4
    assert result.rejected == {"steps": 1}
    reason = result.first_rejects[0]["reason"]
    assert "step 1, rank 1" in reason
    assert "with the same values" in reason
    kept = DuckEngine(lake).run("recent_rejects", limit_rows=5).to_pylist()
    assert [r["reason"] for r in kept] == [reason]


def test_rejects_are_kept_with_their_reason(lake: Lake) -> None:
    bad = Reject(
        "steps", "expected a number, found 'x'", row=7, field="rank", raw="1,x," + "y" * 900
    )
    result = ingest(lake, [Batch("steps", steps("j", 0, 1), (bad,))], ingest_id="aa", source="s")
    assert result.rejected == {"steps": 1}
    stored = lake.read("rejects").to_pylist()[0]
    assert (stored["source_row"], stored["field"], stored["table"]) == (7, "rank", "steps")
    assert len(stored["raw"]) == 500


def test_an_input_that_breaks_half_way_leaves_nothing(lake: Lake) -> None:
    def broken() -> object:
        yield Batch("steps", steps("j", 0, 10))
        raise InputError("bad", where="f")

    with pytest.raises(InputError):
        ingest(lake, broken(), ingest_id="aa", source="s")  # type: ignore[arg-type]
    assert lake.row_counts()["steps"] == 0
    assert not list(lake.root.rglob("part-*"))
    assert not ingest(lake, [Batch("steps", steps("j", 0, 1))], ingest_id="aa", source="s").already


def test_the_newest_knowledge_of_a_job_holds(lake: Lake) -> None:
    known: list[dict[str, object]] = [
        {"job_id": "j", "state": "running", "team": "vision", "world_size": 8},
        {"job_id": "j", "state": "completed", "world_size": None, "gpu_hours": 2.5},
        {"job_id": "k", "state": "failed"},
    ]
    for row in known:
        lake.append("jobs", pa.Table.from_pylist([row]), source="t")
        time.sleep(0.002)
    want = [("j", "completed", "vision", 8, 2.5), ("k", "failed", None, None, None)]
    names = ("job_id", "state", "team", "world_size", "gpu_hours")
    for rows in (lake.read("jobs"), DuckEngine(lake).run("job_list")):
        found = sorted(tuple(row[name] for name in names) for row in rows.to_pylist())
        assert found == want


def test_compaction_changes_files_and_no_rows(lake: Lake) -> None:
    for i in range(20):
        lake.append("steps", steps("j", i * 3, 3), source="t")
    engine = DuckEngine(lake)
    before = engine.run("step_rows", job_id="j", first_step=0, last_step=99)
    done = compact(lake)
    assert (done.merged_segments, done.new_segments) == (20, 1)
    assert len(lake.segments("steps", "j")) == 1
    assert engine.run("step_rows", job_id="j", first_step=0, last_step=99).equals(before)
    # Replaced files stay for readers that listed them, and go after the grace time.
    assert len(list(lake.folder("steps", "j").iterdir())) == 21
    assert compact(lake, grace_s=0).deleted_files == 20
    assert engine.run("step_rows", job_id="j", first_step=0, last_step=99).equals(before)


def test_json_lines_of_a_recorder_read_like_parquet(lake: Lake) -> None:
    folder = lake.folder("steps", "j")
    folder.mkdir(parents=True)
    row = (
        '{"job_id":"j","attempt":0,"step":5,"rank":1,"duration_us":7,"loss":null,'
        '"source":"recorder","source_row":null,"ingested_at_us":3,"from_the_future":1}\n'
    )
    (folder / "live-00000000000000003-5-5-1-0123abcd.jsonl").write_text(row)
    lake.append("steps", steps("j", 0, 1), source="t")
    rows = DuckEngine(lake).run("step_rows", job_id="j", first_step=0, last_step=9).to_pylist()
    assert [(r["step"], r["rank"]) for r in rows] == [(0, 0), (0, 1), (0, 2), (0, 3), (5, 1)]
    assert compact(lake, minimum=2).merged_segments == 2
    assert lake.row_counts()["steps"] == 5


def _write(root: str, job: str, seconds: float, out: mp.Queue[int]) -> None:
    # One that hangs says where.
    faulthandler.dump_traceback_later(min(seconds + 60, 1e6), exit=True)
    lake = Lake(root)
    written, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        lake.append("steps", steps(job, written, 8), source="w")
        written += 8
    out.put(written * 4)


def _read(root: str, seconds: float, out: mp.Queue[tuple[int, int, str]]) -> None:
    engine = DuckEngine(Lake(root), threads=1)
    reads, seen, end = 0, 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            found = engine.run("step_span").to_pylist()[0]["row_count"]
            if found < seen or found % 32:
                raise AssertionError(f"{found} rows after {seen}: a torn or a lost segment")
            reads, seen = reads + 1, found
        out.put((reads, seen, ""))
    except Exception as error:
        out.put((reads, seen, repr(error)))


def _compact_now_and_then(root: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        compact(Lake(root), grace_s=seconds / 2)
        time.sleep(seconds / 60)


@pytest.mark.slow
def test_eight_processes_append_while_four_read(lake: Lake) -> None:
    """With a compactor at work that deletes, too: no lock error, no torn row, no lost row.

    STEPTAX_TEST_SECONDS makes it longer.
    """
    seconds = float(os.environ.get("STEPTAX_TEST_SECONDS", "15"))
    # A server that has everything imported makes thirteen processes that are at work at once.
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    wrote: mp.Queue[int] = context.Queue()
    read: mp.Queue[tuple[int, int, str]] = context.Queue()
    root = str(lake.root)
    processes = [
        context.Process(target=_write, args=(root, f"job-{i}", seconds, wrote)) for i in range(8)
    ]
    processes += [context.Process(target=_read, args=(root, seconds, read)) for _ in range(4)]
    processes += [context.Process(target=_compact_now_and_then, args=(root, seconds))]
    for process in processes:
        process.start()
    rows = sum(wrote.get(timeout=seconds + 120) for _ in range(8))
    readers = [read.get(timeout=seconds + 120) for _ in range(4)]
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert [error for _, _, error in readers if error] == []
    assert all(reads > 0 for reads, _, _ in readers)
    assert DuckEngine(lake).run("step_span").to_pylist()[0]["row_count"] == rows
    assert rows > 0


def _write_for_ever(root: str) -> None:
    _write(root, "j", 1e9, mp.Queue())


def test_a_writer_that_is_killed_leaves_whole_segments(lake: Lake) -> None:
    context = mp.get_context("spawn")
    process = context.Process(target=_write_for_ever, args=(str(lake.root),))
    process.start()
    end = time.monotonic() + 30
    while not lake.segments("steps", "j") and time.monotonic() < end:
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    found = DuckEngine(lake).run("step_span", job_id="j").to_pylist()[0]
    assert found["row_count"] == sum(s.rows for s in lake.segments("steps", "j"))
    assert found["row_count"] % 32 == 0


def test_a_table_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="no table 'nope'"):
        table("nope")


def test_what_a_killed_writer_left_unfinished_is_cleared_away(lake: Lake) -> None:
    folder = lake.folder("steps", "j")
    folder.mkdir(parents=True)
    old, young = folder / ".a.parquet.tmp", folder / ".b.parquet.tmp"
    for path in (old, young):
        path.write_bytes(b"torn")
    os.utime(old, (0, time.time() - UNFINISHED_S - 60))
    assert compact(lake).deleted_files == 1
    assert (old.exists(), young.exists()) == (False, True)
