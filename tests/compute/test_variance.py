"""Price x volume x efficiency: the effects add up to the change, to the cent."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.spend.variance import Factors, price_volume_efficiency

amounts = st.fractions(0, 10**7, max_denominator=1000)
hours = st.fractions(0, 10**6, max_denominator=3600)


@st.composite
def factors(draw: st.DrawFn) -> Factors:
    held = draw(hours)
    share = draw(st.none() | st.fractions(0, 1, max_denominator=100))
    return Factors(draw(amounts), held, None if share is None else held * share)


parts = st.dictionaries(st.sampled_from(["a", "b", "c"]), factors())


def cents(value: Fraction) -> Decimal:
    return Decimal(round(value * 100)) / 100


@given(parts, parts, amounts, amounts)
def test_the_effects_add_up_to_the_change_to_the_cent(
    before: dict[str, Factors], after: dict[str, Factors], idle0: Fraction, idle1: Fraction
) -> None:
    made = price_volume_efficiency(before, after, (idle0, idle1))
    effects = made.price_usd + made.volume_usd + made.efficiency_usd + made.unallocated_usd
    assert effects == made.change_usd == made.after_usd - made.before_usd
    assert made.before_usd == sum((cents(f.usd) for f in before.values()), cents(idle0))
    assert made.after_usd == sum((cents(f.usd) for f in after.values()), cents(idle1))
    assert 0 <= made.efficiency_known_ratio <= 1


@given(parts, parts)
def test_back_is_the_opposite_of_there(
    before: dict[str, Factors], after: dict[str, Factors]
) -> None:
    there, back = (price_volume_efficiency(*pair) for pair in ((before, after), (after, before)))
    for name in ("price_usd", "volume_usd", "efficiency_usd"):
        # Largest remainder may give the last cent to another effect.
        assert abs(getattr(there, name) + getattr(back, name)) <= Decimal("0.03")


def one(usd: int, held: int, stepped: int | None) -> dict[str, Factors]:
    known = None if stepped is None else Fraction(stepped)
    return {"a": Factors(Fraction(usd), Fraction(held), known)}


@pytest.mark.parametrize(
    ("after", "effect", "amount"),
    [
        (one(300, 100, 80), "price_usd", 100),  # $2 to $3 an hour
        (one(400, 200, 160), "volume_usd", 200),  # twice as much of the same
        (one(400, 200, 80), "efficiency_usd", 200),  # twice as long for the same
    ],
)
def test_one_factor_alone_has_all_of_the_change(
    after: dict[str, Factors], effect: str, amount: int
) -> None:
    made = price_volume_efficiency(one(200, 100, 80), after)
    found = {n: getattr(made, n) for n in ("price_usd", "volume_usd", "efficiency_usd")}
    assert found.pop(effect) == amount
    assert set(found.values()) == {0}


def test_a_case_worked_out_by_hand() -> None:
    """2 x 1.25 x 80 = 200 to 3 x 2 x 60 = 360, each effect its mean over six orders."""
    made = price_volume_efficiency(one(200, 100, 80), one(360, 120, 60))
    assert made.change_usd == 160
    assert made.price_usd == Decimal("112.5")  # 1 x ((100 + 120) / 3 + (75 + 160) / 6)
    assert made.volume_usd == Decimal("-82.5")  # -20 x ((2.5 + 6) / 3 + (4 + 3.75) / 6)
    assert made.efficiency_usd == 130  # 0.75 x ((160 + 180) / 3 + (120 + 240) / 6)


def test_without_steps_there_is_no_efficiency() -> None:
    made = price_volume_efficiency(one(200, 100, None), one(450, 150, None))
    assert made.efficiency_usd == 0
    assert made.efficiency_known_ratio == 0
    assert made.price_usd == made.volume_usd == 125


def test_what_is_new_or_gone_is_volume() -> None:
    made = price_volume_efficiency(one(200, 100, 80), {})
    assert made.volume_usd == made.change_usd == -200
    assert made.price_usd == 0
    made = price_volume_efficiency({}, one(200, 100, 80), (Fraction(5), Fraction(7)))
    assert made.volume_usd == 200
    assert made.unallocated_usd == 2
