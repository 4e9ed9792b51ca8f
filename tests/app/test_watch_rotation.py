"""A followed log that is rotated, also more than once while nobody looks: every line once."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake import Lake
from steptax.app.watch import Stored, Told, Watch
from steptax.connectors.base import Options

JOB = Options(job_id="j", world_size=1)


def iteration(step: int) -> str:
    return (
        f" [2026-03-01 10:{step // 60:02d}:{step % 60:02d}] iteration {step:8d}/ 9999 | elapsed "
        f"time per iteration (ms): {900 + step / 10:.1f} | lm loss: {step}.25 |\n"
    )


class Log:
    """A log and what rotates it. ``step`` is the newest one written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step = 0
        path.parent.mkdir()

    def write(self, count: int) -> None:
        with self.path.open("a") as handle:
            for _ in range(count):
                self.step += 1
                handle.write(iteration(self.step))
        # As far apart as writing them takes in life: no clock is finer than it is here.
        os.utime(self.path, ns=(self.step * 10**9, self.step * 10**9))

    def beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)

    def rotate(self, *, pack: bool = False) -> None:
        for age in range(8, 0, -1):
            for ending in ("", ".gz"):
                if self.beside(f".{age}{ending}").exists():
                    self.beside(f".{age}{ending}").rename(self.beside(f".{age + 1}{ending}"))
        self.path.rename(self.beside(".1"))
        if pack:
            self.pack(self.beside(".1"))

    def pack(self, path: Path) -> None:
        packed = path.with_name(path.name + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        os.utime(packed, ns=(path.stat().st_mtime_ns,) * 2)
        path.unlink()

    def copy_and_truncate(self) -> None:
        self.beside(".1").write_bytes(self.path.read_bytes())
        self.path.write_bytes(b"")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "in" / "train.log")


@pytest.fixture
def live(lake: Lake, log: Log) -> Iterator[Watch]:
    watch = Watch(lake, "megatron", log.path, JOB)
    with watch.alone():
        yield watch


def notes_of(found: list[Any]) -> str:
    said = [
        note
        for one in found
        if isinstance(one, Stored | Told)
        for note in (*one.notes, *(one.result.notes if isinstance(one, Stored) else ()))
    ]
    return " | ".join(said)


def look(lake: Lake, log: Log) -> str:
    """One look of a watch that starts and ends here; what it said."""
    watch = Watch(lake, "megatron", log.path, JOB)
    with watch.alone():
        return notes_of(list(watch.look(settled=True)))


def steps(lake: Lake) -> list[tuple[int, int]]:
    rows = lake.read("steps", "j").to_pylist()
    return sorted((r["attempt"], r["step"]) for r in rows)


def upto(last: int, *, without: range = range(0)) -> list[tuple[int, int]]:
    return [(0, step) for step in range(1, last + 1) if step not in without]


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("times", [1, 3])
def test_rotated_while_nobody_looks(times: int, pack: bool, lake: Lake, log: Log) -> None:
    log.write(20)
    look(lake, log)
    for _ in range(times):
        log.write(7)
        log.rotate(pack=pack)
        log.write(5)
    said = look(lake, log)
    assert steps(lake) == upto(log.step)
    assert "missing" not in said, said
    assert "means over the steps" not in said
    assert look(lake, log) == ""


def test_rotated_more_than_once_between_two_looks(live: Watch, lake: Lake, log: Log) -> None:
    log.write(10)
    list(live.look())
    for _ in range(3):
        log.write(4)
        log.rotate()
    log.write(6)
    said = notes_of(list(live.look()))
    assert steps(lake) == upto(log.step)
    assert "renamed more than once: train.log.2 comes next" in said
    assert "missing" not in said, said


def test_packed_and_rotated_on_while_it_is_followed(live: Watch, lake: Lake, log: Log) -> None:
    log.write(10)
    list(live.look())
    log.rotate(pack=True)
    log.write(5)
    log.rotate(pack=True)
    log.write(5)
    list(live.look())
    assert steps(lake) == upto(20)


def test_nothing_at_the_name_yet(lake: Lake, log: Log) -> None:
    log.write(10)
    look(lake, log)
    log.write(5)
    log.rotate()
    log.write(5)
    log.rotate()
    look(lake, log)
    assert steps(lake) == upto(20)
    log.path.touch()
    look(lake, log)
    log.write(5)
    look(lake, log)
    assert steps(lake) == upto(25)


def test_names_with_dates(lake: Lake, log: Log) -> None:
    log.write(10)
    look(lake, log)
    for day in (1, 2, 3):
        log.write(4)
        log.path.rename(log.beside(f"-2026030{day}"))
        log.write(3)
    log.pack(log.beside("-20260302"))
    look(lake, log)
    assert steps(lake) == upto(log.step)


