"""``prices``: dated offers of devices; what looks wrong is held for a person to accept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.money.amounts import amounts, currency_code
from steptax.connectors.money.bill import filled
from steptax.connectors.money.offers import FAR, MOST_USD, OfferBatch, Offers
from steptax.connectors.money.price_targets import (
    AMOUNTS,
    COUNT,
    CURRENCY,
    DAY,
    PRICE,
    PROVIDER,
    SPOT_PRICE,
    TARGETS,
    WHOLE_PRICE,
)
from steptax.connectors.tables.cells import Cells, moments_us
from steptax.connectors.tables.columns import (
    Plan,
    describe,
    lacking,
    make_plan,
    plain,
    unused_note,
)
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

#: Option that stores doubtful prices: who accepts them.
ACCEPT = "accept_prices"
OBSERVED = "observed_on"
SELLER = "provider"
_TERMS = {
    "ondemand": "on-demand",
    "on_demand": "on-demand",
    "on demand": "on-demand",
    "payg": "on-demand",
    "preemptible": "spot",
    "interruptible": "spot",
}


class PricesConnector(TabularConnector):
    """Rows of ``prices``, each from one offer."""

    kind = "prices"
    version = 3
    title = (
        "dated offers of GPUs by provider, form factor, region and term: CSV, JSON Lines, Parquet"
    )
    table = "prices"
    targets = TARGETS
    doc = (
        "One offer per row, in CSV, TSV, JSON Lines (these also packed by gzip) or Parquet. The "
        "price is of one device and hour, or of an instance and hour together with its devices. "
        "Catalogues of SkyPilot are read with --provider NAME; their spot prices are offers too. "
        "USD only: no exchange rate is assumed. Every price has a day: its column, or "
        "--observed-on 2026-11-01. Where form factor, region, term or segment are not said they "
        "are 'unknown'.\n"
        f"A price of a day to come, of 0, or {FAR} times above or below the middle of the other "
        "offers of its device (by whatever name) in the file and in the lake, is held; so is the "
        "first price of "
        f"a device {FAR} times above that of the dearest other one, or above {MOST_USD} USD where "
        "no other is known. A held price is rejected and does not count until "
        "`steptax prices accept` or ingesting the file again with --accept-prices takes it. Of "
        "several offers that differ only in the size of the instance the largest is kept. "
        "Targets:\n" + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when a table has no seller, device or price."""
        self.first_rows(source, options)
        return Capabilities(
            ("prices", "held_prices"),
            0,
            "what devices are offered for, where, on which terms and when",
            "what was paid: that is in a bill; whether an offer was available",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when something needed is not there."""
        plan = make_plan(TARGETS, header, options, where)
        needed = [t for t in lacking(TARGETS, plan) if t is not PROVIDER]
        if needed or (PROVIDER.name not in plan.terms and SELLER not in options.extra):
            require(TARGETS, plan, header, where)
        plan = _whose_price(plan, where)
        if PRICE.name not in plan.terms and not {WHOLE_PRICE.name, COUNT.name} <= plan.terms.keys():
            raise InputError(
                f"no column for the price of a device; the file has {', '.join(header.columns)}",
                where=where,
                hint="say which one it is: --map usd_per_gpu_hour=COLUMN, or --map "
                "usd_per_hour=COLUMN --map gpu_count=COLUMN",
            )
        _day_of(options)
        return replace(plan, notes=unused_note(plan))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Offers and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        count = len(rows)
        values = {t.column: screen.values(t) for t in TARGETS if t not in AMOUNTS}
        _refuse_other_money(screen, values.pop(CURRENCY.column))
        counts = values[COUNT.column]
        spot = _spot_price(screen, plan, counts)
        values[PRICE.column] = _price(screen, plan, counts, spot)
        if values[PROVIDER.column] is None:
            values[PROVIDER.column] = filled(None, None, count, options.extra[SELLER])
        for name in ("form_factor", "region", "segment"):
            values[name] = filled(values[name], None, count, "unknown")
        usual = "on-demand" if spot is not None or _is_catalogue(plan) else "unknown"
        values["term"] = filled(values["term"], None, count, usual)
        terms = values["term"]
        assert terms is not None
        named = [_TERMS.get(word.lower(), word) for word in terms.values.to_pylist()]
        values["term"] = Cells(pa.array(named, pa.string()), terms.null, terms.bad)
        values[DAY.column] = _days(screen, plan, values[DAY.column], _day_of(options))
        priced = _kept_with_price(screen, values)
        if spot is not None:
            named_spot = filled(None, None, count, "spot")
            of_spot = {**values, PRICE.column: spot, "term": named_spot}
            priced = pa.concat_tables([priced, _kept_with_price(screen, of_spot)])
        counted = priced["gpus"].to_pylist() if counts is not None else [None] * len(priced)
        notes = (*plan.notes, *rows.notes)
        good = priced.drop_columns("gpus")
        return [OfferBatch(self.table, good, screen.rejects(), notes, tuple(counted))]

    def begin(self, source: Path, options: Options) -> Run:
        """Holds all offers: only together do they show which one is far off."""
        return Offers(accepted_by=options.extra.get(ACCEPT), extra=options.extra)


def _whose_price(plan: Plan, where: str) -> Plan:
    """``plan`` with a column that is only called price read as what it is.

    Beside the devices of an instance it may be of either. In catalogues of SkyPilot it is of the
    instance (https://github.com/skypilot-org/skypilot-catalog); elsewhere InputError.
    """
    told, counts = plan.terms.get(PRICE.name, ()), plan.terms.get(COUNT.name, ())
    if not told or not counts or plain(told[0].column) != "price":
        return plan
    if not _is_catalogue(plan):
        raise InputError(
            f"column {told[0].column!r} may be the price of a device or of the whole instance",
            where=where,
            hint=f"say which: rename it to usd_per_gpu_hour or usd_per_hour, or pass --map "
            f"usd_per_hour={told[0].column}",
        )
    rest = {name: own for name, own in plan.terms.items() if name != PRICE.name}
    return replace(plan, terms={**rest, WHOLE_PRICE.name: told})


def _is_catalogue(plan: Plan) -> bool:
    """Whether a file is a catalogue of SkyPilot, whose Price is what an instance costs on demand.

    https://github.com/skypilot-org/skypilot-catalog
    """
    counts = plan.terms.get(COUNT.name, ())
    return bool(counts) and plain(counts[0].column) == "acceleratorcount"


def _spot_price(screen: Screen, plan: Plan, counts: Cells | None) -> Cells | None:
    """The price of one device at spot; None where the file has no column for it."""
    terms = plan.terms.get(SPOT_PRICE.name)
    if not terms:
        return None
    got = amounts(screen.rows.columns[terms[0].column]).cells
    screen.refuse(got.bad, SPOT_PRICE, terms[0].column, "a price")
    low = np.array([v is not None and v < 0 for v in got.values.to_pylist()], bool)
    screen.refuse(low, SPOT_PRICE, terms[0].column, "a price of at least 0")
    if WHOLE_PRICE.name in plan.terms and counts is not None:
        got = _shared(got, counts)
    return got


def _kept_with_price(screen: Screen, values: dict[str, Any]) -> pa.Table:
    """The accepted rows that have a price, with the devices of their instance as ``gpus``."""
    counts = values.get(COUNT.column)
    rest = {name: own for name, own in values.items() if name != COUNT.column}
    rows = screen.keep(rest)
    gpus = pa.nulls(len(rows), pa.int64()) if counts is None else screen.kept(counts)
    rows = rows.append_column("gpus", gpus)
    return rows.filter(pc.is_valid(rows[PRICE.column]))


def _price(screen: Screen, plan: Plan, counts: Cells | None, spot: Cells | None) -> Cells:
    """The price of one device; stated, or that of the instance over its devices.

    A row without any is refused, unless it has one at ``spot``.
    """
    found: Cells | None = None
    for target in (PRICE, WHOLE_PRICE):
        terms = plan.terms.get(target.name)
        if not terms:
            continue
        column = screen.rows.columns[terms[0].column]
        got = amounts(column).cells
        screen.refuse(got.bad, target, terms[0].column, "a price")
        low = [v is not None and v < 0 for v in got.values.to_pylist()]
        screen.refuse(np.array(low, bool), target, terms[0].column, "a price of at least 0")
        if target is WHOLE_PRICE:
            if counts is None:
                continue
            got = _shared(got, counts)
        if found is None:
            found = got
        else:
            values = pa.array(
                [a if a is not None else b for a, b in _pairs(found, got)], got.values.type
            )
            found = Cells(values, found.null & got.null, found.bad)
    assert found is not None  # the plan has one of them
    term = (plan.terms.get(PRICE.name) or plan.terms[WHOLE_PRICE.name])[0].column
    gone = found.null if spot is None else found.null & spot.null
    screen.refuse(gone, PRICE, term, "a price")
    return found


def _pairs(first: Cells, second: Cells) -> Iterator[tuple[Any, Any]]:
    yield from zip(first.values.to_pylist(), second.values.to_pylist(), strict=True)


def _shared(whole: Cells, counts: Cells) -> Cells:
    """Prices of instances over their devices, to the twelfth place."""
    out: list[Decimal | None] = []
    gone = counts.null | counts.bad
    for price, count, lost in zip(
        whole.values.to_pylist(), counts.values.tolist(), gone.tolist(), strict=True
    ):
        if price is None or lost or count < 1:
            out.append(None)
        else:
            exact = round(Fraction(price) / int(count) * 10**12)
            out.append(Decimal(exact).scaleb(-12))
    null = np.array([value is None for value in out], bool)
    return Cells(pa.array(out, whole.values.type), null, whole.bad)


def _refuse_other_money(screen: Screen, cells: Cells | None) -> None:
    if cells is None:
        return
    words = cells.values.to_pylist()
    other = np.array([w is not None and currency_code(w) not in ("USD", "$") for w in words], bool)
    column = screen.plan.terms[CURRENCY.name][0].column
    screen.refuse(other, CURRENCY, column, "USD: no exchange rate is assumed")


def _days(screen: Screen, plan: Plan, cells: Cells | None, given: str | None) -> Cells:
    """The day of each offer as ISO text."""
    count = len(screen.rows)
    terms = plan.terms.get(DAY.name)
    none = np.zeros(count, bool)
    if not terms or cells is None:
        if given is None and count:
            screen.refuse_because(~screen.failed, DAY.name, [_NO_DAY] * int((~screen.failed).sum()))
        return Cells(pa.array([given or ""] * count, pa.string()), none, none)
    found = moments_us(screen.rows.columns[terms[0].column], None)
    screen.refuse(found.bad, DAY, terms[0].column, "a day such as 2026-11-01")
    if given is None:
        mask = found.null & ~screen.failed
        screen.refuse_because(mask, DAY.name, [_NO_DAY] * int(mask.sum()))
    values = np.where(found.null | found.bad, 0, found.values).astype("datetime64[us]")
    days = np.datetime_as_string(values, unit="D").tolist()
    told = [given or "" if lost else day for day, lost in zip(days, found.null, strict=True)]
    return Cells(pa.array(told, pa.string()), none, none)


_NO_DAY = "expected the day of the offer, found none: pass --observed-on"


def _day_of(options: Options) -> str | None:
    """The day that the person gives; InputError for none that exists."""
    given = options.extra.get(OBSERVED)
    if given is None:
        return None
    try:
        return date.fromisoformat(given).isoformat()
    except ValueError:
        raise InputError(
            f"there is no day {given!r}", where="--observed-on", hint="write it as 2026-11-01"
        ) from None
