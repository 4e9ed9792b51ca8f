"""A key that is stored with other values: never 'stored before', always said, and what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.errors import InputError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.conflicts import LaterRunError
from steptax.app.lake.ingest import ingest
from steptax.app.schema import Batch
from steptax.app.watch import Watch
from steptax.connectors.base import Options

Steptax = Callable[..., Any]
US = 1_000_000


def iteration(step: int, at: str, *, ms: float = 19_000.0, loss: float | None = None) -> str:
    return (
        f" [2026-03-01 {at}] iteration {step:8d}/ 9999 | elapsed time per iteration (ms): {ms:.1f}"
        f" | lm loss: {20 - step / 10 if loss is None else loss:.4f} | grad norm: 0.5 |\n"
    )


def run(first: int, last: int, hour: int, *, slower: float = 0.0) -> str:
    """A log of 20 s per step that begins at ``hour``."""
    lines = []
    for place, step in enumerate(range(first, last + 1), 1):
        at = f"{hour:02d}:{place * 20 // 60:02d}:{place * 20 % 60:02d}"
        lines.append(iteration(step, at, ms=19_000 + place + slower))
    return "".join(lines)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


def table(**columns: list[Any]) -> pa.Table:
    count = len(columns["step"])
    return pa.table(
        {"job_id": ["j"] * count, "attempt": pa.array([0] * count, pa.int32()), **columns}
    )


def steps(**columns: list[Any]) -> Batch:
    rank = pa.array([0] * len(columns["step"]), pa.int32())
    return Batch("steps", table(rank=rank, **columns))


class TestCounting:
    def test_other_values_are_a_conflict_that_names_both(self, lake: Lake) -> None:
        ingest(lake, [steps(step=[1, 2], duration_us=[10, 20])], ingest_id="aa", source="log:a")
        second = ingest(
            lake,
            [steps(step=[1, 2, 3], duration_us=[10, 21, 30])],
            ingest_id="bb",
            source="log:b",
        )
        assert second.accepted == {"steps": 1}
        assert second.stored_before == {"steps": 2}
        assert second.conflicting == {"steps": 1}
        (note,) = second.notes
        assert note.startswith("CONFLICT: 1 row of steps of job j contradict")
        assert "log:a" in note
        assert "log:b" in note
        assert "step 2, rank 0: duration_us 21 here, 20 there" in note
        assert "--job" in note
        # Told again when the same input is given again.
        again = ingest(lake, [], ingest_id="bb", source="log:b")
        assert again.conflicting == {"steps": 1}
        assert note in again.notes

    def test_what_one_of_the_two_does_not_know_is_no_conflict(self, lake: Lake) -> None:
        known = steps(step=[1], duration_us=[10], loss=[2.5], start_us=[None])
        ingest(lake, [known], ingest_id="aa", source="a")
        more = steps(step=[1], duration_us=[10], loss=[None], start_us=[5 * US])
        found = ingest(lake, [more], ingest_id="bb", source="b")
        assert (found.stored_before, found.conflicting, found.notes) == ({"steps": 1}, {}, ())

    def test_a_value_that_is_no_number_agrees_with_itself(self, lake: Lake) -> None:
        for name in ("aa", "bb"):
            rows = steps(step=[1], duration_us=[10], loss=[float("nan")])
            found = ingest(lake, [rows], ingest_id=name, source=name)
        assert (found.stored_before, found.conflicting) == ({"steps": 1}, {})

    def test_how_a_value_is_written_is_no_conflict(self, lake: Lake) -> None:
        for name, text in (("aa", "2.50"), ("bb", "2.5E+00")):
            rows = table(
                step=[1],
                subject=["job"],
                name=["loss"],
                value=[2.5],
                text=[text],
                at_us=[len(text)],
            )
            found = ingest(lake, [Batch("printed_metrics", rows)], ingest_id=name, source=name)
        assert (found.stored_before, found.conflicting) == ({"printed_metrics": 1}, {})

    def test_rows_that_are_later_but_not_all_are_no_later_run(self, lake: Lake) -> None:
        rows = steps(step=[1, 2], duration_us=[10, 20], start_us=[1 * US, 2 * US])
        ingest(lake, [rows], ingest_id="aa", source="a")
        other = steps(step=[1, 2], duration_us=[11, 21], start_us=[1 * US + 5, 2 * US + 5])
        found = ingest(lake, [other], ingest_id="bb", source="b", refuse_later_run=True)
        assert found.conflicting == {"steps": 2}
        later = steps(step=[1, 2], duration_us=[11, 21], start_us=[3 * US, 4 * US])
        with pytest.raises(LaterRunError) as caught:
            ingest(lake, [later], ingest_id="cc", source="c", refuse_later_run=True)
        assert caught.value.attempt == 0
        assert lake.row_counts()["steps"] == 2


class TestOtherZone:
    """A log whose clock has no zone, of a run that another source has told of."""

    def told(self, lake: Lake, tmp_path: Path, hour: int, **extra: str) -> Any:
        begin = 1772348400 * US  # 2026-03-01 07:00 UTC
        table = tmp_path / "ranks.csv"
        table.write_text(
            "step,rank,duration_us,start_us\n"
            + "".join(
                f"{s},{r},{19_000_000 + s * 1000 + r},{begin + (s - 1) * 20 * US + US}\n"
                for s in range(1, 11)
                for r in range(4)
            )
        )
        ingest_file(lake, "steps", table, Options(job_id="j"))
        log = tmp_path / "train.log"
        log.write_text(run(1, 10, hour, slower=0.7))
        return ingest_file(lake, "megatron", log, Options(job_id="j", extra=extra))

    @pytest.mark.parametrize(("hour", "said"), [(16, "9 h behind"), (1, "6 h before")])
    def test_only_a_person_knows_whether_it_is_another_run(
        self, hour: int, said: str, lake: Lake, tmp_path: Path
    ) -> None:
        with pytest.raises(LaterRunError, match=said) as caught:
            self.told(lake, tmp_path, hour)
        assert "--timezone ZONE" in (caught.value.hint or "")
        assert "--attempt 1" in (caught.value.hint or "")
        assert {r["attempt"] for r in lake.read("steps", "j").to_pylist()} == {0}
        assert lake.row_counts()["steps"] == 40
        # A later run is stored as one, once that is said.
        log = tmp_path / "train.log"
        done = ingest_file(lake, "megatron", log, Options(job_id="j", attempt=1))
        assert done.accepted["steps"] == 10

    def test_a_watch_asks_as_well(self, lake: Lake, tmp_path: Path) -> None:
        with pytest.raises(LaterRunError):
            self.told(lake, tmp_path, 16)
        watch = Watch(lake, "megatron", tmp_path / "train.log", Options(job_id="j"))
        with pytest.raises(InputError, match="9 h behind"):
            list(watch.look(settled=True))
        watch.close()

    def test_with_a_zone_that_is_named_it_is_a_later_run(self, lake: Lake, tmp_path: Path) -> None:
        done = self.told(lake, tmp_path, 16, timezone="UTC")
        assert done.accepted["steps"] == 10
        assert any("it is stored as attempt 1" in note for note in done.notes)

    def test_with_its_zone_it_is_the_same_run(self, lake: Lake, tmp_path: Path) -> None:
        done = self.told(lake, tmp_path, 16, timezone="Asia/Tokyo")
        assert done.accepted["steps"] == 0
        assert done.conflicting == {"steps": 10}
        assert any("one run, of which two sources tell" in note for note in done.notes)
        assert any("taken as Asia/Tokyo" in note for note in done.notes)
        at = {r["step"]: r["at_us"] for r in lake.read("printed_metrics", "j").to_pylist()}
        assert at[1] == 1772348400 * US + 20 * US

    def test_a_zone_that_does_not_exist(self, lake: Lake, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no time zone 'Mars'"):
            self.told(lake, tmp_path, 16, timezone="Mars")


def seconds_of(data: dict[str, Any]) -> dict[str, float | None]:
    """GPU-seconds of a job by bucket, as its ledger has them."""
    (group,) = data["groups"]
    return {line["bucket"]: line["gpu_seconds"] for line in group["lines"]}


class TestRestartedJob:
    """The log of a job's second run, as a file of its own."""

    @pytest.fixture
    def logs(self, tmp_path: Path) -> tuple[Path, Path, Path]:
        first, second, both = (tmp_path / n for n in ("run1.log", "run2.log", "both.log"))
        first.write_text(run(1, 10, 7))
        second.write_text(run(8, 17, 9, slower=0.4))
        both.write_text(first.read_text() + second.read_text())
        return first, second, both

    def test_it_is_the_next_attempt_and_the_ledger_is_that_of_one_log(
        self, logs: tuple[Path, Path, Path], steptax: Steptax
    ) -> None:
        first, second, both = logs
        here = ("--world-size", 8)
        steptax("ingest", "megatron", both, "--job", "one", *here)
        steptax("ingest", "megatron", first, "--job", "two", *here)
        done = steptax("ingest", "megatron", second, "--job", "two", *here)
        assert done["tables"]["steps"] == {"accepted": 10, "rejected": 0, "stored_before": 0}
        steptax("ingest", "megatron", first, "--job", "three", *here)
        steptax("ingest", "megatron", second, "--job", "three", "--attempt", 1, *here)
        one, two, three = (
            seconds_of(steptax("ledger", "--job", job)) for job in ("one", "two", "three")
        )
        assert two == one
        assert three == one
        # Steps 8 to 10 of the first run, on 8 ranks, of about 19 s each.
        assert one["lost_work"] == pytest.approx(8 * 3 * 19.009, abs=0.5)
        assert one["recovery"] is not None
        assert one["recovery"] > 8 * 3600

    def test_a_grown_log_of_the_second_run_goes_on_in_its_attempt(
        self, logs: tuple[Path, Path, Path], lake: Lake, tmp_path: Path
    ) -> None:
        first, second, _ = logs
        options = Options(job_id="j")
        ingest_file(lake, "megatron", first, options)
        done = ingest_file(lake, "megatron", second, options)
        assert any("it is stored as attempt 1" in note for note in done.notes)
        assert any("run1.log" in note for note in done.notes)
        assert ingest_file(lake, "megatron", second, options).already
        second.write_text(run(8, 20, 9, slower=0.4))
        grown = ingest_file(lake, "megatron", second, options)
        assert grown.accepted["steps"] == 3
        assert grown.conflicting == {}
        found = sorted((r["attempt"], r["step"]) for r in lake.read("steps", "j").to_pylist())
        assert found == [(0, s) for s in range(1, 11)] + [(1, s) for s in range(8, 21)]
        # And a third run is the third attempt.
        third = tmp_path / "run3.log"
        third.write_text(run(19, 25, 11, slower=0.7))
        ingest_file(lake, "megatron", third, options)
        newest = {r["attempt"] for r in lake.read("steps", "j").to_pylist() if r["step"] > 20}
        assert newest == {2}

    def test_a_watch_of_it_says_what_to_do(self, logs: tuple[Path, Path, Path], lake: Lake) -> None:
        first, second, _ = logs
        for path, attempt in ((first, 0), (second, 1)):
            watch = Watch(lake, "megatron", path, Options(job_id="j", attempt=attempt))
            list(watch.look(settled=True))
            watch.close()
        assert lake.row_counts()["steps"] == 20
        wrong = Watch(lake, "megatron", second, Options(job_id="j"))
        with pytest.raises(InputError, match="tells steps 8 to 10 of job j again") as caught:
            list(wrong.look(settled=True))
        wrong.close()
        assert "--attempt 1" in (caught.value.hint or "")
        assert str(second) in (caught.value.where or "")
        assert lake.row_counts()["steps"] == 20

    def test_a_table_with_attempts_of_its_own_is_told_and_not_moved(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        head = "attempt,step,rank,duration_us,start_us\n"
        for name, ms, hour in (("a.csv", 10, 0), ("b.csv", 11, 1)):
            path = tmp_path / name
            path.write_text(
                head + "".join(f"0,{s},0,{ms}000,{hour * 3600 * US + s * US}\n" for s in (1, 2))
            )
            done = ingest_file(lake, "steps", path, Options(job_id="j"))
        assert done.conflicting == {"steps": 2}
        assert any(note.startswith("CONFLICT") for note in done.notes)


class TestOtherJobs:
    """Different jobs that nobody named, in files of the same name."""

    def test_logs_of_one_name_from_two_folders(self, steptax: Steptax, tmp_path: Path) -> None:
        a, b = (tmp_path / name / "train.log" for name in ("a", "b"))
        for path, hour in ((a, 7), (b, 9)):
            path.parent.mkdir()
            path.write_text(run(1, 10, hour, slower=hour))
        steptax("ingest", "megatron", a)
        error = steptax("ingest", "megatron", b, fails=2)
        assert error["where"] == str(b)
        assert str(a) in error["message"]
        assert "job train" in error["message"]
        assert "--job" in error["hint"]
        assert "--attempt 1" in error["hint"]
        done = steptax("ingest", "megatron", b, "--job", "other")
        assert done["tables"]["steps"]["accepted"] == 10

    def test_without_clocks_it_is_a_warning(
        self, steptax: Steptax, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a, b = (tmp_path / name / "train.log" for name in ("a", "b"))
        for path, ms in ((a, 100), (b, 200)):
            path.parent.mkdir()
            lines = [iteration(s, "07:00:00", ms=ms + s).split("] ")[1] for s in range(1, 6)]
            path.write_text("".join(lines))
        steptax("ingest", "megatron", a)
        done = steptax("ingest", "megatron", b)
        assert done["tables"]["steps"] == {
            "accepted": 0, "rejected": 0, "stored_before": 5, "conflicting": 5,
        }  # fmt: skip

    def test_two_trackers_of_one_name(
        self, shared: Callable[[str], Path], lake: Lake, tmp_path: Path
    ) -> None:
        first = shared("connectors/tensorboard/run0")
        (events,) = first.iterdir()
        ingest_file(lake, "tensorboard", events, Options())
        metrics = shared("connectors/mlflow/mlruns/0/run0/metrics/lm_loss")
        with pytest.raises(LaterRunError, match="of job run0 again") as caught:
            ingest_file(lake, "mlflow", metrics, Options())
        assert "tensorboard:" in caught.value.message
        assert str(metrics) == caught.value.where
        assert "--job" in (caught.value.hint or "")

    @pytest.mark.parametrize("by_folder", [False, True])
    def test_versions_of_lightning_carry_their_experiment(
        self, by_folder: bool, shared: Callable[[str], Path], steptax: Steptax, tmp_path: Path
    ) -> None:
        (events,) = shared("connectors/tensorboard/run0").iterdir()
        for name in ("expA/version_0", "expB/version_0", "expC/lightning_logs/version_0"):
            folder = tmp_path / name
            folder.mkdir(parents=True)
            shutil.copy(events, folder)
            where = folder.parent if by_folder else folder / events.name
            done = steptax("ingest", "tensorboard", where)
            assert done["job_ids"] == [name]

    def test_metrics_of_lightning_are_called_by_their_folder(
        self, steptax: Steptax, tmp_path: Path
    ) -> None:
        path = tmp_path / "expA" / "lightning_logs" / "version_3" / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text("step,train_loss\n1,2.5\n2,2.25\n")
        assert steptax("ingest", "lightning", path)["job_ids"] == ["expA/lightning_logs/version_3"]
