"""Real logs: what is read from them, against what a few independent lines or the eye find."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from steptax.connectors.base import Options
from steptax.connectors.registry import connector

Shared = Callable[[str], Path]


class Read:
    """All rows of a file by table, with its notes and rejects."""

    def __init__(self, kind: str, path: Path, **options: Any) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.notes: list[str] = []
        self.rejects: list[tuple[int | None, str]] = []
        for batch in connector(kind).read(path, Options(job_id="j", **options)):
            self.rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
            self.notes += batch.notes
            self.rejects += [(r.row, r.reason) for r in batch.rejects]

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        return self.rows.get(name, [])

    @property
    def job(self) -> dict[str, Any]:
        (job,) = self["jobs"]
        return {k: v for k, v in job.items() if v is not None}

    def printed(self, name: str, subject: str = "job") -> dict[int, Any]:
        """Value by step."""
        rows = self["printed_metrics"]
        return {
            r["step"]: r.get("value") for r in rows if (r["name"], r["subject"]) == (name, subject)
        }

    def column(self, name: str) -> list[Any]:
        """A column of ``steps``."""
        return [row.get(name) for row in self["steps"]]


def clock(text: str) -> int:
    """Microseconds since 1970 of a moment that is written without a zone."""
    moment = datetime.fromisoformat(text.replace(",", ".")).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1e6)


def near(found: Iterable[Any], wanted: Iterable[Any]) -> bool:
    return list(found) == pytest.approx(list(wanted))


def by_regex(path: Path, pattern: str) -> list[tuple[str, ...]]:
    """All matches in a file: an independent reading of it."""
    found = re.findall(pattern, path.read_text(errors="replace"))
    return [m if isinstance(m, tuple) else (m,) for m in found]


MEGATRON = "connectors/megatron/"


class TestMegatron:
    def test_one_line_timers_of_2021(self, shared: Shared) -> None:
        path = shared(MEGATRON + "meg2021_gpt2_perf_64gpu_oneline_timers.log")
        got = Read("megatron", path)
        assert got.column("step") == [1, 2, 3]
        assert got.column("duration_us") == [155_483_800, 129_028_800, 128_891_500]
        # Every step was skipped for its loss scale, so no loss was printed.
        assert got.column("loss") == [None, None, None]
        assert got.printed("skipped_steps") == {1: 1.0, 2: 1.0, 3: 1.0}
        assert got.printed("loss_scale")[1] == 4294967296.0
        assert got.printed("backward-compute", "printing rank") == {
            1: 87380.53,
            2: 88911.73,
            3: 89444.82,
        }
        assert got.printed("batch-generator", "printing rank")[3] == 187.52
        # Timers of the set-up are printed before the first step.
        assert got.printed("model-and-optimizer-setup", "printing rank") == {0: 336.31}
        assert got.job["start_us"] == clock("2021-05-26 03:20:38")
        assert got.column("start_us") == [None] * 3
        assert not got.rejects
        assert any("which rank printed it" in note for note in got.notes)

    def test_empty_timers_of_megatron_deepspeed(self, shared: Shared) -> None:
        path = shared(MEGATRON + "megds2021_64gpu_empty_timers.log")
        got = Read("megatron", path)
        lines = by_regex(path, r"iteration +(\d+)/.*?\(ms\): ([\d.]+) .*?lm-loss: (\S+)")
        assert len(lines) == 49
        assert got.column("step") == [int(step) for step, _, _ in lines]
        assert near(got.column("duration_us"), (float(ms) * 1000 for _, ms, _ in lines))
        assert near(got.column("loss"), (float(loss) for _, _, loss in lines))
        # 64 ranks say what they allocated; two of them wrote into one line, which tells neither.
        memory = [r for r in got["printed_metrics"] if r["name"] == "memory allocated"]
        assert len(memory) == 62
        assert {r["rank"] for r in memory} == set(range(64)) - {38, 39}
        assert {r["step"] for r in memory} == {1}
        assert got.job["framework"] == "Megatron-DeepSpeed"

    def test_rocm_fork_of_2025(self, shared: Shared) -> None:
        path = shared(MEGATRON + "meg2025_rocm_llama70b_64gpu.log")
        got = Read("megatron", path)
        assert got.column("step") == list(range(1, 11))
        assert got.column("duration_us")[:3] == [302_028_100, 19_329_300, 19_394_200]
        assert got.column("loss")[-1] == 14.50441
        assert got.printed("tflops_per_gpu")[10] == 829.5
        assert got.printed("grad_norm")[5] == 354.338
        assert got.printed("mem usages")[1] == 0.6865
        # A line is printed when its step has ended.
        assert got.column("start_us")[1] == clock("2025-11-24 07:20:46") - 19_329_300
        assert got.printed("model-and-optimizer-setup", "min over ranks") == {0: 714.28}
        assert got.printed("model-and-optimizer-setup", "max over ranks") == {0: 893.91}
        assert got.job["state"] == "completed"
        assert got.job["end_us"] == clock("2025-11-24 07:23:18")
        assert got.job["params_total"] == 70_560_000_000
        assert [e["kind"] for e in got["events"]] == ["process_end"]
        assert any("--world-size" in note for note in got.notes)

    def test_primus_colours_and_pairs(self, shared: Shared) -> None:
        path = shared(MEGATRON + "primus_llama2_70b_16gpu_ansi.log")
        got = Read("megatron", path)
        assert got.column("step") == [1, 2, 4, 5, 10, 20, 30, 40, 49, 50]
        assert set(got.column("rank")) == {15}
        assert got.job["world_size"] == 16
        assert got.job["framework"] == "Primus"
        # 'this interval/mean so far'
        assert got.column("duration_us")[1] == 92_809_900
        assert got.printed("step_time", "mean so far")[2] == 268751.1
        assert got.printed("tokens_per_s_per_gpu")[50] == 1769.8
        assert got.printed("tflops_per_gpu", "mean so far")[50] == 786.2
        assert got.column("loss")[-1] == 0.2013329
        assert got["ranks"] == [{"job_id": "j", "rank": 15}]
        assert any("means over the steps" in note for note in got.notes)

    def test_pdsh_prefixes_of_two_hosts(self, shared: Shared) -> None:
        path = shared(MEGATRON + "sb_megatron_deepspeed_pdsh_prefix.log")
        got = Read("megatron", path)
        assert got.column("step") == [1, 2, 3, 4, 5]
        assert got.column("duration_us") == [
            76_015_300, 75_254_000, 75_249_600, 75_182_400, 74_494_900,
        ]  # fmt: skip
        assert got.printed("tflops_per_gpu") == {
            1: 147.61,
            2: 149.1,
            3: 149.11,
            4: 149.24,
            5: 150.62,
        }
        assert got.printed("samples_per_s_deepspeed")[4] == 315.5642580603495
        assert got.job["tokens_per_step"] == 2048 * 2048
        kinds = Counter(e["kind"] for e in got["events"])
        assert kinds == {"process_end": 1, "checkpoint_save": 1, "failure": 2}
        save = next(e for e in got["events"] if e["kind"] == "checkpoint_save")
        assert json.loads(save["detail"])["step"] == 5
        assert got.job["state"] == "completed"

    def test_min_max_blocks_beside_deepspeed(self, shared: Shared) -> None:
        path = shared(MEGATRON + "alcf_megds_minmax_blocks_a.log")
        got = Read("megatron", path)
        steps = [136005, 136006, 136007, 136008]
        assert got.column("step") == steps
        assert got.column("duration_us") == [3_420_200, 6_863_200, 3_402_700, 5_334_100]
        # The finding of this log: the step took 6863.2 ms, rank 0's own parts 3226.9 ms, and the
        # ranks spread by 0.02 % only: a stall that the log cannot pin on a rank.
        parts = [got.printed(name, "rank 0")[136006] for name in ("fwd", "bwd", "step")]
        assert sum(parts) == pytest.approx(714.77 + 2347.57 + 164.55)
        assert got.printed("forward-backward", "min over ranks")[136006] == 6639.44
        assert got.printed("forward-backward", "max over ranks")[136006] == 6640.87
        assert got.printed("samples_per_s_deepspeed")[136006] == 2561.3206693919196
        assert got.printed("samples_per_s")[136006] == 895.207
        assert got.printed("optimizer_allgather", "rank 0")[136006] == 157.82
        assert got.printed("fwd", "rank 0")[136005] == 713.90
        assert got.printed("tokens_per_s_per_gpu")[136005] == 4790.426
        assert got.job["framework"] == "Megatron-DeepSpeed (ALCF)"
        assert got.job["tokens_per_step"] == 6144 * 8192
        assert not got.rejects

    def test_perlmutter_2024(self, shared: Shared) -> None:
        got = Read("megatron", shared(MEGATRON + "alcf_perlmutter_2024.log"))
        assert got.column("duration_us") == [25_849_100, 20_298_300]
        assert got.column("loss") == [11.17136, 25.37718]
        assert got.printed("fwd", "rank 0") == {1: 6567.66, 2: 4022.73}
        assert got.printed("tokens_per_s_per_gpu") == {1: 633.832, 2: 807.159}

    def test_more_losses_between(self, shared: Shared) -> None:
        got = Read("megatron", shared(MEGATRON + "bridge_mtp_line.log"))
        assert got.column("loss") == [7.968678]
        assert got.printed("load_balancing_loss") == {100: 1.329517}
        assert got.printed("mtp_1 loss") == {100: 7.925096}


class TestScalars:
    @pytest.mark.parametrize("name", ["gpt3_7b_tp4_h100", "bert_resume_2nd_run_h100"])
    def test_by_metric(self, name: str, shared: Shared) -> None:
        path = shared(f"connectors/megatron_scalars/{name}.json")
        got = Read("megatron-scalars", path)
        whole = json.loads(path.read_text())
        times = {int(s): v for s, v in whole["iteration-time"]["values"].items() if v != "nan"}
        assert got.column("step") == sorted(times)
        assert near(got.column("duration_us"), (times[s] * 1e6 for s in sorted(times)))
        losses = {int(s): v for s, v in whole["lm loss"]["values"].items() if v != "nan"}
        assert {s: v for s, v in got.printed("loss").items() if v is not None} == losses

    def test_by_step(self, shared: Shared) -> None:
        got = Read(
            "megatron-scalars", shared("connectors/megatron_scalars/bridge_golden_by_step.json")
        )
        assert got.column("step") == list(range(50))
        assert got.column("duration_us")[:2] == [53_048_600, 284_200]
        # It is called GPU utilization, and is TFLOP/s per GPU.
        (unit,) = {r["unit"] for r in got["printed_metrics"] if r["name"] == "tflops_per_gpu"}
        assert unit == "TFLOP/s/GPU"
        assert got.printed("tflops_per_gpu")[49] == 281.6
        assert got.printed("max_alloc") == {49: 93.2}


class TestOthers:
    def test_nemo_2(self, shared: Shared) -> None:
        got = Read("nemo", shared("connectors/nemo/nemo2_mcore_progress_printer.log"))
        assert got.column("step") == [0, 1, 2, 249]
        assert got.column("duration_us") == [7_126_000, 2_505_000, 1_505_000, 1_608_000]
        assert got.printed("learning_rate")[249] == 6.168e-09
        assert got.printed("val_loss") == {249: 0.194}
        assert got.job["framework"] == "NeMo 2"

    def test_nemo_of_two_generations(self, shared: Shared) -> None:
        got = Read("nemo", shared("connectors/nemo/nemo_two_generations.log"))
        assert got.column("step") == [49, 99]
        assert got.column("duration_us") == [12_390_000, 3_130_000]
        assert got.column("loss") == [11.96, 0.0172]

    def test_torchtitan_every_step(self, shared: Shared) -> None:
        path = shared("connectors/torchtitan/torchtitan_8xb200_tp2fsdp4_logfreq1.log")
        got = Read("torchtitan", path)
        assert got.column("step") == list(range(1, 11))
        ends = [clock(f"2026-05-20 03:18:{s}") for s in ("46,574", "47,745", "48,945")]
        begin = clock("2026-05-20 03:18:19,455")
        assert got.column("duration_us")[:3] == [
            ends[0] - begin, ends[1] - ends[0], ends[2] - ends[1],
        ]  # fmt: skip
        # A cross-check: 160 x 128 tokens a device, at 8,750 tokens/s on 2 ranks of a TP group.
        second = got.column("duration_us")[1] / 1e6
        assert second == pytest.approx(160 * 128 / (8750 * 2), rel=1e-3)
        assert got.column("loss")[-1] == 1.76364
        assert got.printed("mfu")[2] == 32.76
        assert got.printed("tokens_per_s_per_gpu")[2] == 8750
        assert got.printed("tflops_per_gpu")[10] == 785.55
        job = got.job
        assert (job["world_size"], job["tp_size"], job["dp_size"]) == (8, 2, 4)
        assert job["gpu_model"] == "NVIDIA B200"
        assert job["params_total"] == job["params_active"] == 14_768_307_200
        assert job["tokens_per_step"] == 640 * 128
        assert [e["kind"] for e in got["events"]] == ["process_start", "process_end"]

    def test_torchtitan_every_tenth_step(self, shared: Shared) -> None:
        got = Read(
            "torchtitan", shared("connectors/torchtitan/torchtitan_8xb200_logfreq10_2lines.log")
        )
        assert got.column("step") == [1, 10]
        gone = clock("2026-05-19 19:31:48,420") - clock("2026-05-19 19:31:29,955")
        assert got.column("duration_us")[1] == round(gone / 9)
        # Steps between the lines are not known, so none is placed in the job's life.
        assert got.column("start_us") == [None, None]

    def test_torchtitan_that_died(self, shared: Shared) -> None:
        got = Read("torchtitan", shared("connectors/torchtitan/torchtitan_8xb200_oom.log"))
        assert got["steps"] == []
        assert got.job["state"] == "failed"
        assert got.job["world_size"] == 8
        assert [e["kind"] for e in got["events"]] == ["process_start", "failure"]

    def test_torchtitan_loss_curve(self, shared: Shared) -> None:
        path = shared("connectors/torchtitan/losses_llama3_cuda.txt")
        got = Read("torchtitan", path)
        wanted = dict(line.split() for line in path.read_text().splitlines())
        assert got.printed("loss") == {int(s): float(v) for s, v in wanted.items()}
        assert len(wanted) == 100
        assert got["steps"] == []

    def test_maxtext_dispatches_ahead(self, shared: Shared) -> None:
        got = Read("maxtext", shared("connectors/maxtext/tpu_10steps_async_dispatch.log"))
        assert got.column("step") == list(range(10))
        assert got.column("duration_us")[:3] == [44_923_000, 319_000, 5_658_000]
        assert got.printed("tflops_per_gpu")[1] == 2400.734
        assert any("less than half" in n and "step 1;" in n for n in got.notes)

    def test_maxtext_evaluation_variant(self, shared: Shared) -> None:
        got = Read("maxtext", shared("connectors/maxtext/tpu_eval_variant.log"))
        assert got.printed("total_weights") == {8: 163259, 9: 155934}
        assert got.column("loss") == [9.596, 9.58]

    def test_maxtext_elastic_restart(self, shared: Shared) -> None:
        got = Read("maxtext", shared("connectors/maxtext/elastic_restart_doc.log"))
        assert got.column("step") == [8, 9]
        # The document leaves the values of step 101 out: a step without values is no row.
        assert [row for row, _ in got.rejects] == [9]
        assert any("without a moment" in note for note in got.notes)
        assert "state" not in got.job

    def test_hf_trainer_progress_bar(self, shared: Shared) -> None:
        path = shared("connectors/hf_trainer/hf_ds_gpt2_base_n4-1832555.log")
        got = Read("hf-trainer", path)
        # Four processes draw the same bar: 16 steps, not 64; whole seconds from bar to bar.
        assert got.column("step") == list(range(1, 17))
        bars = by_regex(path, r"\| (\d+)/16 \[(\d\d):(\d\d)<")
        first = [int(m) * 60 + int(s) for _, m, s in bars[:17]]
        assert got.column("duration_us") == [(b - a) * 1_000_000 for a, b in pairwise(first)]
        assert got.printed("train_runtime") == {16: 919.097}
        assert got.job["world_size"] == 16
        assert [e["kind"] for e in got["events"]] == ["checkpoint_save"]

    def test_hf_trainer_summary_of_every_process(self, shared: Shared) -> None:
        got = Read("hf-trainer", shared("connectors/hf_trainer/hf_ds_gpt2_perf_n16_bs4-mbs8.log"))
        assert got["steps"] == []
        (runtime,) = (r for r in got["printed_metrics"] if r["name"] == "train_runtime")
        assert runtime["value"] == 273.0148
        assert any("60 values are printed twice" in note for note in got.notes)

    def test_trainer_state(self, shared: Shared) -> None:
        path = shared("connectors/hf_trainer/trainer_state_loss_every10.json")
        got = Read("hf-trainer", path)
        history = json.loads(path.read_text())["log_history"]
        assert got.printed("loss") == {e["step"]: e["loss"] for e in history}
        assert got["steps"] == []
        assert any("no line gives the time" in note for note in got.notes)

    def test_trainer_state_with_a_summary_only(self, shared: Shared) -> None:
        got = Read("hf-trainer", shared("connectors/hf_trainer/trainer_state_summary_only.json"))
        assert got.printed("total_flos") == {768: 2.0772363998572052e18}
        assert got.printed("train_runtime") == {768: 5980.6912}

    def test_lightning(self, shared: Shared) -> None:
        path = shared("connectors/lightning/metrics_train_only.csv")
        got = Read("lightning", path)
        with path.open() as handle:
            wanted = {int(r["step"]): float(r["train_loss"]) for r in csv.DictReader(handle)}
        assert got.printed("loss") == wanted
        assert got["steps"] == []


class TestStragglerReports:
    def test_nvrx(self, shared: Shared) -> None:
        path = shared("connectors/stragglers/nvrx_512rank_report.log")
        got = Read("nvrx", path)
        lines = by_regex(path, r"Rank=(\d+) Node=(\S+) Score=(\S+)")
        rows = got["reported_scores"]
        assert [(str(r["rank"]), r["host"], f"{r['score']:.2f}") for r in rows] == lines
        assert Counter((r["metric"], r["listed"]) for r in rows) == {
            ("GPU relative performance", "lowest"): 5,
            ("GPU relative performance", "highest"): 5,
            ("GPU individual performance", "lowest"): 5,
            ("GPU individual performance", "highest"): 5,
        }
        assert {r["ranks_total"] for r in rows} == {512}
        assert len({r["report"] for r in rows}) == 1
        assert got.job == {"job_id": "j", "world_size": 512}
        assert got["ranks"] == []

    @pytest.mark.parametrize("kind", ["nvrx", "megatron"])
    def test_megatron_log_straggler(self, kind: str, shared: Shared) -> None:
        got = Read(kind, shared("connectors/stragglers/megatron_log_straggler_readme.log"))
        rows = {(r["metric"], r["listed"], r["rank"]): r for r in got["reported_scores"]}
        # Ranks 0 and 8 lead the lists and stand in the summary too.
        assert len(got["reported_scores"]) == len(rows) == 14 + 8 - 2
        assert rows["round trip", "lowest", 8]["score"] == 3453.08
        assert rows["data round trip", "highest", 3]["score"] == 34.65
        # Printed as 601796W: it is milliwatts.
        assert rows["power", "lowest", 8]["score"] == pytest.approx(601.796)
        assert rows["estimated throughput", "lowest", 2]["score"] == 296.17
        assert {r["at_us"] for r in rows.values()} >= {clock("2024-03-14 23:07:56")}
