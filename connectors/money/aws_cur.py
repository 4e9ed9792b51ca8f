"""``aws-cur``: the Cost and Usage Report of AWS, as it was before FOCUS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema.table import MONEY
from steptax.connectors.base import Options
from steptax.connectors.money.amounts import amounts
from steptax.connectors.money.bill import (
    DELIVERIES,
    BillConnector,
    charge_targets,
    text_target,
    words_of,
)
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.columns import Plan, Target, Term, describe
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen

#: Names of the legacy report, and of CUR 2.0
#: (https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html).
_NAMES = {
    "invoice": ("bill/InvoiceId", "bill_invoice_id"),
    "billing_start_us": ("bill/BillingPeriodStartDate", "bill_billing_period_start_date"),
    "billing_end_us": ("bill/BillingPeriodEndDate", "bill_billing_period_end_date"),
    "charge_start_us": ("lineItem/UsageStartDate", "line_item_usage_start_date"),
    "charge_end_us": ("lineItem/UsageEndDate", "line_item_usage_end_date"),
    "billed_cost": ("lineItem/UnblendedCost", "line_item_unblended_cost"),
    "list_cost": ("pricing/publicOnDemandCost", "pricing_public_on_demand_cost"),
    "currency": ("lineItem/CurrencyCode", "line_item_currency_code"),
    "resource_id": ("lineItem/ResourceId", "line_item_resource_id"),
    "sub_account_id": ("lineItem/UsageAccountId", "line_item_usage_account_id"),
    "sku_id": ("product/sku", "product_sku"),
    "service_name": ("product/ProductName", "product_product_name", "lineItem/ProductCode"),
    "charge_category": ("lineItem/LineItemType", "line_item_line_item_type"),
    "pricing_category": ("pricing/term", "pricing_term"),
    "consumed_quantity": ("lineItem/UsageAmount", "line_item_usage_amount"),
    "consumed_unit": ("pricing/unit", "pricing_unit"),
    "tags": ("resource_tags",),
    "billing_account": ("bill/PayerAccountId", "bill_payer_account_id"),
}
_SP_EFFECTIVE = text_target(
    "sp_effective_cost",
    "amortised cost of usage under a savings plan",
    "savingsPlan/SavingsPlanEffectiveCost",
    "savings_plan_savings_plan_effective_cost",
)
_SP_TOTAL = text_target(
    "sp_total",
    "commitment of the savings plan in the period of the line",
    "savingsPlan/TotalCommitmentToDate",
    "savings_plan_total_commitment_to_date",
)
_SP_USED = text_target(
    "sp_used",
    "of it, what was used",
    "savingsPlan/UsedCommitment",
    "savings_plan_used_commitment",
)
_RI_EFFECTIVE = text_target(
    "ri_effective_cost",
    "amortised cost of usage under a reservation",
    "reservation/EffectiveCost",
    "reservation_effective_cost",
)
_RI_UPFRONT = text_target(
    "ri_unused_upfront",
    "unused part of the upfront fee",
    "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod",
    "reservation_unused_amortized_upfront_fee_for_billing_period",
)
_RI_RECURRING = text_target(
    "ri_unused_recurring",
    "unused part of the recurring fee",
    "reservation/UnusedRecurringFee",
    "reservation_unused_recurring_fee",
)
_RI_ARN = text_target(
    "ri_arn", "the reservation", "reservation/ReservationARN", "reservation_reservation_a_r_n"
)
_PARTS = (_SP_EFFECTIVE, _SP_TOTAL, _SP_USED, _RI_EFFECTIVE, _RI_UPFRONT, _RI_RECURRING)
TARGETS = (
    *charge_targets(_NAMES),
    *_PARTS,
    _RI_ARN,
)
_CATEGORY = {
    "Tax": "Tax",
    "Credit": "Credit",
    "EdpDiscount": "Credit",
    "BundledDiscount": "Credit",
    "PrivateRateDiscount": "Credit",
    "Refund": "Adjustment",
    "Fee": "Purchase",
    "RIFee": "Purchase",
    "SavingsPlanRecurringFee": "Purchase",
    "SavingsPlanUpfrontFee": "Purchase",
}
_COMMITTED = ("SavingsPlanCoveredUsage", "SavingsPlanNegation", "DiscountedUsage")
_TAG_PREFIXES = ("resourceTags/user:", "resource_tags_user_")


class AwsCurConnector(BillConnector):
    """Rows of ``charges``, each from one line item."""

    kind = "aws-cur"
    version = 3
    title = "AWS Cost and Usage Report, legacy and CUR 2.0: CSV (also .gz), Parquet"
    dialect = "AWS's Cost and Usage Report"
    targets = TARGETS
    doc = (
        "The legacy report (lineItem/UnblendedCost) or CUR 2.0 (line_item_unblended_cost). Billed "
        "is the unblended cost: usage under a savings plan and its negation cancel there, and "
        "what is left adds up to the invoice. Effective is the amortised cost by the rules of "
        "AWS: SavingsPlanEffectiveCost and reservation/EffectiveCost for covered usage, the "
        "unused part of recurring fees as an unused commitment, 0 for negations and upfront "
        "fees, the unblended cost elsewhere. An InvoiceId that is not set yet is called by payer "
        "and month. Tags of users (resourceTags/user:NAME) become one object.\n"
        + DELIVERIES
        + "Targets:\n"
        + describe(TARGETS)
    )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError for a table that is no such report."""
        plan = super().plan(header, options, where)
        if "charge_category" not in plan.terms:
            raise InputError(
                "has no column for the type of a line item, which tells how it is amortised",
                where=where,
                hint="export the report with lineItem/LineItemType",
            )
        tags = tuple(Term(c) for c in header.columns if c.startswith(_TAG_PREFIXES))
        notes = tuple(note for note in plan.notes if "for effective_cost" not in note)
        return replace(plan, terms={**plan.terms, "user_tags": tags}, notes=notes)

    def settle(self, screen: Screen, values: dict[str, Any], source: str) -> None:
        """Amortise, and say categories as FOCUS does."""
        count = len(screen.rows)
        none = np.zeros(count, bool)
        kinds = [w or "" for w in values["charge_category"].values.to_pylist()]
        parts = {t.name: _money(screen, t) for t in _PARTS}
        billed = values["billed_cost"].values.to_pylist()
        arns = values.pop("ri_arn")
        reserved = [bool(a) for a in arns.values.to_pylist()] if arns else [False] * count
        effective: list[Decimal | None] = []
        unused: list[str | None] = []
        for i, kind in enumerate(kinds):
            cost, status = _amortised(
                kind, billed[i], {name: own[i] for name, own in parts.items()}, reserved[i]
            )
            effective.append(cost)
            unused.append(status)
        if values.get("effective_cost") is None:
            lost = np.array([value is None for value in effective], bool)
            values["effective_cost"] = Cells(pa.array(effective, MONEY), lost, none)
        values["commitment_status"] = words_of(unused)
        values["charge_category"] = words_of([_CATEGORY.get(kind, "Usage") for kind in kinds])
        terms = values.get("pricing_category")
        told = terms.values.to_pylist() if terms else [None] * count
        values["pricing_category"] = words_of(
            [_pricing(kind, term) for kind, term in zip(kinds, told, strict=True)]
        )
        if screen.plan.terms["user_tags"]:
            values["tags"] = words_of(_tags(screen))
        for target in (*_PARTS,):
            values.pop(target.name, None)
        values["provider"] = values.get("provider") or words_of(["AWS"] * count)
        super().settle(screen, values, source)


