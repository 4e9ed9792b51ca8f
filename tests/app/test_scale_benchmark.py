"""The scale benchmark, small: what it tells of one question that a process of its own answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from steptax.app.lake import Lake
from steptax.benchmarks.product.process import peak_mib
from steptax.benchmarks.product.scale import ENGINES, LIMITS_S, fill, worker


@pytest.mark.slow
def test_every_question_is_answered_and_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "lake"
    fill(root, 16, 1_200)
    said = capsys.readouterr().out
    assert said.startswith("19,200 rows made and stored")
    assert "M rows/s" in said
    titles = [title for title, _ in ENGINES["steptax"](Lake(root))]
    assert {title.partition(":")[0] for title in titles} == set(LIMITS_S)
    for title in titles:
        worker(root, "steptax", title)
        told = json.loads(capsys.readouterr().out)
        assert min(told["cold_s"], told["warm_s"]) > 0, title
        assert 0 <= told["asked_mib"] < told["peak_mib"], title


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is the system's own there")
def test_the_memory_of_a_question_is_what_it_takes_beyond_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = round((peak_mib() + 64) * 2**20)
    monkeypatch.setitem(ENGINES, "steptax", lambda _: iter([("scan: x", lambda: b"x" * size)]))
    worker(Lake(tmp_path, create=True).root, "steptax", "scan: x")
    told = json.loads(capsys.readouterr().out)
    assert 64 <= told["asked_mib"] < told["peak_mib"] - 32
