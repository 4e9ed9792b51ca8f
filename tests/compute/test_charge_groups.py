"""Charges added up: what jobs get is what they get of every single line."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.apportion import Unit
from steptax.app.compute.bill.charge_groups import converted, group_charges
from steptax.app.compute.bill.holders import (
    BY_JOB_TAG,
    BY_LABEL,
    BY_RESOURCE,
    Holders,
    Placement,
    jobs_of,
    occupancy_of,
    placements_of,
)
from steptax.app.compute.bill.periods import costs_by_period
from steptax.app.compute.bill.reconcile import reconcile
from steptax.app.compute.bill.waterfall import job_ledger
from steptax.app.compute.bill.waterfall_rows import Waterfall

HOUR_US = 3_600_000_000
_MONEY = pa.decimal128(38, 12)
#: What the tags of a charge name: a job and a label.
TAGS = {"j": ("a", None), "r": (None, "red"), "jr": ("b", "red"), "x": (None, None)}


def job(name: str, start_h: int, end_h: int, *hosts: str) -> Waterfall:
    span = {"start_us": start_h * HOUR_US, "end_us": end_h * HOUR_US}
    return job_ledger({"job_id": name, "world_size": 4, **span}, [], [], resources=hosts)


def line(start_h: int, hours: int, cost: Decimal, resource: str | None, **more: Any) -> Any:
    """A row as the query ``fleet_charges`` gives it."""
    return {
        "provider": "p",
        "invoice": "i",
        "line": f"{start_h}-{cost}",
        "currency": "USD",
        "resource_id": resource,
        "tags": None,
        "commitment_status": None,
        "reservation_status": None,
        "charge_start_us": start_h * HOUR_US,
        "charge_end_us": (start_h + hours) * HOUR_US,
        "lacks_effective": False,
        "lacks_billed": False,
        "charge_count": 1,
        "billed_cost": cost,
        "effective_cost": cost,
    } | more


def table_of(lines: list[Any]) -> pa.Table:
    types = {"tags": pa.string(), "resource_id": pa.string(), "currency": pa.string()}
    types |= {"commitment_status": pa.string(), "reservation_status": pa.string()}
    types |= {"billed_cost": _MONEY, "effective_cost": _MONEY}
    names = list(line(0, 1, Decimal(0), None))
    columns = {n: pa.array([row[n] for row in lines], types.get(n)) for n in names}
    return pa.table(columns)


def grouped(
    lines: list[Any], jobs: Collection[str] = "ab", hosts: Collection[str] = ("n1", "n2")
) -> list[dict[str, Any]]:
    """By ``TAGS``, of which a job that is none of ``jobs`` is none at all."""

    def claim(tags: str) -> tuple[str | None, str | None]:
        name, label = TAGS[tags]
        return name if name is not None and name in jobs else None, label

    return group_charges(table_of(lines), lambda name: name if name in hosts else None, claim)


def test_a_month_of_hours_at_one_price_is_one_charge() -> None:
    lines = [line(h, 1, Decimal("0.1"), "n1") for h in range(720)]
    (row,) = grouped(lines)
    assert (row["charge_start_us"], row["charge_end_us"]) == (0, 720 * HOUR_US)
    assert row["effective_cost"] == Decimal(72)
    assert row["charge_count"] == 720
    # A gap, another price, another length: each begins a charge of its own.
    odd = [
        *lines[:10],
        *lines[11:20],
        line(20, 1, Decimal("0.2"), "n1"),
        line(21, 2, Decimal("0.1"), "n1"),
    ]
    assert [r["charge_count"] for r in grouped(odd)] == [10, 9, 1, 1]


def test_tags_say_whose_a_charge_is() -> None:
    bills = [job("a", 0, 10, "n1"), job("b", 0, 5, "n2")]
    lines = [
        line(0, 10, Decimal(8), "n1"),
        line(0, 10, Decimal(6), "n2"),
        line(20, 1, Decimal(3), "disk", tags="j"),
        line(0, 10, Decimal(9), "disk", tags="r"),
        line(50, 1, Decimal(2), "disk", tags="r"),
        line(0, 1, Decimal(1), "disk", tags="x"),
        line(0, 1, Decimal(4), "n1", tags="j", commitment_status="Unused"),
    ]
    label = occupancy_of(
        [Placement(b, "red", 0, end * HOUR_US, Fraction(4)) for b, end in (("a", 10), ("b", 5))], {}
    )
    found = reconcile(grouped(lines), bills, by_label=label)
    # Of nine for the team's disk a held 40 of 60 GPU-hours; when it held none nobody pays for it.
    assert found.by_job == {"a": Decimal(8 + 3 + 6), "b": Decimal(3 + 3)}
    assert found.unallocated_cost == 3 + 2 + 4
    assert found.unexplained_cost == 1
    assert found.by_means == {BY_RESOURCE: 11, BY_JOB_TAG: 3, BY_LABEL: 9}


def test_conversion_is_exact_and_asked_for() -> None:
    rows = grouped([line(0, 1, Decimal("0.3"), "n1", currency="EUR"), line(0, 1, Decimal(1), "n1")])
    found = converted(rows, {"EUR": Fraction(11, 10)}, "USD")
    assert {row["currency"] for row in found} == {"USD"}
    assert sorted(Fraction(row["effective_cost"]) for row in found) == [Fraction(33, 100), 1]
    assert {row["currency"] for row in converted(rows, {}, "USD")} == {"EUR", "USD"}


lines_of = st.lists(
    st.builds(
        lambda start, hours, mils, resource, tags, unused: line(
            start,
            hours,
            Decimal(mils) / 1000,
            resource,
            tags=tags,
            commitment_status="Unused" if unused else None,
        ),
        st.integers(0, 12),
        st.integers(0, 4),
        st.sampled_from([-7, 0, 1, 3333, 10_000]),
        st.sampled_from(["n1", "n2", "disk", None]),
        st.sampled_from([None, *TAGS]),
        st.booleans(),
    ),
    max_size=20,
)
jobs_list = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8), st.sampled_from([("n1",), ("n1", "n2"), ()])),
    max_size=3,
)


@settings(max_examples=60)
@given(lines=lines_of, spans=jobs_list, window=st.sampled_from([None, (3, 11)]))
def test_every_cent_lands_once_whether_lines_are_added_up_or_not(
    lines: list[Any], spans: list[tuple[int, int, tuple[str, ...]]], window: Any
) -> None:
    bills = [job("abc"[k], start, start + n, *hosts) for k, (start, n, hosts) in enumerate(spans)]
    places = placements_of(bills)
    held = {
        "red": [
            Placement("abc"[k], "red", start * HOUR_US, (start + n) * HOUR_US, Fraction(4))
            for k, (start, n, _) in enumerate(spans)
        ]
    }
    by_label = occupancy_of(held["red"], {})
    cut = None if window is None else (window[0] * HOUR_US, window[1] * HOUR_US)
    single = [
        {
            **row,
            "resource_id": row["resource_id"] if row["resource_id"] in ("n1", "n2") else None,
            "job_id": TAGS[row["tags"]][0] if row["tags"] else None,
            "holder": TAGS[row["tags"]][1] if row["tags"] else None,
        }
        for row in lines
    ]
    many = reconcile(single, bills, placements=places, window=cut, by_label=by_label)
    rows = grouped(lines, jobs_of(bills), occupancy_of(places, {}))
    few = reconcile(rows, bills, placements=places, window=cut, by_label=by_label)
    for name in ("by_job", "unallocated_cost", "unexplained_cost", "effective_cost", "billed_cost"):
        assert getattr(many, name) == getattr(few, name), name
    parts = [*few.by_job.values(), few.unallocated_cost, few.unexplained_cost]
    assert sum(parts, Decimal(0)) == few.effective_cost
    assert sum(few.by_means.values(), Decimal(0)) == sum(few.by_job.values(), Decimal(0))
    if cut is None:
        exact = sum((row["effective_cost"] for row in lines), Decimal(0))
        assert few.effective_cost == round(exact, 2)
        # The parts by day add up to what each job has, too.
        holders = Holders(occupancy_of(places, {}), by_label, jobs_of(bills))
        days = costs_by_period(
            [r for r in rows if r["charge_end_us"] > r["charge_start_us"]], holders, Unit.DAY
        )
        timeless = {r["job_id"] for r in single if r["charge_end_us"] == r["charge_start_us"]}
        for name, cost in few.by_job.items():
            if name not in timeless:
                total = sum((own.get(name, Fraction(0)) for own in days.values()), Fraction(0))
                assert abs(total - Fraction(cost)) < Fraction(1, 100)
