"""Asking a server over HTTP: timeouts, and a few more tries where it is busy or silent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any, Protocol, Self

from steptax.app.errors import InputError

#: Seconds to connect, and to wait for the answer.
TIMEOUT_S = (5.0, 30.0)
TRIES = 5
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_TRUST = (
    "REQUESTS_CA_BUNDLE=FILE names the certificate of an authority of your own, in PEM; the "
    "address must be a name that the certificate is of, and http:// is for a server without TLS"
)
_BUSY = (429, 500, 502, 503, 504)


class Answer(Protocol):
    """What a transport gives back: an answer of ``requests``."""

    status_code: int
    headers: Any

    @property
    def content(self) -> Any:
        """The body, as bytes."""


Transport = Callable[..., Answer]
"""``requests.request``: method, url, and params, json, headers, auth, timeout by name.

Raises OSError (as ``requests`` does) where no answer comes.
"""


def ask(
    transport: Transport,
    method: str,
    where: str,
    *,
    said: Callable[[Answer], str],
    hint: str,
    take: tuple[int, ...] = (200,),
    timeout_s: tuple[float, float] = TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
    **given: Any,
) -> Answer:
    """The answer of ``where`` with a status of ``take``.

    ``said`` is what an answer says of its fault, to be printed. InputError, with ``hint``, where no
    such answer comes.
    """
    wait_s, fault = _FIRST_WAIT_S, ""
    for left in reversed(range(TRIES)):
        try:
            answer = transport(method, where, timeout=timeout_s, **given)
        except OSError as error:  # what requests raises is one
            if (distrust := _distrust(error)) is not None:  # it would not be trusted later either
                raise InputError(distrust, where=where, hint=_TRUST) from error
            fault, asked_s = f"does not answer: {type(error).__name__}", None
        else:
            if answer.status_code in take:
                return answer
            fault = f"answers {answer.status_code}{said(answer)}"
            if answer.status_code not in _BUSY:
                break
            asked_s = _seconds(answer.headers.get("Retry-After"))
        if left:
            sleep(min(_LONGEST_WAIT_S, wait_s if asked_s is None else asked_s))
            wait_s *= 2
    raise InputError(f"the server {fault}", where=where, hint=hint)


class AskedServer:
    """A server that is asked over ``transport``, by a token or by a name and a password."""

    def __init__(
        self,
        transport: Transport,
        *,
        token: str | None = None,
        user: tuple[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._user = None if token else user
        self._sleep = sleep

    @classmethod
    def from_environment(cls, prefix: str) -> Self:
        """Over ``requests``, which checks certificates.

        Authorised by the variables ``prefix``_TOKEN, or _USERNAME and _PASSWORD.
        """
        import requests

        name = os.environ.get(f"{prefix}_USERNAME")
        return cls(
            requests.request,
            token=os.environ.get(f"{prefix}_TOKEN"),
            user=(name, os.environ.get(f"{prefix}_PASSWORD", "")) if name else None,
        )


def _distrust(error: OSError) -> str | None:
    """What is wrong with the certificate of a server, or with TLS; None for another error."""
    if type(error).__name__ != "SSLError":  # of requests, or of ssl
        return None
    told = str(error)
    found = re.search(r"certificate verify failed: ([^(')\"]+)", told)
    if "mismatch" in told or "doesn't match" in told:
        return "the certificate of the server is of another host"
    if found is not None:
        return f"the certificate of the server is not trusted: {found[1].strip()}"
    reason = re.search(r"\[(?:SSL: )?\w+\]? ?([^(')\"]*)", told)
    return f"there is no TLS with the server: {(reason[1] if reason else told)[:100].strip(' ]')}"


def shown(url: str) -> str:
    """``url`` without a password."""
    return re.sub(r"//[^/@]*@", "//", url)[:300]


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
