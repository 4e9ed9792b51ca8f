"""Where a what-if question gets its job from: flags that all its commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from steptax.app.commands.options import LakeFlag, lake_root
from steptax.app.commands.progress import working
from steptax.app.errors import UserError

if TYPE_CHECKING:  # half a second that --help need not take
    from steptax.app.views.models import Price
    from steptax.app.views.trace.load import TraceJob

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


@dataclass(frozen=True)
class TraceSource:
    """A job of the lake or a file of operations, and how it is read. Each field is a flag."""

    job: JobFlag = None
    trace: TraceFlag = None
    meta: MetaFlag = None
    unit: UnitFlag = "s"
    steps: StepsFlag = None
    align: ClocksFlag = False
    in_stream: StreamFlag = None
    lake: LakeFlag = None

    def open(self, threshold: float | None = None) -> TraceJob:
        """The job or file that the flags name, analysed; UserError for flags that do not fit."""
        if (self.job is None) == (self.trace is None):
            raise UserError(
                "expected a job or a file" + ("" if self.job is None else ", not both"),
                where="whatif",
                hint="use --job ID for a job in the lake, or --trace FILE --meta FILE.yaml",
            )
        if self.meta is not None and self.trace is None:
            raise UserError(
                "--meta goes with --trace; the sizes of a job are in the lake",
                where="--meta",
                hint="steptax ingest ops FILE --meta FILE stores them",
            )
        from steptax.app.views.trace.load import open_trace, open_trace_file
        from steptax.app.whatif.analysis import THRESHOLD

        how: dict[str, Any] = {
            "steps": parse_steps(self.steps),
            "threshold": THRESHOLD if threshold is None else threshold,
            "in_stream": tuple(self.in_stream or ()),
            "align_clocks": self.align,
        }
        if self.trace is not None:
            sizes: dict[str, Any] = {}
            if self.meta is not None:
                from steptax.connectors.tables.meta import read_meta

                sizes = read_meta(self.meta).echoed()
            with working(f"Analysing {self.trace.name}"):
                return open_trace_file(self.trace, sizes, unit=self.unit, **how)
        assert self.job is not None
        from steptax.app.views.workspace import open_workspace

        with working(f"Analysing job {self.job}"):
            return open_trace(open_workspace(lake_root(self.lake)), self.job, **how)

    def price(self, given: Decimal | None) -> Price:
        """What a GPU-hour costs: of a job by the rule of every page, of a file as ``given``."""
        from steptax.app.views.pricing.given import price_view
        from steptax.app.views.pricing.of_job import job_price
        from steptax.app.views.workspace import open_workspace

        if self.job is None:
            return price_view(given)
        return job_price(open_workspace(lake_root(self.lake)), self.job, given)


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """``command(source, ...)`` as a command that has the flags of a :class:`TraceSource` too."""
    hints = get_type_hints(TraceSource, include_extras=True)
    flags = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(TraceSource)
    ]
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    *asked, as_json = own

    @wraps(command)
    def run(**given: Any) -> None:
        source = TraceSource(**{flag.name: given.pop(flag.name) for flag in flags})
        command(source, **given)

    parameters = [*asked, *flags, as_json]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


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
