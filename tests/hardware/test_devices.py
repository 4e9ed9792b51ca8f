"""What runs on one device or on all at once: figures, spreads, notes, device state."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from steptax.app.errors import UserError
from steptax.benchmarks.hardware import blocks, gemm, launch, links, memory
from steptax.benchmarks.hardware.backend import BlockShape, open_backends
from steptax.benchmarks.hardware.case import Case
from steptax.benchmarks.hardware.free_memory import free_host_bytes
from steptax.benchmarks.hardware.models import MODELS, read_model
from steptax.benchmarks.hardware.numpy_backend import NumpyBackend
from steptax.benchmarks.hardware.runner import run_cases, slowest
from steptax.benchmarks.hardware.software import cpu_model, versions
from steptax.benchmarks.hardware.telemetry import Telemetry
from steptax.benchmarks.hardware.timing import Plan, one_repeat_us, spread_of
from steptax.benchmarks.hardware.torch_backend import torch_backends
from tests.connectors.fake_nvml import FakeNvml, a100, t4
from tests.hardware.fake_torch import COST_MS, FakeTorch

PLAN = Plan(warmup=2, iterations=8, repeats=3, seconds=10.0)
NOTHING = Telemetry(None, "node-7")


def test_the_slowest_of_all_devices_is_told() -> None:
    torch = FakeTorch(slow=(1.0, 1.5))
    devices = torch_backends(torch)
    cases = gemm.cases(devices[0], ["bf16"], [4096])
    found = run_cases(devices, cases, PLAN, NOTHING)
    flops = 2 * 4096**3
    by_device = {r.backend.device_id: r for r in found.results}
    fast, slow = by_device["GPU-uuid-0"].spread, by_device["GPU-uuid-1"].spread
    assert fast.value == pytest.approx(flops / (COST_MS["mm"] / 1e3) / 1e12)
    assert slow.value == pytest.approx(fast.value / 1.5)
    assert (fast.n, len(fast.repeats), fast.spread_ratio) == (24, 3, 0.0)
    assert [r.backend.device_id for r in slowest(found.results)] == ["GPU-uuid-1"]


def test_the_time_of_the_flush_is_not_in_the_figure_and_every_iteration_has_one() -> None:
    torch = FakeTorch(slow=(1.0,))
    (device,) = torch_backends(torch)
    times = one_repeat_us(device, device.gemm(64, 64, 64, "bf16", 1), PLAN)
    assert times == [pytest.approx(COST_MS["mm"] * 1e3)] * 8
    assert torch.calls["zero_", 0] == 8
    assert torch.calls["mm", 0] == PLAN.warmup + 8


def test_every_repeat_and_device_has_data_of_its_own() -> None:
    torch = FakeTorch()
    devices = torch_backends(torch)
    run_cases(devices, memory.cases(devices[0], [4096])[:1], PLAN, NOTHING)
    assert len(set(torch.seeds)) == len(torch.seeds) == PLAN.repeats * len(devices)


def test_bytes_are_counted_once_for_each_read_and_write() -> None:
    torch = FakeTorch(slow=(1.0,))
    devices = torch_backends(torch)
    size = 1 << 30
    found = run_cases(devices, memory.cases(devices[0], [size]), PLAN, NOTHING)
    copy, triad = (r.spread.value for r in found.results)
    assert copy == pytest.approx(2 * size / (COST_MS["copy"] / 1e3) / 1e9)
    assert triad == pytest.approx(3 * size / (COST_MS["add"] / 1e3) / 1e9)


@pytest.mark.parametrize(
    ("torch", "dtypes"),
    [
        (FakeTorch(capability=(9, 0)), ("bf16", "fp16", "fp8", "fp32")),
        (FakeTorch(capability=(8, 0)), ("bf16", "fp16", "fp32")),
        (FakeTorch(hip="7.0"), ("bf16", "fp16", "fp8", "fp32")),
    ],
)
def test_fp8_only_where_the_device_has_it(torch: FakeTorch, dtypes: tuple[str, ...]) -> None:
    device = torch_backends(torch)[0]
    assert device.dtypes == dtypes
    assert device.kind == ("rocm" if torch.version.hip else "cuda")
    found = run_cases([device], gemm.cases(device, ["fp8"], [64]), PLAN, NOTHING)
    if "fp8" in dtypes:
        assert torch.calls["scaled_mm", 0] > 0
    else:
        assert not found.results
        assert "has no fp8" in found.notes[0]


def test_links_to_the_host_at_once_and_each_pair_on_its_own() -> None:
    torch = FakeTorch(slow=(1.0, 2.0))
    devices = torch_backends(torch)
    found = run_cases(devices, links.cases(devices, 1 << 20), PLAN, NOTHING)
    told = {(r.case.test, r.backend.index) for r in found.results}
    assert told == {
        *(("link h2d", i) for i in (0, 1)),
        *(("link d2h", i) for i in (0, 1)),
        ("link d2d to 1", 0),
        ("link d2d to 0", 1),
    }
    assert not found.notes


def test_a_pair_without_direct_access_is_told() -> None:
    devices = torch_backends(FakeTorch(peers=False))
    found = run_cases(devices, links.cases(devices, 1 << 20), PLAN, NOTHING)
    assert {r.case.test for r in found.results} == {"link h2d", "link d2h"}
    assert any("GPU 0 has no direct access to GPU 1" in note for note in found.notes)


def test_launches_are_timed_on_the_device_and_from_the_host() -> None:
    devices = torch_backends(FakeTorch(slow=(1.0,)))
    event, wall = run_cases(devices, launch.cases(devices[0]), PLAN, NOTHING).results
    assert event.spread.value == pytest.approx(COST_MS["add_"] * 1e3)
    assert wall.case.unit == "us"
    assert wall.spread.value > 0


def test_a_case_that_does_not_fit_is_told_and_the_others_go_on() -> None:
    def too_large(_backend: object, _seed: int) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")

    devices = torch_backends(FakeTorch(slow=(1.0,)))
    large = Case("gemm", "9x9x9", "bf16", "TFLOP/s", 1.0, too_large)  # type: ignore[arg-type]
    found = run_cases(devices, [large, *gemm.cases(devices[0], ["bf16"], [64])], PLAN, NOTHING)
    assert [r.case.size for r in found.results] == ["64x64x64"]
    assert found.notes == ["gemm 9x9x9 bf16: out of memory on GPU-uuid-0, 85.9 GB are free"]


def test_a_size_that_was_asked_for_and_does_not_fit_is_refused_with_the_free_memory() -> None:
    devices = torch_backends(FakeTorch(slow=(1.0,)))
    for cases, flag in (
        (memory.cases(devices[0], [1 << 40]), "--memory-bytes"),
        (gemm.cases(devices[0], ["bf16"], [1 << 20]), "--size"),
    ):
        with pytest.raises(UserError, match=r"out of memory .* 85\.9 GB are free") as caught:
            run_cases(devices, cases, PLAN, NOTHING)
        assert caught.value.where == flag
    usual = [replace(case, flag=None) for case in memory.cases(devices[0], [1 << 40])]
    found = run_cases(devices, [*usual, *launch.cases(devices[0])], PLAN, NOTHING)
    assert {r.case.test for r in found.results} == {"launch event", "launch wall"}
    assert len(found.notes) == 2


class OutOfMemoryError(RuntimeError):
    """As torch's."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 909. TiB"),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_memory_that_ends_in_the_work_itself_names_the_flag(error: Exception) -> None:
    def prepare(_backend: object, _seed: int) -> Callable[[], object]:
        def work() -> None:
            raise error

        return work

    case = Case("attention", "own", "fp32", "TFLOP/s", 1.0, prepare, flag="--model")
    with pytest.raises(UserError, match="are free") as caught:
        run_cases([NumpyBackend()], [case], PLAN, NOTHING)
    assert caught.value.where == "--model"
    (told,) = run_cases([NumpyBackend()], [replace(case, flag=None)], PLAN, NOTHING).notes
    assert told.startswith("attention own fp32: out of memory on cpu")


