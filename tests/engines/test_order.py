"""Where a null comes in an order is said in the text: engines that are not told differ."""

from __future__ import annotations

import re

import pytest

from steptax.app.queries import QUERIES, Query
from steptax.app.schema import Table, table
from steptax.app.schema.rollup import Total
from steptax.app.schema.rollups import LEVELS

#: An order to its end: that of a window, of a group, or of the answer.
_ORDER = re.compile(r"\bORDER BY\b(.*?)(?:\bROWS\b|\bLIMIT\b|$)", re.DOTALL)


def may_be_null(spec: Query) -> set[str]:
    """Columns of what a query reads that can be null."""
    found = {c.name for name in spec.tables for c in table(name).columns if c.nullable}
    for level in {*spec.levels, *spec.parts}:
        rollup = LEVELS[level]
        found |= {t.name for t in rollup.totals if _is_nullable(t, table(rollup.table))}
    return found


def _is_nullable(total: Total, spec: Table) -> bool:
    """A count never is, nor an extreme of what every row has."""
    if total.made.startswith("count("):
        return False
    extreme = re.fullmatch(r"(?:min|max|sum)\((\w+)\)", total.made)
    return extreme is None or spec.column(extreme[1]).nullable


def orders(text: str) -> list[str]:
    """Each term of each order of a text."""
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    found = []
    for order in _ORDER.findall(body):
        depth, term = 0, ""
        for sign in order:
            depth += (sign == "(") - (sign == ")")
            if depth < 0:
                break
            if sign == "," and depth == 0:
                found.append(term.strip())
                term = ""
            else:
                term += sign
        found.append(term.strip())
    return found


def unsaid(spec: Query) -> list[str]:
    """Terms that name a column which may be null, and not where nulls come."""
    nullable = may_be_null(spec)
    return [
        term
        for term in orders(spec.text)
        if "NULLS" not in term and {*re.findall(r'[a-z_]\w*(?=["\s,)]|$)', term)} & nullable
    ]


@pytest.mark.parametrize("name", QUERIES)
def test_an_order_says_where_nulls_come(name: str) -> None:
    assert unsaid(QUERIES[name]) == []


def test_what_is_unsaid_is_found() -> None:
    text = "SELECT a, max(b) FILTER (WHERE c) OVER (PARTITION BY a ORDER BY {0}) FROM t ORDER BY a"
    for order, found in (
        ("d.xid_max DESC", ["d.xid_max DESC"]),
        ("abs(xid_max), host", ["abs(xid_max)"]),
        ("xid_max NULLS LAST, last_us", []),
    ):
        asked = Query("q", text.format(order), (), (), ("device_days",))
        assert unsaid(asked) == found
    assert "start_us" in may_be_null(QUERIES["step_rows"])
    assert not may_be_null(QUERIES["step_rows"]) & {"step", "rank", "duration_us"}
