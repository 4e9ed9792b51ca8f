"""A dashboard as part of a command: its port, its environment, and its end with the command's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from steptax.app.commands.output import console
from steptax.app.errors import SteptaxError, UserError
from steptax.app.lake.bucket import url_of
from steptax.app.orphan import TIED
from steptax.app.serve import address_of, free_port, server_command, wait_until_healthy, why_not

#: Where the pages are unless somebody says otherwise.
PORT = 8501
PortFlag = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65_535, help=f"port of the pages; else {PORT}, or one near it"
    ),
]


def port_for(asked: int | None, host: str, *, is_known: bool = False, quiet: bool = False) -> int:
    """The port to listen on: the one that was ``asked`` for, else the usual one or one near it.

    UserError where the one that was asked for cannot be used, and with ``is_known`` also the usual
    one: others were told of it, and would wait there for nobody.
    """
    if asked is None and not is_known:
        port = free_port(PORT, host)
        if port != PORT and not quiet:
            console.print(f"Port {PORT} is in use; port {port} is taken instead.")
        return port
    port = PORT if asked is None else asked
    if reason := why_not(host, port):
        raise UserError(
            f"cannot listen: {reason}",
            where=f"--host {host} --port {port}",
            hint="name another with --port, or stop what listens there",
        )
    return port


def environment_of(root: Path, price: Decimal | None, note: str | None) -> dict[str, str]:
    """What a dashboard on ``root`` is started with; ``price`` in USD per GPU-hour."""
    environment = dict(os.environ) | {"STEPTAX_LAKE": url_of(root) or str(root.resolve())}
    if price is not None:
        environment["STEPTAX_PRICE_USD_PER_GPU_HOUR"] = str(price)
    if note is not None:
        environment["STEPTAX_PRICE_NOTE"] = note
    return environment


@contextlib.contextmanager
def dashboard_at(
    host: str, port: int, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running dashboard; it ends with this block, however that ends, and with this process."""
    process = subprocess.Popen(
        server_command(host, port),
        env=environment | {TIED: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = address_of(host, port)
        wait_until_healthy(url, process)
        yield process, url
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()


def watch_over(process: subprocess.Popen[bytes], url: str) -> NoReturn:
    """Wait for a dashboard that nobody asked to end; SteptaxError once it ended all the same."""
    code = process.wait()
    how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    raise SteptaxError(
        f"the page server ended {how}",
        where=url,
        hint="start it again; its own last words are above, and where it was SIGKILL the system "
        "may have needed its memory: see the kernel's log",
    )


def stop_on_terminate() -> None:
    """A polite kill ends a command as Ctrl-C does, and so leaves no process behind."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
