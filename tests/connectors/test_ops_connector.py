"""Operations of profiled steps, and the sizes that come with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options
from steptax.connectors.tables import tabular
from steptax.connectors.tables.meta import JobMeta, read_meta
from steptax.connectors.tables.ops import OpsConnector

OPS = OpsConnector()
Shared = Callable[[str], Path]
HEAD = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n"
GOOD = "0,0,0,7,forward-compute,0.25,0.125,0,0,3,0\n"


def read(path: Path, **options: Any) -> list[Batch]:
    return list(OPS.read(path, Options(**options)))


def rows_of(batches: list[Batch], table: str = "ops") -> list[dict[str, Any]]:
    return [r for b in batches if b.table == table for r in b.rows.to_pylist()]


def table_of(batches: list[Batch]) -> pa.Table:
    return pa.concat_tables([b.rows for b in batches if b.table == "ops"])


def rejects_of(batches: list[Batch]) -> list[Reject]:
    return [r for b in batches for r in b.rejects]


def notes_of(batches: list[Batch]) -> list[str]:
    return [n for b in batches for n in b.notes]


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    def write(body: str, head: str = HEAD) -> Path:
        path = tmp_path / "t.csv"
        path.write_text(head + body)
        return path

    return write


@pytest.fixture
def sizes(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str) -> Path:
        path = tmp_path / "meta.yaml"
        path.write_text(text)
        return path

    return write


def test_a_row(trace: Callable[..., Path]) -> None:
    got = read(trace(GOOD))
    assert rows_of(got) == [
        {
            "job_id": "t",
            "rank": 0,
            "step": 7,
            "op_id": 0,
            "op_type": "forward-compute",
            "dp": 0,
            "pp": 0,
            "micro_batch": 3,
            "model_chunk": 0,
            "global_chunk": 0,
            "seq": 0,
            "start_ns": 250_000_000,
            "duration_ns": 125_000_000,
            "source_row": 2,
        }
    ]
    assert rows_of(got, "jobs") == [
        {"job_id": "t", "name": "t", "world_size": 1, "time_basis": "wall"}
    ]
    assert rows_of(got, "ranks") == [{"job_id": "t", "rank": 0, "dp": 0, "pp": 0}]


def test_minus_one_means_that_no_index_applies(trace: Callable[..., Path]) -> None:
    got = read(trace("0,0,0,7,gc,0,0,0,-1,-1,\n" + "0,0,0,7,gc,0,0,0,-2,0,0\n"))
    row = rows_of(got)[0]
    assert row["micro_batch"] is row["model_chunk"] is row["global_chunk"] is None
    assert [(r.row, r.field) for r in rejects_of(got)] == [(3, "model_chunk")]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("0,0,0,7,gc,0,NaN,0,0,0,0", "duration"),
        ("0,0,0,7,gc,0,-0.5,0,0,0,0", "duration"),
        ("0,0,0,7,gc,,0.5,0,0,0,0", "start"),
        ("0,0,0,7,,0,0.5,0,0,0,0", "op_type"),
        ("0,0,0,7,gc,0,0.5,,0,0,0", "seq"),
        ("-1,0,0,7,gc,0,0.5,0,0,0,0", "dp"),
        ("0,x,0,7,gc,0,0.5,0,0,0,0", "pp"),
        ("0,0,0,7,gc,0,0.5,0,0", None),
    ],
)
def test_a_bad_row_is_a_reject(row: str, field: str | None, trace: Callable[..., Path]) -> None:
    got = read(trace(GOOD + row + "\n" + GOOD))
    assert [r["source_row"] for r in rows_of(got)] == [2, 4]
    assert [(r.row, r.field, r.raw) for r in rejects_of(got)] == [(3, field, row)]


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("rank,step,optype,duration\n0,1,gc,0\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert (
        "no column for dp (dp_rank), pp (stage), seq (seq_id), start (start_ts), "
        "micro_batch (mb_id), model_chunk (mc), global_chunk (gmc)" in caught.value.message
    )


def test_operations_are_numbered_inside_step_and_rank_over_chunks(
    trace: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lanes = [(7, 0), (7, 1), (8, 0), (7, 0), (7, 0), (8, 0), (7, 1), (7, 0)]
    body = "".join(f"0,{r},{r},{s},gc,0,0,0,0,0,0\n" for s, r in lanes)
    whole = rows_of(read(trace(body)))
    assert [r["op_id"] for r in whole] == [0, 0, 0, 1, 2, 1, 1, 3]
    path = tmp_path / "t.parquet"
    pq.write_table(pacsv.read_csv(trace(body)), path, row_group_size=3)
    monkeypatch.setattr(tabular, "BATCH_ROWS", 2)
    chunked = read(path)
    assert sum(b.table == "ops" for b in chunked) >= 4
    assert [r["op_id"] for r in rows_of(chunked)] == [r["op_id"] for r in whole]


def test_times_since_1970_and_other_units(trace: Callable[..., Path]) -> None:
    epoch = read(trace("0,0,0,7,gc,1700000000.25,0.5,0,0,0,0\n"))
    assert rows_of(epoch)[0]["start_ns"] == 1_700_000_000_250_000_000
    exact = read(trace("0,0,0,7,gc,1700000000123456789,7,0,0,0,0\n"), time_unit="ns")
    assert rows_of(exact)[0]["start_ns"] == 1_700_000_000_123_456_789
    named = read(trace(GOOD, HEAD.replace("start_ts", "start_ms").replace("duration", "dur_us")))
    assert rows_of(named)[0]["start_ns"] == 250_000
    assert rows_of(named)[0]["duration_ns"] == 125


def test_numbers_that_are_hardly_seconds_are_refused(trace: Callable[..., Path]) -> None:
    path = trace("0,0,0,7,gc,0,125000,0,0,0,0\n" * 3)
    with pytest.raises(InputError, match="hardly seconds") as caught:
        read(path)
    assert "--time-unit us" in (caught.value.hint or "")
    assert rows_of(read(path, time_unit="us"))[0]["duration_ns"] == 125_000_000
    assert rows_of(read(path, time_unit="s"))[0]["duration_ns"] == 125_000 * 10**9


class TestSizes:
    def test_a_whole_file(self, sizes: Callable[..., Path]) -> None:
        path = sizes("dp_size: 2\npp_size: 4\ntp_size: 3\ndsp_size: 1\nvpp_size: 2\nrun_id: 0\n")
        assert read_meta(path) == JobMeta(2, 4, 3, 1, 2, 24, None, 0)
        assert "run_id" not in read_meta(path).job()  # No column of jobs.

    def test_a_part_of_them(self, sizes: Callable[..., Path]) -> None:
        assert read_meta(sizes("trial_name: x\ndp_size: 2\n")) == JobMeta(dp_size=2, name="x")
        assert JobMeta(dp_size=2, name="x").job() == {"dp_size": 2, "name": "x"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("dp_size: 0\n", "dp_size must be a positive whole number, not '0'"),
            ("dp_size: 2.0\n", "dp_size must be"),
            ("dp_size: true\n", "dp_size must be"),
            ("dp_size: '2'\n", "dp_size must be"),
            (
                "dp_size: 2\npp_size: 4\ntp_size: 1\ndsp_size: 1\nworld_size: 9\n",
                "world_size is 9, but dp x pp x tp x dsp is 2 x 4 x 1 x 1 = 8",
            ),
            ("- 1\n", "holds no sizes"),
            ("dp_size: [\n", "is no YAML"),
            ("!!python/object/apply:os.getcwd []\n", "is no YAML"),
            ("\x00", "is no YAML"),
            ("#" * (1 << 20) + "#", "too large"),
        ],
    )
    def test_what_cannot_be(self, text: str, message: str, sizes: Callable[..., Path]) -> None:
        path = sizes(text)
        with pytest.raises(InputError, match=message) as caught:
            read_meta(path)
        assert caught.value.where == str(path)
        assert caught.value.hint

    def test_sizes_of_another_job_are_refused(
        self, trace: Callable[..., Path], sizes: Callable[..., Path]
    ) -> None:
        path = trace(GOOD + "2,0,1,7,gc,0,0,0,0,0,0\n")
        with pytest.raises(InputError, match="dp is 2, but the file of sizes has 2") as caught:
            read(path, meta=sizes("dp_size: 2\n"))
        assert caught.value.where == f"{path}, row 3"
        with pytest.raises(InputError, match="--world-size is 4, but the file of sizes says 8"):
            read(path, meta=sizes("world_size: 8\n"), world_size=4)
        with pytest.raises(InputError, match="there is no such file"):
            read(path, meta=path.parent / "missing.yaml")

    def test_a_trace_of_a_part_is_noted(
        self, trace: Callable[..., Path], sizes: Callable[..., Path]
    ) -> None:
        got = read(trace(GOOD), meta=sizes("dp_size: 2\npp_size: 1\ntp_size: 4\ndsp_size: 1\n"))
        assert notes_of(got) == ["the trace covers 1 of 2 dp coordinates of the sizes"]
        assert rows_of(got, "jobs")[0]["world_size"] == 8

    def test_without_sizes_the_world_is_the_ranks_seen(self, trace: Callable[..., Path]) -> None:
        body = GOOD + "1,0,4,7,gc,0,0,0,0,0,0\n"
        got = read(trace(body))
        assert rows_of(got, "jobs")[0]["world_size"] == 2
        assert "ranks seen are 0, 4" in notes_of(got)[0]
        short = read(trace(body), world_size=4)
        assert [r.reason for r in rejects_of(short)] == [
            "expected a rank below the world size 4, found '4'"
        ]


@pytest.mark.parametrize(
    ("name", "count", "ranks", "steps", "stride"),
    [("AR", 117_216, 16, 44, 4), ("ST", 6_784, 8, 32, 1)],
)
def test_production_traces(
    name: str, count: int, ranks: int, steps: int, stride: int, shared: Shared
) -> None:
    path = shared(f"ops/trace-{name}.parquet")
    source = pq.read_table(path)
    got = read(path, meta=shared(f"ops/meta-{name}.yaml"))
    table = table_of(got)
    assert table.num_rows == source.num_rows == count
    assert not rejects_of(got)
    assert not notes_of(got)
    assert len(set(table["step"].to_pylist())) == steps
    facts = rows_of(got, "ranks")
    assert [r["rank"] for r in facts] == list(range(0, ranks * stride, stride))
    job = rows_of(got, "jobs")[0]
    assert (job["job_id"], job["name"]) == (f"trace-{name}", name)
    assert job["world_size"] == ranks * stride
    assert job["dp_size"] * job["pp_size"] * job["tp_size"] * job["dsp_size"] == ranks * stride
    # Every number comes back within half a nanosecond of what was written.
    for ours, theirs in (("start_ns", "start_ts"), ("duration_ns", "duration")):
        written = source[theirs].to_numpy().astype(np.float64)
        assert np.abs(table[ours].to_numpy() / 1e9 - written).max() <= 0.5e-9 + 1e-14
    for ours, theirs in (("dp", "dp_rank"), ("pp", "stage"), ("seq", "seq_id")):
        assert table[ours].to_pylist() == source[theirs].to_pylist()
    for ours, theirs in (("micro_batch", "mb_id"), ("model_chunk", "mc"), ("global_chunk", "gmc")):
        written = source[theirs].to_pylist()
        assert table[ours].to_pylist() == [None if v == -1 else v for v in written]
    assert table["op_type"].to_pylist() == source["optype"].cast(pa.string()).to_pylist()
    lanes: Counter[tuple[int, int]] = Counter()
    for step, rank, op_id in zip(
        source["step"].to_pylist(),
        source["rank"].to_pylist(),
        table["op_id"].to_pylist(),
        strict=True,
    ):
        assert op_id == lanes[step, rank]
        lanes[step, rank] += 1


@pytest.mark.parametrize("name", ["A_pp4", "B_pp1_dp4", "D_vpp2_ovlp", "E_nodp"])
def test_generated_traces_fit_their_sizes(name: str, shared: Shared) -> None:
    path = shared(f"ops/{name}.parquet")
    got = read(path, meta=shared(f"ops/{name}.yaml"))
    assert table_of(got).num_rows == pq.read_metadata(path).num_rows
    assert not rejects_of(got)
    assert not notes_of(got)
    job = rows_of(got, "jobs")[0]
    assert job["world_size"] == job["dp_size"] * job["pp_size"]
    assert max(r["model_chunk"] or 0 for r in rows_of(got)) == job["vpp_size"] - 1


def test_probe_is_level_3(trace: Callable[..., Path]) -> None:
    found = OPS.probe(trace(GOOD), Options())
    assert found.level == 3
    assert found.tables == ("ops", "jobs", "ranks")
