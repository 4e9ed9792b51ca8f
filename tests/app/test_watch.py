"""Following files that grow: every row exactly once, whatever happens in between."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError, UserError
from steptax.app.lake import Lake
from steptax.app.watch import Refused, Stored, Told, Watch
from steptax.connectors.base import Options
from tests.patience import PATIENCE_S, until

HEAD = "step,rank,duration_ms,compute_ms,host\n"
JOB = Options(job_id="j")


def row(step: int, rank: int = 0) -> str:
    return f"{step},{rank},{100 + step / 8},{90 + rank},node-{rank}\n"


def iteration(step: int, *, minute: int = 0) -> str:
    return (
        f" [2026-03-01 10:{minute:02d}:{step % 60:02d}] iteration {step:8d}/ 9999 | elapsed time "
        f"per iteration (ms): {1000 + step}.5 | lm loss: {step}.25 | "
        "number of skipped iterations:   0 |\n"
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "in" / "times.csv"


@pytest.fixture(autouse=True)
def _folder(log: Path) -> None:
    log.parent.mkdir()


def add(path: Path, text: str) -> None:
    with path.open("a") as handle:
        handle.write(text)


@contextlib.contextmanager
def following(lake: Lake, kind: str, source: Path, options: Options = JOB) -> Iterator[Watch]:
    watch = Watch(lake, kind, source, options)
    with watch.alone():
        yield watch


def look(lake: Lake, source: Path, kind: str = "steps", options: Options = JOB) -> list[Any]:
    """One look of a watch that starts and ends here."""
    with following(lake, kind, source, options) as watch:
        return list(watch.look(settled=True))


def steps(lake: Lake, job: str = "j") -> list[tuple[int, int, int]]:
    rows = lake.read("steps", job).to_pylist()
    return sorted((r["attempt"], r["step"], r["rank"]) for r in rows)


class TestGrowing:
    def test_each_look_stores_what_is_new(self, lake: Lake, log: Path) -> None:
        with following(lake, "steps", log) as watch:
            assert list(watch.look()) == []  # it is not there yet
            add(log, HEAD)
            assert list(watch.look()) == []
            add(log, row(1) + row(1, 1) + row(2)[:4])
            (first,) = watch.look()
            assert isinstance(first, Stored)
            assert first.result.accepted["steps"] == 2
            assert first.behind_bytes == 4
            add(log, row(2)[4:] + "3,0,bad,1,x\n")
            (second,) = watch.look()
            assert isinstance(second, Stored)
            assert second.result.accepted == {"steps": 1}
            assert second.result.first_rejects[0]["row"] == 5
            assert list(watch.look()) == []
        assert steps(lake) == [(0, 1, 0), (0, 1, 1), (0, 2, 0)]
        numbers = lake.read("steps", "j")["source_row"].to_pylist()
        assert sorted(numbers) == [2, 3, 4]
        (job,) = lake.read("jobs").to_pylist()
        assert job["world_size"] == 2

    def test_a_new_watch_goes_on_where_the_last_one_stopped(self, lake: Lake, log: Path) -> None:
        add(log, HEAD + row(1) + row(1, 1))
        (first,) = look(lake, log)
        add(log, row(2))
        (second,) = look(lake, log)
        assert first.result.accepted["steps"] == 2
        assert second.result.accepted["steps"] == 1
        assert second.result.stored_before == {}
        assert look(lake, log) == []
        # The ranks that the first watch saw are not forgotten.
        (job,) = lake.read("jobs").to_pylist()
        assert job["world_size"] == 2

    @pytest.mark.parametrize("seed", range(6))
    def test_any_cut_and_any_restart_gives_each_row_once(
        self, seed: int, lake: Lake, log: Path
    ) -> None:
        dice = random.Random(seed)
        text = HEAD + "".join(row(s, r) for s in range(40) for r in range(3))
        watch = Watch(lake, "steps", log, JOB)
        at = 0
        while at < len(text):
            size = dice.randrange(1, 400)
            add(log, text[at : at + size])
            at += size
            list(watch.look())
            if dice.random() < 0.3:
                watch.close()
                watch = Watch(lake, "steps", log, JOB)
        list(watch.look())
        watch.close()
        assert steps(lake) == [(0, s, r) for s in range(40) for r in range(3)]
        assert lake.read("rejects").num_rows == 0

    def test_json_lines(self, lake: Lake, tmp_path: Path) -> None:
        path = tmp_path / "in" / "times.jsonl"
        with following(lake, "steps", path) as watch:
            for step in range(3):
                add(path, json.dumps({"step": step, "rank": 0, "duration_us": 100}) + "\n")
                add(path, json.dumps({"step": step, "rank": 1, "duration_us": 100})[:9])
                list(watch.look())
                add(path, json.dumps({"step": step, "rank": 1, "duration_us": 100})[9:] + "\n")
            list(watch.look())
        assert steps(lake) == [(0, s, r) for s in range(3) for r in range(2)]

    def test_a_quoted_value_over_line_ends_waits_for_its_end(self, lake: Lake, log: Path) -> None:
        with following(lake, "steps", log) as watch:
            add(log, HEAD + row(1) + '2,0,100,90,"two\n')
            list(watch.look())
            assert steps(lake) == [(0, 1, 0)]
            add(log, 'lines"\n' + row(3))
            list(watch.look())
        assert steps(lake) == [(0, 1, 0), (0, 2, 0), (0, 3, 0)]
        assert lake.read("rejects").num_rows == 0

    def test_a_file_that_is_no_table_is_told(self, lake: Lake, log: Path) -> None:
        add(log, "what,is\n1,2\n3,4\n")
        with pytest.raises(InputError, match="no column for"):
            look(lake, log)

    def test_two_watches_of_one_source_do_not_mix(self, lake: Lake, log: Path) -> None:
        add(log, HEAD + row(1))
        with following(lake, "steps", log), pytest.raises(UserError, match="another watch"):
            look(lake, log)

    def test_what_could_not_be_stored_is_read_again(
        self, lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add(log, HEAD + row(1))
        with following(lake, "steps", log) as watch:

            def full(*_args: object) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(Lake, "commit", full)
            [told] = watch.look()
            assert isinstance(told, Refused)
            assert "No space" in told.error.message
            monkeypatch.undo()
            assert steps(lake) == []
            list(watch.look())
        assert steps(lake) == [(0, 1, 0)]


class TestLogs:
    def test_attempts_go_on_over_restarts_of_the_watch(self, lake: Lake, tmp_path: Path) -> None:
        path = tmp_path / "in" / "train.log"
        order = [1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7]
        for place, step in enumerate(order):
            add(path, iteration(step, minute=place))
            look(lake, path, "megatron")
        # The newest line of an attempt's beginning is held until the next one confirms it.
        want = [
            (0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0), (1, 3, 0), (1, 4, 0), (1, 5, 0), (1, 6, 0),
            (2, 5, 0), (2, 6, 0), (2, 7, 0),
        ]  # fmt: skip
        assert steps(lake) == want
        whole = Lake(tmp_path / "whole", create=True)
        look(whole, path, "megatron")
        assert steps(whole) == want
        for name in ("steps", "printed_metrics"):
            drop = ["ingested_at_us"]
            mine = lake.read(name, "j").drop_columns(drop).to_pylist()
            theirs = whole.read(name, "j").drop_columns(drop).to_pylist()
            key: Callable[[dict[str, Any]], str] = str
            assert sorted(mine, key=key) == sorted(theirs, key=key)
        kinds = [e["kind"] for e in lake.read("events", "j").to_pylist()]
        assert kinds.count("rollback") == 2

    def test_a_log_of_another_kind_makes_no_job(self, lake: Lake, tmp_path: Path) -> None:
        path = tmp_path / "in" / "train.log"
        add(path, "completed step: 1, seconds: 1.0, TFLOP/s/device: 1.0, loss: 1.0\n")
        (found,) = look(lake, path, "torchtitan")
        assert isinstance(found, Told)
        assert found.notes == ("no line so far is one of a torchtitan log",)
        assert lake.read("jobs").num_rows == 0

    def test_values_below_a_line_that_was_stored_before(self, lake: Lake, tmp_path: Path) -> None:
        path = tmp_path / "in" / "train.log"
        block = "(min, max) time across ranks (ms):\n    optimizer .....: (1.50, 2.50)\n"
        for step in range(1, 6):
            add(path, iteration(step))
            look(lake, path, "megatron")
            add(path, block)
        look(lake, path, "megatron")
        rows = lake.read("printed_metrics", "j").to_pylist()
        found = sorted((r["step"], r["subject"]) for r in rows if r["name"] == "optimizer")
        assert found == [
            (s, f"{end} over ranks") for s in range(1, 6) for end in ("max", "min")
        ]  # fmt: skip


class TestRotation:
    def test_a_renamed_file_is_read_to_its_end_first(self, lake: Lake, log: Path) -> None:
        with following(lake, "steps", log) as watch:
            add(log, HEAD + row(1))
            list(watch.look())
            add(log, row(2) + row(3).rstrip("\n"))
            log.rename(log.with_name("times.csv.1"))
            add(log, HEAD + row(4))
            told = list(watch.look())
            list(watch.look())
        assert steps(lake) == [(0, s, 0) for s in (1, 2, 3, 4)]
        notes = [note for found in told if isinstance(found, Stored) for note in found.notes]
        assert any("renamed" in note for note in notes)

    def test_it_was_renamed_while_nobody_watched(self, lake: Lake, log: Path) -> None:
        add(log, HEAD + row(1))
        look(lake, log)
        add(log, row(2))
        log.rename(log.with_name("times.csv.1"))
        add(log, HEAD + row(3))
        look(lake, log)
        assert steps(lake) == [(0, s, 0) for s in (1, 2, 3)]

    def test_the_old_file_is_gone(self, lake: Lake, log: Path) -> None:
        add(log, HEAD + row(1))
        look(lake, log)
        log.unlink()
        add(log, HEAD + row(2))
        (found,) = look(lake, log)
        assert steps(lake) == [(0, 1, 0), (0, 2, 0)]
        assert any("not beside it" in note for note in found.notes)

    def test_a_file_that_is_cut_to_nothing_and_goes_on(self, lake: Lake, log: Path) -> None:
        with following(lake, "steps", log) as watch:
            add(log, HEAD + row(1) + row(2))
            list(watch.look())
            with log.open("r+") as handle:
                handle.truncate(0)
            add(log, HEAD + row(3))
            (found,) = watch.look()
            assert isinstance(found, Stored)
            assert any("written anew" in note for note in found.notes)
        assert steps(lake) == [(0, s, 0) for s in (1, 2, 3)]

    def test_the_same_content_written_again_adds_nothing(self, lake: Lake, log: Path) -> None:
        with following(lake, "steps", log) as watch:
            add(log, HEAD + row(1) + row(2))
            list(watch.look())
            log.unlink()
            add(log, HEAD + row(1) + row(2))
            list(watch.look())
        assert steps(lake) == [(0, 1, 0), (0, 2, 0)]
        assert lake.read("rejects").num_rows == 0


class TestFolder:
    def test_files_that_grow_and_files_that_are_whole(
        self, lake: Lake, tmp_path: Path, log: Path
    ) -> None:
        import pyarrow as pa

        folder = log.parent
        with following(lake, "steps", folder) as watch:
            add(log, HEAD + row(1))
            table = pa.table({"step": [7], "rank": [0], "duration_us": [100]})
            pq.write_table(table, folder / "new.parquet.tmp")
            assert len(list(watch.look())) == 1
            (folder / "new.parquet.tmp").rename(folder / "new.parquet")
            assert list(watch.look()) == []  # it may still be being written
            (found,) = watch.look()
            assert isinstance(found, Stored)
            assert found.path.name == "new.parquet"
            assert list(watch.look()) == []
            add(log, row(2))
            assert len(list(watch.look())) == 1
        assert steps(lake) == [(0, 1, 0), (0, 2, 0), (0, 7, 0)]

    def test_whole_files_of_a_kind_that_never_grows(self, lake: Lake, log: Path) -> None:
        folder = log.parent
        example = Path(__file__).parents[1] / "connectors" / "examples" / "ops.csv"
        for name in ("a.csv", "b.csv"):
            (folder / name).write_bytes(example.read_bytes())
        found = look(lake, folder, "ops", Options())
        assert [f.path.name for f in found] == ["a.csv", "b.csv"]
        assert look(lake, folder, "ops", Options()) == []
        assert {r["job_id"] for r in lake.read("jobs").to_pylist()} == {"a", "b"}

    def test_a_bad_file_does_not_stop_the_others(self, lake: Lake, log: Path) -> None:
        add(log, HEAD + row(1))
        bad = log.parent / "a.csv"
        bad.write_text("what,is\n1,2\n3,4\n")
        with following(lake, "steps", log.parent) as watch:
            found = list(watch.look())
            assert [type(f) for f in found] == [Refused, Stored]
            assert list(watch.look()) == []
            bad.write_text(HEAD + row(9))
            (mended,) = watch.look()
            assert isinstance(mended, Stored)
        assert steps(lake) == [(0, 1, 0), (0, 9, 0)]


def launch(lake: Path, source: Path, *more: str, as_json: bool = True) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "steptax.app.cli", "watch", "steps", str(source)),
            *("--lake", str(lake), "--job", "j", "--interval", "0.05", *more),
            *(["--json"] if as_json else []),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class TestCommand:
    def test_once(self, steptax: Callable[..., Any], log: Path) -> None:
        add(log, HEAD + row(1) + row(1, 1))
        data = steptax("watch", "steps", log, "--once", "--job", "j")
        assert data["accepted"]["steps"] == 2
        assert data["behind_bytes"] == 0
        assert steptax("watch", "steps", log, "--once", "--job", "j")["commit"] is None
        assert steptax("watch", "steps", log.parent / "no", "--once", fails=2)["where"]
        assert steptax("watch", "what", log, "--once", fails=2)["hint"]
        card = steptax("job", "j")
        assert card["coverage"]["steps_total"] == 1

    def test_killed_and_started_again_gives_each_row_once(self, tmp_path: Path, log: Path) -> None:
        root = tmp_path / "lake"
        rows = [(s, r) for s in range(120) for r in range(2)]
        add(log, HEAD)
        at = 0
        for _ in range(3):
            process = launch(root, log)
            stored = len(steps(Lake(root))) if (root / "tables").exists() else 0
            for s, r in rows[at : at + 60]:
                add(log, row(s, r))
            at += 60
            until(lambda had=stored: len(steps(Lake(root, create=True))) > had)  # type: ignore[misc]
            process.kill()
            process.communicate()
        for s, r in rows[at:]:
            add(log, row(s, r))
        process = launch(root, log)
        until(lambda: len(steps(Lake(root))) == len(rows))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        assert steps(Lake(root)) == [(0, s, r) for s, r in rows]
        for line in out.splitlines():
            assert json.loads(line)["ok"] is True
        assert not [p for p in root.rglob("*.tmp") if p.parent.name == "commits"]

    def test_a_file_that_is_not_there_yet_is_named_and_read_once_it_is(
        self, tmp_path: Path, log: Path
    ) -> None:
        process = launch(tmp_path / "lake", log, as_json=False)
        until(lambda: (tmp_path / "lake" / "LAKE.json").exists())
        add(log, HEAD + row(1))
        until(lambda: (tmp_path / "lake" / "commits").exists())
        os.kill(process.pid, signal.SIGINT)
        said, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err) == (0, "")
        assert "times.csv is not there yet" in " ".join(said.split())
        assert steps(Lake(tmp_path / "lake")) == [(0, 1, 0)]

    def test_ctrl_c_leaves_cleanly(self, tmp_path: Path, log: Path) -> None:
        add(log, HEAD + row(1))
        process = launch(tmp_path / "lake", log)
        until(lambda: (tmp_path / "lake" / "commits").exists())
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err) == (0, "")
        assert steps(Lake(tmp_path / "lake")) == [(0, 1, 0)]
