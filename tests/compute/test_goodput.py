"""Scheduling, runtime and program goodput multiply to the useful share, without rounding."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bill.buckets import BUCKETS, OF_STATE, OPEN, Group
from steptax.app.compute.bill.goodput import Denominator, Goodput
from steptax.app.compute.measure import Level

PARTS = st.fractions(0, 10**6, max_denominator=997)


def goodput(
    total: Fraction, scheduled: Fraction, in_steps: Fraction | None, useful: Fraction | None
) -> Goodput:
    return Goodput(
        Denominator.PAID, total, scheduled, in_steps, useful, Level.PHASES, "no steps", "no FLOPs"
    )


@given(useful=PARTS, steps=PARTS, runtime=PARTS, scheduling=PARTS)
def test_the_identity_is_exact_for_any_parts(
    useful: Fraction, steps: Fraction, runtime: Fraction, scheduling: Fraction
) -> None:
    in_steps = useful + steps
    scheduled = in_steps + runtime
    total = scheduled + scheduling
    found = goodput(total, scheduled, in_steps, useful)
    assert [bar.gpu_us for bar in found.bars] == [scheduling, runtime, steps, useful]
    sg, rg, pg = found.scheduling, found.runtime, found.program
    if sg is None or rg is None or pg is None:
        assert in_steps == 0
        return
    assert found.share == sg * rg * pg
    assert sum(bar.share_ratio for bar in found.bars) == 1
    assert total * (1 - sg) == scheduling
    assert total * sg * (1 - rg) == runtime
    assert total * sg * rg * (1 - pg) == steps


def test_a_published_run_from_its_parts() -> None:
    """Llama 3 405B (2024): 41 % in steps, 34.6 % of peak over all 30.84 M GPU-hours."""
    hours = Fraction(30_840_000)
    useful_hours = Fraction("6") * Fraction("405.85e9") * Fraction("15.6e12")
    useful_hours /= Fraction("989.5e12") * 3600
    found = goodput(hours, hours, useful_hours / Fraction("0.41"), useful_hours)
    measures = found.measures()
    assert measures["effective_mfu_ratio"].value == pytest.approx(0.346, abs=5e-4)
    assert measures["mfu_ratio"].value == pytest.approx(0.41)
    assert measures["ettr_ratio"].value == pytest.approx(0.844, abs=1e-3)


def test_what_is_not_known_has_its_reason() -> None:
    without = goodput(Fraction(10), Fraction(8), Fraction(6), None)
    measures = without.measures()
    assert measures["ettr_ratio"].value == 0.75
    assert measures["goodput_ratio"].value == 0.6
    assert measures["mfu_ratio"].value is measures["effective_mfu_ratio"].value is None
    assert measures["mfu_ratio"].reason
    assert without.measures()["mfu_ratio"].level is Level.PHASES
    assert [bar.title for bar in without.bars] == [
        "not scheduled",
        "not in steps that count",
        "not known further",
    ]
    assert sum(bar.gpu_us for bar in without.bars) == 10
    nothing = goodput(Fraction(0), Fraction(0), None, None)
    assert nothing.scheduling is nothing.runtime is nothing.share is None
    assert nothing.measures()["ettr_ratio"].reason == "no steps"
    assert nothing.measures()["gpu_hours"].value == 0.0


def test_every_bucket_has_its_place() -> None:
    by_group = {
        group: [b.number for b in BUCKETS.values() if b.group is group and not b.is_coarse]
        for group in Group
    }
    assert by_group == {
        Group.SCHEDULING: ["0", "1"],
        Group.RUNTIME: ["2", "3", "4", "5", "6", "rest"],
        Group.PROGRAM: ["7", "8", "9a", "9b", "10", "11", "12"],
        Group.USEFUL: ["13"],
    }
    assert set(OF_STATE.values()) | set(OPEN) <= set(BUCKETS)
    assert not BUCKETS["useful"].is_loss
    assert not BUCKETS["compute"].is_loss
    assert not BUCKETS["step_unsplit"].is_loss
    assert BUCKETS["comm_and_gaps"].is_loss
    assert BUCKETS["pending_and_startup"].is_loss
