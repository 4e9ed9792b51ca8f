"""Numbers that others published, to their printed digit, as the commands give them.

Each row names its source. The tolerance is half a unit of the last printed digit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Find = Callable[[str], Path]


def measures(steptax: Run, line: str) -> dict[str, float | None]:
    """Values by name of ``steptax calc`` with the flags of ``line``."""
    printed = steptax("calc", *shlex.split(line))["measures"]
    return {name: measure["value"] for name, measure in printed.items()}


def percent(value: float | None) -> float:
    assert value is not None
    return 100 * value


@pytest.mark.parametrize(
    ("params", "layers", "hidden", "gpus", "tokens_per_s", "recompute", "mfu", "hfu"),
    [
        (64862437376, 80, 8192, 512, 515636, "full", 41.25, 55.00),
        (29975214080, 48, 7168, 512, 1083366, "full", 40.27, 53.69),
        (12853954560, 40, 5120, 128, 650264, "full", 42.18, 56.24),
        (6658859008, 32, 4096, 512, 4951479, "none", 42.20, 42.20),
        (2651837440, 32, 2560, 128, 2998098, "none", 42.43, 42.43),
        (1315950592, 24, 2048, 8, 363645, "none", 41.82, 41.82),
    ],
)
def test_c01_llm_foundry_table(
    steptax: Run,
    params: int,
    layers: int,
    hidden: int,
    gpus: int,
    tokens_per_s: int,
    recompute: str,
    mfu: float,
    hfu: float,
) -> None:
    found = measures(
        steptax,
        f"mfu --tokens-per-s {tokens_per_s} --devices {gpus} --convention palm --device 'H100 SXM' "
        f"--dtype bf16 --params {params} --layers {layers} --hidden {hidden} --heads 16 "
        f"--seq-len-tokens 2048 --recompute {recompute}",
    )
    assert found["mfu_ratio"] is not None
    assert found["hfu_ratio"] is not None
    assert 100 * found["mfu_ratio"] == pytest.approx(mfu, abs=0.006)
    assert 100 * found["hfu_ratio"] == pytest.approx(hfu, abs=0.006)


@pytest.mark.parametrize(
    (
        "hidden",
        "layers",
        "devices",
        "batch",
        "pflops",
        "billions",
        "tflops",
        "hfu",
        "step_s",
        "mfu",
    ),
    [
        (2304, 24, 32, 512, 4.4, 1.7, 137.5, 44, 3.52, 33.6),
        (4096, 36, 128, 512, 18.2, 7.5, 142, 46, 3.69, 34.4),
        (8192, 48, 512, 1536, 70.8, 39.1, 138, 44, 14.42, 33.3),
        (12288, 80, 1536, 2304, 227.1, 145.6, 148, 47, 24.84, 35.6),
        (25600, 128, 3072, 3072, 502.0, 1008.0, 163, 52, 102.4, 39.3),
    ],
)
def test_c03_megatron_sc21_table_1(
    steptax: Run,
    hidden: int,
    layers: int,
    devices: int,
    batch: int,
    pflops: float,
    billions: float,
    tflops: float,
    hfu: float,
    step_s: float,
    mfu: float,
) -> None:
    """Narayanan et al., SC'21: V = 51200, s = 2048, A100; its "% of peak" is HFU."""
    each = 1000 * pflops / devices
    assert each == pytest.approx(tflops, abs=0.5)
    found = measures(
        steptax,
        f"train-time --devices {devices} --tflops {each} --layers {layers} --hidden {hidden} "
        f"--vocab 51200 --seq-len-tokens 2048 --batch-sequences {batch} --peak-tflops 312",
    )
    params, took = found["params_total"], found["step_s"]
    assert params is not None
    assert params / 1e9 == pytest.approx(billions, abs=0.05)
    assert took == pytest.approx(step_s, abs=0.05 if step_s > 100 else 0.005)
    assert percent(found["hfu_ratio"]) == pytest.approx(hfu, abs=0.5)
    assert percent(found["mfu_ratio"]) == pytest.approx(mfu, abs=0.05)


