"""Numbers as sentences give them."""

from __future__ import annotations

import pytest

from steptax.app.compute.spoken import spoken_list, spoken_ratio, spoken_us


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0.00 µs"),
        (12.3, "12.3 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (17_400, "17.4 ms"),
        (199_964, "200 ms"),
        (26_066_449, "26.1 s"),
        (-2_500_000, "-2.50 s"),
    ],
)
def test_durations_have_three_digits(us: float, text: str) -> None:
    assert spoken_us(us) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.034, "3.4 %"), (0.0994, "9.9 %"), (0.0999, "10 %"), (0.82, "82 %"), (1.0, "100 %")],
)
def test_shares_are_percentages(ratio: float, text: str) -> None:
    assert spoken_ratio(ratio) == text


def test_long_lists_are_cut_and_counted() -> None:
    assert spoken_list([5]) == "5"
    assert spoken_list([0, 1, 2]) == "0, 1 and 2"
    assert spoken_list(range(10), limit=3) == "0, 1, 2 and 7 more"
