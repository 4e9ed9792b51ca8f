"""A plain PyTorch loop on the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import StepRecorder

torch = pytest.importorskip("torch")


def test_a_plain_loop_is_recorded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.utils.data.DataLoader(torch.randn(12, 4, 8), batch_size=None, num_workers=1)
    losses = []
    with StepRecorder(tmp_path, "torch", 0, 1) as rec:
        for step, batch in enumerate(data):
            rec.on_step_begin(step)
            rec.on_phase("compute")
            loss = model(batch).square().mean()
            loss.backward()
            rec.on_phase("other")
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
            rec.on_step_end(loss=loss, tokens=batch.shape[0])
            with torch.no_grad():
                loss.zero_()  # the recorder has read it already
    rows = sorted(Lake(tmp_path).read("steps", "torch").to_pylist(), key=lambda row: row["step"])
    assert [row["loss"] for row in rows] == pytest.approx(losses)
    assert [row["tokens"] for row in rows] == [4] * 12
    for row in rows:
        assert 0 < row["compute_us"] + row["other_us"] <= row["duration_us"]
    assert not rec.stats["is_timed_by_device"]
    assert rec.stats["misuse"] == rec.stats["errors"] == 0


def test_values_of_torch_are_read_as_numbers(tmp_path: Path) -> None:
    with StepRecorder(tmp_path, "torch", 0, 1) as rec:
        with rec.step(0):
            rec.sequences(torch.tensor([3, 4]))
            rec.loss(torch.tensor(float("nan")))
        with rec.step(1):
            rec.tokens(torch.tensor(5), torch.tensor(25))
            rec.loss(torch.tensor([0.5], dtype=torch.bfloat16, requires_grad=True))
        with rec.step(2):
            rec.loss(torch.zeros(2))
            rec.tokens(torch.tensor(0.5))
    rows = sorted(Lake(tmp_path).read("steps", "torch").to_pylist(), key=lambda row: row["step"])
    assert [(r["tokens"], r["seq_sq_sum"], r["loss"]) for r in rows] == [
        (7, 25, None),
        (5, 25, 0.5),
        (None, None, None),
    ]
    assert rec.stats["misuse"] + rec.stats["errors"] == 2


def test_what_the_recorder_asks_of_cuda_exists_in_this_torch() -> None:
    for name in (
        "is_initialized",
        "is_current_stream_capturing",
        "current_stream",
        "current_device",
        "get_device_properties",
        "Event",
    ):
        assert callable(getattr(torch.cuda, name))
    for name in ("record", "query", "elapsed_time"):
        assert callable(getattr(torch.cuda.Event, name))
