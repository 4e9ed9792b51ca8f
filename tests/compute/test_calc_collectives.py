"""Calculators of collectives, utilisation and learning: known figures, in a person's units."""

from __future__ import annotations

import pytest

from steptax.app.compute.calculators.busbw import busbw
from steptax.app.compute.calculators.learning_velocity import learning_velocity
from steptax.app.compute.calculators.mfu import mfu
from steptax.app.compute.calculators.stragglar import stragglar
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError


def test_c12_busbw_of_an_algbw() -> None:
    result = busbw(collective="all_reduce", ranks=8, algbw_gb_per_s=275)
    assert result.busbw_gb_per_s.value == pytest.approx(481.25)
    assert result.duration_ms.value is None


def test_busbw_does_not_swing_the_ranks_that_were_counted() -> None:
    result = busbw(collective="all_reduce", ranks=8, algbw_gb_per_s=275)
    assert [swing.parameter for swing in result.sensitivity] == ["algbw_gb_per_s"]
    # A count that was measured with a band keeps it.
    measured = Measure(8, "", low=7, high=9)
    banded = busbw.run({"collective": "all_reduce", "ranks": measured, "algbw_gb_per_s": 275})
    assert {swing.parameter for swing in banded.sensitivity} == {"algbw_gb_per_s", "ranks"}


def test_c12_time_of_a_busbw() -> None:
    result = busbw.run(
        {"collective": "all_reduce", "ranks": 8, "busbw_gb_per_s": 473.1, "size_bytes": "8 GiB"}
    )
    assert round(result.algbw_gb_per_s.value, 2) == 270.34
    assert round(result.duration_ms.value, 2) == 31.77
    back = busbw(
        collective="all_reduce",
        ranks=8,
        size_bytes=8 * 2**30,
        duration_ms=result.duration_ms.value,
    )
    assert back.busbw_gb_per_s.value == pytest.approx(473.1)


def test_busbw_with_reduction_in_the_switch_is_no_share_of_the_link() -> None:
    ring = busbw(collective="all_reduce", ranks=8, busbw_gb_per_s=370, wire_gb_per_s=450)
    assert ring.wire_ratio.value == pytest.approx(370 / 450)
    switch = busbw(
        collective="all_reduce",
        ranks=8,
        busbw_gb_per_s=480,
        wire_gb_per_s=450,
        reduction="switch",
    )
    assert switch.wire_ratio.value is None


@pytest.mark.parametrize(
    ("extra", "where"),
    [
        ({}, "duration_ms"),
        ({"duration_ms": 1, "algbw_gb_per_s": 2}, "duration_ms"),
        ({"duration_ms": 1}, "size_bytes"),
        ({"algbw_gb_per_s": 1, "collective": "all_reduce_perf"}, "collective"),
    ],
)
def test_busbw_refuses(extra: dict[str, object], where: str) -> None:
    with pytest.raises(UserError) as caught:
        busbw.run({"collective": "all_reduce", "ranks": 8, **extra})
    assert caught.value.where == where


def test_b5_4_eight_ranks() -> None:
    call = {"ranks": 8, "size_bytes": "1 GiB", "link_gb_per_s": "450 GiB/s", "alpha_us": 3}
    result = stragglar.run(call)
    assert round(result.ring_ms.value, 3) == 3.931
    assert round(result.stragglar_ms.value, 3) == 2.884
    assert round(result.needed_delay_ms.value, 3) == 1.923
    assert result.all_reduce_speedup.value == pytest.approx(1.3629, abs=5e-5)
    assert any("only" in text for text in result.warnings)
    early = stragglar.run({**call, "delay_ms": 0})
    assert early.all_reduce_speedup.value < 1
    assert "loses" in early.sentence
    assert stragglar.run({**call, "delay_ms": 50}).main.value == result.main.value


def test_c05_utilisation_by_two_conventions() -> None:
    """PaLM 540B: 238.3 thousand tokens a second on 6,144 devices of 275 TFLOP/s."""
    call = {
        "tokens_per_s": 238_300,
        "devices": 6144,
        "peak_tflops": 275,
        "peak_basis": "dense",
        "dtype": "bf16",
        "params": 540.35e9,
        "layers": 118,
        "hidden": 18_432,
        "heads": 48,
        "seq_len_tokens": 2048,
    }
    assert round(100 * mfu.run(call).main.value, 1) == 45.7
    # Its head size is 256, not 18,432 / 48: the attention part is smaller by 12,288 / 18,432.
    full = mfu.run({**call, "hidden": 48 * 256, "convention": "palm"})
    assert round(100 * full.main.value, 1) == 46.2
    assert "46.2 % by palm" in full.sentence


def test_utilisation_without_a_peak_has_a_reason() -> None:
    result = mfu(tokens_per_s=1000, devices=8, device="abacus 3000", dtype="bf16", params=1e9)
    assert result.mfu_ratio.value is None
    assert result.sentence.startswith("No MFU")
    known = mfu(
        tokens_per_s=1000, devices=8, device="NVIDIA H100 80GB HBM3", dtype="bf16", params=1e9
    )
    assert known.mfu_ratio.value == pytest.approx(6e12 / (8 * 989.5e12), rel=1e-3)


@pytest.mark.parametrize(("extra", "where"), [({}, "device"), ({"peak_tflops": 300}, "peak_basis")])
def test_utilisation_needs_a_device_or_a_peak(extra: dict[str, float], where: str) -> None:
    with pytest.raises(UserError) as caught:
        mfu.run({"tokens_per_s": 1, "devices": 1, "params": 1e9, **extra})
    assert caught.value.where == where


def test_loss_per_dollar_counts_what_was_run_again() -> None:
    loss = [4 - 0.05 * i for i in range(40)]
    result = learning_velocity(loss=loss, usd=[2.0], target_loss=3.0)
    assert result.loss_per_usd.value == pytest.approx(0.025)
    assert result.usd_to_target.value == pytest.approx(42)
    assert result.spent_usd.value == pytest.approx(80)
    again = learning_velocity(
        loss=loss[:30] + loss[20:], usd=[2.0], steps=[*range(30), *range(20, 40)], target_loss=2.5
    )
    assert again.lost_usd.value == pytest.approx(20)
    assert again.usd_to_target.value == pytest.approx(42 + 20 + 20)
    assert learning_velocity(loss=loss, usd=[2.0]).usd_to_target.value is None
    with pytest.raises(UserError) as caught:
        learning_velocity(loss=loss, usd=[1.0, 2.0])
    assert caught.value.where == "usd"
