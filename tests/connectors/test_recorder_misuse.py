"""Whatever is called in whatever order with whatever values: no exception, and true rows."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import tempfile
import threading
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import Clock, StepRecorder

PHASE_COLUMNS = (
    "compute_us",
    "comm_us",
    "input_us",
    "checkpoint_us",
    "h2d_us",
    "gc_us",
    "other_us",
)


class Hostile:
    """Raises on everything that one might do with a value."""

    def _fail(self, *arguments: object) -> Any:
        raise RuntimeError("hostile")

    __index__ = __float__ = __iter__ = __str__ = __repr__ = __eq__ = _fail
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("hostile")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 40),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.lists(st.integers(-3, 50), max_size=4),
    st.builds(Hostile),
)
PHASES = st.one_of(
    st.sampled_from(["compute", "input", "checkpoint", "h2d", "other", "gc", "collective"]), VALUES
)
CALLS = st.one_of(
    st.tuples(st.just("step"), st.one_of(st.integers(0, 30), VALUES)),
    st.tuples(st.just("on_step_begin"), st.one_of(st.integers(0, 30), VALUES)),
    st.tuples(st.just("on_step_end")),
    st.tuples(st.just("on_step_end"), VALUES, VALUES),
    st.tuples(st.just("phase"), PHASES),
    st.tuples(st.just("on_phase"), PHASES),
    st.tuples(st.just("collective")),
    st.tuples(st.just("on_collective_begin")),
    st.tuples(st.just("on_collective_end")),
    st.tuples(st.just("exit")),
    st.tuples(st.just("tokens"), VALUES, VALUES),
    st.tuples(st.just("sequences"), VALUES),
    st.tuples(st.just("loss"), VALUES),
    st.tuples(
        st.just("event"),
        st.one_of(st.sampled_from(["eval", "failure"]), VALUES),
        *[VALUES] * 4,
    ),
    st.tuples(st.just("start")),
    st.tuples(st.just("wait"), st.integers(0, 5_000_000)),
)


def call(rec: StepRecorder, blocks: list[Any], now: list[int], name: str, values: Any) -> None:
    if name == "wait":
        now[0] += values[0]
    elif name == "exit":
        if blocks:
            blocks.pop().__exit__(None, None, None)
    elif name in ("step", "phase", "collective"):
        blocks.append(getattr(rec, name)(*values))
        blocks[-1].__enter__()
    else:
        getattr(rec, name)(*values)


@settings(max_examples=60)
@given(st.lists(CALLS, max_size=40))
def test_nothing_raises_and_every_row_holds(calls: list[tuple[Any, ...]]) -> None:
    now = [1_000]
    clock = Clock(lambda: 10**18 + now[0], lambda: now[0])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(logging.getLogger("steptax.recorder"), "disabled", True)
        rec = StepRecorder(folder, "j", 1, 2, clock=clock, flush_s=60)
        blocks: list[Any] = []
        for name, *values in calls[:3]:
            call(rec, blocks, now, name, values)
        with rec:
            for name, *values in calls[3:]:
                call(rec, blocks, now, name, values)
        for name, *values in calls:
            call(rec, blocks, now, name, values)
        stats = rec.stats
        lake = Lake(folder)
        rows = lake.read("steps", "j").to_pylist()
        events = lake.read("events", "j").num_rows
    assert stats["state"] == "closed"
    assert len(rows) == stats["steps_done"]
    assert stats["rows_written"] == 1 + len(rows) + events
    assert stats["rows_dropped"] == 0
    numbers = [row["step"] for row in rows]
    assert len(set(numbers)) == len(numbers)
    for row in rows:
        parts = [row[name] for name in PHASE_COLUMNS if row[name] is not None]
        assert min(parts) >= 0
        assert sum(parts) <= row["duration_us"]


def misuse_of(rec: StepRecorder) -> int:
    count = rec.stats["misuse"]
    assert isinstance(count, int)
    return count


def test_each_kind_of_misuse_is_counted(tmp_path: Path) -> None:
    rec = StepRecorder(tmp_path, "j", 0, 1)
    with rec.step(0), rec.phase("compute"):
        pass
    assert misuse_of(rec) == 4
    with rec:
        rec.on_step_end()
        assert misuse_of(rec) == 5
        with rec.phase("compute"):
            assert misuse_of(rec) == 6
        assert misuse_of(rec) == 7
        rec.on_step_begin(0)
        rec.on_step_begin(1)
        assert misuse_of(rec) == 8
        rec.on_collective_end()
        assert misuse_of(rec) == 9
        rec.on_collective_begin()
        rec.on_phase("compute")
        assert misuse_of(rec) == 10
        rec.on_step_end()
        assert misuse_of(rec) == 11  # inside the collective
        rec.on_step_begin(-1)
        rec.on_step_begin("two")  # type: ignore[arg-type]
        rec.event("eval", 10, 9)
        assert misuse_of(rec) == 14
        with rec.step(2), rec.phase("computing"):
            rec.tokens(-1)
            rec.sequences([3, -1])
            rec.loss("low")
        assert misuse_of(rec) == 17
        rec.start()
        assert misuse_of(rec) == 18
    rec.event("eval", 1)
    assert misuse_of(rec) == 19
    assert rec.stats["steps_abandoned"] == 1
    rows = Lake(tmp_path).read("steps", "j").to_pylist()
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[1]["other_us"] is not None
    assert rows[1]["tokens"] is None


def test_calls_of_another_thread_do_not_enter_the_step(tmp_path: Path) -> None:
    with StepRecorder(tmp_path, "j", 0, 1) as rec, rec.step(0):

        def prefetch() -> None:
            with rec.phase("input"):
                rec.tokens(5)
            rec.event("eval", 1, 2)  # events may come from anywhere

        thread = threading.Thread(target=prefetch)
        thread.start()
        thread.join()
    [row] = Lake(tmp_path).read("steps", "j").to_pylist()
    assert (row["input_us"], row["tokens"]) == (None, None)
    assert misuse_of(rec) == 3
    assert "another thread" in rec.stats["last_misuse"]
    assert "eval" in Lake(tmp_path).read("events", "j")["kind"].to_pylist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": -1},
        {"rank": None},
        {"attempt": 2**40},
        {"job_id": ""},
        {"flush_s": 0},
        {"flush_s": "soon"},
        {"queue_limit": -1},
        {"lake": None},
        {"world_size": "many"},
        {"job_id": Hostile},
    ],
    ids=str,
)
def test_a_recorder_that_cannot_be_made_does_nothing(
    wrong: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings_: dict[str, Any] = {"lake": tmp_path, "job_id": "j", "rank": 0, "world_size": 1}
    wrong = {name: Hostile() if value is Hostile else value for name, value in wrong.items()}
    with (
        caplog.at_level(logging.WARNING, "steptax.recorder"),
        StepRecorder(**{**settings_, **wrong}) as rec,
        rec.step(0),
        rec.phase("compute"),
    ):
        rec.event("eval", 1)
    rec.close()
    assert rec.stats["state"] == "disabled"
    assert rec.stats["misuse"] == 0
    assert len(caplog.records) == 1
    assert "nothing will be recorded" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_thread_that_cannot_start_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with StepRecorder(tmp_path, "j", 0, 1) as rec, rec.step(0):
        pass
    assert rec.stats["state"] == "disabled"
    assert "can't start new thread" in rec.stats["last_error"]


def test_closing_again_does_nothing(tmp_path: Path) -> None:
    rec = StepRecorder(tmp_path, "j", 0, 1)
    rec.close()
    rec.start()
    rec.close()
    rec.close()
    assert rec.stats["misuse"] == 0
    assert Lake(tmp_path).read("jobs").num_rows == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rec: pickle.loads(pickle.dumps(rec))])
def test_a_copy_records_nothing(copied: Any, tmp_path: Path) -> None:
    with StepRecorder(tmp_path, "j", 0, 1) as rec:
        other = copied(rec)
        with other, other.step(0):
            pass
        with rec.step(0):
            pass
    assert other.stats["state"] == "disabled"
    assert Lake(tmp_path).read("steps", "j").num_rows == 1


def test_an_encoding_that_does_not_exist_becomes_json_lines(tmp_path: Path) -> None:
    with StepRecorder(tmp_path, "j", 0, 1, encoding="xml") as rec, rec.step(0):
        pass
    assert rec.stats["encoding"] == "jsonl"
    assert misuse_of(rec) == 1
    assert Lake(tmp_path).read("steps", "j").num_rows == 1


def test_text_that_no_encoding_holds_is_made_holdable(tmp_path: Path) -> None:
    job = {"name": "lone \ud800 surrogate", "team": "x" * 10_000}
    with StepRecorder(tmp_path, "j\udcff", 0, 1, job=job) as rec:
        rec.event("failure", 1, detail="\udcff\x00")
    assert rec.stats["errors"] == 0
    lake = Lake(tmp_path)
    [row] = lake.read("jobs").to_pylist()
    assert (row["job_id"], row["name"], len(row["team"])) == ("j?", "lone ? surrogate", 4_000)
    assert "?\x00" in lake.read("events", "j?")["detail"].to_pylist()
