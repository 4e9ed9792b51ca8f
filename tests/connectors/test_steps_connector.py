"""Step times of any shape become rows of ``steps``; what cannot be one is told."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options
from steptax.connectors.tables.clock import EARLIEST_US
from steptax.connectors.tables.steps import StepsConnector

STEPS = StepsConnector()
Shared = Callable[[str], Path]


class Read:
    """Everything that a file gave."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.batches: list[Batch] = list(STEPS.read(path, Options(**options)))

    def rows(self, table: str = "steps") -> list[dict[str, Any]]:
        return [r for b in self.batches if b.table == table for r in b.rows.to_pylist()]

    @property
    def rejects(self) -> list[Reject]:
        return [reject for batch in self.batches for reject in batch.rejects]

    @property
    def notes(self) -> list[str]:
        return [note for batch in self.batches for note in batch.notes]

    @property
    def reasons(self) -> list[tuple[int | None, str | None, str]]:
        return [(r.row, r.field, r.reason) for r in self.rejects]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def write_and_read(content: str | bytes, name: str = "run7.csv", **options: Any) -> Read:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return Read(path, **options)

    return write_and_read


def test_units_and_phases(read: Callable[..., Read]) -> None:
    got = read(
        "step,rank,duration_s,compute_ms,comm_us,gc_ns,tokens,seq_sq_sum,loss\n"
        "3,0,0.1205,90.0004,30000,1500,4096,8388608,2.5\n"
    )
    assert got.rows() == [
        {
            "job_id": "run7",
            "attempt": 0,
            "step": 3,
            "rank": 0,
            "duration_us": 120_500,
            "compute_us": 90_000,
            "comm_us": 30_000,
            "gc_us": 2,
            "tokens": 4096,
            "seq_sq_sum": 8_388_608,
            "loss": 2.5,
            "source_row": 2,
        }
    ]
    assert not got.rejects
    assert not got.notes


