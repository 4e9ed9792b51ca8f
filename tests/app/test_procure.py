"""``steptax procure``: options for a job and for public benchmarks, at dated offers."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.views.pricing.offers import OfferFilter, holding, load_offers
from steptax.app.views.procurement.view import measured_rates
from steptax.app.views.workspace import open_workspace

Steptax = Callable[..., Any]

PRICES = """provider,gpu,form_factor,region,term,date,segment,usd_per_gpu_hour
red,H100,SXM,us,on-demand,2026-10-01,neocloud,2.00
red,H100,SXM,us,on-demand,2026-10-09,neocloud,2.10
blue,H100,SXM,eu,on-demand,2026-10-02,neocloud,2.40
red,B200,SXM,us,on-demand,2026-10-01,neocloud,4.00
big,B200,SXM,us,on-demand,2026-10-01,hyperscaler,9.00
red,H200,,us,on-demand,2026-10-01,neocloud,3.00
"""


@pytest.fixture
def offers(steptax: Steptax, tmp_path: Path) -> Steptax:
    """A lake with offers, and a job of 4 ranks with compute and communication on H100-SXM."""
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    steptax("ingest", "prices", path)
    steps = tmp_path / "job.csv"
    with steps.open("w") as handle:
        writer = csv.writer(handle)
        writer.writerow(["step", "rank", "host", "compute_ms", "comm_ms", "duration_ms"])
        for step in range(40):
            for rank in range(4):
                work = 100 + (20 if rank == 3 else 0)
                writer.writerow([step, rank, "n0", work, 150 - work, 150])
    steptax("ingest", "steps", steps, "--job", "j", "--gpu-model", "H100-SXM")
    return steptax


def by_name(data: dict[str, Any]) -> dict[str, Any]:
    """Options by device (and number of devices), the cheapest of each."""
    found: dict[str, Any] = {}
    for option in data["options"]:
        found.setdefault(option["name"].split(" · ")[0], option)
    return found


def test_a_job_on_every_device_that_is_offered(offers: Steptax) -> None:
    data = offers("procure", "job", "--job", "j", "--price", "2")
    found = by_name(data)
    assert set(found) == {"H100-SXM", "B200-SXM", "H200-SXM", "H200-NVL"}
    own, other = found["H100-SXM"], found["B200-SXM"]
    assert own["is_own"]
    assert own["usd_per_gpu_hour"] == 2.0
    assert own["speedup"]["value"] == pytest.approx(1.0)
    # 110 ms of own compute on average, 10 ms of waiting for rank 3, 30 ms of transfer.
    assert other["usd_per_gpu_hour"] == 4.0
    assert other["name"] == "B200-SXM · red, neocloud, on-demand, us"
    names = [o["name"] for o in data["options"] if o["device"] == "B200-SXM"]
    assert names == [
        "B200-SXM · red, neocloud, on-demand, us",
        "B200-SXM · big, hyperscaler, on-demand, us",
    ]
    assert any("offers of several kinds" in note for note in data["notes"])
    even = other["break_even_usd_per_gpu_hour"]["value"]
    assert even == pytest.approx(2 * other["speedup"]["value"])
    cost, now = other["usd_per_result"]["value"], own["usd_per_result"]["value"]
    assert cost / now == pytest.approx(4.0 / even)
    assert "does not say whether it is H200-SXM or H200-NVL" in " ".join(found["H200-SXM"]["notes"])
    costs = [o["usd_per_result"]["value"] for o in data["options"] if o["usd_per_gpu_hour"]]
    assert costs == sorted(costs)
    assert data["tornado_of"] in {o["name"] for o in data["options"]}


def test_offers_are_those_of_the_day(offers: Steptax) -> None:
    before = offers("procure", "job", "--job", "j", "--provider", "red", "--on", "2026-10-05")
    after = offers("procure", "job", "--job", "j", "--provider", "red")
    assert by_name(before)["H100-SXM"]["usd_per_gpu_hour"] == 2.0
    assert by_name(after)["H100-SXM"]["usd_per_gpu_hour"] == 2.1


def test_mistakes_are_named(offers: Steptax) -> None:
    error = offers("procure", "job", "--job", "j", "--segment", "moon", fails=2)
    assert "no offer is of moon" in error["message"]
    assert "segments hyperscaler, neocloud" in error["hint"]
    error = offers("procure", "job", "--job", "j", "--on", "2026-09-01", fails=2)
    assert "no offer was seen by 2026-09-01" in error["message"]
    error = offers("procure", "job", "--job", "j", "--on", "soon", fails=2)
    assert error["where"] == "--on"
    error = offers("procure", "benchmark", "--benchmark", "x", fails=2)
    assert "there are no public results" in error["message"]


def test_without_a_device_or_offers(steptax: Steptax, tmp_path: Path) -> None:
    steps = tmp_path / "bare.csv"
    rows = "".join(f"{s},{r},80,20,100\n" for s in range(30) for r in range(2))
    steps.write_text("step,rank,compute_ms,comm_ms,duration_ms\n" + rows)
    steptax("ingest", "steps", steps, "--job", "bare")
    error = steptax("procure", "job", "--job", "bare", fails=2)
    assert "the device of the job is not known" in error["message"]
    data = steptax("procure", "job", "--job", "bare", "--gpu-model", "H100-SXM")
    assert data["offers"].startswith("no offer is in the lake")
    (only,) = data["options"]
    assert only["usd_per_result"]["value"] is None
    assert "none has a cost" in data["sentence"]


@pytest.fixture
def market(steptax: Steptax, shared: Callable[[str], Path]) -> Steptax:
    steptax("ingest", "mlperf-results", shared("procurement/mlperf_training_v5_results.csv"))
    steptax(
        *("ingest", "prices", shared("procurement/gpu_price_index_history.csv")),
        *("--provider", "index", "--map", "segment=series"),
    )
    return steptax


def test_the_cheapest_hour_is_not_the_cheapest_result(market: Steptax) -> None:
    data = market(
        *("procure", "benchmark", "--benchmark", "llama2_70b_lora", "--gpus", "8"),
        *("--round", "5.1", "--segment", "neocloud", "--on", "2026-10-04"),
    )
    found = by_name(data)
    for device, usd in (("B200-SXM", 8.10), ("B300-SXM", 8.92), ("MI300X", 10.89)):
        assert found[f"8 × {device}"]["usd_per_result"]["value"] == pytest.approx(usd, abs=0.005)
    h200 = found["8 × H200-SXM"]["usd_per_result"]["value"]
    assert h200 == pytest.approx(14.30, abs=0.005)
    assert data["sentence"].startswith(
        "For llama2_70b_lora 8 × B200-SXM · index, neocloud costs $8.10 per run"
    )
    assert data["caveat"].endswith("not verified by MLCommons")
    assert [n for n, o in found.items() if o["on_frontier"]] == ["8 × B200-SXM", "8 × B300-SXM"]


def test_scale_has_its_price(market: Steptax) -> None:
    data = market("procure", "scale", "--benchmark", "llama31_405b", "--device", "H100-SXM")
    first, last = data["points"][0], data["points"][-1]
    assert (first["gpus"], last["gpus"]) == (512, 8192)
    assert round(first["gpu_hours"]) == 2297
    assert last["premium_ratio"] == pytest.approx(0.24, abs=0.005)


def test_prices_by_day_mark_other_offers(offers: Steptax) -> None:
    data = offers("procure", "history", "--device", "H100-SXM")
    assert offers("procure", "history", "--device", "H100 SXM")["points"] == data["points"]
    assert "H100-NVL" in offers("procure", "history", "--device", "H100", fails=2)["hint"]
    points = [(p["observed_on"], p["usd_per_gpu_hour"]) for p in data["points"]]
    assert points == [("2026-10-01", 2.0), ("2026-10-02", 2.4), ("2026-10-09", 2.1)]
    assert [p["coverage_changed"] for p in data["points"]] == [False, True, True]


def test_rates_of_your_own_devices_come_first(offers: Steptax, tmp_path: Path) -> None:
    ws = open_workspace(tmp_path / "lake")
    figures = [("H100-SXM", 600.0), ("H100-SXM", 700.0), ("B200-SXM", 1300.0)]
    ws.lake.append(
        "bench_results",
        pa.table(
            {
                "run_id": ["r"] * 3,
                "host": ["a", "b", "c"],
                "gpu_uuid": ["0"] * 3,
                "gpu_model": [name for name, _ in figures],
                "test": ["gemm"] * 3,
                "size": ["8192"] * 3,
                "dtype": ["bf16"] * 3,
                "value": [value for _, value in figures],
                "unit": ["TFLOP/s"] * 3,
            }
        ),
        source="test",
    )
    assert measured_rates(ws, "bf16") == {"H100-SXM": 650.0, "B200-SXM": 1300.0}
    assert measured_rates(ws, "fp8") == {}
    data = offers("procure", "job", "--job", "j", "--price", "2")
    other = by_name(data)["B200-SXM"]
    assert other["source"] == "matrix multiplication on your own devices"
    # Inside one node the links count too, and of those only the specification is known.
    assert other["badge"] == "spec"
    assert other["speedup"]["high"] >= other["speedup"]["value"]


def test_like_is_held_against_like(market: Steptax) -> None:
    mixed = market(
        *("procure", "benchmark", "--benchmark", "llama2_70b_lora", "--gpus", "8"),
        *("--round", "5.1", "--on", "2026-10-04"),
    )
    # The cheapest hour of all is a marketplace's; it is not held against another kind of offer.
    names = mixed["sentence"].split(" · ")[1:]
    kinds = {name.split(", ")[1].split(" ")[0] for name in names}
    assert len(kinds) == 1
    assert "among offers that are" in mixed["sentence"]


def test_without_a_price_the_own_offer_is_what_the_job_costs(offers: Steptax) -> None:
    data = offers("procure", "job", "--job", "j", "--on", "2026-10-05")
    other = by_name(data)["B200-SXM"]
    assert other["break_even_usd_per_gpu_hour"]["value"] == pytest.approx(
        2.0 * other["speedup"]["value"]
    )
    assert "H100-SXM · red, neocloud, on-demand, us" in data["sentence"]


def test_a_price_of_a_day_to_come_is_nobodys_offer(steptax: Steptax, tmp_path: Path) -> None:
    path = tmp_path / "future.csv"
    path.write_text(PRICES.replace("2026-10-09", "2096-10-09"))
    stored = steptax("ingest", "prices", path)["tables"]
    assert stored["held_prices"]["accepted"] == 1
    points = steptax("procure", "history", "--device", "H100-SXM")["points"]
    assert "2096-10-09" not in {p["observed_on"] for p in points}
    steptax("ingest", "prices", path, "--accept-prices")
    points = steptax("procure", "history", "--device", "H100-SXM")["points"]
    assert "2096-10-09" in {p["observed_on"] for p in points}
    ws = open_workspace(tmp_path / "lake")
    held = holding(load_offers(ws), OfferFilter(provider="red"))
    assert {o.observed_on for o in held} == {"2026-10-01"}


@pytest.mark.parametrize(("over_ms", "is_told"), [(0.001, True), (1.0, True), (2.0, False)])
def test_parts_of_a_step_may_exceed_it_by_what_clocks_differ(
    steptax: Steptax, tmp_path: Path, over_ms: float, is_told: bool
) -> None:
    (tmp_path / "prices.csv").write_text(PRICES)
    steptax("ingest", "prices", tmp_path / "prices.csv")
    rows = ["step,rank,host,compute_ms,comm_ms,duration_ms"]
    rows += [f"{s},{r},n0,100,{50 + over_ms},150" for s in range(40) for r in range(4)]
    (tmp_path / "job.csv").write_text("\n".join(rows))
    steptax("ingest", "steps", tmp_path / "job.csv", "--job", "j", "--gpu-model", "H100-SXM")
    asked = ("procure", "job", "--job", "j", "--price", "2")
    if is_told:
        assert steptax(*asked)["options"]
    else:
        assert "overlap the step by 2 ms" in steptax(*asked, fails=2)["message"]
