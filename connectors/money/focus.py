"""``focus``: bills in the FOCUS format, as the clouds export them."""

from __future__ import annotations

from steptax.connectors.money.bill import DELIVERIES, BillConnector, charge_targets, text_target
from steptax.connectors.tables.columns import describe

#: FOCUS 1.0 to 1.2 (https://focus.finops.org/focus-specification/), with names of 0.5
#: and of the preview of 1.0 that exports still have behind.
_NAMES = {
    "provider": ("ProviderName", "ServiceProviderName", "Provider"),
    "invoice": ("InvoiceId",),
    "line": ("Id", "x_LineItemId", "x_ChargeId", "LineItemId"),
    "billing_start_us": ("BillingPeriodStart",),
    "billing_end_us": ("BillingPeriodEnd",),
    "charge_start_us": ("ChargePeriodStart",),
    "charge_end_us": ("ChargePeriodEnd",),
    "billed_cost": ("BilledCost",),
    "effective_cost": ("EffectiveCost", "AmortizedCost"),
    "list_cost": ("ListCost",),
    "contracted_cost": ("ContractedCost",),
    "currency": ("BillingCurrency",),
    "resource_id": ("ResourceId",),
    "sub_account_id": ("SubAccountId",),
    "sku_id": ("SkuId",),
    "service_name": ("ServiceName",),
    "charge_category": ("ChargeCategory", "ChargeType"),
    "pricing_category": ("PricingCategory",),
    "commitment_status": ("CommitmentDiscountStatus",),
    "reservation_status": ("CapacityReservationStatus",),
    "consumed_quantity": ("ConsumedQuantity", "UsageQuantity"),
    "consumed_unit": ("ConsumedUnit", "UsageUnit"),
    "tags": ("Tags",),
    "billing_account": ("BillingAccountId",),
}
TARGETS = (
    *charge_targets(_NAMES),
    text_target(
        "issuer", "who issues the invoice, where no provider is named", "InvoiceIssuerName"
    ),
)


class FocusConnector(BillConnector):
    """Rows of ``charges``, each from one row of a FOCUS file."""

    kind = "focus"
    version = 4
    title = "bills in FOCUS 1.0 to 1.2: CSV (also .gz), JSON Lines, Parquet"
    dialect = "FOCUS"
    targets = TARGETS
    doc = (
        "FOCUS exports of AWS, Azure, Google Cloud, Oracle and others, in CSV, TSV, JSON Lines "
        "(also packed by gzip) or Parquet. Billed (cash), effective (amortised), list and "
        "contracted cost are kept apart, exact to 12 decimal places; credits and refunds are "
        "negative. NULL and empty cells are unknown, not 0. Times without a zone are UTC. Numbers "
        "as 1.234,50 are read where the first costs of the file look like that, or with --decimal "
        "comma.\n"
        + DELIVERIES
        + "An invoice without an id is called by its account and month. The sums of the file are "
        "said, to be held against the invoice; `steptax ledger` divides the effective cost among "
        "jobs by resource and time.\n"
        "FOCUS has no column for GPUs. Targets:\n" + describe(TARGETS)
    )
