"""Flight recorder dumps: real ones, hostile ones, and whose dump a file is."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.nccl.flight_recorder import FlightRecorderConnector
from steptax.connectors.nccl.flight_recorder_pickle import load_plain

READER = FlightRecorderConnector()
Shared = Callable[[str], Path]
GPU_ERROR = "connectors/flight_recorder/nvrx_gpu_error_1st"
LOCK_GIL = "connectors/flight_recorder/nvrx_lock_gil_1st"
GLOO = "connectors/flight_recorder/gen_torch2.14_gloo_4ranks_a"


def read(path: Path, **options: Any) -> list[Batch]:
    return list(READER.read(path, Options(**options)))


def rows(batches: list[Batch], table: str = "collectives") -> list[dict[str, Any]]:
    return [row for batch in batches if batch.table == table for row in batch.rows.to_pylist()]


def entry(seq: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_795_962_490_391_888_210,
        "input_sizes": [[1024]],
        "output_sizes": [[1024]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "is_p2p": False,
    } | more


def dump(*entries: dict[str, Any], ranks: str = "[0, 1, 2, 3]", **more: Any) -> dict[str, Any]:
    return {
        "version": "2.9",
        "nccl_version": "2.27.3",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": 7, "last_completed_collective": 6}},
        "entries": list(entries),
    } | more


def put(path: Path, value: object, protocol: int = 2) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


class TestRealFiles:
    def test_the_dump_of_a_rank_that_hangs(self, shared: Shared) -> None:
        batches = read(shared(f"{GPU_ERROR}/_dump_14"))
        found = rows(batches)
        assert len(found) == 43
        first = found[0]
        assert (first["comm_id"], first["op"], first["seq"]) == ("42", "all_gather", 42_806)
        assert (first["rank"], first["rank_scope"], first["n_ranks"]) == (14, "global", 2)
        assert first["job_id"] == "nvrx_gpu_error_1st"
        # An all-gather's whole is its output: 8192 x 1 x 5120 of two bytes each.
        assert first["bytes"] == 8192 * 5120 * 2
        assert first["shape"] == "[[4096, 1, 5120]] -> [[8192, 1, 5120]]"
        assert first["enqueued_us"] // 1_000_000 == 1_758_610_505
        assert {r["state"] for r in found} == {"scheduled"}
        assert sum(r["op"].startswith(("send", "recv")) for r in found) == 6

    def test_states_of_groups_with_and_without_entries(self, shared: Shared) -> None:
        states = {
            r["comm_id"]: r for r in rows(read(shared(f"{GPU_ERROR}/_dump_14")), "communicators")
        }
        assert len(states) == 13
        tensor = states["42"]
        assert tensor["name"] == "TENSOR_MODEL_PARALLEL_GROUP"
        assert tensor["members"] == "14,15"
        assert (tensor["last_enqueued"], tensor["last_completed"]) == (42_826, 42_805)
        # No entry names this group: it is found by the order of creation.
        assert states["7"]["name"] == "DATA_PARALLEL_GROUP_WITH_CP"
        assert states["7"]["last_enqueued"] == 312
        assert states["0"]["last_enqueued"] == 163
        assert states["0"]["n_ranks"] == 16
        assert states["0"]["library"] == "2.27.3"

    def test_a_dump_without_entries_still_tells_how_far_the_rank_came(self, shared: Shared) -> None:
        batches = read(shared(f"{LOCK_GIL}/_dump_9"))
        assert not rows(batches)
        states = {r["comm_id"]: r for r in rows(batches, "communicators")}
        assert states["37"]["members"] == "8,9,10,11"
        assert states["37"]["last_enqueued"] == states["37"]["last_completed"] == 88_683
        peer = {r["comm_id"]: r for r in rows(read(shared(f"{LOCK_GIL}/_dump_8")), "communicators")}
        assert (peer["37"]["last_enqueued"], peer["37"]["last_completed"]) == (88_688, 88_683)

    def test_every_real_dump_is_read_without_a_reject(self, shared: Shared) -> None:
        for folder, entries in ((GPU_ERROR, 289), (LOCK_GIL, 142), (GLOO, 72)):
            paths = sorted(shared(folder).glob("*[0-9]*"))
            batches = [b for p in paths if p.suffix != ".log" for b in read(p)]
            assert not [r for b in batches for r in b.rejects]
            assert len(rows(batches)) == entries

    def test_json_of_gloo(self, shared: Shared) -> None:
        batches = read(shared(f"{GLOO}/fr_rank_2.json"))
        found = rows(batches)
        assert [r["op"] for r in found[:3]] == ["barrier", "all_reduce", "all_reduce"]
        # Ranks 2 and 3 have a group of their own, which has the same number as that of 0 and 1.
        assert [r["comm_id"] for r in found[:3]] == ["0", "0", "2"]
        assert found[1]["enqueued_us"] == 1_795_962_490_392_753
        assert found[1]["bytes"] == 262_144 * 4
        states = {r["comm_id"]: r for r in rows(batches, "communicators")}
        # Its one group entry is nameless and says "[0, 1]", which is true of none.
        assert states["0"].get("members") is None
        assert (states["0"]["last_enqueued"], states["2"]["last_completed"]) == (12, 6)

    def test_a_collection_of_dumps_gives_what_its_dumps_give(self, shared: Shared) -> None:
        batches = read(shared("fleet/nccl_flight_gpu_error_1st.json"))
        single = [
            r for n in range(16) for r in rows(read(shared(f"{GPU_ERROR}/_dump_{n}"), job_id="j"))
        ]
        together = rows(batches)
        assert {r["job_id"] for r in together} == {"nccl_flight_gpu_error_1st"}

        def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [r | {"job_id": "", "source_row": 0} for r in found]

        assert plain(together) == plain(single)


class Bomb:
    """Runs a command when it is loaded plainly."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