@pytest.mark.parametrize(
    ("params", "tokens", "devices", "tflops", "days", "printed"),
    [("175e9", "300e9", 1024, 140, 33.9, 34), ("1.008e12", "450e9", 3072, 163, 83.9, 84)],
)
def test_c03_megatron_sc21_end_to_end(
    steptax: Run, params: str, tokens: str, devices: int, tflops: int, days: float, printed: int
) -> None:
    """Narayanan et al., SC'21, section 5.1: 8 T P / (n X)."""
    line = f"--devices {devices} --tflops {tflops} --params {params} --tokens {tokens}"
    found = measures(steptax, f"train-time {line}")["run_d"]
    assert found == pytest.approx(days, abs=0.05)
    assert found is not None
    assert round(found) == printed


PALM = (
    "mfu --tokens-per-s 238300 --devices 6144 --peak-tflops 275 --peak-basis dense "
    "--params 540.35e9"
)


@pytest.mark.parametrize(
    ("line", "percent", "within"),
    [
        (PALM, 45.7, 0.05),
        # Heads times head size, 48 x 256, is what the formula takes from the hidden size.
        (
            f"{PALM} --convention palm --layers 118 --hidden 12288 --heads 48 "
            "--seq-len-tokens 2048",
            46.2,
            0.05,
        ),
        (
            "mfu --tokens-per-s 65430 --devices 2240 --device 'A100 SXM' --dtype bf16 "
            "--params 530e9",
            29.77,
            0.005,
        ),
    ],
)
def test_c05_palm_and_mt_nlg(steptax: Run, line: str, percent: float, within: float) -> None:
    found = measures(steptax, line)["mfu_ratio"]
    assert found is not None
    assert 100 * found == pytest.approx(percent, abs=within)


def test_c05_palm_hardware_utilisation(steptax: Run) -> None:
    """Executed / model FLOPs per token as printed, 4.10 / 3.28."""
    line = (
        f"{PALM} --convention palm --layers 118 --hidden 12288 --heads 48 --seq-len-tokens 2048 "
        f"--executed-ratio {4.10 / 3.28}"
    )
    assert percent(measures(steptax, line)["hfu_ratio"]) == pytest.approx(57.8, abs=0.05)


def test_c05_mt_nlg_throughput_from_its_step_time(steptax: Run) -> None:
    """1,920 sequences of 2,048 tokens in 60.1 s."""
    rate = 1920 * 2048 / 60.1
    assert rate == pytest.approx(65_427, abs=0.5)
    line = (
        f"mfu --tokens-per-s {rate} --devices 2240 --device 'A100 SXM' --dtype bf16 --params 530e9"
    )
    assert percent(measures(steptax, line)["mfu_ratio"]) == pytest.approx(29.77, abs=0.005)


COUNTS = "148,72,54,35,32,19,17,7,7,6,6,3,3,2,2,2,2,2"
#: Rows of the table that are faults of a GPU, and those of which the paper says hardware.
GPU, HARDWARE = 148 + 72 + 19 + 17 + 6 + 6, 419 - 54 - 35 - 2


@pytest.mark.parametrize(("tflops", "printed"), [(430, 43.5), (400, 40.4), (380, 38.4)])
def test_c06_llama_3_table_4(steptax: Run, tflops: int, printed: float) -> None:
    """Dubey et al. 2024, table 4, on 989.5 TFLOP/s; one token of 1 FLOP stands for the rate."""
    line = f"mfu --tokens-per-s {tflops} --devices 1 --params {1e12 / 6} --device 'H100 SXM'"
    found = measures(steptax, f"{line} --dtype bf16")
    assert percent(found["mfu_ratio"]) == pytest.approx(printed, abs=0.05)


def test_c06_llama_3_table_5(steptax: Run) -> None:
    """Dubey et al. 2024, table 5: counts, and shares that follow from them (not as printed)."""
    line = "failures --gpus 16384 --observed-h 1296 --observed-gpus 16384"
    printed = steptax("calc", *shlex.split(f"{line} --counts {COUNTS}"))
    found = {name: measure["value"] for name, measure in printed["measures"].items()}
    assert found["counted"] == 419
    assert percent(found["largest_cause_ratio"]) == pytest.approx(35.3, abs=0.05)
    assert found["mtbf_h"] == pytest.approx(3.093, abs=5e-4)
    assert sum(printed["details"]["causes"]) == pytest.approx(1)
    for count, share in ((GPU, 64.0), (HARDWARE, 78.3)):
        counts = f"{count},{419 - count}"
        largest = measures(steptax, f"{line} --counts {counts}")["largest_cause_ratio"]
        assert percent(largest) == pytest.approx(share, abs=0.05)
    assert (GPU, HARDWARE) == (268, 328)


