"""``steptax query``: the rows of one named query, by DuckDB or by Spark."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer

from steptax.app.commands.options import EngineFlag, JsonFlag, LakeFlag, MasterFlag, lake_root
from steptax.app.commands.output import console, print_json_rows, print_wide, show, table_of
from steptax.app.errors import NotFoundError, UserError
from steptax.app.views.named_query import Answer, answer, named_queries
from steptax.app.views.workspace import open_workspace

_SHOWN_ROWS = 40


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("query")(query_command)


def query_command(
    name: Annotated[str | None, typer.Argument(help="a query; none: all that there are")] = None,
    job: Annotated[str | None, typer.Option("--job", help="the job that it is about")] = None,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="a parameter: JSON, else text; repeat"),
    ] = None,
    engine: EngineFlag = None,
    master: MasterFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """The rows of one named query: what pages are computed from, for programs of your own."""
    if name is None:
        rows = [[q.name, " ".join(q.parameters), q.doc] for q in named_queries()]
        queries = [{"name": n, "parameters": p.split(), "doc": d} for n, p, d in rows]
        table = table_of("Named queries", ("query", "parameters", "what"), rows)
        show({"queries": queries}, as_json=as_json, text=lambda: print_wide(table))
        return
    parameters = dict(_parameter(text) for text in values or ())
    known = {q.name: q for q in named_queries()}
    if name not in known:
        raise NotFoundError(
            f"there is no query {name!r}", where="NAME", hint="steptax query lists them"
        )
    missing = {*known[name].parameters} - {*parameters, "job_id"}
    if unknown := {*parameters} - {*known[name].parameters, "first_step", "last_step"}:
        raise UserError(
            f"{name} has no parameter {', '.join(sorted(unknown))}",
            where="--set",
            hint=f"it has {', '.join(known[name].parameters) or 'none'}",
        )
    found = answer(
        open_workspace(lake_root(lake), engine=engine, master=master),
        name,
        job_id=job,
        parameters={**dict.fromkeys(sorted(missing)), **parameters},
    )
    if as_json:
        print_json_rows("rows", found.each())
    else:
        _print(name, found)


def _print(name: str, found: Answer) -> None:
    shown = found.first(_SHOWN_ROWS)
    cells = [["" if v is None else str(v) for v in row.values()] for row in shown]
    print_wide(table_of(name, found.columns, cells))
    console.print(f"{len(shown):,} of {found.table.num_rows:,} rows; --json prints all")


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(
            f"expected NAME=VALUE, found {text!r}", where="--set", hint="--set limit_rows=10"
        )
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value
