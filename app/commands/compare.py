"""``steptax compare``: two jobs, or two periods of one, side by side, with a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, show, table_of
from steptax.app.views.compare.load import read_part
from steptax.app.views.compare.rows import metric_rows
from steptax.app.views.compare.view import SideBySide, side_by_side
from steptax.app.views.workspace import open_workspace


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("compare")(compare_command)


def compare_command(
    a: Annotated[
        str, typer.Argument(metavar="A", help="job, or some of its steps: llm-7b, llm-7b@0-119")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="what is compared with A: llm-7b@120-")],
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Is B faster than A, by more than noise, and why? Two jobs, or two periods of one.

    Periods of all jobs together are compared by steptax executive --compare-to.
    """
    view = side_by_side(
        open_workspace(lake_root(lake)),
        read_part(a, "A"),
        read_part(b, "B"),
        price=price_of(price),
    )
    show(view.as_json(), as_json=as_json, text=lambda: _print(view), warnings=view.warnings)


def _print(view: SideBySide) -> None:
    console.print(view.sentence)
    console.print(view.reason)
    console.print("")
    heads = ("metric", "A", "B", "change", "better")
    console.print(table_of("", heads, metric_rows(view)))
    console.print(f"price: {view.price_text}")
    for name, side in (("A", view.a), ("B", view.b)):
        console.print(f"{name}: {side.culprit}")
    if view.differs:
        console.print(table_of("What differs between the jobs", ("field", "A", "B"), view.differs))
