"""``steptax procure``: what other devices would cost for your job, or for a public benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.errors import UserError
from steptax.app.format import (
    UNKNOWN,
    format_alike,
    format_count,
    format_measure,
    format_usd,
    format_value,
)
from steptax.app.views.pricing.offers import OfferFilter, device_named, load_offers, price_history
from steptax.app.views.procurement.models import Option, Procurement
from steptax.app.views.procurement.public_results import (
    benchmark_procurement,
    load_results,
    scale_of,
)
from steptax.app.views.procurement.text import COLUMN_TITLES, COVERAGE
from steptax.app.views.procurement.view import RESULT_STEPS, job_procurement
from steptax.app.views.workspace import open_workspace

ProviderFlag = Annotated[str | None, typer.Option("--provider", help="offers of this seller only")]
SegmentFlag = Annotated[
    str | None, typer.Option("--segment", help="hyperscaler, neocloud, marketplace, ...")
]
TermFlag = Annotated[str | None, typer.Option("--term", help="on-demand, spot, 1y, 3y, ...")]
RegionFlag = Annotated[str | None, typer.Option("--region", help="offers of this region only")]
OnFlag = Annotated[
    str | None,
    typer.Option("--on", metavar="DATE", help="prices as of this day; else the newest"),
]
RoundFlag = Annotated[str | None, typer.Option("--round", help="results of this round only, 5.1")]
BenchmarkFlag = Annotated[str, typer.Option("--benchmark", help="what was trained")]
#: Columns of the terminal's table; --json has them all.
_SHOWN = 5
#: Devices that are named beside a note.
_NAMED = 3
#: Measures that are shown with their band; of the others --json has it.
_WITH_BAND = ("usd_per_result", "speedup")

procure = typer.Typer(
    help="What other devices would cost: for your job, or for a public benchmark.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(procure, name="procure")


@procure.command("job")
def job_command(
    job: Annotated[str, typer.Option("--job", help="job in the lake, as steptax jobs lists it")],
    gpu_model: Annotated[
        str | None, typer.Option("--gpu-model", help="device it ran on, where that is not known")
    ] = None,
    steps: Annotated[
        int, typer.Option("--result-steps", min=1, help="useful steps that make up one result")
    ] = RESULT_STEPS,
    price: PriceFlag = None,
    provider: ProviderFlag = None,
    segment: SegmentFlag = None,
    term: TermFlag = None,
    region: RegionFlag = None,
    on: OnFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Your job on every device that is offered: cost, time, and the price that breaks even."""
    view = job_procurement(
        open_workspace(lake_root(lake)),
        job,
        OfferFilter(provider, segment, term, region, _day(on)),
        own_price=price_of(price),
        result_steps=steps,
        gpu_model=gpu_model,
    )
    show(view.as_json(), as_json=as_json, text=lambda: _print(view))


@procure.command("benchmark")
def benchmark_command(
    benchmark: BenchmarkFlag,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="results on so many devices only")
    ] = None,
    round_: RoundFlag = None,
    provider: ProviderFlag = None,
    segment: SegmentFlag = None,
    term: TermFlag = None,
    region: RegionFlag = None,
    on: OnFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """A public training benchmark on every device that ran it, at today's offers."""
    view = benchmark_procurement(
        open_workspace(lake_root(lake)),
        benchmark,
        OfferFilter(provider, segment, term, region, _day(on)),
        gpus=gpus,
        round_=round_,
    )
    show(view.as_json(), as_json=as_json, text=lambda: _print(view))


@procure.command("scale")
def scale_command(
    benchmark: BenchmarkFlag,
    device: Annotated[str, typer.Option("--device", help="key of the device, as H100-SXM")],
    round_: RoundFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What more devices of one kind cost for the same result, from public results."""
    results = load_results(open_workspace(lake_root(lake)))
    key = device_named(device)
    points = scale_of(results, benchmark, key, round_)

    def text() -> None:
        if not points:
            console.print("There are results of one size only: scale has no price here.")
            return
        rows = [
            (
                f"{p.gpus:,}",
                format_value(p.train_s / 3600, "h"),
                format_value(p.gpu_hours, "GPU-hours"),
                format_value(p.premium_ratio, "ratio"),
                format_value(p.speedup, "x"),
                p.system,
            )
            for p in points
        ]
        names = ("devices", "time", "GPU-hours", "more GPU-hours", "as fast", "fastest system")
        print_wide(table_of(f"{benchmark} on {key}", names, rows))

    show({"points": [asdict(p) for p in points]}, as_json=as_json, text=text)


@procure.command("history")
def history_command(
    device: Annotated[str, typer.Option("--device", help="key of the device, as H100-SXM")],
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Prices of a device by day and segment, with the days on which other sellers were seen."""
    key = device_named(device)
    points = price_history(load_offers(open_workspace(lake_root(lake))), key)

    def text() -> None:
        if not points:
            console.print(f"No offer of {key} is in the lake.")
            return
        rows = [
            (
                p.observed_on,
                p.segment,
                format_usd(p.usd_per_gpu_hour),
                format_count(p.offers),
                COVERAGE[p.coverage_changed],
            )
            for p in points
        ]
        names = ("day", "segment", "median", "offers", "coverage")
        print_wide(table_of(key, names, rows))

    show({"points": [asdict(p) for p in points]}, as_json=as_json, text=text)


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"there is no day {text!r}", where="--on", hint="write it as 2026-11-01"
        ) from None


def _print(view: Procurement) -> None:
    console.print(view.sentence)
    shown = view.columns[:_SHOWN]
    names = ("option", "$/GPU-hour", *(COLUMN_TITLES[name] for name in shown), "rests on")
    columns = [_column(view.options, name) for name in shown]
    rows = [
        (
            f"{'* ' if option.on_frontier else '  '}{option.name}",
            UNKNOWN if option.price is None else format_usd(option.price),
            *(column[place] for column in columns),
            option.badge,
        )
        for place, option in enumerate(view.options)
    ]
    print_wide(table_of(f"{view.work}; a result is {view.result}; {view.offers}", names, rows))
    console.print("* no other option is both cheaper and faster")
    for note in (*view.notes, *_notes_of_options(view.options)):
        console.print(f"note: {note}")
    if view.caveat:
        console.print(view.caveat)


def _notes_of_options(options: Sequence[Option]) -> list[str]:
    """Each note once, with whose it is; of many options only how many."""
    of: dict[str, list[str]] = {}
    for option in options:
        for note in option.notes:
            of.setdefault(note, []).append(option.device or option.name)
    said = []
    for note, names in of.items():
        devices = list(dict.fromkeys(names))
        whose = ", ".join(devices) if len(devices) <= _NAMED else f"{len(devices)} devices"
        said.append(f"{whose}: {note}")
    return said


def _column(options: Sequence[Option], name: str) -> tuple[str, ...]:
    """One measure of all options, spans of time in one unit."""
    measures = [option.measures[name] for option in options]
    if name in _WITH_BAND:
        return tuple(UNKNOWN if m.value is None else format_measure(m) for m in measures)
    return format_alike([m.value for m in measures], measures[0].unit) if measures else ()
