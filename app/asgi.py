"""The page server: Streamlit's own, behind the guard, with its health and its own figures."""

from __future__ import annotations

import hmac
import importlib
import pkgutil
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from streamlit import net_util, runtime
from streamlit.runtime import runtime_util

from steptax.app.access import AccessRules, live_rules, read_rules, read_secret_toml
from steptax.app.guard import Guard
from steptax.app.hosts import LOCAL, Hosts, host_of, names_in
from steptax.app.lake.health import lake_state
from steptax.app.logs import configure, secrets_in
from steptax.app.memory import collect_now_and_then, give_back_what_is_freed, settle
from steptax.app.orphan import end_with_parent
from steptax.app.serve import SAID_MB
from steptax.app.settings import Settings
from steptax.app.shell import Shell
from steptax.app.tabs import open_tabs
from steptax.app.telemetry import CONTENT_TYPE, TELEMETRY

end_with_parent()
give_back_what_is_freed()
# Streamlit compares a foreign origin with this machine's address on the internet, and asks a
# service there for it while everybody waits. It is told one, and so asks nobody.
net_util._external_ip = "127.0.0.1"
# Streamlit has one bound for what is heard and what is said. The server that listens was made with
# the one for what is heard, before this is read; from here on it holds for what is said.
runtime_util._max_message_size_bytes = SAID_MB * 1_000_000
_settings = Settings()
# Read before anything listens: a server with rules that cannot be read does not start.
_names = {*names_in(_settings.allow_hosts, where="STEPTAX_ALLOW_HOSTS")}
_rules: Callable[[], AccessRules] | None = None
_secret: dict[str, Any] = {}
if _settings.access is not None:
    read_rules(_settings.access)
    _rules = live_rules(_settings.access).now
    _secret = read_secret_toml(_settings.access)
    # The address that people use: what the login sends them back to.
    _names.add(host_of(urlsplit(_secret["auth"]["redirect_uri"]).netloc) or LOCAL)
configure(_settings.log_format, _settings.log_level, secrets_in(_secret))


def _lake_state() -> str:
    return lake_state(_settings.lake)


async def _healthz(request: Request) -> Response:
    """200 while pages can be served from the lake; no name and no number of a job."""
    lake = _lake_state()
    is_well = lake in ("ok", "empty")
    body = {"status": "ok" if is_well else "failing", "lake": lake, "version": version("steptax")}
    return JSONResponse(body, status_code=200 if is_well else 503)


async def _metrics(request: Request) -> Response:
    """Own figures; with a login only for who has the token of the file with the rules."""
    if _rules is not None:
        token = _secret.get("metrics", {}).get("token")
        given = request.headers.get("authorization", "")
        if not token or not hmac.compare_digest(f"Bearer {token}".encode(), given.encode()):
            return PlainTextResponse("Unauthorized\n", status_code=401)
    return PlainTextResponse(TELEMETRY.text(), media_type=CONTENT_TYPE)


def _sessions() -> float | None:
    if not runtime.exists():
        return None
    return float(open_tabs())


def _resident_bytes() -> float | None:
    try:
        kib = next(
            line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
        )
    except (OSError, StopIteration):
        return None
    return float(kib.split()[1]) * 1024


def _free_bytes() -> float | None:
    try:
        return float(shutil.disk_usage(_settings.lake).free)
    except OSError:
        return None


_GAUGES: tuple[tuple[str, str, Callable[[], float | None]], ...] = (
    ("steptax_up", "1 while pages can be served.", lambda: float(_lake_state() in ("ok", "empty"))),
    ("steptax_sessions", "Browser tabs that are connected.", _sessions),
    ("steptax_resident_memory_bytes", "Memory of the page server.", _resident_bytes),
    ("steptax_lake_free_bytes", "Free on the disk of the lake.", _free_bytes),
)
for _name, _about, _read in _GAUGES:
    TELEMETRY.gauge(_name, _about, _read)


def _warm() -> None:
    """Import what the pages use, and open the lake, before somebody asks for one."""
    pages = importlib.import_module("steptax.pages")
    for module in pkgutil.iter_modules(pages.__path__, "steptax.pages."):
        importlib.import_module(module.name)
    settle()
    collect_now_and_then()
    if _lake_state() == "ok":
        # Imported here: they need a second, in which the server already answers.
        warming = importlib.import_module("steptax.app.views.warm")
        opening = importlib.import_module("steptax.app.views.workspace")
        warming.warm(opening.open_workspace(_settings.lake))


@asynccontextmanager
async def _lifespan(_app: st.App) -> AsyncIterator[None]:
    threading.Thread(target=_warm, name="warm", daemon=True).start()
    yield


app = st.App(
    Path(__file__).resolve().parent / "main.py",
    routes=[Route("/healthz", _healthz), Route("/metrics", _metrics)],
    middleware=[
        Middleware(Guard, rules=_rules, hosts=Hosts(_names)),
        Middleware(Shell, own=("/healthz", "/metrics")),
    ],
    lifespan=_lifespan,
    secrets={"auth": _secret["auth"]} if _secret else None,
)
