"""Price per useful operation, and the price at which two devices are equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.calculators.break_even import break_even
from steptax.app.errors import UserError

H100 = {
    "a_usd_per_gpu_hour": 2.0,
    "a_peak_tflops": 989.5,
    "a_mfu_ratio": 0.40,
    "a_goodput_ratio": 0.90,
}
B200 = {"b_peak_tflops": 2250.0, "b_mfu_ratio": 0.35, "b_goodput_ratio": 0.90}


@pytest.mark.parametrize(("price", "printed"), [(2.0, 1.56), (3.5, 2.73)])
def test_b5_10_price_of_a_useful_eflop(price: float, printed: float) -> None:
    result = break_even.run({**H100, "a_usd_per_gpu_hour": price})
    assert round(result.a_usd_per_eflop.value, 2) == printed
    assert result.headline == "a_usd_per_eflop"
    assert result.b_break_even_usd_per_gpu_hour.value is None
    assert "not described" in result.sentence


def test_b5_10_break_even_price() -> None:
    result = break_even.run({**H100, **B200})
    assert round(result.b_break_even_usd_per_gpu_hour.value, 2) == 3.98
    at_even = break_even.run(
        {**H100, **B200, "b_usd_per_gpu_hour": result.b_break_even_usd_per_gpu_hour.value}
    )
    assert at_even.b_usd_per_eflop.value == pytest.approx(at_even.a_usd_per_eflop.value)
    assert result.b_usd_per_eflop.value is None


def test_b5_10_utilisation_of_b_is_never_taken_from_a() -> None:
    with pytest.raises(UserError) as caught:
        break_even.run({**H100, "b_peak_tflops": 2250, "b_goodput_ratio": 0.9})
    assert caught.value.where == "b_mfu_ratio"
    with pytest.raises(UserError):
        break_even.run({**H100, "b_usd_per_gpu_hour": 4})


def test_b5_10_there_is_no_default_price() -> None:
    with pytest.raises(UserError) as caught:
        break_even.run({k: v for k, v in H100.items() if k != "a_usd_per_gpu_hour"})
    assert caught.value.where == "a_usd_per_gpu_hour"


def test_b5_10_energy_counts_on_both_sides_or_not_at_all() -> None:
    energy = {"a_power_w": 1000, "b_power_w": 1500, "usd_per_kwh": 0.1}
    result = break_even.run({**H100, **B200, **energy})
    gain = 2250 * 0.35 / (989.5 * 0.40)
    assert result.b_break_even_usd_per_gpu_hour.value == pytest.approx(2.1 * gain - 0.15)
    assert result.a_energy_usd_per_eflop.value == pytest.approx(
        0.1 / (3600 * 989.5e12 * 0.36 / 1e18)
    )
    lopsided = break_even.run({**H100, **B200, "a_power_w": 1000, "usd_per_kwh": 0.1})
    assert lopsided.main.value is None
    assert "one device" in (lopsided.main.reason or "")
    hot = break_even.run({**H100, **B200, **energy, "b_power_w": 1e6})
    assert hot.main.value is None


def test_b5_10_days_and_deadline() -> None:
    run = {**H100, **B200, "work_eflop": 1e6, "a_gpus": 1024, "b_gpus": 512, "deadline_d": 30}
    result = break_even.run(run)
    assert result.a_days.value == pytest.approx(1e24 / (989.5e12 * 0.36 * 1024) / 86400)
    assert result.b_days.value == pytest.approx(1e24 / (2250e12 * 0.315 * 512) / 86400)
    late = [text for text in result.warnings if "more than the 30" in text]
    assert len(late) == sum(days > 30 for days in (result.a_days.value, result.b_days.value))
    assert len(late) == 2
    assert break_even.run(H100).a_days.value is None


@given(st.floats(0.05, 1), st.floats(0.05, 1), st.floats(0.1, 20))
def test_better_use_of_b_is_worth_more(mfu: float, worse: float, price: float) -> None:
    def even(b_mfu: float) -> float:
        result = break_even.function(
            a_usd_per_gpu_hour=price,
            a_peak_tflops=989.5,
            a_mfu_ratio=0.4,
            a_goodput_ratio=0.9,
            b_peak_tflops=2250,
            b_mfu_ratio=b_mfu,
            b_goodput_ratio=0.9,
        )
        return result.b_break_even_usd_per_gpu_hour.value or 0.0

    assert even(mfu) >= even(mfu * worse)
