"""From the text of an event to the event, also where its writer made it invalid JSON.

Seen in public reports: bare Infinity and NaN (pytorch/kineto#105), backslashes without escape
(pytorch/pytorch#98432), raw control characters and line ends (#136180, #113001), text in another
encoding (pytorch/kineto#80).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

_STRAY_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BARE_NUMBER = re.compile(r"(?<=[\s:,\[])(-?)(inf|nan|infinity)(?=[\s,\]}])", re.IGNORECASE)
_DECODER = json.JSONDecoder(strict=False)


def whole(data: bytes) -> list[Any] | None:
    """All events of valid text, None where some of it is invalid."""
    try:
        found = orjson.loads(b"[" + data + b"]")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, list) else None


def keys(text: bytes) -> dict[str, Any] | None:
    """The object that is all of valid text; None where it is anything else."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def one(piece: bytes) -> tuple[Any, bool] | None:
    """The event that is all of ``piece``, and whether it had to be repaired; None if it is none."""
    try:
        return orjson.loads(piece), False
    except orjson.JSONDecodeError:
        found = _first(piece)
    return None if found is None or found[1].strip(" \t\r\n,") else (found[0], True)


def first(piece: bytes) -> tuple[Any, str, bool] | None:
    """The event that ``piece`` begins with, what follows it, and whether it was repaired."""
    text = piece.decode("utf-8", "replace")
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        return value, text[end:], "\ufffd" in text[:end]
    except (ValueError, RecursionError):
        found = _first(piece)
    return None if found is None else (*found, True)


def _first(piece: bytes) -> tuple[Any, str] | None:
    text = piece.decode("utf-8", "replace").lstrip()
    for candidate in _spellings(text):
        try:
            value, end = _DECODER.raw_decode(candidate)
        except (ValueError, RecursionError):
            continue
        return value, candidate[end:]
    return None


def _spellings(text: str) -> Iterator[str]:
    """``text`` with ever more of it repaired, one after the other as each is asked for."""
    yield text
    named = _named(text)
    yield named
    yield _STRAY_BACKSLASH.sub(r"\\\\", named)


def _named(text: str) -> str:
    """``inf`` and ``-nan`` as C++ streams write them, in the spelling that is read."""
    return _BARE_NUMBER.sub(lambda m: "NaN" if m[2].lower() == "nan" else f"{m[1]}Infinity", text)
