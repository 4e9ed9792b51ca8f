"""The invoices of a lake, each against what a person says that it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from steptax.app.compute.bill.cost import split_to_cents, to_cents
from steptax.app.errors import NotFoundError
from steptax.app.views.fleet.bill_models import Invoice
from steptax.app.views.workspace import Workspace

_COSTS = ("billed_cost", "effective_cost", "list_cost", "contracted_cost")


def invoices_of(ws: Workspace, stated: Mapping[str, Decimal] | None = None) -> tuple[Invoice, ...]:
    """Every invoice and currency; ``stated`` are amounts by the name of an invoice.

    Raises NotFoundError for an amount of an invoice that is not there, or is in two currencies.
    """
    stated = dict(stated or {})
    groups: dict[tuple[str, str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for row in ws.engine.run("fleet_invoices").to_pylist():
        groups[row["provider"], row["invoice"], row["currency"]].append(row)
    names = [name for _, name, _ in groups]
    for name in stated:
        if names.count(name) != 1:
            listed = ", ".join(dict.fromkeys(names)) or "none"
            several = "more than one invoice" if name in names else "no invoice"
            raise NotFoundError(
                f"there is {several} {name!r}", where="--invoiced", hint=f"there are: {listed}"
            )
    return tuple(_invoice(*key, rows, stated.get(key[1])) for key, rows in groups.items())


def _invoice(
    provider: str,
    name: str,
    currency: str | None,
    rows: Sequence[Mapping[str, Any]],
    stated: Decimal | None,
) -> Invoice:
    charges = sum(row["charge_count"] for row in rows)
    known = {
        "billed_cost": sum(row["billed_count"] for row in rows) == charges,
        "effective_cost": sum(row["effective_count"] for row in rows) == charges,
    }
    costs = {cost: _sum(rows, cost) if known.get(cost, True) else None for cost in _COSTS}
    billed = [Fraction(row["billed_cost"] or 0) for row in rows]
    categories = [row["charge_category"] or "not stated" for row in rows]
    parts = dict(zip(categories, split_to_cents(billed), strict=True))
    return Invoice(
        provider,
        name,
        currency,
        charges,
        **costs,
        billed_by_category=parts if known["billed_cost"] else {},
        stated=stated,
    )


def _sum(rows: Sequence[Mapping[str, Any]], cost: str) -> Decimal | None:
    values = [Fraction(row[cost]) for row in rows if row[cost] is not None]
    return to_cents(sum(values, Fraction(0))) if values else None
