"""MFU and HFU against published numbers, and that the impossible is never shown."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.closed_forms import korthikanti_model_flops, narayanan_flops
from steptax.app.compute.mfu.fleet import FleetEntry, fleet_mfu
from steptax.app.compute.mfu.flops import Convention, Recompute
from steptax.app.compute.mfu.model_shape import ModelShape
from steptax.app.compute.mfu.peaks import given_peak, peak
from steptax.app.compute.mfu.utilisation import (
    Utilization,
    mfu,
    mixed_mfu,
    of_achievable,
    peak_device_seconds,
    run_mfu,
    utilization,
)
from steptax.app.errors import UserError

H100 = peak("NVIDIA H100 80GB HBM3", "bf16")
A100 = peak("NVIDIA A100-SXM4-80GB", "bf16")


def percent(measure: Measure) -> float:
    assert measure.value is not None, measure.reason
    return 100 * measure.value


@pytest.mark.parametrize(
    ("params", "layers", "hidden", "devices", "tokens_per_s", "recompute", "mfu_pct", "hfu_pct"),
    [
        (64862437376, 80, 8192, 512, 515636, Recompute.FULL, 41.25, 55.00),
        (29975214080, 48, 7168, 512, 1083366, Recompute.FULL, 40.27, 53.69),
        (12853954560, 40, 5120, 128, 650264, Recompute.FULL, 42.18, 56.24),
        (6658859008, 32, 4096, 512, 4951479, Recompute.NONE, 42.20, 42.20),
        (2651837440, 32, 2560, 128, 2998098, Recompute.NONE, 42.43, 42.43),
        (1315950592, 24, 2048, 8, 363645, Recompute.NONE, 41.82, 41.82),
    ],
)
def test_c01_llm_foundry_table(
    params: int, layers: int, hidden: int, devices: int, tokens_per_s: float,
    recompute: Recompute, mfu_pct: float, hfu_pct: float,
) -> None:  # fmt: skip
    shape = ModelShape(layers=layers, hidden=hidden, seq_len=2048, params_total=params)
    result = utilization(
        shape, Convention.PALM, tokens_per_s=tokens_per_s, devices=devices, peak=H100,
        recompute=recompute,
    )  # fmt: skip
    assert percent(result.mfu) == pytest.approx(mfu_pct, abs=5e-3)
    assert percent(result.hfu) == pytest.approx(hfu_pct, abs=5e-3)


@pytest.mark.parametrize(
    ("hidden", "layers", "devices", "batch", "pflops", "hfu_pct", "mfu_pct"),
    [
        (2304, 24, 32, 512, 4.4, 44, 33.6),
        (4096, 36, 128, 512, 18.2, 46, 34.4),
        (8192, 48, 512, 1536, 70.8, 44, 33.3),
        (12288, 80, 1536, 2304, 227.1, 47, 35.6),
        (25600, 128, 3072, 3072, 502.0, 52, 39.3),
    ],
)
def test_c03_megatron_sc21_printed_peak_share_is_hfu(
    hidden: int, layers: int, devices: int, batch: int, pflops: float, hfu_pct: float,
    mfu_pct: float,
) -> None:  # fmt: skip
    executed = narayanan_flops(batch, 2048, layers, hidden, 51200)
    step_s = executed / (pflops * 1e15)
    assert percent(mfu(executed / step_s, devices, A100)) == pytest.approx(hfu_pct, abs=0.5)
    model = korthikanti_model_flops(batch, 2048, layers, hidden, 51200)
    assert percent(mfu(model / step_s, devices, A100)) == pytest.approx(mfu_pct, abs=0.05)


def test_c05_palm_and_mt_nlg() -> None:
    palm = ModelShape(
        layers=118, hidden=18432, heads=48, head_dim=256, seq_len=2048, params_total=540_350_000_000
    )
    tpu = peak("TPU v4", "bf16")
    arguments: dict[str, Any] = {"tokens_per_s": 238.3e3, "devices": 6144, "peak": tpu}
    assert percent(utilization(palm, Convention.SIX_N, **arguments).mfu) == pytest.approx(
        45.7, abs=0.05
    )
    full = utilization(palm, Convention.PALM, hfu_factor=4.10 / 3.28, **arguments)
    assert percent(full.mfu) == pytest.approx(46.2, abs=0.05)
    assert percent(full.hfu) == pytest.approx(57.8, abs=0.05)
    mt_nlg = utilization(
        ModelShape(params_total=530 * 10**9), Convention.SIX_N, tokens_per_s=65.43e3, devices=2240,
        peak=A100,
    )  # fmt: skip
    assert percent(mt_nlg.mfu) == pytest.approx(29.77, abs=5e-3)


@pytest.mark.parametrize(("tflops", "mfu_pct"), [(430, 43.5), (400, 40.4), (380, 38.4)])
def test_c06_llama3_table_4(tflops: float, mfu_pct: float) -> None:
    assert percent(mfu(tflops * 1e12, 1, H100)) == pytest.approx(mfu_pct, abs=0.05)


def test_llama3_405b_over_all_gpu_hours() -> None:
    flops = 6 * 405.85e9 * 15.6e12
    assert flops == pytest.approx(3.80e25, rel=2e-3)
    assert flops / (30.84e6 * 3600) == pytest.approx(342e12, rel=1e-3)
    assert percent(run_mfu(flops, 30.84e6, H100)) == pytest.approx(34.6, abs=0.05)


def run(name: str, *, tokens_per_s: float, devices: int, **shape: Any) -> Utilization:
    return utilization(
        ModelShape(**shape), Convention.SIX_N, tokens_per_s=tokens_per_s, devices=devices,
        peak=peak(name, "bf16"),
    )  # fmt: skip


def expected(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text().split("```json")[1].split("```")[0])
    return loaded


def test_case_01_each_device_has_its_own_peak(shared: Callable[[str], Path]) -> None:
    wanted = expected(shared("cases/01-mfu-wrong-peak/expected.md"))
    entries = []
    lines = shared("cases/01-mfu-wrong-peak/runs.csv").read_text().splitlines()
    for row in csv.DictReader(lines):
        step_s = float(row["step_time_s"])
        result = run(
            row["gpu_name"], tokens_per_s=float(row["tokens_per_step"]) / step_s,
            devices=int(row["n_gpus"]), params_total=int(float(row["params"])),
        )  # fmt: skip
        value = wanted["mfu"][row["run_id"]]
        if value is None:
            assert result.mfu.value is None
            assert row["gpu_name"] in (result.mfu.reason or "")
        else:
            assert result.mfu.value == pytest.approx(value, abs=5e-5)
            assert result.peak.flops_per_s in wanted["peaks_dense_bf16"].values()
        entries.append(FleetEntry(row["run_id"], result.mfu, result.peak, 64 * step_s))
    fleet = fleet_mfu(entries)
    assert [job for job, _ in fleet.excluded] == wanted["fleet_mean_excludes"]
    low, high = sorted(v for v in wanted["mfu"].values() if v)
    assert fleet.mfu.value is not None
    assert low < fleet.mfu.value < high
    assert fleet.covered_ratio == pytest.approx(27 / 36)


def test_case_03_total_parameters_of_a_mixture_give_no_mfu(shared: Callable[[str], Path]) -> None:
    folder = "cases/03-mfu-moe-total-params"
    wanted = expected(shared(f"{folder}/expected.md"))
    for name in ("run.json", "run_total_only.json"):
        row = json.loads(shared(f"{folder}/{name}").read_text())
        shape = {
            "params_total": int(row["params_total"]),
            "params_active": int(row["params_active"]) if "params_active" in row else None,
            "moe": row["architecture"] == "moe",
        }
        arguments = {"tokens_per_s": row["tokens_per_s"], "devices": row["n_gpus"]}
        result = run(row["gpu"], **arguments, **shape)
        value = wanted[row["run_id"]]["mfu"]
        if value is None:
            assert result.mfu.value is None
            assert "only the total" in (result.mfu.reason or "")
        else:
            assert result.mfu.value == pytest.approx(value, abs=5e-5)
    as_dense = run("H100-SXM", params_total=141 * 10**9, tokens_per_s=1.2e6, devices=512)
    assert as_dense.mfu.value is None
    wrong = 100 * wanted["moe-1"]["wrong_value_from_total"]
    assert f"{wrong:.1f} % is more than the peak of H100-SXM" in (as_dense.mfu.reason or "")


@given(
    st.floats(0, 1e8), st.integers(1, 100_000), st.integers(1, 10**12),
    st.sampled_from(list(Convention)),
)  # fmt: skip
def test_an_mfu_is_a_share_or_missing_with_its_reason(
    tokens_per_s: float, devices: int, params: int, convention: Convention
) -> None:
    shape = ModelShape(layers=8, hidden=512, seq_len=1024, params_total=params)
    result = utilization(
        shape, convention, tokens_per_s=tokens_per_s, devices=devices, peak=H100,
        recompute=Recompute.FULL,
    )  # fmt: skip
    for measure in (result.mfu, result.hfu, result.of_achievable):
        if measure.value is None:
            assert measure.reason
        else:
            assert 0 <= measure.value <= 1
    if result.hfu.value is not None:
        assert result.mfu.value is not None
        assert result.hfu.value == pytest.approx(result.mfu.value * 4 / 3)


@given(st.floats(1, 400e12), st.integers(1, 10_000))
def test_mfu_is_linear_in_the_rate_and_inverse_in_devices(rate: float, devices: int) -> None:
    one = percent(mfu(rate, devices, H100))
    assert percent(mfu(rate * 2, devices, H100)) == pytest.approx(2 * one)
    assert percent(mfu(rate, devices * 2, H100)) == pytest.approx(one / 2)
    assert percent(mfu(rate * devices, devices, H100)) == pytest.approx(one * devices)


def test_idle_is_zero_not_missing() -> None:
    assert mfu(0, 8, H100).value == 0


def test_exactly_the_peak_is_one() -> None:
    assert mfu(989.5e12 * 3, 3, H100).value == 1


def test_what_a_value_was_computed_by_travels_with_it() -> None:
    shape = ModelShape(params_total=10**9)
    result = utilization(
        shape, Convention.SIX_N, tokens_per_s=1e5, devices=8, peak=H100, recompute=Recompute.FULL
    )
    shown = result.as_json()
    assert shown["convention"] == "6N"
    assert shown["peak"]["device"] == "H100-SXM"
    assert shown["peak"]["tflops"] == 989.5
    assert shown["peak"]["dtype"] == "bf16"
    assert shown["hfu_factor_ratio"]["value"] == pytest.approx(4 / 3)
    assert shown["params"]["value"] == 1e9
    assert shown["tflops_per_device"]["value"] == pytest.approx(75)
    assert json.dumps(shown)
    assert "convention 6N" in result.mfu.inputs


def test_without_knowing_what_is_recomputed_there_is_no_hfu() -> None:
    result = run("H100-SXM", params_total=10**9, tokens_per_s=1e5, devices=8)
    assert result.mfu.value is not None
    assert result.hfu.reason == "which activations are recomputed is not known"


def test_share_of_the_achievable_rate() -> None:
    assert of_achievable(794.5e12 / 2, 1, H100).value == pytest.approx(0.5)
    over = of_achievable(800e12, 1, H100)
    assert over.value is None
    assert "measure your own" in (over.reason or "")
    unknown = of_achievable(1e12, 1, peak("NVIDIA H100 PCIe", "bf16"))
    assert "H100-PCIe at bf16" in (unknown.reason or "")


def test_mixed_precisions_are_held_against_their_own_peaks() -> None:
    peaks = {"bf16": H100, "fp8": peak("H100-SXM", "fp8")}
    flops = {"bf16": 989.5e12, "fp8": 1979e12}
    assert peak_device_seconds(flops, peaks).value == pytest.approx(2)
    assert mixed_mfu(flops, peaks, 4).value == pytest.approx(0.5)
    only = {"bf16": 989.5e12}
    assert mixed_mfu(only, peaks, 4).value == mfu(989.5e12 / 4, 1, H100).value
    assert mixed_mfu(flops, peaks, 1).value is None
    assert mixed_mfu(flops, {"bf16": H100}, 4).reason == "no peak: no peak at fp8 is given"
    unknown = mixed_mfu(only, {"bf16": peak("H100", "bf16")}, 4)
    assert "does not say which device" in (unknown.reason or "")


def test_warnings_of_the_peak_reach_the_value() -> None:
    sparse = given_peak(1979, "dense", "bf16", "H100-SXM")
    assert mfu(1e14, 1, sparse).warnings == sparse.warnings != ()


def test_a_fleet_is_weighted_by_what_it_could_compute() -> None:
    half, none = mfu(494.75e12, 1, H100), mfu(0, 1, A100)
    entries = [FleetEntry("a", half, H100, 10), FleetEntry("b", none, A100, 10)]
    assert fleet_mfu(entries).mfu.value == pytest.approx(494.75 / (989.5 + 312))
    lone = fleet_mfu([FleetEntry("c", Measure.missing("ratio", "no loss"), H100, 1)])
    assert lone.mfu.reason == "no job has an MFU"
    assert lone.excluded == (("c", "no loss"),)
    assert lone.covered_ratio == 0
    assert fleet_mfu([]).covered_ratio == 0


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"tokens_per_s": -1.0, "devices": 8}, "tokens_per_s"),
        ({"tokens_per_s": 1.0, "devices": 0}, "devices"),
        ({"tokens_per_s": 1.0, "devices": 8, "hfu_factor": 0.5}, "hfu_factor"),
    ],
)
def test_values_that_cannot_be_are_refused(arguments: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as caught:
        utilization(ModelShape(params_total=1), Convention.SIX_N, peak=H100, **arguments)
    assert caught.value.where == where
