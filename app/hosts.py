"""The names under which a server of ours answers.

A page of a stranger can have its own name resolved to this machine (DNS rebinding); a browser then
takes our answers for its own and lets it read them. That name stays in the Host header, so a server
answers under the names that are its own only. Addresses cannot be taken over in that way: each of
them is taken as it is.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from steptax.app.errors import UserError

LOCAL: Final = "localhost"
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class Hosts:
    """``localhost``, this machine's own name, every address, and ``names``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        own = (LOCAL, socket.gethostname(), *names)
        self._names = frozenset(_plain(name) for name in own)

    def is_allowed(self, headers: Sequence[str]) -> bool:
        """Whether a request with these Host headers is for us; there has to be one of them."""
        host = host_of(headers[0]) if len(headers) == 1 else None
        return host is not None and (host in self._names or _is_address(host))


def host_of(header: str) -> str | None:
    """The host of ``host``, ``host:port`` or ``[address]:port``; None where it is none of them."""
    try:
        found = urlsplit(f"//{header}")
        _ = found.port  # raises where it is no number
    except ValueError:
        return None
    if found.netloc != header or "@" in header or not found.hostname:
        return None
    return _plain(found.hostname)


def names_in(text: str, *, where: str) -> tuple[str, ...]:
    """Names between commas; UserError for what is none, as an address with a port."""
    names = tuple(_plain(part) for one in text.split(",") if (part := one.strip()))
    for name in names:
        if not _NAME.fullmatch(name) and not _is_address(name):
            raise UserError(
                f"expected the name of a host, found {name!r}",
                where=where,
                hint="without http:// and without a port, as steptax.example",
            )
    return names


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
