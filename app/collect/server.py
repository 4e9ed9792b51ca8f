"""The HTTP side of the collector, on the standard library.

A request costs less than a tenth of what reading its rows costs, so a faster server would change
nothing; and what has no dependency needs no update of one. Threads: one for each sender that is
connected, which sleeps while its batch is stored with those of others.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson

from steptax.app.collect.beats import Beats, read_beat
from steptax.app.collect.committer import Committer
from steptax.app.collect.intake import BODY_BYTES, Intake, read_batch
from steptax.app.errors import UserError
from steptax.app.hosts import Hosts
from steptax.app.schema import Reject
from steptax.connectors.recorder.batch import inflate

logger = logging.getLogger("steptax.collect")

#: Connections at a time, and seconds that one may lie idle or stall.
CONNECTIONS = 2_048
IDLE_S = 60.0
#: Batches that are unpacked and validated at a time: bounds the memory that it takes.
PARSED_AT_ONCE = 4
#: Heartbeats of one request, unpacked: 20,000 ranks.
BEATS_BYTES = 8 * 2**20
#: Of a body that will not be read, so much is taken off the wire for the answer to arrive.
_DRAINED_BYTES = 1 << 20
RETRY_S = 2
#: Heartbeats of a request that are named when they are refused.
_REFUSED_TOLD = 20
HOSTS = Hosts()


class Collector(ThreadingHTTPServer):
    """Listens. ``tokens`` are those that are taken; with none every sender is.

    Raises UserError when it would listen beyond this machine without a token, and OSError when the
    address cannot be used.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        committer: Committer,
        beats: Beats,
        *,
        tokens: Sequence[str],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _ = address
        if not tokens and not is_loopback(host):
            raise UserError(
                "this would take rows from anyone who reaches this machine",
                where=f"--host {host}",
                hint="name a file with a token: --token-file; or leave --host out",
            )
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.committer = committer
        self.beats = beats
        self.parsing = threading.BoundedSemaphore(PARSED_AT_ONCE)
        self.started_s = time.monotonic()
        self.has_tokens = bool(tokens)
        self._tokens = [token.encode() for token in tokens]
        self._connections = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, Handler)
        if tls is not None:
            # Shaking hands is left to the thread of the connection: who is slow holds up nobody.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, as the parent class would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def is_allowed(self, authorization: str | None) -> bool:
        """True when the header carries a token that is taken; in constant time."""
        if not self._tokens:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        found = False
        for token in self._tokens:
            found |= hmac.compare_digest(token, given.strip().encode("utf-8", "replace"))
        return found and scheme.lower() == "bearer"

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, unless there are too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection, and count it out."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is the sender's to repeat; anything else is logged."""
        error = sys.exc_info()[1]
        if not isinstance(error, (OSError, ssl.SSLError)):
            logger.warning("a request failed", exc_info=error)

    def status(self) -> dict[str, Any]:
        """What ``/v1/status`` says."""
        counts = self.committer.counts
        return {
            "uptime_s": round(time.monotonic() - self.started_s, 1),
            "ranks_heard": self.beats.ranks,
            "beats_refused": self.beats.refused,
            "waiting_bytes": self.committer.waiting_bytes,
            **asdict(counts),
        }


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "steptax-collect"
    sys_version = ""
    timeout = IDLE_S
    #: Head and body leave together: a kill between the two would leave an answer without its body.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server: Collector

    def do_GET(self) -> None:
        """``/health`` for anybody, ``/v1/status`` for who has the token."""
        if self.path == "/health":
            self._answer(200, {"ok": True})
        elif self.path != "/v1/status":
            self._refuse(404, "there is only /health, /v1/status, /v1/batches and /v1/beats")
        elif self._is_allowed():
            self._answer(200, {"ok": True, "data": self.server.status()})

    def do_POST(self) -> None:
        """``/v1/batches`` and ``/v1/beats``."""
        takes = {"/v1/batches": self._take_batch, "/v1/beats": self._take_beats}.get(self.path)
        if takes is None:
            self._refuse(404, "there is only /v1/batches and /v1/beats to post to")
        elif self._is_allowed() and (body := self._body()) is not None:
            takes(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are counted, not listed."""

    # -- what is posted -------------------------------------------------------------------------

    def _take_batch(self, body: bytes) -> None:
        try:
            with self.server.parsing:
                intake = read_batch(body)
        except ValueError as error:
            self._keep_reject(str(error), body)
            self._answer(400, {"ok": False, "error": str(error)})
            return
        ticket = self.server.committer.submit(intake)
        if ticket is None:
            self._put_off("too much waits to be stored")
            return
        ticket.done.wait()
        if ticket.is_refused:
            self._answer(422, {"ok": False, "error": f"it cannot be stored: {ticket.error}"})
            return
        if ticket.error is not None:
            self._put_off(f"the lake did not take it: {ticket.error}")
            return
        rejected = [{"piece": place, "reason": reason} for place, reason in intake.refused]
        if rejected and not intake.rows:
            reason = f"no segment could be read; the first: {rejected[0]['reason']}"
            self._answer(422, {"ok": False, "error": reason, "rejected": rejected})
            return
        stored = 0 if ticket.already else intake.count
        self._answer(
            200,
            {"ok": True, "stored": stored, "already": ticket.already, "rejected": rejected},
        )

    def _take_beats(self, body: bytes) -> None:
        try:
            with self.server.parsing:
                given = orjson.loads(inflate(body, BEATS_BYTES))
            if not isinstance(given, dict) or not isinstance(given.get("beats"), list):
                raise ValueError('expected {"beats": [...]}')
        except ValueError as error:
            self._answer(400, {"ok": False, "error": f"heartbeats: {error}"})
            return
        # One rank that tells nonsense must not silence the others of its node.
        beats: list[tuple[str, dict[str, Any]]] = []
        refused: list[dict[str, Any]] = []
        for place, beat in enumerate(given["beats"]):
            try:
                beats.append(read_beat(beat))
            except ValueError as error:
                refused.append({"beat": place, "reason": str(error)})
        self.server.beats.take(beats)
        self.server.beats.count_refused(len(refused))
        if refused and not beats:
            reason = f"heartbeats: none could be read; the first: {refused[0]['reason']}"
            self._answer(400, {"ok": False, "error": reason, "refused": refused[:_REFUSED_TOLD]})
            return
        said = {"ok": True, "taken": len(beats), "refused": refused[:_REFUSED_TOLD]}
        self._answer(200, said)

    def _keep_reject(self, reason: str, body: bytes) -> None:
        reject = Reject("unknown", f"batch: {reason}", raw=repr(body[:100])[:500])
        host = str(self.client_address[0])
        self.server.committer.keep_reject(Intake("", 1, host, 1_000, rejects=[reject]))

    # -- around it ------------------------------------------------------------------------------

    def _is_allowed(self) -> bool:
        if not self.server.is_allowed(self.headers.get("Authorization")):
            self._refuse(401, "expected a bearer token that this collector knows")
            return False
        if not self.server.has_tokens and self._is_of_a_page():
            self._refuse(403, "without a token nothing is taken from a page in a browser")
            return False
        return True

    def _is_of_a_page(self) -> bool:
        """Whether a browser may have been made to send it: any page that one reads could do that.

        A browser names the page that it sends for, and the name that it was sent to; a recorder
        names no page, and this machine.
        """
        named = {"Origin", "Referer", "Sec-Fetch-Site"} & {key.title() for key in self.headers}
        return bool(named) or not HOSTS.is_allowed(self.headers.get_all("Host", []))

    def _body(self) -> bytes | None:
        """The body, or None after an answer that says why it is not read."""
        length = self._length()
        if self.headers.get("Transfer-Encoding") is not None or length is None:
            self._refuse(411, "expected a Content-Length")
            return None
        if self.headers.get("Content-Encoding", "gzip").lower() not in ("gzip", "identity"):
            self._refuse(415, "expected gzip or no encoding")
            return None
        if length > BODY_BYTES:
            self._refuse(413, f"expected at most {BODY_BYTES:,} bytes")
            return None
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None
        return body

    def _refuse(self, status: int, reason: str) -> None:
        """Answer without having read the body."""
        self.close_connection = True
        length = self._length() or 0
        if 0 < length <= _DRAINED_BYTES:
            self.rfile.read(length)
        self._answer(status, {"ok": False, "error": reason})

    def _length(self) -> int | None:
        """Bytes of the body as the head states them; None where it states none."""
        stated = self.headers.get("Content-Length", "")
        if not (stated.isascii() and stated.isdecimal()):
            return None
        # Python reads no number of thousands of digits; none of twenty is small enough either.
        return int(stated.lstrip("0")[:20] or "0")

    def _put_off(self, reason: str) -> None:
        self._answer(503, {"ok": False, "error": reason}, {"Retry-After": str(RETRY_S)})

    def _answer(
        self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        data = orjson.dumps(body) + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def is_loopback(host: str) -> bool:
    """True when only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """For listening; raises UserError when the files do not make a pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise UserError(
            f"the certificate and its key cannot be used: {error}",
            where=f"--tls-cert {certificate}",
            hint="both as PEM; --tls-key where the key is in a file of its own",
        ) from None
    return context
