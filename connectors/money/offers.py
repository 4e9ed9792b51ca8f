"""Offers held against each other: which of them look wrong, and which say the same."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from steptax.app.schema import Batch, Reject, table
from steptax.connectors.base import Run
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.norows import no_rows
from steptax.connectors.wording import said as counted

#: A price this many times above or below the middle of its peers is held.
FAR = 10
HELD = "held for a person to accept"
#: Option with what was offered before, as JSON: pairs of a device and its price.
PEERS = "peers"
#: Option with what names of devices mean, as JSON: pairs of a family and a pattern of its names.
DEVICES = "devices"
#: USD per GPU-hour that the first price of the first device may have.
MOST_USD = Decimal(100)


class Families:
    """Which family of devices a name means: devices that one name may mean are of one family."""

    def __init__(self, names: str | None = None) -> None:
        self._patterns = [(family, re.compile(p)) for family, p in json.loads(names or "[]")]

    def of(self, offer: Mapping[str, Any]) -> str:
        """The family of an offer; of a name that is not known the name, in one spelling."""
        form = offer.get("form_factor")
        plain = plain_name(str(offer["gpu_model"]))
        both = plain if form in (None, "", "unknown") else plain_name(f"{plain} {form}")
        for name in (plain, both):
            for family, pattern in self._patterns:
                if pattern.fullmatch(name):
                    return str(family)
        return plain


def plain_name(name: str) -> str:
    """Lower case, separators as one space, as the patterns expect it."""
    bare = name.lower().replace("(r)", "").replace("(tm)", "")
    return re.sub(r"[\s_\-/]+", " ", bare).strip()


@dataclass(frozen=True)
class OfferBatch(Batch):
    """Offers of a stretch, and the devices of the instance that each is for."""

    counts: tuple[int | None, ...] = ()


class Offers(Run):
    """Holds all offers of a source until its end, and tells which of them do not hold."""

    def __init__(self, *, accepted_by: str | None, extra: Mapping[str, str]) -> None:
        self._accepted_by = accepted_by
        self._families = Families(extra.get(DEVICES))
        self._peers = [
            {"gpu_model": model, "usd_per_gpu_hour": Decimal(price)}
            for model, price in json.loads(extra.get(PEERS, "[]"))
        ]
        self._rows: list[dict[str, Any]] = []

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold the offers back, pass rejects on."""
        assert isinstance(batch, OfferBatch)
        for row, count in zip(batch.rows.to_pylist(), batch.counts, strict=True):
            self._rows.append(row | {"_count": count or 0})
        yield Batch(batch.table, batch.rows.slice(0, 0), batch.rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """The offers that hold, and those that do not, with the reason."""
        rejects: list[Reject] = []
        notes: tuple[str, ...] = ()
        offers = self._rows
        found = doubtful([*offers, *self._peers], self._families)
        doubts = {i: why for i, why in found.items() if i < len(offers)}
        told = [{**offers[i], "held_because": why} for i, why in doubts.items()]
        if self._accepted_by is not None:
            for i, row in zip(doubts, told, strict=True):
                offers[i] = row | {"accepted_by": self._accepted_by}
        else:
            offers = [offer for i, offer in enumerate(offers) if i not in doubts]
            for row in told:
                reason = f"{row['held_because']}: {HELD}"
                rejects.append(_reject(row, reason, "usd_per_gpu_hour"))
            if told:
                notes = (
                    f"{counted(len(told), 'price is', 'prices are')} {HELD}: steptax prices held "
                    f"lists {'it' if len(told) == 1 else 'them'}, steptax prices accept takes "
                    f"{'it' if len(told) == 1 else 'them'}",
                )
                yield Batch("held_prices", rows_of("held_prices", _without_count(told)))
        kept: dict[tuple[Any, ...], dict[str, Any]] = {}
        names = table("prices").key
        for offer in offers:
            key = tuple(offer[name] for name in names)
            before = kept.get(key)
            if before is None or offer["_count"] > before["_count"]:
                kept[key], loser = offer, before
            else:
                loser = offer
            if loser is not None and loser["usd_per_gpu_hour"] != kept[key]["usd_per_gpu_hour"]:
                said = f"{kept[key]['usd_per_gpu_hour'].normalize():f}"
                reason = f"expected one price for the same offer; {said} of the largest is kept"
                rejects.append(_reject(loser, reason, "usd_per_gpu_hour"))
            elif loser is not None:
                rejects.append(_reject(loser, "the same offer again", None))
        rows = _without_count(list(kept.values()))
        rejects.sort(key=lambda reject: reject.row or 0)
        found = rows_of("prices", rows) if rows else no_rows("prices")
        yield Batch("prices", found, tuple(rejects), notes)


def _middle_without(ordered: Sequence[Decimal], place: int) -> Decimal:
    """The median of sorted prices, at least two, but for the one at ``place``."""
    half, odd = divmod(len(ordered) - 1, 2)
    low, high = (ordered[k + (k >= place)] for k in (half if odd else half - 1, half))
    return (low + high) / 2


def _without_count(offers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "_count"} for row in offers]


