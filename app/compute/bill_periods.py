"""A provider's bill over time: which devices were paid for and free, and what each period cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from steptax.app.compute.apportion import Unit, pieces
from steptax.app.compute.holders import (
    BY_RESOURCE,
    UNEXPLAINED,
    Holders,
    Occupancy,
    is_unused,
)
from steptax.app.compute.timeline import Allocation

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
        span = _span(row, window)
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
        own, whole = _span(row, window), _span(row, None)
        if own is None or whole is None or row.get("effective_cost") is None:
            continue
        rate = Fraction(row["effective_cost"]) / (whole[1] - whole[0])
        how, shares = holders.shares(row, *own)
        if how == UNEXPLAINED:
            continue
        for piece in pieces(*own, unit, tz):
            cost = left = rate * (piece.end_us - piece.start_us)
            if how == BY_RESOURCE:
                _, shares = holders.shares(row, piece.start_us, piece.end_us)
            for job, share in shares.items():
                found[piece.period][job] += cost * share
                left -= cost * share
            found[piece.period][UNALLOCATED] += left
    return {period: dict(costs) for period, costs in found.items()}


def _span(row: Mapping[str, Any], window: tuple[int, int] | None) -> tuple[int, int] | None:
    """The charge period, else the billing period, as far as it lies in ``window``."""
    start, end = row.get("charge_start_us"), row.get("charge_end_us")
    if start is None or end is None:
        start, end = row.get("billing_start_us"), row.get("billing_end_us")
    if start is None or end is None:
        return None
    if window is not None:
        start, end = max(start, window[0]), min(end, window[1])
    return (start, end) if end > start else None


def _free(paid: Sequence[tuple[int, int]], held: Occupancy) -> list[tuple[int, int, Fraction]]:
    """Stretches of paid time with the devices that were free in them."""
    used: dict[int, Fraction] = defaultdict(Fraction)
    covered: dict[int, int] = defaultdict(int)
    for start, end, gpus in zip(held.start_us, held.end_us, held.gpus, strict=True):
        used[start] += sum(gpus.values(), _ZERO)
        used[end] -= sum(gpus.values(), _ZERO)
    for start, end in paid:
        covered[start] += 1
        covered[end] -= 1
    free = []
    busy, open_ = _ZERO, 0
    for start, end in pairwise(sorted(used.keys() | covered.keys())):
        busy += used.get(start, _ZERO)
        open_ += covered.get(start, 0)
        if open_ > 0:
            free.append((start, end, held.capacity - busy))
    return free
