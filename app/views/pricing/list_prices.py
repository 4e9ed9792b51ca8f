"""What a job costs at connected list prices, where no bill tells: always with whose price it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from steptax.app.compute.mfu.device_table import identify
from steptax.app.views.pricing.given import price_text
from steptax.app.views.pricing.offers import Offer, OfferFilter


@dataclass(frozen=True)
class PriceUsed:
    """A list price and for how many jobs it stands in."""

    offer: Offer
    jobs: int

    @property
    def badge(self) -> str:
        """What stands beside dollars that rest on it: no bill says so."""
        return f"list price {price_text(self.offer.usd_per_gpu_hour)}: {self.offer.text}"

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        one = self.offer
        return {
            "badge": self.badge,
            "provider": one.provider,
            "gpu_model": one.gpu_model,
            "region": one.region,
            "term": one.term,
            "segment": one.segment,
            "observed_on": one.observed_on,
            "usd_per_gpu_hour": one.usd_per_gpu_hour,
            "source": one.source,
            "jobs": self.jobs,
        }


def list_price(
    offers: Sequence[Offer], job: Mapping[str, Any], wanted: OfferFilter | None = None
) -> tuple[Offer | None, str]:
    """The offer of a job's device on the day it began, or why the offers do not tell it.

    Of the offers that ``wanted`` takes the newest observation up to that day counts. Offers that
    differ on that day cannot be told apart, because a job's record names no provider and no term.
    """
    name = job.get("gpu_model")
    if not offers or not name:
        return None, ""
    own = [o for o in _of_device(offers, name) if wanted is None or wanted.takes(o)]
    start = job.get("start_us")
    if start is not None:
        day = datetime.fromtimestamp(start / 1e6, UTC).strftime("%Y-%m-%d")
        own = [offer for offer in own if offer.observed_on <= day]
    if not own:
        return None, ""
    newest = max(offer.observed_on for offer in own)
    latest = [offer for offer in own if offer.observed_on == newest]
    rates: dict[Decimal, Offer] = {offer.usd_per_gpu_hour: offer for offer in latest}
    if len(rates) > 1:
        return None, (
            f"{len(rates)} connected prices of {name} differ on {newest}, so none of them is used: "
            "--provider, --term, --region or --segment says which"
        )
    return latest[0], ""


def _of_device(offers: Sequence[Offer], name: str) -> list[Offer]:
    """Offers that are clear about the device before those that leave its form factor open."""
    device = identify(name).device
    if device is None:
        return [o for o in offers if o.gpu_model.strip().lower() == name.strip().lower()]
    clear = [o for o in offers if o.devices == (device.key,)]
    return clear or [o for o in offers if device.key in o.devices]
