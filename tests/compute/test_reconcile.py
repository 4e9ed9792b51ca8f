"""Every dollar of a bill goes to a job, to nobody, or to what is not explained."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.holders import Placement, placements_of
from steptax.app.compute.bill.reconcile import reconcile
from steptax.app.compute.bill.waterfall import job_ledger
from steptax.app.compute.bill.waterfall_groups import total
from steptax.app.compute.bill.waterfall_rows import Waterfall
from steptax.app.errors import IntegrityError, UserError


def charge(
    cost: str | None, resource: str | None, start: int | None, end: int | None, **more: Any
) -> dict[str, Any]:
    return {
        "provider": "p",
        "invoice": "1",
        "line": "7",
        "effective_cost": None if cost is None else Decimal(cost),
        "billed_cost": None if cost is None else Decimal(cost),
        "currency": "USD",
        "resource_id": resource,
        "charge_start_us": start,
        "charge_end_us": end,
        **more,
    }


def job(name: str, start: int, end: int, gpus: int, *resources: str) -> Waterfall:
    row = {"job_id": name, "world_size": gpus, "start_us": start, "end_us": end}
    return job_ledger(row, [], [], resources=resources)


def test_each_dollar_has_its_place() -> None:
    bills = [job("a", 0, 50, 8, "n1", "n2"), job("b", 50, 100, 4, "n1")]
    charges = [
        charge("10.00", "n1", 0, 100),
        charge("10.00", "n2", 0, 100),
        charge("3.00", "disk", 0, 100),
        charge("1.00", None, 0, 100),
        charge("2.00", "n1", 0, 100, commitment_status="Unused"),
    ]
    found = reconcile(charges, bills)
    assert found.by_job == {"a": Decimal("10.00"), "b": Decimal("5.00")}
    assert found.unallocated_cost == Decimal("7.00")
    assert found.unexplained_cost == Decimal("4.00")
    assert found.effective_cost == found.billed_cost == Decimal("26.00")
    assert found.unexplained.value == pytest.approx(4 / 26)
    assert found.currency == "USD"
    assert found.uncharged_gpu_us == 0
    priced = bills[0].priced(Fraction(found.by_job["a"]))
    assert priced.total_usd == Decimal("10.00")
    assert total([priced]).total_usd == Decimal("10.00")


def test_devices_of_a_resource_that_nobody_held_are_unallocated() -> None:
    bills = [job("a", 0, 100, 2, "n1")]
    charges = [charge("8.00", "n1", 0, 100)]
    assert reconcile(charges, bills).by_job == {"a": Decimal("8.00")}
    sized = reconcile(charges, bills, gpus_by_resource={"n1": 8, "n2": 8})
    assert (sized.by_job["a"], sized.unallocated_cost) == (Decimal("2.00"), Decimal("6.00"))
    idle = reconcile([charge("5", "n2", 0, 9)], bills, gpus_by_resource={"n2": 8})
    assert idle.unallocated_cost == Decimal("5.00")


def test_jobs_on_one_resource_share_it_by_devices() -> None:
    places = [
        Placement("a", "n", 0, 100, Fraction(6)),
        Placement("b", "n", 50, 100, Fraction(2)),
        Placement("c", "n", 7, 7, Fraction(9)),
    ]
    found = reconcile([charge("8.00", "n", 0, 100)], [], placements=places)
    assert found.by_job == {"a": Decimal("6.00"), "b": Decimal("1.00")}
    assert found.unallocated_cost == Decimal("1.00")
    with pytest.raises(IntegrityError, match="n: jobs hold 8 devices of 7 from 50 us on"):
        reconcile([], [], placements=places, gpus_by_resource={"n": 7})


def test_time_that_no_charge_covers_is_said() -> None:
    charges = [charge("1", "n", 10, 30), charge("1", "n", 20, 40), charge("1", "n", 90, 95)]
    found = reconcile(charges, [job("a", 0, 100, 4, "n")])
    assert found.uncharged_gpu_us == 4 * (100 - 30 - 5)
    assert found.by_job == {"a": Decimal("3.00")}


def test_a_window_counts_the_part_of_a_charge_that_lies_in_it() -> None:
    charges = [
        charge("9.00", "n", 0, 90),
        charge("5.00", "n", 200, 300),
        charge("1", None, None, 0),
    ]
    found = reconcile(charges, [job("a", 0, 60, 1, "n")], window=(30, 90))
    assert found.effective_cost == Decimal("7.00")
    assert found.by_job == {"a": Decimal("3.00")}
    assert found.unallocated_cost == Decimal("3.00")
    assert found.unexplained_cost == Decimal("1.00")


def test_what_a_bill_does_not_say_is_not_zero() -> None:
    charges = [
        charge(None, "n", 0, 10),
        charge("2", "n", None, None, billing_start_us=0, billing_end_us=10, billed_cost=None),
    ]
    found = reconcile(charges, [job("a", 0, 10, 1, "n")])
    assert found.billed_cost is None
    assert found.by_job == {"a": Decimal("2.00")}
    assert found.notes == ("1 charges have no effective cost and are left out",)
    nothing = reconcile([], [])
    assert nothing.unexplained.value is None
    assert nothing.currency is None
    blind = reconcile([charge("2", "n", 0, 10)], [job("a", 0, 10, 1)])
    assert blind.unexplained.value == 1
    assert "no job says which resources" in blind.notes[0]


def test_charges_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="charges are in EUR, USD"):
        reconcile([charge("1", "n", 0, 1), charge("1", "n", 0, 1, currency="EUR")], [])
    with pytest.raises(IntegrityError, match="p 1 line 7: ends 5 us before it starts"):
        reconcile([charge("1", "n", 9, 4)], [])


def test_devices_are_even_over_the_resources_of_a_job() -> None:
    bill = job("a", 0, 10, 3, "x", "y")
    assert placements_of([bill, total([bill, bill])]) == [
        Placement("a", "x", 0, 10, Fraction(3, 2)),
        Placement("a", "y", 0, 10, Fraction(3, 2)),
    ]


@settings(max_examples=80)
@given(
    charges=st.lists(
        st.builds(
            lambda cents, resource, start, length, unused: charge(
                str(Decimal(cents) / 1000),
                resource,
                start,
                start + length,
                reservation_status="Unused" if unused else "Used",
            ),
            st.integers(-50_000, 50_000),
            st.sampled_from(["n1", "n2", "disk", None]),
            st.integers(0, 80),
            st.integers(0, 60),
            st.booleans(),
        ),
        max_size=8,
    ),
    spans=st.lists(
        st.tuples(
            st.integers(0, 80),
            st.integers(0, 60),
            st.integers(1, 8),
            st.sampled_from([("n1",), ("n2",), ("n1", "n2"), ()]),
        ),
        max_size=5,
    ),
    capacity=st.sampled_from([None, {"n1": 40, "n2": 40}]),
    window=st.sampled_from([None, (20, 70)]),
)
def test_the_parts_are_the_bill_to_the_cent(
    charges: list[dict[str, Any]],
    spans: list[tuple[int, int, int, tuple[str, ...]]],
    capacity: dict[str, int] | None,
    window: tuple[int, int] | None,
) -> None:
    bills = [
        job(f"j{k}", start, start + length, gpus, *where)
        for k, (start, length, gpus, where) in enumerate(spans)
    ]
    found = reconcile(charges, bills, gpus_by_resource=capacity, window=window)
    parts = [*found.by_job.values(), found.unallocated_cost, found.unexplained_cost]
    assert sum(parts, Decimal(0)) == found.effective_cost
    if window is None:
        exact = sum((row["effective_cost"] for row in charges), Decimal(0))
        assert found.effective_cost == round(exact, 2)
    again = reconcile(charges[::-1], bills[::-1], gpus_by_resource=capacity, window=window)
    assert again.by_job == found.by_job
    assert found.uncharged_gpu_us >= 0
