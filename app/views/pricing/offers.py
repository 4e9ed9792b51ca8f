"""Dated offers of devices: which device each means, and which one holds on a day."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from steptax.app.compute.mfu.device_table import identify
from steptax.app.errors import NotFoundError, UserError
from steptax.app.views.workspace import Workspace

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Offer:
    """One price on one day; ``devices`` are the keys that it may mean, one if it is clear."""

    provider: str
    gpu_model: str
    devices: tuple[str, ...]
    region: str
    term: str
    segment: str | None
    observed_on: str
    usd_per_gpu_hour: Decimal
    source: str

    @property
    def text(self) -> str:
        """For people: who sells it, on which terms, where, and when that was seen."""
        parts = [self.provider, self.segment, self.term, self.region]
        told = ", ".join(p for p in parts if p and p != UNKNOWN)
        return f"{told}, seen {self.observed_on}"

    @property
    def kind(self) -> str:
        """Segment and term: prices of one kind can be held against each other."""
        return ", ".join(p for p in (self.segment, self.term) if p and p != UNKNOWN)

    @property
    def seller(self) -> str:
        """Who sells it, the kind of offer, and where."""
        region = "" if self.region == UNKNOWN else self.region
        return ", ".join(p for p in (self.provider, self.kind, region) if p)


@dataclass(frozen=True)
class OfferFilter:
    """Which offers count; None: all. ``on`` is the day on which they must hold."""

    provider: str | None = None
    segment: str | None = None
    term: str | None = None
    region: str | None = None
    on: date | None = None

    def takes(self, offer: Offer) -> bool:
        """Whether ``offer`` counts, its day aside."""
        asked = (
            (self.provider, offer.provider),
            (self.segment, offer.segment),
            (self.term, offer.term),
            (self.region, offer.region),
        )
        return all(
            wanted is None or (told is not None and wanted.lower() == told.lower())
            for wanted, told in asked
        )

    @property
    def text(self) -> str:
        """What was asked for, for people."""
        asked = [self.provider, self.segment, self.term, self.region]
        day = "today" if self.on is None else f"{self.on}"
        return ", ".join([*(a for a in asked if a), f"as of {day}"])


@dataclass(frozen=True)
class Priced:
    """The price of a device under a filter: the cheapest offer, and how far the others lie."""

    offer: Offer
    count: int
    low: Decimal
    high: Decimal
    notes: tuple[str, ...] = ()


def load_offers(ws: Workspace) -> tuple[Offer, ...]:
    """Every offer of the lake with a price above 0."""
    return tuple(
        _offer(row)
        for row in ws.engine.run("price_rows").to_pylist()
        if row["usd_per_gpu_hour"] > 0
    )


def _offer(row: dict[str, Any]) -> Offer:
    model, form = row["gpu_model"], row["form_factor"]
    found = identify(model)
    if found.device is None and form not in (None, UNKNOWN, ""):
        better = identify(f"{model} {form}")
        found = better if better.device is not None else found
    devices = (found.device.key,) if found.device is not None else found.candidates
    return Offer(
        provider=row["provider"],
        gpu_model=model if form in (None, UNKNOWN, "") else f"{model} {form}",
        devices=devices,
        region=row["region"],
        term=row["term"],
        segment=row["segment"],
        observed_on=row["observed_on"],
        usd_per_gpu_hour=row["usd_per_gpu_hour"],
        source=row["source_url"] or row["source"],
    )


def holding(
    offers: Iterable[Offer], wanted: OfferFilter, today: date | None = None
) -> tuple[Offer, ...]:
    """The offers that ``wanted`` takes: of each the newest that was seen by its day, else today.

    A price of a day that is yet to come is nobody's offer now. UserError where there are offers
    and none fits, with what there is.
    """
    known = tuple(offers)
    by = (wanted.on or today or datetime.now(UTC).date()).isoformat()
    fitting = [o for o in known if wanted.takes(o)]
    if known and not fitting:
        raise UserError(
            f"no offer is of {wanted.text}",
            where="prices",
            hint="there are " + "; ".join(_kinds_of(known)),
        )
    newest: dict[tuple[str, ...], Offer] = {}
    for offer in fitting:
        if offer.observed_on > by:
            continue
        key = (offer.provider, offer.gpu_model, offer.region, offer.term, offer.segment or "")
        if key not in newest or newest[key].observed_on < offer.observed_on:
            newest[key] = offer
    if fitting and not newest:
        first = min(offer.observed_on for offer in fitting)
        raise UserError(f"no offer was seen by {by}", where="--on", hint=f"the first is of {first}")
    return tuple(newest.values())


def _kinds_of(offers: Sequence[Offer]) -> list[str]:
    kinds = []
    for name in ("provider", "segment", "term", "region"):
        values = sorted({getattr(o, name) for o in offers} - {None, UNKNOWN})
        if values:
            more = "" if len(values) <= 8 else f" and {len(values) - 8} more"
            kinds.append(f"{name}s {', '.join(values[:8])}{more}")
    return kinds


def prices_of_device(offers: Sequence[Offer], key: str) -> tuple[Priced, ...]:
    """What the device ``key`` is offered for: by seller, segment, term and region.

    Cheapest first. An offer that is clear counts before one that leaves the form factor open.
    """
    clear = [o for o in offers if o.devices == (key,)]
    fitting = clear or [o for o in offers if key in o.devices]
    groups: dict[tuple[str, ...], list[Offer]] = {}
    for offer in fitting:
        place = (offer.provider, offer.segment or UNKNOWN, offer.term, offer.region)
        groups.setdefault(place, []).append(offer)
    found = [_cheapest(group, key, is_clear=bool(clear)) for group in groups.values()]
    return tuple(sorted(found, key=lambda p: (p.offer.usd_per_gpu_hour, p.offer.text)))


def _cheapest(offers: Sequence[Offer], key: str, *, is_clear: bool) -> Priced:
    best = min(offers, key=lambda o: (o.usd_per_gpu_hour, o.region))
    prices = [o.usd_per_gpu_hour for o in offers]
    notes: tuple[str, ...] = ()
    if not is_clear:
        others = " or ".join(d for d in best.devices if d != key)
        notes = (f"the offer {best.gpu_model!r} does not say whether it is {key} or {others}",)
    return Priced(best, len(offers), min(prices), max(prices), notes)


def device_named(name: str) -> str:
    """The key of the device that ``name`` means; NotFoundError names those it may mean."""
    found = identify(name)
    if found.device is None:
        raise NotFoundError(
            found.reason or f"there is no device {name!r}",
            where="--device",
            hint=f"name one of {', '.join(found.candidates)}"
            if found.candidates
            else "steptax calc mfu --help lists the devices that are known",
        )
    return found.device.key


@dataclass(frozen=True)
class PricePoint:
    """The middle of what a device was offered for on a day, in a segment."""

    observed_on: str
    segment: str
    usd_per_gpu_hour: float
    offers: int
    coverage_changed: bool | None
    """Not the same sellers as the time before: the level may move without any price moving. None
    where that is not known: an index says nothing of its offers."""


def price_history(offers: Iterable[Offer], key: str) -> tuple[PricePoint, ...]:
    """Median price of the device by day and segment, from offers seen on that very day."""
    days: dict[tuple[str, str], list[Offer]] = {}
    for offer in offers:
        if key in offer.devices:
            days.setdefault((offer.segment or UNKNOWN, offer.observed_on), []).append(offer)
    points = []
    before: dict[str, frozenset[tuple[str, ...]]] = {}
    for (segment, day), found in sorted(days.items()):
        sellers = frozenset((o.provider, o.gpu_model, o.region, o.term) for o in found)
        changed: bool | None = segment in before and before[segment] != sellers
        if all(o.region == UNKNOWN for o in found):
            changed = None
        before[segment] = sellers
        middle = statistics.median(o.usd_per_gpu_hour for o in found)
        points.append(PricePoint(day, segment, float(middle), len(found), changed))
    return tuple(points)
