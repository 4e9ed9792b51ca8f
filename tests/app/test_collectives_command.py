"""``steptax collectives``: from real files through the lake to the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.cli import main
from steptax.app.settings import Settings
from steptax.app.views.collectives.view import collectives_view
from steptax.app.views.workspace import open_workspace
from steptax.connectors.tables.facts import rows_of

Run = Callable[..., Any]
Shared = Callable[[str], Path]
FLIGHT = "connectors/flight_recorder"


def inspector_logs(folder: Path) -> Path:
    """Logs of four processes on two nodes; rank 2 comes 250 us late in 30 of 40 operations.

    Every tenth operation of rank 0 is lost, and rank 3 of the second communicator has no log.
    """
    folder.mkdir()
    for rank in range(4):
        place = {"hostname": f"node-{rank // 2}", "pid": 700 + rank}
        lines = []
        for sn in range(40):
            late = sn % 4 != 0
            us = 300 + (250 if late and rank != 2 else 0)
            perf = {"coll": "AllReduce", "coll_sn": sn, "coll_msg_size_bytes": 10**6}
            perf |= {"coll_exec_time_us": us, "coll_busbw_gbs": "nan"}
            header = {"id": "0xa", "rank": rank, "n_ranks": 4, "nnodes": 2}
            if not (rank == 0 and sn % 10 == 9):
                lines.append({"header": header, "metadata": place, "coll_perf": perf})
            if rank < 3:
                header = header | {"id": "0xb"}
                lines.append({"header": header, "metadata": place, "coll_perf": perf})
        text = "\n".join(json.dumps(line, indent=2) for line in lines)
        (folder / f"node-{rank // 2}-pid{700 + rank}.log").write_text(text)
    return folder


class TestHang:
    def test_both_ranks_whose_device_failed_are_found(self, steptax: Run, shared: Shared) -> None:
        # The injected faults: a GPU error on ranks 12 and 14 (fault_injection.log).
        folder = shared(f"{FLIGHT}/nvrx_gpu_error_1st")
        stored = steptax("ingest", "flight-recorder", folder)
        assert stored["tables"]["collectives"]["accepted"] == 289
        assert stored["tables"]["collectives"]["rejected"] == 0
        hang = steptax("collectives", "--job", "nvrx_gpu_error_1st")["hang"]
        assert hang["ranks"] == [12, 14]
        kinds = {s["rank"]: s["kinds"] for s in hang["suspects"]}
        assert kinds == {12: ["behind", "device"], 14: ["device"]}
        assert hang["waiting"] == [13, 15]
        assert (hang["recorded_ranks"], hang["expected_ranks"]) == (16, 16)
        evidence = " ".join(hang["suspects"][1]["evidence"])
        # Of group 74 rank 14 saw 20,529 end, ranks 13 and 15 saw 20,536 end.
        assert "operations 20,530 to 20,536 end, which ranks 13 and 15 saw end" in evidence

    def test_the_same_from_one_file(self, steptax: Run, shared: Shared) -> None:
        path = shared("fleet/nccl_flight_gpu_error_1st.json")
        steptax("ingest", "flight-recorder", path, "--job", "one")
        assert steptax("collectives", "--job", "one")["hang"]["ranks"] == [12, 14]

    def test_both_ranks_whose_interpreter_was_locked_are_found(
        self, steptax: Run, shared: Shared
    ) -> None:
        steptax("ingest", "flight-recorder", shared(f"{FLIGHT}/nvrx_lock_gil_1st"))
        hang = steptax("collectives", "--job", "nvrx_lock_gil_1st")["hang"]
        assert hang["ranks"] == [9, 14]
        assert {tuple(s["kinds"]) for s in hang["suspects"]} == {("behind",)}
        assert hang["waiting"] == [8, 10, 11, 12, 13, 15]

    def test_their_dumps_can_be_missing(self, steptax: Run, shared: Shared) -> None:
        folder = shared(f"{FLIGHT}/nvrx_lock_gil_1st")
        paths = [folder / f"_dump_{n}" for n in range(16) if n not in (9, 14)]
        steptax("ingest", "flight-recorder", *paths)
        hang = steptax("collectives", "--job", "nvrx_lock_gil_1st")["hang"]
        assert hang["absent"] == [9, 14]
        assert hang["ranks"] == [9, 14]
        assert {tuple(s["kinds"]) for s in hang["suspects"]} == {("absent",)}

    def test_a_dump_that_cannot_be_read_does_not_hide_the_others(
        self, steptax: Run, shared: Shared, tmp_path: Path
    ) -> None:
        folder = tmp_path / "hang"
        folder.mkdir()
        for path in shared(f"{FLIGHT}/nvrx_lock_gil_1st").glob("_dump_*"):
            (folder / path.name).write_bytes(b"" if path.name == "_dump_9" else path.read_bytes())
        stored = steptax("ingest", "flight-recorder", folder)
        assert len(stored["ingests"]) == 15
        assert steptax("collectives", "--job", "hang")["hang"]["ranks"] == [9, 14]

    def test_the_fault_is_named_in_a_terminal(
        self, steptax: Run, shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        steptax("ingest", "flight-recorder", shared(f"{FLIGHT}/nvrx_gpu_error_1st"))
        monkeypatch.setattr("sys.argv", ["steptax", "collectives", "--job", "nvrx_gpu_error_1st"])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert "Rank 12 and rank 14 hold up the others: ranks 13 and 15 wait." in text
        assert "16 of 16 ranks are recorded" in text
        assert "assumed: the dumps are taken to be of one moment of a hang" in text


class TestArrivals:
    def test_the_rank_that_issues_late_is_named(self, steptax: Run, shared: Shared) -> None:
        # Rank 1 of four slept 90 ms before every all-reduce of the default group.
        folder = shared(f"{FLIGHT}/gen_torch2.14_gloo_4ranks_a")
        steptax("ingest", "flight-recorder", folder, "--job", "gloo")
        data = steptax("collectives", "--job", "gloo")
        found = {(a["name"], a["op"]): a for a in data["arrivals"]}
        late = found["default_pg (0)", "all_reduce"]
        assert (late["late_rank"], late["basis"], late["joined"]) == (1, "issue", 6)
        assert late["persistence_ratio"]["value"] == 1.0
        assert 89_000 < late["lateness_us"]["value"] < 96_000
        assert "not late in some" in late["warnings"][0]
        assert [a["late_rank"] for key, a in found.items() if key[1] == "barrier"] == [None]
        assert found["2", "all_reduce"]["recorded_ranks"] == [2, 3]
        assert data["hang"]["ranks"] == []
        assert data["hang"]["verdict"].startswith("Nothing hangs")

    def test_the_rank_that_waits_least_is_named(self, steptax: Run, tmp_path: Path) -> None:
        folder = inspector_logs(tmp_path / "nccl-inspector-4711")
        stored = steptax("ingest", "nccl-inspector", folder)
        assert stored["tables"]["collectives"] == {
            "accepted": 276,
            "rejected": 0,
            "stored_before": 0,
        }
        data = steptax("collectives", "--job", "4711")
        a, b = data["arrivals"]
        assert (a["comm_id"], a["late_rank"], a["basis"]) == ("0xa", 2, "waiting")
        # 36 of 40 are on every rank (9, 19, 29, 39 are lost); of these 26 with rank 2 late.
        assert (a["joined"], a["operations"]) == (36, 40)
        assert a["persistence_ratio"]["value"] == pytest.approx(26 / 36)
        assert a["lateness_us"]["value"] == 250.0
        assert a["waiting_us"]["value"] == pytest.approx(26 * 3 * 250.0)
        assert a["late_place"] == "node-1, process 702"
        assert b["absent_ranks"] == [3]
        size = {s["comm_id"]: s for s in data["bandwidth"]}["0xa"]
        # 10^6 bytes in 300 us, times 2 x 3 / 4.
        assert size["busbw_gb_per_s"]["value"] == pytest.approx(5.0)
        assert size["busbw_with_waiting_gb_per_s"]["value"] == pytest.approx(5.0 * 300 / 550)
        assert data["hang"]["reason"]

    def test_the_global_rank_is_told_where_processes_are_known(
        self, steptax: Run, tmp_path: Path
    ) -> None:
        steptax("ingest", "nccl-inspector", inspector_logs(tmp_path / "i"), "--job", "j")
        ws = open_workspace(Settings().lake)
        rank = {"job_id": "j", "rank": 42, "host": "node-1", "pid": 702}
        ws.lake.append("ranks", rows_of("ranks", [rank]), source="test")
        found = steptax("collectives", "--job", "j")["arrivals"][0]
        assert found["late_place"] == "global rank 42, node-1, process 702"

    def test_more_than_fits_is_cut_to_the_newest_and_said(
        self, steptax: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steptax("ingest", "nccl-inspector", inspector_logs(tmp_path / "i"), "--job", "j")
        monkeypatch.setattr("steptax.app.views.collectives.view.MAX_ROWS", 70)
        ws = open_workspace(Settings().lake)
        view = collectives_view(ws, "j")
        assert view.operations == 70
        assert view.warnings == ("only the newest 70 operations on ranks are used",)
        # 7 rows a number, but 6 where rank 0 lost one: number 39 to 30, and one row of number 29.
        assert {a.comm_id: a.operations for a in view.arrivals} == {"0xa": 11, "0xb": 10}

    def test_names_in_files_are_no_styles(
        self,
        steptax: Run,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        (tmp_path / "i").mkdir()
        for rank in (0, 1):
            header = {"id": "[/red]", "rank": rank, "n_ranks": 2, "comm_name": "[bold]DP[/x]"}
            perf = {"coll": "AllReduce", "coll_msg_size_bytes": 10**6}
            lines = [
                {"header": header, "coll_perf": perf | {"coll_sn": n, "coll_exec_time_us": us}}
                for n, us in enumerate([400 - 300 * rank] * 12)
            ]
            text = "\n".join(map(json.dumps, lines))
            (tmp_path / "i" / f"n-pid{rank}.log").write_text(text)
        steptax("ingest", "nccl-inspector", tmp_path / "i", "--job", "j")
        monkeypatch.setattr("sys.argv", ["steptax", "collectives", "--job", "j"])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        text = capsys.readouterr().out
        assert "[bold]DP[/x] ([/red]): Rank 1 of the communicator comes last in 12 of 12" in text


class TestBandwidth:
    def test_a_log_of_two_nodes(self, steptax: Run, shared: Shared) -> None:
        path = shared("cases/18-nccl-algbw-vs-busbw/all_reduce.log")
        steptax("ingest", "nccl-tests", path)
        found = {s["test"]: s for s in steptax("collectives", "--job", "all_reduce")["sweeps"]}
        sweep = found["all_reduce"]
        assert (sweep["ranks"], sweep["nodes"]) == (16, 2)
        assert sweep["busbw_gb_per_s"]["value"] == pytest.approx(169.18, abs=0.01)
        assert sweep["busbw_gb_per_s"]["value"] * 8 == pytest.approx(1353.5, abs=0.1)
        assert sweep["algbw_gb_per_s"]["value"] == pytest.approx(90.23, abs=0.01)
        assert all(p["agrees"] for p in sweep["points"])
        assert not sweep["warnings"]

    @pytest.mark.parametrize(
        ("name", "busbw"),
        [
            ("nccl_allreduce_a100x8_old_columns", 235.26),
            ("nccl_alltoall_a100x8_old_columns", 224.31),
            ("nccl_reduce_a100x8_old_columns", 228.38),
            ("rccl_allreduce_mi300x_1node", 315.69),
            ("rccl_allreduce_mi300x_2node", 357.46),
            ("mpirun_tagged_stdout_stderr_a", 2.30),
        ],
    )
    def test_what_real_files_print_follows_from_their_times(
        self, steptax: Run, shared: Shared, name: str, busbw: float
    ) -> None:
        steptax("ingest", "nccl-tests", shared(f"connectors/nccl_tests/{name}.txt"))
        sweep, _in_place = steptax("collectives", "--job", name)["sweeps"]
        assert sweep["busbw_gb_per_s"]["value"] == pytest.approx(busbw, rel=1e-3, abs=0.006)
        assert {p["agrees"] for p in sweep["points"]} <= {True, None}

    def test_gauges_of_devices(self, steptax: Run, shared: Shared) -> None:
        path = shared("connectors/nccl_inspector/readme_prometheus_v5.1.prom")
        steptax("ingest", "nccl-inspector", path, "--job", "g")
        data = steptax("collectives", "--job", "g")
        assert [g["value"] for g in data["gauges"]] == [678.263, 9498.47, 464.9, 1154.87]


def test_the_job_command_tells_the_verdict(steptax: Run, shared: Shared) -> None:
    steptax("ingest", "flight-recorder", shared(f"{FLIGHT}/nvrx_gpu_error_1st"))
    data = steptax("job", "nvrx_gpu_error_1st")
    assert data["collectives"]["verdict"].startswith("Rank 12 and rank 14 hold up the others")
    assert data["collectives"]["operations"] == 289
    (listed,) = steptax("jobs")
    assert listed["job_id"] == "nvrx_gpu_error_1st"
    assert listed["gpu_hours"]["value"] is None


def test_the_share_of_the_best_is_printed(steptax: Run, tmp_path: Path) -> None:
    steptax("ingest", "nccl-inspector", inspector_logs(tmp_path / "i"), "--job", "j")
    found = steptax("collectives", "--job", "j")["bandwidth"]
    assert {row["share_of_best_ratio"]["value"] for row in found} == {1.0}


def test_a_job_without_collectives_is_answered_with_those_that_have(
    steptax: Run, shared: Shared
) -> None:
    steptax("ingest", "flight-recorder", shared(f"{FLIGHT}/nvrx_lock_gil_1st/_dump_3"))
    error = steptax("collectives", "--job", "x", fails=2)
    assert error["kind"] == "NotFoundError"
    assert "nvrx_lock_gil_1st" in error["hint"]


def test_a_folder_of_another_kind_is_refused(steptax: Run, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    assert "found a folder" in steptax("ingest", "steps", tmp_path / "f", fails=2)["message"]
    assert "or a device" in steptax("ingest", "steps", "/dev/zero", fails=2)["message"]
    error = steptax("ingest", "flight-recorder", tmp_path / "f", fails=2)
    assert "holds no flight-recorder file" in error["message"]
