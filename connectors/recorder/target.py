"""What a recorder's ``lake`` names: a folder, a collector, or a store that fsspec reaches."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
#: What an HTTP header can carry; a token of other characters would be quoted in an error.
_TOKEN = re.compile(r"[!-~]+")


class Target(NamedTuple):
    """``kind`` is folder, http or fsspec; ``where`` a path or a URL without any secret."""

    kind: str
    where: str


class Secret:
    """A bearer token that prints as nothing: not in a log, not in a trace."""

    __slots__ = ("value",)

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<no token>" if self.value is None else "<token>"


def read_target(lake: Any) -> Target:
    """Read what the caller gave; raises TypeError or ValueError, quoting no URL.

    Path objects are always folders, and so is ``file://``.
    """
    text = os.fsdecode(lake)
    match = _SCHEME.match(text) if isinstance(lake, str) else None
    if match is None:
        return Target("folder", text)
    scheme = match[1].lower()
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"a {scheme} URL with credentials, a query or a fragment is not taken: "
            "the token belongs into STEPTAX_TOKEN"
        )
    if scheme == "file":
        return Target("folder", unquote(parts.path))
    if scheme not in ("http", "https"):
        return Target("fsspec", text.rstrip("/"))
    try:
        port = parts.port
    except ValueError:  # it says what stands there, which may be anything
        port = 0
    if not parts.hostname or port == 0:
        raise ValueError(f"expected {scheme}://host:port with a host and a port in 1..65535")
    return Target("http", text.rstrip("/"))


def read_token(given: Any) -> Secret:
    """The token that was given, else that of the environment; ValueError says nothing of it."""
    value = os.environ.get("STEPTAX_TOKEN") if given is None else given
    if value is None or value == "":
        return Secret(None)
    if not isinstance(value, str) or _TOKEN.fullmatch(value.strip()) is None:
        raise ValueError("the token holds characters other than printable ASCII without spaces")
    return Secret(value.strip())
