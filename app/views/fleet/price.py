"""What GPU-hours of a fleet's jobs cost, by the rule of every page (``job_price``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan

from steptax.app.compute.measure import Measure
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import NO_PRICE, dollars
from steptax.app.views.review.base import review_base
from steptax.app.views.review.costs import lake_tells
from steptax.app.views.review.money import review_of
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text


@dataclass(frozen=True)
class FleetPrice:
    """The price of each job: that of a bill, else the given one, else of a connected list."""

    shown: Price
    of_job: Mapping[str, float] | None = None
    """USD per GPU-hour, where a bill or lists say it; None where one price is that of all jobs."""

    def usd(self, hours: Measure, own: Iterable[tuple[str, float | None]]) -> Measure:
        """What ``hours`` cost, which are the sum of those that ``own`` says by job."""
        if hours.value is None or self.of_job is None:
            return dollars(hours, self.shown)
        held = [(job, h) for job, h in own if h]
        priced = [h * rate for job, h in held if (rate := self.of_job.get(job)) is not None]
        if held and not priced:
            return Measure.missing("USD", self.shown.no_price or NO_PRICE, level=hours.level)
        left = len({job for job, _ in held if job not in self.of_job})
        said = (f"without {count_text(left, 'job')} whose cost is not known",) if left else ()
        return Measure(sum(priced), "USD", level=hours.level, inputs=("price",), warnings=said)


def fleet_price(ws: Workspace, given: Price) -> FleetPrice:
    """The prices of all jobs of a lake; ``given`` is the reader's."""
    if not lake_tells(ws, given):
        return FleetPrice(given)
    base = review_base(ws)
    review = review_of(ws, base, given)
    if not review.is_priced_by_day:
        return FleetPrice(given)
    rates = zip(base.place, review.per_hour.tolist(), strict=True)
    known = {job_id: rate for job_id, rate in rates if not isnan(rate)}
    return FleetPrice(Price(None, review.basis, review.no_price), known)
