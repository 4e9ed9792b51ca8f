"""Tables of jobs and of usage: text stays text, and what is no job is told."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.connectors.base import Options
from steptax.connectors.tables.jobs import TARGETS, JobsConnector

JOBS = JobsConnector()
Shared = Callable[[str], Path]


class Read:
    """Everything that a file gave."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.batches: list[Batch] = list(JOBS.read(path, Options(**options)))
        self.rows = [r for b in self.batches for r in b.rows.to_pylist()]
        self.rejects = [r for b in self.batches for r in b.rejects]
        self.notes = [n for b in self.batches for n in b.notes]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def write_and_read(text: str, **options: Any) -> Read:
        path = tmp_path / "table.csv"
        path.write_text(text)
        return Read(path, **options)

    return write_and_read


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


def test_every_column_of_jobs_can_be_read() -> None:
    columns = {c.name for c in table("jobs").columns}
    left = columns - {t.column for t in TARGETS}
    assert left == {"time_basis", "causal", "is_sum", "source", "source_row", "ingested_at_us"}


def test_a_row(read: Callable[..., Read]) -> None:
    got = read(
        "JobID,User,Account,Partition,State,Submit,Start,End,GPUs,GPU Hours,params_total\n"
        "1021000_0,ann,00077,gpu,CANCELLED by 380693,2025-01-31T21:00:00Z,2025-01-31 22:00,"
        "2025-02-01T04:00:00+01:00,8,48.5,7000000000\n",
        gpu_model="H100",
    )
    assert got.rows == [
        {
            "job_id": "1021000_0",
            "owner": "ann",
            "account": "00077",
            "state": "cancelled",
            "submit_us": us(2025, 1, 31, 21),
            "start_us": us(2025, 1, 31, 22),
            "end_us": us(2025, 2, 1, 3),
            "gpu_model": "H100",
            "world_size": 8,
            "gpu_hours": 48.5,
            "params_total": 7_000_000_000,
            "time_basis": "wall",
            "source_row": 2,
        }
    ]
    assert got.notes == ["columns not used: Partition"]


def test_gpu_hours_are_devices_times_run_time(read: Callable[..., Read]) -> None:
    got = read("job_id,gpus,hours\na,8,1.5\nb,8,\nc,,2\nd,0,2\n")
    assert [r["gpu_hours"] for r in got.rows] == [12.0, None, None, 0.0]
    assert got.notes == ["GPU-hours are the devices times the run time of each row"]
    seconds = read("job_id,gpus,duration\na,8,5400\n", time_unit="s")
    assert [r["gpu_hours"] for r in seconds.rows] == [12.0]
    with pytest.raises(InputError, match="unit of column 'duration'"):
        read("job_id,gpus,duration\na,8,5400\n")
    with pytest.raises(InputError, match="normalised run time"):
        read("job_id,gpus,duration\na,8,5400\n", time_unit="relative")
    stated = read("job_id,gpus,duration,gpu_hours\na,8,5400,1\n")
    assert [r["gpu_hours"] for r in stated.rows] == [1.0]
    assert stated.notes == ["columns not used: duration"]


def test_a_clock_without_a_calendar_gives_run_times(read: Callable[..., Read]) -> None:
    mapping = {"run_time": "gone_s-came_s"}
    got = read(
        "job_id,gpus,came_s,gone_s\na,8,100,7300\nb,8,,9\nc,1,9,5\nd,2,5,5\n", mapping=mapping
    )
    assert [(r["job_id"], r["gpu_hours"]) for r in got.rows] == [("a", 16.0), ("b", None), ("d", 0)]
    (reject,) = got.rejects
    assert (reject.row, reject.field) == (4, "run_time")
    assert reject.reason == "expected a difference of at least 0, found '5' - '9'"
    # A name that has a minus itself is one column.
    named = read("job_id,gpus,run-time\na,8,2\n", mapping={"run_time": "run-time"}, time_unit="s")
    assert named.rows[0]["gpu_hours"] == pytest.approx(16 / 3600)
    with pytest.raises(InputError, match="there is no column 'away'"):
        read("job_id,gpus,came_s\na,8,1\n", mapping={"run_time": "came_s-away"})
    with pytest.raises(InputError, match="added twice"):
        read("job_id,gpus,came_s\na,8,1\n", mapping={"run_time": "came_s-came_s"})
    with pytest.raises(InputError, match="name is a text, not a sum"):
        read("job_id,gpus,hours\na,8,1\n", mapping={"name": "job_id-hours"})


