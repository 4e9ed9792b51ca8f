"""Spend to the end of a period, error budgets and burn rates, by hand and by property."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.budget import Day, Period, error_budget, spend_outlook
from steptax.app.errors import UserError

NOVEMBER = Period.read("2026-11")


def days(*usd: float | None, goodput: float | None = 0.8) -> list[Day]:
    return [Day(NOVEMBER.first + timedelta(days=i), value, goodput) for i, value in enumerate(usd)]


def test_periods() -> None:
    assert (NOVEMBER.first, NOVEMBER.last, NOVEMBER.days) == (
        date(2026, 11, 1),
        date(2026, 11, 30),
        30,
    )
    quarter = Period.read("2026-Q4")
    assert (quarter.first, quarter.last, quarter.days) == (
        date(2026, 10, 1),
        date(2026, 12, 31),
        92,
    )
    assert Period.read("2024").days == 366
    for text in ("2026-13", "2026-Q5", "26-11", "2026-1", "", "1492", "2026-00"):
        with pytest.raises(UserError, match="there is no period"):
            Period.read(text)


def test_spend_goes_on_as_it_did() -> None:
    found = spend_outlook(NOVEMBER, days(100, 100, 100, 50), date(2026, 11, 4), 4000)
    assert found.spent_usd.value == 350
    # Three complete days of 100, and 26 days after today.
    assert found.at_end_usd.value == 350 + 26 * 100
    assert (found.at_end_usd.low, found.at_end_usd.high) == (2950, 2950)
    assert found.left_usd.value == 3650
    assert found.over_usd.value == 2950 - 4000
    assert found.used_ratio.value == pytest.approx(350 / 4000)
    assert found.elapsed_ratio == pytest.approx(4 / 30)
    assert found.lasts_days.value == pytest.approx(36.5)


def test_days_that_differ_widen_the_band() -> None:
    found = spend_outlook(NOVEMBER, days(90, 110, 100, 100, 0), date(2026, 11, 5), None)
    assert found.at_end_usd.value == pytest.approx(400 + 25 * 100)
    # t(3) = 3.182, sd = 8.165, sqrt(25 (1 + 25 / 4)) = 13.463
    assert found.at_end_usd.high == pytest.approx(2900 + 3.18245 * 8.16497 * 13.46291, rel=1e-5)
    assert found.left_usd.reason == "no budget is set"


def test_a_period_that_is_over_is_what_was_spent() -> None:
    found = spend_outlook(NOVEMBER, days(*[10.0] * 30), date(2026, 12, 9), 200)
    assert found.at_end_usd.value == found.spent_usd.value == 300
    assert (found.left_usd.value, found.over_usd.value) == (-100, 100)
    assert found.lasts_days.value == 0
    assert found.elapsed_ratio == 1


def test_what_is_not_known_is_said() -> None:
    found = spend_outlook(NOVEMBER, days(None, 100, 100), date(2026, 11, 3), 1000)
    assert "the cost of 1 day is not known" in found.spent_usd.warnings[0]
    assert spend_outlook(NOVEMBER, [], date(2026, 11, 3), 1000).spent_usd.value is None
    first = spend_outlook(NOVEMBER, days(100), date(2026, 11, 1), 1000)
    assert "no day of the period is complete" in str(first.at_end_usd.reason)
    one = spend_outlook(NOVEMBER, days(100, 5), date(2026, 11, 2), 1000)
    assert (one.at_end_usd.value, one.at_end_usd.low) == (105 + 28 * 100, None)


def test_an_error_budget_by_hand() -> None:
    told = [
        Day(date(2026, 11, 1), 100, 0.95),
        Day(date(2026, 11, 2), 100, 0.80),
        Day(date(2026, 11, 3), 50, 0.50),
    ]
    end = Measure(3000.0, "USD")
    found = error_budget(NOVEMBER, told, date(2026, 11, 3), 0.9, end)
    assert found.lost_usd.value == pytest.approx(5 + 20 + 25)
    assert found.goodput_ratio.value == pytest.approx(1 - 50 / 250)
    assert found.allowed_usd.value == pytest.approx(300)
    assert found.left_usd.value == pytest.approx(250)
    # Complete days only: both days lost 0.125 of 0.10.
    assert found.week_burn.value == pytest.approx(1.25)
    assert found.lasts_days.value == pytest.approx(250 / (50 / 3))


def test_without_an_objective_or_goodput() -> None:
    end = Measure(3000.0, "USD")
    none = error_budget(NOVEMBER, days(100, 100), date(2026, 11, 2), None, end)
    assert none.goodput_ratio.value == pytest.approx(0.8)
    assert none.left_usd.reason == "no objective is set"
    blind = error_budget(NOVEMBER, days(100, goodput=None), date(2026, 11, 1), 0.9, end)
    assert blind.goodput_ratio.value is None
    with pytest.raises(UserError, match="a share between 0 and 1"):
        error_budget(NOVEMBER, days(100), date(2026, 11, 1), 1.0, end)


def test_cost_of_which_nothing_is_known_may_have_been_lost() -> None:
    end = Measure(1000.0, "USD", 900.0, 1100.0)
    told = [Day(date(2026, 11, 1), 1, 1.0), Day(date(2026, 11, 2), 999, None)]
    blind = error_budget(NOVEMBER, told, date(2026, 11, 2), 0.9, end)
    assert blind.goodput_ratio.value is blind.left_usd.value is blind.week_burn.value is None
    assert blind.goodput_ratio.reason == (
        "between 0.1 % and 100.0 %: of 99.9 % of the cost it is not known what happened"
    )
    told = [Day(date(2026, 11, 1), 900, 1.0), Day(date(2026, 11, 2), 100, None)]
    partly = error_budget(NOVEMBER, told, date(2026, 11, 2), 0.8, end)
    ratio, left = partly.goodput_ratio, partly.left_usd
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.9, 0.9, 1.0))
    assert left.value == pytest.approx(200 - 100)
    assert (left.low, left.high) == pytest.approx((180 - 100, 220))
    bounded = [Day(date(2026, 11, 1), 100, 0.6, 0.6, 0.9)]
    ratio = error_budget(NOVEMBER, bounded, date(2026, 11, 2), None, end).goodput_ratio
    assert (ratio.value, ratio.high) == pytest.approx((0.6, 0.9))


SPENDS = st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=1, max_size=30)


@given(SPENDS, st.integers(0, 29), st.one_of(st.none(), st.floats(1, 1e7)))
def test_spend_never_shrinks(usd: list[float | None], today: int, budget: float | None) -> None:
    now = NOVEMBER.first + timedelta(days=today)
    found = spend_outlook(NOVEMBER, days(*usd), now, budget)
    if found.at_end_usd.value is not None:
        assert found.spent_usd.value is not None
        assert found.at_end_usd.value >= found.spent_usd.value * (1 - 1e-9)
        if found.at_end_usd.low is not None:
            assert found.at_end_usd.low >= found.spent_usd.value * (1 - 1e-9)
    if budget is not None and found.left_usd.value is not None:
        assert found.spent_usd.value is not None
        assert found.left_usd.value + found.spent_usd.value == pytest.approx(budget)


@given(
    st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0, 1)), min_size=1, max_size=30),
    st.floats(0.01, 0.99),
)
def test_a_burn_rate_of_one_uses_it_up(rows: list[tuple[float, float]], slo: float) -> None:
    told = [
        Day(NOVEMBER.first + timedelta(days=i), usd, share) for i, (usd, share) in enumerate(rows)
    ]
    paid = sum(usd for usd, _ in rows)
    found = error_budget(NOVEMBER, told, date(2026, 12, 1), slo, Measure(paid, "USD"))
    assert found.lost_usd.value is not None
    assert found.left_usd.value is not None
    assert found.goodput_ratio.value == pytest.approx(1 - found.lost_usd.value / paid, abs=1e-9)
    over = found.lost_usd.value / paid > (1 - slo) * (1 + 1e-9)
    assert (found.left_usd.value < 0) or not over


def test_the_rest_of_today_and_days_without_a_bill_are_still_to_come() -> None:
    """On the last day with 14 hours to go, and with a day whose bill has not come."""
    spent = [100.0] * 29 + [10.0]
    found = spend_outlook(NOVEMBER, days(*spent), date(2026, 11, 30), 3000, 14 / 24)
    assert found.at_end_usd.value == pytest.approx(2910 + 14 / 24 * 100)
    late = spend_outlook(NOVEMBER, days(*spent[:29], None), date(2026, 11, 30), 3000, 14 / 24)
    assert late.at_end_usd.value == pytest.approx(2900 + 100)
    over = spend_outlook(NOVEMBER, days(*spent), date(2026, 12, 1), 3000, 0.5)
    assert over.at_end_usd.value == over.spent_usd.value
