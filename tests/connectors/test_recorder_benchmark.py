"""The benchmark measures what it says, and prints it in both forms."""

from __future__ import annotations

import itertools
import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from steptax.benchmarks.product import recorder as benchmark


def test_it_prints_one_object_with_both_encodings(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main(["--steps", "30", "--work-kib", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["ok"]
    assert result["warnings"] == []
    assert [v["encoding"] for v in result["data"]["variants"]] == ["parquet", "jsonl"]
    for variant in result["data"]["variants"]:
        assert variant["samples"] + variant["disturbed"] == 30
        # 30 steps, the rank, two rows of the job and three events.
        assert (variant["rows_written"], variant["rows_dropped"]) == (36, 0)
        if variant["samples"]:
            assert 0 < variant["p50_us"] <= variant["p95_us"]
            assert variant["mean_us"] > 0


def test_it_prints_a_table_and_judges_by_the_target(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "TARGET_US", float("inf"))
    assert benchmark.main(["--steps", "5", "--work-kib", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "microseconds",
        "parquet",
        "jsonl",
        "target:",
    ]
    monkeypatch.setattr(benchmark, "TARGET_US", 0.0)
    assert benchmark.main(["--steps", "5", "--work-kib", "1"]) == 1


def test_without_pyarrow_it_says_what_it_did_not_measure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise ImportError("no pyarrow")

    monkeypatch.setattr("steptax.connectors.recorder.session.steps_encoder", absent)
    benchmark.main(["--steps", "5", "--work-kib", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert [v["encoding"] for v in result["data"]["variants"]] == ["jsonl"]
    assert result["warnings"] == ["parquet was not measured: pyarrow cannot be used here"]


def test_samples_that_another_process_disturbed_are_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbances = itertools.count()
    monkeypatch.setattr(benchmark, "preemptions", lambda: next(disturbances))
    assert benchmark.main(["--steps", "5", "--work-kib", "1"]) == 0
    assert "-        -        -   0 samples, 5 disturbed" in capsys.readouterr().out


def test_wrong_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--steps", "0"])
    assert "--steps must be at least 1" in capsys.readouterr().err


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_percentiles_are_by_nearest_rank(values: list[float], share: float) -> None:
    expected = np.percentile(values, share * 100, method="inverted_cdf")
    found = benchmark.percentile(values, share)
    assert found in values
    below = sum(value <= found for value in values)
    assert below >= share * len(values) - 1e-9
    if share in (0.0, 0.5, 1.0):
        assert found == expected
