"""``steptax ingest`` and ``steptax connectors``: files into the lake."""

from __future__ import annotations

import getpass
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, open_lake
from steptax.app.commands.output import console, show, table_of
from steptax.app.errors import UserError
from steptax.app.ingest import SAME_MONTH, ingest_file, ingest_folder, ingest_url, url_of
from steptax.app.lake.ingest import IngestResult
from steptax.connectors.base import Options
from steptax.connectors.registry import CONNECTORS


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("ingest")(ingest_command)
    app.command("connectors")(connectors_command)


def ingest_command(
    kind: Annotated[str, typer.Argument(help="what the files are: steptax connectors lists them")],
    paths: Annotated[
        list[Path], typer.Argument(help="files; folders of them; an address (mlflow, prometheus)")
    ],
    job: Annotated[str | None, typer.Option("--job", help="job id; else the file's name")] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="OURS=THEIRS", help="column mapping; sums as a+b-c; repeatable"
        ),
    ] = None,
    time_unit: Annotated[
        str | None, typer.Option("--time-unit", help="ns, us, ms, s or relative")
    ] = None,
    meta: Annotated[Path | None, typer.Option("--meta", help="sizes of the job, YAML")] = None,
    attempt: Annotated[int, typer.Option("--attempt", min=0, help="attempt of the job")] = 0,
    world_size: Annotated[
        int | None, typer.Option("--world-size", min=1, help="ranks, where the file has fewer")
    ] = None,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", help="device of the job")] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="rank of the one file, if it has none")
    ] = None,
    dialect: Annotated[
        str | None, typer.Option("--dialect", help="dialect of a log; else it is detected")
    ] = None,
    loss_tag: Annotated[
        str | None,
        typer.Option("--loss-tag", metavar="TAG", help="training loss of a tracker; else detected"),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="ZONE", help="of local times: Europe/Berlin"),
    ] = None,
    accept_prices: Annotated[
        bool, typer.Option("--accept-prices", help="store prices that are held as doubtful")
    ] = False,
    provider: Annotated[
        str | None, typer.Option("--provider", help="seller, of prices that name none")
    ] = None,
    observed_on: Annotated[
        str | None,
        typer.Option("--observed-on", metavar="DATE", help="day of prices that name none"),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option("--decimal", metavar="SIGN", help="of bills: point, comma; else as it looks"),
    ] = None,
    same_month: Annotated[
        str | None,
        typer.Option(
            "--same-month",
            metavar="WHAT",
            help="of a bill of which another kind of file tells: hold (unless given), replace, add",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="node of device samples; else the file's name")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="moment of a scrape without one")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="begin of samples of a server: -2h, ISO 8601"),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="end of samples of a server; now")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="LENGTH", help="one sample per step; else all of a server"),
    ] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Import files once. The same file twice adds nothing; bad rows are kept with their reason."""
    if rank is not None and len(paths) > 1:
        raise UserError(
            f"--rank {rank} cannot hold for {len(paths)} files",
            where="--rank",
            hint="ingest them one by one, or put the rank into their names: rank-3.json",
        )
    options = Options(
        job_id=job,
        attempt=attempt,
        mapping=mapping_of(mapping or []),
        time_unit=time_unit,
        meta=meta,
        world_size=world_size,
        gpu_model=gpu_model,
        extra={
            name: str(value)
            for name, value in (
                ("rank", rank),
                ("dialect", dialect),
                ("loss_tag", loss_tag),
                ("host", host),
                ("timezone", timezone),
                ("accept_prices", getpass.getuser() if accept_prices else None),
                ("observed_on", observed_on),
                ("provider", provider),
                ("decimal", decimal),
                (SAME_MONTH, same_month),
                ("at", at),
                ("from", start),
                ("to", end),
                ("step", step),
            )
            if value is not None
        },
    )
    store = open_lake(lake, create=True)
    results: list[IngestResult] = []
    skipped: list[str] = []
    for path in paths:
        if (url := url_of(path)) is not None:
            results += ingest_url(store, kind, url, options)
        elif path.is_dir():
            stored, notes = ingest_folder(store, kind, path, options)
            results += stored
            skipped += notes
        else:
            results.append(ingest_file(store, kind, path, options))
    tables: dict[str, dict[str, int]] = {}
    for result in results:
        for field in ("accepted", "rejected", "stored_before", "conflicting"):
            for table, count in getattr(result, field).items():
                row = tables.setdefault(table, {"accepted": 0, "rejected": 0, "stored_before": 0})
                row[field] = row.get(field, 0) + count
    data: dict[str, Any] = {
        "tables": tables,
        "rejects": [
            {"source": result.source, **reject}
            for result in results
            for reject in result.first_rejects
        ],
        "job_ids": sorted({job_id for result in results for job_id in result.job_ids}),
        "ingests": [
            {"id": result.ingest_id, "source": result.source, "already": result.already}
            for result in results
        ],
    }
    notes = list(dict.fromkeys([*skipped, *(n for result in results for n in result.notes)]))
    show(data, as_json=as_json, text=lambda: _print(results, data), warnings=notes)


def mapping_of(pairs: list[str]) -> dict[str, str]:
    """``--map`` arguments as a mapping; UserError for one that is not OURS=THEIRS."""
    mapping = {}
    for pair in pairs:
        ours, sign, theirs = pair.partition("=")
        if not sign or not ours.strip() or not theirs.strip():
            raise UserError(
                f"expected OURS=THEIRS, found {pair!r}",
                where="--map",
                hint="for example --map rank=worker --map duration=forward_ms+backward_ms",
            )
        mapping[ours.strip()] = theirs.strip()
    return mapping


def _print(results: list[IngestResult], data: dict[str, Any]) -> None:
    for result in results:
        state = "was stored before" if result.already else "stored"
        console.print(f"{result.source}: {state}")
    shown = ["accepted", "rejected", "stored_before"]
    if any("conflicting" in counts for counts in data["tables"].values()):
        shown.append("conflicting")
    rows = [
        [name, *(f"{counts.get(c, 0):,}" for c in shown)] for name, counts in data["tables"].items()
    ]
    heads = ("table", *(c.replace("_", " ") for c in shown))
    console.print(table_of("", heads, rows))
    for reject in data["rejects"]:
        place = f"line {reject['row']}" if reject["row"] else "no line"
        field = f", {reject['field']}" if reject["field"] else ""
        console.print(f"  rejected: {reject['source']}, {place}{field}: {reject['reason']}")
    if data["job_ids"]:
        # A job of which only collectives are known has no steps to show.
        only = set(data["tables"]) <= {"collectives", "communicators", "bench_results"}
        show_it = "collectives --job" if only else "job"
        commands = [f"steptax {show_it} {shlex.quote(job)}" for job in data["job_ids"][:3]]
        console.print(f"next: {'; '.join(commands)}")


def connectors_command(as_json: JsonFlag = False) -> None:
    """List the kinds of files and sources that can be read, and what each gives."""
    data = [
        {"kind": connector.kind, "title": connector.title, "doc": connector.doc}
        for connector in CONNECTORS.values()
    ]
    rows = [[str(row["kind"]), str(row["title"])] for row in data]
    show(
        data,
        as_json=as_json,
        text=lambda: console.print(table_of("Connectors", ("kind", "reads"), rows)),
    )
