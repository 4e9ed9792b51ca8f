"""``steptax collect`` and ``steptax forward``: rows from other machines."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root
from steptax.app.commands.output import console, print_json, print_note
from steptax.app.commands.serving import stop_on_terminate
from steptax.app.errors import UserError

TokenFlag = Annotated[
    Path | None,
    typer.Option("--token-file", help="a file with a token in a line; else $STEPTAX_TOKEN"),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("collect")(collect_command)
    app.command("forward")(forward_command)


def collect_command(
    lake: LakeFlag = None,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one")] = 8600,
    token_file: TokenFlag = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="certificate, PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="its key, PEM")] = None,
    compact_s: Annotated[
        float, typer.Option("--compact-s", min=1, help="seconds between compactions")
    ] = 60.0,
    as_json: JsonFlag = False,
) -> None:
    """Take what recorders send over HTTP and append it to a lake, until stopped."""
    from steptax.app.collect.server import is_loopback, tls_context
    from steptax.app.collect.service import Service
    from steptax.app.lake import Lake

    logging.basicConfig(format="steptax: %(message)s", level=logging.WARNING)
    if tls_key is not None and tls_cert is None:
        raise UserError("a key without its certificate", where="--tls-key", hint="add --tls-cert")
    root = lake_root(lake)
    service = Service(
        Lake(root, create=True),
        host,
        port,
        tokens=_tokens(token_file),
        tls=None if tls_cert is None else tls_context(tls_cert, tls_key),
        compact_s=compact_s,
    )
    is_clear = tls_cert is None and not is_loopback(host)
    notes = ["tokens and rows cross the network in the clear: add --tls-cert"] if is_clear else []

    def ready() -> None:
        if as_json:
            data = {"url": service.url, "lake": str(root), "pid": os.getpid()}
            print_json({"ok": True, "data": data, "warnings": notes})
            return
        console.print(f"Collecting into {root} at {service.url} (Ctrl-C stops it)")
        console.print(f'In the training script: StepRecorder("{service.url}", ...)')
        for note in notes:
            print_note(note)

    stop_on_terminate()
    with contextlib.suppress(KeyboardInterrupt):
        service.serve(ready)


def forward_command(
    to: Annotated[str, typer.Argument(help="the URL that the recorders name")],
    spool: Annotated[
        Path | None, typer.Option("--spool", help="where they wait; else as recorders choose it")
    ] = None,
    spool_mib: Annotated[
        int, typer.Option("--spool-mib", min=1, help="bound of the spool; the oldest go first")
    ] = 256,
    token_file: TokenFlag = None,
    once: Annotated[bool, typer.Option("--once", help="send what waits, and stop")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Send what the recorders of this node have left in their spool, in place of one of them."""
    from steptax.connectors.recorder.delivery import Delivery
    from steptax.connectors.recorder.forward import Forwarder
    from steptax.connectors.recorder.target import Secret, read_target

    logging.basicConfig(format="steptax: %(message)s", level=logging.WARNING)
    try:
        target = read_target(to)
    except ValueError as error:
        raise UserError(
            str(error), where="URL", hint="for example https://collector:8600 or s3://bucket/lake"
        ) from None
    if target.kind == "folder":
        raise UserError(
            "recorders write into a folder themselves",
            where=to,
            hint="name the URL of a collector or of a store, as the recorders do",
        )
    tokens = _tokens(token_file)
    delivery = Delivery(
        target,
        Secret(tokens[-1] if tokens else None),
        None if spool is None else str(spool),
        spool_mib * 2**20,
    )
    forwarder = Forwarder(delivery)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not by an exception: it might fall between a batch's delivery and its removal.
        signal.signal(number, lambda *_: stop.set())
    if not as_json:
        console.print(f"Sending {forwarder.folder} to {target.where} (Ctrl-C stops it)")
    is_empty = forwarder.run(stop, once=once)
    data = {"rows_sent": forwarder.rows_sent, "rows_lost": forwarder.rows_lost, "empty": is_empty}
    if as_json:
        print_json({"ok": True, "data": data, "warnings": []})
    else:
        left = "nothing waits" if is_empty else f"the rest waits in {forwarder.folder}"
        console.print(f"sent {forwarder.rows_sent:,} rows, lost {forwarder.rows_lost:,}; {left}")
    if once and not is_empty:
        raise typer.Exit(1)


def _tokens(path: Path | None) -> list[str]:
    """The tokens of the file, or of the environment, or none."""
    from steptax.app.collect.service import is_token, read_tokens

    if path is not None:
        return read_tokens(path)
    value = os.environ.get("STEPTAX_TOKEN", "").strip()
    if value and not is_token(value):
        raise UserError(
            "expected a token of printable ASCII without spaces",
            where="the environment, STEPTAX_TOKEN",
            hint='for example: export STEPTAX_TOKEN="$(openssl rand -hex 32)"',
        )
    return [value] if value else []
