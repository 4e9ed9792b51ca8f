"""Lakes with small jobs, and pages that run on them without a browser."""

from __future__ import annotations

import base64
import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options
from tests.page_run import open_page

JOB = "../pages/job.py"
HEALTH = "../pages/health.py"

COLUMNS = "step rank host gpu_index pp dp start_s compute_ms comm_ms input_ms duration_ms loss"
SLOW_RANK = 5


def write_job(path: Path, *, steps: int = 60, ranks: int = 8, phases: bool = True) -> None:
    """Steps of 8 ranks, two pipeline stages; rank 5 computes 40 ms longer than its peers."""
    rng = np.random.default_rng(7)
    names = COLUMNS.split()
    kept = names if phases else ["step", "rank", "duration_ms"]
    now_s = 1_795_900_000.0
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, kept, extrasaction="ignore")
        writer.writeheader()
        for step in range(steps):
            compute = 100 + rng.normal(0, 2, ranks)
            compute[SLOW_RANK] += 40
            work = compute + 5
            length = work.max() + 10
            for rank in range(ranks):
                values = [
                    step,
                    rank,
                    f"node-{rank // 4}",
                    rank % 4,
                    rank % 2,
                    rank // 2,
                    f"{now_s:.6f}",
                    f"{compute[rank]:.3f}",
                    f"{length - work[rank]:.3f}",
                    "5.000",
                    f"{length:.3f}",
                    f"{8 - step / 20:.3f}",
                ]
                writer.writerow(dict(zip(names, values, strict=True)))
            now_s += length / 1000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An empty lake that the pages read, without a price."""
    root = tmp_path / "lake"
    monkeypatch.setenv("STEPTAX_LAKE", str(root))
    monkeypatch.delenv("STEPTAX_PRICE_USD_PER_GPU_HOUR", raising=False)
    monkeypatch.delenv("STEPTAX_PRICE_NOTE", raising=False)
    return Lake(root, create=True)


@pytest.fixture(scope="session")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Put what ``make`` stores into an empty lake: made once for each name, then copied."""
    made: dict[str, Path] = {}

    def copy(lake: Lake, name: str, make: Callable[[Lake], object]) -> None:
        if name not in made:
            root = tmp_path_factory.mktemp("made") / "lake"
            make(Lake(root, create=True))
            made[name] = root
        shutil.copytree(made[name], lake.root, dirs_exist_ok=True)

    return copy


@pytest.fixture
def add(lake: Lake, tmp_path: Path) -> Callable[..., None]:
    """Store a made-up job under a name, or any text as a file of a kind."""

    def store(name: str, *, kind: str = "steps", text: str | None = None, **shape: Any) -> None:
        path = tmp_path / f"{name}.csv"
        if text is None:
            write_job(path, **shape)
        else:
            path.write_text(text)
        ingest_file(lake, kind, path, Options())

    return store


@pytest.fixture
def show() -> Callable[..., AppTest]:
    """Open a page with the given parameters in the URL."""
    return open_page


@pytest.fixture
def figures() -> Callable[[AppTest], list[dict[str, Any]]]:
    """Every figure of a page: its key, its size as sent, its specification and configuration."""

    def collect(at: AppTest) -> list[dict[str, Any]]:
        return [
            {
                "id": element.proto.id,
                "bytes": len(element.proto.spec),
                "spec": json.loads(element.proto.spec),
                "config": json.loads(element.proto.config),
            }
            for element in at.get("plotly_chart")
        ]

    return collect


@pytest.fixture
def text_of() -> Callable[[AppTest], str]:
    """Everything a page says, one element a line."""

    def collect(at: AppTest) -> str:
        kinds = ("markdown", "caption", "error", "warning", "info", "code", "html", "metric")
        parts = []
        for kind in kinds:
            for element in at.get(kind):
                value = getattr(element, "value", None) or getattr(element.proto, "body", "")
                label = getattr(element, "label", "")
                parts.append(f"{label} {value}".replace("\\", ""))
        return "\n".join(parts)

    return collect


@pytest.fixture
def array() -> Callable[[dict[str, str]], np.ndarray]:
    """What a typed array of a figure holds."""

    def decode(sent: dict[str, str]) -> np.ndarray:
        raw = np.frombuffer(base64.b64decode(sent["bdata"]), dtype=np.dtype(sent["dtype"]))
        return raw.reshape([int(n) for n in sent.get("shape", str(raw.size)).split(",")])

    return decode
