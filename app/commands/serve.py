"""``steptax serve``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from steptax.app.access import read_rules
from steptax.app.commands.options import LakeFlag, PriceFlag, lake_root, price_of, settings
from steptax.app.commands.output import console
from steptax.app.commands.serving import (
    PortFlag,
    dashboard_at,
    environment_of,
    port_for,
    stop_on_terminate,
    watch_over,
)
from steptax.app.errors import UserError
from steptax.app.hosts import names_in
from steptax.app.lake import lake_at
from steptax.app.lake.bucket import url_of
from steptax.app.logs import FORMATS, LEVELS

_HERE = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("serve")(serve_command)


def serve_command(
    lake: LakeFlag = None,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
    port: PortFlag = None,
    price: PriceFlag = None,
    access: Annotated[
        Path | None,
        typer.Option("--access", help="file with the login and who may see what; else no login"),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--anyone-may-read",
            help="needed to listen beyond this machine without a login; nobody may change anything",
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="answer under this name too; repeat it"),
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="lines of the log: text or json")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", help="debug, info, warning or error")
    ] = None,
) -> None:
    """Open the dashboard on a lake."""
    access = access or settings().access
    if access is not None:
        read_rules(access)  # says what is wrong with it here, rather than in the server's log
    elif host not in _HERE and not insecure:
        raise UserError(
            "this would show every job to anyone who reaches this machine: there is no login",
            where=f"--host {host}",
            hint="leave --host out, name a login with --access FILE, or say --anyone-may-read "
            "as well",
        )
    for flag, given, known in (
        ("--log-format", log_format, FORMATS),
        ("--log-level", log_level, LEVELS),
    ):
        if given is not None and given not in known:
            raise UserError(f"expected {' or '.join(known)}, found {given!r}", where=flag)
    names = [
        *names_in(settings().allow_hosts, where="STEPTAX_ALLOW_HOSTS"),
        *names_in(",".join(allow_host or ()), where="--allow-host"),
        *(() if host in (*_HERE, *_ANY) else names_in(host, where="--host")),
    ]
    # As it ends when it is asked to, it ends well: who runs it as a service need not be told.
    with contextlib.suppress(KeyboardInterrupt):
        stop_on_terminate()
        root = lake_root(lake)
        if url_of(root) or root.exists():
            lake_at(root)  # says what is wrong with it here, rather than on every page
        else:
            console.print(f"There is no lake at {root} yet; the pages wait for its first job.")
        environment = environment_of(root, price_of(price), None)
        environment |= {
            f"STEPTAX_{name}": str(value)
            for name, value in (
                ("ACCESS", access and access.resolve()),
                ("ALLOW_HOSTS", ",".join(names)),
                # Who else is told of this server may read, and no more than that.
                ("ANYONE_MAY_READ", "1" if insecure or names or host not in _HERE else None),
                ("LOG_FORMAT", log_format),
                ("LOG_LEVEL", log_level),
            )
            if value is not None
        }
        is_known = access is not None or host not in _HERE
        used = port_for(port, host, is_known=is_known)
        with dashboard_at(host, used, environment) as (process, url):
            console.print(f"Steptax is at {url} (Ctrl-C stops it)")
            watch_over(process, url)
