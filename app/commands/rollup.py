"""``steptax rollup``: days of all devices, from sums that are made as samples are stored."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from steptax.app.commands.options import EngineFlag, JsonFlag, LakeFlag, MasterFlag, lake_root
from steptax.app.commands.output import console, show, table_of
from steptax.app.commands.progress import working
from steptax.app.errors import UserError
from steptax.app.format import format_count, format_share, format_value
from steptax.app.schema.rollups import DAY_US
from steptax.app.views.devices.days import DeviceDay, device_days
from steptax.app.views.warm import warm
from steptax.app.views.workspace import open_workspace

_HEADS = ("day", "devices", "samples", "repeated", "busy", "power", "hottest", "throttled")


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("rollup")(rollup_command)


def rollup_command(
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="first day, UTC, 2026-11-01")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help="last day, UTC, included")
    ] = None,
    engine: EngineFlag = None,
    master: MasterFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What all sampled devices did on each day; what is not summed up yet is first.

    That is sums of samples, and what each job that has ended comes to: pages open faster then.
    """
    ws = open_workspace(lake_root(lake), engine=engine, master=master)
    with working("Summing up segments"):
        made = ws.engine.roll_up()
    with working("Working out what jobs come to"):
        warm(ws)
    days = device_days(
        ws,
        first_us=None if first is None else _day_us(first, "--from"),
        end_us=None if last is None else _day_us(last, "--to") + DAY_US,
    )

    def text() -> None:
        console.print(
            f"{format_count(made)} roll-ups of segments were made"
            if made
            else "every segment was summed up already"
        )
        if not days:
            console.print("no device was sampled then: steptax watch nvml, ... stores samples")
            return
        console.print(table_of("Devices by day (UTC)", _HEADS, [_cells(day) for day in days]))

    show({"summed_up": made, "days": [asdict(day) for day in days]}, as_json=as_json, text=text)


def _cells(day: DeviceDay) -> list[str]:
    hottest = format_value(day.temperature_max_c, "degC")
    return [
        f"{datetime.fromtimestamp(day.day_us / 1e6, UTC):%Y-%m-%d}",
        f"{day.devices:,} on {day.hosts:,} hosts",
        format_count(day.samples),
        format_share(day.stale_samples / day.samples),
        format_share(day.util_ratio),
        format_value(day.power_w, "W"),
        f"{hottest} ({day.hottest})" if day.hottest else hottest,
        format_share(day.throttled_ratio),
    ]


def _day_us(text: str, flag: str) -> int:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise UserError(
            f"expected a day as 2026-11-29, found {text!r}", where=flag, hint="days are UTC"
        ) from None
    return int(day.timestamp()) * 1_000_000
