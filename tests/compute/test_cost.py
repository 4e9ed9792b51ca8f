"""Dollars are exact until the cent, and no price is made up."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.cost import (
    check_price,
    exact_usd,
    split_to_cents,
    to_cents,
    usd,
    usd_per_day,
    usd_per_hour,
)
from steptax.app.errors import UserError

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

PRICE = Decimal("2.00")


def test_a_thousand_gpus_for_ten_days() -> None:
    assert usd(1024 * 240 * 3600, PRICE) == Decimal("491520.00")
    assert usd(1024 * 240 * 3600, Decimal("3.5")) == Decimal("860160.00")
    assert usd_per_hour(4096, PRICE) == Decimal("8192.00")


def test_a_share_of_a_cluster_for_a_day() -> None:
    assert usd_per_day(0.25, 4096, PRICE) == Decimal("49152.00")


@pytest.mark.parametrize("price", ["0", "-1", "NaN", "Infinity"])
def test_a_price_that_is_none_is_refused(price: str) -> None:
    with pytest.raises(UserError, match="positive number of USD per GPU-hour"):
        check_price(Decimal(price))


@UNTIMED
@given(
    amounts=st.lists(st.fractions(min_value=-5, max_value=10**7, max_denominator=3600), max_size=12)
)
def test_cents_add_up_and_none_is_a_cent_off(amounts: list[Fraction]) -> None:
    split = split_to_cents(amounts)
    assert sum(split, Decimal(0)) == to_cents(sum(amounts, Fraction(0)))
    for cents, amount in zip(split, amounts, strict=True):
        assert abs(Fraction(cents) - amount) < Fraction(1, 100)
        assert cents == round(cents, 2)


def test_the_cent_left_over_goes_to_the_largest_remainder() -> None:
    third = Fraction(1, 3)
    assert split_to_cents([third, third, third]) == [
        Decimal("0.34"),
        Decimal("0.33"),
        Decimal("0.33"),
    ]


def test_money_is_exact_where_a_float_is_not() -> None:
    assert exact_usd(Fraction(1, 3), Decimal("2.40")) == Fraction(24, 108000)
