"""``steptax prices``: the book of offers, what is held, and who accepted it."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root, open_lake
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.errors import UserError
from steptax.app.price_book import UNKNOWN, Entry, accept, add, entries, held
from steptax.app.views.pricing.given import price_text
from steptax.app.views.workspace import open_workspace
from steptax.app.words import day_text

ByFlag = Annotated[str | None, typer.Option("--by", metavar="NAME", help="who; else the user")]
ModelFlag = Annotated[str | None, typer.Option("--gpu-model", help="offers of this device only")]

prices = typer.Typer(
    help="Dated offers: what counts, what is held for a person to accept.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(prices, name="prices")


@prices.command("list")
def list_command(
    gpu_model: ModelFlag = None,
    provider: Annotated[str | None, typer.Option("--provider", help="of this seller only")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="every day of an offer, not only its newest")
    ] = False,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Offers that count, each with its source and, where it was held, who accepted it."""
    ws = open_workspace(lake_root(lake))
    found = [
        one
        for one in entries(ws, history=history)
        if (gpu_model is None or gpu_model.lower() in one.offer["gpu_model"].lower())
        and (provider is None or provider.lower() == one.offer["provider"].lower())
    ]
    waiting = len(held(ws))
    said = [f"{waiting:,} more are held: steptax prices held lists them"] if waiting else []
    data = [one.as_json() for one in found]
    show(data, as_json=as_json, text=lambda: _print("Prices", found), warnings=said)


@prices.command("held")
def held_command(lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """Offers that look wrong: they count once somebody accepts them by their id."""
    found = held(open_workspace(lake_root(lake)))
    data = [one.as_json() for one in found]
    show(data, as_json=as_json, text=lambda: _print("Held for a person to accept", found))


@prices.command("accept")
def accept_command(
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="as prices held lists them")],
    by: ByFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Let held offers count; who and when stays with each."""
    ws = open_workspace(lake_root(lake))
    found = accept(ws, names, getpass.getuser() if by is None else by)
    data = [one.as_json() for one in found]
    show(data, as_json=as_json, text=lambda: _print("Accepted", found))


@prices.command("add")
def add_command(
    provider: Annotated[str, typer.Option("--provider", help="seller")],
    gpu_model: Annotated[str, typer.Option("--gpu-model", help="device")],
    price: Annotated[str, typer.Option("--price", metavar="USD", help="of one GPU and hour")],
    form_factor: Annotated[str, typer.Option("--form-factor", help="SXM, PCIe, ...")] = UNKNOWN,
    region: Annotated[str, typer.Option("--region", help="region")] = UNKNOWN,
    term: Annotated[str, typer.Option("--term", help="on-demand, spot, 1y, 3y")] = UNKNOWN,
    segment: Annotated[str, typer.Option("--segment", help="hyperscaler, neocloud")] = UNKNOWN,
    observed_on: Annotated[
        str | None, typer.Option("--observed-on", metavar="DATE", help="day; else today")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", help="where it was seen")] = None,
    by: ByFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Enter one offer; a price of 0 or ten times off the others of its device is held."""
    try:
        amount = Decimal(price.removeprefix("$"))
    except InvalidOperation:
        raise UserError(f"expected a price in USD, found {price!r}", where="--price") from None
    open_lake(lake, create=True)
    entry = add(
        open_workspace(lake_root(lake)),
        {
            "provider": provider,
            "gpu_model": gpu_model,
            "form_factor": form_factor,
            "region": region,
            "term": term,
            "segment": segment,
            "observed_on": observed_on or date.today().isoformat(),
            "usd_per_gpu_hour": amount,
            "source_url": source,
        },
        getpass.getuser() if by is None else by,
    )
    said = []
    if entry.is_held:
        said = [f"held: {entry.held_because}; steptax prices accept {entry.name} takes it"]
    data = entry.as_json() | {"held": entry.is_held}
    show(data, as_json=as_json, text=lambda: _print("Entered", [entry]), warnings=said)


def _print(title: str, found: Sequence[Entry]) -> None:
    if not found:
        console.print("There are none.")
        return
    rows = [
        [
            one.name,
            *(str(one.offer[n]) for n in ("provider", "gpu_model", "form_factor", "region")),
            *(str(one.offer[n]) for n in ("term", "segment", "observed_on")),
            price_text(one.offer["usd_per_gpu_hour"]).removesuffix(" per GPU-hour"),
            _story(one),
        ]
        for one in found
    ]
    names = ("id", "provider", "device", "form", "region", "term", "segment", "seen", "per GPU-h")
    print_wide(table_of(title, (*names, "held, accepted"), rows))


def _story(one: Entry) -> str:
    parts = [one.held_because] if one.held_because else []
    if one.accepted_by:
        when = datetime.fromtimestamp(one.stored_us / 1e6, UTC) if one.stored_us else None
        on = f" on {day_text(when)} {when:%H:%M} UTC" if when else ""
        verb = "accepted" if one.held_because else "entered"
        parts.append(f"{verb} by {one.accepted_by}{on}")
    return "; ".join(parts)
