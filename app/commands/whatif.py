"""``steptax whatif``: what stragglers cost a job, where they are, and what each repair returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, show
from steptax.app.errors import UserError

if TYPE_CHECKING:  # half a second that --help need not take
    from steptax.app.views.trace_load import TraceJob
    from steptax.app.whatif.fixes import Fix

JobFlag = Annotated[
    str | None, typer.Option("--job", help="job in the lake, as steptax jobs lists it")
]
TraceFlag = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Parquet file of operations, instead of a job"),
]
MetaFlag = Annotated[
    Path | None, typer.Option("--meta", metavar="FILE", help="sizes of the job of --trace, YAML")
]
UnitFlag = Annotated[
    str, typer.Option("--time-unit", help="unit of start and duration in --trace: s, ms, us, ns")
]
StepsFlag = Annotated[
    str | None,
    typer.Option("--steps", metavar="A-B,C", help="only these steps count; else all that fit"),
]
ClocksFlag = Annotated[
    bool, typer.Option("--align-clocks", help="correct clocks of hosts that are off")
]
StreamFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--in-stream", metavar="TYPE", help="own type of operation that runs between the passes"
    ),
]
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
def stragglers_command(
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
    threshold: ThresholdFlag = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="with --json: also every field of the OSDI'25 artifact"),
    ] = False,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What the stragglers of a job cost, by operation, stage, data-parallel rank and worker."""
    opened = _open(job, trace, meta, unit, steps, threshold, lake, align, in_stream)
    from steptax.app.views.trace import trace_view
    from steptax.app.views.trace_text import as_json as view_json
    from steptax.app.views.trace_text import as_text

    view = trace_view(opened, price_of(price))
    show(
        view_json(view, opened, published=published) if as_json else None,
        as_json=as_json,
        text=lambda: console.print(as_text(view), markup=False),
        warnings=view.warnings if as_json else (),
    )


