"""A provider's bill over time: which devices were paid for and free, and what each period cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from steptax.app.compute.bill.apportion import Piece, Unit, pieces
from steptax.app.compute.bill.holders import (
    BY_RESOURCE,
    UNEXPLAINED,
    Holders,
    Occupancy,
    is_unused,
)
from steptax.app.compute.bill.timeline import Allocation

_ZERO = Fraction(0)

UNALLOCATED = ""
"""In place of a job: what no job held, and commitments that were not used."""


def idle_allocations(
    charges: Sequence[Mapping[str, Any]],
    held: Mapping[str, Occupancy],
    window: tuple[int, int] | None = None,
) -> list[Allocation] | None:
    """What was paid for and held by nobody, on resources that jobs ran on.

    ``charges`` are rows of that table; a resource is paid for as long as a charge for its use
    covers it, however many charges do. ``held`` tells who held it and how many devices it has.
    None where what is free is no whole number of devices.
    """
    paid: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in charges:
        span = charge_span(row, window)
        if span is not None and row.get("resource_id") in held and not is_unused(row):
            paid[row["resource_id"]].append(span)
    idle: list[Allocation] = []
    for name in sorted(paid):
        for start, end, gpus in _free(paid[name], held[name]):
            if gpus.denominator != 1:
                return None
            if gpus:
                idle.append(Allocation(start, end, int(gpus)))
    return idle


def costs_by_period(
    charges: Sequence[Mapping[str, Any]],
    holders: Holders,
    unit: Unit,
    tz: str = "UTC",
    window: tuple[int, int] | None = None,
) -> dict[str, dict[str, Fraction]]:
    """Effective cost by period and job, ``UNALLOCATED`` for what belongs to none; exact.

    Each charge is spread evenly over its time and cut at the periods of zone ``tz``, so that a
    month costs what was charged for it, whatever the rate was before. What is unexplained is left
    out, and so are charges without a period of their own.

    Raises UserError where there is no such zone.
    """
    found: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for row in charges:
        own, whole = charge_span(row, window), charge_span(row, None)
        if own is None or whole is None or row.get("effective_cost") is None:
            continue
        rate = Fraction(row["effective_cost"]) / (whole[1] - whole[0])
        how = holders.means(row, is_timed=True)
        if how == UNEXPLAINED:
            continue
        if how == BY_RESOURCE:
            place = holders.by_resource[row["resource_id"]]
            _add_resource(found, place, rate, pieces(*own, unit, tz))
            continue
        _, shares = holders.shares(row, *own)
        for piece in pieces(*own, unit, tz):
            cost = left = rate * (piece.end_us - piece.start_us)
            for job, share in shares.items():
                found[piece.period][job] += cost * share
                left -= cost * share
            found[piece.period][UNALLOCATED] += left
    return {period: dict(costs) for period, costs in found.items()}


def _add_resource(
    found: dict[str, dict[str, Fraction]],
    place: Occupancy,
    rate: Fraction,
    periods: Sequence[Piece],
) -> None:
    """A charge of ``rate`` per microsecond for a resource, by period and by who held it."""
    per_gpu = rate / place.capacity if place.capacity else _ZERO
    for piece in periods:
        held: dict[str, int | Fraction] = {}
        for start, end, gpus in place.within(piece.start_us, piece.end_us):
            for job, own in gpus.items():
                held[job] = held.get(job, 0) + (end - start) * own
        costs = found[piece.period]
        for job, gpu_us in held.items():
            costs[job] += per_gpu * gpu_us
        free = (piece.end_us - piece.start_us) * place.capacity - sum(held.values())
        costs[UNALLOCATED] += (
            per_gpu * free if place.capacity else rate * (piece.end_us - piece.start_us)
        )


def unexplained_charges(
    charges: Sequence[Mapping[str, Any]], holders: Holders
) -> list[tuple[tuple[int, int] | None, Fraction]]:
    """Period and effective cost of the charges that belong to no job and no device of one.

    They may be for storage, a network, a tax, or a node that nobody reported.
    """
    found = []
    for row in charges:
        span = charge_span(row, None)
        if row.get("effective_cost") is None:
            continue
        if holders.means(row, is_timed=span is not None) == UNEXPLAINED:
            found.append((span, Fraction(row["effective_cost"])))
    return found


def charge_span(
    row: Mapping[str, Any], window: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """The charge period, else the billing period, as far as it lies in ``window``."""
    start, end = row.get("charge_start_us"), row.get("charge_end_us")
    if start is None or end is None:
        start, end = row.get("billing_start_us"), row.get("billing_end_us")
    if start is None or end is None:
        return None
    if window is not None:
        start, end = max(start, window[0]), min(end, window[1])
    return (start, end) if end > start else None


def _free(
    paid: Sequence[tuple[int, int]], held: Occupancy
) -> list[tuple[int, int, int | Fraction]]:
    """Stretches of paid time with the devices that were free in them."""
    used: dict[int, int | Fraction] = defaultdict(int)
    covered: dict[int, int] = defaultdict(int)
    for start, end, gpus in zip(held.start_us, held.end_us, held.gpus, strict=True):
        count = sum(gpus.values())
        used[start] += count
        used[end] -= count
    for start, end in paid:
        covered[start] += 1
        covered[end] -= 1
    free = []
    has: int | Fraction = held.capacity
    has = held.capacity.numerator if held.capacity.denominator == 1 else has
    busy: int | Fraction = 0
    open_ = 0
    for start, end in pairwise(sorted(used.keys() | covered.keys())):
        busy += used.get(start, 0)
        open_ += covered.get(start, 0)
        if open_ > 0:
            free.append((start, end, has - busy))
    return free
