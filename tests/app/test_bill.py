"""The whole bill of a job: failure, rollback, restart, and what of it was useful."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace

S = 1_000_000
START = 1_800_000_000 * S
RANKS = 4


def steps(attempt: int, first: int, count: int, at_us: int) -> list[dict[str, Any]]:
    """Back-to-back steps of one second: 0.7 s compute, 0.3 s collective on every rank."""
    return [
        {
            "job_id": "j",
            "attempt": attempt,
            "step": first + i,
            "rank": rank,
            "start_us": at_us + i * S,
            "duration_us": S,
            "compute_us": 700_000,
            "comm_us": 300_000,
            "tokens": 1_000,
        }
        for i in range(count)
        for rank in range(RANKS)
    ]


def event(attempt: int, kind: str, at_us: int, end_us: int | None = None) -> dict[str, Any]:
    return {"job_id": "j", "attempt": attempt, "kind": kind, "start_us": at_us, "end_us": end_us}


def make(tmp_path: Path, **job: Any) -> JobView:
    """100 s: 10 pending, 10 start-up, 30 steps; failure; 10 s recovery; redo from step 20 on."""
    lake = Lake(tmp_path / "lake", create=True)
    end = START + 100 * S
    row = {"job_id": "j", "state": "completed", "world_size": RANKS, "time_basis": "wall"}
    row |= {"start_us": START, "end_us": end} | job
    lake.append("jobs", pa.Table.from_pylist([row]), source="t")
    events = [
        event(0, "allocated", START),
        event(0, "process_start", START + 10 * S),
        event(0, "first_step", START + 20 * S),
        event(0, "failure", START + 50 * S),
        event(1, "process_start", START + 55 * S),
        event(1, "first_step", START + 60 * S),
        event(1, "process_end", end),
    ]
    lake.append("events", pa.Table.from_pylist(events), source="t")
    rows = steps(0, 0, 30, START + 20 * S) + steps(1, 20, 40, START + 60 * S)
    lake.append("steps", pa.Table.from_pylist(rows), source="t")
    return job_view(open_workspace(lake.root), "j", price=Decimal("3.60"), last_steps=None)


def held(view: JobView) -> dict[str, float]:
    return {line.bucket: line.gpu_seconds for line in view.bill.lines if line.gpu_seconds}


def test_every_paid_second_is_in_one_bucket(tmp_path: Path) -> None:
    view = make(tmp_path)
    seconds = held(view)
    assert sum(seconds.values()) == pytest.approx(100 * RANKS)
    assert seconds["pending"] == pytest.approx(10 * RANKS)
    assert seconds["startup"] == pytest.approx(10 * RANKS)
    assert seconds["recovery"] == pytest.approx(10 * RANKS)
    # Steps 20 to 29 were done twice: the first time is lost.
    assert seconds["lost_work"] == pytest.approx(10 * RANKS)
    assert seconds["compute"] == pytest.approx(60 * 0.7 * RANKS)
    usd = sum(line.usd for line in view.bill.lines if line.usd is not None)
    assert usd == Decimal("0.40")
    assert view.metrics["goodput_ratio"].value == pytest.approx(0.6)
    assert view.metrics["ettr_ratio"].value == pytest.approx(60 / 90)
    assert view.metrics["mfu_ratio"].value is None
    assert "not known" in (view.metrics["mfu_ratio"].reason or "")


def test_useful_work_needs_device_and_model(tmp_path: Path) -> None:
    view = make(
        tmp_path, gpu_model="NVIDIA H100 80GB HBM3", dtype="bf16", params_total=50_000_000_000
    )
    # 6 N x 4,000 tokens a step over four devices at 989.5 TFLOP/s.
    want = 6 * 50e9 * 4_000 / (RANKS * 989.5e12)
    assert view.metrics["mfu_ratio"].value == pytest.approx(want, rel=1e-6)
    shares = view.metrics
    product = (
        (shares["scheduling_ratio"].value or 0)
        * (shares["ettr_ratio"].value or 0)
        * (shares["mfu_ratio"].value or 0)
    )
    assert shares["effective_mfu_ratio"].value == pytest.approx(product)
    assert held(view)["useful"] == pytest.approx(want * 60 * RANKS)


def test_more_than_the_peak_is_never_shown(tmp_path: Path) -> None:
    view = make(tmp_path, gpu_model="NVIDIA A100-SXM4-80GB", dtype="bf16", params_total=10**13)
    assert view.metrics["mfu_ratio"].value is None
    assert view.metrics["mfu_ratio"].reason


def test_an_unknown_device_gives_no_mfu_and_says_so(tmp_path: Path) -> None:
    view = make(tmp_path, gpu_model="Abacus 9000", dtype="bf16", params_total=10**9)
    assert view.metrics["mfu_ratio"].value is None
    assert "Abacus 9000" in (view.metrics["mfu_ratio"].reason or "")