@pytest.mark.parametrize(
    ("column", "half"), [("gpu_milli", "500"), ("gpu_percent", "50"), ("gpu_fraction", "0.5")]
)
def test_parts_of_devices_count_as_such(read: Callable[..., Read], column: str, half: str) -> None:
    one = {"gpu_milli": "1000", "gpu_percent": "100", "gpu_fraction": "1"}[column]
    got = read(
        f"job_id,gpus,hours,{column}\na,1,4,{half}\nb,8,4,{one}\nc,0,4,0\nd,1,4,\ne,1,4,9999\n"
    )
    assert [(r["world_size"], r["gpu_hours"]) for r in got.rows] == [
        (None, 2.0), (8, 32.0), (0, 0.0), (None, None),
    ]  # fmt: skip
    assert [(r.row, r.field) for r in got.rejects] == [(6, "gpu_share")]


def test_means_of_devices_need_not_be_whole(read: Callable[..., Read]) -> None:
    got = read("team,used,hours\na,58.25,2\nb,8,2\n", mapping={"devices": "used"})
    assert [(r["world_size"], r["gpu_hours"]) for r in got.rows] == [(None, 116.5), (8, 16.0)]


def test_gpu_time_is_taken_as_stated(read: Callable[..., Read]) -> None:
    got = read("job_id,gpus,duration_s,gpu_time_s\na,8,3600,7200\n")
    assert [(r["world_size"], r["gpu_hours"]) for r in got.rows] == [(8, 2.0)]
    assert got.notes == ["GPU-hours are the GPU-time of each row"]


def test_a_job_that_waits_held_nothing(read: Callable[..., Read]) -> None:
    got = read("job_id,state,gpus,hours\na,PENDING,8,\nb,Failed,8,\nc,,8,\n")
    assert [r["gpu_hours"] for r in got.rows] == [0.0, None, None]


def test_sums_by_final_state_are_a_job_each(read: Callable[..., Read]) -> None:
    # More than the years that a duration of one job can have.
    text = "id,complete_gpu_time,cancel_gpu_time,fail_gpu_time\na,39994296320,3600,\nTotal,1,1,1\n"
    got = read(text, time_unit="s", mapping={"job_id": "id", "cluster": "id"})
    assert [(r["job_id"], r["cluster"], r["state"], r["gpu_hours"]) for r in got.rows] == [
        ("a:completed", "a", "completed", pytest.approx(39994296320 / 3600)),
        ("a:cancelled", "a", "cancelled", 1.0),
        ("a:failed", "a", "failed", None),
    ]
    assert [r.row for r in got.rejects] == [3]
    assert all(r["is_sum"] for r in got.rows)  # of how many jobs is not stated


def test_rows_that_tell_of_one_run_are_jobs(read: Callable[..., Read]) -> None:
    for text in ("gpus,hours,team\n8,1,a\n", "job_id,gpu_hours\nj,1\n", "start,gpu_hours\n1,2\n"):
        (row,) = read(text, time_unit="s").rows
        assert "is_sum" not in row


def test_a_usage_table_without_jobs(read: Callable[..., Read]) -> None:
    got = read("month,team,gpu_hours\n2025-01,a,1\nN/A,b,2\n")
    assert [(r["job_id"], r["period"], r["team"]) for r in got.rows] == [
        ("table:2", "2025-01", "a"),
        ("table:3", None, "b"),
    ]
    assert "name" not in got.rows[0]
    assert all(r["is_sum"] for r in got.rows)
    assert got.notes == ["there is no job id: each row is called by its file and line"]


@pytest.mark.parametrize("word", ["Total", "TOTAL", "Grand Total", "subtotal"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_total_is_not_a_job(word: str, place: int, read: Callable[..., Read]) -> None:
    cells = ["", ""]
    cells[place] = word
    got = read(f"month,team,gpu_hours\n1,a,1\n1,b,2\n{','.join(cells)},3\n")
    assert sum(r["gpu_hours"] for r in got.rows) == 3
    assert [(r.row, r.reason) for r in got.rejects] == [
        (4, f"expected a job, not a total of others, found '{word}'")
    ]


@pytest.mark.parametrize("target", ["cluster", "project", "owner", "account", "hosts", None])
def test_a_total_of_groups_is_not_a_job(target: str | None, read: Callable[..., Read]) -> None:
    mapping = {target: "group"} if target else {}
    got = read("group,gpu_hours\nred,1\nblue,2\n Total ,3\n", mapping=mapping)
    assert [r["gpu_hours"] for r in got.rows] == [1, 2]
    assert [(r.row, r.field) for r in got.rejects] == [(4, target or "label")]


def test_a_summary_of_clusters(shared: Shared) -> None:
    path = shared("fleet/helios_cluster_summary.csv")
    got = Read(path, mapping={"cluster": "id"}, time_unit="s")
    assert {r["cluster"] for r in got.rows} == {"Venus", "Earth", "Saturn", "Uranus"}
    (refused,) = got.rejects
    assert refused.reason == "expected a job, not a total of others, found 'total'"
    assert sum(r["gpu_hours"] for r in got.rows) == pytest.approx(21_666_038.93, abs=0.01)


@pytest.mark.parametrize(
    ("row", "field", "reason"),
    [
        (",8,1,,", "job_id", "expected a job id, found nothing"),
        ("x,-8,1,,", "world_size", "expected a whole number of at least 0, found '-8'"),
        ("x,8,-1,,", "gpu_hours", "expected a number of at least 0, found '-1'"),
        ("x,8,inf,,", "gpu_hours", "expected a number of at least 0, found 'inf'"),
        ("x,8,1,soon,", "start", "expected a time before the year 10000: ISO 8601"),
        ("x,8,1,2025-02-01,2025-01-01", "end", "expected an end after the start"),
    ],
)
def test_a_bad_row_is_a_reject(
    row: str, field: str, reason: str, read: Callable[..., Read]
) -> None:
    good = "2025-01-01,2025-02-01\n"
    got = read(f"job_id,gpus,gpu_hours,start,end\na,8,1,{good}{row}\nb,8,1,{good}")
    assert [r["job_id"] for r in got.rows] == ["a", "b"]
    (reject,) = got.rejects
    assert (reject.row, reject.field, reject.raw) == (3, field, row)
    assert reject.reason.startswith(reason)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("COMPLETED", "completed"),
        ("Succeeded", "completed"),
        ("NODE_FAIL", "failed"),
        ("CANCELLED by 1001", "cancelled"),
        ("TIMEOUT", "timeout"),
        ("Pending", "pending"),
        ("Running", "running"),
        ("", None),
    ],
)
def test_states(word: str, state: str | None, read: Callable[..., Read]) -> None:
    got = read(f"job_id,state\na,{word}\n")
    assert got.rows[0]["state"] == state
    assert not got.notes