@pytest.mark.parametrize(
    ("gpus", "step_s", "tflops", "percent"), [(8192, 12.02, 430, 43.5), (16384, 6.46, 400, 40.4)]
)
def test_c06_llama_3_utilisation(
    steptax: Run, gpus: int, step_s: float, tflops: float, percent: float
) -> None:
    line = (
        f"mfu --tokens-per-s {16 * 2**20 / step_s} --devices {gpus} --device 'H100 SXM' "
        "--dtype bf16 --convention megatron --layers 126 --hidden 16384 --ffn 53248 --heads 128 "
        "--kv-heads 8 --vocab 128256 --seq-len-tokens 8192 --mlp swiglu"
    )
    found = measures(steptax, line)
    assert found["mfu_ratio"] is not None
    assert found["flops_per_token"] == pytest.approx(2.5240e12, rel=5e-5)
    assert found["tflops_per_device"] == pytest.approx(tflops, rel=1.5e-3)
    assert 100 * found["mfu_ratio"] == pytest.approx(percent, abs=0.06)


LLAMA_405B = (
    "mfu --tokens-per-s 1 --devices 1 --device 'H100 SXM' --dtype bf16 --layers 126 "
    "--hidden 16384 --ffn 53248 --heads 128 --kv-heads 8 --vocab 128256 --mlp swiglu"
)


@pytest.mark.parametrize(
    ("flags", "tflop"),
    [
        ("--convention 6N --seq-len-tokens 8192", 2.4351),
        ("--convention megatron --seq-len-tokens 8192", 2.5240),
        ("--convention megatron --seq-len-tokens 8192 --attention full", 2.6254),
        ("--convention megatron --seq-len-tokens 131072 --attention causal", 4.0460),
        ("--convention megatron --seq-len-tokens 131072 --attention full", 5.6695),
    ],
)
def test_c06_llama_3_flops_per_token(steptax: Run, flags: str, tflop: float) -> None:
    """Dubey et al. 2024, table 3: the shape of 405B; the conventions are 40 % apart at 131,072."""
    found = measures(steptax, f"{LLAMA_405B} {flags}")
    assert found["flops_per_token"] == pytest.approx(1e12 * tflop, abs=5e7)
    assert found["params_active"] == pytest.approx(405.85e9, abs=5e6)


@pytest.mark.parametrize(
    ("shape", "total", "active"),
    [
        (
            "--layers 32 --hidden 4096 --ffn 14336 --heads 32 --kv-heads 8 --vocab 32000 "
            "--experts 8 --topk 2",
            46_702_792_704,
            12_879_925_248,
        ),
        (
            "--layers 60 --hidden 5120 --ffn 12288 --heads 128 --vocab 102400 --experts 160 "
            "--topk 6 --moe-ffn 1536 --shared-ffn 3072 --moe-layers 59 --q-lora-rank 1536 "
            "--kv-lora-rank 512 --qk-head-dim 128 --qk-rope-head-dim 64 --v-head-dim 128",
            235_741_434_880,
            21_375_800_320,
        ),
    ],
)
def test_parameters_of_published_mixtures(
    steptax: Run, shape: str, total: int, active: int
) -> None:
    """Jiang et al. 2024, Mixtral 8x7B (46.7e9, 12.9e9); DeepSeek-AI 2024, V2 (236e9, 21e9)."""
    line = f"mfu --tokens-per-s 1 --devices 1 --device 'H100 SXM' --dtype bf16 --mlp swiglu {shape}"
    found = measures(steptax, line)
    assert (found["params_total"], found["params_active"]) == (total, active)
    assert found["flops_per_token"] == 6 * active


