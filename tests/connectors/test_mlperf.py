"""Public results of MLPerf Training: result tables, and logs of single runs in their folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

EXAMPLES = Path(__file__).parent / "examples"
LOG = EXAMPLES / "mlperf-log.txt"


def read(kind: str, path: Path) -> tuple[list[dict[str, Any]], list[Any], list[str]]:
    batches = list(connector(kind).read(path, Options()))
    rows = [row for batch in batches for row in batch.rows.to_pylist()]
    rejects = [reject for batch in batches for reject in batch.rejects]
    return rows, rejects, [note for batch in batches for note in batch.notes]


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    """The log in the folders of a submission, with everything that lies beside it."""
    root = tmp_path / "training_results_v5.1" / "Example"
    log = root / "results" / "box8" / "llama2_70b_lora" / "result_3.txt"
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG.read_bytes())
    (log.parent / "scaling.json").write_text('{"scaling_factor": 1.05}')
    described = {
        "accelerator_model_name": "NVIDIA H200-SXM5-141GB",
        "accelerators_per_node": 8,
        "number_of_nodes": "2",
        "framework": "PyTorch 2.8",
    }
    (root / "systems").mkdir()
    (root / "systems" / "box8.json").write_text(json.dumps(described))
    return log


def test_a_run_is_from_run_start_to_run_stop() -> None:
    (row,), rejects, notes = read("mlperf-log", LOG)
    assert (row["train_s"], row["init_s"]) == (540.0, 120.0)
    assert (row["submitter"], row["benchmark"]) == ("Example", "llama2_70b_lora")
    assert (row["system"], row["round"], row["run"]) == ("1x8 made-up nodes", "unknown", 0)
    assert (row["status"], row["quality"], row["samples"]) == ("success", 0.9239, 3072)
    assert "gpus" not in row
    assert not rejects
    assert not notes


def test_the_folders_of_a_submission_tell_the_rest(submission: Path) -> None:
    (row,), _, _ = read("mlperf-log", submission)
    assert (row["round"], row["system"], row["run"]) == ("5.1", "box8", 3)
    assert (row["gpus"], row["nodes"]) == (16, 2)
    assert row["gpu_model"] == "NVIDIA H200-SXM5-141GB"
    assert row["scaling_factor"] == 1.05


def test_a_description_that_cannot_be_read_is_named(submission: Path) -> None:
    system = submission.parents[3] / "systems" / "box8.json"
    system.write_text('{"number_of_nodes": ')
    with pytest.raises(InputError, match="cannot be read") as caught:
        read("mlperf-log", submission)
    assert caught.value.where == str(system)


def changed(tmp_path: Path, change: Callable[[str], str]) -> Path:
    path = tmp_path / "result_0.txt"
    path.write_text(change(LOG.read_text()))
    return path


def test_a_log_that_ends_early_has_no_time(tmp_path: Path) -> None:
    cut = changed(tmp_path, lambda text: text[: text.rindex(" 0: :::MLLOG")])
    (row,), _, notes = read("mlperf-log", cut)
    assert "train_s" not in row
    assert "status" not in row
    assert "ends before the run does" in notes[0]


def test_damaged_lines_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    worse = changed(
        tmp_path,
        lambda text: (
            text.replace('"value": 0.9412', '"value": true')
            + ' 0: :::MLLOG {"key": "run_start", "time_ms": 1, "value": null}\n'
            + " 0: :::MLLOG {broken\n"
        ),
    )
    (row,), rejects, _ = read("mlperf-log", worse)
    assert row["train_s"] == 540.0
    assert [reject.field for reject in rejects] == ["value", "run_start", ":::MLLOG"]
    assert "one run_start in the log of a run" in rejects[1].reason


def test_a_log_without_a_begin_is_no_run(tmp_path: Path) -> None:
    none = changed(tmp_path, lambda text: text.replace('"run_start"', '"run_begin"'))
    rows, (reject,), _ = read("mlperf-log", none)
    assert not rows
    assert "expected a run_start" in reject.reason


def test_a_loss_of_nan_is_no_quality(tmp_path: Path) -> None:
    lost = changed(tmp_path, lambda text: text.replace('"value": 0.9239', '"value": NaN'))
    (row,), _, _ = read("mlperf-log", lost)
    assert "quality" not in row


def test_results_are_minutes_and_empty_ones_are_rejected() -> None:
    rows, (reject,), _ = read("mlperf-results", EXAMPLES / "mlperf-results.csv")
    assert [row["train_s"] for row in rows] == [23.4 * 60, 13.1 * 60]
    assert rows[0]["shortest_s"] == pytest.approx(22.1 * 60)
    assert (rows[1]["gpus"], rows[1]["nodes"]) == (16, 2)
    assert reject.row == 4
    assert "found nothing" in reject.reason


def test_a_time_of_nothing_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("submitter,system,benchmark,train_s\na,b,c,0\na,b,d,90\n")
    (row,), (reject,), _ = read("mlperf-results", path)
    assert (row["train_s"], row["round"]) == (90.0, "unknown")
    assert "a time above 0" in reject.reason


def test_the_public_results_of_two_rounds(shared: Callable[[str], Path]) -> None:
    rows, rejects, _ = read("mlperf-results", shared("procurement/mlperf_training_v5_results.csv"))
    assert (len(rows), len(rejects)) == (385, 0)
    keys = {(row["round"], row["submitter"], row["system"], row["benchmark"]) for row in rows}
    assert len(keys) == 385
