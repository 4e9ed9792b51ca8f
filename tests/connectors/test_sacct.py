"""Slurm's accounting: every job, every GPU-hour once, whatever the output looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
from steptax.connectors.schedulers.jobs_of_records import NoJobsError
from steptax.connectors.schedulers.slurm_values import duration_us, gpus_in, state_of

Shared = Callable[[str], Path]
HEAD = "JobID|JobName|User|Account|Partition|State|Submit|Start|End|Elapsed|AllocTRES\n"


class Read:
    """Everything that a source gave."""

    def __init__(self, path: Path, kind: str = "sacct", **extra: str) -> None:
        self.batches = list(connector(kind).read(path, Options(extra=extra)))
        self.jobs = {
            row["job_id"]: row
            for batch in self.batches
            if batch.table == "jobs"
            for row in batch.rows.to_pylist()
        }
        self.events = [r for b in self.batches if b.table == "events" for r in b.rows.to_pylist()]
        self.rejects = [r for b in self.batches for r in b.rejects]
        self.notes = [n for b in self.batches for n in b.notes]

    def hours(self) -> dict[str, float]:
        """GPU-hours by job, where known."""
        found = {job: row.get("gpu_hours") for job, row in self.jobs.items()}
        return {job: hours for job, hours in found.items() if hours is not None}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def write_and_read(text: str, **extra: str) -> Read:
        path = tmp_path / "sacct.txt"
        path.write_text(text)
        return Read(path, **extra)

    return write_and_read


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


def expected(folder: Path) -> dict[str, Any]:
    block = re.search(r"```json\n(.*?)```", (folder / "expected.md").read_text(), re.DOTALL)
    assert block is not None
    found: dict[str, Any] = json.loads(block[1])
    return found


class TestRealOutput:
    def test_a_separator_in_a_job_name_costs_no_job(self, shared: Shared) -> None:
        folder = shared("cases/11-sacct-pipe-in-jobname")
        want, got = expected(folder), Read(folder / "sacct.psv")
        assert not got.rejects
        assert got.hours() == want["gpu_hours"]
        assert {job: got.jobs[job]["name"] for job in want["names"]} == want["names"]
        assert sum(got.hours().values()) == want["total_gpu_hours"]
        assert f"{want['rows_repaired']} lines repaired: a name holds the separator" in got.notes
        failed = [r["gpu_hours"] for r in got.jobs.values() if r["state"] == "failed"]
        assert sum(failed) == want["failed_gpu_hours"]

    def test_typed_and_plain_devices_are_counted_once(self, shared: Shared) -> None:
        folder = shared("cases/12-sacct-typed-gres")
        want, got = expected(folder), Read(folder / "sacct.psv")
        unknown = want["flag_unknown"]
        known = {job: n for job, n in want["gpus"].items() if job not in unknown}
        assert {job: got.jobs[job]["world_size"] for job in known} == known
        assert [job for job, r in got.jobs.items() if r["world_size"] is None] == unknown
        assert sum(got.hours().values()) == want["gpu_hours_total"]
        assert any(note.startswith("2 jobs: in a GPU partition") for note in got.notes)
        assert got.jobs["8002"]["gpu_model"] == "h100"
        assert got.jobs["8003"]["gpu_model"] is None

    def test_odd_values_are_read(self, shared: Shared) -> None:
        folder = shared("cases/13-sacct-odd-values")
        want, got = expected(folder), Read(folder / "sacct.psv")
        assert not got.rejects
        assert len(got.jobs) == want["jobs"]
        assert got.hours() == pytest.approx(want["gpu_hours"], abs=1e-4)
        assert sum(got.hours().values()) == pytest.approx(want["total_gpu_hours"], abs=1e-4)
        assert {job: got.jobs[job]["state_detail"] for job in want["states"]} == want["states"]
        lost = {"failed", "timeout"}
        family = sum(r["gpu_hours"] for r in got.jobs.values() if r["state"] in lost)
        assert family == pytest.approx(want["failed_family_gpu_hours"], abs=1e-3)
        assert got.jobs["9003"]["end_us"] is None
        assert got.jobs["9002"]["start_us"] is None

    def test_the_output_that_xdmod_asks_for(self, shared: Shared) -> None:
        path = shared("fleet/xdmod_phillips_sacct.psv")
        got = Read(path)
        rows = [line.split("|") for line in path.read_text().splitlines()]
        assert len(got.jobs) == len(rows) == 4285
        assert not got.rejects
        assert sum(got.hours().values()) == pytest.approx(506.91, abs=0.005)
        states = [row[16].split()[0] for row in rows]
        for state, count in (("COMPLETED", 2324), ("FAILED", 1717), ("CANCELLED", 243)):
            assert states.count(state) == count
            assert sum(r["state_detail"] == state for r in got.jobs.values()) == count
        first = got.jobs["163485"]
        assert first["start_us"] == us(2016, 12, 22, 7, 15, 13)
        assert first["end_us"] == us(2017, 1, 1, 20, 42, 19)
        assert (first["world_size"], first["owner"], first["account"], first["cluster"]) == (
            2,
            "noror",
            "chaff",
            "phillips",
        )
        assert first["gpu_hours"] == pytest.approx(2 * (10 * 24 + 13 + 27 / 60 + 6 / 3600))

    def test_its_head_alone(self, shared: Shared) -> None:
        got = Read(shared("connectors/slurm_sacct/xdmod_phillips_noheader_26cols.txt"))
        assert len(got.jobs) == 250
        assert sum(got.hours().values()) == pytest.approx(506.9033, abs=1e-4)

    def test_offsets_hold_without_a_header(self, shared: Shared) -> None:
        got = Read(shared("connectors/slurm_sacct/ceems_18cols_tz_offset.txt"))
        assert not got.rejects
        job = got.jobs["1479763"]
        assert job["start_us"] == us(2022, 2, 21, 13, 37, 7)
        assert job["end_us"] == us(2022, 2, 21, 14, 26, 29)
        assert job["gpu_hours"] == pytest.approx(8 * (49 * 60 + 22) / 3600)
        assert got.jobs["1481508"]["world_size"] == 0
        running = [r for r in got.jobs.values() if r["state"] == "running"]
        assert all(r["end_us"] is None for r in running)

    def test_devices_are_the_total_of_the_job(self, shared: Shared) -> None:
        got = Read(shared("connectors/slurm_sacct/header_gpu8_three_jobs.txt"))
        seconds = {"45969297": 8624, "46050285": 6969, "45985946": 59}
        assert got.hours() == pytest.approx({job: 8 * s / 3600 for job, s in seconds.items()})

    def test_a_lone_step_without_a_header(self, shared: Shared) -> None:
        got = Read(shared("connectors/slurm_sacct/typed_and_untyped_gpu.txt"))
        job = got.jobs["140846"]
        assert (job["world_size"], job["gpu_model"], job["state"]) == (8, "mi210", "failed")
        assert job["gpu_hours"] == pytest.approx(8 * 363 / 3600)

    def test_the_answer_of_slurmrestd(self, shared: Shared) -> None:
        path = shared("connectors/slurm_rest/jobs.json")
        want = json.loads(path.read_text())["jobs"]
        got = Read(path, "slurm-rest")
        assert set(got.jobs) == {str(job["job_id"]) for job in want}
        for job in want:
            row = got.jobs[str(job["job_id"])]
            assert row["start_us"] == (job["start_time"] or 0) * 1_000_000
            assert row["owner"] == job["user_name"]
            assert row["state_detail"] == job["job_state"]
            assert row["world_size"] == 0
            assert row["gpu_hours"] == 0
        assert {r["end_us"] for r in got.jobs.values() if r["state"] == "running"} == {None}

    def test_an_error_is_no_cluster_without_jobs(self, tmp_path: Path) -> None:
        told = [{"error": "Authentication failure", "error_number": 5005}]
        with pytest.raises(InputError, match="Authentication failure") as caught:
            rest(tmp_path, [], errors=told)
        assert not isinstance(caught.value, NoJobsError)
        with pytest.raises(NoJobsError):
            rest(tmp_path, [])
        got = rest(tmp_path, [{"job_id": 7, **self.RAN}], errors=told)
        assert got.hours() == {"7": 4.0}
        assert any("jobs may be missing: Authentication failure" in note for note in got.notes)

    #: Two devices over two hours.
    RAN: ClassVar = {"start_time": 3600, "end_time": 10800, "tres_alloc_str": "gres/gpu=2"}

    def test_a_job_without_times_is_unknown(self, tmp_path: Path) -> None:
        never = {"job_id": 8, "job_state": ["CANCELLED"], "start_time": {"set": False}}
        got = rest(tmp_path, [{"job_id": 7, "name": "x"}, never])
        assert got.jobs["7"]["gpu_hours"] is None
        assert got.jobs["8"]["gpu_hours"] == 0
        assert got.notes == ["1 job: how long it ran is not told: GPU-hours unknown"]

    def test_a_state_that_is_not_listed(self, tmp_path: Path) -> None:
        ended = {"job_id": 7, "job_state": ["WEIRD"], **self.RAN}
        got = rest(tmp_path, [ended, {**ended, "job_id": 8, "end_time": 9_000_000}])
        # What is to come is what its limit allows: it may run or not.
        assert {k: r["gpu_hours"] for k, r in got.jobs.items()} == {"7": 4.0, "8": None}
        assert {r.get("state") for r in got.jobs.values()} == {None}
        assert "2 jobs: state 'WEIRD' is not one we know: unknown" in got.notes
        assert not got.rejects


def rest(tmp_path: Path, jobs: list[dict[str, Any]], **more: Any) -> Read:
    path = tmp_path / "jobs.json"
    answer = {"last_update": {"set": True, "number": 20_000}, "jobs": jobs}
    path.write_text(json.dumps(answer | more))
    return Read(path, "slurm-rest")


class TestLayouts:
    LINE = (
        "7|a b|ann|00077|gpu|COMPLETED|2025-03-03T00:00:00|2025-03-03T01:00:00|"
        "2025-03-03T03:00:00|02:00:00|gres/gpu=8"
    )

    @pytest.mark.parametrize("mark", ["|", "\t", ";", "^", "~~", "%%", ",", "\x1f", "\x01", "||"])
    def test_any_separator(self, read: Callable[..., Read], mark: str) -> None:
        got = read((HEAD + self.LINE + "\n").replace("|", mark))
        assert got.hours() == {"7": 16.0}
        assert got.jobs["7"]["name"] == "a b"
        assert got.jobs["7"]["account"] == "00077"

    def test_parsable_ends_lines_with_the_separator(self, read: Callable[..., Read]) -> None:
        text = HEAD.replace("\n", "|\n") + self.LINE + "|\n"
        text += self.LINE.replace("7|a b", "8|x|y").replace("gres/gpu=8", "") + "\n"
        got = read(text)
        assert got.hours()["7"] == 16.0
        assert got.jobs["8"]["name"] == "x|y"
        assert not got.rejects

    @pytest.mark.parametrize("mark", ["|", "\t", "\x1f", ";", "^"])
    def test_any_separator_without_a_header(self, read: Callable[..., Read], mark: str) -> None:
        got = read((self.LINE + "\n").replace("|", mark))
        assert got.hours() == {"7": 16.0}
        assert got.jobs["7"]["start_us"] == us(2025, 3, 3, 1)

    def test_a_separator_that_values_hold_is_told(self, read: Callable[..., Read]) -> None:
        text = (HEAD + self.LINE).replace("|", ",")
        got = read(f"{text},cpu=8\n{text.splitlines()[1]}\n")
        assert got.hours() == {"7": 16.0}
        assert [(r.row, r.field) for r in got.rejects] == [(2, "line")]

    @pytest.mark.parametrize(
        ("start", "end"),
        [
            ("2025-03-03T01:00:00", "2025-03-03T03:00:00"),
            ("2025-03-03 01:00:00", "2025-03-03 03:00:00"),
            ("2025-03-03T01:00:00Z", "2025-03-03T03:00:00Z"),
            ("2025-03-03T02:00:00+0100", "2025-03-03T04:00:00+01:00"),
            ("1740963600", "1740970800"),
        ],
    )
    def test_times_in_any_format(self, read: Callable[..., Read], start: str, end: str) -> None:
        line = self.LINE.replace("2025-03-03T01:00:00", start).replace("2025-03-03T03:00:00", end)
        job = read(f"{HEAD}{line}\n").jobs["7"]
        assert (job["start_us"], job["end_us"]) == (us(2025, 3, 3, 1), us(2025, 3, 3, 3))

    @pytest.mark.parametrize("never", ["Unknown", "None", "", "0", "1970-01-01T01:00:00"])
    def test_a_job_that_never_started_held_nothing(
        self, read: Callable[..., Read], never: str
    ) -> None:
        got = read(
            f"{HEAD}7|n|ann|a|gpu|CANCELLED by 1001|2025-03-03T00:00:00|{never}|"
            "2025-03-03T03:00:00|00:00:00|\n"
        )
        assert got.hours() == {"7": 0.0}
        assert (got.jobs["7"]["state"], got.jobs["7"].get("start_us")) == ("cancelled", None)

    @pytest.mark.parametrize(
        ("elapsed", "hours"),
        [
            ("02:00:00", 16.0), ("1-02:00:00", 208.0), ("30:00.500", 4.0011), ("7200", 16.0),
            ("UNLIMITED", 16.0), ("INVALID", 16.0), ("", 16.0),
        ],
    )  # fmt: skip
    def test_run_times_in_any_format(
        self, read: Callable[..., Read], elapsed: str, hours: float
    ) -> None:
        got = read(f"{HEAD}{self.LINE.replace('02:00:00|gres', f'{elapsed}|gres')}\n")
        assert got.hours() == pytest.approx({"7": hours}, abs=1e-4)

    def test_columns_of_fixed_width(self, read: Callable[..., Read]) -> None:
        got = read(
            "JobID           State    Elapsed            AllocTRES \n"
            "------------ -------- ---------- -------------------- \n"
            "71           CANCELL+   02:00:00 gres/gpu=8           \n"
            "71.batch     CANCELL+   02:00:00 gres/gpu=8           \n"
        )
        assert got.hours() == {"71": 16.0}
        assert got.jobs["71"]["state_detail"] == "CANCELLED"
        assert any("fixed width" in note for note in got.notes)

    def test_outputs_one_behind_the_other(self, read: Callable[..., Read]) -> None:
        got = read(HEAD + self.LINE + "\n" + HEAD + self.LINE + "\n")
        assert got.hours() == {"7": 16.0}
        assert any("told twice" in note for note in got.notes)

    def test_what_is_not_clear_is_rejected_and_told(self, read: Callable[..., Read]) -> None:
        got = read(HEAD + self.LINE + "\n8|x|FAILED\nnine|" + self.LINE[2:] + "\n")
        assert [(r.row, r.field) for r in got.rejects] == [(3, "line"), (4, "jobid")]
        assert "11 fields, found 3" in got.rejects[0].reason
        assert list(got.jobs) == ["7"]

    @pytest.mark.parametrize("text", ["hello\n", "a,b\n1,2\n", HEAD, "7 8 9\n"])
    def test_what_is_no_accounting_is_refused(self, read: Callable[..., Read], text: str) -> None:
        with pytest.raises(InputError) as caught:
            read(text)
        assert caught.value.hint


class TestJobs:
    def line(self, job: str, start: str, end: str, elapsed: str, state: str = "COMPLETED") -> str:
        return f"{job}|n|ann|a|gpu|{state}|{start}|{start}|{end}|{elapsed}|gres/gpu=4\n"

    def test_runs_of_a_requeued_job_are_attempts(self, read: Callable[..., Read]) -> None:
        got = read(
            HEAD
            + self.line("5", "2025-03-01T04:00:00", "2025-03-01T06:00:00", "02:00:00")
            + self.line("5", "2025-03-01T00:00:00", "2025-03-01T01:00:00", "01:00:00", "NODE_FAIL")
            + self.line("5", "2025-03-01T02:00:00", "2025-03-01T03:00:00", "01:00:00", "PREEMPTED")
        )
        assert got.hours() == {"5": 16.0}
        job = got.jobs["5"]
        assert (job["state"], job["start_us"]) == ("completed", us(2025, 3, 1))
        assert job["end_us"] == us(2025, 3, 1, 6)
        told = [(e["attempt"], e["kind"], e["start_us"]) for e in got.events]
        assert told == [
            (0, "allocated", us(2025, 3, 1)),
            (0, "failure", us(2025, 3, 1, 1)),
            (0, "process_end", us(2025, 3, 1, 1)),
            (1, "allocated", us(2025, 3, 1, 2)),
            (1, "evict", us(2025, 3, 1, 3)),
            (1, "process_end", us(2025, 3, 1, 3)),
            (2, "allocated", us(2025, 3, 1, 4)),
            (2, "process_end", us(2025, 3, 1, 6)),
        ]

    def test_a_later_export_knows_the_end(self, read: Callable[..., Read]) -> None:
        over = self.line("5", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
        runs = self.line("5", "2025-03-01T00:00:00", "Unknown", "01:00:00", "RUNNING")
        for text in (runs + over, over + runs):
            got = read(HEAD + text)
            assert got.hours() == {"5": 8.0}
            assert got.jobs["5"]["state"] == "completed"

    def test_steps_are_no_jobs(self, read: Callable[..., Read]) -> None:
        span = ("2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
        ids = ("5", "5.batch", "5.extern", "5.0", "5.interactive", "6_1", "6_1.batch", "6_1.12")
        got = read(HEAD + "".join(self.line(job, *span) for job in ids))
        assert got.hours() == {"5": 8.0, "6_1": 8.0}

    def test_slices_of_a_device_are_not_whole_ones(self, read: Callable[..., Read]) -> None:
        line = self.line("5", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
        sliced = line.replace("gres/gpu=4", "gres/gpu:3g.20gb=4,gres/gpu=4").replace("|gpu|", "|q|")
        got = read(HEAD + sliced)
        assert got.hours() == {}
        assert got.jobs["5"].get("world_size") is None
        assert any("MIG slices were held" in note for note in got.notes)

    def test_parts_of_a_heterogeneous_job_are_added(self, read: Callable[..., Read]) -> None:
        got = read(
            HEAD
            + self.line("9+0", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
            + self.line("9+1", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
            + self.line("9+1.0", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
        )
        assert got.hours() == {"9": 16.0}
        assert got.jobs["9"]["world_size"] == 8

    def test_tasks_of_an_array_are_jobs(self, read: Callable[..., Read]) -> None:
        one = self.line("5_1", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00")
        rest = "5_[2-9%4]|n|ann|a|gpu|PENDING|2025-03-01T00:00:00|Unknown|Unknown|00:00:00|\n"
        got = read(HEAD + one + rest)
        assert got.hours() == {"5_1": 8.0} | {f"5_{task}": 0.0 for task in range(2, 10)}

    def test_the_same_id_on_two_clusters(self, read: Callable[..., Read]) -> None:
        head = "JobID|Cluster|State|Elapsed|AllocTRES\n"
        got = read(head + "5|a|FAILED|01:00:00|gres/gpu=1\n5|b|FAILED|01:00:00|gres/gpu=2\n")
        assert got.hours() == {"5@a": 1.0, "5@b": 2.0}

    def test_local_times_over_the_end_of_summer_time(self, read: Callable[..., Read]) -> None:
        # 02:30 comes twice on that night in Berlin; the elapsed time tells which one it was.
        short = self.line("1", "2025-10-26T01:30:00", "2025-10-26T02:30:00", "01:00:00")
        long = self.line("2", "2025-10-26T01:30:00", "2025-10-26T02:30:00", "02:00:00")
        late = self.line("3", "2025-10-26T02:30:00", "2025-10-26T03:30:00", "01:00:00")
        got = read(HEAD + short + long + late, timezone="Europe/Berlin")
        assert [got.jobs[k]["start_us"] for k in "123"] == [
            us(2025, 10, 25, 23, 30),
            us(2025, 10, 25, 23, 30),
            us(2025, 10, 26, 1, 30),
        ]
        assert [got.jobs[k]["end_us"] for k in "123"] == [
            us(2025, 10, 26, 0, 30),
            us(2025, 10, 26, 1, 30),
            us(2025, 10, 26, 2, 30),
        ]
        assert not any("without a zone" in note for note in got.notes)

    def test_a_state_that_is_not_listed(self, read: Callable[..., Read]) -> None:
        line = self.line("5", "2025-03-01T00:00:00", "2025-03-01T02:00:00", "02:00:00", "WEIRD")
        got = read(HEAD + line)
        assert got.hours() == {"5": 8.0}
        assert (got.jobs["5"].get("state"), got.jobs["5"]["state_detail"]) == (None, "WEIRD")
        assert got.notes[-1] == "1 job: state 'WEIRD' is not one we know: unknown"
        assert not got.rejects

    def test_a_moved_field_is_no_state(self, read: Callable[..., Read]) -> None:
        # A name with a separator and an empty last field: as wide as a line that ends with one.
        head = "JobID|Elapsed|AllocTRES|JobName|State|Comment\n"
        got = read(head + "5|02:00:00|gres/gpu=1|a|b|FAILED|\n6|02:00:00|gres/gpu=1|a|ODD||\n")
        assert (got.jobs["5"]["name"], got.jobs["5"]["state"]) == ("a|b", "failed")
        assert (got.jobs["6"]["name"], got.jobs["6"]["state_detail"]) == ("a", "ODD")

    def test_a_zone_that_does_not_exist(self, read: Callable[..., Read]) -> None:
        with pytest.raises(InputError, match="no time zone 'Mars'"):
            read(HEAD + TestLayouts.LINE, timezone="Mars")


@given(
    days=st.integers(0, 400),
    hours=st.integers(0, 23),
    minutes=st.integers(0, 59),
    seconds=st.integers(0, 59),
)
def test_durations_come_back(days: int, hours: int, minutes: int, seconds: int) -> None:
    want = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000
    assert duration_us(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == want
    assert duration_us(str(want // 1_000_000)) == want


@given(st.dictionaries(st.sampled_from(["a100", "h100", "mi210"]), st.integers(1, 64)))
def test_typed_devices_never_add_to_the_total(typed: dict[str, int]) -> None:
    items = [f"gres/gpu:{model}={n}" for model, n in typed.items()]
    total = sum(typed.values())
    assert gpus_in(",".join(items)).count == (total if typed else None)
    assert gpus_in(",".join([*items, f"gres/gpu={total}"])).count == total
    assert gpus_in(",".join([*items, "gres/gpu=0"])).count == 0


def test_states_are_those_of_slurm() -> None:
    assert state_of("CANCELLED by 1001") == ("cancelled", "CANCELLED")
    assert state_of("CANCELLED+") == ("cancelled", "CANCELLED")
    assert state_of("NF") == ("failed", "NODE_FAIL")
    assert state_of("gpu")[0] is None
