"""When rows leave a rank, its node and the collector: together with those of the others."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from steptax.app.collect import committer as committer_module
from steptax.app.collect.commits import CommitStore
from steptax.app.collect.committer import Committer
from steptax.app.collect.intake import Intake
from steptax.app.lake import Lake
from steptax.connectors.recorder import sender as sender_module
from steptax.connectors.recorder import shipper as shipper_module
from steptax.connectors.recorder.clock import SYSTEM_CLOCK
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.rows import FinishedStep
from steptax.connectors.recorder.sender import Sender
from steptax.connectors.recorder.shipper import Shipper
from steptax.connectors.recorder.spool import Spool
from steptax.connectors.recorder.timeline import BUCKETS
from tests.connectors.test_recorder_sinks import Receiver, piece_of
from tests.patience import until

LONG_S = 3_600.0


class Sink:
    """Says when rows came."""

    lost = 0

    def __init__(self) -> None:
        self.came = threading.Event()
        self.beats = 0

    def write(self, table: str, columns: Any, rows: int, now_us: int) -> None:
        if table == "steps":
            self.came.set()

    def beat(self, beat: dict[str, Any]) -> None:
        self.beats += 1

    def turn(self) -> None: ...

    def close(self) -> None: ...


def finished() -> FinishedStep:
    return FinishedStep(0, 0, 1_000, [0] * BUCKETS, 0, None, None, None)


def shipper_of(sink: Any, flush_s: float) -> Shipper:
    return Shipper(sink, {}, dict, SYSTEM_CLOCK, Notes(), flush_s=flush_s, queue_limit=100)


def test_a_step_that_ends_late_in_an_interval_does_not_wait_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shipper_module, "EARLY_RATIO", 0.0)
    sink = Sink()
    shipper = shipper_of(sink, LONG_S)
    shipper.start()
    shipper.steps.put(finished())
    assert sink.came.wait(60)
    assert shipper.close(60)


def test_until_then_steps_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipper_module, "LOOK_S", 0.001)
    sink = Sink()
    shipper = shipper_of(sink, LONG_S)
    shipper.start()
    shipper.steps.put(finished())
    assert not sink.came.wait(0.2)
    assert shipper.close(60)
    assert sink.came.is_set()


def test_without_a_step_the_interval_has_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    shipper = shipper_of(sink, 0.02)
    shipper.start()
    until(lambda: sink.beats >= 5)
    assert shipper.close(60)


def test_ranks_that_are_just_writing_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, receiver = Spool(str(tmp_path / "spool")), Receiver()
    sender = Sender(spool, lambda: receiver, Notes(), 10**9)
    now_us = time.time_ns() // 1000
    monkeypatch.setattr(sender_module, "_SETTLE_US", 10**12)
    monkeypatch.setattr(sender_module, "_SETTLED_US", 10**12)
    spool.put(*piece_of(0, [7], at_us=now_us))
    sender.turn()
    assert receiver.sent == 0
    spool.put(*piece_of(1, [7], at_us=now_us + 1))
    monkeypatch.setattr(sender_module, "_SETTLE_US", 0)
    sender.turn()
    assert receiver.sent == 1
    assert sorted(receiver.rows) == [("j", 0, 7), ("j", 1, 7)]
    # However many go on writing, the oldest does not wait for ever.
    monkeypatch.setattr(sender_module, "_SETTLE_US", 10**12)
    monkeypatch.setattr(sender_module, "_SETTLED_US", 0)
    spool.put(*piece_of(0, [8], at_us=now_us))
    sender.turn()
    assert receiver.sent == 2


class Store(CommitStore):
    """Counts the batches of each commit."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self.sizes: list[int] = []

    def commit(self, intakes: Any) -> int:
        self.sizes.append(len(intakes))
        return super().commit(intakes)


def test_batches_that_follow_one_another_are_stored_together_and_the_first_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "GROUP_S", 120.0)
    monkeypatch.setattr(committer_module, "SETTLE_S", 0.5)
    store = Store(Lake(tmp_path / "lake", create=True))
    committer = Committer(store)
    committer.start()
    tickets = []
    for n in range(5):
        tickets.append(committer.submit(Intake(f"{n:032x}", 1, "h", 100)))
        time.sleep(0.01)
    assert all(ticket is not None and ticket.done.wait(60) for ticket in tickets)
    assert store.sizes == [5]
    # So soon after a commit the next waits for the end of its interval; closing ends that.
    later = committer.submit(Intake("f" * 32, 1, "h", 100))
    assert later is not None
    assert not later.done.wait(1.0)
    committer.close()
    assert later.done.is_set()
    assert store.sizes == [5, 1]
    store.close()
