"""What the rows of a recorded job say, read back through the lake."""

from __future__ import annotations

import gc
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import Clock, StepRecorder
from steptax.connectors.recorder.hooks import outcome

JOB = "team a/job 1"
EPOCH_NS = 1_700_000_000_000_000_000


@dataclass
class Time:
    """A clock that stands still until it is told to go on."""

    ns: int = 0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: EPOCH_NS + self.ns, lambda: self.ns)

    def go(self, us: float) -> None:
        self.ns += round(us * 1000)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=["parquet", "jsonl"])
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rec(tmp_path: Path, time: Time, encoding: str) -> Iterator[StepRecorder]:
    recorder = StepRecorder(tmp_path, JOB, 0, 1, clock=time.clock, encoding=encoding, cuda=False)
    yield recorder
    recorder.close()


def steps(lake: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Lake(lake).read("steps", JOB).to_pylist()
    return rows


def events(lake: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Lake(lake).read("events", JOB).to_pylist()
    return rows


def test_a_step_is_split_into_its_phases(rec: StepRecorder, time: Time, tmp_path: Path) -> None:
    with rec:
        time.go(5_000)
        with rec.step(4):
            time.go(1)
            with rec.phase("input"):
                time.go(100.9)
            with rec.phase("compute"):
                time.go(2_000)
                with rec.phase("h2d"):
                    time.go(30)
                time.go(5)
            with rec.collective():
                time.go(400)
            with rec.phase("compute"):
                time.go(50)
            with rec.phase("checkpoint"):
                time.go(7)
            with rec.phase("other"):
                time.go(3)
            rec.tokens(1_000, 64_000)
            rec.tokens(24, 600)
            rec.loss(2.5)
            time.go(2)
    [row] = steps(tmp_path)
    # The writer's own thread stamps the row, and no two of its rows share a moment.
    assert row["ingested_at_us"] >= EPOCH_NS // 1000 + 5_000 + 2_598
    assert row == {
        "job_id": JOB,
        "attempt": 0,
        "step": 4,
        "rank": 0,
        "start_us": EPOCH_NS // 1000 + 5_000,
        "duration_us": 2_598,
        "compute_us": 2_055,
        "comm_us": 400,
        "transfer_us": None,
        "wait_us": None,
        "input_us": 100,
        "checkpoint_us": 7,
        "h2d_us": 30,
        "gc_us": 0,
        "other_us": 3,
        "collective_us": None,
        "tokens": 1_024,
        "seq_sq_sum": 64_600,
        "loss": 2.5,
        "source": "recorder",
        "source_row": None,
        "ingested_at_us": row["ingested_at_us"],
    }


def test_a_phase_that_the_run_does_not_have_is_null_and_an_unused_one_is_zero(
    rec: StepRecorder, time: Time, tmp_path: Path
) -> None:
    with rec:
        for step in range(3):
            with rec.step(step):
                time.go(10)
                if step == 1:
                    with rec.phase("checkpoint"):
                        time.go(20)
    rows = steps(tmp_path)
    assert [r["checkpoint_us"] for r in rows] == [None, 20, 0]
    assert [r["gc_us"] for r in rows] == [0, 0, 0]
    for column in ("compute_us", "comm_us", "input_us", "h2d_us", "other_us", "tokens", "loss"):
        assert [r[column] for r in rows] == [None] * 3


def test_rounding_never_lets_the_parts_exceed_the_whole(
    rec: StepRecorder, time: Time, tmp_path: Path
) -> None:
    with rec, rec.step(0):
        for phase in ("input", "compute", "h2d", "other"):
            with rec.phase(phase):
                time.go(1.6)
    [row] = steps(tmp_path)
    assert [row[f"{p}_us"] for p in ("input", "compute", "h2d", "other")] == [1, 1, 1, 1]
    assert row["duration_us"] == 6


def test_a_garbage_collection_is_counted_as_such(
    rec: StepRecorder, time: Time, tmp_path: Path
) -> None:
    def pause(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            time.go(500)

    with rec:
        gc.callbacks.append(pause)  # after the recorder's own: inside of what it measures
        try:
            with rec.step(0), rec.phase("compute"):
                time.go(100)
                gc.collect()
                time.go(20)
            with rec.step(1):
                gc.collect()
                time.go(3)
            gc.collect()
        finally:
            gc.callbacks.remove(pause)
    first, second = steps(tmp_path)
    assert (first["duration_us"], first["compute_us"], first["gc_us"]) == (620, 120, 500)
    assert (second["duration_us"], second["compute_us"], second["gc_us"]) == (503, 0, 500)


def test_callbacks_tell_the_same_as_blocks(rec: StepRecorder, time: Time, tmp_path: Path) -> None:
    with rec:
        rec.on_step_begin(0)
        rec.on_phase("input")
        time.go(10)
        rec.on_phase("compute")
        time.go(100)
        rec.on_collective_begin()
        time.go(30)
        rec.on_collective_end()
        time.go(5)
        rec.on_phase(None)
        time.go(2)
        rec.on_phase("compute")
        time.go(1)
        rec.on_step_end(loss=1.25, tokens=64)
    [row] = steps(tmp_path)
    assert (row["input_us"], row["compute_us"], row["comm_us"]) == (10, 106, 30)
    assert (row["duration_us"], row["loss"], row["tokens"]) == (148, 1.25, 64)
    assert row["seq_sq_sum"] is None
    assert rec.stats["misuse"] == 0


def test_lengths_may_be_anything_that_holds_integers(rec: StepRecorder, tmp_path: Path) -> None:
    with rec:
        for step, lengths in enumerate(([3, 4], np.array([3, 4]), iter((3, 4)))):
            with rec.step(step):
                rec.sequences(lengths)
        with rec.step(3):
            rec.sequences([3])
            rec.tokens(5)
    rows = steps(tmp_path)
    assert [(r["tokens"], r["seq_sq_sum"]) for r in rows] == [(7, 25)] * 3 + [(8, None)]


def test_a_loss_may_be_any_number_and_what_is_none_stays_missing(
    rec: StepRecorder, tmp_path: Path
) -> None:
    class Strange:
        def __float__(self) -> float:
            raise RuntimeError("not today")

    values = [1, np.float32(0.5), np.array(0.25), float("nan"), float("inf"), Strange()]
    with rec:
        for step, value in enumerate(values):
            with rec.step(step):
                rec.loss(value)
    assert [r["loss"] for r in steps(tmp_path)] == [1.0, 0.5, 0.25, None, None, None]
    assert rec.stats["errors"] == 0


def test_a_number_is_read_before_it_changes(rec: StepRecorder, tmp_path: Path) -> None:
    running = np.array(3.0)
    with rec:
        with rec.step(0):
            rec.loss(running)
        running *= 0
    assert steps(tmp_path)[0]["loss"] == 3.0


def test_a_step_left_by_an_exception_is_no_step(
    rec: StepRecorder, time: Time, tmp_path: Path
) -> None:
    with rec:
        with pytest.raises(KeyError), rec.step(0), rec.phase("compute"):
            raise KeyError("out of memory")
        with rec.step(0):
            time.go(9)
    assert [(r["step"], r["duration_us"]) for r in steps(tmp_path)] == [(0, 9)]
    assert rec.stats["steps_abandoned"] == 1
    assert rec.stats["misuse"] == 0


def test_a_step_number_that_has_passed_is_refused(
    rec: StepRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rec, caplog.at_level(logging.WARNING, "steptax.recorder"):
        for _ in range(2):
            for step in range(2):
                with rec.step(step):
                    pass
    assert [r["step"] for r in steps(tmp_path)] == [0, 1]
    assert rec.stats["steps_repeated"] == 2
    assert [r.message for r in caplog.records] == [
        "step 0 came after step 1 in one attempt and is not recorded: count steps on over epochs, "
        "and give each attempt its number (more of it is only counted, see stats)"
    ]


def test_the_job_and_its_ranks_are_described(
    tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    job = {
        "name": "llm",
        "tokens_per_step": np.int64(4096),
        "params_total": 7e9,
        "causal": True,
        "gpu_hours": "many",
        "colour": "red",
        "state": "pending",
    }
    recorders = [
        StepRecorder(
            tmp_path, JOB, rank, 2, job=job, topology={"tp": 0, "dp": rank}, clock=time.clock
        )
        for rank in (0, 1)
    ]
    with recorders[0], recorders[1]:
        time.go(1e6)
    lake = Lake(tmp_path)
    [row] = lake.read("jobs").to_pylist()
    stated = {name: value for name, value in row.items() if value is not None}
    assert stated == {
        "job_id": JOB,
        "name": "llm",
        "state": "completed",
        "start_us": EPOCH_NS // 1000,
        "end_us": EPOCH_NS // 1000 + 1_000_000,
        "world_size": 2,
        "tokens_per_step": 4096,
        "params_total": 7_000_000_000,
        "causal": True,
        "time_basis": "wall",
        "source": "recorder",
        "ingested_at_us": row["ingested_at_us"],
    }
    assert sum(s.rows for s in lake.segments("jobs")) == 2
    assert recorders[0].stats["misuse"] == 2  # gpu_hours is no number, there is no colour
    ranks = sorted(lake.read("ranks", JOB).to_pylist(), key=lambda r: r["rank"])
    assert [(r["rank"], r["tp"], r["dp"], r["pp"]) for r in ranks] == [
        (0, 0, 0, None),
        (1, 0, 1, None),
    ]
    for rank in ranks:
        assert (rank["host"], rank["pid"], rank["local_rank"]) == (
            socket.gethostname(),
            os.getpid(),
            1,
        )


def test_rank_0_tells_the_life_of_the_job(rec: StepRecorder, time: Time, tmp_path: Path) -> None:
    with rec:
        time.go(1_000)
        for step in (0, 1):
            with rec.step(step):
                time.go(10)
        rec.event("checkpoint_save", EPOCH_NS // 1000, EPOCH_NS // 1000 + 5, ranks=[0, 3])
        rec.event("eval", EPOCH_NS // 1000 + 7, ranks=2, detail="line\nbreak")
    begin = EPOCH_NS // 1000
    found = {
        (e["kind"], e["start_us"], e["end_us"], e["ranks"], e["detail"]) for e in events(tmp_path)
    }
    assert found == {
        ("process_start", begin, None, None, None),
        ("first_step", begin + 1_000, None, None, None),
        ("checkpoint_save", begin, begin + 5, "0,3", None),
        ("eval", begin + 7, None, "2", "line\nbreak"),
        ("process_end", begin + 1_020, None, None, None),
    }
    assert {e["attempt"] for e in events(tmp_path)} == {0}


def test_other_ranks_say_nothing_of_the_job(tmp_path: Path, time: Time) -> None:
    with StepRecorder(tmp_path, JOB, 5, 8, clock=time.clock) as rec, rec.step(0):
        pass
    lake = Lake(tmp_path)
    assert lake.read("jobs").num_rows == 0
    assert lake.read("events", JOB).num_rows == 0
    assert lake.read("steps", JOB)["rank"].to_pylist() == [5]


def test_a_further_attempt_keeps_the_start_of_the_job(tmp_path: Path, time: Time) -> None:
    for attempt in (0, 1, 2):
        with StepRecorder(tmp_path, JOB, 0, 1, attempt=attempt, clock=time.clock) as rec:
            time.go(1e6)
            with rec.step(0):
                time.go(1e6)
    lake = Lake(tmp_path)
    [job] = lake.read("jobs").to_pylist()
    assert (job["start_us"], job["end_us"]) == (EPOCH_NS // 1000, EPOCH_NS // 1000 + 6_000_000)
    assert sorted(lake.read("steps", JOB)["attempt"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "completed"),
        (SystemExit(0), "completed"),
        (SystemExit(), "completed"),
        (SystemExit(3), "failed"),
        (KeyboardInterrupt(), "cancelled"),
        (RuntimeError("NCCL"), "failed"),
    ],
)
def test_how_the_block_ends_is_how_the_job_ended(
    error: BaseException | None, state: str, tmp_path: Path
) -> None:
    assert outcome(None if error is None else type(error), error) == state
    if error is None:
        return
    with (
        pytest.raises(type(error)),
        StepRecorder(tmp_path, JOB, 0, 1),
    ):
        raise error
    assert Lake(tmp_path).read("jobs")["state"].to_pylist() == [state]
