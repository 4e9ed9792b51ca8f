"""NCCL Inspector: logs of every form, metrics, and what is refused; figures read by eye."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.nccl.inspector import NcclInspectorConnector

READER = NcclInspectorConnector()
Shared = Callable[[str], Path]


def read(path: Path, **options: Any) -> list[Batch]:
    return list(READER.read(path, Options(**options)))


def rows(batches: list[Batch], table: str = "collectives") -> list[dict[str, Any]]:
    return [row for batch in batches if batch.table == table for row in batch.rows.to_pylist()]


def rejects(batches: list[Batch]) -> list[tuple[int | None, str]]:
    return [(r.row, r.reason) for batch in batches for r in batch.rejects]


def record(
    rank: int = 0, sn: int = 1, *, coll: str = "AllReduce", us: Any = 400, **more: Any
) -> dict[str, Any]:
    perf = {"coll": coll, "coll_sn": sn, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": us}
    return {
        "header": {"id": "0x1f", "rank": rank, "n_ranks": 4, "nnodes": 1},
        "metadata": {"hostname": "node-a", "pid": 70 + rank},
        "coll_perf": perf | more,
    }


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


class TestRealFiles:
    def test_an_all_reduce_of_the_guide(self, shared: Shared) -> None:
        (row,) = rows(read(shared("connectors/nccl_inspector/readme_basic_pretty.json")))
        assert row["comm_id"] == "0x7f8c496ae9f661"
        assert (row["op"], row["seq"]) == ("all_reduce", 1407)
        assert (row["rank"], row["rank_scope"], row["n_ranks"]) == (2, "communicator", 8)
        # An all-reduce is logged with the size of the whole.
        assert row["bytes"] == 17_179_869_184
        assert row["duration_us"] == 61_974
        assert row["algbw_gb_per_s"] == 277.210914
        assert row["busbw_gb_per_s"] == 485.119099
        assert row.get("enqueued_us") is None
        assert row["job_id"] == "nccl_inspector"

    def test_a_verbose_reduce_scatter_has_times_and_the_size_of_all_parts(
        self, shared: Shared
    ) -> None:
        batches = read(shared("connectors/nccl_inspector/readme_verbose_pretty.json"), job_id="j")
        (row,) = rows(batches)
        assert (row["op"], row["seq"], row["rank"]) == ("reduce_scatter", 1231, 4)
        assert row["bytes"] == 2_147_483_648 * 8
        assert row["timing"] == "kernel_gpu"
        assert row["enqueued_us"] == 1_752_867_229_235_059
        assert row["start_us"] == 1_752_867_229_235_181
        # The logged bandwidth is that of the whole: 8 x 2 GiB in 41,057 us.
        assert row["algbw_gb_per_s"] == pytest.approx(row["bytes"] / row["duration_us"] / 1e3)
        (where,) = rows(batches, "communicators")
        assert where["host"] == "example-hostname"
        assert where["pid"] == 438_776
        assert (where["n_ranks"], where["n_nodes"]) == (8, 1)

    def test_metrics_are_figures_of_a_device_by_size_bucket(self, shared: Shared) -> None:
        batches = read(shared("connectors/nccl_inspector/readme_prometheus_v5.1.prom"), job_id="j")
        assert not rejects(batches)
        found = rows(batches, "bench_results")
        assert [(r["value"], r["unit"], r["size"], r["ranks"]) for r in found] == [
            (678.263, "GB/s", "4-5GB", 4),
            (9498.47, "us", "4-5GB", 4),
            (464.9, "GB/s", "512-513MB", 4),
            (1154.87, "us", "512-513MB", 4),
        ]
        assert [r["test"] for r in found] == [
            "inspector all_reduce busbw in DP Group 0 (Ring_ll)",
            "inspector all_reduce time in DP Group 0 (Ring_ll)",
            "inspector send busbw in DP Group 0",
            "inspector send time in DP Group 0",
        ]
        assert {(r["host"], r["gpu_uuid"]) for r in found} == {("node-0", "GPU0 of node-0")}


class TestForms:
    def test_lines_and_pretty_objects_give_the_same(self, tmp_path: Path) -> None:
        records = [record(rank, sn) for sn in range(3) for rank in range(4)]
        lines = write(tmp_path / "a.log", *records)
        pretty = tmp_path / "b.log"
        pretty.write_text("\n".join(json.dumps(r, indent=2) for r in records))
        packed = tmp_path / "c.log.gz"
        packed.write_bytes(gzip.compress(lines.read_bytes()))

        def plain(path: Path) -> list[dict[str, Any]]:
            return [r | {"source_row": 0} for r in rows(read(path))]

        assert len(plain(lines)) == 12
        assert plain(lines) == plain(pretty) == plain(packed)
        assert (
            rows(read(pretty))[1]["source_row"]
            == 1 + json.dumps(records[0], indent=2).count("\n") + 1
        )

    def test_a_file_of_many_blocks_is_read_whole(self, tmp_path: Path) -> None:
        one = json.dumps(record(us=410.4), indent=2)
        path = tmp_path / "long.log"
        count = (9 << 20) // len(one)
        path.write_text("\n".join(one for _ in range(count)))
        batches = read(path)
        assert sum(b.rows.num_rows for b in batches if b.table == "collectives") == count
        assert not rejects(batches)
        assert len(rows(batches, "communicators")) == 1

    def test_nan_is_unknown_and_fractions_are_rounded(self, tmp_path: Path) -> None:
        found = rows(
            read(
                write(
                    tmp_path / "a.log",
                    record(us="nan", coll_busbw_gbs="nan"),
                    record(sn=2, us=61974.6, coll_busbw_gbs="-nan"),
                    record(sn=3, us=0, coll_algobw_gbs=2.5),
                )
            )
        )
        assert [r["duration_us"] for r in found] == [None, 61_975, None]
        assert [r.get("busbw_gb_per_s") for r in found] == [None, None, None]
        assert found[2]["algbw_gb_per_s"] == 2.5

    def test_transfers_name_both_sides(self, tmp_path: Path) -> None:
        header = {"id": "0x2", "rank": 1, "n_ranks": 4, "comm_name": "PP"}
        perf = {"p2p": "Recv", "p2p_sn": 9, "p2p_peer": 3, "p2p_msg_size_bytes": 8192}
        path = write(
            tmp_path / "a.log", {"header": header, "p2p_perf": perf | {"p2p_exec_time_us": 31}}
        )
        batches = read(path)
        (row,) = rows(batches)
        assert (row["op"], row["seq"], row["bytes"]) == ("recv 1<-3", 9, 8192)
        assert row["duration_us"] == 31
        assert rows(batches, "communicators")[0]["name"] == "PP"

    def test_a_flat_record_is_read(self, tmp_path: Path) -> None:
        flat = {"id": "0x2", "rank": 1, "n_ranks": 2, "hostname": "n", "pid": 3, "gpu_uuid": "G"}
        flat |= {"coll": "AllGather", "coll_sn": 4, "coll_msg_size_bytes": 100}
        batches = read(write(tmp_path / "a.log", flat | {"coll_exec_time_us": 12.5}))
        (row,) = rows(batches)
        assert (row["op"], row["bytes"], row["duration_us"]) == ("all_gather", 200, 12)
        assert rows(batches, "communicators")[0]["device"] == "G"

    def test_metrics_with_the_older_labels_are_operations(self, tmp_path: Path) -> None:
        labels = (
            'comm_id="0x9",hostname="n",rank="2",nranks="4",coll_sn="77",collective="AllReduce"'
        )
        path = tmp_path / "m.prom"
        path.write_text(
            "# HELP none\n"
            f"nccl_bus_bandwidth_gbs{{{labels}}} 101.5\n"
            f"nccl_collective_exec_time_microseconds{{{labels}}} 640.2\n"
            f"nccl_collective_exec_time_microseconds{{{labels.replace('77', '78')}}} nan\n"
            'go_goroutines{a="b"} 3\n'
            f'nccl_bus_bandwidth_gbs{{{labels},rank="3"}} 1\n'
        )
        batches = read(path)
        (row,) = rows(batches)
        assert (row["comm_id"], row["rank"], row["seq"]) == ("0x9", 2, 77)
        assert (row["duration_us"], row["busbw_gb_per_s"]) == (640, 101.5)
        assert [line for line, _ in rejects(batches)] == [5, 6]

    @pytest.mark.parametrize(
        ("folder", "job"),
        [
            ("nccl-inspector-481516", "481516"),
            ("nccl-inspector-unknown-jobid", "nccl-inspector-unknown-jobid"),
            ("run7", "run7"),
        ],
    )
    def test_the_folder_names_the_job(self, tmp_path: Path, folder: str, job: str) -> None:
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder / "node-a-pid70.log", record())
        assert rows(read(path))[0]["job_id"] == job
        assert rows(read(path, job_id="mine"))[0]["job_id"] == "mine"


class TestRefused:
    @pytest.mark.parametrize(
        ("broken", "field"),
        [
            (record(rank=4), "expected a rank below n_ranks = 4, found 4"),
            (record(sn=-1), "expected a whole number of at least 0, found -1"),
            (record(us=-3), "expected a number of at least 0, found -3"),
            (record(us="fast"), "expected a number of at least 0, found 'fast'"),
            (record(us=float("inf")), "expected a number of at least 0, found inf"),
            (record(coll_msg_size_bytes=1.5), "expected a whole number of at least 0, found 1.5"),
            ({"header": {"rank": 1}, "coll_perf": {}}, "expected the id of a communicator"),
            ({"header": {"id": "0x1", "rank": 1}}, "expected coll_perf or p2p_perf"),
            ({"header": {"id": "0x1", "rank": 1}, "proxy_op": {"t": 1}}, "expected coll_perf"),
            ([1, 2], "expected a JSON object, found something else"),
        ],
        ids=range(10),
    )
    def test_a_record_that_cannot_be_costs_itself_alone(
        self, tmp_path: Path, broken: object, field: str
    ) -> None:
        batches = read(write(tmp_path / "a.log", record(sn=1), broken, record(sn=3)))
        assert [r["seq"] for r in rows(batches)] == [1, 3]
        ((line, reason),) = rejects(batches)
        assert line == 2
        assert reason.startswith(field)

    def test_what_follows_a_torn_pretty_object_is_read(self, tmp_path: Path) -> None:
        whole = json.dumps(record(sn=5), indent=2)
        path = tmp_path / "a.log"
        path.write_text(whole[:120] + "\n" + whole + "\n")
        batches = read(path)
        assert [r["seq"] for r in rows(batches)] == [5]
        assert [line for line, _ in rejects(batches)] == [1]

    def test_another_file_is_named_as_such(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.log", {"step": 1})
        with pytest.raises(InputError, match="no record of NCCL Inspector") as caught:
            read(path)
        assert "NCCL_INSPECTOR_DUMP" in (caught.value.hint or "")