def test_scaling_laws_at_the_size_of_chinchilla(steptax: Run) -> None:
    """Hoffmann et al. 2022, approach 3: a loss of 1.937 at 70e9 parameters, 1.4e12 tokens."""
    found = measures(steptax, "scaling-law --params 70e9 --tokens 1.4e12")
    assert found["loss_hoffmann"] == pytest.approx(1.937, abs=5e-4)
    assert found["best_tokens_per_param_besiroglu"] == pytest.approx(20, abs=3)


def test_c10_ring_of_the_published_simulation(steptax: Run) -> None:
    """Devraj et al. 2025, simulation.py: 8 ranks, 1 GiB, 450 GiB/s, 3 us."""
    line = (
        "collective-time --collective all_reduce --ranks 8 --size-bytes 1GiB "
        "--link-gb-per-s '450 GiB/s' --alpha-us 3"
    )
    assert measures(steptax, line)["ring_ms"] == pytest.approx(3.931, abs=5e-4)


@pytest.mark.parametrize(
    ("protocol", "nodes", "ring_us", "tree_us"),
    [
        ("LL", 1, 6.6 + 14 * 0.6, 6.8 + 14 * 0.6),
        ("LL128", 1, 14 + 14 * 1.9, 14 + 14 * 1.25),
        ("Simple", 1, 8.4 + 14 * 3.4, 8.4 + 14 * 4.0),
        ("Simple", 2, 8.4 + 28 * 3.4 + 2 * 14, 8.4 + 2 * (7 * 4.0 + 14)),
    ],
)
def test_latency_of_nccl(
    steptax: Run, protocol: str, nodes: int, ring_us: float, tree_us: float
) -> None:
    """NCCL src/graph/tuning.cc: base, and hops over NVLink and the network."""
    line = (
        f"collective-time --collective all_reduce --ranks {8 * nodes} --nodes {nodes} "
        f"--size-bytes 1e6 --link-gb-per-s 450 --alpha-us 3 --net-gb-per-s 50 --net-alpha-us 10 "
        f"--protocol {protocol}"
    )
    found = measures(steptax, line)
    assert found["nccl_ring_latency_us"] == pytest.approx(ring_us)
    assert found["nccl_tree_latency_us"] == pytest.approx(tree_us)


@pytest.mark.parametrize(
    ("gpus", "count", "hours"),
    [
        (16_384, 419, 3.093),
        (16_384, 466, 2.781),
        (100_000, 419, 30.4 / 60),
        (10**6, 419, 3.04 / 60),
    ],
)
def test_c06_llama_3_interruptions(steptax: Run, gpus: int, count: int, hours: float) -> None:
    found = measures(
        steptax,
        f"failures --gpus {gpus} --observed-failures {count} --observed-h 1296 "
        "--observed-gpus 16384",
    )
    assert found["mtbf_h"] == pytest.approx(hours, rel=2e-3)
    if count == 419:
        assert found["mtbf_gpu_h"] == pytest.approx(50_677, abs=0.5)


@pytest.mark.parametrize(
    ("flags", "waste", "slowdown"),
    [
        ("--slowdown 1.3459", 0.2570, 1.3459),
        ("--delay-ratio '34.59 %'", 0.2570, 1.3459),
        ("--delay-ratio 0.1179", 0.1055, 1.1179),
        ("--delay-ratio 0.1545", 0.1338, 1.1545),
        ("--slowdown 1.1", 0.0909, 1.1),
        ("--slowdown 1.28", 0.219, 1.28),
        ("--slowdown 1.34", 0.254, 1.34),
        ("--slowdown 3.04", 0.671, 3.04),
        ("--waste-ratio 0.104", 0.104, 1.116),
        ("--waste-ratio 0.213", 0.213, 1.271),
        ("--waste-ratio 0.45", 0.45, 1.818),
        ("--planned-h 23.4847 --actual-h 46.336373", 0.493, 1.97305),
        ("--planned-h 1.843296 --actual-h 2.172697", 0.152, 1.17870),
    ],
)
def test_c07_slowdown_and_waste(steptax: Run, flags: str, waste: float, slowdown: float) -> None:
    found = measures(steptax, f"waste {flags}")
    assert found["waste_ratio"] == pytest.approx(waste, abs=5e-4)
    assert found["slowdown"] == pytest.approx(slowdown, abs=5e-4)


