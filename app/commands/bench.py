"""``steptax bench``: measure this node, compare runs, accept nodes, test a suspect."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from steptax.app.commands.options import (
    JsonFlag,
    LakeFlag,
    PriceFlag,
    lake_root,
    lake_words,
    open_lake,
    price_of,
)
from steptax.app.commands.output import EXIT_REJECT, console, show
from steptax.app.errors import UserError

_FORMATS = ("text", "json", "html")
_LEAST_MINUTES, _MOST_MINUTES = 0.1, 7 * 24 * 60


class _Group(TyperGroup):
    """``bench gemm memory`` runs benchmarks; every other word is a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` in front of names of benchmarks."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help=(
        "Measure hardware: steptax bench gemm memory launch attention mlp links collectives, or "
        "some of them; compare runs and accept nodes. Flags of a run: steptax bench run --help."
    ),
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(bench, name="bench")


@bench.command("run")
def run_command(
    names: Annotated[
        list[str],
        typer.Argument(help="gemm, memory, launch, attention, mlp, links, collectives"),
    ],
    run_id: Annotated[str | None, typer.Option("--name", help="name of the run")] = None,
    backend: Annotated[str, typer.Option("--backend", help="auto, torch or numpy")] = "auto",
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", help="bf16, fp16, fp8, fp32; repeatable")
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option("--size", min=1, help="side of a square; repeatable")
    ] = None,
    memory_bytes: Annotated[
        list[int] | None,
        typer.Option("--memory-bytes", min=4096, help="bytes of an array; repeatable"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="llama-3-8b, ..., or hidden=4096,ffn=14336,heads=32,..."),
    ] = None,
    warmup: Annotated[int | None, typer.Option("--warmup", min=0)] = None,
    iterations: Annotated[int | None, typer.Option("--iterations", min=1)] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="a verdict needs 3, against one number 5")
    ] = 5,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="most seconds of one repeat of one case")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="processes to start here; else one per GPU, or 2")
    ] = None,
    operation: Annotated[
        list[str] | None, typer.Option("--op", help="collective; repeatable; else all six")
    ] = None,
    min_bytes: Annotated[int, typer.Option("--min-bytes", help="smallest message")] = 8,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", help="largest message; 8 GiB, on CPUs 4 MiB")
    ] = None,
    factor: Annotated[
        int | None, typer.Option("--factor", help="from size to size; 2, on CPUs 4")
    ] = None,
    arrivals: Annotated[
        int, typer.Option("--arrivals", min=5, help="rounds that show which rank comes last")
    ] = 60,
    burden_rank: Annotated[
        int | None,
        typer.Option("--burden-rank", help="load this rank's core on purpose, to see it named"),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds for all ranks")] = 1800.0,
    store: Annotated[bool, typer.Option("--store/--no-store", help="keep it in the lake")] = True,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Run benchmarks on all devices of this node at once and keep the results in the lake.

    collectives runs under torchrun, under srun, or starts its ranks itself (--ranks).
    """
    from dataclasses import replace

    from steptax.app.commands.bench_output import as_data, print_run
    from steptax.benchmarks.hardware.bench import Request, run_bench
    from steptax.benchmarks.hardware.collectives import Sweep
    from steptax.benchmarks.hardware.models import read_model

    sweep = Sweep(first_bytes=min_bytes, arrivals=arrivals)
    if operation:
        sweep = replace(sweep, operations=tuple(operation))
    request = Request(
        names=tuple(dict.fromkeys(names)),
        run_id=run_id,
        backend=backend,
        dtypes=tuple(dtype or ()),
        sizes=tuple(size or ()),
        memory_bytes=tuple(memory_bytes or ()),
        model=None if model is None else read_model(model),
        warmup=warmup,
        iterations=iterations,
        repeats=repeats,
        seconds=seconds,
        ranks=ranks,
        sweep=sweep,
        last_bytes=max_bytes,
        factor=factor,
        burden_rank=burden_rank,
        timeout_s=timeout,
    )
    target = open_lake(lake, create=True) if store else None
    run = run_bench(request, _progress)
    if run.silent:
        return
    if target is not None:
        from steptax.app.bench_store import store_run

        store_run(target, run)
    data = as_data(run)
    found_by = lake_words(lake) if store else None
    show(data, as_json=as_json, text=lambda: print_run(run, data, found_by), warnings=run.notes)


def _progress(text: str) -> None:
    """One line that is written over, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


@bench.command("runs")
def runs_command(lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """Benchmark runs of the lake, the newest first."""
    from steptax.app.views.bench.view import load_figures, run_ids
    from steptax.app.views.workspace import open_workspace

    found = run_ids(load_figures(open_workspace(lake_root(lake))))
    show(found, as_json=as_json, text=lambda: console.print("\n".join(found)))


@bench.command("compare")
def compare_command(
    run: Annotated[str, typer.Argument(help="run to judge")],
    base: Annotated[str, typer.Argument(help="run that it is held against")],
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Hold one run against another: only gaps beyond the noise of both count."""
    from steptax.app.commands.bench_output import comparison_data, print_comparison
    from steptax.app.views.bench.view import compare_runs
    from steptax.app.views.workspace import open_workspace

    found = compare_runs(open_workspace(lake_root(lake)), run, base)
    show(comparison_data(found), as_json=as_json, text=lambda: print_comparison(found))


@bench.command("accept")
def accept_command(
    run: Annotated[str, typer.Argument(help="run of the node")],
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="run to hold it against; else its oldest")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="text, json or html")] = "text",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="file to write")] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Pass, watch or reject: against own baseline, fleet median, reference, spec, in that order.

    Leaves with exit code 3 where a node is rejected and with 0 on pass, watch and unclear, so that
    the health check of a scheduler can act on it; 2 and 1 are errors, as with every command.
    """
    from steptax.app.commands.bench_output import print_acceptance
    from steptax.app.compute.bench.compare import Status
    from steptax.app.views.bench.report import as_html
    from steptax.app.views.bench.report import as_json as report_json
    from steptax.app.views.bench.view import acceptance_view
    from steptax.app.views.workspace import open_workspace

    if form not in _FORMATS:
        raise UserError(f"no format {form!r}", where="--format", hint=", ".join(_FORMATS))
    view = acceptance_view(open_workspace(lake_root(lake)), run, baseline)
    if form == "html":
        if output is None:
            raise UserError("name the file", where="--output", hint="--format html -o node.html")
        output.write_text(as_html(view), encoding="utf-8")
        written = {"written": str(output), "status": view.status}
        show(written, as_json=as_json, text=lambda: console.print(f"{output}"))
    else:
        text_or_json = as_json or form == "json"
        show(report_json(view), as_json=text_or_json, text=lambda: print_acceptance(view))
    if view.status is Status.REJECT:
        raise typer.Exit(EXIT_REJECT)


@bench.command("suspect")
def suspect_command(
    job: Annotated[str, typer.Option("--job", help="job whose straggler card names a rank")],
    minutes: Annotated[
        float,
        typer.Option("--minutes", help="how long the test holds the node, at most a week"),
    ] = 10.0,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """The command that tests the rank of a straggler card, and what the test costs."""
    from steptax.app.commands.bench_output import print_suspect, suspect_data
    from steptax.app.views.bench.suspect import suspect_test
    from steptax.app.views.workspace import open_workspace

    # Not by the option's own bounds: they let through what is no number.
    if not _LEAST_MINUTES <= minutes <= _MOST_MINUTES:
        raise UserError(
            f"expected minutes in {_LEAST_MINUTES:g}..{_MOST_MINUTES:,}, found {minutes:g}",
            where="--minutes",
            hint="10 are enough for gemm, memory and launch",
        )
    cost = price_of(price)
    found = suspect_test(open_workspace(lake_root(lake)), job, minutes, cost, lake_words(lake))
    show(suspect_data(found), as_json=as_json, text=lambda: print_suspect(found))


@bench.command(
    "run-nccl-tests",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def nccl_tests_command(
    ctx: typer.Context,
    program: Annotated[Path, typer.Argument(help="all_reduce_perf, or a launcher such as mpirun")],
    run_id: Annotated[str | None, typer.Option("--name", help="name of the run")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds")] = 1800.0,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a test of nccl-tests or rccl-tests with the flags that follow, and keep its figures.

    For example: steptax bench run-nccl-tests ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 8
    """
    from steptax.app.bench_store import run_nccl_tests

    result = run_nccl_tests(open_lake(lake, create=True), program, ctx.args, run_id, timeout)
    data = {"run_id": result.run_id, "accepted": result.accepted, "rejected": result.rejected}

    def text() -> None:
        console.print(f"{result.accepted} figures stored as run {result.run_id}")
        told = f"next: steptax collectives --job {shlex.quote(result.run_id)}{lake_words(lake)}"
        console.print(told)

    show(data, as_json=as_json, text=text, warnings=result.notes)
