"""Cents of a table add up along rows, along columns and in all."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bill import cents
from steptax.app.compute.bill.cents import table_to_cents
from steptax.app.compute.bill.cost import split_to_cents

Cells = list[list[Fraction | None]]

cell = st.none() | st.fractions(-50, 10**6, max_denominator=997)


@st.composite
def tables(draw: st.DrawFn) -> Cells:
    width = draw(st.integers(1, 6))
    row = st.lists(cell, min_size=width, max_size=width)
    return draw(st.lists(row, min_size=1, max_size=8))


def known(values: Iterable[Fraction | Decimal | None]) -> Fraction:
    return sum((Fraction(v) for v in values if v is not None), Fraction(0))


def near(exact: Fraction, rounded: Fraction) -> bool:
    """Whether ``rounded`` is the cent below or above, or the amount itself."""
    return abs(exact - rounded) < Fraction(1, 100) and rounded * 100 == round(rounded * 100)


@given(tables())
def test_cells_rows_columns_and_total_are_within_a_cent(table: Cells) -> None:
    out = table_to_cents(table)
    for exact, rounded in zip(table, out, strict=True):
        assert [v is None for v in exact] == [v is None for v in rounded]
        assert near(known(exact), known(rounded))
        assert all(near(known([e]), known([r])) for e, r in zip(exact, rounded, strict=True))
    for exact_column, column in zip(zip(*table, strict=True), zip(*out, strict=True), strict=True):
        assert near(known(exact_column), known(column))
    whole = known(v for row in table for v in row)
    assert known(v for row in out for v in row) == Fraction(round(whole * 100), 100)


@given(tables())
def test_column_sums_that_were_rounded_before_leave_the_total(table: Cells) -> None:
    columns = split_to_cents([known(column) for column in zip(*table, strict=True)])
    out = table_to_cents(table, columns)
    assert known(v for row in out for v in row) == known(columns)


def test_rounded_column_sums_are_kept() -> None:
    half = Fraction(1, 200)
    table: Cells = [[half, half], [half, half], [half, half]]
    # 1.5 cents in each column, 3 in all: alone, either column may be the larger one.
    for columns in ((Decimal("0.01"), Decimal("0.02")), (Decimal("0.02"), Decimal("0.01"))):
        out = table_to_cents(table, columns)
        assert [known(column) for column in zip(*out, strict=True)] == [*map(Fraction, columns)]
        assert [known(row) for row in out] == [Fraction(1, 100)] * 3


def test_a_table_too_large_for_the_network_keeps_columns_and_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cents, "MAX_CELLS", 3)
    table: Cells = [[Fraction(k, 700), Fraction(5 * k, 900)] for k in range(1, 40)]
    out = table_to_cents(table)
    for exact, column in zip(zip(*table, strict=True), zip(*out, strict=True), strict=True):
        assert near(known(exact), known(column))
    whole = known(v for row in table for v in row)
    assert known(v for row in out for v in row) == Fraction(round(whole * 100), 100)


def test_nothing_known_stays_unknown() -> None:
    assert table_to_cents([[None, None]]) == [[None, None]]
    assert table_to_cents([]) == []


@given(tables(), st.lists(st.tuples(st.integers(0, 5), cell), max_size=30))
def test_rows_of_one_amount_do_not_need_the_network(
    table: Cells, alone: list[tuple[int, Fraction | None]]
) -> None:
    """The same guarantees where most rows have one amount, as with jobs of a scheduler's log."""
    width = len(table[0])
    for place, amount in alone:
        row: list[Fraction | None] = [None] * width
        row[place % width] = amount
        table.append(row)
    columns = split_to_cents([known(column) for column in zip(*table, strict=True)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cents, "_FEW_CELLS", 0)
        out = table_to_cents(table, columns)
    assert known(v for row in out for v in row) == known(columns)
    for exact, rounded in zip(table, out, strict=True):
        assert near(known(exact), known(rounded))
        assert all(near(known([e]), known([r])) for e, r in zip(exact, rounded, strict=True))
