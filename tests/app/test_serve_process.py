"""``steptax serve`` as a process: whom it answers and asks, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from steptax.app.cli import main
from steptax.app.commands import serving
from steptax.app.lake import Lake
from steptax.app.serve import free_port
from tests.patience import PATIENCE_S, until
from tests.team_lake import store_team

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Served:
    """A running ``steptax serve``; what it asked of others goes to ``asked``."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    asked: list[bytes]

    def children(self) -> list[int]:
        """Process ids of the page servers that it started."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def get(self, path: str, host: str) -> tuple[int, str]:
        """Status and body under a Host header."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def opens(self, host: str) -> int:
        """Status of the websocket of a page under a Host header, its own origin: 101 is open."""
        to = socket.create_connection(("127.0.0.1", self.port))
        try:
            with connect(
                f"ws://{host}/_stcore/stream",
                sock=to,
                origin=f"http://{host}",  # type: ignore[arg-type]
                subprotocols=["streamlit"],  # type: ignore[list-item]
                proxy=None,
            ):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code


def start(log: Path, port: int, *flags: str, **environment: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "steptax.app.cli", "serve", "--port", str(port), *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Lake(tmp_path_factory.mktemp("serve") / "lake", create=True)
    store_team(made, "alpha")
    return made.root


@pytest.fixture
def asked() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that all who ask the internet would ask first; its address and what it heard."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    one, _ = listener.accept()
                    heard.append(one.recv(1000))
                    one.close()

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def serve(
    lake: Path, tmp_path: Path, asked: tuple[str, list[bytes]]
) -> Iterator[Callable[..., Served]]:
    """Start one; what is left of it at the end is killed."""
    running: list[Served] = []
    proxy, heard = asked

    def begin(*flags: str) -> Served:
        port, log = free_port(8560), tmp_path / "log"
        flags = ("--lake", str(lake), *flags)
        process = start(log, port, *flags, http_proxy=proxy, https_proxy=proxy)
        found = Served(process, port, log, heard)
        running.append(found)
        until(lambda: process.poll() is not None or is_open(port))
        assert process.poll() is None, found.log.read_text()
        return found

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait()


def test_it_answers_under_its_own_names_asks_nobody_and_ends_well(
    serve: Callable[..., Served], lake: Path, tmp_path: Path
) -> None:
    served = serve(
        *("--host", "0.0.0.0", "--anyone-may-read", "--allow-host", "steptax.example"),
        *("--log-format", "json", "--log-level", "info"),
    )
    port = served.port
    own = (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "192.0.2.7")
    for host in (*own, "steptax.example", "STEPTAX.example.", socket.gethostname()):
        assert served.get("/job", host)[0] == 200, host
    strange = (f"evil.example:{port}", "evil.example", "127.0.0.1.evil.example", "", "a@localhost")
    for host in strange:
        for path in ("/", "/job", "/media/x", "/static/x", "/auth/login"):
            status, said = served.get(path, host)
            assert (status, "--allow-host" in said) == (421, True), (host, path)
        assert served.get("/healthz", host)[0] == 200
    assert served.opens(f"localhost:{port}") == 101
    assert served.opens("steptax.example") == 101
    assert served.opens(f"evil.example:{port}") == 403
    # Others were told of this port: a second server does not quietly take another.
    second = start(tmp_path / "second", port, "--lake", str(lake))
    assert second.wait(timeout=PATIENCE_S) == 2
    assert f"--port {port}" in (tmp_path / "second").read_text()
    (child,) = served.children()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(timeout=PATIENCE_S) == 0
    assert not Path(f"/proc/{child}").exists()
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert any("evil.example" in line["message"] for line in lines)
    assert served.asked == []


#: Says that it is well until a file is there, and then dies as the system lets it die.
DYING = """
import http.server, os, signal, sys, threading, time
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Health)
threading.Thread(target=server.serve_forever, daemon=True).start()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_that_was_killed_is_no_good_end(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port, sign = free_port(8580), tmp_path / "now"
    command = [sys.executable, "-c", DYING, str(port), str(sign)]
    monkeypatch.setattr(serving, "server_command", lambda *_: command)
    monkeypatch.setattr(sys, "argv", ["steptax", "serve", f"--port={port}", f"--lake={lake}"])
    healthy = serving.wait_until_healthy

    def wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
        healthy(url, process)
        sign.touch()

    monkeypatch.setattr(serving, "wait_until_healthy", wait_until_healthy)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 1
    assert "ended by SIGKILL" in capsys.readouterr().err


def test_who_is_killed_leaves_no_server_behind(serve: Callable[..., Served]) -> None:
    served = serve()
    (child,) = served.children()
    served.process.kill()
    until(lambda: not is_open(served.port))
    until(lambda: not Path(f"/proc/{child}").exists())
