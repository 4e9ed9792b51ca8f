"""``steptax profile`` on real traces, against what HolisticTraceAnalysis prints of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from steptax.app.cli import main

Run = Callable[..., Any]
Shared = Callable[[str], Path]
FOLDER = "connectors/kineto"
NCCL = f"{FOLDER}/hta_nccl_args_rank0of2_step4.json.gz"
AMD = f"{FOLDER}/hta_amd_mi250_rocm6.2.json.gz"
SAMPLED = f"{FOLDER}/hta_sampled_2of128ranks"
HOST_ONLY = f"{FOLDER}/hta_rank_non_gpu.json.gz"

#: Printed by HolisticTraceAnalysis 0.5.0 (with pandas 3.1.1): get_temporal_breakdown's idle,
#: compute, non-compute and kernel time in us, and get_comm_comp_overlap's percentage.
HTA = {
    NCCL: (167510, 37625, 10633, 215768, 14.76),
    AMD: (8780, 96, 35, 8911, None),
    f"{SAMPLED}/rank-0.json.gz": (321378, 106252, 172428, 600058, 11.81),
    f"{SAMPLED}/rank-1.json.gz": (328671, 135548, 136455, 600674, 20.05),
}
#: The same with HTA_DISABLE_NS_ROUNDING=1, of traces with fractions of microseconds.
HTA_EXACT = {
    NCCL: (166330.503, 38506.406, 10932.515, 215769.424, 15.22),
    AMD: (8762.845, 110.881, 38.161, 8911.887, None),
}
#: get_idle_time_breakdown: host wait, kernel wait and other in us by stream.
HTA_IDLE = {
    NCCL: {"7": (176535, 1091, 0), "40": (173196, 0, 0)},
    AMD: {"0": (8780, 0, 0)},
    f"{SAMPLED}/rank-0.json.gz": {
        "7": (213825, 1985, 261740),
        "23": (596037, 70, 34),
        "25": (0, 9, 47865),
        "84": (148934, 6, 0),
        "203": (0, 0, 0),
    },
    f"{SAMPLED}/rank-1.json.gz": {
        "7": (156827, 1816, 281064),
        "23": (596313, 100, 0),
        "25": (0, 9, 53028),
        "84": (251860, 0, 23247),
        "203": (0, 0, 0),
    },
}


def parts(found: dict[str, Any]) -> tuple[float, ...]:
    told = found["breakdown"]
    return tuple(told[f"{name}_us"] for name in ("idle", "compute", "non_compute", "window"))


def hidden(found: dict[str, Any]) -> float | None:
    share = found["overlap_ratio"]
    return None if share is None else round(100 * share, 2)


class TestAgainstHta:
    @pytest.mark.parametrize("name", HTA)
    def test_times_and_overlap_are_what_it_prints(
        self, steptax: Run, shared: Shared, name: str
    ) -> None:
        [found] = steptax("profile", shared(name), "--like-hta")["ranks"]
        *want, overlap = HTA[name]
        assert parts(found) == tuple(want)
        assert hidden(found) == overlap

    @pytest.mark.parametrize("name", HTA_IDLE)
    def test_idle_causes_are_what_it_prints(self, steptax: Run, shared: Shared, name: str) -> None:
        [found] = steptax("profile", shared(name), "--like-hta")["ranks"]
        told = {
            c["stream"]: (c["host_wait_us"], c["kernel_wait_us"], c["other_us"])
            for c in found["idle_causes_by_stream"]
        }
        assert told == HTA_IDLE[name]

    @pytest.mark.parametrize("name", HTA_EXACT)
    def test_nanoseconds_are_not_rounded_away(
        self, steptax: Run, shared: Shared, name: str
    ) -> None:
        # One profiled step with work in it, so that it leaves out none of it.
        [found] = steptax("profile", shared(name))["ranks"]
        *want, overlap = HTA_EXACT[name]
        assert parts(found) == pytest.approx(want, abs=0.5)
        assert hidden(found) == overlap

    def test_rounding_costs_it_a_fortieth_of_the_computing(
        self, steptax: Run, shared: Shared
    ) -> None:
        path = shared(NCCL)
        [exact] = steptax("profile", path)["ranks"]
        [rounded] = steptax("profile", path, "--like-hta")["ranks"]
        lost = exact["breakdown"]["compute_us"] - rounded["breakdown"]["compute_us"]
        assert lost / exact["breakdown"]["compute_us"] == pytest.approx(0.0229, abs=1e-4)
        assert exact["operations"] == rounded["operations"]

    def test_the_last_step_is_paid_for_too(self, steptax: Run, shared: Shared) -> None:
        path = shared(f"{SAMPLED}/rank-0.json.gz")
        [whole] = steptax("profile", path)["ranks"]
        [like] = steptax("profile", path, "--like-hta")["ranks"]
        assert whole["steps"] == [551, 552]
        assert (like["operations"], whole["operations"]) == (602, 1204)

    def test_the_kernel_table_is_what_it_prints(self, steptax: Run, shared: Shared) -> None:
        [found] = steptax("profile", shared(NCCL), "--like-hta")["ranks"]
        first = found["kernels"][0]
        assert first["name"].startswith("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*")
        assert first["kind"] == "communication"
        printed = (first["total_us"], first["max_us"], first["min_us"], first["mean_us"])
        assert printed == (11946.0, 3306.0, 1689.0, 2389.2)
        assert first["deviation_us"] == pytest.approx(588.438357)
        second = found["kernels"][1]
        assert (second["total_us"], second["max_us"]) == (4043.0, 152.0)
        assert second["mean_us"] == pytest.approx(25.588608)


def test_parts_add_up_to_the_window(steptax: Run, shared: Shared) -> None:
    for found in steptax("profile", *sorted(shared(SAMPLED).glob("*.gz")))["ranks"]:
        told = found["breakdown"]
        names = ("compute", "exposed_communication", "exposed_copy", "idle")
        assert sum(told[f"{n}_us"] for n in names) == pytest.approx(told["window_us"])
        assert sum(told[f"{n}_ratio"] for n in names) == pytest.approx(1.0)
        assert found["idle_causes"]["stream"] is None
        idle = found["idle_causes"]
        causes = idle["host_wait_us"] + idle["kernel_wait_us"] + idle["other_us"]
        assert causes == pytest.approx(told["idle_us"])
        assert sum(s["operations"] for s in found["streams"]) == found["operations"]


def test_a_stored_job_gives_the_same(steptax: Run, shared: Shared) -> None:
    files = sorted(shared(SAMPLED).glob("*.gz"))
    steptax("ingest", "kineto", *files, "--job", "j")
    stored = steptax("profile", "--job", "j")
    read = steptax("profile", *files)
    assert stored["job_id"] == "j"
    assert [r["rank"] for r in stored["ranks"]] == [0, 1]
    for mine, theirs in zip(stored["ranks"], read["ranks"], strict=True):
        same = "breakdown overlap_ratio kernels streams steps operations idle_causes"
        for name in same.split():
            assert mine[name] == theirs[name], name
        by_stream = [
            sorted(told["idle_causes_by_stream"], key=lambda causes: causes["stream"])
            for told in (mine, theirs)
        ]
        assert by_stream[0] == by_stream[1]
        assert mine["idle_causes"]["host_wait_us"] > 0


def test_a_job_stored_before_launches_were_kept_says_so(
    steptax: Run, shared: Shared, tmp_path: Path
) -> None:
    steptax("ingest", "kineto", *sorted(shared(SAMPLED).glob("*.gz")), "--job", "j")
    for path in (tmp_path / "lake" / "tables" / "ops").rglob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["launch_ns"]), path)
    for rank in steptax("profile", "--job", "j")["ranks"]:
        assert rank["idle_causes"] is None
        assert "steptax profile FILES" in rank["idle_reason"]
        assert rank["breakdown"]["idle_us"] > 0


def test_a_trace_without_device_says_so(steptax: Run, shared: Shared) -> None:
    [found] = steptax("profile", shared(HOST_ONLY))["ranks"]
    assert found["breakdown"] is None
    assert found["idle_causes"] is None
    assert "no device in this trace" in found["reason"]


def test_a_rank_in_two_files_is_shown_twice_and_said(
    steptax: Run, shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    files = [shared(NCCL), shared(HOST_ONLY), shared(AMD)]
    data = steptax("profile", *files)
    assert [r["rank"] for r in data["ranks"]] == [0, 0, None]
    monkeypatch.setattr("sys.argv", ["steptax", "profile", *map(str, files)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert "note: rank 0 is in 2 files, each shown by itself: hta_nccl_args" in text
    assert "rank 0 (hta_rank_non_gpu.json.gz): no device in this trace" in text
    assert "Kernels of rank 0 (hta_nccl_args_rank0of2_step4.json.gz), 10 of 72" in text
    assert "Why it is idle" in text


def test_no_communication_at_all_is_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = trace(tmp_path / "t.json", [event("kernel", "gemm", 100, 60, 7, 1)])
    monkeypatch.setattr("sys.argv", ["steptax", "profile", str(path), "--json"])
    with pytest.raises(SystemExit):
        main()
    [steps, loud] = json.loads(capsys.readouterr().out)["warnings"]
    assert "all device work is shown" in steps
    assert "NO COMMUNICATION KERNEL was recognised" in loud


def test_a_torn_file_does_not_hide_the_other_ranks(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    torn = shared(f"{FOLDER}/malformed/truncated_gzip.json.gz")
    monkeypatch.setattr("sys.argv", ["steptax", "profile", str(torn), str(shared(NCCL)), "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    assert [r["rank"] for r in printed["data"]["ranks"]] == [0]
    assert printed["warnings"][0].startswith("not read: ")
    assert "truncated_gzip" in printed["warnings"][0]


def test_a_trace_that_breaks_off_says_that_its_times_are_lower_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = trace(tmp_path / "t.json", [event("kernel", "gemm", i, 1, 7, i) for i in range(9)])
    path.write_text(path.read_text()[:-30])
    monkeypatch.setattr("sys.argv", ["steptax", "profile", str(path), "--json"])
    with pytest.raises(SystemExit):
        main()
    printed = json.loads(capsys.readouterr().out)
    assert printed["data"]["ranks"][0]["operations"] == 8
    assert any("lower bounds" in text for text in printed["warnings"])


def event(cat: str, name: str, ts: float, dur: float, stream: int, number: int) -> dict[str, Any]:
    args = {"stream": stream, "device": 0, "correlation": number}
    if cat == "cuda_runtime":
        args = {"correlation": number}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def trace(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_2stage<float, 8>(vllm::RankData*)",
    ],
)
def test_communication_is_seen_whatever_its_library(
    steptax: Run, tmp_path: Path, name: str
) -> None:
    # HolisticTraceAnalysis 0.5.0 knows names that begin with nccl: it takes the other two for
    # computing, and then finds no communication and no overlap.
    path = trace(
        tmp_path / "t.json",
        [event("kernel", "gemm", 100, 60, 7, 1), event("kernel", name, 140, 60, 20, 2)],
    )
    [found] = steptax("profile", path)["ranks"]
    assert parts(found) == (0, 60, 40, 100)
    assert found["overlap_ratio"] == pytest.approx(1 / 3)


def test_a_gap_is_the_hosts_if_it_launched_late(steptax: Run, tmp_path: Path) -> None:
    path = trace(
        tmp_path / "t.json",
        [
            event("cuda_runtime", "cudaLaunchKernel", 90, 5, 0, 1),
            event("kernel", "a", 100, 50, 7, 1),
            event("cuda_runtime", "cudaLaunchKernel", 190, 5, 0, 2),
            event("kernel", "b", 200, 50, 7, 2),
            event("cuda_runtime", "cudaLaunchKernel", 240, 5, 0, 3),
            event("kernel", "c", 260, 50, 7, 3),
            event("cuda_runtime", "cudaLaunchKernel", 300, 5, 0, 4),
            event("kernel", "d", 400, 50, 7, 4),
        ],
    )
    [found] = steptax("profile", path)["ranks"]
    told = found["idle_causes"]
    assert (told["host_wait_us"], told["kernel_wait_us"], told["other_us"]) == (50, 10, 90)
    [found] = steptax("profile", path, "--kernel-wait-us", "5")["ranks"]
    assert found["idle_causes"]["other_us"] == 100


class TestMistakes:
    def test_files_or_a_job(self, steptax: Run, tmp_path: Path) -> None:
        assert "found neither" in steptax("profile", fails=2)["message"]
        path = trace(tmp_path / "t.json", [event("kernel", "gemm", 1, 1, 7, 1)])
        assert "found both" in steptax("profile", path, "--job", "j", fails=2)["message"]

    def test_a_job_is_not_compared(self, steptax: Run) -> None:
        assert steptax("profile", "--job", "j", "--like-hta", fails=2)["where"] == "--like-hta"

    def test_no_trace_at_all(self, steptax: Run, tmp_path: Path) -> None:
        (tmp_path / "t.json").write_text('{"a": 1}')
        error = steptax("profile", tmp_path / "t.json", fails=2)
        assert "is no trace" in error["message"]
        assert str(tmp_path) in error["where"]

    def test_a_job_without_device(self, steptax: Run, shared: Shared) -> None:
        files = sorted(shared(f"{FOLDER}/gen_torch2.14_gloo_4ranks_a").glob("*.gz"))
        steptax("ingest", "kineto", *files, "--job", "gloo")
        error = steptax("profile", "--job", "gloo", fails=2)
        assert "no operations of a device are stored" in error["message"]
        assert "nope" in steptax("profile", "--job", "nope", fails=2)["message"]


def test_a_look_at_a_trace_imports_neither_arrow_nor_a_store(tmp_path: Path) -> None:
    """They take more time and memory than most traces do."""
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2, "tid": 7, "args": {}}
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps({"traceEvents": [kernel]}))
    program = (
        "import sys\n"
        "from steptax.app.cli import main\n"
        f"sys.argv = ['steptax', 'profile', {str(trace)!r}, '--json']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyarrow', 'pandas', 'duckdb', 'scipy', 'streamlit', 'plotly'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    told, _, heavy = done.stdout.rpartition("heavy: ")
    assert heavy.strip() == "[]"
    (rank,) = json.loads(told)["data"]["ranks"]
    assert rank["breakdown"]["compute_us"] == 2.0
