"""Event files of the libraries that write them, read back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.trackers.tensorboard import TensorboardConnector


def points(path: Path, **extra: str) -> dict[tuple[str, int, int], Any]:
    """Value by printed tag, attempt and step."""
    batches: list[Batch] = list(TensorboardConnector().read(path, Options(job_id="j", extra=extra)))
    assert not [r for b in batches for r in b.rejects]
    rows = [r for b in batches if b.table == "printed_metrics" for r in b.rows.to_pylist()]
    return {(r["printed_as"], r["attempt"], r["step"]): r["value"] for r in rows}


def event_file(folder: Path) -> Path:
    [found] = folder.glob("events.out.tfevents.*")
    return found


def test_torch_summary_writer(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for step in range(200):
            writer.add_scalar("lm loss", 8 / (step + 1), step)
            writer.add_scalar("new style", step * 0.5, step, new_style=True)
            writer.add_scalar("double", step / 3, step, new_style=True, double_precision=True)
        writer.add_scalar("lm loss", math.nan, 200)
        writer.add_text("note", "hello", 3)
        writer.add_histogram("weights", torch.ones(3), 3)
    found = points(event_file(tmp_path))
    assert len(found) == 601
    assert found["lm loss", 0, 9] == pytest.approx(0.8, rel=1e-6)
    assert found["lm loss", 0, 200] is None
    assert found["new style", 0, 7] == 3.5
    assert found["double", 0, 100] == 100 / 3


def test_tensorboardx(tmp_path: Path) -> None:
    tensorboardx = pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    with tensorboardx.SummaryWriter(str(tmp_path)) as writer:
        for step in range(20):
            writer.add_scalar("lm loss", 8 / (step + 1), step)
    found = points(event_file(tmp_path))
    assert {tag for tag, _, _ in found} == {"lm_loss"}
    assert found["lm_loss", 0, 3] == 2.0


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
def test_tensors_of_one_element(tmp_path: Path, dtype: str) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    import numpy as np
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(tmp_path))
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    for step in range(3):
        tensor = make_tensor_proto(np.array(step - 1, dtype=dtype))
        value = Summary.Value(tag="train/loss", tensor=tensor, metadata=metadata)
        writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
    writer.close()
    found = points(event_file(tmp_path))
    assert found == {("train/loss", 0, step): step - 1 for step in range(3)}
