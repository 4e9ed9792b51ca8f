"""``steptax retain``: drop raw rows that are old; their roll-ups stay."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root, lake_words, open_lake
from steptax.app.commands.output import console, show, table_of
from steptax.app.errors import UserError
from steptax.app.format import format_moment, format_value
from steptax.app.lake.compact import GRACE_S
from steptax.app.lake.kept import dropped
from steptax.app.lake.retain import DAY_US, TABLES_KEPT, Going, due, retain
from steptax.app.views.workspace import open_workspace

#: More are longer ago than any moment that is stored.
_MOST_DAYS = 100_000
_HEADS = ("table", "job", "rows", "size", "segments", "newest row")


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("retain")(retain_command)


def retain_command(
    days: Annotated[
        float, typer.Option("--days", metavar="N", help="raw rows older than N days go")
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help=f"{' or '.join(TABLES_KEPT)}; repeat; else both"),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="of this job alone")] = None,
    really: Annotated[
        bool, typer.Option("--drop", help="do it; without it what would go is printed")
    ] = False,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Drop raw rows older than a number of days; roll-ups stay. Prints only, without --drop.

    A segment goes once its newest row is old enough. Rows that went cannot be had back.
    """
    if not 0 < days <= _MOST_DAYS:
        raise UserError(
            f"expected more than 0 days, up to {_MOST_DAYS:,}, found {days:g}",
            where="--days",
            hint="--days 90",
        )
    for name in tables or ():
        if name not in TABLES_KEPT:
            raise UserError(
                f"nothing would remain of {name!r}: it has no roll-ups",
                where="--table",
                hint=" or ".join(TABLES_KEPT),
            )
    store = open_lake(lake)
    if job is not None:
        open_workspace(lake_root(lake)).job(job)
    before_us = time.time_ns() // 1000 - int(days * DAY_US)
    wanted = tuple(tables or TABLES_KEPT)
    if really:
        done = retain(store, before_us, tables=wanted, job_id=job)
        going, deleted, stayed = done.dropped, done.deleted_files, done.stayed
        warnings = ["a compactor or another retain is at work; try again"] if done.busy else []
        warnings += [
            f"{one.rows:,} rows of {' of job '.join(filter(None, (one.table, one.job_id)))} stay: "
            "their values add up to more than 64 bits hold, and no roll-up of them can be kept"
            for one in stayed
        ]
    else:
        going = due(store, before_us, tables=wanted, job_id=job)
        deleted, stayed, warnings = 0, (), []

    def text() -> None:
        if not going:
            other = "other " if stayed else ""
            console.print(
                f"no {other}segment is older than {format_moment(before_us)}; nothing goes"
            )
        else:
            rows = [_cells(one) for one in going]
            title = "Dropped" if really else "Would be dropped"
            console.print(table_of(f"{title}: raw rows of before {days:g} days", _HEADS, rows))
            total = sum(one.rows for one in going)
            size = format_value(float(sum(one.bytes for one in going)), "bytes")
            console.print(f"{total:,} rows, {size}; their roll-ups stay")
        if deleted:
            console.print(f"{deleted:,} files were deleted")
        if really and going:
            again = f"steptax compact{lake_words(lake)}"
            console.print(
                f"readers may still hold the files: {again}, or the next retain, deletes them once "
                f"{GRACE_S / 60:g} minutes have passed"
            )
        elif going:
            console.print("nothing was changed; to do it, say --drop")

    data: dict[str, Any] = {
        "is_done": really,
        "before_us": before_us,
        "going": [_as_json(one) for one in going],
        "rows": sum(one.rows for one in going),
        "bytes": sum(one.bytes for one in going),
        "deleted_files": deleted,
        "dropped_so_far": {
            name: asdict(gone)
            for name in TABLES_KEPT
            if (gone := dropped(store, name, job)) is not None
        },
    }
    show(data, as_json=as_json, text=text, warnings=warnings)


def _cells(one: Going) -> list[str]:
    return [
        one.table,
        one.job_id or "",
        f"{one.rows:,}",
        format_value(float(one.bytes), "bytes"),
        f"{len(one.segments):,}",
        format_moment(one.newest_us),
    ]


def _as_json(one: Going) -> dict[str, Any]:
    return {
        "table": one.table,
        "job_id": one.job_id,
        "rows": one.rows,
        "bytes": one.bytes,
        "segments": len(one.segments),
        "newest_us": one.newest_us,
    }
