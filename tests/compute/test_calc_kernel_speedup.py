"""Kernel speed-up: the worked example, its band, its ceiling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.calculators.kernel_speedup import kernel_speedup
from steptax.app.compute.mfu.kernel_model import KernelModel, StepParts, speedup_curve
from steptax.app.errors import UserError

MS = st.floats(0, 1e4)
POSITIVE_MS = st.floats(1e-2, 1e4)
SPEEDUP = st.floats(1, 1e4)
SHARE = st.floats(0, 1)


def test_b5_1_the_worked_example() -> None:
    result = kernel_speedup(
        compute_ms=100,
        comm_ms=30,
        wait_ms=15,
        speedup=232,
        hidden_comm_ms=0,
        wait_follows_ratio=0,
    )
    assert result.step_before_ms.value == 145
    assert round(result.step_after_ms.value or 0, 2) == 45.43
    assert round(result.step_speedup.value or 0, 2) == 3.19
    assert round(result.compute_share_before_ratio.value or 0, 3) == 0.690
    assert round(result.compute_share_after_ratio.value or 0, 4) == 0.0095
    assert round(result.wait_share_before_ratio.value or 0, 3) == 0.103
    assert round(result.wait_share_after_ratio.value or 0, 3) == 0.330
    assert round(result.ceiling.value or 0, 2) == 3.22
    assert result.step_speedup.low == result.step_speedup.high == result.step_speedup.value
    assert result.next_limit == "communication"
    assert "3.19×" in result.sentence
    assert "0.9 %" in result.sentence
    assert "33.0 %" in result.sentence


def test_b5_1_wait_that_follows_compute() -> None:
    result = kernel_speedup(
        compute_ms=100,
        comm_ms=30,
        wait_ms=15,
        speedup=232,
        hidden_comm_ms=0,
        wait_follows_ratio=1,
    )
    assert result.step_speedup.value == pytest.approx(4.75, abs=0.005)
    assert round(result.step_after_ms.value or 0, 1) == 30.5


@pytest.mark.parametrize(("hidden_ms", "printed"), [(20, 2.22), (40, 1.70), (80, 1.16)])
def test_b5_1_hidden_communication_comes_into_the_open(hidden_ms: float, printed: float) -> None:
    result = kernel_speedup(
        compute_ms=100,
        comm_ms=30,
        wait_ms=15,
        speedup=232,
        hidden_comm_ms=hidden_ms,
        wait_follows_ratio=0,
    )
    assert round(result.step_speedup.low or 0, 2) == printed


def test_b5_1_the_band_is_the_headline_where_nothing_is_known() -> None:
    result = kernel_speedup(compute_ms=100, comm_ms=30, wait_ms=15, speedup=232)
    assert result.step_speedup.value == pytest.approx(3.19, abs=0.005)
    assert result.step_speedup.low == pytest.approx(1.0)
    assert result.step_speedup.high == pytest.approx(4.75, abs=0.005)
    assert "1.00× to 4.75×" in result.sentence
    assert any("hidden communication" in text for text in result.warnings)
    assert result.sensitivity[0].parameter == "hidden_comm_ms"
    assert result.sensitivity[1].parameter == "wait_follows_ratio"


def test_contention_can_make_the_job_slower() -> None:
    result = kernel_speedup(
        compute_ms=100,
        comm_ms=30,
        wait_ms=15,
        speedup=232,
        hidden_comm_ms=40,
        wait_follows_ratio=0,
        comm_contention=2,
    )
    assert result.step_speedup.high is not None
    assert result.step_speedup.high < 1
    assert "slower" in result.sentence
    assert all("contention" not in text for text in result.warnings)


def test_wider_spread_of_the_new_kernel_lengthens_the_wait() -> None:
    even = kernel_speedup(
        compute_ms=100, comm_ms=0, wait_ms=15, speedup=2, hidden_comm_ms=0, wait_follows_ratio=1
    )
    ragged = kernel_speedup(
        compute_ms=100,
        comm_ms=0,
        wait_ms=15,
        speedup=2,
        hidden_comm_ms=0,
        wait_follows_ratio=1,
        spread_factor=3,
    )
    assert even.step_after_ms.value == pytest.approx(57.5)
    assert ragged.step_after_ms.value == pytest.approx(72.5)


def test_nothing_but_the_kernel_has_no_ceiling() -> None:
    result = kernel_speedup(
        compute_ms=10, comm_ms=0, wait_ms=0, speedup=2, hidden_comm_ms=0, wait_follows_ratio=0
    )
    assert result.ceiling.value is None
    assert result.ceiling.reason


@given(POSITIVE_MS, MS, MS, MS, SPEEDUP, SHARE, st.none() | SHARE, st.none() | SHARE)
def test_speedup_stays_under_its_ceiling_and_shares_add_up(
    compute: float,
    comm: float,
    wait: float,
    other: float,
    speedup: float,
    touched: float,
    hidden: float | None,
    follows: float | None,
) -> None:
    result = kernel_speedup.function(
        compute_ms=compute,
        comm_ms=comm,
        wait_ms=wait,
        other_ms=other,
        speedup=speedup,
        accelerated_ratio=touched,
        hidden_comm_ms=None if hidden is None else hidden * compute,
        wait_follows_ratio=follows,
    )
    step, top = result.step_speedup, result.ceiling
    assert step.value is not None
    assert step.low is not None
    assert step.high is not None
    assert step.low <= step.value <= step.high
    assert step.low >= 1 - 1e-9
    assert step.high <= speedup * (1 + 1e-9)
    if top.value is not None:
        assert top.high is not None
        assert step.value <= top.value * (1 + 1e-9)
        assert step.high <= top.high * (1 + 1e-9)
    for when in ("before", "after"):
        shares = [m.value for n, m in result.measures().items() if n.endswith(f"{when}_ratio")]
        assert len(shares) == 4
        assert sum(s for s in shares if s is not None) == pytest.approx(1)


@given(POSITIVE_MS, MS, MS, SPEEDUP, st.floats(1, 10), st.none() | SHARE)
def test_a_faster_kernel_never_slows_the_step(
    compute: float, comm: float, wait: float, speedup: float, more: float, hidden: float | None
) -> None:
    model = KernelModel(
        StepParts(compute, comm, wait, 0.0),
        hidden_comm_ms=None if hidden is None else hidden * compute,
    )
    first, second = speedup_curve(model, (speedup, speedup * more))
    for slower, faster in zip(first[1:], second[1:], strict=True):
        assert faster >= slower * (1 - 1e-9)


@given(POSITIVE_MS, MS, MS, SHARE, st.none() | SHARE, st.none() | SHARE)
def test_no_speedup_changes_nothing(
    compute: float, comm: float, wait: float, touched: float, hidden: float | None, f: float | None
) -> None:
    model = KernelModel(
        StepParts(compute, comm, wait, 1.0),
        touched,
        None if hidden is None else hidden * compute,
        f,
    )
    assert model.step_speedup(1.0) == pytest.approx((1, 1, 1))


@given(POSITIVE_MS, MS, MS, SPEEDUP, SHARE, SHARE)
def test_more_hidden_communication_never_helps(
    compute: float, comm: float, wait: float, speedup: float, a: float, b: float
) -> None:
    less, more = sorted((a * compute, b * compute))
    step = StepParts(compute, comm, wait, 0.0)
    assert KernelModel(step, hidden_comm_ms=more).step_speedup(speedup)[0] <= KernelModel(
        step, hidden_comm_ms=less
    ).step_speedup(speedup)[0] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("extra", "where"),
    [
        ({"hidden_comm_ms": 101}, "hidden_comm_ms"),
        ({"hidden_comm_ms": 60, "overlap_window_ms": 50}, "hidden_comm_ms"),
        ({"hidden_comm_ms": 60, "overlap_limit_ratio": 0.5}, "hidden_comm_ms"),
        ({"overlap_window_ms": 101}, "overlap_window_ms"),
    ],
)
def test_more_hidden_than_there_is_compute_is_refused(extra: dict[str, float], where: str) -> None:
    with pytest.raises(UserError) as caught:
        kernel_speedup.run({"compute_ms": 100, "comm_ms": 30, "wait_ms": 15, "speedup": 2, **extra})
    assert caught.value.where == where
