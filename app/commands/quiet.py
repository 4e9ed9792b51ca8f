"""``steptax quiet``: what makes a job slow without stopping it."""

from __future__ import annotations

from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root
from steptax.app.commands.output import console, show, table_of
from steptax.app.views.job.quiet_failures import QuietFailures, quiet_failures
from steptax.app.views.workspace import open_workspace


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("quiet")(quiet_command)


def quiet_command(
    job: Annotated[str, typer.Option("--job", help="job in the lake, as steptax jobs lists it")],
    last: Annotated[int, typer.Option("--last", min=1, help="the newest steps")] = 500,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Stragglers, synchronisation stalls, stalled GPUs: what slows a job without stopping it."""
    view = quiet_failures(open_workspace(lake_root(lake)), job, last_steps=last)
    show(view.as_json(), as_json=as_json, text=lambda: _print(view))


def _print(view: QuietFailures) -> None:
    console.print(view.sentence)
    rows = [
        (line.failure, line.title, line.text + (f" ({line.note})" if line.note else ""))
        for line in view.lines
    ]
    console.print(table_of("Quiet failures", ("failure", "what", "found"), rows))