def test_a_strange_state_is_unknown_and_told(read: Callable[..., Read]) -> None:
    got = read("job_id,state\na,Zombie\n")
    assert got.rows[0]["state"] is None
    assert got.notes == ["state 'zombie' is not one we know; it counts as unknown"]


def test_a_table_of_something_else_is_refused(read: Callable[..., Read]) -> None:
    with pytest.raises(InputError, match="no column for a job") as caught:
        read("colour,weight\nred,1\n")
    assert "--map job_id=COLUMN" in (caught.value.hint or "")
    with pytest.raises(InputError, match="names its jobs itself"):
        read("job_id\na\n", job_id="mine")


def independent_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def test_types_that_flip_late(shared: Shared) -> None:
    path = shared("cases/15-csv-type-flips-late/jobs.csv")
    got = Read(path)
    assert len(got.rows) == 22_000
    assert not got.rejects
    assert sum(r["gpu_hours"] for r in got.rows) == 19_250.0
    assert {r["account"] for r in got.rows} == {"00077", "00421"}
    assert sum("_" in r["job_id"] for r in got.rows) == 1000
    assert len({r["job_id"] for r in got.rows}) == 22_000
    assert got.rows[-1]["job_id"] == "1021999_5"
    assert [r["job_id"] for r in got.rows] == [r["job_id"] for r in independent_rows(path)]
    assert got.notes == ["columns not used: driver, gpu_util"]


def test_gpus_and_hours(shared: Shared) -> None:
    got = Read(shared("cases/16-duckdb-lock/seed.csv"))
    assert len(got.rows) == 200
    assert sum(r["gpu_hours"] for r in got.rows) == 4800.0


def test_usage_by_month(shared: Shared) -> None:
    got = Read(shared("cases/20-table-with-total-row/usage.csv"))
    months: Counter[str] = Counter()
    for row in got.rows:
        months[row["period"] or "unknown"] += row["gpu_hours"]
    assert months == {"1": 14.5, "2": 7.25, "12": 1.0, "unknown": 2.0}
    assert not got.rejects


def test_jobs_over_a_month_end(shared: Shared) -> None:
    path = shared("cases/14-month-boundary-counted-twice/jobs.csv")
    got = Read(path)
    hours = sum((r["end_us"] - r["start_us"]) / 3600e6 * r["world_size"] for r in got.rows)
    assert hours == pytest.approx(1633.0667, abs=1e-4)
    assert all("gpu_hours" not in r for r in got.rows)


def test_jobs_of_a_production_cluster(shared: Shared) -> None:
    path = shared("fleet/philly_jobs.parquet")
    got = Read(path, time_unit="s", mapping={"submit": "timestamp"})
    assert len(got.rows) == 52_849
    assert not got.rejects
    assert sum(r["gpu_hours"] for r in got.rows) == pytest.approx(642_409.31, abs=0.01)
    by_cluster: Counter[str] = Counter()
    for row in got.rows:
        by_cluster[row["cluster"]] += row["gpu_hours"]
    assert by_cluster["ee9e8c"] == pytest.approx(138_716.81, abs=0.01)
    first = pq.ParquetFile(path).read_row_group(0).slice(0, 1).to_pylist()[0]
    when = first["timestamp"].replace(tzinfo=UTC)
    assert got.rows[0]["submit_us"] == int(when.timestamp()) * 1_000_000
    assert got.rows[0]["job_id"] == "philly_jobs:1"
