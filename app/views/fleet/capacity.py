"""Devices that were there and not used, and error budgets that are being used up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.spend.budget import Period
from steptax.app.errors import NotFoundError
from steptax.app.format import format_measure, format_share
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.models import BurnRow, Capacity, InventoryRow
from steptax.app.views.review.budget import ALL, BudgetEntry, budget_entries, budget_view
from steptax.app.views.review.burn_words import burning_text, error_budget_text, hours_text
from steptax.app.views.workspace import Workspace

NO_BILL = "no bill is connected, so that what was paid beyond the jobs is unknown"
NO_UTILISATION = "no samples of devices with a utilisation are connected"
NO_SLO = "no objective is set: steptax budget set --goodput-slo 0.9 --period 2026-11"
#: Scopes whose burn is worked out: each takes a bill of its own.
MOST_SCOPES = 8


def capacity(ws: Workspace, price: Decimal | None) -> Capacity:
    """What nobody held, from the bill of the provider, and what was idle, from samples."""
    hours, share, usd = _unallocated(ws, price)
    none = Measure.missing("ratio", NO_UTILISATION)
    empty = Capacity(hours, share, usd, none, none, 0, 0, _inventory(ws))
    if not ws.lake.segments("device_samples"):
        return empty
    (row,) = ws.engine.run("fleet_idle").to_pylist()
    devices, hosts = int(row["devices"] or 0), int(row["hosts"] or 0)
    if not row["samples"]:
        return replace(empty, devices=devices, hosts=hosts)
    said = ("of samples, whether or not a job held the device", *_stale(row["stale_samples"]))
    return replace(
        empty,
        idle=Ratio(row["idle_samples"] / row["samples"], level=Level.DEVICE, warnings=said),
        utilisation=Ratio(min(row["util_ratio"], 1.0), level=Level.DEVICE, warnings=said),
        devices=devices,
        hosts=hosts,
    )


def _stale(samples: int) -> tuple[str, ...]:
    if not samples:
        return ()
    return (
        f"{samples:,} samples of hours and minutes in which nothing of a device moved are left "
        "out: a collector repeated what it knew",
    )


def _inventory(ws: Workspace) -> tuple[InventoryRow, ...]:
    if not ws.lake.segments("nodes"):
        return ()
    rows = ws.engine.run("fleet_inventory").to_pylist()
    return tuple(InventoryRow(**row) for row in rows)


def _unallocated(ws: Workspace, price: Decimal | None) -> tuple[Measure, Measure, Measure]:
    reason = NO_BILL
    if ws.lake.segments("charges"):
        bill = fleet_bill(ws, by="cluster", price=price)
        lines = () if bill.total is None else bill.total.lines
        line = next((x for x in lines if x.bucket == "unallocated"), None)
        if line is not None and line.gpu_seconds is not None and line.share is not None:
            usd = Measure.missing("USD", "the bill does not tell what it cost, in USD")
            if line.cost is not None and bill.currency == "USD":
                usd = Measure(float(line.cost), "USD", level=Level.LOG)
            hours = Measure(line.gpu_seconds / 3600, "GPU-hours", level=Level.LOG)
            return hours, Ratio(line.share, level=Level.LOG), usd
        said = [text for text in bill.warnings if "nobody held" in text or "unallocated" in text]
        reason = (line.note if line is not None else "") or "; ".join(said) or NO_BILL
    hours, share, usd = (Measure.missing(u, reason) for u in ("GPU-hours", "ratio", "USD"))
    return hours, share, usd


def burns(
    ws: Workspace, price: Decimal | None, now_us: int | None = None
) -> tuple[tuple[BurnRow, ...], str | None]:
    """Burn rates of every scope with an objective, those that ring first, or why none are."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    chosen = objectives(ws, now)
    if not chosen:
        return (), NO_SLO
    rows = []
    for entry in chosen[:MOST_SCOPES]:
        try:
            rows.append(burn_of(ws, entry, price, now))
        except NotFoundError:  # no job of that scope is left
            continue
    rows.sort(key=lambda r: (not any(b.rings for b in r.burns), -(r.week_burn.value or 0.0)))
    left = len(chosen) - MOST_SCOPES
    return tuple(rows), f"{left} more scopes: steptax budget show" if left > 0 else None


def objectives(ws: Workspace, now_us: int) -> list[BudgetEntry]:
    """The objective of each scope that counts at ``now_us``."""
    today = datetime.fromtimestamp(now_us / 1e6, UTC).date()
    chosen: dict[str, BudgetEntry] = {}
    for entry in sorted(budget_entries(ws), key=lambda e: Period.read(e.period).last):
        period = Period.read(entry.period)
        # The newest period that has begun; of those that run, the shortest.
        if entry.goodput_slo_ratio is not None and period.first <= today:
            known = chosen.get(entry.scope)
            if known is None or not _runs(known, today) or period.days < _days(known):
                chosen[entry.scope] = entry
    return list(chosen.values())


def burn_of(ws: Workspace, entry: BudgetEntry, price: Decimal | None, now_us: int) -> BurnRow:
    """Burn rates of the scope that ``entry`` sets an objective for; NotFoundError without jobs."""
    view = budget_view(ws, scope=entry.scope, period=entry.period, price=price, now_us=now_us)
    assert view.goodput_slo_ratio is not None
    errors = view.errors
    return BurnRow(
        entry.scope,
        entry.period,
        view.goodput_slo_ratio,
        errors.goodput_ratio,
        view.burns,
        errors.week_burn,
        errors.left_usd,
        errors.lasts_days,
    )


def standing_text(row: BurnRow) -> str:
    """How the goodput of a scope stands against its objective in the period."""
    who = "all jobs" if row.scope == ALL else row.scope.replace(":", " ")
    objective = format_share(row.goodput_slo_ratio)
    if row.goodput.value is None:
        return f"The objective of {who} in {row.period} is a goodput of {objective}."
    goodput = format_measure(row.goodput)
    text = f"Goodput of {who} in {row.period} is {goodput}, against an objective of {objective}"
    if row.left_usd.value is not None:
        text += f"; {error_budget_text(row.left_usd, row.lasts_days)}"
    return f"{text}."


def _runs(entry: BudgetEntry, today: date) -> bool:
    period = Period.read(entry.period)
    return period.first <= today <= period.last


def _days(entry: BudgetEntry) -> int:
    return Period.read(entry.period).days


def burning(rows: Sequence[BurnRow]) -> list[str]:
    """What is said of scopes that lose too much in these hours, or more than lasts."""
    said = []
    for row in rows:
        name = f"the error budget of {row.scope} in {row.period}"
        ringing = [one for one in row.burns if one.rings]
        if ringing:
            worst = ringing[0]
            said.append(
                f"{name} burns at {format_measure(worst.rate)} over "
                f"{hours_text(worst.window.hours)}, where {worst.level:g}× is an alarm"
            )
        elif text := burning_text(row.week_burn):
            said.append(f"{name} {text}")
    return said
