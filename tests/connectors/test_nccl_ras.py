"""Answers of NCCL RAS: the forms of its user guide and sources, text and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.nccl.ras import NcclRasConnector

READER = NcclRasConnector()
COMM = "0xcf264af53edbe986"

#: Made from the forms of src/ras/client_support.cc of NCCL 2.29.
BEHIND_AND_SILENT = """\
NCCL version 2.29.1 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE,MISMATCH
    1         8         4         1         4        32   RUNNING      OK

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 10.0.0.13 managing GPU 5

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 99 on node 10.0.0.14 managing GPUs 0,1

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 21 -- GPU 5 managed by process 3487984 on node 10.0.0.13
  Rank 30 -- [process information not found]

#0-0 (cf264af53edbe986) ERROR
  Asynchronous error on 1 rank
  Rank 7 reported Remote process error -- GPU 7 managed by process 77 on node 10.0.0.10

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  29 ranks have status RUNNING
  Rank 4 has status FINALIZE -- GPU 4 managed by process 74 on node 10.0.0.10
  Communicator ranks have different AllReduce operation counts
  27 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 70 on node 10.0.0.10
  Rank 2 -- GPU 2 (NVML 3) managed by process 72 on node 10.0.0.10
  Rank 9 has not launched any operations -- GPU 1 managed by process 81 on node 10.0.0.11

