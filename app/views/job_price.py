"""What a GPU-hour of one job costs, by the rule of every page: who pays says so before who guesses.

A connected bill of a provider wins over connected list prices, and they over the price that a
reader gives. So the page of a job and the cost review say the same of the same job.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from steptax.app.views.kept import Kept
from steptax.app.views.models import Price
from steptax.app.views.price import price_text, price_view
from steptax.app.views.review_base import review_base
from steptax.app.views.review_money import PAID_BY, review_of
from steptax.app.views.workspace import Workspace

_prices: Kept[Price] = Kept(512)


def job_price(ws: Workspace, job_id: str, price: Decimal | None, note: str | None = None) -> Price:
    """The mean price of the whole job, and whose it is; ``price`` and ``note`` are the reader's.

    Looked up anew when a bill, prices or the record of a job changed, and not with every step.
    """
    given = price_view(price, note)
    if not any(ws.lake.segments(name) for name in ("charges", "prices")):
        return given
    versions = [ws.lake.version(name) for name in (*PAID_BY, "jobs")]
    key = (ws.key, job_id, given, *versions)
    return _prices.get(key, lambda: _looked_up(ws, job_id, given))


def _looked_up(ws: Workspace, job_id: str, given: Price) -> Price:
    base = review_base(ws)
    review = review_of(ws, base, given)
    if not review.is_priced_by_day or job_id not in base.place:
        return given
    rate = float(review.per_hour[base.place[job_id]])
    if np.isnan(rate):
        return Price(None, f"{review.basis}: {review.no_price}", review.no_price)
    usd = Decimal(repr(rate))
    shown = price_text(Decimal(f"{rate:.6g}"))
    return Price(usd, f"{review.basis}: {shown} of this job")
