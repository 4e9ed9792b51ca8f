"""``steptax bench`` as a person uses it: run, compare, accept, test a suspect."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.cli import main
from steptax.app.format import format_value
from steptax.app.lake import Lake
from steptax.app.lake.ingest import fingerprint, ingest
from steptax.app.schema import Batch
from steptax.app.views.bench.report import as_html
from steptax.app.views.bench.view import acceptance_view, compare_runs
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.hardware import bench
from steptax.benchmarks.hardware.numpy_backend import NumpyBackend
from steptax.connectors.tables.facts import rows_of
from tests.connectors.fake_nvml import FakeNvml, a100
from tests.hardware.fake_torch import FakeTorch

Run = Callable[..., Any]
Say = Callable[..., str]
EXAMPLES = Path(__file__).parent.parent / "connectors" / "examples"
QUICK = (
    *("--backend", "numpy", "--size", 64, "--memory-bytes", 65536, "--repeats", 3),
    *("--iterations", 5, "--warmup", 1, "--seconds", 0.05),
)


def put(root: Path, run: str, host: str, values: list[float], **more: Any) -> None:
    """One figure of a run, as the lake keeps it."""
    row = {
        "run_id": run,
        "host": host,
        "gpu_uuid": f"GPU-{host}",
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "test": "gemm",
        "size": "8192x8192x8192",
        "dtype": "bf16",
        "value": sorted(values)[len(values) // 2],
        "unit": "TFLOP/s",
        "repeats": json.dumps(values),
        "measured_at_us": 1_000_000,
        "ranks": 1,
        "nodes": 1,
    } | more
    own = row.pop("ingest", "")
    ingest(
        Lake(root, create=True),
        [Batch("bench_results", rows_of("bench_results", [row]))],
        ingest_id=fingerprint([], run, host, own),
        source=f"bench:{host}",
    )


@pytest.fixture
def say(steptax: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command on the lake of ``steptax``; returns what it prints for people."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["steptax", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr().out
        assert left.value.code == 0, printed
        return printed

    return run


@pytest.fixture(autouse=True)
def small_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing 64 MiB before each iteration is the right thing for a figure, not for a test."""
    monkeypatch.setattr(NumpyBackend, "flush_bytes", 1 << 16)


