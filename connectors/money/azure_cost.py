"""``azure-cost``: cost exports of Azure, as they were before FOCUS."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.connectors.base import Options
from steptax.connectors.money.bill import (
    DELIVERIES,
    BillConnector,
    charge_targets,
    text_target,
    words_of,
)
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.columns import Plan, describe
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen

_DAY_US = 86_400_000_000
#: Names in exports of enterprise, customer and partner agreements; case does not matter.
_NAMES = {
    "billing_account": ("billingAccountId",),
    "invoice": ("invoiceId",),
    "billing_start_us": ("billingPeriodStartDate",),
    "billing_end_us": ("billingPeriodEndDate",),
    "charge_start_us": ("date", "usageDateTime", "usageDate"),
    "billed_cost": ("costInBillingCurrency", "preTaxCost", "cost", "extendedCost"),
    "list_cost": ("paygCostInBillingCurrency",),
    "currency": ("billingCurrency", "billingCurrencyCode", "currency"),
    "resource_id": ("resourceId", "instanceId", "instanceName"),
    "sub_account_id": ("subscriptionId", "subscriptionGuid"),
    "sku_id": ("meterId",),
    "service_name": ("meterCategory",),
    "charge_category": ("chargeType",),
    "pricing_category": ("pricingModel",),
    "consumed_quantity": ("quantity", "usageQuantity", "consumedQuantity"),
    "consumed_unit": ("unitOfMeasure",),
    "tags": ("tags",),
}
TARGETS = (
    *charge_targets(_NAMES),
    text_target("reservation", "the reservation that covers the usage", "reservationId"),
)
_PRICING = {"ondemand": "Standard", "spot": "Dynamic", "reservation": "Committed"}
_PRICING |= {"savingsplan": "Committed"}


class AzureCostConnector(BillConnector):
    """Rows of ``charges``, each from one row of a cost export."""

    kind = "azure-cost"
    version = 4
    title = "Azure cost exports, actual and amortised, of every agreement: CSV (also .gz), Parquet"
    dialect = "Azure"
    targets = TARGETS
    doc = (
        "Exports of Microsoft Cost Management: names of columns in any case or as portals in "
        "other languages write them (Kosten (Cost)), dates as 02/28/2026 or 28.02.2026, numbers as "
        "1.234,50 where the first costs look like that or with --decimal comma, tags with or "
        "without their braces. The file does not say which cost it holds: one whose "
        "name has 'amortized' holds the effective cost; any other the billed (actual) one, which "
        "is also the effective cost except where a reservation or a savings plan covers the usage "
        "or is bought: there it stays unknown. Where both are ingested they are joined: what was "
        "billed counts from the actual one, what it is worth from the amortised one. A row is of "
        "one day. Currencies are not converted.\n" + DELIVERIES + "Targets:\n" + describe(TARGETS)
    )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; says which cost the file is taken to hold."""
        plan = super().plan(header, options, where)
        notes = [note for note in plan.notes if "for effective_cost" not in note]
        which = "amortised: the effective" if _is_amortised(where) else "actual: the billed"
        notes.append(f"by its name the file holds the {which} cost")
        return replace(plan, notes=tuple(notes))

    def settle(self, screen: Screen, values: dict[str, Any], source: str) -> None:
        """Tell billed and effective cost apart, and say categories as FOCUS does."""
        count = len(screen.rows)
        none = np.zeros(count, bool)
        kinds = [(w or "").lower() for w in _told(values.get("charge_category"), count)]
        models = [(w or "").lower() for w in _told(values.get("pricing_category"), count)]
        covers = _told(values.pop("reservation", None), count)
        cost: Cells | None = values.get("billed_cost")
        if cost is not None and values.get("effective_cost") is None:
            if _is_amortised(source):
                values["effective_cost"] = cost
                gone = pa.nulls(count, cost.values.type)
                values["billed_cost"] = Cells(gone, np.ones(count, bool), cost.bad)
            else:
                covered = np.array(
                    [
                        bool(cover) or model in ("reservation", "savingsplan") or kind == "purchase"
                        for cover, model, kind in zip(covers, models, kinds, strict=True)
                    ],
                    bool,
                )
                known = pc.if_else(
                    pa.array(covered), pa.scalar(None, cost.values.type), cost.values
                )
                values["effective_cost"] = Cells(known, cost.null | covered, cost.bad)
        values["commitment_status"] = words_of(
            ["Unused" if k.startswith("unused") else None for k in kinds]
        )
        category = ["Usage" if k.startswith("unused") or not k else k.title() for k in kinds]
        values["charge_category"] = words_of(
            ["Adjustment" if c == "Refund" else c for c in category]
        )
        values["pricing_category"] = words_of([_PRICING.get(model) for model in models])
        start, end = values.get("charge_start_us"), values.get("charge_end_us")
        if start is not None and end is None:
            values["charge_end_us"] = Cells(start.values + _DAY_US, start.null, none)
        values["provider"] = values.get("provider") or words_of(["Microsoft"] * count)
        super().settle(screen, values, source)


def _is_amortised(source: str) -> bool:
    return re.search(r"amorti[sz]ed", Path(source).name, re.IGNORECASE) is not None


def _told(cells: Cells | None, count: int) -> list[str | None]:
    out: list[str | None] = [None] * count if cells is None else cells.values.to_pylist()
    return out
