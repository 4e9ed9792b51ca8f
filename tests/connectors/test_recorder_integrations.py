"""The wrappers that need no framework, and what the callbacks do without one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import StepRecorder
from steptax.connectors.recorder.integrations import (
    recorded_calls,
    recorded_iterator,
    recorded_steps,
    recorder_from_environment,
)
from steptax.connectors.recorder.integrations.ddp import GradientTimer
from steptax.connectors.recorder.integrations.probe import LinkProbe, rounds, sends_from_device
from steptax.connectors.recorder.integrations.quiet import quiet, warn_once


class Ticks:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self.now_ns

    def move(self, ms: float) -> None:
        self.now_ns += round(ms * 1e6)


def steps_of(lake: Path, job: str = "j") -> list[dict[str, Any]]:
    return sorted(Lake(lake).read("steps", job).to_pylist(), key=lambda row: row["step"])


def slow_batches(clock: Ticks, count: int) -> Iterator[int]:
    for batch in range(count):
        clock.move(3)
        yield batch


def test_a_turn_of_the_loop_is_a_step_and_its_batch_is_input(tmp_path: Path) -> None:
    clock = Ticks()
    with StepRecorder(tmp_path, "j", 0, 1, clock=clock) as rec:
        seen = []
        for step, batch in recorded_steps(rec, slow_batches(clock, 4), first_step=10):
            seen.append((step, batch))
            with rec.phase("compute"):
                clock.move(5)
    assert seen == [(10, 0), (11, 1), (12, 2), (13, 3)]
    rows = steps_of(tmp_path)
    assert [row["step"] for row in rows] == [10, 11, 12, 13]
    assert {(row["input_us"], row["compute_us"], row["duration_us"]) for row in rows} == {
        (3000, 5000, 8000)
    }
    assert rec.stats["misuse"] == rec.stats["errors"] == 0


def test_an_exception_of_the_loop_and_of_its_batches_passes(tmp_path: Path) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    with StepRecorder(tmp_path, "j", 0, 1) as rec:
        with pytest.raises(OSError, match="disk"):
            for _ in recorded_steps(rec, broken()):
                pass
        with pytest.raises(ZeroDivisionError):
            sum(1 / (step - 5) for step, _ in recorded_steps(rec, [1, 2], first_step=5))
    assert rec.stats["steps_done"] == 1


def test_an_iterator_of_batches_and_a_collective_of_ones_own(tmp_path: Path) -> None:
    clock = Ticks()

    def reduce(gradients: list[int], *, by: int) -> list[int]:
        """Averages."""
        clock.move(7)
        return [g // by for g in gradients]

    with StepRecorder(tmp_path, "j", 0, 1, clock=clock) as rec:
        timed = recorded_calls(rec, reduce)
        batches = recorded_iterator(rec, slow_batches(clock, 2))
        for step in range(2):
            with rec.step(step):
                assert next(batches) == step
                assert timed([4, 8], by=4) == [1, 2]
                recorded_calls(rec, clock.move, "checkpoint")(2)
    assert timed.__doc__ == "Averages."
    assert {(r["input_us"], r["comm_us"], r["checkpoint_us"]) for r in steps_of(tmp_path)} == {
        (3000, 7000, 2000)
    }


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({}, (0, 1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"}, (3, 8, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_RESTART_COUNT": "1"}, (5, 16, 1)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, 0)),
    ],
)
def test_what_launchers_say(
    tmp_path: Path, environment: dict[str, str], want: tuple[int, int, int]
) -> None:
    given = {"STEPTAX_LAKE": str(tmp_path), "STEPTAX_JOB_ID": "j", **environment}
    with recorder_from_environment(environment=given) as rec, rec.step(0):
        pass
    [row] = steps_of(tmp_path)
    [job] = Lake(tmp_path).read("jobs").to_pylist() or [{"world_size": want[1]}]
    assert (row["rank"], job["world_size"], row["attempt"]) == want


@pytest.mark.parametrize(
    "environment",
    [{}, {"STEPTAX_LAKE": "x", "RANK": "1"}, {"STEPTAX_LAKE": "x", "RANK": "a", "WORLD_SIZE": "2"}],
)
def test_where_nothing_can_be_recorded_training_goes_on(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rec = recorder_from_environment(job_id="j", environment=environment)
    with rec, rec.step(0), rec.phase("compute"):
        pass
    assert rec.stats["state"] == "disabled"
    assert not list(tmp_path.iterdir())


def test_a_hook_never_raises_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    class Callback:
        @quiet
        def on_something(self) -> None:
            raise RuntimeError("of the framework")

    with caplog.at_level(logging.WARNING, "steptax.recorder"):
        Callback().on_something()
        Callback().on_something()
    assert [r.getMessage() for r in caplog.records] == [
        "recording in on_something: RuntimeError: of the framework (training goes on)"
    ]


def test_gradients_of_what_is_no_ddp_are_not_timed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once("something else", ValueError("x"))
    with StepRecorder(tmp_path, "j", 0, 1) as rec:
        timer = GradientTimer(rec)
        assert not timer.attach(object())
        with rec.step(0), rec.phase("compute"), timer:
            pass
    assert rec.stats["misuse"] == 0
    assert timer.seen == 0
    assert "not timed" in caplog.text


def test_the_modules_import_no_framework() -> None:
    import steptax.connectors.recorder.integrations.hf
    import steptax.connectors.recorder.integrations.lightning

    assert steptax.connectors.recorder.integrations.hf.record
    if "torch" not in sys.modules:
        assert not {"transformers", "lightning", "pytorch_lightning"} & set(sys.modules)


class TestLinkProbe:
    @pytest.mark.parametrize("size", range(10))
    def test_every_rank_meets_its_neighbours_once_and_one_at_a_time(self, size: int) -> None:
        partners = [rounds(place, size) for place in range(size)]
        assert len({len(found) for found in partners}) <= 1
        for place, found in enumerate(partners):
            for turn, partner in enumerate(found):
                assert partner is None or partners[partner][turn] == place
            met = sorted(p for p in found if p is not None)
            beside = {(place - 1) % size, (place + 1) % size} - {place} if size > 1 else set()
            assert met == sorted(beside)

    @pytest.mark.parametrize(
        ("backend", "has_device", "sends"),
        [
            *(("nccl", True, True), ("gloo", True, False), ("gloo", False, False)),
            *(("cpu:gloo,cuda:nccl", True, True), ("cpu:gloo", False, False)),
            # What torch calls the default.
            *(("undefined", True, True), ("undefined", False, False)),
        ],
    )
    def test_messages_go_where_the_backend_sends_from(
        self, backend: str, has_device: bool, sends: bool
    ) -> None:
        assert sends_from_device(backend, has_device) is sends

    def test_what_goes_wrong_ends_it_and_is_said(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        with StepRecorder(tmp_path, job_id="j", rank=0, world_size=2) as rec:
            probe = LinkProbe(rec, every=1)
            for step in range(4):
                with rec.step(step):
                    assert probe(step) is False
        assert probe.probes == 0
        assert caplog.text.count("links are not probed any more") == 1
        assert rec.stats["errors"] == rec.stats["misuse"] == 0
