"""A job of which there is a log only, and what the reports of other tools say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.cli import main
from steptax.app.compute.measure import Measure
from steptax.app.views.reported.view import MAX_POINTS, job_reports, printed_values, reported_scores
from steptax.app.views.whatif.job import job_inputs
from steptax.app.views.workspace import Workspace, open_workspace

EXAMPLES = Path(__file__).parents[1] / "connectors" / "examples"
Run = Callable[..., Any]

CUT = """\
 [2026-03-01 10:00:02] iteration        1/      10 | elapsed time per iteration (ms): 2000.0 | \
throughput per GPU (TFLOP/s/GPU): 90.5 | lm loss: 1.1E+01 | number of skipped iterations:   0 |
 [2026-03-01 10:00:03] iteration        2/      10 | elapsed time per iteration (ms): 1000.0 | \
throughput per GPU (TFLOP/s/GPU): 180.5 | lm loss: 1.0E+01 | number of skipped iterations:   0 |
 [2026-03-01 10:00:04] iteration        3/      10 | elapsed time per iteration (ms): 1000.0 | \
throughput per GPU (TFLOP/s/GPU): 181.5 | lm loss: 9.5E+00 | number of skipped iterations:   0 |
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(CUT)
    return path


@pytest.fixture
def workspace(tmp_path: Path, steptax: Run) -> Callable[[], Workspace]:
    return lambda: open_workspace(tmp_path / "lake")


