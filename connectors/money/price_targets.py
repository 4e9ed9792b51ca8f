"""What an offer is read from."""

from __future__ import annotations

from steptax.connectors.money.bill import text_target
from steptax.connectors.tables.columns import INT32_MAX, Kind, Target

PROVIDER = Target(
    "provider",
    "provider",
    Kind.TEXT,
    "seller; where no column names it, --provider",
    ("seller", "vendor", "cloud"),
    required=True,
)
MODEL = Target(
    "gpu_model",
    "gpu_model",
    Kind.TEXT,
    "device",
    ("gpu", "gpu_name", "accelerator", "acceleratorname", "accelerator_name", "device"),
    required=True,
)
PRICE = text_target(
    "usd_per_gpu_hour",
    "USD for one device and hour",
    "price_per_gpu_hour",
    "price",
    "usd_per_gpu_h",
)
WHOLE_PRICE = text_target(
    "usd_per_hour",
    "USD an hour for the whole instance; with its devices it gives the price of one",
    "price_per_hour",
    "instance_price",
)
SPOT_PRICE = text_target(
    "spot_usd_per_hour",
    "the same at the price of spot: an offer of its own, of the instance where the price is",
    "spotprice",
    "spot_price",
)
COUNT = Target(
    "gpu_count",
    "gpu_count",
    Kind.WHOLE,
    "devices of the instance",
    ("gpus", "num_gpus", "acceleratorcount", "accelerator_count"),
    floor=1,
    ceiling=INT32_MAX,
)
DAY = text_target(
    "observed_on", "day of the offer, ISO; else --observed-on", "observed", "date", "as_of"
)
CURRENCY = text_target("currency", "ISO 4217; only USD is stored", "billing_currency")
TARGETS = (
    PROVIDER,
    MODEL,
    text_target("form_factor", "SXM, PCIe, NVL, ...", "form", "interconnect"),
    text_target("region", "region", "location", "zone"),
    text_target("term", "on-demand, spot, 1y, 3y, ...", "pricing", "price_type", "commitment"),
    DAY,
    PRICE,
    WHOLE_PRICE,
    SPOT_PRICE,
    COUNT,
    CURRENCY,
    text_target("segment", "hyperscaler, neocloud, marketplace", "kind", "series"),
    text_target("source_url", "where it was seen", "source", "url"),
)
#: Targets that are amounts.
AMOUNTS = (PRICE, WHOLE_PRICE, SPOT_PRICE)
