"""Roll-ups as a later release of the program defines them."""

from __future__ import annotations

import dataclasses

import pytest

from steptax.app.lake import kept, rollups
from steptax.app.queries import engine
from steptax.app.schema.rollup import Rollup, Total
from steptax.app.schema.rollups import LEVELS, ROLLUPS

#: The column that it has more.
MORE = Total("more_n", "count(*)", "sum(more_n)", "a column of a later release", "rows")


def raise_version(monkeypatch: pytest.MonkeyPatch, *old: Rollup) -> None:
    """Give these roll-ups the next version, and ``MORE``."""
    new = {
        one.name: dataclasses.replace(one, version=one.version + 1, totals=(*one.totals, MORE))
        for one in old
    }
    known = tuple(new.get(one.name, one) for one in ROLLUPS)
    for module in (rollups, kept, engine):
        monkeypatch.setattr(module, "ROLLUPS", known)
    for one in new.values():
        for level in one.levels:
            monkeypatch.setitem(LEVELS, level, one)