def doubtful(
    offers: Sequence[Mapping[str, Any]],
    families: Families | None = None,
    *,
    today: date | None = None,
) -> dict[int, str]:
    """Which of ``offers`` a person should look at, by place, and why.

    A price of a day that is not yet anywhere on Earth (``today`` is in UTC), a price of 0, and one
    ``FAR`` times or more from the middle (median) of the other offers above 0 of the same device,
    by whatever name. Spot and committed prices lie closer to the others than that. The only price
    of its device: one ``FAR`` times above the dearest other device (by the median of its offers),
    or above ``MOST_USD`` where no other is known.
    """
    families = families or Families()
    newest = (today or datetime.now(UTC).date()) + timedelta(days=1)
    by_model: dict[str, list[int]] = defaultdict(list)
    out: dict[int, str] = {}
    for i, offer in enumerate(offers):
        if offer["usd_per_gpu_hour"] == 0:
            out[i] = "a price of 0"
        else:
            by_model[families.of(offer)].append(i)
    for places in by_model.values():
        ordered = sorted(offers[i]["usd_per_gpu_hour"] for i in places)
        for i in places if len(places) > 1 else ():
            price: Decimal = offers[i]["usd_per_gpu_hour"]
            middle = _middle_without(ordered, bisect_left(ordered, price))
            if price >= FAR * middle or price * FAR <= middle:
                times = float(max(price / middle, middle / price))
                side = "above" if price > middle else "below"
                out[i] = f"{times:.3g} times {side} the middle of the other offers, {middle:.4g}"
    middles = {
        family: median(offers[i]["usd_per_gpu_hour"] for i in places)
        for family, places in by_model.items()
    }
    for family, places in by_model.items():
        if len(places) > 1:
            continue
        price = offers[places[0]]["usd_per_gpu_hour"]
        others = [middle for name, middle in middles.items() if name != family]
        if others and price >= FAR * max(others):
            out[places[0]] = (
                f"the only price of its device, {float(price / max(others)):.3g} times that of the "
                f"dearest other device, {max(others):.4g}"
            )
        elif not others and price >= MOST_USD:
            out[places[0]] = f"the first price, and above {MOST_USD} USD per GPU-hour"
    for i, offer in enumerate(offers):
        if (offer.get("observed_on") or "") > newest.isoformat():
            out[i] = f"a price of a day to come, {offer['observed_on']}"
    return dict(sorted(out.items()))


def _reject(offer: Mapping[str, Any], reason: str, field: str | None) -> Reject:
    raw = ", ".join(f"{k}={v}" for k, v in offer.items() if v is not None and k[0] != "_")[:500]
    return Reject("prices", reason, offer.get("source_row"), field, raw)