def test_an_error_that_is_not_of_memory_is_not_hidden() -> None:
    def broken(_backend: object, _seed: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    case = Case("gemm", "own", "fp32", "TFLOP/s", 1.0, broken, flag="--size")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="illegal memory access"):
        run_cases([NumpyBackend()], [case], PLAN, NOTHING)


def test_free_memory_is_what_the_kernel_tells(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 9 kB\nMemAvailable:   2048 kB\n")
    assert free_host_bytes(path) == 2 << 20
    assert free_host_bytes(tmp_path / "none") is None


def test_versions_name_what_a_result_depends_on() -> None:
    torch = FakeTorch()
    told = versions(torch_backends(torch), torch)
    assert (told["library"], told["cuda"], told["nccl"]) == ("torch 2.99.0", "13.0", "2.28.3")
    assert "hip" not in told


class TestOnThisProcessor:
    @pytest.fixture(autouse=True)
    def small_flush(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(NumpyBackend, "flush_bytes", 1 << 16)

    def test_figures_are_those_of_the_clock(self) -> None:
        backend = NumpyBackend()

        def rest() -> None:
            time.sleep(0.002)

        case = Case("rest", "1", "fp32", "us", 0, lambda _b, _s: rest)
        (found,) = run_cases([backend], [case], Plan(1, 5, 3, 1.0), NOTHING).results
        assert 2000 <= found.spread.p5 <= found.spread.p50 <= found.spread.p95 <= found.spread.p99
        assert found.spread.value == statistics.median(found.spread.repeats)

    def test_every_benchmark_runs_or_says_why_not(self) -> None:
        (backend,) = open_backends("numpy")
        model = BlockShape("own", 32, 64, 4, 2, 16)
        cases = [
            *gemm.cases(backend, backend.dtypes, [32], model),
            *memory.cases(backend, [4096]),
            *launch.cases(backend),
            *blocks.cases("attention", model, backend.dtypes),
            *blocks.cases("mlp", model, backend.dtypes),
            *links.cases([backend]),
        ]
        found = run_cases([backend], cases, Plan(1, 5, 2, 0.01), NOTHING)
        told = {r.case.test for r in found.results}
        assert told == {
            *("gemm", "memory copy", "memory triad", "launch wall"),
            *("attention forward", "mlp forward"),
        }
        assert all(r.spread.value > 0 for r in found.results)
        assert sum("no GPU on this machine" in note for note in found.notes) == 2
        assert sum("numpy has no gradients" in note for note in found.notes) == 2

    def test_attention_is_causal_and_sums_to_one(self) -> None:
        # With one head and equal values the answer is the projected value, whatever the scores.
        backend = NumpyBackend()
        out = backend.attention(BlockShape("own", 8, 8, 2, 1, 4), "fp32", 3, backward=False)()
        assert isinstance(out, np.ndarray)
        assert out.shape == (4, 8)
        assert np.isfinite(out).all()

    def test_multiply_and_triad_do_what_they_are_timed_for(self) -> None:
        backend = NumpyBackend()
        out = backend.gemm(8, 4, 2, "fp32", 5)()
        assert isinstance(out, np.ndarray)
        assert out.shape == (8, 4)
        assert np.abs(out).sum() > 0


class TestTelemetry:
    def test_state_of_the_device_in_the_window(self) -> None:
        nvml = FakeNvml(a100(), t4())
        with Telemetry(nvml, "node-7", every_s=0.005) as telemetry:
            began = time.time_ns() // 1000
            time.sleep(0.1)
            window = telemetry.window(a100()["UUID"], [(began, time.time_ns() // 1000)])
        assert (window.clock_mhz, window.temperature_c) == (1275, 27)
        assert window.power_w == pytest.approx(67.03)
        assert window.reason is None

    def test_without_a_library_or_a_driver_the_reason_is_told(self) -> None:
        with Telemetry(None, "node-7") as telemetry:
            assert telemetry.window("cpu", []).reason == "nvidia-ml-py is not installed"

    def test_a_device_that_nvml_does_not_know(self) -> None:
        with Telemetry(FakeNvml(a100()), "node-7", every_s=0.005) as telemetry:
            window = telemetry.window("GPU-other", [(0, 1)])
        assert window.clock_mhz is None
        assert "NVML knows no device GPU-other" in (window.reason or "")


class TestShapes:
    def test_flops_of_a_block_follow_from_its_shape(self) -> None:
        model = MODELS["llama-3-8b"]
        t, h, f = model.tokens, 4096, 14336
        shapes = gemm.block_shapes(model)
        projections = sum(2 * m * n * k for m, n, k in shapes[:2])
        assert blocks.attention_flops(model) == projections + 2 * t**2 * h
        assert (
            blocks.mlp_flops(model) == sum(2 * m * n * k for m, n, k in shapes[2:]) == 6 * t * h * f
        )

    def test_a_model_by_name_by_sizes_or_both(self) -> None:
        assert read_model("llama-3-8b,seq_len=1024,sequences=2").tokens == 2048
        own = read_model("hidden=64, ffn=128, heads=4, seq_len=16")
        assert (own.kv_heads, own.head_dim) == (4, 16)

    @pytest.mark.parametrize(
        "text", ["llama-9", "hidden=64", "llama-3-8b,heads=7", "llama-3-8b,seq_len=x"]
    )
    def test_a_model_that_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(UserError):
            read_model(text)


def test_the_spread_is_over_all_iterations_and_the_headline_over_repeats() -> None:
    spread = spread_of([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [4.0, 5.0, 6.0]])
    assert spread.repeats == (2.0, 20.0, 5.0)
    assert (spread.value, spread.p50, spread.n) == (5.0, 5.0, 9)
    assert spread.spread_ratio == pytest.approx(18 / 5)


@pytest.mark.parametrize("changes", [{"iterations": 0}, {"repeats": 0}, {"seconds": 0.0}])
def test_a_plan_that_measures_nothing_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Plan(**changes)  # type: ignore[arg-type]


def test_unknown_backends_are_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="no backend 'jax'") as caught:
        open_backends("jax")
    assert "numpy" in (caught.value.hint or "")


def test_the_processor_is_named_where_the_kernel_does(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: AMD EPYC 9654\n")
    assert cpu_model(info) == "AMD EPYC 9654"
    assert cpu_model(tmp_path / "none") is None