class TestHostilePickles:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_code_is_refused_by_name_and_never_run(self, tmp_path: Path, protocol: int) -> None:
        marker = tmp_path / "ran"
        path = put(tmp_path / "dump_0", dump(entry()) | {"x": Bomb(marker)}, protocol)
        with pytest.raises(InputError, match=r"asks for code at byte \d+ .*: posix.system"):
            read(path)
        assert not marker.exists()
        # The same bytes do run where they are loaded plainly: the test would notice.
        pickle.loads(path.read_bytes())
        assert marker.exists()

    @pytest.mark.parametrize(
        "program",
        [
            b"\x80\x02cbuiltins\neval\n(U\x031+1tR.",
            b"\x80\x02(ibuiltins\neval\n.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
            b"\x80\x02\x82\x01.",
            b"\x80\x02U\x03pidQ.",
            b"\x80\x02Ppid\n.",
            b"\x80\x05\x97.",
        ],
        ids=["GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "BINPERSID", "PERSID", "NEXT_BUFFER"],
    )
    def test_every_way_out_is_closed(self, program: bytes) -> None:
        assert list(pickletools.genops(program))
        with pytest.raises(InputError, match="asks for code") as caught:
            load_plain(program, "here")
        assert caught.value.where == "here"
        assert "do not open" in (caught.value.hint or "")

    def test_a_memo_number_that_would_take_all_memory_is_refused(self) -> None:
        program = b"\x80\x02}r" + struct.pack("<I", 0xFFFFFFF0) + b"."
        with pytest.raises(InputError, match="impossible memo number"):
            load_plain(program, "here")

    @pytest.mark.parametrize(
        "program", [b"\x80\x02", b"\x80\x02a.", b"\x80\x02h\x09.", b"\x80\x02(X\xff\xff\xff\xff."]
    )
    def test_damage_is_named_as_damage(self, program: bytes) -> None:
        with pytest.raises(InputError, match="damaged"):
            load_plain(program, "here")

    def test_a_value_that_refers_to_itself_a_million_times_is_no_entry(
        self, tmp_path: Path
    ) -> None:
        bomb: list[Any] = [1]
        for _ in range(40):
            bomb = [bomb, bomb]
        path = put(tmp_path / "dump_0", dump(entry(input_sizes=bomb), entry(2)))
        batches = read(path)
        assert [r["seq"] for r in rows(batches)] == [2]
        ((reject),) = [r for b in batches for r in b.rejects]
        assert (reject.row, reject.field) == (1, "input_sizes")

    def test_a_large_dump_is_read(self, tmp_path: Path) -> None:
        frames = [{"name": "f", "filename": "train.py", "line": n} for n in range(20)]
        path = put(tmp_path / "rank_3", dump(*(entry(n, frames=frames) for n in range(2000))))
        assert len(rows(read(path))) == 2000


class TestWhoseDump:
    @pytest.mark.parametrize(
        ("name", "rank"),
        [
            ("_dump_2", 2),
            ("nccl_trace_rank_3", 3),
            ("fr_rank_1.json", 1),
            ("trace3", 3),
            ("nccl_trace_rank_node120" + "3", 3),
            ("nccl_trace_rank_node-1203.pickle", 3),
            ("rank_0.gz", 0),
        ],
    )
    def test_by_its_name(self, tmp_path: Path, name: str, rank: int) -> None:
        path = tmp_path / name
        path.write_bytes(pickle.dumps(dump(entry()), 2))
        assert {r["rank"] for r in rows(read(path))} == {rank}

    def test_by_the_one_rank_that_fits_all_its_groups(self, tmp_path: Path) -> None:
        more = {"9": {"name": "9", "desc": "", "ranks": "[2]"}}
        body = dump(entry())
        body["pg_config"] |= more
        path = put(tmp_path / "dump", body)
        batches = read(path)
        assert {r["rank"] for r in rows(batches)} == {2}
        assert any("read as rank 2" in note for b in batches for note in b.notes)

    def test_by_what_a_person_says(self, tmp_path: Path) -> None:
        path = put(tmp_path / "dump", dump(entry()))
        with pytest.raises(InputError, match="does not say whose dump it is") as caught:
            read(path)
        assert "--rank N" in (caught.value.hint or "")
        assert {r["rank"] for r in rows(read(path, extra={"rank": "1"}))} == {1}


class TestForms:
    def test_before_version_2_a_dump_was_a_list(self, tmp_path: Path) -> None:
        old = {k: v for k, v in entry(5).items() if k not in {"process_group", "collective_seq_id"}}
        (row,) = rows(read(put(tmp_path / "rank_0", [old | {"seq_id": 5}])))
        assert (row["comm_id"], row["seq"], row["op"]) == ("0", 5, "all_reduce")

    def test_a_measured_duration_and_unknown_times(self, tmp_path: Path) -> None:
        path = put(
            tmp_path / "rank_0",
            dump(
                entry(1, duration_ms=1.25, time_discovered_started_ns=2_000),
                entry(2, time_created_ns=0, time_discovered_started_ns=None),
            ),
        )
        first, second = rows(read(path))
        assert (first["duration_us"], first["start_us"]) == (1250, 2)
        assert second["enqueued_us"] is None
        assert second["duration_us"] is None

    def test_transfers_of_one_batch_keep_apart(self, tmp_path: Path) -> None:
        send = entry(is_p2p=True, p2p_seq_id=4, profiling_name="nccl:send 0->3")
        found = rows(read(put(tmp_path / "rank_0", dump(send, send, entry(4)))))
        assert [(r["op"], r["seq"]) for r in found] == [
            ("send 0->3", 4),
            ("send 0->3 #2", 4),
            ("all_reduce", 4),
        ]

    def test_an_entry_that_cannot_be_costs_itself_alone(self, tmp_path: Path) -> None:
        wrong = [
            entry(profiling_name=None),
            entry(state="lost"),
            entry(collective_seq_id="many", seq_id=None),
            entry(input_sizes="[[1]]"),
            entry(time_created_ns=-5),
        ]
        body = dump(*wrong, entry(9))
        body["entries"].append("no entry")
        batches = read(put(tmp_path / "rank_0", body))
        assert [r["seq"] for r in rows(batches)] == [9]
        told = [(r.row, r.field) for b in batches for r in b.rejects]
        assert told == [
            (1, "profiling_name"),
            (2, "state"),
            (3, "collective_seq_id"),
            (4, "input_sizes"),
            (5, "time_created_ns"),
            (7, "entries"),
        ]

    def test_a_json_dump_that_breaks_off_gives_its_whole_entries(self, tmp_path: Path) -> None:
        text = json.dumps(dump(*(entry(n) for n in range(1, 6))))
        path = tmp_path / "fr_rank_1.json"
        path.write_text(text[: text.rfind('"pg_id"')])
        batches = read(path)
        assert [r["seq"] for r in rows(batches)] == [1, 2, 3, 4]
        ((reject),) = [r for b in batches for r in b.rejects]
        assert reject.row == 5
        assert "breaks off" in reject.reason

    def test_a_group_state_that_fits_no_group_is_left_out_and_said(self, tmp_path: Path) -> None:
        body = dump(entry(), pg_status={"0": {}, "5": {"last_enqueued_collective": 3}})
        batches = read(put(tmp_path / "rank_0", body))
        assert len(rows(batches, "communicators")) == 1
        assert any("group number 5" in note for b in batches for note in b.notes)

    @pytest.mark.parametrize("body", [{"a": 1}, {"entries": 3}, [1], "text", None])
    def test_another_pickle_is_no_dump(self, tmp_path: Path, body: object) -> None:
        with pytest.raises(InputError, match="no flight recorder dump"):
            read(put(tmp_path / "rank_0", body))