"""


def read(path: Path, **options: Any) -> list[Batch]:
    return list(READER.read(path, Options(**options)))


def by_rank(batches: list[Batch]) -> dict[tuple[str, int], dict[str, Any]]:
    found = [row for batch in batches for row in batch.rows.to_pylist()]
    return {(row["comm_id"], row["rank"]): row for row in found}


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    path = tmp_path / "ras.txt"
    path.write_text(BEHIND_AND_SILENT)
    return path


class TestText:
    def test_ranks_that_stand_out(self, answer: Path) -> None:
        batches = read(answer, job_id="j")
        assert not [r for b in batches for r in b.rejects]
        found = by_rank(batches)
        assert {rank: found[COMM, rank]["state"] for rank in (4, 7, 21, 30)} == {
            4: "FINALIZE",
            7: "ERROR: Remote process error",
            21: "UNRESPONSIVE",
            30: "UNRESPONSIVE",
        }
        counts = {r: json.loads(found[COMM, r]["op_counts"]) for r in (-1, 0, 2, 9)}
        assert counts == {
            -1: {"all_reduce": 6650},
            0: {"all_reduce": 6649},
            2: {"all_reduce": 6649},
            9: {"all_reduce": 0},
        }
        assert found[COMM, 2]["host"] == "10.0.0.10"
        assert (found[COMM, 2]["pid"], found[COMM, 2]["device"]) == (72, "2 (NVML 3)")
        assert found[COMM, 30].get("pid") is None

    def test_communicators_and_processes_as_a_whole(self, answer: Path) -> None:
        found = by_rank(read(answer))
        whole = found[COMM, -1]
        assert (whole["n_ranks"], whole["n_nodes"]) == (32, 4)
        assert whole["state"] == "INCOMPLETE,ERROR,MISMATCH"
        assert whole["library"] == "NCCL 2.29.1"
        assert found["group 1", -1]["name"] == "8 communicators of 4 ranks"
        assert found["group 1", -1]["state"] == "RUNNING OK"
        assert found["process 10.0.0.13:3487984", -1]["state"] == "UNRESPONSIVE"
        assert found["process 10.0.0.14:99", -1]["state"] == "DEAD"
        assert found["process 10.0.0.14:99", -1]["device"] == "0,1"

    def test_before_2_26_counts_and_missing_ranks_were_written_otherwise(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "ras.txt"
        path.write_text(
            "#0-0 (27a079b828ff1a75) MISMATCH\n"
            "  Communicator ranks have different collective operation counts\n"
            "  26 ranks have launched up to operation 6650\n"
            "  6 ranks have launched up to operation 6649\n"
            "  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210\n"
            "#1-0 (00000000000000aa) INCOMPLETE\n"
            "  Missing communicator data from 2 ranks\n"
            "  The missing ranks: 21, 22\n"
            "#2-0 (9e17999afaa87dbb) MISMATCH\n"
            "  Communicator ranks have different status\n"
            "  26 ranks have status UNKNOWN\n"
            "  2 ranks have status FINALIZE\n"
            "  Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210\n"
        )
        found = by_rank(read(path))
        assert json.loads(found["0x27a079b828ff1a75", 5]["op_counts"]) == {"collective": 6649}
        assert json.loads(found["0x27a079b828ff1a75", -1]["op_counts"]) == {"collective": 6650}
        assert found["0xaa", 22]["state"] == "UNRESPONSIVE"
        assert found["0x9e17999afaa87dbb", 4]["state"] == "FINALIZE"

    def test_a_line_of_the_monitor_mode(self, tmp_path: Path) -> None:
        path = tmp_path / "ras.txt"
        path.write_text(
            "RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...\n"
            "================================================================\n"
            "[2025-12-19 13:07:07] PEER_DEAD: Process 15 on node 172.16.64.245 managing GPU 1\n"
        )
        batches = read(path)
        assert by_rank(batches)["process 172.16.64.245:15", -1]["state"] == "DEAD"
        assert not [r for b in batches for r in b.rejects]

    def test_a_line_that_is_not_understood_is_counted_and_the_others_hold(
        self, tmp_path: Path
    ) -> None:
        whole = BEHIND_AND_SILENT.splitlines()
        line = next(n for n, text in enumerate(whole) if "Rank 2 --" in text)
        whole[line] = "  Rang 2 -- GPU 2"
        path = tmp_path / "ras.txt"
        path.write_text("\n".join(whole))
        batches = read(path)
        assert [r.row for b in batches for r in b.rejects] == [line + 1]
        found = by_rank(batches)
        assert (COMM, 2) not in found
        assert json.loads(found[COMM, 9]["op_counts"]) == {"all_reduce": 0}


class TestJson:
    def body(self) -> dict[str, Any]:
        fine = {"init_state": 0, "async_error": 0, "finalize_called": False}
        fine |= {"destroy_flag": False, "abort_flag": False}

        def rank(number: int, launched: int, **status: Any) -> dict[str, Any]:
            return {
                "rank": number,
                "host": "10.0.0.1",
                "pid": 70 + number,
                "cuda_dev": 0,
                "nvml_dev": number,
                "status": fine | status,
                "collective_counts": {"Broadcast": 2, "AllReduce": launched},
            }

        missing = {"rank": 4, "host": "unknown", "pid": -1, "cuda_dev": 1, "nvml_dev": -1}
        return {
            "nccl_version": "2.29.1",
            "timestamp": "2025-12-19 13:06:53",
            "communicators": [
                {
                    "hash": "0xAE94423CFBB2EF4A",
                    "size": 6,
                    "ranks_count": 4,
                    "ranks": [
                        rank(0, 41),
                        rank(1, 40, async_error=6),
                        rank(2, 41, abort_flag=True),
                        rank(3, 41, init_state=7),
                    ],
                    "missing_ranks": [
                        missing | {"status": {"unresponsive": True, "considered_dead": False}},
                        missing | {"rank": 5, "status": {"considered_dead": True}},
                    ],
                }
            ],
        }

    def test_every_rank_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "ras.json"
        path.write_text(json.dumps(self.body(), indent=2))
        batches = read(path)
        found = by_rank(batches)
        comm = "0xae94423cfbb2ef4a"
        assert [found[comm, n]["state"] for n in range(6)] == [
            "RUNNING",
            "ERROR: Remote process error (async_error)",
            "ABORT",
            "INIT",
            "UNRESPONSIVE",
            "DEAD",
        ]
        assert json.loads(found[comm, 1]["op_counts"]) == {"broadcast": 2, "all_reduce": 40}
        assert (found[comm, 3]["pid"], found[comm, 3]["device"]) == (73, "3")
        assert found[comm, 4].get("host") is None
        assert found[comm, 0]["n_ranks"] == 6
        assert any("local time of the job" in n for b in batches for n in b.notes)

    def test_a_communicator_that_cannot_be_costs_itself_alone(self, tmp_path: Path) -> None:
        body = self.body()
        body["communicators"].insert(0, {"hash": "0x1", "size": 0})
        body["communicators"].append("none")
        path = tmp_path / "ras.json"
        path.write_text(json.dumps(body))
        batches = read(path)
        assert [(r.row, r.field) for b in batches for r in b.rejects] == [
            (1, "size"),
            (3, "communicators"),
        ]
        assert len(by_rank(batches)) == 7

    @pytest.mark.parametrize("text", ['{"communicators": [', '{"communicators": 3}'])
    def test_what_is_no_answer_is_refused(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "ras.json"
        path.write_text(text)
        with pytest.raises(InputError, match=r"no whole JSON|no list of communicators"):
            read(path)