@whatif.command("fix")
def fix_command(
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
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
    lake: LakeFlag = None,
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
    opened = _open(job, trace, meta, unit, steps, None, lake, align, in_stream)
    _answer(opened, fixes, price, as_json=as_json)


@whatif.command("kernel")
def kernel_command(
    match: Annotated[str, typer.Option("--match", help="type or name, * and ? as in a shell")],
    speedup: Annotated[float, typer.Option("--speedup", help="2 means twice as fast")],
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What a faster kernel returns once its speed-up has met synchronisation."""
    from steptax.app.whatif.fixes import parse_fix

    fixes = [parse_fix(f"kernel:{match}:{speedup:g}")]
    opened = _open(job, trace, meta, unit, steps, None, lake, align, in_stream)
    _answer(opened, fixes, price, as_json=as_json)


@whatif.command("network")
def network_command(
    speedup: Annotated[float, typer.Option("--speedup", help="2 means twice as fast")],
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What a faster network returns: every transfer and collective is so many times as fast."""
    from steptax.app.whatif.fixes import parse_fix

    fixes = [parse_fix(f"network:{speedup:g}")]
    opened = _open(job, trace, meta, unit, steps, None, lake, align, in_stream)
    _answer(opened, fixes, price, as_json=as_json)


@whatif.command("device")
def device_command(
    speedup: Annotated[
        str, typer.Option("--speedup", metavar="X | R=X,R=X", help="of all devices, or by rank")
    ],
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What faster devices return: computing is so many times as fast, transfers stay."""
    from steptax.app.whatif.fixes import parse_fix

    fixes = [parse_fix(f"device:{speedup}")]
    opened = _open(job, trace, meta, unit, steps, None, lake, align, in_stream)
    _answer(opened, fixes, price, as_json=as_json)


@whatif.command("rebalance")
def rebalance_command(
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
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
    lake: LakeFlag = None,
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
    opened = _open(job, trace, meta, unit, steps, None, lake, align, in_stream)
    _answer(opened, fixes, price, as_json=as_json)


@whatif.command("gc")
def gc_command(
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    steps: StepsFlag = None,
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What it returns to have no pauses for garbage collection, recorded or inside passes."""
    from steptax.app.whatif.fixes import Fix, FixKind

    fixes = [Fix(FixKind.GC)]
    opened = _open(job, trace, meta, unit, steps, None, lake, align, in_stream)
    _answer(opened, fixes, price, as_json=as_json)


@whatif.command("export")
def export_command(
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write, JSON")],
    job: JobFlag = None,
    trace: TraceFlag = None,
    meta: MetaFlag = None,
    unit: UnitFlag = "s",
    align: ClocksFlag = False,
    in_stream: StreamFlag = None,
    step: Annotated[int | None, typer.Option("--step", help="one step; else all")] = None,
    ideal: Annotated[
        bool, typer.Option("--ideal", help="the ideal timeline beside the recorded one")
    ] = False,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the timeline for Perfetto (ui.perfetto.dev) or chrome://tracing."""
    opened = _open(job, trace, meta, unit, None, None, lake, align, in_stream)
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

    steps = None if step is None else (step,)
    partial = output.with_name(output.name + ".part")
    try:
        with partial.open("wb") as target:
            done = write_chrome(
                target, analysis.model, steps=steps, with_ideal=ideal, job=opened.job_id
            )
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    data = vars(done) | {"path": str(output), "ideal": ideal}
    show(
        data,
        as_json=as_json,
        text=lambda: console.print(
            f"{output}: {done.slices:,} slices on {done.tracks:,} tracks, steps: {done.steps:,}; "
            "open it at ui.perfetto.dev",
            markup=False,
        ),
        warnings=opened.notes,
    )


def _open(
    job: str | None,
    trace: Path | None,
    meta: Path | None,
    unit: str,
    steps: str | None,
    threshold: float | None,
    lake: Path | None,
    align: bool,
    in_stream: list[str] | None,
) -> TraceJob:
    """The job or file that the flags name, analysed."""
    if (job is None) == (trace is None):
        raise UserError(
            "expected a job or a file" + ("" if job is None else ", not both"),
            where="whatif",
            hint="use --job ID for a job in the lake, or --trace FILE --meta FILE.yaml",
        )
    if meta is not None and trace is None:
        raise UserError(
            "--meta goes with --trace; the sizes of a job are in the lake",
            where="--meta",
            hint="steptax ingest ops FILE --meta FILE stores them",
        )
    from steptax.app.views.trace_load import open_trace, open_trace_file
    from steptax.app.whatif.analysis import THRESHOLD

    ranges = parse_steps(steps)
    how: dict[str, Any] = {
        "steps": ranges,
        "threshold": THRESHOLD if threshold is None else threshold,
        "in_stream": tuple(in_stream or ()),
        "align_clocks": align,
    }
    if trace is not None:
        sizes: dict[str, Any] = {}
        if meta is not None:
            from steptax.connectors.tables.meta import read_meta

            sizes = read_meta(meta).echoed()
        return open_trace_file(trace, sizes, unit=unit, **how)
    assert job is not None
    from steptax.app.views.workspace import open_workspace

    return open_trace(open_workspace(lake_root(lake)), job, **how)


def parse_steps(text: str | None) -> tuple[tuple[int, int], ...]:
    """``16,20-40`` as ranges; UserError for what is none."""
    if text is None:
        return ()
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            begin = int(first)
            end = int(last) if dash else begin
        except ValueError:
            begin, end = 1, 0
        if end < begin:
            raise UserError(
                f"expected steps as 16,20-40, found {part!r}",
                where="--steps",
                hint="numbers and ranges, separated by commas",
            )
        ranges.append((begin, end))
    return tuple(ranges)


def _answer(opened: TraceJob, fixes: list[Fix], price: str | None, *, as_json: bool) -> None:
    from steptax.app.views.trace_rail import rail_answer
    from steptax.app.views.trace_text import answer_as_text

    answer = rail_answer(opened, fixes, price_of(price))
    show(
        answer.as_json() | {"job": opened.job_id, "steps": opened.steps_note},
        as_json=as_json,
        text=lambda: console.print(answer_as_text(answer), markup=False),
        warnings=tuple(dict.fromkeys((*opened.notes, *answer.warnings))),
    )