class TestJobOfALog:
    def test_who_is_slow_cannot_be_told(self, steptax: Run, log: Path) -> None:
        stored = steptax("ingest", "megatron", log, "--job", "j", "--world-size", 8)
        assert stored["tables"]["steps"] == {"accepted": 3, "rejected": 0, "stored_before": 0}
        data = steptax("job", "j", "--price", "2")
        assert data["card"]["verdict"] == "untellable"
        assert "step time of all ranks together" in data["card"]["sentence"]
        assert data["card"]["straggler_tax"]["value"] is None
        assert data["card"]["straggler_tax"]["level"] == "L0"
        assert "of the job, as its log prints it · 8 ranks paid" in data["coverage"]["text"]
        assert data["metrics"]["step_ms"]["value"] == pytest.approx(4000 / 3)
        hours = data["metrics"]["gpu_hours"]["value"]
        assert hours == pytest.approx(8 * 4.0 / 3600)
        assert data["metrics"]["spend_usd"]["value"] == pytest.approx(2 * hours)
        held = sum(line["gpu_seconds"] or 0 for line in data["bill"]["lines"])
        assert held == pytest.approx(8 * 4.0)

    def test_without_the_number_of_ranks_there_are_no_gpu_hours(
        self, steptax: Run, log: Path
    ) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        data = steptax("job", "j", "--price", "2")
        assert data["job"]["world_size"] is None
        assert "unknown" in data["job"]["topology"]
        for name in ("gpu_hours", "spend_usd"):
            assert data["metrics"][name]["value"] is None
            assert "--world-size" in data["metrics"][name]["reason"]
        assert all(line["gpu_seconds"] is None for line in data["ledger"])
        assert data["bill"]["lines"] == []
        assert data["metrics"]["step_ms"]["value"] == pytest.approx(4000 / 3)
        (listed,) = steptax("jobs")
        assert listed["world_size"] is None
        assert listed["gpu_hours"]["value"] is None
        # Said later, it holds for the rows that are stored already.
        steptax("ingest", "megatron", log, "--job", "j", "--world-size", 4)
        data = steptax("job", "j")
        assert data["metrics"]["gpu_hours"]["value"] == pytest.approx(4 * 4.0 / 3600)

    def test_a_job_of_unknown_size_is_no_job_of_one_gpu(self, steptax: Run, log: Path) -> None:
        steptax("ingest", "megatron", log, "--job", "sized", "--world-size", 8)
        alone = steptax("executive", "--price", "2")
        steptax("ingest", "megatron", log, "--job", "unsized")
        review = steptax("executive", "--price", "2")
        hours = 8 * 4.0 / 3600
        assert review["metrics"]["gpu_hours"]["value"] == pytest.approx(hours)
        assert "without 1 of 2 jobs" in review["metrics"]["gpu_hours"]["warnings"][0]
        assert review["ledger"] == alone["ledger"]
        assert sum(line["gpu_seconds"] or 0 for line in review["ledger"]) == pytest.approx(32.0)
        assert "over 1 of 2 jobs" in review["sentence"]
        assert "Recorded steps of 1 of 2 jobs" in review["ledger_note"]
        assert "0 of 2 jobs have per-rank steps, 2 the step times of a log" in review["coverage"]
        (bill,) = steptax("ledger", "--by", "team")["groups"]
        assert (bill["jobs"], bill["gpu_hours"]) == (1, pytest.approx(hours))

    def test_a_calculator_is_not_given_a_guess_of_its_ranks(
        self, steptax: Run, log: Path, workspace: Callable[[], Workspace]
    ) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        found = job_inputs(workspace(), "j")
        ranks = {
            (name, key): known
            for name, inputs in found.inputs.items()
            for key, known in inputs.items()
            if key in ("ranks", "gpus", "devices", "workers", "a_gpus", "observed_gpus")
        }
        assert len(ranks) >= 10
        for where, known in ranks.items():
            assert isinstance(known, Measure), where
            assert known.value is None, where
            assert "--world-size" in (known.reason or ""), where
        # A log shows no single rank, however many there are.
        observed = found.of("any-slow")["observed_ranks"]
        assert isinstance(observed, Measure)
        assert observed.value is None
        steptax("ingest", "megatron", log, "--job", "j", "--world-size", 4)
        known = job_inputs(workspace(), "j").of("failures")["gpus"]
        assert isinstance(known, Measure)
        assert known.value == 4

    def test_dialect_is_an_option(self, steptax: Run, log: Path) -> None:
        steptax("ingest", "megatron", log, "--job", "j", "--dialect", "primus")
        assert steptax("job", "j")["job"]["framework"] == "Primus"
        error = steptax("ingest", "megatron", log, "--dialect", "klingon", fails=2)
        assert error["where"] == "--dialect"

    def test_printed_values_stand_beside_ours(
        self, steptax: Run, log: Path, workspace: Callable[[], Workspace]
    ) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        found = {v.name: v for v in printed_values(workspace(), "j")}
        rate = found["tflops_per_gpu"]
        assert (rate.value, rate.step, rate.values_printed) == (181.5, 3, 3)
        assert rate.printed_as == "throughput per GPU (TFLOP/s/GPU)"
        assert rate.mean_value == pytest.approx((90.5 + 180.5 + 181.5) / 3)
        assert printed_values(workspace(), "nobody") == ()

    def test_the_same_log_twice_adds_nothing(self, steptax: Run, log: Path, tmp_path: Path) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        with log.open("a") as handle:
            handle.write(CUT.splitlines(keepends=True)[-1].replace("        3/", "        4/"))
        grown = steptax("ingest", "megatron", log, "--job", "j")["tables"]
        assert grown["steps"] == {"accepted": 1, "rejected": 0, "stored_before": 3}
        assert grown["printed_metrics"]["accepted"] == 4
        assert grown["printed_metrics"]["rejected"] == 0


