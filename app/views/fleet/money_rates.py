"""What a GPU-hour of each job of a fleet costs where no bill says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steptax.app.views.pricing.given import NO_PRICE, price_text
from steptax.app.views.pricing.list_prices import PriceUsed, list_price
from steptax.app.views.pricing.offers import Offer, OfferFilter
from steptax.app.words import count_text

_US_PER_DAY = 86_400 * 1_000_000


@dataclass(frozen=True)
class Rates:
    """The price of each job for which one is known, USD per GPU-hour."""

    of_job: Mapping[str, Decimal]
    used: tuple[PriceUsed, ...]
    unclear: tuple[str, ...]


def rates_of(
    known: Sequence[Offer],
    names: Sequence[str],
    jobs: Mapping[str, Mapping[str, Any]],
    price: Decimal | None,
    wanted: OfferFilter | None,
) -> Rates:
    """The given ``price`` of all, or of each what connected prices say where none is given."""
    of_job: dict[str, Decimal] = {}
    used: Counter[Offer] = Counter()
    unclear: dict[str, None] = {}
    if price is not None:
        return Rates(dict.fromkeys(names, price), (), ())
    asked: dict[tuple[Any, int | None], tuple[Offer | None, str]] = {}
    for name in names:
        job = jobs.get(name, {})
        start = job.get("start_us")
        # Prices hold for days, so that jobs of one device and one day have the same one.
        same = job.get("gpu_model"), None if start is None else start // _US_PER_DAY
        if same not in asked:
            asked[same] = list_price(known, job, wanted)
        offer, reason = asked[same]
        if reason:
            unclear[reason] = None
        if offer is not None:
            used[offer] += 1
            of_job[name] = offer.usd_per_gpu_hour
    shown = tuple(PriceUsed(offer, count) for offer, count in used.most_common())
    return Rates(of_job, shown, tuple(unclear))


def price_basis(price: Decimal | None, rates: Rates, has_offers: bool, bills: int) -> str:
    """Whose price it is that stands in for a bill."""
    if price is not None:
        text = f"given price {price_text(price)}"
        if not rates.of_job:
            return f"{text}, of no job: none has a bill here"
        return f"{text}; connected list prices are not used" if has_offers else text
    listed = sum(one.jobs for one in rates.used)
    if not listed:
        return NO_PRICE
    return f"no price is given: connected list prices for {listed:,} of {count_text(bills, 'job')}"
