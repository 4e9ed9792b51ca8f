"""Sending to ``steptax collect`` over HTTP, with the standard library."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import zlib
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from steptax.connectors.recorder.target import Secret
from steptax.connectors.recorder.transport import Answer

TIMEOUT_S = 30.0
#: What an answer may hold; more is not ours.
_ANSWER_BYTES = 1 << 20
_REFUSED = frozenset((400, 413, 415, 422))


class HttpTransport:
    """Posts batches to a collector, over one connection that is kept.

    Certificates are checked against those of the system (``SSL_CERT_FILE`` names others).
    Redirects and proxies are not followed: the token goes to nobody but the named host.
    """

    pack_s = 0.5
    beat_s = 1.0

    def __init__(self, url: str, secret: Secret, *, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if parts.scheme.lower() == "https" else None
        self._secret = secret
        self._connection: http.client.HTTPConnection | None = None

    def send(self, data: bytes, *, is_first: bool) -> Answer:
        """Post a batch. The collector knows it by its identity, so a repeat does no harm."""
        return self._post("/v1/batches", "application/x-steptax-batch", data)

    def send_beats(self, sender: str, beats: Sequence[dict[str, Any]]) -> Answer:
        """Post heartbeats."""
        body = json.dumps({"sender": sender, "beats": beats}).encode()
        deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
        return self._post("/v1/beats", "application/json", deflate.compress(body) + deflate.flush())

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _post(self, path: str, kind: str, body: bytes) -> Answer:
        headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
        if self._secret.value is not None:
            headers["Authorization"] = f"Bearer {self._secret.value}"
        while True:
            is_kept = self._connection is not None
            try:
                return self._ask(path, body, headers)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                # The collector may have closed a connection that lay idle: that is no failure.
                if not (is_kept and isinstance(error, ConnectionError)):
                    return Answer("retry", f"{type(error).__name__}: {error}")

    def _ask(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        connection.request("POST", self._prefix + path, body, headers)
        response = connection.getresponse()
        said = response.read(_ANSWER_BYTES)
        if response.length and len(said) < _ANSWER_BYTES:
            raise ConnectionResetError("the answer was cut short")
        if response.will_close or not response.isclosed():
            self.close()
        return _judge(response.status, response.getheader("Retry-After"), said)

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._tls
        )


def _judge(status: int, retry_after: str | None, said: bytes) -> Answer:
    body = _object(said)
    if status == 200:
        if "stored" not in body and "taken" not in body:
            return Answer("retry", "something other than a collector answers at this address")
        return Answer("done", lost=_lost(body.get("rejected")))
    reason = body.get("error")
    reason = reason[:300] if isinstance(reason, str) else http.client.responses.get(status, "")
    reason = f"HTTP {status}: {reason}"
    if status in _REFUSED:
        return Answer("refused", reason)
    return Answer("retry", reason, _seconds(retry_after))


def _object(said: bytes) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _lost(rejected: Any) -> tuple[tuple[int, str], ...]:
    if not isinstance(rejected, list):
        return ()
    return tuple(
        (item["piece"], str(item.get("reason"))[:300])
        for item in rejected
        if isinstance(item, dict) and type(item.get("piece")) is int
    )


def _seconds(retry_after: str | None) -> float | None:
    """Of a Retry-After header: seconds, or a date of HTTP."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def is_loopback(url: str) -> bool:
    """True when the URL stays on this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
