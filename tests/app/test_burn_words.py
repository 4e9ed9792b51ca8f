"""What is said of an error budget: a fact where its bounds agree, both bounds where they do not."""

from __future__ import annotations

import pytest

from steptax.app.compute.measure import Measure
from steptax.app.views.review.burn_words import burning_text, error_budget_text

UNKNOWN = Measure.missing("d", "not told")


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (
            Measure(-3000, "USD", -3000, 2000),
            "whether the error budget of $9,000 is overspent is not known: between $3,000 over it "
            "and $2,000 left",
        ),
        (
            Measure(-3000, "USD", -3000, -500),
            "the error budget of $9,000 is overspent by $3,000 (500–3,000)",
        ),
        (Measure(-3000, "USD"), "the error budget of $9,000 is overspent by $3,000"),
        (
            Measure(500, "USD", 500, 2000),
            "$500.00 (500.00–2,000.00) of the error budget of $9,000 are left",
        ),
        (Measure.missing("USD", "why"), "what is left of the error budget of $9,000 is unknown"),
    ],
)
def test_an_error_budget_is_overspent_where_both_bounds_say_so(left: Measure, said: str) -> None:
    assert error_budget_text(left, UNKNOWN, Measure(9000, "USD")) == said


def test_what_is_left_lasts_as_long_as_is_known() -> None:
    text = error_budget_text(Measure(500, "USD"), Measure(12, "d"))
    assert text == "$500.00 of the error budget are left and last 12.0 d at this rate"


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (Measure(1.4, "x", 0.8, 1.4), "may not last: over 7 days it burns at 1.40× (0.80–1.40)"),
        (Measure(1.4, "x", 1.1, 1.4), "will not last"),
        (Measure(1.4, "x"), "will not last"),
        (Measure(0.9, "x", 0.1, 0.9), ""),
        (Measure.missing("x", "why"), ""),
    ],
)
def test_a_burn_rate_above_one_may_be_below_it(rate: Measure, said: str) -> None:
    assert burning_text(rate).startswith(said)
    assert bool(burning_text(rate)) is bool(said)