def _amortised(
    kind: str, billed: Decimal | None, parts: Mapping[str, Decimal | None], is_reserved: bool
) -> tuple[Decimal | None, str | None]:
    """Effective cost of a line item, and whether it is a used or an unused commitment."""
    if kind == "SavingsPlanCoveredUsage":
        return parts["sp_effective_cost"], "Used"
    if kind == "DiscountedUsage":
        return parts["ri_effective_cost"], "Used"
    if kind == "SavingsPlanRecurringFee":
        total, used = parts["sp_total"], parts["sp_used"]
        return (None if total is None or used is None else total - used), "Unused"
    if kind == "RIFee":
        unused = parts["ri_unused_upfront"], parts["ri_unused_recurring"]
        known = [part for part in unused if part is not None]
        return (sum(known, Decimal(0)) if known else None), "Unused"
    if kind in ("SavingsPlanNegation", "SavingsPlanUpfrontFee") or (kind == "Fee" and is_reserved):
        return Decimal(0), None
    return billed, None


def _pricing(kind: str, term: str | None) -> str | None:
    if kind in _COMMITTED:
        return "Committed"
    return {"OnDemand": "Standard", "Spot": "Dynamic", "Reserved": "Committed"}.get(term or "")


def _money(screen: Screen, target: Target) -> list[Decimal | None]:
    """A column of money that is not stored; a bad cell refuses its row."""
    terms = screen.plan.terms.get(target.name)
    if not terms:
        return [None] * len(screen.rows)
    found = amounts(screen.rows.columns[terms[0].column]).cells
    screen.refuse(found.bad, target, terms[0].column, "an amount of money")
    out: list[Decimal | None] = found.values.to_pylist()
    return out


def _tags(screen: Screen) -> list[str | None]:
    """Tags of each row as one JSON object."""
    names = [term.column for term in screen.plan.terms["user_tags"]]
    columns = [screen.rows.columns[name].to_pylist() for name in names]
    keys = [name.removeprefix(_TAG_PREFIXES[0]).removeprefix(_TAG_PREFIXES[1]) for name in names]
    out: list[str | None] = []
    for i in range(len(screen.rows)):
        own = {k: str(c[i]) for k, c in zip(keys, columns, strict=True) if c[i] not in (None, "")}
        out.append(json.dumps(own, sort_keys=True) if own else None)
    return out
