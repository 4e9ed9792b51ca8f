"""What a GPU-hour of one job costs, by the rule of every page and command.

A connected bill of a provider wins: it is what was paid. Without one, the price that a reader gives
holds, or the installation's. A connected list price stands in only where nobody gave a price, and
says whose offer it is. So all pages, commands, files and alerts say the same of the same job.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from steptax.app.views.kept import Kept
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import price_text, price_view
from steptax.app.views.pricing.list_prices import PriceUsed, list_price
from steptax.app.views.pricing.offers import load_offers
from steptax.app.views.review.base import review_base
from steptax.app.views.review.costs import lake_tells
from steptax.app.views.review.money import PAID_BY, review_of
from steptax.app.views.workspace import Workspace

_prices: Kept[Price] = Kept(512)


def job_price(ws: Workspace, job_id: str, price: Decimal | None, note: str | None = None) -> Price:
    """The mean price of the whole job, and whose it is; ``price`` and ``note`` are the reader's.

    Looked up anew when a bill, prices or the record of a job changed, and not with every step.
    """
    given = price_view(price, note)
    if not lake_tells(ws, given):
        return given
    versions = [ws.lake.version(name) for name in (*PAID_BY, "jobs")]
    key = (ws.key, job_id, given, *versions)
    return _prices.get(key, lambda: _looked_up(ws, job_id, given))


def price_version(ws: Workspace) -> str:
    """Changes when a bill or a list price has changed."""
    return "-".join(ws.lake.version(name) for name in ("charges", "charge_states", "prices"))


def _looked_up(ws: Workspace, job_id: str, given: Price) -> Price:
    base = review_base(ws)
    review = review_of(ws, base, given)
    if not review.is_priced_by_day or job_id not in base.place:
        return given
    rate = float(review.per_hour[base.place[job_id]])
    if np.isnan(rate):
        return Price(None, f"{review.basis}: {review.no_price}", review.no_price)
    usd = Decimal(repr(rate))
    offer, _ = list_price(load_offers(ws), base.jobs[base.place[job_id]])
    if not review.is_billed and offer is not None:
        return Price(usd, f"no price is given: {PriceUsed(offer, 1).badge}")
    shown = price_text(Decimal(f"{rate:.6g}"))
    return Price(usd, f"{review.basis}: {shown} of this job")
