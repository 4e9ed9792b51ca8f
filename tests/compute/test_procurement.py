"""A job on another device: its parts scaled by what is known, and bands for what is not."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.device_table import device, devices
from steptax.app.compute.mfu.kernel_model import StepParts
from steptax.app.compute.procurement import (
    Badge,
    Profile,
    Projection,
    break_even_usd,
    comm_factor,
    compute_factor,
    cost_swings,
    energy_kwh,
    frontier,
    project,
    straggler_adjusted_usd,
)

H100, B200 = device("H100-SXM"), device("B200-SXM")
HUNDRED = StepParts(100, 30, 15, 5)
PARTS = st.builds(
    StepParts,
    compute_ms=st.floats(1, 1e4),
    comm_ms=st.floats(0, 1e4),
    wait_ms=st.floats(0, 1e4),
    other_ms=st.floats(0, 1e4),
)
KEYS = st.sampled_from([d.key for d in devices() if "bf16" in d.peak_tflops])


def profile(
    parts: StepParts = HUNDRED,
    *,
    key: str = "H100-SXM",
    nodes: int | None = 1,
    goodput: float | None = 0.9,
    mfu: float | None = 0.4,
) -> Profile:
    def known(value: float | None) -> Measure:
        missing = Measure.missing("ratio", "not on record")
        return missing if value is None else Measure(value, "ratio")

    return Profile("j", device(key), "bf16", 8, nodes, parts, known(goodput), known(mfu))


def projected(of: Profile, key: str) -> Projection:
    found = project(of, device(key), 1000, {})
    assert found is not None
    return found


def test_compute_is_scaled_by_what_was_measured_where_it_was() -> None:
    published = compute_factor(H100, B200, "bf16", {})
    assert published is not None
    assert published.times == pytest.approx(1745 / 794.5)
    assert published.badge is Badge.PUBLISHED
    assert (published.low, published.high) == (
        pytest.approx(1745 / 794.5),
        pytest.approx(8.0 / 3.35),
    )
    own = compute_factor(H100, B200, "bf16", {"H100-SXM": 700.0, "B200-SXM": 1400.0})
    assert own is not None
    assert (own.times, own.badge) == (2.0, Badge.MEASURED)
    one_side = compute_factor(H100, B200, "bf16", {"H100-SXM": 700.0})
    assert one_side is not None
    assert one_side.badge is Badge.PUBLISHED
    spec = compute_factor(H100, B200, "fp16", {})
    assert spec is not None
    assert spec.badge is Badge.SPEC
    assert compute_factor(H100, device("L40S"), "nothing", {}) is None


def test_the_network_between_nodes_is_not_bought_with_the_device() -> None:
    inside, across = comm_factor(H100, B200, 1), comm_factor(H100, B200, 16)
    assert (inside.times, inside.low, inside.high) == (2.0, 1.0, 2.0)
    assert (across.times, across.low, across.high) == (1.0, 1.0, 2.0)
    assert comm_factor(H100, B200, None) == across
    unknown = comm_factor(H100, device("TPU-v4"), 1)
    assert (unknown.times, unknown.low, unknown.high) == (1.0, 1.0, 1.0)
    assert "not known" in unknown.source


def test_a_step_by_hand() -> None:
    found = projected(profile(), "B200-SXM")
    faster = 1745 / 794.5
    step_ms = 100 / faster + 30 / 2 + 15 / faster + 5
    assert found.step_ms.value == pytest.approx(step_ms)
    assert found.speedup.value == pytest.approx(150 / step_ms)
    assert found.gpu_hours_per_result.value == pytest.approx(8 * step_ms / 3600 / 0.9)
    useful = 0.9895 * 0.4 * 0.9 * 150
    assert found.delivered_pflops.value == pytest.approx(useful / step_ms)
    price = straggler_adjusted_usd(Decimal(4), found.wait_ratio).value
    assert price == pytest.approx(4 / (1 - 15 / faster / step_ms))
    assert break_even_usd(Decimal(2), found.speedup).value == pytest.approx(300 / step_ms)
    assert break_even_usd(None, found.speedup).value is None


@given(PARTS, KEYS, KEYS, st.sampled_from([None, 1, 4]))
def test_a_band_holds_its_value(parts: StepParts, own: str, other: str, nodes: int | None) -> None:
    found = projected(profile(parts, key=own, nodes=nodes), other)
    for measure in (
        found.step_ms,
        found.speedup,
        found.wait_ratio,
        found.gpu_hours_per_result,
        found.delivered_pflops,
    ):
        assert measure.value is not None
        assert measure.low is not None
        assert measure.high is not None
        assert measure.low <= measure.value * (1 + 1e-9)
        assert measure.value <= measure.high * (1 + 1e-9)


@given(PARTS, KEYS)
def test_on_its_own_device_nothing_changes(parts: StepParts, key: str) -> None:
    found = projected(profile(parts, key=key), key)
    assert found.speedup.value == pytest.approx(1.0)
    assert (found.speedup.low, found.speedup.high) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.badge is Badge.MEASURED


@given(PARTS, KEYS, st.floats(0.1, 100))
def test_at_the_break_even_price_a_result_costs_the_same(
    parts: StepParts, other: str, price: float
) -> None:
    now = projected(profile(parts), "H100-SXM").gpu_hours_per_result.value
    found = projected(profile(parts), other)
    even = break_even_usd(Decimal(str(price)), found.speedup).value
    then = found.gpu_hours_per_result.value
    assert now is not None
    assert then is not None
    assert even is not None
    assert then * even == pytest.approx(now * float(Decimal(str(price))))


def test_what_is_lost_between_steps_is_said_to_be_missing() -> None:
    found = projected(profile(goodput=None), "B200-SXM")
    assert found.gpu_hours_per_result.value is not None
    assert "of the steps alone" in found.gpu_hours_per_result.warnings[0]
    assert found.delivered_pflops.reason == "not on record"
    assert projected(profile(mfu=None), "B200-SXM").delivered_pflops.value is None


def test_what_moves_the_cost_comes_widest_first() -> None:
    swings = cost_swings(profile(), B200, 1000, Decimal(6), {})
    assert [s.width for s in swings] == sorted((s.width for s in swings), reverse=True)
    assert {s.parameter for s in swings} == {
        "compute_speedup",
        "comm_speedup",
        "wait_speedup",
        "usd_per_gpu_hour",
    }
    found = projected(profile(), "B200-SXM").gpu_hours_per_result
    price = next(s for s in swings if s.parameter == "usd_per_gpu_hour")
    assert found.value is not None
    assert price.low_output == pytest.approx(found.value * 5.4)


def test_energy_needs_a_power() -> None:
    assert energy_kwh(Measure(10.0, "GPU-hours"), 700).value == pytest.approx(7.0)
    assert energy_kwh(Measure(10.0, "GPU-hours"), None).value is None


@given(
    st.dictionaries(st.text(max_size=3), st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1)
)
def test_the_frontier_is_what_nothing_beats(points: dict[str, tuple[float, float]]) -> None:
    best = frontier(points)
    assert best
    for name, (cost, time) in points.items():
        beaten = any(c <= cost and t <= time and (c, t) != (cost, time) for c, t in points.values())
        assert (name in best) is not beaten
