"""``steptax ingest`` and ``steptax connectors``: files into the lake."""

from __future__ import annotations

import getpass
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, open_lake
from steptax.app.commands.output import EXIT_REJECT, console, show, table_of
from steptax.app.commands.progress import working
from steptax.app.commands.source_flags import (
    AttemptFlag,
    DialectFlag,
    GpuModelFlag,
    HostFlag,
    JobFlag,
    LossTagFlag,
    MapFlag,
    MetaFlag,
    TimeUnitFlag,
    WorldSizeFlag,
)
from steptax.app.errors import InputError, UserError
from steptax.app.ingest import (
    SAME_MONTH,
    ingest_file,
    ingest_folder,
    ingest_found,
    ingest_url,
    url_of,
)
from steptax.app.lake.ingest import IngestResult
from steptax.connectors.asking import shown
from steptax.connectors.base import Options
from steptax.connectors.registry import CONNECTORS, connector


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("ingest")(ingest_command)
    app.command("connectors")(connectors_command)


def ingest_command(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[KIND] FILES...",
            help="files; folders of them; an address (mlflow, prometheus). KIND says what they "
            "are (steptax connectors lists the kinds); else it is found out, file by file",
        ),
    ],
    job: JobFlag = None,
    mapping: MapFlag = None,
    time_unit: TimeUnitFlag = None,
    meta: MetaFlag = None,
    attempt: AttemptFlag = 0,
    world_size: WorldSizeFlag = None,
    gpu_model: GpuModelFlag = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="rank of the one file, if it has none")
    ] = None,
    dialect: DialectFlag = None,
    loss_tag: LossTagFlag = None,
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
    host: HostFlag = None,
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
    """Import files once. The same file twice adds nothing; bad rows are kept with their reason.

    Leaves with exit code 3 where every row was rejected.
    """
    kind, paths = _kind_and_paths(what)
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
    for path in paths:
        # Before the lake, which a mistyped name would leave behind empty.
        if url_of(path) is None and not path.exists():
            raise InputError(
                "there is no such file",
                where=str(path),
                hint="check the path; a shell pattern such as folder/*.csv works",
            )
    store = open_lake(lake, create=True)
    results: list[IngestResult] = []
    skipped: list[str] = []
    with working("Reading", len(paths)) as advance:
        for path in paths:
            advance(f"Reading {path.name}")
            if (url := url_of(path)) is not None:
                results += ingest_url(store, kind or _kind_of_address(url), url, options)
                continue
            if kind is None:
                stored, notes = ingest_found(store, path, options)
            elif path.is_dir():
                stored, notes = ingest_folder(store, kind, path, options)
            else:
                stored, notes = [ingest_file(store, kind, path, options)], []
            results += stored
            skipped += notes
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
    counts = tables.values()
    if any(c["rejected"] for c in counts) and not any(
        c["accepted"] or c["stored_before"] for c in counts
    ):
        raise typer.Exit(EXIT_REJECT)


def _kind_and_paths(what: list[str]) -> tuple[str | None, list[Path]]:
    """The kind, None where none is named, and the paths; errors name a kind or file that is not."""
    first, rest = what[0], [Path(name) for name in what[1:]]
    if first in CONNECTORS:
        if not rest:
            raise UserError(
                f"expected files after the kind {first!r}",
                where="FILES",
                hint=f"steptax ingest {first} FILE...",
            )
        return first, rest
    path = Path(first)
    if path.exists() or url_of(path) is not None or not rest:
        return None, [path, *rest]
    connector(first)  # Neither a file nor a kind: its error names the kinds that are near.
    return first, rest


def _kind_of_address(url: str) -> str:
    raise UserError(
        "cannot tell what answers at an address",
        where=shown(url),
        hint=f"name the kind: steptax ingest prometheus {shown(url)}, or mlflow",
    )


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
        if result.already:
            state = "was stored before"
        elif any(result.accepted.values()) or not any(result.rejected.values()):
            state = "stored"
        else:
            state = "every row was rejected"
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
