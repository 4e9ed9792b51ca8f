"""``steptax whatif``: what stragglers cost a job, where they are, and what each repair returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steptax.app.commands.options import JsonFlag, PriceFlag, price_of
from steptax.app.commands.output import console, show
from steptax.app.commands.progress import working
from steptax.app.commands.trace_source import TraceSource, with_source
from steptax.app.errors import UserError

if TYPE_CHECKING:  # half a second that --help need not take
    from steptax.app.views.models import Price
    from steptax.app.views.trace.load import TraceJob
    from steptax.app.whatif.fixes import Fix

ThresholdFlag = Annotated[
    float | None,
    typer.Option(
        "--threshold", min=0.0, help="slowdown from which on it is taken apart; else 1.03"
    ),
]

_PROFILED = "a profiler's trace opens in Perfetto as it is, and has no ideal timeline"

whatif = typer.Typer(
    help="What stragglers cost a job, where they are, and what a repair returns.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(whatif, name="whatif")


@whatif.command("stragglers")
@with_source
def stragglers_command(
    source: TraceSource,
    *,
    threshold: ThresholdFlag = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="with --json: also every field of the OSDI'25 artifact"),
    ] = False,
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What the stragglers of a job cost, by operation, stage, data-parallel rank and worker."""
    opened = source.open(threshold)
    from steptax.app.views.trace.text import as_json as view_json
    from steptax.app.views.trace.text import as_text
    from steptax.app.views.trace.view import trace_view

    view = trace_view(opened, source.price(price_of(price)))
    show(
        view_json(view, opened, published=published) if as_json else None,
        as_json=as_json,
        text=lambda: console.print(as_text(view)),
        warnings=view.warnings if as_json else (),
    )


@whatif.command("fix")
@with_source
def fix_command(
    source: TraceSource,
    *,
    ranks: Annotated[
        str | None, typer.Option("--ranks", "--rank", metavar="R,R", help="global ranks")
    ] = None,
    worst: Annotated[int | None, typer.Option("--worst", min=1, help="the K slowest ranks")] = None,
    stage: Annotated[list[int] | None, typer.Option("--stage", help="pipeline stage")] = None,
    dp_rank: Annotated[
        list[int] | None, typer.Option("--dp-rank", help="data-parallel rank")
    ] = None,
    optype: Annotated[
        list[str] | None, typer.Option("--optype", help="type of operation, e.g. forward-compute")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="FIX", help="any other change, e.g. kernel:*-compute:2"),
    ] = None,
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What comes back if ranks, a stage, an operation ... were like the others; all at once."""
    from steptax.app.whatif.fixes import Fix, FixKind, parse_fix

    fixes = [parse_fix(f"ranks:{ranks}")] if ranks is not None else []
    fixes += [] if worst is None else [Fix(FixKind.WORST, (worst,))]
    fixes += [Fix(FixKind.STAGE, (n,)) for n in stage or []]
    fixes += [Fix(FixKind.DP_RANK, (n,)) for n in dp_rank or []]
    fixes += [parse_fix(f"optype:{name}") for name in optype or []]
    fixes += [parse_fix(text) for text in also or []]
    if not fixes:
        raise UserError(
            "nothing to fix was named",
            where="whatif fix",
            hint="use --ranks 0,7, --worst 1, --stage 3, --dp-rank 1, --optype TYPE or --also FIX",
        )
    opened = source.open()
    _answer(opened, fixes, source.price(price_of(price)), as_json=as_json)


@whatif.command("kernel")
@with_source
def kernel_command(
    source: TraceSource,
    *,
    match: Annotated[str, typer.Option("--match", help="type or name, * and ? as in a shell")],
    speedup: Annotated[float, typer.Option("--speedup", help="2 means twice as fast")],
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What a faster kernel returns once its speed-up has met synchronisation."""
    from steptax.app.whatif.fixes import parse_fix

    fixes = [parse_fix(f"kernel:{match}:{speedup:g}")]
    opened = source.open()
    _answer(opened, fixes, source.price(price_of(price)), as_json=as_json)


