"""What stands before the page server: every request passes here first.

Without a login a stranger gets the empty shell of the pages, the login itself and the word that the
server is alive. What a page shows comes over the websocket, where ``pages.access`` decides; files
that a page made come from here, to the person whose page made them and to nobody else.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME
from streamlit.web.server.starlette.starlette_websocket import _get_signed_cookie_with_chunks

from steptax.app.access import Access, AccessDeniedError, AccessRules, NotLoggedInError
from steptax.app.handed import HANDED
from steptax.app.hosts import Hosts
from steptax.app.shell import PAGES
from steptax.app.strangers import Strangers
from steptax.app.telemetry import TELEMETRY

logger = logging.getLogger("steptax.serve")

#: Paths that hold nothing of any job. Every other one needs a login where there is one.
SHELL: Final = frozenset(
    {
        "/",
        "/index.html",
        "/manifest.json",
        "/favicon.png",
        *(f"/{address}" for address in PAGES),
        "/healthz",
        "/metrics",
        "/auth/login",
        "/auth/logout",
        "/oauth2callback",
        "/_stcore/health",
        "/_stcore/host-config",
    }
)
SHELL_FOLDER: Final = "/static/"
MEDIA: Final = "/media/"
#: Asked by what watches the server, under whatever name it knows; they name nothing of a job.
ANY_HOST: Final = frozenset({"/healthz", "/metrics", "/_stcore/health"})
#: Nothing is sent to the pages: there is no form with a file, and so no way in for one.
METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'; object-src 'none'; base-uri 'self'",
}
_OTHER_NAME: Final = (
    "This server does not answer under this name. Whoever runs it can add it: "
    "steptax serve --allow-host NAME"
)


class Guard:
    """ASGI middleware. ``rules`` None: there is no login, and whoever gets here may read.

    It gives the rules as they are at that moment; ``hosts`` are the names that it answers under.
    """

    def __init__(self, app: ASGIApp, rules: Callable[[], AccessRules] | None, hosts: Hosts) -> None:
        self._app = app
        self._rules = rules
        self._hosts = hosts
        self._strangers = Strangers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if scope["type"] == "websocket" and not self._is_ours(scope):
            await send({"type": "websocket.close", "code": 1008})  # before it began: a 403
            return
        if scope["type"] == "websocket" and self._is_stranger(scope):
            await self._strangers.serve(self._app, scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin_s = time.perf_counter()
        status = 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith(MEDIA):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            said = _OTHER_NAME if refused is HTTPStatus.MISDIRECTED_REQUEST else refused.phrase
            answer = PlainTextResponse(f"{said}\n", status_code=refused)
            await answer(scope, receive, told)
        else:
            await self._app(scope, receive, told)
        TELEMETRY.count(
            "steptax_http_requests_total", method=_method(scope["method"]), code=str(status)
        )
        # The path only: what follows it holds the choices of a reader, or the code of a login.
        logger.info(
            "request",
            extra={
                "method": _method(scope["method"]),
                "path": scope["path"][:200],
                "status": status,
                "duration_s": round(time.perf_counter() - begin_s, 4),
            },
        )

    def _is_ours(self, scope: Scope) -> bool:
        """Whether the request names one of our hosts; says so in the log where it does not."""
        given = Headers(scope=scope).getlist("host")
        if scope["path"] in ANY_HOST or self._hosts.is_allowed(given):
            return True
        logger.warning("refused a request to the host %.200r", ", ".join(given))
        return False

    def _is_stranger(self, scope: Scope) -> bool:
        """Whether there is a login, and who asks may see nothing by it."""
        if self._rules is None:
            return False
        try:
            self._rules().access_of(claims_of(Headers(scope=scope)), now_s=time.time())
        except AccessDeniedError:
            return True
        return False

    def _refused(self, scope: Scope) -> HTTPStatus | None:
        path = scope["path"]
        if not self._is_ours(scope):
            return HTTPStatus.MISDIRECTED_REQUEST
        if scope["method"] not in METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED
        if self._rules is None or path in SHELL or path.startswith(SHELL_FOLDER):
            return None
        claims = claims_of(Headers(scope=scope))
        try:
            access = self._rules().access_of(claims, now_s=time.time())
        except NotLoggedInError:
            return HTTPStatus.UNAUTHORIZED
        except AccessDeniedError:
            return HTTPStatus.FORBIDDEN
        if path.startswith(MEDIA) and not _is_for(path.removeprefix(MEDIA), access):
            return HTTPStatus.NOT_FOUND
        return None


def claims_of(headers: Headers) -> dict[str, Any]:
    """The claims of the login of a request, whose signature is good; empty where there are none."""
    cookies: dict[str, str] = {}
    for one in headers.getlist("cookie"):
        cookies |= cookie_parser(one)
    try:
        raw = _get_signed_cookie_with_chunks(cookies, USER_COOKIE_NAME)
        found = {} if raw is None else json.loads(raw)
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_for(file: str, access: Access) -> bool:
    """Whether a page made the file for this person. What cannot be told is a no."""
    if not runtime.exists():
        return False
    try:
        found = runtime.get_instance().media_file_mgr.read_file(file.partition(".")[0])
    except MediaFileStorageError:
        return False
    return found is not None and HANDED.is_for(found.content, access.identity)


def _method(method: str) -> str:
    """A method as a label: what a stranger makes up is not one."""
    return method if method in {*METHODS, "POST", "PUT", "PATCH", "DELETE"} else "other"
