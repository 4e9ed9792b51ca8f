"""The procurement page: options for a job and for a public benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake

Add = Callable[..., None]
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]

PAGE = "../pages/procurement.py"
PRICES = """provider,gpu,form_factor,term,date,segment,usd_per_gpu_hour
red,H100,SXM,on-demand,2026-10-01,neocloud,2.00
red,B200,SXM,on-demand,2026-10-01,neocloud,3.00
red,B200,SXM,on-demand,2026-10-02,neocloud,3.20
"""
RESULTS = """round,submitter,system,gpu_model,gpus,benchmark,train_minutes
5.1,a,h8,NVIDIA H100-SXM5-80GB,8,lora,30
5.1,a,h64,NVIDIA H100-SXM5-80GB,64,lora,5
5.1,a,b8,B200,8,lora,10
"""


def options(at: AppTest) -> Any:
    found = [f.value for f in at.dataframe if "usd_per_result" in f.value.columns]
    table = found[0]
    return table.assign(name=[name.split(" · ")[0] for name in table["name"]]).set_index("name")


def test_an_empty_lake_says_what_to_store(add: Add, show: Show, text_of: Text) -> None:
    add("worker")
    at = show(PAGE)
    assert not at.exception
    assert "steptax ingest prices FILE" in text_of(at)
    assert not at.dataframe


def test_a_job_on_other_devices(add: Add, show: Show, text_of: Text, figures: Figures) -> None:
    add("worker")
    add("offers", kind="prices", text=PRICES)
    at = show(PAGE, job="worker", price="2.0", own_device="H100-SXM")
    assert not at.exception
    assert not at.error
    said = text_of(at)
    assert "For this job" in said
    assert "per 1,000 steps" in said
    table = options(at)
    assert set(table.index) == {"H100-SXM", "B200-SXM"}
    assert table.loc["B200-SXM", "usd_per_gpu_hour"] == 3.2
    assert table.loc["B200-SXM", "speedup"] > 1.3
    assert len(figures(at)) == 3
    assert "steptax procure job --job worker --gpu-model H100-SXM --price 2.0" in said


def test_a_job_of_an_unknown_device_says_what_is_missing(
    add: Add, show: Show, text_of: Text
) -> None:
    add("worker")
    add("offers", kind="prices", text=PRICES)
    at = show(PAGE, job="worker")
    assert not at.exception
    assert "the device of the job is not known" in text_of(at).replace("\\", "")


@pytest.mark.parametrize("gpus", [None, "8"])
def test_a_public_benchmark(
    gpus: str | None, add: Add, show: Show, text_of: Text, figures: Figures
) -> None:
    add("offers", kind="prices", text=PRICES)
    add("results", kind="mlperf-results", text=RESULTS)
    chosen = {"gpus": gpus} if gpus else {}
    at = show(PAGE, work="Public benchmark", benchmark="lora", **chosen)
    assert not at.exception
    assert not at.error
    table = options(at)
    assert table.loc["8 × B200-SXM", "usd_per_result"] == pytest.approx(8 / 6 * 3.2)
    assert table.loc["8 × H100-SXM", "usd_per_result"] == pytest.approx(8.0)
    assert ("64 × H100-SXM" in table.index) is (gpus is None)
    said = text_of(at)
    assert "not verified by MLCommons" in said
    assert "What scale costs" in said
    # Frontier, scale of the H100, price history.
    assert len(figures(at)) == 3


def test_only_results_of_the_size_that_was_chosen(add: Add, show: Show) -> None:
    add("offers", kind="prices", text=PRICES)
    add("results", kind="mlperf-results", text=RESULTS)
    at = show(PAGE, work="Public benchmark", benchmark="lora", gpus="64")
    assert not at.exception
    assert list(options(at).index) == ["64 × H100-SXM"]


def test_nodes_are_accepted_by_their_benchmarks(
    add: Add, show: Show, text_of: Text, lake: Lake
) -> None:
    add("offers", kind="prices", text=PRICES)
    at = show(PAGE)
    assert "No benchmark was run yet" in text_of(at)
    for run, value in (("before", 700.0), ("now", 500.0)):
        lake.append(
            "bench_results",
            pa.table(
                {
                    "run_id": [run],
                    "host": ["node-1"],
                    "gpu_uuid": ["GPU-a"],
                    "gpu_model": ["H100-SXM"],
                    "test": ["gemm"],
                    "size": ["8192"],
                    "dtype": ["bf16"],
                    "value": [value],
                    "unit": ["TFLOP/s"],
                    "repeats": [str([value * (1 + i / 1000) for i in range(8)])],
                    "measured_at_us": [1 if run == "before" else 2],
                }
            ),
            source="test",
        )
    at = show(PAGE, run="now")
    assert not at.exception
    assert not at.error
    (nodes,) = [f.value for f in at.dataframe if "sentence" in f.value.columns]
    assert list(nodes["host"]) == ["node-1"]
    assert list(nodes["status"]) == ["reject"]
    (checks,) = [f.value for f in at.dataframe if "basis" in f.value.columns]
    assert "own baseline" in checks["basis"][0]