@whatif.command("network")
@with_source
def network_command(
    source: TraceSource,
    *,
    speedup: Annotated[float, typer.Option("--speedup", help="2 means twice as fast")],
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What a faster network returns: every transfer and collective is so many times as fast."""
    from steptax.app.whatif.fixes import parse_fix

    fixes = [parse_fix(f"network:{speedup:g}")]
    opened = source.open()
    _answer(opened, fixes, source.price(price_of(price)), as_json=as_json)


@whatif.command("device")
@with_source
def device_command(
    source: TraceSource,
    *,
    speedup: Annotated[
        str, typer.Option("--speedup", metavar="X | R=X,R=X", help="of all devices, or by rank")
    ],
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What faster devices return: computing is so many times as fast, transfers stay."""
    from steptax.app.whatif.fixes import parse_fix

    fixes = [parse_fix(f"device:{speedup}")]
    opened = source.open()
    _answer(opened, fixes, source.price(price_of(price)), as_json=as_json)


@whatif.command("rebalance")
@with_source
def rebalance_command(
    source: TraceSource,
    *,
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="8,8,8,8", help="layers of each stage now"),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="9,9,8,6", help="layers of each stage then")
    ] = None,
    micro_batches: Annotated[
        bool, typer.Option("--micro-batches", help="deal micro-batches evenly, not stages")
    ] = False,
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What balanced stages return, or other layers on the stages, or equal micro-batches."""
    from steptax.app.whatif.fixes import parse_fix

    if (layers is None) != (to is None):
        raise UserError(
            "--layers and --to go together",
            where="--layers" if to is None else "--to",
            hint="for example --layers 8,8,8,8 --to 9,9,8,6",
        )
    texts = ["microbatches"] if micro_batches else []
    if layers is not None:
        texts.append(f"layers:{layers}>{to}")
    elif not micro_batches:
        texts.append("stages")
    fixes = [parse_fix(text) for text in texts]
    opened = source.open()
    _answer(opened, fixes, source.price(price_of(price)), as_json=as_json)


@whatif.command("gc")
@with_source
def gc_command(
    source: TraceSource,
    *,
    price: PriceFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What it returns to have no pauses for garbage collection, recorded or inside passes."""
    from steptax.app.whatif.fixes import Fix, FixKind

    fixes = [Fix(FixKind.GC)]
    opened = source.open()
    _answer(opened, fixes, source.price(price_of(price)), as_json=as_json)


@whatif.command("export")
@with_source
def export_command(
    source: TraceSource,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write, JSON")],
    ideal: Annotated[
        bool, typer.Option("--ideal", help="the ideal timeline beside the recorded one")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the timeline for Perfetto (ui.perfetto.dev) or chrome://tracing."""
    opened = source.open()
    analysis = opened.analysis
    if analysis is None:
        raise UserError(
            f"there is no timeline to export: {opened.no_graph or _PROFILED}",
            where=opened.job_id,
            hint="open the profiler's own file"
            if opened.no_graph is None
            else "record a per-operation trace of a few steps",
        )
    from steptax.app.whatif.chrome import write_chrome

    partial = output.with_name(output.name + ".part")
    try:
        with partial.open("wb") as target:
            done = write_chrome(target, analysis.model, with_ideal=ideal, job=opened.job_id)
        partial.replace(output)
    except OSError as error:
        error.filename, error.filename2 = str(output), None
        raise
    finally:
        partial.unlink(missing_ok=True)
    data = vars(done) | {"path": str(output), "ideal": ideal}
    show(
        data,
        as_json=as_json,
        text=lambda: console.print(
            f"{output}: {done.slices:,} slices on {done.tracks:,} tracks, steps: {done.steps:,}; "
            "open it at ui.perfetto.dev",
        ),
        warnings=opened.notes,
    )


def _answer(opened: TraceJob, fixes: list[Fix], price: Price, *, as_json: bool) -> None:
    from steptax.app.views.trace.rail import rail_answer
    from steptax.app.views.trace.text import answer_as_text

    with working("Simulating"):
        answer = rail_answer(opened, fixes, price.usd_per_gpu_hour)
    show(
        answer.as_json() | {"job": opened.job_id, "steps": opened.steps_note},
        as_json=as_json,
        text=lambda: console.print(answer_as_text(answer)),
        warnings=tuple(dict.fromkeys((*opened.notes, *answer.warnings))),
    )
