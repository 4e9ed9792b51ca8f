"""The device table and its peaks: what a name means, and that nothing is borrowed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.mfu.device_table import canonical_dtype, device, devices, identify
from steptax.app.compute.mfu.peaks import given_peak, link_warnings, peak, peak_at_clock
from steptax.app.compute.mfu.utilisation import mfu
from steptax.app.errors import NotFoundError, UserError


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


REPORTED = {
    "NVIDIA H100 80GB HBM3": "H100-SXM",
    "NVIDIA-H100-80GB-HBM3": "H100-SXM",
    "H100 SXM5": "H100-SXM",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA H100 NVL": "H100-NVL",
    "NVIDIA A100-SXM4-80GB": "A100-SXM",
    "A100-SXM": "A100-SXM",
    "NVIDIA A100-SXM4-40GB": "A100-SXM-40GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIe",
    "NVIDIA H200": "H200-SXM",
    "NVIDIA H200 NVL": "H200-NVL",
    "NVIDIA B200": "B200-SXM",
    "NVIDIA GB200": "GB200",
    "NVIDIA B300 SXM6 AC": "B300-SXM",
    "NVIDIA GH200 480GB": "GH200-96GB",
    "NVIDIA GH200 144G HBM3e": "GH200-141GB",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI325X OAM": "MI325X",
    "MI250X GCD": "MI250X-GCD",
    "TPU v4": "TPU-v4",
    "TPU v5 lite": "TPU-v5e",
    "TPU v5p": "TPU-v5p",
    "TPU v6 lite": "TPU-v6e",
    "NVIDIA L40S": "L40S",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
}


@pytest.mark.parametrize(("name", "key"), REPORTED.items())
def test_a_device_is_known_by_the_name_it_reports(name: str, key: str) -> None:
    found = identify(name)
    assert found.device is not None
    assert found.device.key == key


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("H100", ("H100-SXM", "H100-PCIe", "H100-NVL")),
        ("NVIDIA A100", ("A100-SXM", "A100-SXM-40GB", "A100-PCIe")),
        ("H200", ("H200-SXM", "H200-NVL")),
        ("GH200", ("GH200-96GB", "GH200-141GB")),
        ("AMD Instinct MI250X", ("MI250X-PACKAGE", "MI250X-GCD")),
        ("TPU v5", ("TPU-v5e", "TPU-v5p")),
        ("TPU7x", ("TPU7x-CHIP", "TPU7x-DEVICE")),
        ("trn2", ("TRAINIUM2-CHIP",)),
    ],
)
def test_an_ambiguous_name_is_refused_with_its_candidates(
    name: str, candidates: tuple[str, ...]
) -> None:
    found = identify(name)
    assert found.device is None
    assert found.candidates == candidates
    refused = peak(name, "bf16")
    assert refused.tflops is None
    assert refused.reason is not None
    assert all(key in refused.reason for key in candidates)


@pytest.mark.parametrize(
    "name",
    [
        "Tesla V100-SXM2-16GB",
        "NVIDIA Q9000-EX 192GB",
        "NVIDIA H800",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100 80GB HBM3 (copy)",
        "xH100-SXM",
        "B2000",
        "cpu",
    ],
)
def test_an_unknown_device_has_no_peak_and_says_so(name: str) -> None:
    unknown = peak(name, "bf16")
    assert unknown.tflops is None
    assert unknown.device is None
    assert unknown.reason == f"{name!r} is not in the table of devices"


def test_a_slice_and_a_missing_name_have_their_own_reasons() -> None:
    assert "slice" in (peak("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16").reason or "")
    assert peak(None, "bf16").reason == "no device name is known"
    assert peak(" ", "bf16").reason == "no device name is known"


def test_a_key_finds_its_row_and_another_lists_them() -> None:
    assert device("h100-sxm").name == "H100 SXM"
    with pytest.raises(NotFoundError, match="H100-PCIe"):
        device("H100")


def test_keys_and_reported_names_lead_to_one_row_each() -> None:
    keys = [row.key for row in devices()]
    assert len(set(keys)) == len(keys) == 29
    for row in devices():
        assert identify(row.key).device is row


def test_every_row_has_its_source_and_a_peak() -> None:
    for row in devices():
        assert row.source
        assert row.peak_tflops["bf16"] > 0
        assert row.names
        known = {f"{dtype}_tflops" for dtype in row.peak_tflops}
        known |= {"hbm_gb", "hbm_tb_per_s", "scale_up_gb_per_s", "tdp_w"}
        assert row.unverified <= known


@pytest.mark.parametrize(
    ("key", "dtype", "tflops"),
    [
        ("A100-SXM", "bf16", 312),
        ("H100-SXM", "bf16", 989.5),
        ("H100-SXM", "fp8", 1979),
        ("H100-PCIe", "bf16", 756),
        ("H100-NVL", "bf16", 835),
        ("H200-NVL", "bf16", 836),
        ("B200-SXM", "fp8", 4500),
        ("GB200", "bf16", 2500),
        ("GB300", "fp8", 5000),
        ("MI250X-GCD", "bf16", 191.5),
        ("MI300X", "bf16", 1307.4),
        ("MI355X", "bf16", 2516.6),
        ("TPU-v5e", "bf16", 197),
        ("TPU7x-CHIP", "bf16", 2307),
        ("GAUDI3", "bf16", 1677),
        ("GAUDI3", "fp16", 459),
        ("L40S", "bf16", 362),
    ],
)
def test_peaks_are_the_dense_ones(key: str, dtype: str, tflops: float) -> None:
    assert peak(key, dtype).tflops == tflops


def test_the_achievable_rate_is_below_the_peak() -> None:
    for row in devices():
        for dtype, achievable in row.mamf_tflops.items():
            assert 0.4 < achievable / row.peak_tflops[dtype] < 1


@pytest.mark.parametrize(
    ("key", "share"), [("A100-SXM", 0.869), ("H100-SXM", 0.803), ("B200-SXM", 0.776)]
)
def test_the_achievable_share_as_published(key: str, share: float) -> None:
    row = device(key)
    assert row.mamf_tflops["bf16"] / row.peak_tflops["bf16"] == pytest.approx(share, abs=5e-4)


def test_an_unverified_peak_carries_a_warning() -> None:
    assert "not checked" in peak("H100 NVL", "fp8").warnings[0]
    assert not peak("H100 NVL", "bf16").warnings
    assert device("GB300").unverified == {"hbm_gb", "hbm_tb_per_s"}


def test_a_part_of_a_device_says_what_to_count() -> None:
    assert "count dies" in peak("MI250X-GCD", "bf16").warnings[0]
    assert "count packages" in peak("MI250X-PACKAGE", "bf16").warnings[0]
    halves = peak("TPU7x-DEVICE", "bf16").tflops, peak("TPU7x-CHIP", "bf16").tflops
    assert halves == (1153.5, 2307)


def test_precisions_by_their_spellings_and_no_other() -> None:
    for spelling in ("bf16", "BF16", "torch.bfloat16", "bf16-mixed"):
        assert canonical_dtype(spelling) == "bf16"
    assert canonical_dtype("float8_e4m3fn") == "fp8"
    assert canonical_dtype("fp32") is None
    assert peak("H100-SXM", "fp32").reason == "no peaks for precision 'fp32'"
    assert peak("H100-SXM", None).reason == "the precision is not known"
    assert peak("A100-SXM", "fp8").reason == "no fp8 peak of A100-SXM is known"


@pytest.mark.parametrize(
    ("key", "units", "fma_per_clock"),
    [("H100-SXM", 528, 512), ("A100-SXM", 432, 256), ("MI300X", 1216, 256), ("MI355X", 1024, 512)],
)
def test_peak_at_the_stated_clock_is_the_silicon(key: str, units: int, fma_per_clock: int) -> None:
    row = device(key)
    assert row.spec_clock_mhz is not None
    counted = row.spec_clock_mhz * 1e6 * fma_per_clock * 2 * units / 1e12
    assert row.peak_tflops["bf16"] == pytest.approx(counted, rel=5e-4)


def test_peak_at_a_lower_clock_scales_and_says_so() -> None:
    slow = peak_at_clock("NVIDIA H100 80GB HBM3", "bf16", 1410)
    assert slow.tflops == pytest.approx(989.5 * 1410 / 1830)
    assert "1830 MHz" in slow.warnings[-1]
    assert slow.achievable_tflops is None
    unknown = peak_at_clock("NVIDIA H100 NVL", "bf16", 1410)
    assert unknown.tflops is None
    assert "clock" in (unknown.reason or "")
    assert peak_at_clock("nobody", "bf16", 1410).tflops is None
    with pytest.raises(UserError, match="clock_mhz"):
        peak_at_clock("H100-SXM", "bf16", 0)


@given(st.floats(1, 4000))
def test_peak_grows_with_the_clock(clock_mhz: float) -> None:
    low, high = (peak_at_clock("A100-SXM", "bf16", c).tflops for c in (clock_mhz, clock_mhz + 1))
    assert low is not None
    assert high is not None
    assert low < high


def test_a_sparse_figure_given_as_dense_is_pointed_out() -> None:
    twice = given_peak(1979, "dense", "bf16", "NVIDIA H100 80GB HBM3")
    assert "twice the dense peak" in twice.warnings[0]
    half = given_peak(156, "dense", "bf16", "A100-SXM")
    assert "half the dense peak" in half.warnings[0]
    other = given_peak(400, "dense", "bf16", "A100-SXM")
    assert "which is 312" in other.warnings[0]
    assert not given_peak(989, "dense", "bf16", "H100-SXM").warnings
    assert not given_peak(989, "dense", "bf16").warnings


def test_a_given_peak_must_be_possible() -> None:
    with pytest.raises(UserError, match="peak_tflops"):
        given_peak(-1, "dense", "bf16")
    with pytest.raises(UserError, match="basis"):
        given_peak(100, "structured", "bf16")


def test_both_directions_of_a_link_are_pointed_out() -> None:
    assert "one direction (450)" in link_warnings(900, "H100-SXM")[0]
    assert not link_warnings(450, "H100-SXM")
    assert not link_warnings(900, "B200-SXM")
    assert not link_warnings(900, "unheard of")


def test_case_02_sparse_and_dense_rows_give_one_mfu(shared: Callable[[str], Path]) -> None:
    folder = "cases/02-mfu-sparse-vs-dense"
    catalogue = list(csv.DictReader(lines(shared(f"{folder}/gpu_catalog.csv"))))
    text = shared(f"{folder}/expected.md").read_text()
    expected = json.loads(text.split("```json")[1].split("```")[0])
    for run in csv.DictReader(lines(shared(f"{folder}/runs.csv"))):
        rows = [row for row in catalogue if row["gpu"] == run["gpu"]]
        devices_used = int(run["n_gpus"])
        rate = float(run["achieved_tflops_per_gpu"]) * 1e12 * devices_used
        for row in rows:
            own = given_peak(float(row["tflops"]), row["basis"] or None, row["precision"])
            value = mfu(rate, devices_used, own)
            wanted = expected["mfu"][run["run_id"]]
            if wanted is None:
                assert value.value is None
                assert expected["b_reason"] in (value.reason or "")
            else:
                assert value.value == pytest.approx(wanted, abs=5e-5)