class TestBesideOurs:
    def test_what_a_log_prints_stands_beside_what_follows_from_its_steps(
        self, steptax: Run, shared: Callable[[str], Path]
    ) -> None:
        path = shared("connectors/torchtitan/torchtitan_8xb200_tp2fsdp4_logfreq1.log")
        steptax("ingest", "torchtitan", path, "--job", "t")
        data = steptax("job", "t")
        rows = {row["name"]: row for row in data["reports"]["beside"]}
        rate = rows["tokens_per_s_per_gpu"]
        assert (rate["printed"]["text"], rate["printed"]["unit"]) == ("9,323", "tokens/s/GPU")
        # 81,920 tokens a step on 8 GPUs; the first of ten steps took 27 s.
        step_s = data["metrics"]["step_ms"]["value"] / 1000
        assert rate["ours"]["value"] == pytest.approx(81_920 / step_s / 8)
        assert rate["ours"]["unit"] == "tokens/s/GPU"
        assert rows["mfu"]["printed"]["text"] == "34.91%"
        assert rows["mfu"]["ours"]["value"] is None
        assert "precision" in rows["mfu"]["ours_is"]
        assert rows["loss"]["ours"] is None
        assert [row["title"] for row in data["reports"]["beside"]][-1] == "gradient norm"
        loss, tokens = data["reports"]["series"]
        assert loss["points"][0] == [1, 3.11665]
        assert tokens["points"][0] == [1, 341.0]
        assert len(tokens["points"]) == 10
        # Printed values stay out of the metrics.
        assert "tokens_per_s_per_gpu" not in data["metrics"]
        assert data["metrics"]["mfu_ratio"]["value"] is None

    def test_the_terminal_shows_both(
        self, steptax: Run, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        monkeypatch.setattr("sys.argv", ["steptax", "job", "j"])
        with pytest.raises(SystemExit):
            main()
        said = " ".join(capsys.readouterr().out.split())
        assert "What the log printed" in said
        assert "FLOP/s per GPU: printed 181.5 TFLOP/s/GPU at step 3, mean 150.83 of 3" in said
        assert "step time: printed 1000.0 ms at step 3" in said
        assert "ours 1,333 ms" in said

    def test_of_a_long_log_the_extremes_stay(
        self, steptax: Run, tmp_path: Path, workspace: Callable[[], Workspace]
    ) -> None:
        lines = [
            f" iteration {i:8d}/ 5000 | elapsed time per iteration (ms): 1000.0 | "
            f"lm loss: {99.5 if i == 777 else 3 - i / 5000:.6E} |\n"
            for i in range(1, 4001)
        ]
        path = tmp_path / "long.log"
        path.write_text("".join(lines))
        steptax("ingest", "megatron", path, "--job", "long")
        (loss,) = job_reports(workspace(), "long").series
        assert len(loss.steps) <= MAX_POINTS
        assert loss.values_printed == 4000
        assert loss.values.max() == 99.5
        assert loss.steps[int(loss.values.argmax())] == 777
        assert loss.values.min() == pytest.approx(3 - 4000 / 5000)

    def test_few_values_are_no_series(
        self, steptax: Run, log: Path, workspace: Callable[[], Workspace]
    ) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        assert job_reports(workspace(), "j").series == ()


class TestReportedScores:
    def test_scores_and_flags(self, steptax: Run, workspace: Callable[[], Workspace]) -> None:
        steptax("ingest", "nvrx", EXAMPLES / "nvrx.log", "--job", "j")
        found = reported_scores(workspace(), "j")
        assert [(r.rank, r.host, r.score, r.listed) for r in found.rows if r.score] == [
            (7, "node-1", 0.61, "lowest"),
            (3, "node-0", 0.94, "lowest"),
        ]
        # Rank 7 is flagged in words, and is below the tool's threshold of 0.75.
        assert found.flagged_ranks == (7,)
        assert "not therefore sound" in found.note

    def test_a_job_of_reports_alone_is_shown(self, steptax: Run) -> None:
        steptax("ingest", "nvrx", EXAMPLES / "nvrx.log", "--job", "j")
        data = steptax("job", "j")
        assert data["reports"]["scores"]["flagged_ranks"] == [7]
        assert data["reports"]["beside"] == []
        assert "card" not in data

    def test_reports_of_a_recorded_job_are_in_its_view(self, steptax: Run) -> None:
        steptax("ingest", "steps", EXAMPLES / "steps.csv", "--job", "j")
        steptax("ingest", "nvrx", EXAMPLES / "nvrx.log", "--job", "j")
        scores = steptax("job", "j")["reports"]["scores"]
        assert [row["rank"] for row in scores["rows"] if row["score"]] == [7, 3]
        assert scores["flagged_ranks"] == [7]

    def test_a_job_without_a_report(
        self, steptax: Run, log: Path, workspace: Callable[[], Workspace]
    ) -> None:
        steptax("ingest", "megatron", log, "--job", "j")
        found = reported_scores(workspace(), "j")
        assert (found.rows, found.flagged_ranks) == ((), ())
        assert "no straggler report" in found.note

    def test_a_report_leaves_a_recorded_job_as_it_is(self, steptax: Run) -> None:
        steptax("ingest", "steps", EXAMPLES / "steps.csv", "--job", "j")
        before = steptax("job", "j")
        steptax("ingest", "nvrx", EXAMPLES / "nvrx.log", "--job", "j")
        after = steptax("job", "j")
        for name in ("time_basis", "name", "framework"):
            assert after["job"][name] == before["job"][name]
        assert after["card"]["sentence"] == before["card"]["sentence"]
