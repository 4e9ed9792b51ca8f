"""Following Slurm's accounting: every job once it is known, over outages, hangs and restarts."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests

from steptax.app.errors import InputError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.unheard import unheard
from steptax.app.watch import Refused, Stored, Told
from steptax.app.watch_slurm import OVERLAP_S, REFRESH_S, SlurmWatch
from steptax.connectors.base import Options
from steptax.connectors.schedulers.accounting import SacctCommand, SlurmServer, StoppedError

Shared = Callable[[str], Path]
FAKE = Path(__file__).parent / "fake_sacct.py"
DAY = timedelta(days=1)
BEGIN = datetime(2016, 12, 22, tzinfo=UTC)
END = datetime(2017, 1, 2, 12, tzinfo=UTC)


@dataclass
class Slurm:
    """A cluster whose ``sacct`` is on PATH, and the time there."""

    folder: Path
    now: datetime = BEGIN
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = Lake(self.folder / "lake", create=True)
        self.mode("well")
        self.at(self.now)

    def jobs(self, *lines: str) -> None:
        (self.folder / "jobs.psv").write_text("".join(f"{line}\n" for line in lines))

    def at(self, when: datetime) -> Slurm:
        self.now = when
        (self.folder / "now").write_text(f"{when:%Y-%m-%dT%H:%M:%S}")
        return self

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def watch(self, *, first: datetime | None = BEGIN, **given: Any) -> SlurmWatch:
        zone = given.get("zone")
        return SlurmWatch(
            self.lake,
            SacctCommand(**given),
            Options(extra={"timezone": zone} if zone else {}),
            None if first is None else us(first),
            clock=lambda: self.now.timestamp(),
        )

    def calls(self) -> list[list[str]]:
        """What ``sacct`` was asked since the last time."""
        path = self.folder / "calls"
        found = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("")
        return found

    def stored(self) -> dict[str, dict[str, Any]]:
        return {row["job_id"]: row for row in self.lake.read("jobs").to_pylist()}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    program = tmp_path / "bin" / "sacct"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {FAKE} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SACCT", str(tmp_path))
    return Slurm(tmp_path)


def look(slurm: Slurm, when: datetime, watch: SlurmWatch) -> list[Stored | Refused | Told]:
    slurm.at(when)
    return list(watch.look())


def us(when: datetime) -> int:
    return int(when.timestamp()) * 1_000_000


def line(job: str, start: datetime, end: datetime, **given: str) -> str:
    """A run of a job as sacct prints it with the 26 fields that Open XDMoD asks for."""
    took = int((end - start).total_seconds())
    at = {name: f"{when:%Y-%m-%dT%H:%M:%S}" for name, when in (("start", start), ("end", end))}
    name, state, gpus = (
        given.get("name", "n"),
        given.get("state", "COMPLETED"),
        given.get("gpus", 8),
    )
    submit = given.get("submit", at["start"])
    return (
        f"{job}|{job}|east|gpu|normal|00077|g|1|ann|1|{submit}|{submit}|{at['start']}|{at['end']}|"
        f"{took}|0:0|{state}|1|8|8|1G|cpu=8|cpu=8,gres/gpu={gpus},node=1|1-00:00:00|n1|{name}"
    )


def hours(rows: dict[str, dict[str, Any]]) -> float:
    return sum(row["gpu_hours"] or 0.0 for row in rows.values())


def test_a_cluster_is_followed_from_look_to_look(slurm: Slurm, shared: Shared) -> None:
    slurm.jobs(*shared("fleet/xdmod_phillips_sacct.psv").read_text().splitlines())
    one = slurm.watch()
    list(one.look())
    running = []
    for when in (BEGIN + 2 * DAY, BEGIN + 5 * DAY, BEGIN + 8 * DAY + timedelta(hours=7)):
        slurm.at(when)
        list(one.look())
        running.append(slurm.stored()["163485"])
    # It holds two devices from 22 December to 1 January.
    start = datetime(2016, 12, 22, 7, 15, 13, tzinfo=UTC)
    for row, when in zip(
        running,
        (BEGIN + 2 * DAY, BEGIN + 5 * DAY, BEGIN + 8 * DAY + timedelta(hours=7)),
        strict=True,
    ):
        assert (row["state"], row["end_us"]) == ("running", None)
        held_h = (when - start).total_seconds() / 3600
        assert row["gpu_hours"] == pytest.approx(2 * held_h)
    # Another process goes on, and catches up in parts of a day.
    slurm.calls()
    slurm.at(END)
    list(slurm.watch(first=None).look())
    asked = slurm.calls()
    assert len(asked) == 4
    stored = slurm.stored()
    assert len(stored) == 4285
    assert hours(stored) == pytest.approx(506.91, abs=0.005)
    assert stored["163485"]["state"] == "cancelled"
    assert stored["163485"]["end_us"] == us(datetime(2017, 1, 1, 20, 42, 19, tzinfo=UTC))
    assert {row["state"] for row in stored.values()} == {
        "cancelled", "completed", "failed", "timeout",
    }  # fmt: skip
    # There is nothing new after that, and nothing is stored again.
    commits = len(slurm.lake.commits.all())
    slurm.at(END + timedelta(minutes=1))
    assert not list(slurm.watch(first=None).look())
    assert len(slurm.lake.commits.all()) == commits


def test_what_sacct_is_asked(slurm: Slurm) -> None:
    slurm.jobs(line("1", BEGIN, BEGIN + DAY))
    watch = slurm.at(BEGIN + timedelta(hours=3)).watch()
    list(watch.look())
    (first,) = slurm.calls()
    assert first[:4] == ["--allusers", "--allocations", "--duplicates", "--parsable2"]
    assert first[6:] == ["--starttime", "2016-12-22T00:00:00", "--endtime", "2016-12-22T03:00:00"]
    slurm.at(BEGIN + timedelta(hours=4))
    list(watch.look())
    (second,) = slurm.calls()
    assert OVERLAP_S == 900
    assert second[6:] == ["--starttime", "2016-12-22T02:45:00", "--endtime", "2016-12-22T04:00:00"]


def test_hours_of_a_running_job_are_not_stored_at_every_look(slurm: Slurm) -> None:
    slurm.jobs(line("1", BEGIN, BEGIN + DAY))
    watch = slurm.at(BEGIN + timedelta(hours=1)).watch()
    found = []
    for minutes in range(11):
        slurm.at(BEGIN + timedelta(hours=1, minutes=minutes))
        found.append(len(list(watch.look())))
    assert REFRESH_S == 300
    assert found == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert slurm.stored()["1"]["gpu_hours"] == pytest.approx(8 * 70 / 60)


def test_a_job_whose_end_is_told_late_is_asked_for_by_its_id(slurm: Slurm) -> None:
    slurm.jobs(line("1", BEGIN, BEGIN + 9 * DAY))
    watch = slurm.at(BEGIN + timedelta(hours=2)).watch()
    list(watch.look())
    # The record says now that it ended before the window of this look.
    slurm.jobs(line("1", BEGIN, BEGIN + timedelta(hours=1)))
    slurm.calls()
    list(slurm.at(BEGIN + timedelta(hours=5)).watch(first=None).look())
    assert [call[6:] for call in slurm.calls()][1:] == [["--jobs", "1"]]
    assert slurm.stored()["1"]["state"] == "completed"
    assert slurm.stored()["1"]["gpu_hours"] == 8.0


def test_a_job_that_accounting_has_lost_is_asked_for_once(slurm: Slurm) -> None:
    slurm.jobs(line("1", BEGIN, BEGIN + 9 * DAY))
    watch = slurm.at(BEGIN + timedelta(hours=2)).watch()
    list(watch.look())
    slurm.jobs()
    slurm.calls()
    for more in (1, 2):
        slurm.at(BEGIN + timedelta(hours=2 + more))
        assert not list(watch.look())
    assert [call[6] for call in slurm.calls()] == ["--starttime", "--jobs", "--starttime"]
    assert slurm.stored()["1"]["state"] == "running"


def test_runs_of_a_requeued_job_count_even_if_they_lie_days_back(slurm: Slurm) -> None:
    first = line("1", BEGIN, BEGIN + timedelta(hours=10), state="NODE_FAIL")
    again = BEGIN + 3 * DAY
    submit = f"{BEGIN + timedelta(hours=10):%Y-%m-%dT%H:%M:%S}"
    slurm.jobs(first, line("1", again, again + timedelta(hours=5), submit=submit))
    watch = slurm.watch()
    states = []
    for when in (BEGIN + timedelta(hours=2), BEGIN + timedelta(hours=11), BEGIN + 2 * DAY):
        look(slurm, when, watch)
        states.append(slurm.stored()["1"]["state"])
    assert states == ["running", "pending", "pending"]
    look(slurm, again + timedelta(hours=6), slurm.watch(first=None))
    job = slurm.stored()["1"]
    assert (job["state"], job["gpu_hours"]) == ("completed", 120.0)
    assert (job["start_us"], job["end_us"]) == (us(BEGIN), us(again + timedelta(hours=5)))
    told = [(e["attempt"], e["kind"]) for e in slurm.lake.read("events", "1").to_pylist()]
    assert sorted(told) == [
        (0, "allocated"), (0, "failure"), (0, "process_end"), (1, "allocated"), (1, "process_end"),
    ]  # fmt: skip


def test_what_is_remembered_does_not_grow_with_the_cluster(slurm: Slurm) -> None:
    slurm.jobs(*(line(str(i), BEGIN + i * DAY / 2, BEGIN + (i + 1) * DAY / 2) for i in range(20)))
    watch = slurm.watch()
    for days in range(1, 11):
        look(slurm, BEGIN + days * DAY, watch)
    assert len(slurm.stored()) == 20
    assert len(watch._known) < 6
    assert slurm.watch(first=None)._known.keys() == watch._known.keys()


def test_what_did_not_change_is_not_stored_again(slurm: Slurm, tmp_path: Path) -> None:
    """Accounting that also tells of jobs from before the window, and of runs of a requeued one."""
    program = tmp_path / "bin" / "sacct"
    head = "JobID|State|Submit|Start|End|Elapsed|AllocTRES|NodeList"
    lines = [
        "1|COMPLETED|2016-11-01T00:00:00|2016-11-01T00:00:00|2016-11-01T01:00:00|01:00:00|gres/gpu=2|n1",
        "2|REQUEUED|2016-12-22T00:00:00|2016-12-22T00:00:00|2016-12-22T01:00:00|01:00:00|gres/gpu=8|n2",
        "2|COMPLETED|2016-12-22T01:00:00|2016-12-22T01:00:00|2016-12-22T02:00:00|01:00:00|gres/gpu=8|n2",
        "3_[1-2]|PENDING|2016-12-22T00:00:00|Unknown|Unknown|00:00:00||None assigned",
    ]
    program.write_text("#!/bin/sh\ncat <<EOF\n" + "\n".join((head, *lines)) + "\nEOF\n")
    watch = slurm.watch(first=None)
    (stored,) = look(slurm, BEGIN + timedelta(hours=3), watch)
    assert isinstance(stored, Stored)
    assert stored.result.accepted == {"jobs": 4, "events": 4}
    for minutes in (1, 2, 30):
        assert not look(slurm, BEGIN + timedelta(hours=3, minutes=minutes), watch)
    assert slurm.stored()["2"]["hosts"] == "n2"
    # Nor by another process, which remembers nothing of jobs that ended long ago; what is told
    # late and was never stored is.
    commits = len(slurm.lake.commits.all())
    assert not look(slurm, BEGIN + timedelta(hours=4), slurm.watch(first=None))
    assert len(slurm.lake.commits.all()) == commits
    late = lines[0].replace("1|COMPLETED", "7|COMPLETED")
    program.write_text("#!/bin/sh\ncat <<EOF\n" + "\n".join((head, *lines, late)) + "\nEOF\n")
    (stored,) = look(slurm, BEGIN + timedelta(hours=5), slurm.watch(first=None))
    assert isinstance(stored, Stored)
    assert stored.result.accepted["jobs"] == 1


def test_tasks_that_wait_are_jobs_and_names_may_hold_separators(slurm: Slurm) -> None:
    waits = line("5_[3-9%2]", BEGIN + DAY, BEGIN + 2 * DAY, submit="2016-12-22T00:00:00")
    slurm.jobs(line("5_2", BEGIN, BEGIN + timedelta(hours=1), name="lr=1|wd=2"), waits)
    (stored,) = slurm.at(BEGIN + timedelta(hours=2)).watch().look()
    assert isinstance(stored, Stored)
    assert sorted(slurm.stored()) == [f"5_{task}" for task in range(2, 10)]
    assert {slurm.stored()[f"5_{task}"]["state"] for task in range(3, 10)} == {"pending"}
    assert slurm.stored()["5_2"]["name"] == "lr=1|wd=2"
    # One of them begins: it is the job of its name, and no other one.
    begins = line("5_3", BEGIN + timedelta(hours=2), BEGIN + DAY, submit="2016-12-22T00:00:00")
    slurm.jobs(begins, waits.replace("5_[3-9%2]", "5_[4-9%2]"))
    list(slurm.at(BEGIN + timedelta(hours=3)).watch().look())
    assert {job: row["state"] for job, row in slurm.stored().items()} == {
        "5_2": "completed",
        "5_3": "running",
        **{f"5_{task}": "pending" for task in range(4, 10)},
    }


@pytest.mark.parametrize(
    "night", [datetime(2025, 10, 25, 22, tzinfo=UTC), datetime(2025, 3, 29, 22, tzinfo=UTC)]
)
@pytest.mark.parametrize("hidden", [False, True])
def test_nights_of_the_clock_change(slurm: Slurm, night: datetime, *, hidden: bool) -> None:
    """A cluster in Berlin whose ``sacct`` prints an offset, or hides it."""
    runs = [
        (night + timedelta(minutes=30 * i), night + timedelta(minutes=30 * i + 60))
        for i in range(12)
    ]
    slurm.jobs(*(line(str(i), start, end) for i, (start, end) in enumerate(runs)))
    slurm.mode("zone Europe/Berlin" if hidden else "well")
    zone = "Europe/Berlin" if hidden else None
    watch = slurm.at(night).watch(first=night - DAY, zone=zone)
    for minutes in range(0, 600, 50):
        slurm.at(night + timedelta(minutes=minutes))
        list(watch.look())
    stored = slurm.stored()
    ambiguous = 0
    for i, (start, end) in enumerate(runs):
        job = stored[str(i)]
        assert job["gpu_hours"] == pytest.approx(8.0)
        # A start and an end that both fall into the hour that comes twice are told apart by nobody.
        exact = (job["start_us"], job["end_us"]) == (us(start), us(end))
        ambiguous += not exact
    assert ambiguous <= (1 if hidden else 0)


class TestFaults:
    @pytest.mark.parametrize(
        ("mode", "said"),
        [
            ("fail", "fails with code 1: sacct: error: slurm_persist_conn"),
            ("complain", "fails with code 0: sacct: error: Problem talking"),
            ("hang", "has not ended after 0.5 s and was killed"),
            ("garbage", "is no output of sacct"),
        ],
    )
    def test_it_is_told_once_and_caught_up_with(self, slurm: Slurm, mode: str, said: str) -> None:
        slurm.jobs(
            *(line(str(i), BEGIN + i * DAY / 4, BEGIN + (i + 1) * DAY / 4) for i in range(9))
        )
        watch = slurm.at(BEGIN + timedelta(hours=1)).watch(timeout_s=0.5 if mode == "hang" else 60)
        if mode != "hang":
            list(watch.look())
        slurm.mode(mode)
        told = []
        for i in range(3):
            slurm.at(BEGIN + DAY + timedelta(minutes=i))
            told += list(watch.look())
        (refused,) = told
        assert isinstance(refused, Refused)
        assert said in refused.error.message
        assert refused.error.where == "sacct"
        assert refused.error.hint
        (note,) = unheard(slurm.lake)
        assert (note.source, note.since_us) == ("slurm:sacct", us(BEGIN + DAY))
        assert said in note.error
        with pytest.raises(InputError, match="sacct"):
            list(watch.look(settled=True))
        slurm.mode("well")
        watch.accounting = SacctCommand()
        slurm.at(BEGIN + 3 * DAY)
        back = list(watch.look())
        assert isinstance(back[0], Told)
        assert "answers again after 172," in back[0].notes[0]
        assert not unheard(slurm.lake)
        assert {j: r["gpu_hours"] for j, r in slurm.stored().items()} == {
            str(i): 48.0 for i in range(9)
        }

    def test_no_sacct_at_all(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        (refused,) = look(slurm, BEGIN + DAY, slurm.watch())
        assert isinstance(refused, Refused)
        assert "cannot be run: No such file" in refused.error.message
        assert "on PATH" in (refused.error.hint or "")

    def test_nothing_of_a_hanging_sacct_is_left(self, slurm: Slurm, tmp_path: Path) -> None:
        # A wrapper whose child holds our pipes.
        (tmp_path / "bin" / "sacct").write_text(
            "#!/bin/sh\nsleep 600 & echo $! > $FAKE_SACCT/pid; wait\n"
        )
        with pytest.raises(InputError, match="killed"):
            SacctCommand(timeout_s=1).jobs(["1"], tmp_path / "answer")
        child = int((tmp_path / "pid").read_text())
        for _ in range(200):
            state = Path(f"/proc/{child}/stat")
            if not state.exists() or state.read_text().split()[2] == "Z":
                return
            time.sleep(0.05)
        pytest.fail("the wrapper's child goes on")

    def test_who_waits_can_stop(self, slurm: Slurm, tmp_path: Path) -> None:
        slurm.mode("hang")
        with pytest.raises(StoppedError):
            SacctCommand(stop=lambda: True).jobs(["1"], tmp_path / "answer")
        watch = slurm.at(BEGIN + DAY).watch(stop=lambda: True)
        assert not list(watch.look())

    def test_a_line_that_cannot_be_read_is_told_once(self, slurm: Slurm) -> None:
        slurm.jobs(line("1", BEGIN, BEGIN + DAY), line("x y", BEGIN, BEGIN + DAY))
        watch = slurm.at(BEGIN + timedelta(hours=1)).watch()
        rejected = []
        for minutes in (0, 10, 20):
            slurm.at(BEGIN + timedelta(hours=1, minutes=minutes))
            rejected += [f.result.rejected for f in watch.look() if isinstance(f, Stored)]
        assert rejected == [{"jobs": 1}, {}, {}]

    def test_two_watches_of_one_accounting(self, slurm: Slurm) -> None:
        one, two = slurm.watch(), slurm.watch()
        with one.alone(), pytest.raises(UserError, match="another watch"), two.alone():
            pass

    def test_a_full_disk(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm.jobs(line("1", BEGIN, BEGIN + DAY))
        watch = slurm.at(BEGIN + timedelta(hours=1)).watch()

        def full(*_args: object, **_kwargs: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("steptax.app.watch_slurm.ingest", full)
            (refused,) = watch.look()
        assert isinstance(refused, Refused)
        assert "No space left" in refused.error.message
        list(watch.look())
        assert list(slurm.stored()) == ["1"]


def test_the_command(slurm: Slurm, shared: Shared, steptax: Callable[..., Any]) -> None:
    """Recorded jobs as if the last of them had ended two hours ago."""
    rows = [
        row.split("|") for row in shared("fleet/xdmod_phillips_sacct.psv").read_text().splitlines()
    ]
    now = datetime.now(UTC).replace(microsecond=0)
    last = max(datetime.fromisoformat(row[13]).replace(tzinfo=UTC) for row in rows)
    by = now - timedelta(hours=2) - last
    for row in rows:
        for i in range(10, 14):
            row[i] = f"{datetime.fromisoformat(row[i]) + by:%Y-%m-%dT%H:%M:%S}"
    slurm.jobs(*("|".join(row) for row in rows))
    slurm.at(now)
    found = steptax_lines("watch", "slurm", "--once", "--from", "-12d", "--json")
    assert all(one["ok"] for one in found)
    assert found[-1]["data"]["total"]["jobs"] == 4285
    data = steptax("ledger", "--price", "2")
    assert data["total"]["gpu_hours"] == pytest.approx(506.91, abs=0.01)
    slurm.mode("fail")
    failed = steptax("watch", "slurm", "--once", fails=2)
    assert failed["where"] == "sacct"
    assert "Connection refused" in failed["message"]
    assert "no address" in steptax("watch", "slurm", "east", fails=2)["message"]
    assert "no time zone" in steptax("watch", "slurm", "--timezone", "Mars", fails=2)["message"]


def steptax_lines(*arguments: str) -> list[dict[str, Any]]:
    """What a command prints that says one thing after the other, run as people run it."""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "steptax.app.cli", *arguments], capture_output=True, check=True
    )
    return [orjson.loads(text) for text in done.stdout.splitlines()]


class TestServer:
    URL = "http://ann:secret@slurm.example:6820/"

    def server(self, monkeypatch: pytest.MonkeyPatch, jobs: Sequence[dict[str, Any]]) -> list[Any]:
        """A slurmrestd with two versions of its interface; what it is asked."""
        asked: list[Any] = []

        def request(_method: str, url: str, **given: Any) -> Any:
            asked.append((url, given["params"], given["headers"]))
            answer = requests.Response()
            answer.status_code = 200
            names = ["start_time", "end_time", "step", "skip_steps"]
            own = {"get": {"parameters": [{"name": name} for name in names]}}
            body: dict[str, Any] = {"jobs": jobs, "errors": [], "meta": {}}
            if given["headers"].get("X-SLURM-USER-TOKEN") != "jwt":
                answer.status_code = 401
                body = {"errors": [{"description": "Authentication failure"}]}
            elif url.endswith("/openapi/v3"):
                body = {
                    "paths": {
                        "/slurm/v0.0.40/jobs/": own,
                        "/slurmdb/v0.0.9/jobs/": {},
                        "/slurmdb/v0.0.40/jobs/": own,
                    }
                }
            answer._content = orjson.dumps(body)
            return answer

        monkeypatch.setattr(requests, "request", request)
        return asked

    def watch(self, slurm: Slurm) -> SlurmWatch:
        return SlurmWatch(
            slurm.lake,
            SlurmServer.at(self.URL),
            Options(),
            us(BEGIN),
            clock=lambda: slurm.now.timestamp(),
        )

    def job(self, number: int, begin: datetime, end: datetime | None) -> dict[str, Any]:
        taken = ((end or begin) - begin).total_seconds()
        return {
            "job_id": number,
            "state": {"current": ["COMPLETED" if end else "RUNNING"]},
            "association": {"account": "00077", "user": "ann"},
            "time": {
                "start": int(begin.timestamp()),
                "end": int(end.timestamp()) if end else 0,
                "elapsed": int(taken) if end else 3600,
            },
            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}]},
        }

    def test_it_is_followed(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JWT", "jwt")
        jobs = [self.job(1, BEGIN, None), self.job(2, BEGIN, BEGIN + timedelta(minutes=30))]
        asked = self.server(monkeypatch, jobs)
        watch = self.watch(slurm)
        look(slurm, BEGIN + timedelta(hours=1), watch)
        assert [url for url, _, _ in asked] == [
            "http://ann:secret@slurm.example:6820/openapi/v3",
            "http://ann:secret@slurm.example:6820/slurmdb/v0.0.40/jobs/",
        ]
        span = us(BEGIN) // 1_000_000
        assert asked[1][1] == {"start_time": span, "end_time": span + 3600, "skip_steps": "true"}
        assert {j: r["gpu_hours"] for j, r in slurm.stored().items()} == {"1": 8.0, "2": 4.0}
        jobs[:] = [self.job(1, BEGIN, BEGIN + timedelta(hours=2))]
        look(slurm, BEGIN + timedelta(hours=3), watch)
        assert slurm.stored()["1"]["gpu_hours"] == 16.0
        assert slurm.stored()["1"]["state"] == "completed"
        jobs.clear()
        assert not look(slurm, BEGIN + timedelta(hours=4), watch)

    def test_a_token_that_is_not_taken(self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SLURM_JWT", raising=False)
        self.server(monkeypatch, [])
        (refused,) = self.watch(slurm.at(BEGIN + DAY)).look()
        assert isinstance(refused, Refused)
        assert "answers 401: Authentication failure" in refused.error.message
        assert "SLURM_JWT" in (refused.error.hint or "")

    def test_a_real_answer(
        self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, shared: Shared
    ) -> None:
        monkeypatch.setenv("SLURM_JWT", "jwt")
        recorded = json.loads(shared("connectors/slurm_rest/jobs.json").read_text())["jobs"]
        self.server(monkeypatch, recorded)
        list(self.watch(slurm.at(BEGIN + DAY)).look())
        assert set(slurm.stored()) == {str(job["job_id"]) for job in recorded}
        assert "secret" not in str(slurm.lake.read("jobs").to_pylist())

    def test_a_server_without_accounting(
        self, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_JWT", "jwt")
        answer = requests.Response()
        answer.status_code, answer._content = 200, b'{"paths": {"/slurm/v0.0.40/jobs/": {}}}'
        monkeypatch.setattr(requests, "request", lambda *_args, **_given: answer)
        (refused,) = self.watch(slurm.at(BEGIN + DAY)).look()
        assert isinstance(refused, Refused)
        assert "slurmdbd" in (refused.error.hint or "")
