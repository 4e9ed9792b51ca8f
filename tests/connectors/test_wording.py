"""Counts as people say them."""

from __future__ import annotations

import pytest

from steptax.connectors.wording import said


@pytest.mark.parametrize(
    ("count", "words", "want"),
    [
        (0, ("line",), "0 lines"),
        (1, ("line",), "1 line"),
        (1024, ("line",), "1,024 lines"),
        (1, ("price is", "prices are"), "1 price is"),
        (2, ("price is", "prices are"), "2 prices are"),
    ],
)
def test_one_is_not_many(count: int, words: tuple[str, ...], want: str) -> None:
    assert said(count, *words) == want
