"""Flags that several commands share."""

from __future__ import annotations

import shlex
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from steptax.app.errors import UserError

if TYPE_CHECKING:  # each takes a quarter of a second, and not every command needs it
    from steptax.app.lake import Lake
    from steptax.app.settings import Settings

#: As in ``queries.opened``, which takes a while to import.
EngineName = Literal["duckdb", "spark"]

LakeFlag = Annotated[
    Path | None,
    typer.Option("--lake", help="root of the lake; else $STEPTAX_LAKE, else ./steptax-lake"),
]
EngineFlag = Annotated[
    EngineName | None,
    typer.Option("--engine", help="duckdb or spark; else $STEPTAX_ENGINE, else duckdb"),
]
MasterFlag = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="of Spark: spark://host:7077, yarn, local[4]"),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="print one JSON object")]
TeamFlag = Annotated[
    list[str] | None,
    typer.Option("--team", help="nothing of any other team is in it; repeat it"),
]
BillRulesFlag = Annotated[
    Path | None,
    typer.Option("--bill-rules", metavar="FILE", help="TOML: [tags] [resources] [rates]"),
]
PriceFlag = Annotated[
    str | None,
    typer.Option("--price", metavar="USD", help="price per GPU-hour in USD; none is assumed"),
]


def settings() -> Settings:
    """What the environment says about this installation."""
    from steptax.app.settings import Settings

    return Settings()


def lake_root(flag: Path | None) -> Path:
    """The lake that was named, or the installation's."""
    return flag if flag is not None else settings().lake


def open_lake(flag: Path | None, *, create: bool = False) -> Lake:
    """The lake that was named, or the installation's; NotFoundError where there is none."""
    from steptax.app.lake import lake_at

    return lake_at(lake_root(flag), create=create)


def price_of(flag: str | None) -> Decimal | None:
    """The price that was given, or the installation's, or None."""
    if flag is None:
        return settings().price_usd_per_gpu_hour
    try:
        price = Decimal(flag.removeprefix("$"))
    except InvalidOperation:
        price = Decimal(-1)
    if not price.is_finite() or price <= 0:
        raise UserError(
            f"expected a price above 0 in USD per GPU-hour, found {flag!r}",
            where="--price",
            hint="for example --price 2.00",
        )
    from steptax.app.compute.calculators.parameter import LARGEST

    if price > LARGEST["USD/GPU-hour"]:
        raise UserError(
            f"expected a price of at most {LARGEST['USD/GPU-hour']:,.0f} USD per GPU-hour, "
            f"found {flag!r}",
            where="--price",
            hint="the price of one GPU for one hour, not of a node or a month",
        )
    return price


def lake_words(flag: Path | None) -> str:
    """What a printed next command needs to find the same lake: `` --lake PATH``, or nothing."""
    if flag is None:
        return ""
    from steptax.app.lake.bucket import place_name

    return f" --lake {shlex.quote(place_name(flag))}"
