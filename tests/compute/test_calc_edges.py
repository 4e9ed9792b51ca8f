"""Calculators where their formula leaves its ground: nothing impossible is said."""

from __future__ import annotations

import pytest

from steptax.app.compute.calculators.registry import calculator
from steptax.app.compute.stats.order_stats import normal_order_mean, standard_order_mean
from steptax.app.errors import UserError


@pytest.mark.parametrize(
    ("inputs", "above"),
    [
        ({"distribution": "normal"}, "2.51"),
        # H_100 - 1: the slowest of a hundred exponentials lies that many means above the mean.
        ({"distribution": "exponential", "cv_ratio": 1.0}, "4.19"),
        ({"distribution": "normal", "correlation_ratio": 0.5}, "1.77"),
    ],
)
def test_the_distance_of_the_slowest_is_that_of_its_distribution(
    inputs: dict[str, object], above: str
) -> None:
    result = calculator("expected-max").run({"ranks": 100, "cv_ratio": 0.1} | inputs)
    assert f"lies {above} standard deviations above the mean" in result.sentence


@pytest.mark.parametrize("shape", ["normal", "lognormal", "exponential"])
def test_one_rank_waits_for_nobody(shape: str) -> None:
    assert standard_order_mean(1, 1, 0.3, shape) == 1.0
    result = calculator("expected-max").run({"ranks": 1, "cv_ratio": 0.3, "distribution": shape})
    tax = result.measures()["tax_ratio"]
    assert tax.value == 0.0
    assert "lies 0.00 standard deviations" in result.sentence


def test_the_middle_of_an_odd_number_is_the_mean() -> None:
    assert normal_order_mean(1, 1) == normal_order_mean(4, 7) == 0.0
    assert normal_order_mean(3, 4) > 0


@pytest.mark.parametrize(
    ("rate", "said"),
    [(10, "slower than without it"), (40, "faster than without the fault")],
)
def test_a_mitigation_outside_of_the_lost_rate_is_no_part_of_it(rate: float, said: str) -> None:
    result = calculator("waste").run(
        {"healthy_per_min": 30, "slow_per_min": 20, "mitigated_per_min": rate}
    )
    found = result.measures()
    assert found["mitigated_ratio"].value is None
    assert said in str(found["mitigated_ratio"].reason)
    assert found["mitigation_speedup"].value == rate / 20


def test_failures_cannot_take_more_time_than_there_is() -> None:
    spares = calculator("hot-spares").run(
        {"failures_per_h": 10, "repair_h": 24, "nodes": 10, "requeue_s": 7200, "swap_s": 60}
    )
    for name in ("benefit_ratio", "net_ratio", "ceiling"):
        assert "the next failure comes before" in str(spares.measures()[name].reason)
    assert "save" not in spares.sentence
    often = {"gpus": 8, "mtbf_gpu_h": 0.001, "run_h": 720, "usd_per_gpu_hour": 2}
    failures = calculator("failures").run(often | {"lost_per_failure_s": 1800})
    for name in ("lost_gpu_hours", "lost_usd"):
        assert "the next failure comes before" in str(failures.measures()[name].reason)
    seldom = calculator("failures").run(often | {"mtbf_gpu_h": 50_000, "lost_per_failure_s": 1800})
    assert seldom.measures()["lost_gpu_hours"].value == pytest.approx(0.4608)


def test_the_number_that_is_refused_is_the_one_that_was_given() -> None:
    with pytest.raises(UserError, match="not 5"):
        calculator("remove-worst").run({"times_ms": (100.0, 200.0), "worst": 5})


def test_a_peak_without_a_precision_is_not_called_unknown() -> None:
    result = calculator("mfu").run(
        {
            "tokens_per_s": 1000,
            "devices": 1,
            "params": 1e9,
            "peak_tflops": 100,
            "peak_basis": "dense",
        }
    )
    assert result.sentence == "MFU is 6.0 % by 6N of 100 TFLOP/s dense."


def test_a_step_alone_is_a_sentence() -> None:
    result = calculator("train-time").run(
        {
            "devices": 32,
            "tflops": 137.5,
            "layers": 24,
            "hidden": 2304,
            "vocab": 51200,
            "seq_len_tokens": 2048,
            "batch_sequences": 512,
        }
    )
    assert result.sentence == "At 137.5 TFLOP/s on each of 32 devices a step takes 3.515 s."
