"""The HTTP interface of a Prometheus server, as much of it as reading samples needs.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from steptax.app.errors import InputError
from steptax.connectors.asking import Answer, AskedServer, ask, shown
from steptax.connectors.nccl.inspector_prom import GAUGES
from steptax.connectors.prometheus.names import DEVICE_FIELDS, LINK_FIELDS

#: A server may think about a window for as long as it does itself, two minutes, and a little more.
TIMEOUT_S = (5.0, 150.0)
#: One answer holds the samples of so many seconds.
WINDOW_S = 900.0
#: ... or of so many steps; a server gives 11,000 of a series at most.
WINDOW_STEPS = 500
_SHORTEST_S = 15.0
#: A longer answer is asked for in parts: its samples take forty times the memory.
ANSWER_BYTES = 32 << 20
#: Samples of so many seconds before a window tell whether those in it are fresh.
CONTEXT_S = 600.0
#: More than this in one call has no end that anybody waits for.
_WINDOWS = 100_000
_METRICS = (*DEVICE_FIELDS, *LINK_FIELDS, *GAUGES)
_TOO_MUCH = re.compile(r"too many samples|exceeded maximum resolution|timed out|expanding series")
_HINT = (
    "check address (https:// where it wants TLS) and authorisation: PROMETHEUS_TOKEN, or "
    "PROMETHEUS_USERNAME and PROMETHEUS_PASSWORD; REQUESTS_CA_BUNDLE names the certificate of an "
    "authority of your own"
)


class TooMuchError(Exception):
    """A server refuses a window because of its size."""


@dataclass(frozen=True)
class Window:
    """What is asked for: moments in microseconds, without the first and with the last.

    ``step_s`` None asks for every sample as it was scraped, and for ``context_s`` before them.
    """

    start_us: int
    end_us: int
    step_s: float | None = None
    context_s: float = CONTEXT_S

    @property
    def read_from_us(self) -> int:
        """Begin of what is read for it: steps are fresh by how they are asked for."""
        return self.start_us - (round(self.context_s * 1e3) * 1000 if self.step_s is None else 0)

    def parts(self) -> Iterator[Window]:
        """Windows that a server answers at once, in order; InputError where there are too many."""
        size_s = WINDOW_S if self.step_s is None else self.step_s * WINDOW_STEPS
        size_us = round(size_s * 1e6)
        if self.start_us >= self.end_us or (self.end_us - self.start_us) / size_us > _WINDOWS:
            raise InputError(
                "expected an end behind the begin, and not years behind it",
                where="--from, --to",
                hint="for example --from 2026-11-01T08:00Z --to 2026-11-01T20:00Z",
            )
        start_us = self.start_us
        if self.step_s is not None:
            start_us -= start_us % round(self.step_s * 1e6)
        while start_us < self.end_us:
            # Ends at multiples of the size: the same windows whenever it is asked. Steps go on
            # from window to window.
            whole_us = start_us - start_us % size_us if self.step_s is None else start_us
            end_us = min(self.end_us, whole_us + size_us)
            yield Window(start_us, end_us, self.step_s, self.context_s)
            start_us = end_us

    def halves(self) -> tuple[Window, Window] | None:
        """The window in two, each with less before it; None where it is too short."""
        step_us = 1000 if self.step_s is None else round(self.step_s * 1e6)
        half_us = (self.end_us - self.start_us) // 2 // step_us * step_us
        if half_us < _SHORTEST_S * 1e6 or half_us < step_us:
            return None
        middle_us = self.start_us + half_us
        return (
            Window(self.start_us, middle_us, self.step_s, self.context_s / 2),
            Window(middle_us, self.end_us, self.step_s, self.context_s / 2),
        )


class PrometheusServer(AskedServer):
    """Asks a server for what devices and ports said in a window."""

    def windows(self, url: str, window: Window) -> Iterator[tuple[str, bytes]]:
        """The answers to each part of ``window``: a file name, and a document per line.

        The first line says which window it is, so that a gap at its edges is seen. InputError where
        the server does not answer, or not as such a server does.
        """
        base, host = base_of(url)
        for part in window.parts():
            yield from self._part(base, host, part)

    def _part(self, base: str, host: str, window: Window) -> Iterator[tuple[str, bytes]]:
        try:
            answers = list(self._answers(base, window))
            if sum(map(len, answers)) > ANSWER_BYTES:
                raise TooMuchError(f"it answers more than {ANSWER_BYTES >> 20} MiB")
        except TooMuchError as error:
            halves = window.halves()
            if halves is None:
                raise InputError(
                    f"a window of {_SHORTEST_S:.0f} seconds is still too much: {error}",
                    where=base,
                    hint="raise --query.max-samples of the server, or ask with --step",
                ) from None
            for half in halves:
                yield from self._part(base, host, half)
            return
        said = {
            "read_from_us": window.read_from_us,
            "start_us": window.start_us,
            "end_us": window.end_us,
            "step_s": window.step_s,
        }
        body = json.dumps({"status": "success", "window": said}).encode()
        name = f"{host}-{window.start_us // 1000}-{window.end_us // 1000}.json"
        yield name, b"\n".join([body, *answers])

    def _answers(self, base: str, window: Window) -> Iterator[bytes]:
        end = f"{window.end_us / 1e6:.3f}"
        if window.step_s is None:
            # Samples of a range as they were scraped, each at its own moment: a server fills no
            # gap in them, while a query with steps repeats the last value for five minutes.
            length_ms = (window.end_us - window.read_from_us) // 1000
            name = "|".join(_METRICS)
            query = f'{{__name__=~"{name}"}}[{length_ms}ms]'
            yield self._ask(base, "query", {"query": query, "time": end})
            return
        step = f"{window.step_s:g}"
        first = f"{window.start_us / 1e6 + window.step_s:.3f}"
        for name in _METRICS:
            # What is older than a step was told at the step before.
            query = f"{name} and (timestamp({name}) > time() - {step})"
            asked = {"query": query, "start": first, "end": end, "step": step}
            yield self._ask(base, "query_range", asked)

    def _ask(self, base: str, what: str, query: dict[str, str]) -> bytes:
        where = f"{base}/api/v1/{what}"
        answer = ask(
            self._transport,
            "POST",
            where,
            said=_message,
            hint=_HINT,
            take=(200, 400, 422),
            timeout_s=TIMEOUT_S,
            sleep=self._sleep,
            data=query,
            headers=self._headers,
            auth=self._user,
        )
        content = bytes(answer.content)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("status") not in ("success", "error"):
            if answer.status_code == 400 and b"HTTP request to an HTTPS server" in content:
                raise InputError("the server wants TLS", where=where, hint="name it with https://")
            raise InputError(
                "expected the answer of a Prometheus server, found another",
                where=where,
                hint="give the address at which its page is, such as http://HOST:9090",
            )
        if found["status"] == "error" or answer.status_code != 200:
            fault = str(found.get("error", ""))[:300]
            if _TOO_MUCH.search(fault):
                raise TooMuchError(fault)
            raise InputError(f"the server refuses the query: {fault}", where=where, hint=_HINT)
        return content.replace(b"\n", b" ")


def base_of(url: str) -> tuple[str, str]:
    """Address without what belongs to pages and API, and a name of it for files.

    InputError where ``url`` is no address of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            "expected the address of a server", where=shown(url), hint="such as http://HOST:9090"
        )
    own = re.split(r"/(?:api/v1|graph|query|classic|targets|alerts)(?:/|$)", parts.path)[0]
    host = parts.netloc.rpartition("@")[2]
    base = f"{parts.scheme}://{host}{own.rstrip('/')}"
    return base, re.sub(r"[^\w.-]+", "-", f"{host}{own.rstrip('/')}")[:100]


def _message(answer: Answer) -> str:
    """What the server says of the fault, in brackets."""
    try:
        found: Any = json.loads(answer.content)
    except (ValueError, RecursionError):
        return ""
    said = found.get("error") if isinstance(found, dict) else None
    return f" ({said[:200]})" if isinstance(said, str) and said else ""