@pytest.mark.parametrize(
    ("trace", "numbers"),
    [
        ("AR", {"S": 1.97305, "waste": 0.493, "M_W": 1.0017}),
        ("ST", {"S": 1.17870, "waste": 0.152, "M_S": 1.2194}),
    ],
)
def test_c07_stragglers_of_the_published_traces(
    steptax: Run, shared: Find, trace: str, numbers: dict[str, float]
) -> None:
    """Lin et al., OSDI'25, artifact: one slow worker (AR), a heavy last stage (ST)."""
    found = steptax(
        *("whatif", "stragglers", "--trace", shared(f"ops/trace-{trace}.parquet")),
        *("--meta", shared(f"ops/meta-{trace}.yaml")),
    )
    for name, value in numbers.items():
        digits = len(str(value).partition(".")[2]) if name != "S" else 5
        assert found[name]["value"] == pytest.approx(value, abs=0.5 * 10.0**-digits), name


@pytest.mark.parametrize(
    ("slow", "of", "printed"), [(6, 392, 1.53), (43, 107, 40.2), (16, 27, 59.3)]
)
def test_c09_falcon_table_1_share_of_jobs(steptax: Run, slow: int, of: int, printed: float) -> None:
    """Wu et al. 2024, table 1: jobs with a fail-slow."""
    line = f"any-slow --ranks 1 --observed-ranks {of} --observed-slow {slow}"
    digits = len(str(printed).partition(".")[2])
    found = percent(measures(steptax, line)["slow_ratio"])
    assert found == pytest.approx(printed, abs=0.5 * 10.0**-digits)


@pytest.mark.parametrize(
    ("delay", "waste"), [("11.79 %", 10.55), ("15.45 %", 13.38), ("34.59 %", 25.70)]
)
def test_c09_falcon_delay_as_waste(steptax: Run, delay: str, waste: float) -> None:
    """Wu et al. 2024, table 1: mean delay of the job completion, as share of the GPU time."""
    found = measures(steptax, f"waste --delay-ratio '{delay}'")
    assert percent(found["waste_ratio"]) == pytest.approx(waste, abs=0.005)


def test_c09_greyhound_mitigation(steptax: Run) -> None:
    """GREYHOUND, ATC'25: 37.4 iterations a minute, 18.9 with the fault, 29.8 mitigated."""
    line = "waste --healthy-per-min 37.4 --slow-per-min 18.9 --mitigated-per-min 29.8"
    found = measures(steptax, line)
    assert percent(found["mitigated_ratio"]) == pytest.approx(58.9, abs=0.05)
    assert found["mitigation_speedup"] == pytest.approx(1.577, abs=5e-4)
    assert found["slowdown"] == pytest.approx(37.4 / 18.9)


@pytest.mark.parametrize(
    ("ranks", "speedup"),
    [
        (4, 1.1265), (8, 1.3629), (16, 1.5646), (32, 1.7183), (64, 1.8263), (128, 1.8970),
        (256, 1.9409), (6, 1.1921), (12, 1.3462), (24, 1.6348), (48, 1.6168), (96, 1.7430),
        (192, 1.8289),
    ],
)  # fmt: skip
def test_c10_all_reduce_around_a_late_rank(steptax: Run, ranks: int, speedup: float) -> None:
    line = f"stragglar --ranks {ranks} --size-bytes 1GiB --link-gb-per-s '450 GiB/s' --alpha-us 3"
    assert measures(steptax, line)["all_reduce_speedup"] == pytest.approx(speedup, abs=1e-4)


def test_c12_one_slow_rank_in_a_hundred(steptax: Run) -> None:
    found = measures(steptax, "any-slow --ranks 100 --slow-ratio 0.01")
    assert found["any_slow_ratio"] == pytest.approx(0.63397, abs=5e-6)
    assert measures(steptax, "any-slow --ranks 4096 --slow-ratio 0.01")[
        "any_slow_ratio"
    ] == pytest.approx(1)


