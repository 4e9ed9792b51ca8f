"""Rows that a user is given come in one order; where a null comes in it is said in the text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.queries import QUERIES, DuckEngine, Query
from steptax.app.schema import Table, table
from steptax.app.schema.rollup import Total
from steptax.app.schema.rollups import LEVELS
from steptax.app.settings import Settings
from steptax.app.views.named_query import answer
from steptax.app.views.workspace import Workspace
from tests.engines.generated_lake import generated_lake
from tests.engines.test_spark import PARAMETERS

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


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    lake = generated_lake(tmp_path_factory.mktemp("order") / "lake")
    return Workspace(lake, DuckEngine(lake), Settings())


@pytest.mark.parametrize("name", QUERIES)
def test_rows_that_a_user_is_given_come_in_one_order(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever order an engine gives them in: that of the text, else by columns from the left."""
    spec = QUERIES[name]
    given = {key: PARAMETERS[key] for key in spec.parameters if key != "job_id"}
    job = "a" if spec.is_of_one_job or "job_id" in spec.parameters else None
    run, seed = DuckEngine.run, np.random.default_rng(1)

    def shuffled(self: DuckEngine, asked: str, **more: Any) -> pa.Table:
        found = run(self, asked, **more)
        return found.take(seed.permutation(len(found))) if asked == name else found

    if not spec.is_ordered:
        monkeypatch.setattr(DuckEngine, "run", shuffled)
    once, again = (
        [[_text(value) for value in row.values()] for row in found.each()]
        for found in (answer(ws, name, job_id=job, parameters=given) for _ in range(2))
    )
    assert once == again


def _text(value: object) -> str:
    """A NaN equals no other, and sums of floats differ in their last digit by the order of rows."""
    return f"{value:.9e}" if isinstance(value, float) else str(value)


#: Of one table, without a group: each row has the key of the table.
_PLAIN = [
    name
    for name, spec in QUERIES.items()
    if spec.is_ordered and len(spec.tables) == 1 and not re.search("GROUP|DISTINCT", spec.body)
]


@pytest.mark.parametrize("name", _PLAIN)
def test_an_order_tells_every_two_rows_apart(name: str) -> None:
    spec = QUERIES[name]
    of = table(spec.tables[0])
    named = {*re.findall(r"\w+", spec.body.rpartition("ORDER BY")[2])}
    same = {*re.findall(r"(\w+) = ", spec.body)} | ({"job_id"} if spec.is_of_one_job else set())
    # What the text orders by everything else has no key that tells more.
    assert {*of.key} - same <= named or name == "reported_scores"


def test_an_order_within_a_window_is_not_that_of_the_rows() -> None:
    for text, is_ordered in (
        ("SELECT a FROM t ORDER BY a, abs(b)", True),
        ("SELECT max(a) OVER (PARTITION BY b ORDER BY c) FROM t", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a) LIMIT 9", False),
        ("SELECT a FROM t", False),
    ):
        assert Query("q", text, (), (), ()).is_ordered == is_ordered
