"""A rank's own time inside a collective, by when it calls the communication library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import Clock, StepRecorder
from steptax.connectors.recorder import comm_calls as watched
from steptax.connectors.recorder.integrations import recorded_calls
from steptax.connectors.recorder.integrations.probe import rounds

EPOCH_NS = 1_700_000_000_000_000_000


class Ticks:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.ns = 0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: EPOCH_NS + self.ns, lambda: self.ns)

    def go(self, ms: float) -> None:
        self.ns += round(ms * 1e6)


class Fake:
    """What torch.distributed is made of: ``wait`` lasts as long as ``waits_ms`` says."""

    def __init__(self, ticks: Ticks) -> None:
        fake = self

        class Work:
            def wait(self) -> bool:
                ticks.go(fake.wait_ms)
                return True

        class ProcessGroup:
            def allreduce(self, _: object = None) -> Work:
                ticks.go(0.25)
                return Work()

        self.wait_ms = 4.0
        self.Work, self.ProcessGroup = Work, ProcessGroup
        self.methods = ProcessGroup.allreduce, Work.wait

    def all_reduce(self) -> None:
        """As torch.distributed.all_reduce does."""
        self.ProcessGroup().allreduce().wait()


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def fake(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(ticks)
    monkeypatch.setitem(sys.modules, "torch.distributed", made)  # type: ignore[arg-type]
    return made


def recorder(lake: Path, ticks: Ticks, **options: Any) -> StepRecorder:
    return StepRecorder(lake, "j", 0, 1, clock=ticks.clock, cuda=False, **options)


def times(lake: Path) -> list[tuple[int | None, int | None, int]]:
    rows = sorted(Lake(lake).read("steps", "j").to_pylist(), key=lambda row: row["step"])
    return [(row["collective_us"], row["comm_us"], row["duration_us"]) for row in rows]


def test_what_comes_before_and_behind_the_call_is_the_ranks_own(
    tmp_path: Path, ticks: Ticks, fake: Fake
) -> None:
    with recorder(tmp_path, ticks) as rec:
        with rec.step(0), rec.collective():
            ticks.go(50)
            fake.all_reduce()
            ticks.go(7)
        assert rec.stats["misuse"] == rec.stats["errors"] == 0
    assert times(tmp_path) == [(57_000, 4_250, 61_250)]


def test_between_calls_that_are_through_the_time_is_its_own_and_while_one_is_open_it_is_not(
    tmp_path: Path, ticks: Ticks, fake: Fake
) -> None:
    group = fake.ProcessGroup()
    with recorder(tmp_path, ticks) as rec:
        with rec.step(0), rec.collective():
            fake.all_reduce()
            ticks.go(3)
            fake.all_reduce()
        with rec.step(1), rec.collective():
            works = [group.allreduce(), group.allreduce()]
            ticks.go(3)  # both are under way
            works[0].wait()
            ticks.go(2)  # one still is
            works[1].wait()
            ticks.go(1)
    assert times(tmp_path) == [(3_000, 8_500, 11_500), (1_000, 13_500, 14_500)]


def test_waiting_for_what_was_called_before_the_collective_is_communication(
    tmp_path: Path, ticks: Ticks, fake: Fake
) -> None:
    with recorder(tmp_path, ticks) as rec, rec.step(0):
        with rec.phase("compute"):
            work = fake.ProcessGroup().allreduce()
            ticks.go(10)
        with rec.collective():
            ticks.go(2)
            work.wait()
    assert times(tmp_path) == [(2_000, 4_000, 16_250)]


def test_where_the_library_is_not_seen_all_of_it_is_communication(
    tmp_path: Path, ticks: Ticks, fake: Fake
) -> None:
    with recorder(tmp_path, ticks, watch_library=False) as rec:
        with rec.step(0), rec.collective():
            ticks.go(50)
            fake.all_reduce()
        with rec.step(1), rec.collective():
            ticks.go(9)
    assert times(tmp_path) == [(None, 54_250, 54_250), (None, 9_000, 9_000)]


def test_a_library_that_comes_later_is_seen_from_then_on(
    tmp_path: Path, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    with recorder(tmp_path, ticks) as rec:
        with rec.step(0), rec.collective():
            ticks.go(9)
        fake = Fake(ticks)
        monkeypatch.setitem(sys.modules, "torch.distributed", fake)  # type: ignore[arg-type]
        with rec.step(1), rec.collective():
            ticks.go(5)
            fake.all_reduce()
    assert times(tmp_path) == [(None, 9_000, 9_000), (5_000, 4_250, 9_250)]


def test_the_library_is_left_as_it_was(tmp_path: Path, ticks: Ticks, fake: Fake) -> None:
    with recorder(tmp_path / "a", ticks) as first:
        with first.step(0):
            assert fake.ProcessGroup.allreduce is not fake.methods[0]
        with recorder(tmp_path / "b", ticks) as second, second.step(0):
            pass
        with first.step(1), first.collective():
            ticks.go(5)
            fake.all_reduce()
    assert (fake.ProcessGroup.allreduce, fake.Work.wait) == fake.methods
    assert times(tmp_path / "a")[1] == (5_000, 4_250, 9_250)
    assert not watched._watching


def test_a_library_that_cannot_be_watched_is_said_and_harms_nobody(
    tmp_path: Path, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = SimpleNamespace(Work=object(), ProcessGroup=object)
    monkeypatch.setitem(sys.modules, "torch.distributed", broken)
    with recorder(tmp_path, ticks) as rec:
        for step in range(3):
            with rec.step(step), rec.collective():
                ticks.go(9)
        assert rec.stats["errors"] == 1
        assert "communication library" in rec.stats["last_error"]
    assert times(tmp_path) == [(None, 9_000, 9_000)] * 3


@pytest.mark.parametrize("where", ["before", "behind"])
def test_the_card_names_the_rank_that_holds_up_its_collective(
    where: str, tmp_path: Path, steptax: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own_ms, transfer_ms, lake = 40.0, 3.0, tmp_path / "recorded"
    lake.mkdir()
    for rank in range(4):
        ticks, late = Ticks(), rank == 2
        fake = Fake(ticks)
        monkeypatch.setitem(sys.modules, "torch.distributed", fake)  # type: ignore[arg-type]

        def reduce(
            ticks: Ticks = ticks, fake: Fake = fake, ms: float = own_ms if late else 0.0
        ) -> None:
            ticks.go(ms if where == "before" else 0.0)
            fake.all_reduce()
            ticks.go(ms if where == "behind" else 0.0)

        with StepRecorder(lake, "held", rank, 4, clock=ticks.clock, cuda=False) as rec:
            join = recorded_calls(rec, reduce)
            for step in range(12):
                # Whoever calls first waits for rank 2; behind the first call, from step 1 on.
                waits = not late and (where == "before" or step > 0)
                fake.wait_ms = transfer_ms + (own_ms if waits else 0.0)
                with rec.step(step):
                    with rec.phase("compute"):
                        ticks.go(20)
                    join()
    card = steptax("job", "held", "--price", "2", "--lake", lake)["card"]
    assert card["culprit_rank"] == 2
    assert card["phase"] == "collective"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 33])
def test_in_the_rounds_of_a_probe_everybody_meets_both_neighbours_once(size: int) -> None:
    every = [rounds(place, size) for place in range(size)]
    for place, partners in enumerate(every):
        for turn, partner in enumerate(partners):
            assert partner is None or every[partner][turn] == place
        met = sorted(p for p in partners if p is not None)
        assert met == sorted({(place - 1) % size, (place + 1) % size} - {place})
