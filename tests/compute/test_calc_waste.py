"""Slowdown, delay and waste; and what extra hours cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.calculators.waste import waste
from steptax.app.errors import UserError


@pytest.mark.parametrize(
    ("slowdown", "printed"), [(1.1, 9.09), (1.28, 21.9), (1.34, 25.4), (3.04, 67.1)]
)
def test_c07_waste_of_a_slowdown(slowdown: float, printed: float) -> None:
    digits = len(str(printed).split(".")[1])
    percent = 100 * (waste(slowdown=slowdown).waste_ratio.value or 0)
    assert round(percent, digits) == printed


@pytest.mark.parametrize(("share", "printed"), [(0.104, 1.116), (0.213, 1.271), (0.45, 1.818)])
def test_c07_slowdown_of_a_waste(share: float, printed: float) -> None:
    assert round(waste(waste_ratio=share).slowdown.value or 0, 3) == printed


@pytest.mark.parametrize(
    ("actual", "ideal", "slowdown", "percent"),
    [(46.336373, 23.484700, 1.97305, 49.3), (2.172697, 1.843296, 1.17870, 15.2)],
)
def test_c07_published_traces(actual: float, ideal: float, slowdown: float, percent: float) -> None:
    result = waste(planned_h=ideal, actual_h=actual)
    assert round(result.slowdown.value or 0, 5) == slowdown
    assert round(100 * (result.waste_ratio.value or 0), 1) == percent


@pytest.mark.parametrize(("delay", "printed"), [(0.1179, 10.55), (0.1545, 13.38), (0.3459, 25.70)])
def test_c09_delay_is_not_waste(delay: float, printed: float) -> None:
    result = waste(delay_ratio=delay)
    assert round(100 * (result.waste_ratio.value or 0), 2) == printed
    assert result.delay_ratio.value == pytest.approx(delay)


def test_c09_the_trap_prints_the_right_number() -> None:
    assert "25.7 % of GPU time" in waste(delay_ratio=0.3459).sentence


def test_c09_mitigation_recovers_part_of_the_waste() -> None:
    """37.4 iterations a minute fall to 18.9 and come back to 29.8."""
    hit = waste(slowdown=37.4 / 18.9)
    mitigated = waste(slowdown=37.4 / 29.8)
    assert hit.waste_ratio.value is not None
    assert mitigated.waste_ratio.value is not None
    recovered = (hit.waste_ratio.value - mitigated.waste_ratio.value) / hit.waste_ratio.value
    assert round(100 * recovered, 1) == 58.9
    assert (hit.slowdown.value or 0) / (mitigated.slowdown.value or 1) == pytest.approx(
        1.577, abs=5e-4
    )


def test_c12_cost_of_ten_extra_days() -> None:
    result = waste(
        planned_h=720, actual_h=960, gpus=1024, usd_per_gpu_hour=2.0, usd_per_gpu_hour_high=3.5
    )
    assert result.extra_h.value == pytest.approx(240)
    assert result.extra_gpu_hours.value == pytest.approx(245_760)
    assert result.extra_usd.low == pytest.approx(491_520)
    assert result.extra_usd.high == pytest.approx(860_160)


def test_c12_cost_of_the_exact_delay() -> None:
    result = waste(
        delay_ratio=0.3459,
        planned_h=720,
        gpus=1024,
        usd_per_gpu_hour=2.0,
        usd_per_gpu_hour_high=3.5,
    )
    assert round(result.extra_gpu_hours.value or 0) == 255_025
    assert round(result.extra_usd.low or 0) == 510_050
    assert round(result.extra_usd.high or 0) == 892_588
    assert round((result.actual_h.value or 0) / 24, 2) == 40.38


def test_no_price_no_money() -> None:
    result = waste(delay_ratio=0.1, planned_h=10, gpus=8)
    assert result.extra_gpu_hours.value == pytest.approx(8)
    assert result.extra_usd.value is None
    assert "price" in (result.extra_usd.reason or "")
    unknown = waste(delay_ratio=0.1, usd_per_gpu_hour=2)
    assert unknown.extra_usd.value is None
    assert unknown.extra_h.value is None


@given(st.floats(1, 1000))
def test_forms_agree(slowdown: float) -> None:
    first = waste.function(slowdown=slowdown)
    assert first.waste_ratio.value is not None
    assert first.delay_ratio.value is not None
    back = waste.function(waste_ratio=first.waste_ratio.value)
    assert back.slowdown.value == pytest.approx(slowdown)
    assert first.waste_ratio.value == pytest.approx(
        first.delay_ratio.value / (1 + first.delay_ratio.value)
    )


@given(st.floats(1, 100), st.floats(0, 100))
def test_more_slowdown_more_waste(slowdown: float, more: float) -> None:
    assert (waste.function(slowdown=slowdown + more).waste_ratio.value or 0) >= (
        waste.function(slowdown=slowdown).waste_ratio.value or 0
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"slowdown": 1.1, "delay_ratio": 0.1},
        {"planned_h": 10},
        {"actual_h": 10},
        {"planned_h": 10, "actual_h": 9},
        {"slowdown": 0.9},
        {"delay_ratio": -0.1},
        {"slowdown": 1.1, "usd_per_gpu_hour_high": 3},
        {"slowdown": 1.1, "usd_per_gpu_hour": 3, "usd_per_gpu_hour_high": 2},
    ],
)
def test_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(UserError) as caught:
        waste.run(arguments)
    assert caught.value.where
