"""Collectives between real processes, and how ranks find each other."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from steptax.app.errors import UserError
from steptax.benchmarks.hardware.burden import burden
from steptax.benchmarks.hardware.collectives import Sweep, slowest_of
from steptax.benchmarks.hardware.comm import OPERATIONS, PATTERN
from steptax.benchmarks.hardware.launch_ranks import Place, first_node, launched, start_local
from steptax.benchmarks.hardware.rows import of_arrivals, of_collectives, own_work_ms
from steptax.benchmarks.hardware.torch_comm import TorchComm, right_pattern
from tests.hardware.fake_torch import FakeTorch

SMALL = Sweep(
    operations=("all_reduce",),
    first_bytes=4,
    last_bytes=1 << 12,
    factor=8,
    warmup=1,
    iterations=5,
    repeats=3,
    arrivals=8,
)
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Three processes of our own all-reduce."""
    return start_local(3, SMALL, torch=False, timeout_s=120)


class TestLocalRanks:
    def test_every_rank_keeps_its_times_and_every_result_is_checked(
        self, found: dict[str, Any]
    ) -> None:
        assert [cell["size"] for cell in found["cells"]] == [4, 32, 256, 2048]
        for cell in found["cells"]:
            assert cell["wrong"] == 0
            assert [[len(repeat) for repeat in rank] for rank in cell["times_us"]] == [
                [5, 5, 5]
            ] * 3
            assert all(us > 0 for rank in cell["times_us"] for r in rank for us in r)

    def test_it_says_that_it_is_neither_nccl_nor_gloo(self, found: dict[str, Any]) -> None:
        assert "shared memory" in found["library"]
        assert any("neither NCCL nor gloo" in note for note in found["notes"])

    def test_rows_hold_the_slowest_rank_of_each_call(self, found: dict[str, Any]) -> None:
        rows = of_collectives(found, "run", 1, {"python": "3"})
        cell = next(c for c in found["cells"] if c["size"] == 2048)
        of_size = [r for r in rows if r["size"] == "2048"]
        together = {r["test"]: r for r in of_size if r["gpu_uuid"] == "all"}
        worst = [statistics.median(repeat) for repeat in slowest_of(cell["times_us"])]
        time_us = together["all_reduce time"]["value"]
        assert time_us == pytest.approx(statistics.median(worst))
        algbw, busbw = (together[f"all_reduce {m}"]["p50"] for m in ("algbw", "busbw"))
        assert algbw == pytest.approx(2048 / together["all_reduce time"]["p50"] / 1e3)
        assert busbw == pytest.approx(algbw * 2 * 2 / 3)
        own = [r for r in of_size if r.get("rank") is not None]
        assert [r["rank"] for r in own] == [0, 1, 2]
        assert json.loads(own[1]["repeats"]) == pytest.approx(
            [statistics.median(repeat) for repeat in cell["times_us"][1]], abs=1e-5
        )

    def test_arrivals_are_rows_of_every_round_and_rank(self, found: dict[str, Any]) -> None:
        rows = of_arrivals(found, "run")
        assert {(r["rank"], r["seq"]) for r in rows} == {(r, s) for r in range(3) for s in range(8)}
        assert len(own_work_ms(found)) == 3
        assert min(own_work_ms(found)) > 0

    def test_a_rank_that_fails_ends_the_others_and_is_named(self, tmp_path: Path) -> None:
        # A size that is no whole number of elements passes no rank's buffers.
        broken = Sweep(operations=("all_reduce",), arrivals=8, repeats=1, last_bytes=64)
        object.__setattr__(broken, "iterations", "many")
        with pytest.raises(UserError, match=r"rank \d failed: TypeError"):
            start_local(2, broken, torch=False, timeout_s=60)

    def test_ranks_that_hang_are_ended_in_time(self) -> None:
        with pytest.raises(UserError, match="did not end within"):
            start_local(2, SMALL, torch=False, timeout_s=0.01)

    @pytest.mark.parametrize(("ranks", "burdened"), [(1, None), (65, None), (2, 2), (2, -1)])
    def test_ranks_that_cannot_be_are_refused(self, ranks: int, burdened: int | None) -> None:
        with pytest.raises(UserError):
            start_local(ranks, SMALL, torch=False, timeout_s=1, burden_rank=burdened)

    @pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
    def test_gloo_does_every_operation_right(self) -> None:
        every = Sweep(last_bytes=64, factor=8, warmup=1, iterations=2, repeats=1, arrivals=6)
        told = start_local(2, every, torch=True, timeout_s=300)
        assert {c["op"] for c in told["cells"]} == set(every.operations)
        assert all(c["wrong"] == 0 for c in told["cells"])


def test_the_burden_ends_with_its_block() -> None:
    rank = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with burden([rank.pid], 0):
            # A process has its command line a moment after Popen knows that it began.
            for _ in range(200):
                if len(_spinning()) == 8:
                    break
                time.sleep(0.01)
            assert len(_spinning()) == 8
        assert not _spinning()
    finally:
        rank.communicate(b"\n")


