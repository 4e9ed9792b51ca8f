"""The benchmark of the agent measures the real agent on devices that have everything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steptax.app.schema import table
from steptax.app.schema.tables import PROVENANCE
from steptax.benchmarks.product import nvml_agent as benchmark
from steptax.connectors.devices.nvml import live_batch
from steptax.connectors.devices.nvml_reader import NvmlReader


def test_every_reading_is_asked_for_and_answered() -> None:
    (one, other) = NvmlReader(benchmark.Answers(2), "node", lambda: 1).sample()
    assert one["unavailable"] == other["unavailable"] == {}
    rows = live_batch([one, other]).rows
    told = {name for name in rows.column_names if not rows[name].null_count}
    # NVML has no activity of the SMs and tensor cores, and nothing is wrong.
    unknown = {"sm_active_ratio", "tensor_active_ratio", "health"}
    assert told == set(table("device_samples").names) - unknown - {c.name for c in PROVENANCE}
    assert rows["nvlink_up"].to_pylist() == [benchmark.LINKS] * 2


def test_calls_grow_with_the_devices_and_not_with_anything_else() -> None:
    one, eight = benchmark.calls_per_sample(1), benchmark.calls_per_sample(8)
    each = (eight - one) / 7
    assert eight == pytest.approx(8 * each + (one - each))
    # eight readings a sample, and the slow ones and the links every tenth
    assert 8 < each < 8 + 30 / 10 + benchmark.LINKS / 10


def test_the_real_command_is_measured(tmp_path: Path) -> None:
    found = benchmark.measure(2, 0.05, 0.5, tmp_path, sign="nvml-*.lock")
    assert found.rows_stored >= 2 * 5
    assert found.rows_stored % 2 == 0
    assert found.span_s >= 0.5
    assert found.core_ratio >= 0
    assert found.calls_per_s == pytest.approx(benchmark.calls_per_sample(2) / 0.05, rel=0.01)
    assert found.start_cpu_s > 0


@pytest.mark.parametrize(("ratio", "code"), [(0.002, 0), (0.02, 1)])
def test_it_prints_what_is_not_in_it_and_judges_by_the_target(
    ratio: float, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = benchmark.Outcome(8, 1.0, 60.0, 0.0, 1.0, 480, 160.0, 90.0, 190.0)
    asked: list[Any] = []

    def measured(*given: Any) -> benchmark.Outcome:
        asked.extend(given[:3])
        return replace(outcome, core_ratio=ratio)

    monkeypatch.setattr(benchmark, "measure", measured)
    assert benchmark.main(["--devices", "4", "--seconds", "7"]) == code
    assert asked == [4, 1.0, 7.0]
    printed = json.loads(capsys.readouterr().out)
    assert printed["core_ratio"] == ratio
    assert "real library" in printed["not_in_it"]
