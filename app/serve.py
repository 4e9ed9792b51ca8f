"""How the page server is started, and when it is ready."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from steptax.app.errors import UserError
from steptax.app.theme import theme_options

#: What Streamlit is started with: it names the script of the pages, and what stands before it. It
#: stands beside no folder named ``pages``, or Streamlit would take that folder for its own
#: automatic navigation.
ENTRY = Path(__file__).resolve().parent / "asgi.py"
HEALTH_PATH = "/_stcore/health"
PORTS_TRIED = 50
#: The largest message that is taken from a tab, and that is sent to one; no figure comes near that.
HEARD_MB, SAID_MB = 3, 20

_OPTIONS = {
    # Starts unattended and tells nobody: no question, no statistics, no links to elsewhere.
    "server.headless": "true",
    "server.showEmailPrompt": "false",
    "browser.gatherUsageStats": "false",
    "client.showErrorLinks": "false",
    # Its files are as the cells are: text that a spreadsheet would run would be run. Ours are not.
    "client.disableDataExport": "true",
    # A fault of ours goes to the log of the server; the page shows its kind without our source.
    "client.showErrorDetails": "type",
    "client.toolbarMode": "viewer",
    # Pages do not change under an installed product; watching them costs processor time.
    "server.fileWatcherType": "none",
    "server.runOnSave": "false",
    # The server collects by itself: see ``memory``.
    "runner.postScriptGC": "false",
    # Nothing is uploaded through the browser; choosing all 5,000 bars of a figure sends 1 MB.
    "server.maxUploadSize": "1",
    "server.maxMessageSize": str(HEARD_MB),
    "server.maxWidgetStateSize": str(HEARD_MB),
    "logger.level": "warning",
    # The server hands over the login's secrets as they were when it began. What watches a file of
    # them reads it while it is written, keeps what it found, and lets nobody in from then on.
    "secrets.files": str(ENTRY.parent / "no-such-secrets.toml"),
    # Whom it names is found out by asking a service on the internet, which then knows of us.
    "logger.hideWelcomeMessage": "true",
    # Widgets are bound to the URL, which sets them before they are drawn, and have defaults too.
    "global.disableWidgetStateDuplicationWarning": "true",
}


def server_flags(host: str, port: int) -> list[str]:
    """Flags of ``streamlit run`` for a server that listens on ``host`` and ``port``."""
    options = _OPTIONS | {"server.address": host, "server.port": str(port)} | theme_options()
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def server_command(host: str, port: int) -> list[str]:
    """The command line that serves the pages on ``host`` and ``port``."""
    flags = server_flags(host, port)
    return [sys.executable, "-m", "streamlit", "run", str(ENTRY), *flags]


def why_not(host: str, port: int) -> str | None:
    """Why nothing can listen on ``port`` of ``host``; None where it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the server itself does: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def address_of(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on ``host``."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def free_port(preferred: int, host: str = "127.0.0.1") -> int:
    """``preferred``, or the next port above it on which ``host`` can listen.

    Raises UserError when none of the next fifty is free.
    """
    for port in range(preferred, min(preferred + PORTS_TRIED, 65_536)):
        if why_not(host, port) is None:
            return port
    raise UserError(
        f"no port from {preferred} to {preferred + PORTS_TRIED - 1} can be used on {host}",
        where="--port",
        hint="name another with --port, or stop what listens there",
    )


def wait_until_healthy(
    url: str, process: subprocess.Popen[Any] | None = None, *, timeout_s: float = 60.0
) -> None:
    """Return once the server at ``url`` answers its health check.

    Raises UserError when ``process`` ended before that, or after ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if process is not None and (code := process.poll()) is not None:
            raise UserError(
                f"the page server ended with exit code {code} before it was ready",
                where=url,
                hint="its own message is above; run it again with another --port",
            )
        if _is_healthy(url):
            return
        if time.monotonic() > deadline:
            raise UserError(
                f"the page server gave no answer within {timeout_s:.0f} s",
                where=url + HEALTH_PATH,
                hint="the machine may be busy: try again",
            )
        time.sleep(0.1)


def _is_healthy(url: str) -> bool:
    # No proxy of the environment: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url + HEALTH_PATH, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