def _spinning() -> list[str]:
    """Children of this process that do nothing but spin."""
    own = os.getpid()
    out = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            line = path.with_name("cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if parent == own and b"while True: pass" in line:
            out.append(path.parent.name)
    return out


class TestLaunchers:
    def test_torchrun(self) -> None:
        told = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}
        assert launched(told) == Place(5, 16, 1, "env://")

    def test_slurm_names_no_meeting_place_so_it_is_the_first_node(self) -> None:
        told = {
            "SLURM_PROCID": "9",
            "SLURM_NTASKS": "16",
            "SLURM_LOCALID": "1",
            "SLURM_STEP_ID": "0",
            "SLURM_JOB_ID": "4711",
            "SLURM_STEP_NODELIST": "gpu[007-008]",
        }
        assert launched(told) == Place(9, 16, 1, "tcp://gpu007:30111")
        assert launched(told | {"MASTER_ADDR": "a", "MASTER_PORT": "7"}) == Place(
            9, 16, 1, "tcp://a:7"
        )

    @pytest.mark.parametrize(
        "told",
        [
            {},
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"},
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # the batch script itself
        ],
    )
    def test_without_a_launcher_it_starts_ranks_itself(self, told: dict[str, str]) -> None:
        assert launched(told) is None

    def test_variables_that_hold_no_numbers(self) -> None:
        with pytest.raises(UserError, match="no numbers"):
            launched({"RANK": "x", "WORLD_SIZE": "2"})

    @pytest.mark.parametrize(
        ("nodes", "first"),
        [
            ("n1", "n1"),
            ("n1,n2", "n1"),
            ("gpu[007-010,12],login1", "gpu007"),
            ("a[3,5]-ib", "a3-ib"),
        ],
    )
    def test_first_node(self, nodes: str, first: str) -> None:
        assert first_node(nodes) == first


class TestOnGpus:
    @pytest.fixture
    def torch(self) -> FakeTorch:
        torch = FakeTorch(slow=(1.0, 1.0))
        self.begun: list[tuple[Any, ...]] = []
        self.on: list[int] = []

        def everyone(found: list[Any], mine: Any) -> None:
            found[:] = [mine] * len(found)

        torch.distributed = SimpleNamespace(
            init_process_group=lambda name, **told: self.begun.append((name, told)),
            all_gather_object=everyone,
        )
        torch.cuda.set_device = self.on.append
        torch.cuda.mem_get_info = lambda: (80 << 30, 80 << 30)
        return torch

    def test_nccl_on_the_device_of_the_rank(self, torch: FakeTorch) -> None:
        comm = TorchComm(torch, rank=9, size=16, local_rank=1, init_method="env://")
        ((name, told),) = self.begun
        assert (name, told["rank"], told["world_size"], told["init_method"]) == (
            "nccl",
            9,
            16,
            "env://",
        )
        assert self.on == [1]
        assert (comm.device_id, comm.driven_by) == ("GPU-uuid-1", "nccl, torch 2.99.0")
        assert comm.note is None

    def test_sizes_end_where_the_buffers_do_not_fit(self, torch: FakeTorch) -> None:
        comm = TorchComm(torch, rank=0, size=2, local_rank=0, init_method="env://")
        assert comm.most_bytes() == 20 << 30
        assert Sweep(last_bytes=64 << 30).sizes("all_reduce", 2, comm.most_bytes())[-1] == 16 << 30


class TestSweep:
    def test_sizes_double_and_are_whole_parts_of_every_rank(self) -> None:
        sweep = Sweep(first_bytes=8, last_bytes=128)
        assert sweep.sizes("all_reduce", 3, 1 << 30) == [8, 16, 32, 64, 128]
        assert sweep.sizes("all_gather", 3, 1 << 30) == [12, 24, 60, 120]
        assert sweep.sizes("all_reduce", 3, 20) == [8, 16]
        assert Sweep().sizes("broadcast", 8, 1 << 40)[-1] == 8 << 30

    @pytest.mark.parametrize(
        "changes",
        [
            {"operations": ("reduce_all",)},
            {"first_bytes": 1},
            {"first_bytes": 64, "last_bytes": 8},
            {"factor": 1},
            {"repeats": 0},
        ],
    )
    def test_what_cannot_be_run_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(UserError):
            Sweep(**changes)


@pytest.mark.parametrize("n", [2, 3, 7, 9, 16])
def test_what_a_rank_must_hold_is_what_the_operation_makes_of_what_all_sent(n: int) -> None:
    part = 5
    sent = [(np.arange(n * part) + r) % PATTERN for r in range(n)]
    own = [s[:part] for s in sent]
    for me in range(n):
        mine = slice(me * part, (me + 1) * part)
        right = {
            "all_reduce": sum(sent),
            "all_gather": np.concatenate(own),
            "reduce_scatter": sum(s[mine] for s in sent),
            "all_to_all": np.concatenate([s[mine] for s in sent]),
            "broadcast": sent[0],
            "send_recv": sent[me - 1],
        }
        assert set(right) == set(OPERATIONS)
        for op, wanted in right.items():
            told = right_pattern(op, np.arange(len(np.asarray(wanted))), me, n, part)
            assert np.array_equal(told, np.asarray(wanted)), op
