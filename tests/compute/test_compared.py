"""What a period is compared with, and what that is called."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.spend.compared import Days, delta, newest, reference_of
from steptax.app.errors import UserError

days = st.builds(
    lambda first, count: Days(first, first + timedelta(days=count)),
    st.dates(date(1990, 1, 1), date(2100, 1, 1)),
    st.integers(0, 800),
)


@given(days)
def test_the_days_before_touch_and_are_as_many(current: Days) -> None:
    found = reference_of(current, "previous")
    assert found is not None
    assert found[0].last == current.first - timedelta(days=1)
    assert current.is_month or found[0].count == current.count


@given(days)
def test_a_year_before_is_the_same_days(current: Days) -> None:
    found = reference_of(current, "year")
    assert found is not None
    assert found[0].first.year == current.first.year - 1
    assert abs(found[0].count - current.count) <= 1


def test_names() -> None:
    def name(first: str, last: str, how: str = "previous") -> str:
        found = reference_of(Days(date.fromisoformat(first), date.fromisoformat(last)), how)
        assert found is not None
        return found[1]

    assert name("2026-11-02", "2026-11-29") == "previous 4 weeks"
    assert name("2026-11-02", "2026-11-08") == "previous 1 week"
    assert name("2026-11-02", "2026-11-04") == "previous 3 days"
    assert name("2026-11-01", "2026-11-30") == "previous month, 2026-10"
    assert name("2026-11-01", "2026-11-30", "year") == "same days a year before"
    own = name("2026-11-01", "2026-11-30", "2026-09-01..2026-09-05")
    assert own == "2026-09-01 to 2026-09-05"
    assert newest(date(2026, 11, 29)) == Days(date(2026, 11, 2), date(2026, 11, 29))
    assert reference_of(newest(date(2026, 11, 29)), "none") is None


@pytest.mark.parametrize("how", ["", "last", "2026-09-01..", "2026-09-31..2026-10-02", "a..b"])
def test_what_is_nothing_is_refused(how: str) -> None:
    with pytest.raises(UserError) as caught:
        reference_of(newest(date(2026, 11, 29)), how)
    assert caught.value.where == "--compare-to"
    with pytest.raises(UserError):
        reference_of(newest(date(2026, 11, 29)), "2026-10-02..2026-10-01")


def test_a_change_is_relative_or_in_points_and_none_from_the_unknown() -> None:
    usd = delta(Measure(120, "USD"), Measure(100, "USD"), "r")
    assert usd.change.value == pytest.approx(0.2)
    assert not usd.is_points
    share = delta(Ratio(0.5), Ratio(0.4), "r")
    assert share.change.value == pytest.approx(0.1)
    assert share.is_points
    for now, before in (
        (Measure.missing("USD", "why"), Measure(1, "USD")),
        (Measure(1, "USD"), Measure.missing("USD", "why")),
        (Measure(1, "USD"), Measure(0, "USD")),
    ):
        assert delta(now, before, "r").change.value is None


def test_a_change_between_bounds_may_be_a_fall_or_a_rise() -> None:
    share = delta(Ratio(0.5, low=0.5, high=0.7), Ratio(0.4, low=0.4, high=0.6), "before")
    assert share.change.value == pytest.approx(0.1)
    assert share.change.bounds == pytest.approx((-0.1, 0.3))
    assert share.change.sign_is_open
    assert share.against == "vs before: 40.0 % (40.0–60.0)"
    surely = delta(Ratio(0.8, low=0.8, high=0.9), Ratio(0.4, low=0.4, high=0.6), "before")
    assert surely.change.bounds == pytest.approx((0.2, 0.5))
    assert not surely.change.sign_is_open
    usd = delta(Measure(90, "USD", 80, 120), Measure(100, "USD"), "before")
    assert usd.change.bounds == pytest.approx((-0.2, 0.2))


@pytest.mark.parametrize(
    ("record_days", "compared"), [(5, 28), (14, 7), (27, 7), (28, 14), (42, 21), (56, 28), (99, 28)]
)
def test_a_short_record_is_compared_with_as_much_of_it(record_days: int, compared: int) -> None:
    assert newest(date(2026, 11, 29), record_days).count == compared
