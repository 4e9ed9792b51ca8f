"""A real Chromium, and real servers, for the tests that need them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from steptax.app.serve import free_port, server_command, wait_until_healthy
from tests.patience import PATIENCE_MS, PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "screenshots"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium; skips where there is none."""
    path = os.environ.get("STEPTAX_CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    if path is None:
        pytest.skip("no Chromium on this machine (set STEPTAX_CHROMIUM to its path)")
    # Two cores train a model, serve pages and draw them at once.
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        chromium.on("context", lambda context: context.set_default_timeout(PATIENCE_MS))
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new tab of a common size."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tab = context.new_page()
    yield tab
    context.close()


class Servers:
    """Dashboards that run until they are stopped."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, lake: Path, **settings: str) -> str:
        """Start a dashboard on a lake; gives its address."""
        port = free_port(8600 + len(self._running))
        process = subprocess.Popen(
            server_command("127.0.0.1", port),
            env=dict(os.environ) | {"STEPTAX_LAKE": str(lake)} | settings,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._running.append(process)
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(url, process)
        return url

    def stop(self) -> None:
        """End all of them."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(timeout=PATIENCE_S)


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Start a dashboard on a lake; gives its address."""
    servers = Servers()
    yield servers.start
    servers.stop()


@pytest.fixture(scope="module")
def served() -> Iterator[Callable[..., str]]:
    """As ``serve``, for all tests of a module."""
    servers = Servers()
    yield servers.start
    servers.stop()


class Demo:
    """A running ``steptax demo``."""

    def __init__(self, lake: Path, port: int, *flags: str) -> None:
        self.lake = lake
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "steptax.app.cli", "demo", "--no-browser"]
        self.process = subprocess.Popen(
            [*command, "--lake", str(lake), "--port", str(port), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def children(self) -> list[int]:
        """Process ids of everything that the demo started, and what that started."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                parents[int(entry.name)] = int(fields[1])
        family = {self.process.pid}
        while True:
            more = {pid for pid, parent in parents.items() if parent in family} - family
            if not more:
                return sorted(family - {self.process.pid})
            family |= more

    def interrupt(self) -> str:
        """Ctrl-C; gives what the demo printed."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=PATIENCE_S)[0]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start a demo; whatever is left of it is killed at the end."""
    running: list[Demo] = []

    def start(*flags: str) -> Demo:
        found = Demo(tmp_path / "lake", free_port(8700), *flags)
        running.append(found)
        return found

    yield start
    for found in running:
        left = found.children()
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture
def screenshot() -> Callable[[Page, str], None]:
    """Write what a tab shows to ``screenshots/`` where a person can look at it."""

    def write(tab: Page, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        tab.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    return write
