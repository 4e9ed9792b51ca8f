"""Prices that people enter and accept: who did, and when, stays with each of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

from steptax.app.compute.mfu.device_table import devices
from steptax.app.errors import NotFoundError, UserError
from steptax.app.lake import Lake
from steptax.app.queries import DuckEngine
from steptax.app.schema import table
from steptax.app.settings import Settings
from steptax.app.views.workspace import Workspace
from steptax.connectors.money.offers import Families, doubtful, plain_name

UNKNOWN = "unknown"
_KEY = table("prices").key
_OFFER = (*_KEY, "usd_per_gpu_hour", "source_url")


@dataclass(frozen=True)
class Entry:
    """An offer of the book; one that is held does not count."""

    offer: Mapping[str, Any]
    """Columns of ``prices`` that say what is offered."""
    stored_us: int
    source: str
    held_because: str | None
    accepted_by: str | None
    is_held: bool

    @property
    def name(self) -> str:
        """By which a held offer is accepted: the same for the same offer at the same price."""
        price = f"{self.offer['usd_per_gpu_hour'].normalize():f}"
        text = "\x1f".join([*(str(self.offer[name]) for name in _KEY), price])
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """As ``steptax prices`` prints it."""
        return {
            "id": self.name,
            **self.offer,
            "held_because": self.held_because,
            "accepted_by": self.accepted_by,
            "stored_us": self.stored_us,
            "source": self.source,
        }


def entries(ws: Workspace, *, history: bool = False) -> tuple[Entry, ...]:
    """Offers that count: of each the newest day, with ``history`` every day."""
    rows = [_entry(row, is_held=False) for row in ws.engine.run("price_book").to_pylist()]
    if history:
        return tuple(rows)
    newest = {tuple(r.offer[n] for n in _KEY if n != "observed_on"): r for r in rows}
    return tuple(newest.values())  # the query gives the days of an offer in order


def peers(lake: Lake) -> str:
    """What offers of a file are held against beside each other: JSON of [device, price] pairs."""
    ws = Workspace(lake, DuckEngine(lake), Settings())
    pairs = [[_named(one.offer), str(one.offer["usd_per_gpu_hour"])] for one in entries(ws)]
    return json.dumps(pairs)


def _named(offer: Mapping[str, Any]) -> str:
    """Device and form factor, which together tell which device it is."""
    form = offer["form_factor"]
    return str(offer["gpu_model"]) if form == UNKNOWN else f"{offer['gpu_model']} {form}"


@cache
def device_names() -> str:
    """What names of devices mean: JSON of [family, pattern] pairs, for `Families`.

    Devices that one name may mean ("H100": with SXM or PCIe) are of one family.
    """
    family = {row.key: row.key for row in devices()}
    by_name: dict[str, list[str]] = defaultdict(list)
    for row in devices():
        for pattern in row.ambiguous:
            by_name[pattern.pattern].append(row.key)
            short = plain_name(row.key.partition("-")[0])
            if pattern.fullmatch(short):
                by_name[short].append(row.key)
    for keys in by_name.values():
        joined = {family[key] for key in keys}
        family = {k: min(joined) if own in joined else own for k, own in family.items()}
    pairs = []
    for row in devices():
        pairs.append([family[row.key], re.escape(plain_name(row.key))])
        pairs += [[family[row.key], p.pattern] for p in (*row.names, *row.ambiguous)]
    return json.dumps(pairs)


def held(ws: Workspace) -> tuple[Entry, ...]:
    """Offers that look wrong and that nobody accepted."""
    return tuple(_entry(row, is_held=True) for row in ws.engine.run("held_prices").to_pylist())


def _entry(row: Mapping[str, Any], *, is_held: bool) -> Entry:
    return Entry(
        {name: row[name] for name in _OFFER},
        row["ingested_at_us"],
        row["source"],
        row["held_because"],
        row.get("accepted_by"),
        is_held,
    )


def accept(ws: Workspace, names: Sequence[str], by: str) -> tuple[Entry, ...]:
    """Let the held offers called ``names`` count, in the name of ``by``.

    Raises:
        UserError: nobody is named.
        NotFoundError: no held offer is called so; nothing is accepted then.
    """
    _check_person(by)
    waiting = {entry.name: entry for entry in held(ws)}
    missing = [name for name in names if name not in waiting]
    if missing:
        raise NotFoundError(
            f"no price is held as {missing[0]!r}",
            where=ws.place,
            hint=f"steptax prices held lists them: {', '.join(waiting) or 'none'}",
        )
    chosen = [waiting[name] for name in dict.fromkeys(names)]
    rows = [
        {**one.offer, "held_because": one.held_because, "accepted_by": by.strip()} for one in chosen
    ]
    _append(ws, "prices", rows, "accepted by hand")
    return tuple(chosen)


def add(ws: Workspace, offer: Mapping[str, Any], by: str) -> Entry:
    """Enter one offer by hand; one that is 0 or far off the others of its device is held.

    ``offer`` has the columns of ``prices`` that say what is offered; what it leaves out is unknown.

    Raises UserError for a price below 0, a day that is none, or where nobody is named.
    """
    _check_person(by)
    full = {name: str(offer.get(name) or UNKNOWN).strip() for name in _KEY}
    price: Decimal = offer["usd_per_gpu_hour"]
    if not price.is_finite() or price < 0:
        raise UserError(f"expected a price of at least 0, found {price}", where="--price")
    try:
        date.fromisoformat(full["observed_on"])
    except ValueError:
        raise UserError(
            f"there is no day {full['observed_on']!r}",
            where="--observed-on",
            hint="write it as 2026-11-01",
        ) from None
    full_row: dict[str, Any] = full | {
        "usd_per_gpu_hour": price,
        "source_url": offer.get("source_url"),
    }
    others = [
        dict(one.offer)
        for one in entries(ws)
        if any(one.offer[name] != full[name] for name in _KEY if name != "observed_on")
    ]
    why = doubtful([full_row, *others], Families(device_names())).get(0)
    name = "prices" if why is None else "held_prices"
    said = {"accepted_by": by.strip()} if why is None else {"held_because": why}
    _append(ws, name, [full_row | said], f"by hand: {by.strip()}")
    return Entry(full_row, 0, f"by hand: {by.strip()}", why, said.get("accepted_by"), bool(why))


def _check_person(by: str) -> None:
    if not by.strip():
        raise UserError("nobody is named", where="--by", hint="say who: --by ann")


def _append(ws: Workspace, name: str, rows: Sequence[Mapping[str, Any]], source: str) -> None:
    spec = table(name)
    columns = {
        column.name: pa.array([row.get(column.name) for row in rows], column.type)
        for column in spec.columns
        if column.name in rows[0]
    }
    ws.lake.append(name, pa.table(columns), source=source)
