"""A server that speaks S3 on the loopback interface, and tells which requests came.

It is moto's (``moto[s3]``), with whatever is asked of it before: a refusal, or something to wait
for. Requests are named as Amazon bills them: PUT, COPY, POST and LIST at one price, GET and all
others at another, DELETE at none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

#: What ``StoreServer.counts`` tells apart.
KINDS = ("PUT", "LIST", "GET", "DELETE")
_REFUSAL = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"


class StoreServer:
    """The server while it is entered; ImportError without moto. ``url`` is where it listens.

    ``before`` is called with kind and path of each request before it is answered. It returns what
    to refuse it with, status, code and message as S3 has them; None lets the request through.
    """

    def __init__(self) -> None:
        self.before: Callable[[str, str], tuple[int, str, str] | None] = _through
        self.counts: Counter[str] = Counter()
        self.events: list[tuple[str, str, str]] = []
        """``begin`` and ``end`` of each request, its kind and its path, in the order they came."""
        self.url = ""
        self._lock = Lock()

    def __enter__(self) -> StoreServer:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        self._store = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_quiet(MotoRequestHandler)
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Count from nothing, and let everything through."""
        with self._lock:
            self.before = _through
            self.counts = Counter()
            self.events = []

    def most_at_once(self, kind: str) -> int:
        """How many requests of ``kind`` were on their way at the same time, at most."""
        now = most = 0
        for edge, of, _ in self.events:
            now += {"begin": 1, "end": -1}[edge] if of == kind else 0
            most = max(most, now)
        return most

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        kind, path = _kind_of(environ)
        with self._lock:
            self.counts[kind] += 1
            self.events.append(("begin", kind, path))
        try:
            refusal = self.before(kind, path)
            if refusal is None:
                return [*self._store(environ, start)]
            status, code, message = refusal
            body = _REFUSAL.format(code=code, message=message).encode()
            # Amazon tells the bucket's region with each answer; a client that is sent elsewhere
            # without it asks for ever.
            told = [("Content-Type", "application/xml"), ("x-amz-bucket-region", "eu-west-1")]
            start(f"{status} {code}", told)
            return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
        finally:
            with self._lock:
                self.events.append(("end", kind, path))


def _through(kind: str, path: str) -> None:
    """No request is refused."""


def _kind_of(environ: dict[str, Any]) -> tuple[str, str]:
    """Kind and path of a request; of a list the path is what is listed."""
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    asked = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    if method == "GET" and "list-type" in asked:
        return "LIST", f"{path.rstrip('/')}/{asked.get('prefix', [''])[0]}"
    if method == "POST" and "delete" in asked:
        return "DELETE", path
    return {"GET": "GET", "HEAD": "GET", "DELETE": "DELETE"}.get(method, "PUT"), path


def _quiet(handler: type) -> type:
    """``handler``, which does not write a line for each request."""
    return type("Quiet", (handler,), {"log_request": lambda *_: None})
