"""Allocations of OpenCost: windows added, fractions kept, idle no job."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

EXAMPLE = Path(__file__).parent / "examples" / "opencost.json"


def read(path: Path) -> tuple[dict[str, dict[str, Any]], list[Batch]]:
    batches = list(connector("opencost").read(path, Options()))
    return {r["job_id"]: r for b in batches for r in b.rows.to_pylist()}, batches


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


def test_windows_are_added_and_idle_is_no_job() -> None:
    jobs, batches = read(EXAMPLE)
    assert {name: job["gpu_hours"] for name, job in jobs.items()} == {
        "red/train-0": 240.0,
        "blue/web-0": 0.0,
        "blue/half-0": 3.0,
    }
    train = jobs["red/train-0"]
    assert (train["start_us"], train["end_us"]) == (us(2026, 3, 1), us(2026, 3, 2, 6))
    assert (train["world_size"], train["team"], train["project"]) == (8, "vision", "red")
    assert jobs["blue/half-0"]["world_size"] is None
    assert jobs["blue/half-0"]["team"] == "blue"
    assert any("48.00 GPU-hours are idle" in note for b in batches for note in b.notes)


def test_a_real_answer(shared: Callable[[str], Path]) -> None:
    path = shared("connectors/opencost/allocation_by_namespace.json")
    want = {k: v for own in json.loads(path.read_text())["data"] for k, v in own.items()}
    jobs, batches = read(path)
    assert set(jobs) == set(want)
    for name, job in jobs.items():
        assert job["gpu_hours"] == want[name]["gpuHours"]
        assert job["start_us"] == us(2023, 7, 12, 11, 2, 46)
        assert job["end_us"] == us(2023, 7, 19, 11, 2)
        assert job["cluster"] == want[name]["properties"]["cluster"]
    assert any("aggregate=pod" in note for b in batches for note in b.notes)


def test_bad_allocations_are_rejected_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    good = {"gpuHours": 1, "start": "2026-03-01T00:00:00Z", "end": "2026-03-02T00:00:00Z"}
    own = {"a": good, "b": good | {"gpuHours": -1}, "c": good | {"end": "never"}, "d": 5}
    own["e"] = good | {"end": "2026-02-01T00:00:00Z"}
    path.write_text(json.dumps({"code": 200, "data": [own]}))
    jobs, batches = read(path)
    assert list(jobs) == ["a"]
    rejects = [(r.row, r.field) for b in batches for r in b.rejects]
    assert rejects == [(2, "gpuHours"), (3, "end"), (4, "data"), (5, "end")]


def test_an_error_is_refused_with_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"code": 400, "message": "invalid window"}')
    with pytest.raises(InputError, match="it says invalid window"):
        read(path)