@pytest.mark.parametrize(
    ("ranks", "m", "sd"),
    [
        (8, 1.4236, 0.6107),
        (16, 1.7660, 0.5431),
        (32, 2.0697, 0.4915),
        (64, 2.3437, 0.4511),
        (100, 2.5076, 0.4294),
        (128, 2.5946, 0.4186),
        (256, 2.8269, 0.3920),
        (1024, 3.2482, 0.3508),
        (4096, 3.6261, 0.3201),
        (16384, 3.9714, 0.2963),
        (100000, 4.3843, 0.2719),
    ],
)
def test_c12_the_slowest_of_many(steptax: Run, ranks: int, m: float, sd: float) -> None:
    found = measures(steptax, f"expected-max --ranks {ranks}")
    assert found["standard_max"] == pytest.approx(m, abs=5e-5)
    assert found["sd_of_max"] == pytest.approx(sd, abs=5e-5)


def test_c12_order_statistics_of_backup_workers(steptax: Run) -> None:
    """Means of the 94th of 100 exponential, and of the 96th of 100 normal, draws."""
    line = "backup-workers --workers {} --backups {} --cv-ratio 1 --distribution {}"
    exponential = measures(steptax, line.format(94, 6, "exponential"))
    assert exponential["waited_over_mean"] == pytest.approx(2.7374, abs=5e-5)
    normal = measures(steptax, line.format(96, 4, "normal"))
    assert normal["waited_sd"] == pytest.approx(1.6872, abs=5e-5)


def test_c12_backup_workers_break_even(steptax: Run) -> None:
    found = measures(steptax, "backup-workers --workers 96 --backups 4 --cv-ratio 0.1")
    assert found["break_even_cv_ratio"] == pytest.approx(0.0555, abs=5e-5)
    assert found["net_gain"] is not None
    assert found["net_gain"] > 1


@pytest.mark.parametrize(
    ("flags", "young", "daly", "high_order", "best", "useful"),
    [
        (
            "--checkpoint-s 60 --mtbf-s 10800 --restart-s 60",
            1138.42, 1078.42, 1098.77, 1098.78, 0.89328,
        ),
        (
            "--checkpoint-s 300 --mtbf-s 11135.08 --restart-s 600",
            2584.77, 2284.77, 2388.64, 2388.76, 0.74427,
        ),
    ],
)  # fmt: skip
def test_c12_checkpoint_intervals(
    steptax: Run,
    flags: str,
    young: float,
    daly: float,
    high_order: float,
    best: float,
    useful: float,
) -> None:
    found = measures(steptax, f"checkpoint-interval {flags}")
    assert found["young_s"] == pytest.approx(young, abs=0.005)
    assert found["daly_s"] == pytest.approx(daly, abs=0.005)
    assert found["daly_high_order_s"] == pytest.approx(high_order, abs=0.005)
    assert found["best_interval_s"] == pytest.approx(best, abs=0.005)
    assert found["useful_at_best_ratio"] == pytest.approx(useful, abs=5e-6)


@pytest.mark.parametrize(
    ("flags", "name", "value", "within"),
    [
        ("--ranks 8 --algbw-gb-per-s 275", "busbw_gb_per_s", 481.25, 1e-9),
        ("--ranks 8 --busbw-gb-per-s 473.1", "algbw_gb_per_s", 270.34, 0.005),
        ("--ranks 8 --busbw-gb-per-s 473.1 --size-bytes '8 GiB'", "duration_ms", 31.77, 0.005),
    ],
)
def test_c12_bus_bandwidth(
    steptax: Run, flags: str, name: str, value: float, within: float
) -> None:
    found = measures(steptax, f"busbw --collective all_reduce {flags}")
    assert found[name] == pytest.approx(value, abs=within)


@pytest.mark.parametrize(
    ("actual_h", "low", "high"), [(960, 491_520, 860_160), (1008, 589_824, 1_032_192)]
)
def test_c12_what_late_days_cost(steptax: Run, actual_h: int, low: float, high: float) -> None:
    line = f"waste --planned-h 720 --actual-h {actual_h} --gpus 1024 --usd-per-gpu-hour 2.00"
    printed = steptax("calc", *shlex.split(line), "--usd-per-gpu-hour-high", "3.50")["measures"]
    assert printed["extra_gpu_hours"]["value"] == pytest.approx((actual_h - 720) * 1024)
    assert printed["extra_usd"]["low"] == pytest.approx(low)
    assert printed["extra_usd"]["high"] == pytest.approx(high)
