"""What wandb and mlflow themselves write, read back without them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steptax.connectors.base import Options
from steptax.connectors.registry import connector

WANDB_RUN = """
import math, wandb
run = wandb.init(mode="offline", project="p", name="n", dir="{dir}")
for step in range({steps}):
    run.log({{"train/loss": 8 / (step + 1), "lr": 1e-4, "deep": {{"a": step}}, "text": "x" * 900}})
run.log({{"train/loss": math.nan}})
run.finish()
"""


def rows(kind: str, path: Path) -> list[dict[str, Any]]:
    batches = list(connector(kind).read(path, Options(job_id="j")))
    assert not [r for b in batches for r in b.rejects]
    return [r for b in batches if b.table == "printed_metrics" for r in b.rows.to_pylist()]


def test_an_offline_run_of_wandb(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    code = WANDB_RUN.format(dir=tmp_path, steps=300)  # with its texts more than eight blocks
    environment = os.environ | {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=240)
    [path] = tmp_path.rglob("*.wandb")
    assert path.stat().st_size > 8 * (32 << 10)
    found = {(r["name"], r["step"]): r["value"] for r in rows("wandb", path)}
    assert found["loss", 7] == 1.0
    assert found["loss", 300] is None
    assert found["lr", 299] == 1e-4
    assert found["deep.a", 123] == 123
    assert len(found) == 901


def test_a_local_store_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.store.tracking.file_store import FileStore

    store = FileStore(str(tmp_path / "mlruns"))
    from mlflow.entities import Metric, RunStatus

    run = store.create_run("0", "user0", 1_700_000_000_000, [], "named")
    run_id = run.info.run_id
    for step in range(10):
        at_ms = 1_700_000_000_000 + 500 * step
        store.log_metric(run_id, Metric("train/loss", 8 / (step + 1), at_ms, step))
        store.log_metric(run_id, Metric("lr", math.nan if step == 4 else 0.5, at_ms, step))
    store.update_run_info(run_id, RunStatus.FINISHED, 1_700_000_009_000, "named")
    folder = tmp_path / "mlruns" / "0" / run_id / "metrics"
    loss = rows("mlflow", folder / "train" / "loss")
    assert [(r["name"], r["printed_as"], r["step"]) for r in loss[:2]] == [
        ("loss", "train/loss", 0),
        ("loss", "train/loss", 1),
    ]
    assert loss[3]["value"] == 2.0
    assert loss[3]["at_us"] == 1_700_000_001_500_000
    rate = rows("mlflow", folder / "lr")
    assert [r["value"] for r in rate].count(None) == 1
    [job] = [
        row
        for batch in connector("mlflow").read(folder / "lr", Options())
        if batch.table == "jobs"
        for row in batch.rows.to_pylist()
    ]
    assert job["job_id"] == run_id
    assert (job["name"], job["state"], job["owner"]) == ("named", "completed", "user0")
    assert job["end_us"] == 1_700_000_009_000_000
