"""``steptax doctor``: what is wrong with this installation, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root, settings
from steptax.app.commands.output import EXIT_REJECT, console, show
from steptax.app.doctor import Finding, State, examine


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("doctor")(doctor_command)


def doctor_command(
    lake: LakeFlag = None,
    url: Annotated[
        str | None, typer.Option("--url", help="a page server to ask, http://127.0.0.1:8501")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="read every segment of the lake whole")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Drivers, permissions, disk, clock, sources, versions: what is wrong, and what to do.

    Leaves with 0 where nothing fails (there may be warnings), with 3 where something does.
    """
    known = settings().model_copy(update={"lake": lake_root(lake)})
    found = examine(known, url=url, deep=deep)
    failed = sum(one.state is State.FAIL for one in found)
    warned = sum(one.state is State.WARN for one in found)

    def text() -> None:
        for one in found:
            console.print(f"{one.state.value:5}{one.check:13}{one.text}", style=_style(one))
            if one.hint:
                console.print(f"{'':18}what to do: {one.hint}")
        console.print(
            "Nothing is wrong." if not failed + warned else f"{failed} fail, {warned} warn."
        )

    data = {"findings": [vars(one) for one in found], "failed": failed, "warned": warned}
    show(data, as_json=as_json, text=text)
    if failed:
        raise typer.Exit(EXIT_REJECT)


def _style(one: Finding) -> str | None:
    return {State.FAIL: "red", State.WARN: "yellow"}.get(one.state)
