"""A dashboard as part of a command: its port, its environment, and its end with the command's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from steptax.app.commands.output import console
from steptax.app.serve import free_port, server_command, wait_until_healthy


def port_near(preferred: int, host: str, *, quiet: bool = False) -> int:
    """The port to listen on; says so when it is not the one that was asked for."""
    port = free_port(preferred, host)
    if port != preferred and not quiet:
        console.print(f"Port {preferred} is in use; port {port} is taken instead.")
    return port


def environment_of(root: Path, price: Decimal | None, note: str | None) -> dict[str, str]:
    """What a dashboard on ``root`` is started with; ``price`` in USD per GPU-hour."""
    environment = dict(os.environ) | {"STEPTAX_LAKE": str(root.resolve())}
    if price is not None:
        environment["STEPTAX_PRICE_USD_PER_GPU_HOUR"] = str(price)
    if note is not None:
        environment["STEPTAX_PRICE_NOTE"] = note
    return environment


@contextlib.contextmanager
def dashboard_at(
    host: str, port: int, environment: dict[str, str], access: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running dashboard; it ends with this block, however that ends."""
    process = subprocess.Popen(
        server_command(host, port, access),
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        url = f"http://{host}:{port}"
        wait_until_healthy(url, process)
        yield process, url
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def stop_on_terminate() -> None:
    """A polite kill ends a command as Ctrl-C does, and so leaves no process behind."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