def test_a_run_is_kept_and_does_not_differ_from_itself(steptax: Run) -> None:
    run = steptax("bench", "gemm", "memory", "collectives", "--ranks", 2, "--op", "all_reduce",
                  "--max-bytes", 2048, "--arrivals", 8, "--name", "first", *QUICK)  # fmt: skip
    assert run["run_id"] == "first"
    told = {(r["test"], r["size"]): r for r in run["results"] if r["gpu_uuid"] in ("cpu", "all")}
    gemm = told["gemm", "64x64x64"]
    assert len(gemm["repeats"]) == 3
    assert gemm["p5"] <= gemm["p50"] <= gemm["p95"] <= gemm["p99"]
    assert told["all_reduce busbw", "2048"]["wrong"] == 0
    assert run["collectives"]["fits"]["all_reduce"]["intercept_us"]["value"] > 0
    assert run["slowest"][0]["device_state_missing"]
    same = steptax("bench", "compare", "first", "first")
    assert (same["differing"], same["only_in_run"], same["only_in_base"]) == (0, 0, 0)
    assert len(same["figures"]) == 3 + 5
    assert same["sentence"] == "no difference beyond noise in 8 figures"
    assert steptax("bench", "runs") == ["first"]
    arrivals = steptax("collectives", "--job", "first")
    assert arrivals["arrivals"][0]["joined"] == 8
    assert arrivals["sweeps"][0]["test"] == "all_reduce"
    again = steptax("bench", "gemm", "--name", "first", *QUICK, fails=2)
    assert "holds a run 'first' already" in again["message"]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Two GPUs, the second half as fast again, in torch and in NVML; the first has an Xid."""
    torch = FakeTorch(slow=(1.0, 1.5))
    torch.__spec__ = ModuleSpec("torch", None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    nvml = FakeNvml(*(a100() | {"UUID": f"GPU-uuid-{i}"} for i in range(2)))
    nvml.xids.append((0, 79))
    monkeypatch.setattr(bench, "nvml_module", lambda: nvml)
    return torch


def test_a_node_with_gpus_is_measured_with_the_state_of_its_devices(
    steptax: Run, gpus: FakeTorch, tmp_path: Path
) -> None:
    run = steptax("bench", "gemm", "memory", "launch", "links", "--name", "node", "--size", 4096,
                  "--memory-bytes", 1 << 20, "--iterations", 5, "--repeats", 3)  # fmt: skip
    assert {s["device"] for s in run["slowest"] if s["test"] == "gemm"} == {"GPU-uuid-1"}
    assert run["software"]["nccl"] == "2.28.3"
    by_type = {r["dtype"]: r for r in run["results"] if r["test"] == "gemm"}
    assert set(by_type) == {"bf16", "fp16", "fp8", "fp32"}
    samples = Lake(tmp_path / "lake").read("device_samples").to_pylist()
    assert {s["gpu_uuid"] for s in samples} == {"GPU-uuid-0", "GPU-uuid-1"}
    assert {s["temperature_c"] for s in samples} == {27.0}
    found = steptax("bench", "accept", "node", exits=3)
    assert found["status"] == "reject"
    assert [(x["device"], x["xid"]) for x in found["nodes"][0]["xids"]] == [("GPU-uuid-0", 79)]
    gemm = next(
        c for c in found["nodes"][0]["checks"] if (c["test"], c["dtype"]) == ("gemm", "bf16")
    )
    assert gemm["basis"] == "reference"


def test_what_is_not_stored_is_not_in_the_lake(steptax: Run, tmp_path: Path) -> None:
    steptax("bench", "launch", "--no-store", *QUICK)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gem",), "no benchmark 'gem'"),
        (("gemm", "--model", "llama-9"), "no model 'llama-9'"),
        (("collectives", "--op", "all"), "no collective 'all'"),
        (("collectives", "--ranks", 1), "2 to 64 ranks"),
        (("gemm", "--repeats", 0), "repeats"),
        (("compare", "a", "b"), "there is no lake here"),
    ],
)
def test_what_cannot_be_run_is_refused(
    steptax: Run, arguments: tuple[object, ...], says: str
) -> None:
    error = steptax("bench", *arguments, "--backend", "numpy", fails=2) if (
        arguments[0] != "compare"
    ) else steptax("bench", *arguments, fails=2)  # fmt: skip
    assert says in error["message"]


def test_device_benchmarks_in_every_rank_of_a_launcher_are_refused(
    steptax: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    error = steptax("bench", "gemm", *QUICK, fails=2)
    assert "not in each of 8 ranks" in error["message"]


class TestAcceptance:
    def test_a_slow_node_is_rejected_against_its_own_first_run(
        self, steptax: Run, tmp_path: Path
    ) -> None:
        root = tmp_path / "lake"
        put(root, "day-1", "n1", [700, 702, 698, 701, 699])
        put(root, "day-9", "n1", [610, 612, 608, 611, 609], measured_at_us=9_000_000)
        found = steptax("bench", "accept", "day-9", exits=3)
        assert found["status"] == "reject"
        (check,) = found["nodes"][0]["checks"]
        assert (check["basis"], check["basis_source"]) == ("own baseline", "run day-1")
        assert check["gap_ratio"]["value"] == pytest.approx(1 - 610 / 700)
        assert [o["basis"] for o in check["others"]] == ["reference", "spec"]

    def test_the_fleet_is_asked_where_the_node_is_new(self, steptax: Run, tmp_path: Path) -> None:
        root = tmp_path / "lake"
        for node in range(4):
            put(root, "fleet", f"n{node}", [700.0 + node] * 5)
        put(root, "new", "n9", [655, 656, 654, 655, 656], measured_at_us=9_000_000)
        found = steptax("bench", "accept", "new")
        assert found["status"] == "watch"
        assert found["nodes"][0]["checks"][0]["basis"] == "fleet median"

    def test_an_xid_of_the_last_day_counts(self, steptax: Run, tmp_path: Path) -> None:
        root = tmp_path / "lake"
        put(root, "day-1", "n1", [700.0] * 5)
        put(root, "day-2", "n1", [700.0] * 5, measured_at_us=9_000_000)
        assert steptax("bench", "accept", "day-2")["status"] == "pass"
        sample = {"host": "n1", "gpu_uuid": "GPU-n1", "ts_us": 8_000_000, "xid": 79}
        ingest(
            Lake(root),
            [Batch("device_samples", rows_of("device_samples", [sample]))],
            ingest_id=fingerprint([], "samples"),
            source="nvml:n1",
        )
        found = steptax("bench", "accept", "day-2", exits=3)
        assert found["status"] == "reject"
        assert found["nodes"][0]["xids"][0]["action"] == "reboot"
        assert "Xid 79: reboot" in found["nodes"][0]["sentence"]

    def test_the_report_is_one_file_with_every_name_escaped(
        self, steptax: Run, tmp_path: Path
    ) -> None:
        root = tmp_path / "lake"
        put(root, "<b>run</b>", "n1", [700.0] * 5)
        out = tmp_path / "node.html"
        steptax("bench", "accept", "<b>run</b>", "--format", "html", "-o", out, exits=3)
        page = out.read_text()
        assert "<b>" not in page
        assert "&lt;b&gt;run&lt;/b&gt;" in page
        assert "gemm 8192x8192x8192 bf16" in page
        assert (
            "http"
            not in as_html(acceptance_view(open_workspace(root), "<b>run</b>")).split("stas00")[0]
        )

    @pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.93, 0), (0.88, 3)])
    def test_a_health_check_can_act_on_the_exit_code_in_every_form(
        self, steptax: Run, tmp_path: Path, share: float, code: int
    ) -> None:
        root, out = tmp_path / "lake", tmp_path / "node.html"
        put(root, "day-1", "n1", [700.0, 702, 698, 701, 699])
        later = [v * share for v in (700.0, 702, 698, 701, 699)]
        put(root, "day-9", "n1", later, measured_at_us=9_000_000)
        status = steptax("bench", "accept", "day-9", exits=code)["status"]
        assert (status == "reject") is (code == 3)
        html = steptax("bench", "accept", "day-9", "--format", "html", "-o", out, exits=code)
        assert html == {"written": str(out), "status": status}
        assert status in out.read_text()

    def test_a_time_that_grew_reads_as_longer(self, steptax: Run, tmp_path: Path) -> None:
        root = tmp_path / "lake"
        for day, factor in (("day-1", 1), ("day-9", 27)):
            put(root, day, "n1", [v * factor for v in (9.0, 9.1, 9.2)], test="launch wall",
                unit="us", measured_at_us=factor * 1_000_000)  # fmt: skip
        (check,) = steptax("bench", "accept", "day-9", exits=3)["nodes"][0]["checks"]
        assert check["reason"].startswith("27 times as long")

    def test_a_run_that_is_not_there_names_those_that_are(
        self, steptax: Run, tmp_path: Path
    ) -> None:
        put(tmp_path / "lake", "day-1", "n1", [700.0] * 5)
        error = steptax("bench", "accept", "day-2", fails=2)
        assert "day-1" in error["hint"]


def test_two_nodes_are_held_against_each_other_by_their_devices_order(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    put(root, "a", "n1", [700.0, 701, 699])
    put(root, "b", "n2", [600.0, 601, 599])
    found = compare_runs(open_workspace(root), "b", "a")
    assert found.sentence == "1 of 1 figures differ beyond noise: 1 worse, 0 better"


class TestComparison:
    def test_what_has_one_repeat_is_not_called_equal(self, steptax: Run, tmp_path: Path) -> None:
        root = tmp_path / "lake"
        put(root, "a", "n1", [700.0], gpu_model="NVIDIA H100 80GB HBM3",
            software=json.dumps({"backend": "cuda", "library": "torch 2.13.0"}))  # fmt: skip
        put(root, "b", "n2", [20.0], gpu_model="AMD EPYC",
            software=json.dumps({"backend": "cpu", "library": "numpy 2.4.6"}))  # fmt: skip
        found = steptax("bench", "compare", "b", "a")
        assert found["sentence"] == "1 of 1 cannot be judged: one repeat has no spread"
        assert (found["compared"], found["judged"], found["not_judged"]) == (1, 0, 1)
        assert found["figures"][0]["judged"] is False
        assert found["differences"] == [
            "the runs share no host and device: devices were matched by their order",
            "devices differ: AMD EPYC here, NVIDIA H100 80GB HBM3 there",
            "libraries differ: numpy 2.4.6 here, torch 2.13.0 there",
            "backends differ: cpu here, cuda there",
        ]

    def test_judged_and_not_judged_are_counted_apart(self, say: Say, tmp_path: Path) -> None:
        root = tmp_path / "lake"
        for run in ("a", "b"):
            for test, values in (("gemm", [7.0, 7.1, 7.2]), ("copy", [7.0]), ("triad", [7.0, 8])):
                put(root, run, "n1", values, test=test, ingest=f"{run} {test}")
        shown = say("bench", "compare", "b", "a")
        assert "no difference beyond noise in 1 figures; 2 of 3 cannot be judged: " in shown
        assert "one repeat has no spread (1)" in shown
        assert "repeats are too few (2 against 2) (1)" in shown
        assert shown.count("not judged") == 2
        assert "differ:" not in shown

    def test_a_software_that_is_a_plain_text_says_nothing(
        self, steptax: Run, tmp_path: Path
    ) -> None:
        put(tmp_path / "lake", "a", "n1", [7.0, 7.1, 7.2], software="pytorch 2.8")
        assert steptax("bench", "compare", "a", "a")["differences"] == []


def test_both_commands_show_the_same_figure_of_a_run_by_the_same_name(
    say: Say, steptax: Run
) -> None:
    shown = say("bench", "launch", "collectives", "--op", "all_reduce", "--ranks", 2,
                "--min-bytes", 64, "--max-bytes", 64, "--arrivals", 8, "--name", "one",
                *QUICK)  # fmt: skip
    assert shown.count("median of repeats") == 2
    assert "p50 of calls" in shown
    compared = say("bench", "compare", "one", "one")
    told = {f["test"]: f for f in steptax("bench", "compare", "one", "one")["figures"]}
    for test in ("launch wall", "all_reduce time"):
        figure = format_value(told[test]["value"], "us")
        assert figure in shown
        assert compared.count(figure) >= 2
    assert "here, median of repeats" in compared


class TestNextCommands:
    def test_they_lead_to_the_lake_that_was_given(self, say: Say, tmp_path: Path) -> None:
        root = tmp_path / "my lake"
        shown = say("bench", "launch", "--lake", root, "--name", "one", *QUICK)
        assert f"steptax bench compare one OTHER --lake '{root}'" in shown
        assert f"steptax bench accept one --lake '{root}'" in shown
        assert "--lake" not in say("bench", "launch", "--name", "two", *QUICK)

    def test_a_run_that_was_not_kept_has_none(self, say: Say) -> None:
        shown = say("bench", "launch", "--no-store", *QUICK)
        assert "next:" not in shown
        assert "not kept" in shown


class TestWhatCannotRun:
    def test_memory_that_is_not_there(self, steptax: Run, tmp_path: Path) -> None:
        error = steptax("bench", "memory", "--backend", "numpy", "--memory-bytes", 999999999999999,
                        fails=2)  # fmt: skip
        assert error["where"] == "--memory-bytes"
        assert "out of memory" in error["message"]
        assert "GB are free" in error["message"]

    def test_a_type_that_numpy_has_not(self, steptax: Run, tmp_path: Path) -> None:
        error = steptax("bench", "gemm", "--dtype", "fp8", *QUICK, fails=2)
        assert error["where"] == "--dtype"
        assert "in fp32, not fp8" in error["message"]
        # What can run beside it does, and says what was left out.
        run = steptax("bench", "gemm", "launch", "--dtype", "fp8", *QUICK, "--no-store")
        assert {r["test"] for r in run["results"]} == {"launch wall"}

    def test_links_where_there_are_none(self, steptax: Run) -> None:
        assert "no link to measure" in steptax("bench", "links", *QUICK, fails=2)["message"]

    def test_an_operation_that_needs_torch_is_refused_before_anything_is_measured(
        self, steptax: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bench, "start_local", None)
        monkeypatch.setattr(bench, "open_backends", None)
        error = steptax("bench", "gemm", "collectives", "--op", "all_gather", *QUICK, fails=2)
        assert error["where"] == "--op"
        assert "without torch all_gather cannot run: only all_reduce can" in error["message"]

    def test_sizes_of_which_none_can_run_are_no_result(
        self, steptax: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nothing = {"cells": [], "notes": ["all_gather is left out: gloo has none"]}
        monkeypatch.setattr(bench, "start_local", lambda *_a, **_k: nothing)
        error = steptax("bench", "collectives", *QUICK, fails=2)
        assert "gloo has none" in error["message"]


class TestNcclTests:
    def test_the_output_of_the_program_is_read(self, steptax: Run, tmp_path: Path) -> None:
        program = tmp_path / "all_reduce_perf"
        program.write_text(f"#!/bin/sh\ncat {EXAMPLES / 'nccl-tests.txt'}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        found = steptax("bench", "run-nccl-tests", "--name", "nt", program, "-b", "8", "-e", "1G")
        assert found["accepted"] > 0
        sweeps = steptax("collectives", "--job", "nt")["sweeps"]
        assert all(s["run_id"].startswith("nt") for s in sweeps)
        assert sweeps

    @pytest.mark.parametrize(
        ("body", "says"),
        [("echo broken >&2; exit 3", "ended with 3: broken"), ("echo hello", "no table")],
    )
    def test_a_program_that_fails_is_told(
        self, steptax: Run, tmp_path: Path, body: str, says: str
    ) -> None:
        program = tmp_path / "all_gather_perf"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        assert says in steptax("bench", "run-nccl-tests", program, fails=2)["message"]

    def test_a_program_that_is_not_there(self, steptax: Run, tmp_path: Path) -> None:
        error = steptax("bench", "run-nccl-tests", tmp_path / "none_perf", fails=2)
        assert "cannot be started" in error["message"]


class TestSuspect:
    @pytest.fixture
    def job(self, tmp_path: Path) -> str:
        """Rank 2 of 4 on two nodes computes 300 ms instead of 200 in each of 40 steps."""
        steps = [
            {
                "job_id": "j",
                "attempt": 0,
                "step": step,
                "rank": rank,
                "start_us": step * 400_000,
                "duration_us": 320_000,
                "compute_us": 300_000 if rank == 2 else 200_000,
                "comm_us": 20_000 if rank == 2 else 120_000,
            }
            for step in range(40)
            for rank in range(4)
        ]
        ranks = [{"job_id": "j", "rank": r, "host": f"node-{r // 2}"} for r in range(4)]
        batches = [
            Batch(name, rows_of(name, found))
            for name, found in (
                ("jobs", [{"job_id": "j", "world_size": 4}]),
                ("steps", steps),
                ("ranks", ranks),
            )
        ]
        assert all(isinstance(b.rows, pa.Table) for b in batches)
        lake = Lake(tmp_path / "lake", create=True)
        ingest(lake, batches, ingest_id=fingerprint([], "j"), source="steps:j.csv")
        return "j"

    def test_the_command_names_the_node_and_the_cost_is_that_of_its_devices(
        self, steptax: Run, job: str
    ) -> None:
        found = steptax("bench", "suspect", "--job", job, "--minutes", 15, "--price", "4")
        assert (found["rank"], found["host"], found["node_gpus"]) == (2, "node-1", 2)
        assert found["commands"][0] == (
            "srun --nodes 1 --nodelist node-1 --exclusive "
            "steptax bench gemm memory launch --name suspect-j-node-1"
        )
        assert found["cost_node_usd"]["value"] == pytest.approx(2 * 0.25 * 4)
        assert found["cost_job_usd"]["value"] == pytest.approx(4 * 0.25 * 4)
        assert found["pays_back_hours"]["value"] > 0

    def test_the_commands_lead_to_the_lake_that_was_given(
        self, steptax: Run, job: str, tmp_path: Path
    ) -> None:
        root = tmp_path / "lake"
        found = steptax("bench", "suspect", "--job", job, "--lake", root)
        assert [c.endswith(f" --lake {root}") for c in found["commands"]] == [True, True]

    @pytest.mark.parametrize(
        ("flag", "value"),
        [
            ("--minutes", "1e300"),
            ("--minutes", "nan"),
            ("--minutes", "0"),
            ("--price", "1e300"),
            ("--price", "10000.01"),
        ],
    )
    def test_what_nobody_can_mean_is_refused_by_the_name_of_its_flag(
        self, steptax: Run, job: str, flag: str, value: str
    ) -> None:
        error = steptax("bench", "suspect", "--job", job, flag, value, fails=2)
        assert error["where"] == flag
        assert error["message"].startswith("expected ")

    def test_without_a_price_the_cost_is_unknown(self, steptax: Run, job: str) -> None:
        found = steptax("bench", "suspect", "--job", job)
        assert found["cost_node_usd"]["value"] is None
        assert "price" in found["cost_node_usd"]["reason"]
