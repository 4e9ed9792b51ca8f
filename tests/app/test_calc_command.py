"""Published and worked numbers as ``steptax calc`` prints them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from steptax.app.compute.calculators.registry import CALCULATORS

Run = Callable[..., Any]


def measures(steptax: Run, line: str) -> dict[str, float | None]:
    """Values by name of ``steptax calc`` with the flags of ``line``."""
    printed = steptax("calc", *shlex.split(line))["measures"]
    return {name: measure["value"] for name, measure in printed.items()}


KERNEL = "kernel-speedup --compute-ms 100 --comm-ms 30 --wait-ms 15 --speedup 232"


def test_a_kernel_meets_synchronisation(steptax: Run) -> None:
    found = measures(steptax, KERNEL)
    assert found["step_before_ms"] == 145
    assert found["step_after_ms"] == pytest.approx(45.43, abs=0.005)
    assert found["step_speedup"] == pytest.approx(3.19, abs=0.005)
    assert found["ceiling"] == pytest.approx(3.22, abs=0.005)
    assert found["compute_share_before_ratio"] == pytest.approx(0.690, abs=5e-4)
    assert found["compute_share_after_ratio"] == pytest.approx(0.0095, abs=5e-5)
    assert found["wait_share_before_ratio"] == pytest.approx(0.103, abs=5e-4)
    assert found["wait_share_after_ratio"] == pytest.approx(0.330, abs=5e-4)


@pytest.mark.parametrize(
    ("more", "speedup"),
    [
        ("--hidden-comm-ms 0 --wait-follows-ratio 1", 4.75),
        ("--hidden-comm-ms 40 --wait-follows-ratio 0", 1.70),
        ("--hidden-comm-ms 80 --wait-follows-ratio 0", 1.16),
    ],
)
def test_what_is_hidden_or_follows_changes_the_answer(
    steptax: Run, more: str, speedup: float
) -> None:
    assert measures(steptax, f"{KERNEL} {more}")["step_speedup"] == pytest.approx(
        speedup, abs=0.005
    )


def test_what_is_not_given_is_a_band(steptax: Run) -> None:
    headline = steptax("calc", *shlex.split(KERNEL))["measures"]["step_speedup"]
    assert headline["low"] == pytest.approx(1)
    assert headline["low"] < headline["value"] < headline["high"]
    assert headline["high"] == pytest.approx(4.75, abs=0.005)


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
def test_slowdown_and_waste(steptax: Run, flags: str, waste: float, slowdown: float) -> None:
    found = measures(steptax, f"waste {flags}")
    assert found["waste_ratio"] == pytest.approx(waste, abs=5e-4)
    assert found["slowdown"] == pytest.approx(slowdown, abs=5e-4)


@pytest.mark.parametrize(
    ("actual_h", "low", "high"), [(960, 491_520, 860_160), (1008, 589_824, 1_032_192)]
)
def test_what_late_days_cost(steptax: Run, actual_h: int, low: float, high: float) -> None:
    line = f"waste --planned-h 720 --actual-h {actual_h} --gpus 1024 --usd-per-gpu-hour 2.00"
    printed = steptax("calc", *shlex.split(line), "--usd-per-gpu-hour-high", "3.50")["measures"]
    assert printed["extra_gpu_hours"]["value"] == pytest.approx((actual_h - 720) * 1024)
    assert printed["extra_usd"]["low"] == pytest.approx(low)
    assert printed["extra_usd"]["high"] == pytest.approx(high)


def test_one_slow_rank_in_a_hundred(steptax: Run) -> None:
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
def test_the_slowest_of_many(steptax: Run, ranks: int, m: float, sd: float) -> None:
    found = measures(steptax, f"expected-max --ranks {ranks}")
    assert found["standard_max"] == pytest.approx(m, abs=5e-5)
    assert found["sd_of_max"] == pytest.approx(sd, abs=5e-5)


def test_backup_workers_break_even(steptax: Run) -> None:
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
def test_checkpoint_intervals(
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
    ("gpus", "count", "hours"),
    [
        (16_384, 419, 3.093),
        (16_384, 466, 2.781),
        (100_000, 419, 30.4 / 60),
        (10**6, 419, 3.04 / 60),
    ],
)
def test_llama_3_interruptions(steptax: Run, gpus: int, count: int, hours: float) -> None:
    found = measures(
        steptax,
        f"failures --gpus {gpus} --observed-failures {count} --observed-h 1296 "
        "--observed-gpus 16384",
    )
    assert found["mtbf_h"] == pytest.approx(hours, rel=2e-3)
    if count == 419:
        assert found["mtbf_gpu_h"] == pytest.approx(50_677, abs=0.5)


def test_break_even_price(steptax: Run) -> None:
    a = "--a-usd-per-gpu-hour {} --a-peak-tflops 989.5 --a-mfu-ratio 0.40 --a-goodput-ratio 0.90"
    b = "--b-peak-tflops 2250 --b-mfu-ratio 0.35 --b-goodput-ratio 0.90"
    found = measures(steptax, f"break-even {a.format('$2')} {b}".replace("$", "\\$"))
    assert found["a_usd_per_eflop"] == pytest.approx(1.56, abs=0.005)
    assert found["b_break_even_usd_per_gpu_hour"] == pytest.approx(3.98, abs=0.005)
    assert measures(steptax, f"break-even {a.format(3.5)}")["a_usd_per_eflop"] == pytest.approx(
        2.73, abs=0.005
    )


@pytest.mark.parametrize(
    ("flags", "name", "value", "within"),
    [
        ("--ranks 8 --algbw-gb-per-s 275", "busbw_gb_per_s", 481.25, 1e-9),
        ("--ranks 8 --busbw-gb-per-s 473.1", "algbw_gb_per_s", 270.34, 0.005),
        ("--ranks 8 --busbw-gb-per-s 473.1 --size-bytes '8 GiB'", "duration_ms", 31.77, 0.005),
    ],
)
def test_bus_bandwidth(steptax: Run, flags: str, name: str, value: float, within: float) -> None:
    found = measures(steptax, f"busbw --collective all_reduce {flags}")
    assert found[name] == pytest.approx(value, abs=within)


@pytest.mark.parametrize(
    ("ranks", "speedup"),
    [
        (4, 1.1265), (8, 1.3629), (16, 1.5646), (32, 1.7183), (64, 1.8263), (128, 1.8970),
        (256, 1.9409), (6, 1.1921), (12, 1.3462), (24, 1.6348), (48, 1.6168), (96, 1.7430),
        (192, 1.8289),
    ],
)  # fmt: skip
def test_all_reduce_around_a_late_rank(steptax: Run, ranks: int, speedup: float) -> None:
    line = f"stragglar --ranks {ranks} --size-bytes 1GiB --link-gb-per-s '450 GiB/s' --alpha-us 3"
    assert measures(steptax, line)["all_reduce_speedup"] == pytest.approx(speedup, abs=1e-4)


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
def test_palm_and_its_comparison(steptax: Run, line: str, percent: float, within: float) -> None:
    found = measures(steptax, line)["mfu_ratio"]
    assert found is not None
    assert 100 * found == pytest.approx(percent, abs=within)


@pytest.mark.parametrize(
    ("gpus", "step_s", "tflops", "percent"), [(8192, 12.02, 430, 43.5), (16384, 6.46, 400, 40.4)]
)
def test_llama_3_utilisation(
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
def test_llm_foundry_table(
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


def test_local_sgd_averages_chance_only(steptax: Run) -> None:
    for every, slowdown in ((1, 1.162), (4, 1.081), (16, 1.041), (64, 1.020)):
        line = f"local-sgd --ranks 1024 --cv-ratio '5 %' --every-steps {every}"
        assert measures(steptax, line)["slowdown"] == pytest.approx(slowdown, abs=5e-4)
    lasting = measures(steptax, f"{line} --persistent-ratio 0.3")
    assert lasting["persistent_part"] == 0.3


def test_pauses_of_garbage_collection(steptax: Run) -> None:
    for every, hit in ((50, 0.925), (100, 0.724), (500, 0.226)):
        line = f"gc-sync --pause-ms 1000 --every-steps {every} --ranks 128"
        found = measures(steptax, line)
        assert found["any_pause_ratio"] == pytest.approx(hit, abs=5e-4)
        assert found["synchronised_ms"] == pytest.approx(1000 / every)


def test_spares_at_the_99th_percentile(steptax: Run) -> None:
    for repair_h, spares in ((4, 5), (24, 15), (72, 35)):
        line = f"hot-spares --failures-per-h 0.3233 --repair-h {repair_h}"
        assert measures(steptax, line)["spares"] == spares


def test_one_step_of_a_straggler(steptax: Run) -> None:
    """100 ms on all but one rank, which takes 120: the step loses a sixth to waiting."""
    times = ",".join(["100"] * 7 + ["120"])
    found = measures(steptax, f"remove-worst --times-ms {times} --worst 1")
    assert found["step_before_ms"] == 120
    assert found["step_replaced_ms"] == pytest.approx(100)
    assert found["recovered_ratio"] == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("kernel-speedup --comm-ms 30 --wait-ms 15 --speedup 2", "compute_ms", "required"),
        (f"{KERNEL} --accelerated-ratio 1.5", "accelerated_ratio", "0..1"),
        (f"{KERNEL} --wait-ms '3 parsecs'", "wait_ms", "3 parsecs"),
        ("any-slow --ranks 8 --slow-ratio 34.59", "slow_ratio", "34.59"),
        ("waste --slowdown 1.2 --delay-ratio 0.2", "slowdown, delay_ratio", "one of"),
        ("kernel-speedup --colour red", "colour", "no parameter"),
        ("busbw --collective gossip --ranks 8 --algbw-gb-per-s 1", "collective", "all_reduce"),
        ("stragglar --ranks 8.5 --size-bytes 1 --link-gb-per-s 1 --alpha-us 1", "ranks", "whole"),
    ],
)
def test_errors_name_the_parameter(steptax: Run, line: str, where: str, said: str) -> None:
    error = steptax("calc", *shlex.split(line), fails=2)
    assert error["kind"] == "UserError"
    assert error["where"] == where
    assert said in error["message"]


def test_flags_may_carry_an_equals_sign(steptax: Run) -> None:
    assert measures(steptax, "waste --slowdown=1.25")["waste_ratio"] == pytest.approx(0.2)


@pytest.mark.parametrize("line", ["waste slowdown 1.2", "waste --slowdown"])
def test_a_malformed_line_is_refused(steptax: Run, line: str) -> None:
    assert steptax("calc", *shlex.split(line), fails=2)["where"] == "calc waste"


def test_an_unknown_calculator_lists_the_known(steptax: Run) -> None:
    error = steptax("calc", "kernel", fails=2)
    assert error["kind"] == "NotFoundError"
    assert "kernel-speedup" in error["hint"]


def test_all_are_listed_with_their_parameters(steptax: Run) -> None:
    listed = {entry["name"]: entry for entry in steptax("calc")}
    assert list(listed) == list(CALCULATORS)
    assert [p["name"] for p in listed["waste"]["parameters"] if p["required"]] == []
    assert listed["kernel-speedup"]["parameters"][0] == {
        "name": "compute_ms",
        "unit": "ms",
        "help": "compute per step",
        "required": True,
    }
