"""Offers held against each other: which of them look wrong, and which say the same."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Run
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.norows import no_rows

#: A price this many times above or below the middle of its peers is held.
FAR = 10
HELD = "held for a person to accept"


@dataclass(frozen=True)
class OfferBatch(Batch):
    """Offers of a stretch, and the devices of the instance that each is for."""

    counts: tuple[int | None, ...] = ()


class Offers(Run):
    """Holds all offers of a source until its end, and tells which of them do not hold."""

    def __init__(self, *, accept: bool) -> None:
        self._accept = accept
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
        if not self._accept:
            doubts = doubtful(offers)
            for i, why in doubts.items():
                reason = f"{why}: {HELD}; --accept-prices stores it"
                rejects.append(_reject(offers[i], reason, "usd_per_gpu_hour"))
            if doubts:
                notes = (
                    f"{len(doubts):,} prices are {HELD}: look at them, then ingest with "
                    "--accept-prices",
                )
            offers = [offer for i, offer in enumerate(offers) if i not in doubts]
        kept: dict[tuple[Any, ...], dict[str, Any]] = {}
        names = ("provider", "gpu_model", "form_factor", "region", "term", "observed_on")
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
        rows = [{k: v for k, v in row.items() if k != "_count"} for row in kept.values()]
        rejects.sort(key=lambda reject: reject.row or 0)
        found = rows_of("prices", rows) if rows else no_rows("prices")
        yield Batch("prices", found, tuple(rejects), notes)


def doubtful(offers: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Which of ``offers`` a person should look at, by place, and why.

    A price of 0, and one ``FAR`` times or more from the middle (median) of the other offers above 0
    of the same device. Spot and committed prices lie closer to the others than that.
    """
    by_model: dict[str, list[int]] = defaultdict(list)
    out: dict[int, str] = {}
    for i, offer in enumerate(offers):
        if offer["usd_per_gpu_hour"] == 0:
            out[i] = "a price of 0"
        else:
            by_model[str(offer["gpu_model"]).lower()].append(i)
    for places in by_model.values():
        ordered = sorted(offers[i]["usd_per_gpu_hour"] for i in places)
        for i in places if len(places) > 1 else ():
            price: Decimal = offers[i]["usd_per_gpu_hour"]
            others = list(ordered)
            others.remove(price)
            middle = statistics.median(others)
            if price >= FAR * middle or price * FAR <= middle:
                times = float(max(price / middle, middle / price))
                side = "above" if price > middle else "below"
                out[i] = f"{times:.3g} times {side} the middle of the other offers, {middle:.4g}"
    return dict(sorted(out.items()))


def _reject(offer: Mapping[str, Any], reason: str, field: str | None) -> Reject:
    raw = ", ".join(f"{k}={v}" for k, v in offer.items() if v is not None and k[0] != "_")[:500]
    return Reject("prices", reason, offer.get("source_row"), field, raw)