def test_the_job_and_its_ranks_come_last_once(read: Callable[..., Read]) -> None:
    rows = "".join(
        f"{s},{r},100,{1_700_000_000 + s},n{r // 2},{r % 2},{r // 2}\n"
        for s in (5, 6)
        for r in range(4)
    )
    got = read("step,rank,duration_ms,start_s,host,tp_rank,stage\n" + rows, gpu_model="H100")
    assert [b.table for b in got.batches][-2:] == ["jobs", "ranks"]
    assert got.rows("jobs") == [
        {
            "job_id": "run7",
            "name": "run7",
            "start_us": 1_700_000_005_000_000,
            "end_us": 1_700_000_006_100_000,
            "gpu_model": "H100",
            "world_size": 4,
            "time_basis": "wall",
        }
    ]
    assert got.rows("ranks") == [
        {"job_id": "run7", "rank": r, "host": f"n{r // 2}", "tp": r % 2, "pp": r // 2}
        for r in range(4)
    ]


def test_a_rank_that_contradicts_itself_is_told(read: Callable[..., Read]) -> None:
    got = read("step,rank,duration_ms,host\n1,0,9,a\n2,0,9,\n3,0,9,b\n")
    assert got.rows("ranks") == [{"job_id": "run7", "rank": 0, "host": "a"}]
    assert got.notes == ["job run7, rank 0: host is 'a' and later 'b'; the first is kept"]


def test_several_jobs_and_attempts_in_a_file(read: Callable[..., Read]) -> None:
    text = "job_id,attempt,step,rank,duration_ms\n1021000_0,0,1,0,5\n1021000_1,2,1,0,6\n,0,1,0,7\n"
    got = read(text)
    assert [(r["job_id"], r["attempt"]) for r in got.rows()] == [
        ("1021000_0", 0),
        ("1021000_1", 2),
    ]
    assert got.reasons == [(4, "job_id", "expected a name, found nothing")]
    assert [(r["job_id"], r["world_size"], r.get("name")) for r in got.rows("jobs")] == [
        ("1021000_0", 1, None),
        ("1021000_1", 1, None),
    ]
    named = read(text, job_id="mine", attempt=3)
    assert {r["job_id"] for r in named.rows()} == {"mine"}
    assert "all rows belong to job mine; column job_id is not used" in named.notes
    assert read("step,rank,duration_ms\n1,0,5\n", attempt=3).rows()[0]["attempt"] == 3
    # The name of a job that its user named is not that of the file.
    (row,) = read("step,rank,duration_ms\n1,0,5\n", job_id="mine").rows("jobs")
    assert row.get("name") is None


@pytest.mark.parametrize(
    ("cells", "field", "reason"),
    [
        ("1,0,-5,1,1", "duration", "expected a duration of at least 0, found '-5'"),
        ("1,0,NaN,1,1", "duration", "expected a duration of at least 0, found 'NaN'"),
        ("1,0,inf,1,1", "duration", "expected a duration of at least 0, found 'inf'"),
        ("1,0,,1,1", "duration", "expected a duration of at least 0, found nothing"),
        ("1,0,1e30,1,1", "duration", "expected a duration of at least 0, found '1e30'"),
        ('1,0,"1,5",1,1', "duration", "expected a duration of at least 0, found '1,5'"),
        ("1.5,0,9,1,1", "step", "expected a whole number of at least 0, found '1.5'"),
        ("-1,0,9,1,1", "step", "expected a whole number of at least 0, found '-1'"),
        ("N/A,0,9,1,1", "step", "expected a whole number of at least 0, found 'N/A'"),
        ("1_0,0,9,1,1", "step", "expected a whole number of at least 0, found '1_0'"),
        (
            "1,0.5,9,1,1",
            "rank",
            "expected a whole number of at least 0, at most 2147483647, found '0.5'",
        ),
        (
            "1,4294967296,9,1,1",
            "rank",
            "expected a whole number of at least 0, at most 2147483647, found '4294967296'",
        ),
        ("1,0,9,x,1", "tokens", "expected a whole number of at least 0, found 'x'"),
        ("1,0,9,1,x", "loss", "expected a number, found 'x'"),
        ("1,0,9,1", None, "expected 5 fields, found 4"),
    ],
)
def test_a_bad_cell_costs_its_row_and_says_why(
    cells: str, field: str | None, reason: str, read: Callable[..., Read]
) -> None:
    got = read(f"step,rank,duration_ms,tokens,loss\n7,1,100,4096,2.5\n{cells}\n8,1,100,,-\n")
    assert [r["source_row"] for r in got.rows()] == [2, 4]
    assert got.rejects == [Reject("steps", reason, 3, field, cells)]
    assert got.rows()[1]["tokens"] is None
    assert got.rows()[1]["loss"] is None


def test_phases_longer_than_the_step_are_refused_not_clipped(read: Callable[..., Read]) -> None:
    head = "step,rank,duration_us,compute_us,comm_us,transfer_us,wait_us,other_us\n"
    got = read(
        head + "1,0,1000000,900000,111000,,,\n"  # 1,011,000: within 1 % and 1 ms
        "2,0,1000000,900000,111001,,,\n"
        "3,0,1000000,900000,100000,50000,50000,\n"  # parts of comm count once
        "4,0,1000000,900000,,60000,60000,\n"
        "5,0,1000000,900000,1000,60000,60000,\n"
        "6,0,0,0,1000,,,\n"
    )
    assert [r["step"] for r in got.rows()] == [1, 3, 6]
    assert got.rows()[0]["comm_us"] == 111_000
    assert got.reasons == [
        (row, "duration", f"expected phases within the duration of 1000000 us, found {total} us")
        for row, total in ((3, 1_011_001), (5, 1_020_000), (6, 1_020_000))
    ]


def test_without_duration_it_is_the_sum_of_the_phases(read: Callable[..., Read]) -> None:
    got = read("step,rank,compute_ms,transfer_ms,wait_ms\n1,0,90,5,25\n2,0,90,,25\n")
    assert [r["duration_us"] for r in got.rows()] == [120_000]
    assert got.notes == ["there is no duration: it is the sum of compute, transfer, wait"]
    assert got.reasons == [
        (3, "transfer", "expected every phase, because the duration is their sum, found nothing")
    ]
    whole = read("step,rank,compute_ms,comm_ms,transfer_ms,wait_ms\n1,0,90,30,5,25\n")
    assert [r["duration_us"] for r in whole.rows()] == [120_000]


def test_a_missing_part_of_a_mapped_sum_is_missing(read: Callable[..., Read]) -> None:
    got = read(
        "step,rank,f_ms,b_us,in_ms\n1,0,1.5,500,1\n2,0,,500,1\n3,0,1.5,500,\n",
        mapping={"duration": "f_ms+b_us", "input": "in_ms"},
    )
    assert [(r["duration_us"], r["input_us"]) for r in got.rows()] == [(2000, 1000), (2000, None)]
    assert got.reasons == [(3, "duration", "expected a duration of at least 0, found nothing")]


def test_no_duration_gives_the_line_to_type(read: Callable[..., Read]) -> None:
    with pytest.raises(InputError, match="no column for duration; the file has step") as caught:
        read("step,rank,forward_ms,backward_wall_ms\n1,0,1,2\n")
    assert (caught.value.hint or "").endswith("--map duration=forward_ms+backward_wall_ms")
    with pytest.raises(InputError, match="no column for step, rank, duration"):
        read("a,b\n1,2\n")
    with pytest.raises(InputError, match="no column for rank; the file has step, duration_ms"):
        read("step,duration_ms\n1,2\n")


def test_time_is_the_step_only_where_nothing_else_is(read: Callable[..., Read]) -> None:
    got = read("worker,time,batch_time_norm\n0,7,476\n")
    assert got.rows()[0]["step"] == 7
    assert not got.notes
    both = read("worker,time,step,batch_time_norm\n0,7,1,476\n")
    assert both.rows()[0]["step"] == 1
    assert both.notes == ["columns not used: time"]
    with pytest.raises(InputError, match="no column for step"):
        read("rank,time,compute_ms\n0,7,476\n")


def test_normalised_times_have_no_wall_clock(read: Callable[..., Read]) -> None:
    for text, options in (
        ("step,rank,batch_time_norm,start_s\n1,0,476.5,1700000000\n", {}),
        ("step,rank,duration,start_s\n1,0,476.5,1700000000\n", {"time_unit": "relative"}),
    ):
        got = read(text, **options)
        assert got.rows()[0]["duration_us"] == 476_500
        job = got.rows("jobs")[0]
        assert job["time_basis"] == "relative"
        assert job["start_us"] == 1_700_000_000_000_000
        assert "end_us" not in job


@pytest.mark.parametrize(("start_us", "is_told"), [(0, True), (EARLIEST_US, False)])
def test_a_clock_that_counts_from_the_start_of_the_job_is_told(
    read: Callable[..., Read], start_us: int, is_told: bool
) -> None:
    got = read(f"step,rank,duration_us,start_us\n0,0,500,{start_us}\n1,0,500,{start_us + 500}\n")
    assert [row["start_us"] for row in got.rows()] == [start_us, start_us + 500]
    assert not got.rejects
    assert any("start_us lies before the year 2000" in note for note in got.notes) == is_told


def test_an_option_that_is_not_used_is_told(read: Callable[..., Read]) -> None:
    got = read("step,rank,duration_us\n0,0,500\n", time_unit="ms")
    assert got.rows()[0]["duration_us"] == 500
    assert [note for note in got.notes if note.startswith("--time-unit ms")]


def test_world_size(read: Callable[..., Read]) -> None:
    text = "step,rank,duration_ms\n1,0,5\n1,4,5\n1,8,5\n"
    some = read(text)
    assert some.rows("jobs")[0]["world_size"] == 3
    assert some.notes == [
        "job run7: the ranks seen are 0, 4, 8; its world size is taken as their number, 3: "
        "pass --world-size if it has more"
    ]
    given = read(text, world_size=16)
    assert given.rows("jobs")[0]["world_size"] == 16
    assert not given.notes
    short = read(text, world_size=8)
    assert short.reasons == [(4, "rank", "expected a rank below the world size 8, found '8'")]


def test_start_times_are_iso_or_numbers(read: Callable[..., Read]) -> None:
    iso = read("step,rank,duration_ms,start\n1,0,5,2025-01-31T22:00:00.25Z\n2,0,5,soon\n")
    assert [r["start_us"] for r in iso.rows()] == [1_738_360_800_250_000]
    assert iso.reasons[0][1:] == (
        "start",
        "expected a time before the year 10000: ISO 8601, or a number with a unit in the column's "
        "name, found 'soon'",
    )
    # Nanoseconds in a column of microseconds: no year has five digits.
    late = read(
        "step,rank,duration_ms,start_us\n1,0,5,1738360800000000\n2,0,5,1738360800000000000\n"
    )
    assert len(late.rows()) == 1
    assert late.reasons[0][:2] == (3, "start")
    with pytest.raises(InputError, match="unit of column 'start'"):
        read("step,rank,duration_ms,start\n1,0,5,1738360800\n")
    ns = read("step,rank,duration_ms,start_ns\n1,0,5,1738360800123456789\n")
    assert ns.rows()[0]["start_us"] == 1_738_360_800_123_457


def test_the_same_rows_in_every_format(tmp_path: Path) -> None:
    records = [
        {"step": s, "rank": r, "duration_ms": 100.5 + s, "tokens": 4096 if s else None, "host": "n"}
        for s in range(3)
        for r in range(2)
    ]
    lines = [",".join("" if v is None else str(v) for v in rec.values()) for rec in records]
    text = "\n".join([",".join(records[0]), *lines, ""])
    jsonl = "".join(json.dumps(rec) + "\n" for rec in records)
    files = {
        "a.csv": text.encode(),
        "a.tsv": text.replace(",", "\t").encode(),
        "a.csv.gz": gzip.compress(text.encode()),
        "a.jsonl": jsonl.encode(),
        "a.ndjson": (jsonl + "broken\n").encode(),  # read line by line, as text
        "a.ndjson.gz": gzip.compress(jsonl.encode()),
        "a.csv.upper": text.replace("\n", "\r\n").encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet", row_group_size=4)
    found = {}
    for path in sorted(tmp_path.iterdir()):
        got = Read(path, job_id="j")
        first = 2 if "csv" in path.name or "tsv" in path.name else 1
        rows = got.rows()
        assert [r.pop("source_row") for r in rows] == list(range(first, first + len(records)))
        found[path.name] = (rows, got.rows("ranks"))
    assert len(found) == len(files) + 1
    assert all(value == found["a.csv"] for value in found.values())


def test_types_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table(
        {
            "step": pa.array([1, 2, None, 4], pa.uint8()),
            "rank": pa.array(["0", "1", "2", "x"]).dictionary_encode(),
            "duration": pa.array([timedelta(milliseconds=5)] * 4, pa.duration("ms")),
            "loss": pa.array([1.5, float("nan"), 1.0, 1.0], pa.float32()),
            "job_id": pa.array([7.0, 7.0, 7.0, 7.0]),
        }
    )
    pq.write_table(table, path)
    got = Read(path)  # an Arrow duration knows its unit
    assert [(r["job_id"], r["step"], r["duration_us"], r["loss"]) for r in got.rows()] == [
        ("7", 1, 5000, 1.5),
        ("7", 2, 5000, None),
    ]
    assert [(r.row, r.field) for r in got.rejects] == [(3, "step"), (4, "rank")]
    assert "'step': 4" in (got.rejects[1].raw or "")


def test_a_damaged_parquet_file_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"step": range(1000), "rank": [0] * 1000, "duration_ms": [1.0] * 1000})
    pq.write_table(table, path, compression="zstd", row_group_size=500, use_dictionary=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(InputError, match="damaged or cut Parquet") as caught:
        Read(path)
    assert caught.value.where == str(path)
    path.write_bytes(whole[:200] + bytes(400) + whole[600:])
    with pytest.raises(InputError, match="is damaged"):
        Read(path)


def test_probe_tells_the_level(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("step,rank,duration_ms\n1,0,5\n")
    plain = STEPS.probe(path, Options())
    assert plain.level == 1
    assert "culprit cannot be told" in plain.cannot_see
    path.write_text("step,rank,duration_ms,compute_ms\n1,0,5,4\n")
    phases = STEPS.probe(path, Options())
    assert phases.level == 2
    assert "compute" in phases.sees


def independent_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(
    ("job", "count", "medians"),
    [
        (1, 3000, [476, 471, 465.5, 428.5, 426, 426, 429.5, 430, 424, 428]),
        (2, 2402, [708, 686, 747, 855, 851, 906, 834, 845, 841, 799]),
    ],
)
def test_minibatch_times_of_a_production_cluster(
    job: int, count: int, medians: list[float], shared: Shared
) -> None:
    path = shared(f"fleet/alibaba2020_minibatch_job{job}.csv")
    got = Read(path)
    rows = got.rows()
    assert len(rows) == count
    assert not got.rejects
    assert got.notes == ["columns not used: gpu"]
    for rank, want in enumerate(medians):
        assert median(r["duration_us"] for r in rows if r["rank"] == rank) == want * 1000
    for row, source in zip(rows, independent_rows(path), strict=True):
        assert row["step"] == int(source["time"])
        assert row["rank"] == int(source["worker"])
        assert row["duration_us"] == int(source["batch_time_norm"]) * 1000
    assert [r["source_row"] for r in rows] == list(range(2, count + 2))
    assert got.rows("jobs") == [
        {
            "job_id": f"alibaba2020_minibatch_job{job}",
            "name": f"alibaba2020_minibatch_job{job}",
            "world_size": 10,
            "time_basis": "relative",
        }
    ]


def test_a_straggler_hidden_by_all_reduce(shared: Shared) -> None:
    path = shared("cases/05-straggler-hidden-by-allreduce/phases_full.csv")
    with pytest.raises(InputError) as caught:
        Read(path)
    hint = caught.value.hint or ""
    mapping = dict(part.split("=") for part in hint.split(": ", 1)[1].split("--map ") if part)
    mapping = {name: value.strip() for name, value in mapping.items()}
    got = Read(path, mapping=mapping)
    rows = got.rows()
    assert len(rows) == len(independent_rows(path))
    assert not got.rejects
    backward = Read(path, mapping={**mapping, "compute": "backward_compute_ms"}).rows()
    for rank, want in {0: 92.02, 1: 291.89, 2: 91.99, 3: 91.83}.items():
        found = median(r["compute_us"] for r in backward if r["rank"] == rank)
        assert found == pytest.approx(want * 1000, abs=5)
    for row, source in zip(rows, independent_rows(path), strict=True):
        wall = float(source["forward_ms"]) + float(source["backward_wall_ms"])
        assert row["duration_us"] == round(wall * 1000)
        assert row["comm_us"] == round(float(source["allreduce_wait_ms"]) * 1000)


def test_wall_time_alone_shows_no_phase(shared: Shared) -> None:
    path = shared("cases/05-straggler-hidden-by-allreduce/phases_wall_only.csv")
    mapping = {"duration": "forward_ms+backward_wall_ms"}
    assert STEPS.probe(path, Options(mapping=mapping)).level == 1
    rows = Read(path, mapping=mapping).rows()
    assert len(rows) == len(independent_rows(path))
    assert set(rows[0]) == {"job_id", "attempt", "step", "rank", "duration_us", "source_row"}
