"""How the page server is started, and when it counts as ready."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit import config

from steptax.app.errors import UserError
from steptax.app.serve import (
    ENTRY,
    HEALTH_PATH,
    PORTS_TRIED,
    free_port,
    server_command,
    server_flags,
    wait_until_healthy,
)
from steptax.app.theme import DARK, LIGHT, theme_options


def options() -> dict[str, str]:
    flags = server_flags("127.0.0.1", 8501)
    return dict(zip(flags[::2], flags[1::2], strict=True))


def test_it_starts_unattended_and_tells_nobody() -> None:
    made = options()
    assert made["--server.headless"] == "true"
    assert made["--browser.gatherUsageStats"] == "false"
    assert made["--server.showEmailPrompt"] == "false"
    assert made["--client.showErrorLinks"] == "false"
    assert made["--server.address"] == "127.0.0.1"
    assert made["--server.port"] == "8501"


def test_a_fault_of_ours_shows_no_source_code_on_the_page() -> None:
    assert options()["--client.showErrorDetails"] == "type"


def test_every_option_exists_in_the_installed_server() -> None:
    known = config.get_config_options()
    for flag in options():
        assert flag.removeprefix("--") in known, flag


def test_the_command_runs_the_entry_script_with_this_python() -> None:
    command = server_command("127.0.0.1", 9000)
    assert command[:4] == [sys.executable, "-m", "streamlit", "run"]
    assert Path(command[4]) == ENTRY
    assert ENTRY.is_file()


def test_both_screens_have_their_colours() -> None:
    made = theme_options()
    assert made["theme.light.backgroundColor"] == LIGHT.background
    assert made["theme.dark.backgroundColor"] == DARK.background
    light = {key.removeprefix("theme.light.") for key in made if ".light." in key}
    dark = {key.removeprefix("theme.dark.") for key in made if ".dark." in key}
    assert light == dark


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = free_port(port)
        assert port < found < port + PORTS_TRIED
    assert free_port(port) == port


def test_no_usable_address_is_a_users_mistake() -> None:
    with pytest.raises(UserError, match="no port from 8501"):
        free_port(8501, host="192.0.2.1")


class _Health(http.server.BaseHTTPRequestHandler):
    """Answers the health check and nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == HEALTH_PATH else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def healthy_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_that_answers_is_ready(healthy_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy of the environment has no business with this machine's own server.
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    wait_until_healthy(healthy_url)


def test_a_server_that_ended_is_not_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    process.wait()
    with pytest.raises(UserError, match="ended with exit code 3"):
        wait_until_healthy("http://127.0.0.1:1", process)


def test_a_server_that_never_answers_is_given_up() -> None:
    with pytest.raises(UserError, match="no answer within"):
        wait_until_healthy("http://127.0.0.1:1", timeout_s=0.0)
