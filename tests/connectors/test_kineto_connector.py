"""Traces of the PyTorch profiler: real ones, made-up ones, and damaged ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.kineto import names
from steptax.connectors.kineto.groups import fill_groups
from steptax.connectors.kineto.header import Group, job_in_name, rank_in_name
from steptax.connectors.registry import connector

Shared = Callable[[str], Path]
FOLDER = "connectors/kineto"
CASE = "cases/17-trace-corrupt-or-huge"


def read(path: Path, **options: Any) -> list[Batch]:
    return list(connector("kineto").read(path, Options(**options)))


def rows(batches: list[Batch], table: str) -> list[dict[str, Any]]:
    return [row for b in batches if b.table == table for row in b.rows.to_pylist()]


def notes(batches: list[Batch]) -> str:
    return "\n".join(note for b in batches for note in b.notes)


def rejects(batches: list[Batch]) -> list[str]:
    return [r.reason for b in batches for r in b.rejects]


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events as a plain reader sees them."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as handle:
        found: list[dict[str, Any]] = json.load(handle)["traceEvents"]
    return found


def covered_us(spans: list[tuple[float, float]], low: float, high: float) -> float:
    """Length of the union of ``spans`` inside of [low, high): one after the other, by hand."""
    total, reach = 0.0, low
    for start, end in sorted(spans):
        start, end = max(start, reach), min(end, high)
        if end > start:
            total += end - start
            reach = end
    return total


def span(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def event(cat: str, name: str, ts: float, dur: float, tid: int = 7, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


STEP = event("user_annotation", "ProfilerStep#5", 1000.0, 500.0, 1)
GEMM = event("kernel", "gemm", 1100.0, 200.0)
REDUCE = event("kernel", "ncclDevKernel_AllReduce_Sum_f32", 1250.0, 150.0, 20)


def write(path: Path, events: list[dict[str, Any]], *, rank: int | None = 0, **keys: Any) -> Path:
    info = {"backend": "nccl", "world_size": 2} | ({} if rank is None else {"rank": rank})
    path.write_text(json.dumps({"distributedInfo": info, **keys, "traceEvents": events}))
    return path


class TestRealFiles:
    @pytest.mark.parametrize("rank", range(4))
    def test_step_time_less_communication_tells_the_slow_rank_apart(
        self, shared: Shared, rank: int
    ) -> None:
        folder = shared(f"{FOLDER}/gen_torch2.14_gloo_4ranks_a")
        truth = json.loads((folder / "ground_truth.json").read_text())[str(rank)]
        batches = read(folder / f"rank{rank}.pt.trace.json.gz", job_id="g")
        steps = rows(batches, "steps")
        assert [s["step"] for s in steps] == [2, 3, 4, 5]
        for row in steps:
            # The run measured its own computing, and says nothing of the barrier before it.
            want = next(t for t in truth if t["step"] == row["step"])
            assert row["compute_us"] == pytest.approx(want["compute_ms"] * 1e3, rel=0.02, abs=600)
            assert row["compute_us"] + row["comm_us"] <= row["duration_us"]
        ops = rows(batches, "ops")
        groups = {(o["op_type"], o["group"]) for o in ops if o["group"]}
        mine = "1/2" if rank < 2 else "2/2"
        assert groups == {
            ("barrier", "default_pg:0/4"),
            ("all-reduce", "default_pg:0/4"),
            ("all-reduce", mine),
        }
        assert "worker thread" in notes(batches)
        whole = [o["bytes"] for o in ops if o["group"] == "default_pg:0/4" and o["bytes"]]
        assert whole == [262144 * 4] * 4

    def test_device_phases_are_unions_inside_of_the_step(self, shared: Shared) -> None:
        path = shared(f"{FOLDER}/hta_nccl_args_rank0of2_step4.json.gz")
        events = events_of(path)
        kernels = [e for e in events if e.get("cat") == "kernel"]
        step = next(e for e in events if e.get("name") == "ProfilerStep#4")
        low, high = span(step)
        nccl = [span(e) for e in kernels if e["name"].startswith("nccl")]
        other = [span(e) for e in kernels if not e["name"].startswith("nccl")]
        [row] = rows(read(path), "steps")
        assert row["duration_us"] == round(step["dur"])
        assert row["compute_us"] == pytest.approx(covered_us(other, low, high), abs=2)
        both = covered_us(other + nccl, low, high) - covered_us(other, low, high)
        assert row["comm_us"] == pytest.approx(both, abs=2)

    def test_collectives_have_group_number_and_bytes(self, shared: Shared) -> None:
        path = shared(f"{FOLDER}/hta_nccl_args_rank0of2_step4.json.gz")
        found = rows(read(path), "collectives")
        assert [c["seq"] for c in found] == [4_000_000 + i for i in range(7)]
        assert {c["comm_id"] for c in found} == {"default_pg:0/2"}
        assert {c["n_ranks"] for c in found} == {2}
        assert [c["op"] for c in found] == ["broadcast"] * 2 + ["all_reduce"] * 5
        # 53120 floats, 53 longs, 2049000 floats: from the arguments of the kernels.
        assert [c["bytes"] for c in found[:3]] == [53120 * 4, 53 * 8, 2049000 * 4]
        [job] = rows(read(path), "jobs")
        assert (job["world_size"], job["gpu_model"]) == (2, "NVIDIA A100-PG509-200")

    def test_moments_count_from_the_base(self, shared: Shared) -> None:
        path = shared(f"{FOLDER}/hta_nccl_args_rank0of2_step4.json.gz")
        [step] = rows(read(path), "steps")
        # baseTimeNanoseconds of the file plus ts of ProfilerStep#4.
        assert step["start_us"] == 1711964646000000 + 4458676416788

    def test_a_trace_without_rank_is_refused_unless_it_is_said(self, shared: Shared) -> None:
        path = shared(f"{FOLDER}/hta_amd_mi250_rocm6.2.json.gz")
        with pytest.raises(InputError, match="does not say which rank") as caught:
            read(path)
        assert "--rank" in (caught.value.hint or "")
        batches = read(path, extra={"rank": "2"})
        steps = rows(batches, "steps")
        # ProfilerStep#1 comes twice, for host and device; #2 is where profiling stopped.
        assert [(s["step"], s["rank"]) for s in steps] == [(1, 2)]
        assert steps[0]["duration_us"] == 9288
        assert "step 2 is empty" in notes(batches)
        assert "NO COMMUNICATION KERNEL" in notes(batches)
        assert sum(o["op_type"] == "kernel" for o in rows(batches, "ops")) == 14

    def test_a_profile_of_the_host_alone_claims_no_phases(self, shared: Shared) -> None:
        batches = read(shared(f"{FOLDER}/hta_rank_non_gpu.json.gz"))
        [step] = rows(batches, "steps")
        assert step["duration_us"] == 75473
        assert step["compute_us"] is None
        assert step["comm_us"] is None
        assert "NO COMMUNICATION was found" in notes(batches)

    def test_old_kernel_names_without_arguments_are_found(self, shared: Shared) -> None:
        for rank in (0, 1):
            path = shared(f"{FOLDER}/hta_sampled_2of128ranks/rank-{rank}.json.gz")
            batches = read(path)
            kernels = [e for e in events_of(path) if e.get("cat") == "kernel"]
            comm = [o for o in rows(batches, "ops") if o["op_type"] == "send-recv"]
            assert len(comm) == sum(e["name"].startswith("ncclKernel") for e in kernels) == 10
            assert [s["step"] for s in rows(batches, "steps")] == [551, 552]
            assert "carry no process group" in notes(batches)
            assert {r["world_size"] for r in rows(batches, "jobs")} == {128}

    def test_one_rank_of_many_on_cpu(self, shared: Shared) -> None:
        name = "hta_cpu_only_rank-34of300.Jul_15_10_52_41.1074.pt.trace.json.gz"
        batches = read(shared(f"{FOLDER}/{name}"))
        [step] = rows(batches, "steps")
        assert (step["rank"], step["step"]) == (34, 551)
        assert rows(batches, "jobs")[0]["world_size"] == 300

    def test_no_name_of_a_person_or_host_is_taken(self, shared: Shared) -> None:
        name = "hta_cpu_only_rank-34of300.Jul_15_10_52_41.1074.pt.trace.json.gz"
        for path in (
            shared(f"{FOLDER}/{name}"),
            shared(f"{FOLDER}/gen_torch2.14_gloo_4ranks_a/rank0.pt.trace.json.gz"),
        ):
            said = str([(b.rows.to_pylist(), b.rejects, b.notes) for b in read(path)])
            assert "user0" not in said
            assert "node-0" not in said


class TestDamage:
    def test_a_good_file(self, shared: Shared) -> None:
        batches = read(shared(f"{CASE}/good.json"))
        [step] = rows(batches, "steps")
        kernel_us = sum(
            o["duration_ns"] / 1000
            for o in rows(batches, "ops")
            if o["op_type"] in ("kernel", "all-reduce")
        )
        assert kernel_us == 300.0
        assert (step["compute_us"], step["comm_us"]) == (200, 100)

    def test_a_control_character_is_repaired_and_said(self, shared: Shared) -> None:
        batches = read(shared(f"{CASE}/control_char.json"))
        assert len(rows(batches, "ops")) == 3
        assert "1 of 3 events were no valid JSON" in notes(batches)
        assert not rejects(batches)

    def test_a_cut_file_gives_its_whole_events_and_no_phases(self, shared: Shared) -> None:
        batches = read(shared(f"{CASE}/truncated.json"))
        assert "breaks off" in notes(batches)
        assert "2 whole events were read" in notes(batches)
        [step] = rows(batches, "steps")
        assert step["duration_us"] == 500
        assert step.get("compute_us") is None
        # Nobody may take what is left for a whole step.
        assert {o["op_type"] for o in rows(batches, "ops")} == {"kernel"}
        assert len(rejects(batches)) == 1

    def test_a_lost_quote_costs_one_event_and_the_phases(self, shared: Shared) -> None:
        batches = read(shared(f"{CASE}/lost_quote.json"))
        assert len(rejects(batches)) == 1
        assert "damaged" in rejects(batches)[0]
        assert [s.get("compute_us") for s in rows(batches, "steps")] == [None]
        assert "1 event was damaged" in notes(batches)

    @pytest.mark.parametrize(
        ("name", "why"), [("empty.json", "is empty"), ("truncated.json.gz", "breaks off")]
    )
    def test_what_holds_no_event_is_refused_by_name(
        self, shared: Shared, name: str, why: str
    ) -> None:
        with pytest.raises(InputError, match=why) as caught:
            read(shared(f"{CASE}/{name}"))
        assert name in (caught.value.where or "")

    def test_infinity_and_nan_are_read(self, shared: Shared) -> None:
        batches = read(shared(f"{FOLDER}/malformed/nan_infinity_args.json"))
        assert len(rows(batches, "ops")) == 3
        assert "were repaired" in notes(batches)

    @pytest.mark.parametrize("name", ["truncated_gzip.json.gz", "truncated_json.json"])
    def test_a_cut_before_the_first_event_is_refused(self, shared: Shared, name: str) -> None:
        with pytest.raises(InputError) as caught:
            read(shared(f"{FOLDER}/malformed/{name}"))
        assert name in (caught.value.where or "")

    @pytest.mark.parametrize(
        ("broken", "kernel"),
        [
            (r'"name": "C:\Users\x", "pid"', "C:\\Users\\x"),
            ('"name": "a\nb", "pid"', "a\nb"),
            ('"name": "gemm", "bw": inf, "x": -nan, "y": -Infinity, "pid"', "gemm"),
        ],
        ids=["backslash", "line end", "bare numbers"],
    )
    def test_what_writers_get_wrong(self, tmp_path: Path, broken: str, kernel: str) -> None:
        path = write(tmp_path / "rank0.json", [STEP, GEMM, REDUCE])
        path.write_text(path.read_text().replace('"name": "gemm", "pid"', broken))
        batches = read(path)
        found = [o["name"] for o in rows(batches, "ops") if o["op_type"] == "kernel"]
        assert found == [kernel]
        assert not rejects(batches)

    def test_bytes_that_are_no_utf8_cost_a_letter(self, tmp_path: Path) -> None:
        path = write(tmp_path / "rank0.json", [STEP, GEMM, REDUCE])
        path.write_bytes(path.read_bytes().replace(b'"gemm"', b'"gem\xff"'))
        assert "gem\ufffd" in {o["name"] for o in rows(read(path), "ops")}

    @pytest.mark.parametrize(("key", "value"), [("ts", None), ("dur", "soon"), ("dur", -4.0)])
    def test_an_event_without_times_is_a_reject(
        self, tmp_path: Path, key: str, value: object
    ) -> None:
        many = [event("kernel", "k", 1001.0 + i / 10, 0.1) for i in range(2000)]
        path = write(tmp_path / "rank0.json", [STEP, *many, GEMM | {key: value}, REDUCE])
        batches = read(path)
        [reject] = [r for b in batches for r in b.rejects]
        assert (reject.row, reject.field) == (2002, key)
        # One of two thousand: the phases hold.
        assert rows(batches, "steps")[0]["comm_us"] == 150


class TestForms:
    def test_an_old_trace_is_a_list(self, tmp_path: Path) -> None:
        path = tmp_path / "rank-3.json"
        path.write_text(json.dumps([STEP, GEMM, REDUCE]))
        batches = read(path)
        assert [s["rank"] for s in rows(batches, "steps")] == [3]
        assert "taken from the file's name" in notes(batches)

    def test_keys_may_follow_the_events(self, tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        info = {"rank": 5, "world_size": 8}
        text = json.dumps({"traceEvents": [STEP, GEMM], "distributedInfo": info})
        path.write_text(text[:-1] + ', "baseTimeNanoseconds": 1700000000000000000}')
        [step] = rows(read(path), "steps")
        assert step["rank"] == 5
        assert step["start_us"] == 1_700_000_000_001_000

    def test_gzip_and_plain_are_the_same(self, tmp_path: Path) -> None:
        plain = write(tmp_path / "rank0.json", [STEP, GEMM, REDUCE])
        packed = tmp_path / "rank0.json.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        for table in ("ops", "steps"):
            assert rows(read(plain), table) == rows(read(packed), table)

    def test_fractions_of_microseconds_are_kept(self, tmp_path: Path) -> None:
        kernel = event("kernel", "gemm", 1100.125, 200.003)
        ops = rows(read(write(tmp_path / "rank0.json", [STEP, kernel])), "ops")
        [op] = [o for o in ops if o["op_type"] == "kernel"]
        assert (op["start_ns"], op["duration_ns"]) == (1_100_125, 200_003)

    def test_without_base_or_epoch_no_moment_is_claimed(self, tmp_path: Path) -> None:
        batches = read(write(tmp_path / "rank0.json", [STEP, GEMM, REDUCE]))
        assert rows(batches, "steps")[0].get("start_us") is None
        assert "unknown moment" in notes(batches)

    def test_device_work_belongs_to_the_step_that_launched_it(self, tmp_path: Path) -> None:
        after = event("user_annotation", "ProfilerStep#6", 1500.0, 500.0, 1)
        call = event("cuda_runtime", "cudaLaunchKernel", 1450.0, 5.0, 1, correlation=9)
        late = event("kernel", "late", 1600.0, 50.0, correlation=9)
        ops = rows(read(write(tmp_path / "rank0.json", [STEP, after, call, late])), "ops")
        assert [o["step"] for o in ops if o["name"] == "late"] == [5]

    def test_a_communication_waits_for_what_was_launched_before_it(self, tmp_path: Path) -> None:
        calls = [
            event("cuda_runtime", "cudaLaunchKernel", ts, 5.0, 1, correlation=number)
            for ts, number in ((1010.0, 1), (1020.0, 2), (1030.0, 3))
        ]
        first = event("kernel", "first", 1100.0, 100.0, correlation=1)
        reduce = event("kernel", "ncclKernel_AllReduce", 1260.0, 50.0, 20, correlation=2)
        second = event("kernel", "second", 1200.0, 50.0, correlation=3)
        path = write(tmp_path / "rank0.json", [STEP, *calls, first, reduce, second])
        [ready] = [o for o in rows(read(path), "ops") if o["op_type"] == "ready"]
        # The end of the first kernel, although the second has ended too when it starts.
        assert ready["start_ns"] == 1_200_000

    def test_a_step_told_twice_counts_once(self, tmp_path: Path) -> None:
        batches = read(write(tmp_path / "rank0.json", [STEP, STEP, GEMM]))
        assert len(rows(batches, "steps")) == 1
        assert rejects(batches) == ["expected each step once, found it again"]

    def test_the_devices_copy_of_a_step_is_no_step(self, tmp_path: Path) -> None:
        twin = event("gpu_user_annotation", "ProfilerStep#5", 1100.0, 300.0)
        batches = read(write(tmp_path / "rank0.json", [STEP, twin, GEMM]))
        assert [s["duration_us"] for s in rows(batches, "steps")] == [500]
        assert not rejects(batches)

    def test_without_steps_nothing_is_stored_and_it_is_said(self, tmp_path: Path) -> None:
        batches = read(write(tmp_path / "rank0.json", [GEMM, REDUCE]))
        assert not rows(batches, "ops")
        assert not rows(batches, "steps")
        assert "prof.step()" in notes(batches)
        assert any("ProfilerStep#N" in reason for reason in rejects(batches))

    def test_zero_communication_is_said_loudly(self, tmp_path: Path) -> None:
        batches = read(write(tmp_path / "rank0.json", [STEP, GEMM]))
        assert "NO COMMUNICATION KERNEL was recognised" in notes(batches)
        assert "job of 2 ranks" in notes(batches)

    def test_places_come_from_what_groups_are_for(self, tmp_path: Path) -> None:
        groups = [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))},
            {"pg_name": "1", "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": [4, 5]},
            {"pg_name": "2", "pg_desc": "mesh_dp", "ranks": [1, 3, 5, 7]},
        ]
        info = {"rank": 5, "world_size": 8, "pg_config": groups}
        path = write(tmp_path / "t.json", [STEP, GEMM], distributedInfo=info)
        batches = read(path)
        [rank] = rows(batches, "ranks")
        assert (rank["tp"], rank["dp"], rank.get("pp")) == (1, 2, None)
        [job] = rows(batches, "jobs")
        assert (job["tp_size"], job["dp_size"], job["world_size"]) == (2, 4, 8)

    def test_a_rank_outside_of_the_job_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.json", [STEP, GEMM], rank=2)
        with pytest.raises(InputError, match="is of rank 2, but the job has 2 ranks"):
            read(path)

    def test_a_file_beyond_the_limit_is_refused_before_it_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(tmp_path / "rank0.json", [STEP, GEMM])
        monkeypatch.setattr("steptax.connectors.kineto.pieces.TRACE_BYTES", 100)
        with pytest.raises(InputError, match="is larger than") as caught:
            read(path)
        assert "fewer steps" in (caught.value.hint or "")


class TestGloo:
    GROUPS = (
        Group("0", "default_pg", 4, (0, 1, 2, 3)),
        Group("1", "undefined", 2, (0, 1)),
        Group("3", "", 2, (0, 2)),
    )

    def test_pairs_of_threads_are_the_groups_in_the_order_of_making(self) -> None:
        # Threads of the other ranks of the host lie between them.
        threads = np.array([2104, 2105, 2116, 2117, 2125, 2127])
        labels, note = fill_groups([None] * 6, threads, self.GROUPS, gloo=True)
        assert labels == [*["default_pg:0/4"] * 2, *["1/2"] * 2, *["3/2"] * 2]
        assert "worker thread" in (note or "")

    def test_with_a_thread_unseen_nothing_is_guessed(self) -> None:
        threads = np.array([2104, 2105, 2116, 2125, 2127])
        labels, note = fill_groups([None] * 5, threads, self.GROUPS, gloo=True)
        assert labels == [None] * 5
        assert note is None

    def test_what_is_recorded_stays_and_one_group_needs_no_threads(self) -> None:
        threads = np.array([7, 8])
        assert fill_groups(["a", None], threads, self.GROUPS[:1], gloo=False)[0] == [
            "a",
            "default_pg:0/4",
        ]
        assert fill_groups([None, None], threads, self.GROUPS, gloo=False)[0] == [None, None]


class TestNames:
    @pytest.mark.parametrize(
        ("kernel", "op"),
        [
            ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all-reduce"),
            ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reduce-scatter"),
            ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all-gather"),
            ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send-recv"),
            ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "collective"),
            ("rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ],
    )
    def test_communication_kernels(self, kernel: str, op: str) -> None:
        assert names.is_communication(kernel)
        assert names.operation(kernel, {}) == op

    @pytest.mark.parametrize(
        "kernel",
        ["void at::native::reduce_kernel<512>", "ampere_gemm_allreducelike", "Memset (Device)"],
    )
    def test_computing_kernels(self, kernel: str) -> None:
        assert not names.is_communication(kernel)

    def test_an_all_gather_counts_its_whole_result(self) -> None:
        args = {"In msg nelems": 10, "Out msg nelems": 80, "dtype": "BFloat16"}
        assert names.message_bytes("all-gather", args) == 160
        assert names.message_bytes("reduce-scatter", args) == 20
        assert names.message_bytes("all-reduce", {**args, "dtype": "Mystery"}) is None

    @pytest.mark.parametrize(
        ("name", "rank"),
        [
            ("rank0.pt.trace.json.gz", 0),
            ("rank-34.Jul_15_10_52.json", 34),
            ("hta_rank-34of300.json", 34),
            ("iteration_5_rank_12.json", 12),
            ("frank1.json", None),
            ("trace.json", None),
            ("rank1_of_rank2.json", None),
        ],
    )
    def test_ranks_in_names(self, name: str, rank: int | None) -> None:
        assert rank_in_name(f"/x/{name}") == rank

    def test_files_of_one_run_share_the_job(self) -> None:
        assert job_in_name("/runs/llama/rank0.pt.trace.json.gz") == "llama"
        assert job_in_name("/runs/llama/it5_rank0.json") == "it5"


class TestCommand:
    def test_ranks_of_a_job_are_ingested_together(
        self, steptax: Callable[..., Any], shared: Shared
    ) -> None:
        folder = shared(f"{FOLDER}/gen_torch2.14_gloo_4ranks_a")
        files = sorted(folder.glob("rank*.gz"))
        data = steptax("ingest", "kineto", *files, "--job", "gloo")
        assert data["tables"]["steps"] == {"accepted": 16, "rejected": 0, "stored_before": 0}
        assert data["tables"]["collectives"]["accepted"] == 48
        assert data["job_ids"] == ["gloo"]
        again = steptax("ingest", "kineto", *files, "--job", "gloo")
        assert again["tables"]["steps"]["accepted"] == 0
        card = steptax("job", "gloo")["card"]
        assert "Rank 1 makes the other 3 wait" in card["sentence"]

    def test_one_rank_cannot_be_that_of_many_files(
        self, steptax: Callable[..., Any], tmp_path: Path
    ) -> None:
        paths = [write(tmp_path / f"{n}.json", [STEP, GEMM], rank=None) for n in "ab"]
        error = steptax("ingest", "kineto", *paths, "--rank", 1, fails=2)
        assert error["where"] == "--rank"
        data = steptax("ingest", "kineto", paths[0], "--rank", 1, "--job", "j")
        assert data["tables"]["ranks"]["accepted"] == 1