@pytest.mark.parametrize("name", ["train-{}.log", "train.{}_10-00.log", "train.log-17723{}"])
def test_dates_before_the_ending_and_seconds(name: str, lake: Lake, log: Log) -> None:
    log.write(10)
    look(lake, log)
    log.path.with_name("train-1.log").write_text(iteration(500))  # of another rank
    for day in (20260301, 20260302) if "17723" not in name else (48400, 52000):
        log.write(4)
        log.path.rename(log.path.with_name(name.format(day)))
        log.write(3)
    said = look(lake, log)
    assert steps(lake) == upto(log.step)
    assert "missing" not in said, said


@pytest.mark.parametrize("restarts", [False, True])
def test_a_link_to_the_newest_of_several_files(restarts: bool, lake: Lake, log: Log) -> None:
    watch = Watch(lake, "megatron", log.path, JOB)
    said = ""
    for day in (1, 2, 3):
        log.path.unlink(missing_ok=True)
        log.path.symlink_to(f"train-2026030{day}.log")
        log.write(5)
        if day == 2:
            continue  # the link is set anew twice between two looks
        said += notes_of(list(watch.look()))
        if restarts:
            watch.close()
            watch = Watch(lake, "megatron", log.path, JOB)
    watch.close()
    assert steps(lake) == upto(15)
    assert "missing" not in said, said


@pytest.mark.parametrize("anew", [False, True], ids=["emptied", "a file of its own"])
def test_a_run_that_begins_with_the_same_banner(anew: bool, lake: Lake, log: Log) -> None:
    """It is written over the old one while nobody looks, and is longer already."""
    banner = "".join(f"  argument_{i} ........ {i}\n" for i in range(100))
    log.path.write_text(banner)
    log.write(10)
    look(lake, log)
    if anew:
        log.path.unlink()
    log.path.write_text(banner)
    log.write(30)
    said = look(lake, log)
    assert steps(lake) == upto(40)
    assert "missing" in said


def test_copied_and_emptied(live: Watch, lake: Lake, log: Log) -> None:
    log.write(10)
    list(live.look())
    log.write(6)
    log.copy_and_truncate()
    log.write(4)
    said = notes_of(list(live.look()))
    assert steps(lake) == upto(20)
    assert "train.log.1 has what it was before" in said
    assert "missing" not in said, said


def test_a_broken_chain_is_said_and_nothing_is_claimed(lake: Lake, log: Log) -> None:
    log.write(20)
    look(lake, log)
    log.write(5)
    log.rotate()
    log.write(5)
    log.rotate()
    log.write(5)
    log.beside(".2").unlink()
    said = look(lake, log)
    # The middle file is whole: what is lost is the end of the one that is gone.
    assert steps(lake) == upto(35, without=range(21, 26))
    assert "what it had after line 20 is not read, so steps may be missing" in said
    assert "no line tells of 5 steps (21 to 25)" in said
    assert "means over the steps" not in said
    metrics = lake.read("printed_metrics", "j").to_pylist()
    after = {r["interval_steps"] for r in metrics if r["step"] == 26}
    assert after == {None}


def test_a_packed_file_that_breaks_off_is_said(lake: Lake, log: Log) -> None:
    log.write(20)
    look(lake, log)
    log.write(200)
    log.rotate(pack=True)
    packed = log.beside(".1.gz")
    packed.write_bytes(packed.read_bytes()[:-200])
    log.write(5)
    said = look(lake, log)
    assert "train.log.1.gz breaks off or is damaged" in said
    assert "steps may be missing" in said
    assert "means over the steps" not in said
    assert steps(lake)[-5:] == upto(225)[-5:]


def test_what_is_older_or_of_another_name_is_not_read(lake: Lake, log: Log) -> None:
    """Logs of other jobs beside it, and what was rotated before anybody followed it."""
    log.write(10)
    log.rotate()
    log.beside(".err").write_text(iteration(500))
    log.beside(".bak").write_text(iteration(501))
    log.write(10)
    look(lake, log)
    log.write(5)
    log.rotate()
    log.write(5)
    look(lake, log)
    assert [step for _, step in steps(lake)] == list(range(11, 31))


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_writing_rotating_and_looking(seed: int, lake: Lake, log: Log) -> None:
    rng = random.Random(seed)
    log.write(3)
    watch = Watch(lake, "megatron", log.path, JOB)
    list(watch.look())
    for _ in range(25):
        what = rng.choice(("write", "write", "rotate", "pack", "look", "restart"))
        if what == "write":
            log.write(rng.randrange(1, 6))
        elif what in ("rotate", "pack") and log.path.exists():
            log.rotate(pack=what == "pack")
        elif what == "look":
            list(watch.look())
        elif what == "restart":
            watch.close()
            watch = Watch(lake, "megatron", log.path, JOB)
    log.write(1)
    list(watch.look())
    watch.close()
    assert steps(lake) == upto(log.step)
