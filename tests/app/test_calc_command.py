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


MFU = "mfu --tokens-per-s 1000 --devices 8 --device 'H100 SXM' --dtype bf16 --params 8e9"
SLOWEST = "expected-max --cv-ratio 0.05 --mean-ms 100"
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


def test_break_even_price(steptax: Run) -> None:
    a = "--a-usd-per-gpu-hour {} --a-peak-tflops 989.5 --a-mfu-ratio 0.40 --a-goodput-ratio 0.90"
    b = "--b-peak-tflops 2250 --b-mfu-ratio 0.35 --b-goodput-ratio 0.90"
    found = measures(steptax, f"break-even {a.format('$2')} {b}".replace("$", "\\$"))
    assert found["a_usd_per_eflop"] == pytest.approx(1.56, abs=0.005)
    assert found["b_break_even_usd_per_gpu_hour"] == pytest.approx(3.98, abs=0.005)
    assert measures(steptax, f"break-even {a.format(3.5)}")["a_usd_per_eflop"] == pytest.approx(
        2.73, abs=0.005
    )


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
        ("kernel-speedup --comm-ms 30 --wait-ms 15 --speedup 2", "--compute-ms", "required"),
        (f"{KERNEL} --accelerated-ratio 1.5", "--accelerated-ratio", "0..1"),
        (f"{KERNEL} --other-ms '3 parsecs'", "--other-ms", "3 parsecs"),
        (f"{KERNEL} --wait-ms 14", "--wait-ms", "given twice"),
        ("any-slow --ranks 8 --slow-ratio 34.59", "--slow-ratio", "34.59"),
        ("waste --slowdown 1.2 --delay-ratio 0.2", "--slowdown, --delay-ratio", "--planned-h"),
        (f"{KERNEL} --colour red", "--colour", "no flag --colour"),
        ("busbw --collective gossip --ranks 8 --algbw-gb-per-s 1", "--collective", "all_reduce"),
        ("stragglar --ranks 8.5 --size-bytes 1 --link-gb-per-s 1 --alpha-us 1", "--ranks", "whole"),
        ("failures --gpus 8 --observed-failures 3", "--observed-h", "beside a count"),
        (f"{MFU} --topk 2", "--experts", "beside topk"),
        (f"{MFU} --q-lora-rank 64", "--kv-lora-rank", "--qk-rope-head-dim"),
        (f"{MFU} --fp8-ratio 70", "--fp8-ratio", "0..1"),
        (f"{MFU} --packed-lengths-tokens 8192,0", "--packed-lengths-tokens", "at least 1"),
        (f"{SLOWEST} --ranks 8 --bad-rank-ratio 0.001", "--bad-slowdown", "--bad-rank-ratio"),
        (
            "collective-time --collective all_reduce --ranks 16 --size-bytes 1GB "
            "--link-gb-per-s 100 --alpha-us 1 --nodes 2",
            "--net-gb-per-s",
            "more than one node",
        ),
        ("scaling-law --params 1e9", "--tokens", "required"),
        (
            "compute-equivalent-gain --baseline-eflop 1,2,3 --baseline-loss 3,2,1 --loss-now 1 "
            "--used-eflop 1",
            "--baseline-eflop",
            "at least 4",
        ),
        ("waste --slowdown 2 --usd-per-gpu-hour 1e30", "--usd-per-gpu-hour", "1e30"),
    ],
)
def test_errors_name_the_flag(steptax: Run, line: str, where: str, said: str) -> None:
    error = steptax("calc", *shlex.split(line), fails=2)
    assert error["kind"] == "UserError"
    assert error["where"] == where
    assert said in error["message"]


def test_measured_ranks_do_not_speak_for_more_than_64_times_as_many(steptax: Run) -> None:
    beyond = steptax("calc", *shlex.split(f"{SLOWEST} --ranks 65537 --observed-ranks 1024"))
    for name in ("slowdown", "tax_ratio", "expected_max_ms"):
        assert beyond["measures"][name]["value"] is None
        assert "more than 64 times the 1,024 measured" in beyond["measures"][name]["reason"]
    assert beyond["band"]["low"] is beyond["band"]["high"] is None
    assert "fault model" in beyond["sentence"]
    last = measures(steptax, f"{SLOWEST} --ranks 65536 --observed-ranks 1024")
    assert last["slowdown"] == pytest.approx(1 + 0.05 * 4.291, abs=5e-5)
    faults = "--bad-rank-ratio 0.0001 --bad-slowdown 2"
    told = measures(steptax, f"{SLOWEST} --ranks 65537 --observed-ranks 1024 {faults}")
    assert told["any_bad_ratio"] == pytest.approx(1 - (1 - 1e-4) ** 65537)
    assert told["slowdown"] == pytest.approx(2, abs=2e-3)


def test_flags_may_carry_an_equals_sign(steptax: Run) -> None:
    assert measures(steptax, "waste --slowdown=1.25")["waste_ratio"] == pytest.approx(0.2)


def test_all_faults_are_named_at_once(steptax: Run) -> None:
    line = "kernel-speedup --comm-ms x --waitms 15 --speedup --accelerated-ratio 3 stray"
    error = steptax("calc", *shlex.split(line), fails=2)
    assert set(error["where"].split(", ")) == {
        *("--waitms", "--speedup", "calc kernel-speedup", "--compute-ms", "--comm-ms"),
        *("--wait-ms", "--accelerated-ratio"),
    }
    assert "_ms" not in error["message"] + error["hint"]
    assert "is it --wait-ms?" in error["hint"]
    assert "3 % is 0.03" in error["hint"]


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("waste slowdown 1.2 --delay-ratio 1", "calc waste, calc waste", "found 'slowdown'"),
        ("waste --delay-ratio 1 --slowdown", "--slowdown", "needs a value"),
        ("waste --slowdown --delay-ratio 1", "--slowdown", "needs a value"),
    ],
)
def test_a_malformed_line_is_refused(steptax: Run, line: str, where: str, said: str) -> None:
    error = steptax("calc", *shlex.split(line), fails=2)
    assert error["where"] in (where, where.split(", ")[0])
    assert said in error["message"]


def test_the_answer_comes_with_band_and_inputs(steptax: Run) -> None:
    printed = steptax("calc", *shlex.split("waste --slowdown 1.25"))
    assert printed["band"]["low"] < 0.2 < printed["band"]["high"]
    assert printed["job"] is None
    given = {one["name"]: one for one in printed["inputs"]}
    assert given["slowdown"]["origin"] == "typed"
    assert given["gpus"]["value"] is None


def test_a_price_stands_in_for_the_price_of_the_formula(steptax: Run) -> None:
    line = "waste --delay-ratio 0.5 --planned-h 10 --gpus 8 --price"
    assert measures(steptax, f"{line} 2")["extra_usd"] == pytest.approx(80)


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
