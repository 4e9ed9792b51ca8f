"""``steptax discover``: what is on this machine that can be read, and how."""

from __future__ import annotations

import typer

from steptax.app.commands.options import JsonFlag
from steptax.app.commands.output import console, show
from steptax.app.first_files import TRIED_FILES
from steptax.app.first_run import PORTS, Offer, found_here, usual_folders

LOOKED = (
    "Looked for NVIDIA devices, Slurm's sacct, what answers on the ports {ports} of this machine, "
    "for lakes and files of jobs in {folders}, and into up to {files} small files of {first}: "
    "logs, tables, JSON."
)
NOTHING = (
    "Nothing was found on this machine. steptax demo trains a real job on it; steptax connectors "
    "lists what can be read."
)


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("discover")(discover_command)


def discover_command(as_json: JsonFlag = False) -> None:
    """What is on this machine that can be read: devices, Slurm, Prometheus, lakes, files of jobs.

    Looks only; nothing is stored, and no other machine is asked.
    """
    found = found_here()
    data = [
        {"source": o.source, "title": o.title, "gives": o.gives, "command": o.command}
        for o in found
    ]
    show(data, as_json=as_json, text=lambda: _print(found))


def _print(found: tuple[Offer, ...]) -> None:
    if not found:
        console.print(NOTHING)
    for offer in found:
        console.print(f"{offer.title}: {offer.gives}")
        console.print(f"    {offer.command}")
    ports = ", ".join(str(port) for _, port in PORTS)
    folders = [str(folder) for folder in usual_folders()]
    text = LOOKED.format(
        ports=ports, folders=", ".join(folders), files=TRIED_FILES, first=folders[0]
    )
    console.print(text)
