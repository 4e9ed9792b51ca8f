"""What is kept in memory: one result for many readers, no older than it may be, and no longer."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.views import kept as kept_module
from steptax.app.views.job import jobs
from steptax.app.views.job.step_facts import facts_of
from steptax.app.views.kept import Kept, Latest, NewestOfEach, OfView
from steptax.app.views.review import base
from steptax.app.views.workspace import Workspace, open_workspace


@dataclass(frozen=True)
class View:
    number: int
    is_live: bool
    array: np.ndarray[tuple[int], np.dtype[np.float64]]
    """Cannot be hashed, and has no one truth: views are told apart by identity."""


class Maker:
    """Makes numbered views, and says how many."""

    def __init__(self, *, is_live: bool, takes_s: float = 0.0) -> None:
        self.made = 0
        self.is_live = is_live
        self.takes_s = takes_s

    def __call__(self) -> View:
        self.made += 1
        time.sleep(self.takes_s)
        return View(self.made, self.is_live, np.zeros(3))


def latest(most: int = 4, every_s: float = 60.0, rest: float = 1.0) -> Latest[View]:
    return Latest(most, lambda view: view.is_live, every_s, rest=rest)


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about")


def test_what_is_over_is_made_anew_exactly_when_its_data_changed() -> None:
    kept, make = latest(rest=1e9), Maker(is_live=False)
    assert [kept.get("a", v, make).number for v in ("1", "1", "2", "2", "1")] == [1, 1, 2, 2, 3]
    assert kept.get("b", "1", make).number == 4


def test_what_goes_on_rests_before_it_is_made_anew() -> None:
    kept, make = latest(rest=1e9), Maker(is_live=True)
    assert {kept.get("a", str(k), make).number for k in range(9)} == {1}
    kept, make = latest(rest=0.0), Maker(is_live=True)
    assert [kept.get("a", v, make).number for v in ("1", "1", "2")] == [1, 1, 2]
    # However long it took, no longer than that.
    kept = Latest(4, lambda view: view.is_live, 60.0, rest=1e9, most_rest_s=0.0)
    assert [kept.get("a", v, make).number for v in ("1", "1", "2")] == [3, 3, 4]
    # "Newest step 14 s ago" changes while the data is the same.
    kept, make = latest(every_s=0.0, rest=0.0), Maker(is_live=True)
    assert [kept.get("a", "1", make).number for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("is_live", [True, False])
def test_many_readers_at_once_cost_one(is_live: bool) -> None:
    kept, make = latest(rest=1e9), Maker(is_live=is_live, takes_s=0.05)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(kept.get("a", "1", make).number))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 20
    assert make.made == 1


@pytest.mark.parametrize(("rest", "most_rest_s"), [(0.0, 60.0), (1e9, 0.0)])
def test_while_one_makes_the_next_the_others_get_the_one_before(
    rest: float, most_rest_s: float
) -> None:
    kept: Latest[View] = Latest(
        4, lambda view: view.is_live, 60.0, rest=rest, most_rest_s=most_rest_s
    )
    first = kept.get("a", "1", Maker(is_live=True))
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> View:
        begun.set()
        assert go_on.wait(30)
        return View(2, True, np.zeros(1))

    thread = threading.Thread(target=lambda: kept.get("a", "2", slow))
    thread.start()
    assert begun.wait(30)
    assert kept.get("a", "2", slow) is first
    go_on.set()
    thread.join()
    assert kept.get("a", "2", Maker(is_live=True)).number == 2


def test_what_takes_long_is_made_anew_beside_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "BESIDE_S", 0.0)
    kept = Latest[View](4, lambda view: view.is_live, 60.0, rest=0.0, beside=True)
    first = kept.get("a", "1", Maker(is_live=True))
    go_on, made = threading.Event(), threading.Event()

    def slow() -> View:
        assert go_on.wait(30)
        made.set()
        return View(2, True, np.zeros(1))

    # Nobody waits, not even who asked first; and one thread makes it for all of them.
    assert [kept.get("a", "2", slow) for _ in range(3)] == [first] * 3
    go_on.set()
    assert made.wait(30)
    _until(lambda: kept.get("a", "2", Maker(is_live=True)).number == 2)

    def broken() -> View:
        raise ValueError("no such job any more")

    # What fails beside everybody is told to who asks next, instead of an old result for ever.
    assert kept.get("a", "3", broken).number == 2

    def is_told() -> bool:
        try:
            kept.get("a", "3", broken)
        except ValueError:
            return True
        return False

    _until(is_told)


def test_what_is_quick_is_made_while_its_reader_waits() -> None:
    kept, make = (
        Latest[View](4, lambda v: v.is_live, 60.0, rest=0.0, beside=True),
        Maker(is_live=True),
    )
    assert [kept.get("a", v, make).number for v in ("1", "2", "3")] == [1, 2, 3]


def test_who_fails_leaves_the_way_free() -> None:
    kept = latest()

    def broken() -> View:
        raise ValueError("no such job")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such job"):
            kept.get("a", "1", broken)
    assert kept.get("a", "1", Maker(is_live=False)).number == 1


def test_of_a_question_one_result_is_kept_and_of_questions_so_many() -> None:
    kept, make = latest(most=2), Maker(is_live=False)
    for key in ("a", "b", "c"):
        for version in ("1", "2"):
            kept.get(key, version, make)
    assert kept.get("c", "2", make).number == 6
    assert kept.get("b", "2", make).number == 4
    assert kept.get("a", "2", make).number == 7  # made anew


def test_what_is_drawn_of_a_view_goes_with_it_and_is_nobody_elses() -> None:
    drawn = OfView(2)
    view, other = (View(1, True, np.zeros(3)) for _ in range(2))
    figure = drawn.get(view, "heat", lambda: ["of one"])
    assert drawn.get(view, "heat", lambda: ["again"]) is figure
    assert drawn.get(other, "heat", lambda: ["of the other"]) == ["of the other"]
    drawn.get(view, "series", list)
    drawn.get(view, "ledger", list)
    assert drawn.get(view, "heat", lambda: ["again"]) == ["again"]  # the last two are kept
    assert len(drawn._made) == 2
    del view
    gc.collect()
    assert len(drawn._made) == 1


def test_many_who_ask_at_once_have_it_made_once() -> None:
    kept: Kept[int] = Kept(2)
    begun, go = threading.Event(), threading.Event()
    made: list[int] = []

    def make() -> int:
        begun.set()
        go.wait(10)
        made.append(1)
        return len(made)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(kept.get, "a", make)
        assert begun.wait(10)
        others = [pool.submit(kept.get, "a", make) for _ in range(3)]
        assert kept.get("b", lambda: 7) == 7  # another question does not wait for it
        go.set()
        assert {one.result(10) for one in [first, *others]} == {1}
    assert not kept._making


def test_of_all_that_was_made_the_results_asked_for_last_are_kept() -> None:
    kept: Kept[int] = Kept(2)
    made: list[str] = []

    def ask(key: str) -> None:
        def make() -> int:
            made.append(key)
            return len(made)

        kept.get(key, make)

    for key in "abac":
        ask(key)
    assert made == ["a", "b", "c"]
    for key in "acb":  # the one that was asked for longest ago went
        ask(key)
    assert made == ["a", "b", "c", "b"]
    for number in range(50):
        ask(str(number))
    assert len(kept._found) == 2


def test_what_could_not_be_made_is_tried_again() -> None:
    kept: Kept[int] = Kept(2)

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept.get("a", fail)
    assert kept.get("a", lambda: 3) == 3
    assert not kept._making


def test_of_each_question_the_newest_result_alone_is_kept() -> None:
    kept = NewestOfEach[str](3, weigh=len, most_bytes=10)
    for version in range(100):
        kept.keep("live", str(version), f"{version:04}")
    assert len(kept) == 1
    assert kept.find("live", "99") == "0099"
    assert kept.find("live", "98") is None
    kept.keep("a", "1", "aaaa")
    assert kept.find("live", "99") == "0099"
    kept.keep("b", "1", "bbbb")  # 12 bytes: the one that was asked for longest ago goes
    assert (kept.find("a", "1"), kept.find("live", "99")) == (None, "0099")
    kept.keep("c", "1", "c" * 50)  # larger than all that may be kept: it alone is
    assert (len(kept), kept.find("c", "1")) == (1, "c" * 50)
    for key in "defg":
        kept.keep(key, "1", "")
    assert len(kept) == 3
    kept.clear()
    assert len(kept) == 0


def test_a_job_that_runs_leaves_one_analysis(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    rows = {
        "job_id": ["runs"] * 40,
        "attempt": pa.array([0] * 40, pa.int32()),
        "rank": pa.array([0, 1] * 20, pa.int32()),
        "duration_us": [1000] * 40,
    }
    before = len(jobs._cache)
    for first in range(3):
        step = [first * 20 + k // 2 for k in range(40)]
        lake.append("steps", pa.table({**rows, "step": step}), source="t")
        ws = open_workspace(lake.root)
        assert len(facts_of(ws, ws.jobs())) == 1
    assert len(jobs._cache) == before + 1


def test_all_jobs_are_looked_at_once_for_all_who_ask_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    rows = {"job_id": ["one"], "start_us": [1], "end_us": [2], "world_size": [8]}
    lake.append("jobs", pa.table(rows), source="t")
    ws = open_workspace(lake.root)
    made: list[str] = []
    make = base._make

    def slow(asked: Workspace, version: str) -> base.ReviewBase:
        made.append(version)
        time.sleep(0.05)
        return make(asked, version)

    monkeypatch.setattr(base, "_make", slow)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: base.review_base(ws), range(8)))
    assert len(made) == 1
    assert all(one is found[0] for one in found)
