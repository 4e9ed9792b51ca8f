"""Times of a CUDA device, with a torch whose device is a simulated queue.

The simulation keeps what matters of the real thing: kernels run in order and later than they are
launched, an event is reached when everything queued before it has run, a question never waits, and
elapsed times come as 32-bit milliseconds.
"""

from __future__ import annotations

import gc
import itertools
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import Clock, StepRecorder
from steptax.connectors.recorder.device import HELD_STEPS

EPOCH_NS = 1_700_000_000_000_000_000


class Device:
    """One stream and the host that feeds it. ``launch`` queues work, ``go`` lets time pass."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.idle_at_ns = 0
        self.is_initialized = True
        self.is_capturing = False
        self.error: Exception | None = None
        self.events_made = 0
        self.questions = 0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: EPOCH_NS + self.now_ns, lambda: self.now_ns)

    def go(self, us: float) -> None:
        self.now_ns += round(us * 1000)

    def launch(self, us: float) -> None:
        self.idle_at_ns = max(self.idle_at_ns, self.now_ns) + round(us * 1000)

    def catch_up(self) -> None:
        """What a synchronisation by the training code does."""
        self.now_ns = max(self.now_ns, self.idle_at_ns)


class Event:
    def __init__(self, device: Device, enable_timing: bool) -> None:
        self.device = device
        self.enable_timing = enable_timing
        self.at_ns: int | None = None
        device.events_made += 1

    def record(self, stream: Device) -> None:
        if self.device.error is not None:
            raise self.device.error
        self.at_ns = max(stream.now_ns, stream.idle_at_ns)

    def query(self) -> bool:
        assert not self.device.is_capturing, "a question spoils a capture"
        assert self.at_ns is not None
        self.device.questions += 1
        return self.at_ns <= self.device.now_ns

    def elapsed_time(self, other: Event) -> float:
        assert self.enable_timing
        assert other.enable_timing
        assert self.query()
        assert other.query()
        assert self.at_ns is not None
        assert other.at_ns is not None
        elapsed: float = struct.unpack("f", struct.pack("f", (other.at_ns - self.at_ns) / 1e6))[0]
        return elapsed


@dataclass
class DeviceTensor:
    """A loss on the device; a copy to the host holds its value once the stream has got there."""

    device: Any
    simulation: Device
    value: float
    is_cuda: bool = True

    def detach(self) -> DeviceTensor:
        return self

    def item(self) -> float:
        raise AssertionError("this would wait for the device")

    __float__ = __index__ = item

    def to(self, place: str, *, non_blocking: bool) -> HostCopy:
        assert (place, non_blocking) == ("cpu", True)
        at_ns = max(self.simulation.now_ns, self.simulation.idle_at_ns)
        return HostCopy(self.simulation, at_ns, self.value)


@dataclass
class HostCopy:
    simulation: Device
    at_ns: int
    value: float

    def __float__(self) -> float:
        assert self.at_ns <= self.simulation.now_ns, "read before it was there"
        return self.value


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()

    def refuse(*arguments: object) -> None:
        raise AssertionError("the recorder must not wait for the device")

    cuda = SimpleNamespace(
        is_initialized=lambda: found.is_initialized,
        is_current_stream_capturing=lambda: found.is_capturing,
        current_stream=lambda device=None: found,
        current_device=lambda: 3,
        get_device_properties=lambda index: SimpleNamespace(
            name=f"NVIDIA H100 {index}", uuid="0011-2233"
        ),
        Event=lambda enable_timing=False: Event(found, enable_timing),
        synchronize=refuse,
        init=refuse,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr("steptax.connectors.recorder.recorder.DEVICE_WAIT_S", 0.005)
    return found


@pytest.fixture
def rec(device: Device, tmp_path: Path) -> Iterator[StepRecorder]:
    with StepRecorder(tmp_path, "j", 0, 1, clock=device.clock) as recorder:
        yield recorder
        device.catch_up()


def steps(lake: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Lake(lake).read("steps", "j").to_pylist()
    return sorted(rows, key=lambda row: row["step"])


def test_phases_get_the_time_of_the_device_and_not_of_the_launches(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    with rec.step(0):
        with rec.phase("input"):
            device.go(700)  # the device is idle meanwhile
        with rec.phase("compute"):
            device.go(100)
            device.launch(5_000)
            device.go(50)
        with rec.collective():
            device.launch(2_000)
            device.go(10)
        with rec.phase("compute"):
            device.launch(1_000)
        device.go(1)
    assert rec.stats["rows_waiting"] >= 1  # the device is not done
    device.catch_up()
    rec.close()
    [row] = steps(tmp_path)
    assert (row["input_us"], row["comm_us"]) == (700, 2_000)
    # 100 us of launching before the first kernel leave the device idle inside the phase.
    assert row["compute_us"] == 100 + 5_000 + 1_000
    assert row["duration_us"] == 8_800
    assert row["start_us"] == EPOCH_NS // 1000


def test_input_that_is_hidden_behind_queued_kernels_costs_nothing(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    for step in range(3):
        with rec.step(step):
            with rec.phase("input"):
                device.go(700)
            with rec.phase("compute"):
                device.launch(5_000)
    device.catch_up()
    rec.close()
    assert [(r["input_us"], r["compute_us"]) for r in steps(tmp_path)] == [
        (700, 5_000),
        (0, 5_000),
        (0, 5_000),
    ]


def test_steps_follow_each_other_on_the_device_although_the_host_runs_ahead(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    for step in range(20):
        with rec.step(step), rec.phase("compute"):
            device.launch(5_000)
            device.go(100)
        if step % 4 == 3:
            device.catch_up()
    device.catch_up()
    rec.close()
    rows = steps(tmp_path)
    assert len(rows) == 20
    for row, following in itertools.pairwise(rows):
        gap_us = following["start_us"] - row["start_us"] - row["duration_us"]
        assert 0 <= gap_us <= 1 + 100
    assert sum(r["duration_us"] for r in rows) == 20 * 5_000


def test_a_row_waits_for_its_events_and_the_hot_path_does_not(
    rec: StepRecorder, device: Device
) -> None:
    for step in range(5):
        with rec.step(step), rec.phase("compute"):
            device.launch(1_000_000)
    # One question per step, to the oldest that is held; the clock has not moved.
    assert device.now_ns == 0
    assert device.questions == 5
    assert len(rec._book.held) == 5


def test_events_are_used_again(rec: StepRecorder, device: Device) -> None:
    for step in range(50):
        with rec.step(step), rec.phase("compute"):
            device.launch(10)
        device.catch_up()
    assert device.events_made <= 12


def test_too_many_steps_in_flight_are_dropped_and_counted(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    for step in range(HELD_STEPS + 10):
        with rec.step(step), rec.phase("compute"):
            device.launch(1_000)
    device.catch_up()
    rec.close()
    assert rec.stats["rows_dropped"] == 10
    assert [r["step"] for r in steps(tmp_path)] == list(range(10, HELD_STEPS + 10))


def test_a_device_that_never_finishes_does_not_keep_the_process(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    with rec.step(0), rec.phase("compute"):
        device.launch(1e12)
    rec.close()
    assert rec.stats["rows_dropped"] == 1
    assert steps(tmp_path) == []


def test_a_loss_on_the_device_is_read_when_it_is_there(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    for step in range(3):
        with rec.step(step):
            with rec.phase("compute"):
                device.launch(5_000)
            rec.loss(DeviceTensor("cuda:3", device, 2.0 - step))
            rec.tokens(DeviceTensor("cuda:3", device, 5))  # type: ignore[arg-type]
            rec.sequences(DeviceTensor("cuda:3", device, 5))
        device.go(4_000)
    device.catch_up()
    rec.close()
    assert [(r["loss"], r["tokens"]) for r in steps(tmp_path)] == [
        (2.0, None),
        (1.0, None),
        (0.0, None),
    ]
    assert rec.stats["misuse"] == 6  # counts on the device cannot be read without waiting
    assert rec.stats["errors"] == 0


def test_a_loss_on_the_device_is_not_waited_for_without_device_times_either(
    device: Device, tmp_path: Path
) -> None:
    with StepRecorder(tmp_path, "j", 0, 1, clock=device.clock, cuda=False) as rec:
        for step in range(2):
            with rec.step(step):
                with rec.phase("compute"):
                    device.launch(5_000)
                    device.go(20)
                rec.loss(DeviceTensor("cuda:3", device, 1.5))
        device.catch_up()
    assert [(r["loss"], r["compute_us"]) for r in steps(tmp_path)] == [(1.5, 20)] * 2
    assert not rec.stats["is_timed_by_device"]


def test_only_full_collections_are_seen_on_the_device_and_only_where_it_was_idle(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    def pause(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            device.go(300)

    gc.callbacks.append(pause)
    gc.disable()
    try:
        with rec.step(0), rec.phase("compute"):
            gc.collect()
            device.launch(1_000)
            gc.collect()
        device.catch_up()
        with rec.step(1), rec.phase("compute"):
            gc.collect(0)
            device.launch(1_000)
    finally:
        gc.enable()
        gc.callbacks.remove(pause)
    device.catch_up()
    rec.close()
    first, second = steps(tmp_path)
    assert (first["gc_us"], first["compute_us"]) == (300, 1_000)
    assert (second["gc_us"], second["compute_us"]) == (0, 1_300)


def test_own_time_in_a_collective_is_the_devices_before_its_library_is_called(
    rec: StepRecorder, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        """As far as the recorder looks at torch.distributed, whose calls only launch."""

        def allreduce(self) -> Library:
            device.launch(2_000)
            return self

        def wait(self) -> None:
            device.go(1)

    library = Library()
    fake = SimpleNamespace(ProcessGroup=Library, Work=Library)
    monkeypatch.setitem(sys.modules, "torch.distributed", fake)
    with rec.step(0):
        with rec.phase("compute"):
            device.launch(1_000)
        with rec.collective():
            device.launch(300)  # gradients are packed
            library.allreduce().wait()
            device.launch(70)  # and unpacked
    device.catch_up()
    rec.close()
    [row] = steps(tmp_path)
    assert (row["compute_us"], row["collective_us"], row["comm_us"]) == (1_000, 370, 2_000)
    assert row["duration_us"] == 3_370


def test_nothing_is_asked_during_a_graph_capture(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    for step in range(3):
        device.is_capturing = step == 1
        with rec.step(step), rec.phase("compute"):
            device.launch(10)
            if device.is_capturing:
                gc.collect()
        device.go(10)
    device.catch_up()
    rec.close()
    assert [r["compute_us"] for r in steps(tmp_path)] == [10, 10, 10]
    assert rec.stats["errors"] == 0


def test_a_step_that_the_device_fails_is_dropped_and_counted(
    rec: StepRecorder, device: Device, tmp_path: Path
) -> None:
    for step in range(4):
        with rec.step(step):
            device.error = RuntimeError("CUDA error") if step == 1 else None
            with rec.phase("compute"):
                device.launch(10)
            device.error = RuntimeError("CUDA error") if step == 2 else None
        device.catch_up()
    device.error = None
    rec.close()
    assert [r["step"] for r in steps(tmp_path)] == [0]
    assert rec.stats["rows_dropped"] == 2
    assert "CUDA error" in rec.stats["last_error"]


def test_the_device_is_named_once_it_is_known(device: Device, tmp_path: Path) -> None:
    device.is_initialized = False
    with StepRecorder(tmp_path, "j", 0, 1, clock=device.clock) as rec:
        with rec.step(0), rec.phase("compute"):
            device.go(5)
        device.is_initialized = True
        with rec.step(1), rec.phase("compute"):
            device.launch(1_000)
        device.catch_up()
        device.go(1)
    lake = Lake(tmp_path)
    assert lake.read("ranks", "j")["gpu_uuid"].to_pylist() == ["GPU-0011-2233"]
    [job] = lake.read("jobs").to_pylist()
    assert (job["gpu_model"], job["state"]) == ("NVIDIA H100 3", "completed")
    assert [r["compute_us"] for r in steps(tmp_path)] == [5, 1_000]


@pytest.mark.parametrize(("cuda", "said"), [(True, True), ("auto", False), (False, False)])
def test_asking_for_a_device_that_is_not_there_is_answered(
    cuda: bool | str,
    said: bool,
    device: Device,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    device.is_initialized = False
    with StepRecorder(tmp_path, "j", 0, 1, cuda=cuda) as rec, rec.step(0):
        pass
    assert ("CUDA is not in use" in caplog.text) == said
    assert rec.stats["errors"] == 0


def test_a_device_that_does_not_say_its_name_is_used_all_the_same(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(index: int) -> None:
        raise RuntimeError("no properties")

    monkeypatch.setattr(sys.modules["torch"].cuda, "get_device_properties", fail)
    with StepRecorder(tmp_path, "j", 0, 1, clock=device.clock) as rec:
        with rec.step(0), rec.phase("compute"):
            device.launch(10)
        device.catch_up()
    assert rec.stats["errors"] == 1
    assert [r["compute_us"] for r in steps(tmp_path)] == [10]


def test_something_that_only_calls_itself_torch_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace()))
    with StepRecorder(tmp_path, "j", 0, 1) as rec:
        for step in range(3):
            with rec.step(step):
                pass
    assert len(steps(tmp_path)) == 3
    assert rec.stats["errors"] == 1
