"""A provider's bill by month, and the devices that it covers and nobody held."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bill.apportion import Unit, to_us
from steptax.app.compute.bill.holders import Holders, Placement, occupancy_of
from steptax.app.compute.bill.periods import UNALLOCATED, costs_by_period, idle_allocations
from steptax.app.compute.bill.reconcile import reconcile

HOUR_US = 3_600_000_000


def us(*moment: int) -> int:
    return to_us(datetime(*moment, tzinfo=UTC))  # type: ignore[misc, arg-type]


def charge(start: int, end: int, cost: str, resource: str | None = "n", **more: Any) -> Any:
    return {
        "provider": "p",
        "invoice": "i",
        "line": f"{start}-{cost}",
        "charge_start_us": start,
        "charge_end_us": end,
        "effective_cost": Decimal(cost),
        "billed_cost": Decimal(cost),
        "currency": "USD",
        "resource_id": resource,
    } | more


def place(job: str, start: int, end: int, gpus: int = 8) -> Placement:
    return Placement(job, "n", start, end, Fraction(gpus))


def test_each_month_costs_what_was_charged_for_it() -> None:
    """The rate doubles at the month's end: time alone would give both months the same."""
    end = us(2026, 11, 1)
    charges = [charge(us(2026, 10, 31), end, "24"), charge(end, us(2026, 11, 2), "48")]
    held = occupancy_of([place("j", us(2026, 10, 31, 12), us(2026, 11, 1, 12))], {})
    assert costs_by_period(charges, Holders(held), Unit.MONTH) == {
        "2026-10": {"j": 12, UNALLOCATED: 12},
        "2026-11": {"j": 24, UNALLOCATED: 24},
    }
    idle = idle_allocations(charges, held)
    assert idle is not None
    assert sum((a.end_us - a.start_us) * a.gpus for a in idle) == 24 * 8 * HOUR_US


def test_a_commitment_that_was_not_used_is_unallocated_and_holds_no_devices() -> None:
    span = us(2026, 11, 1), us(2026, 11, 2)
    charges = [charge(*span, "5", commitment_status="Unused"), charge(*span, "7", None)]
    held = occupancy_of([place("j", *span)], {})
    assert costs_by_period(charges, Holders(held), Unit.DAY) == {"2026-11-01": {UNALLOCATED: 5}}
    assert idle_allocations(charges, held) == []


def test_parts_of_devices_have_no_idle_devices() -> None:
    start, end = us(2026, 11, 1), us(2026, 11, 2)
    places = [
        Placement("a", "n", start, start + HOUR_US, Fraction(1, 2)),
        Placement("b", "n", start, end, Fraction(1, 3)),
    ]
    assert idle_allocations([charge(start, end, "1")], occupancy_of(places, {})) is None


hours = st.integers(0, 24 * 90)


@given(
    spans=st.lists(st.tuples(hours, hours, st.integers(-500, 10**6)), min_size=1, max_size=6),
    jobs=st.lists(st.tuples(hours, hours, st.integers(1, 8)), max_size=5),
    tz=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
def test_periods_add_up_to_the_reconciled_bill(
    spans: list[tuple[int, int, int]], jobs: list[tuple[int, int, int]], tz: str
) -> None:
    origin = us(2026, 2, 20)

    def at(first: int, second: int) -> tuple[int, int]:
        low, high = sorted((first, second))
        return origin + low * HOUR_US, origin + (high + 1) * HOUR_US

    charges = [charge(*at(a, b), str(Decimal(cents) / 100)) for a, b, cents in spans]
    places = [place(f"j{k}", *at(a, b), n) for k, (a, b, n) in enumerate(jobs)]
    held = occupancy_of(places, {})
    whole = reconcile(charges, [], placements=places)
    for unit in Unit:
        by_period = costs_by_period(charges, Holders(held), unit, tz)
        for job, cost in whole.by_job.items():
            exact = sum((own.get(job, Fraction(0)) for own in by_period.values()), Fraction(0))
            assert abs(exact - Fraction(cost)) < Fraction(1, 100)
        left = sum((own.get(UNALLOCATED, Fraction(0)) for own in by_period.values()), Fraction(0))
        assert abs(left - Fraction(whole.unallocated_cost)) < Fraction(1, 100)
