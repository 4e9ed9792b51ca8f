"""Asking an exporter itself for its metrics: one scrape, as a Prometheus server would make it.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from steptax.app.errors import InputError
from steptax.connectors.asking import Answer, AskedServer, ask, shown

#: An exporter that takes longer is hung; a server gives up after ten seconds.
TIMEOUT_S = (5.0, 10.0)
_HINT = (
    "check address and authorisation: PROMETHEUS_TOKEN, or PROMETHEUS_USERNAME and "
    "PROMETHEUS_PASSWORD, as a server would have them in its configuration"
)


class Exporter(AskedServer):
    """An exporter of metrics."""

    def scrape(self, url: str) -> tuple[str, bytes]:
        """A file name that tells the node, and the text; InputError where there is no answer."""
        where, host = metrics_of(url)
        answer = ask(
            self._transport,
            "GET",
            where,
            said=_message,
            hint=_HINT,
            timeout_s=TIMEOUT_S,
            sleep=self._sleep,
            headers={"Accept": "text/plain;version=0.0.4", **self._headers},
            auth=self._user,
        )
        return f"{host}.prom", bytes(answer.content)


def metrics_of(url: str) -> tuple[str, str]:
    """Where metrics lie, ``/metrics`` unless the address names a place, and the name of the host.

    InputError where ``url`` is no address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            "expected the address of an exporter",
            where=shown(url),
            hint="such as http://HOST:9400/metrics",
        )
    place = parts.path if parts.path.strip("/") else "/metrics"
    netloc = parts.netloc.rpartition("@")[2]
    where = urlunsplit((parts.scheme, netloc, place, parts.query, ""))
    return where, re.sub(r"[^\w.-]+", "-", parts.hostname)[:100]


def _message(answer: Answer) -> str:
    """The beginning of what it says of the fault, in brackets."""
    text = bytes(answer.content[:200]).decode("utf-8", "replace").strip()
    return f" ({text.splitlines()[0][:100]})" if text and not text.startswith("<") else ""
