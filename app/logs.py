"""Log lines of the servers: text for people, or one JSON object a line for programs."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

#: Loggers of what runs in the page server.
NAMES: Final = ("steptax", "authlib", "httpx", "py.warnings")
FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
HIDDEN: Final = "[secret]"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class Redacting(logging.Formatter):
    """Formats a record with every one of ``secrets`` replaced, also inside of a traceback."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._secrets = sorted({s for s in secrets if s}, key=len, reverse=True)
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line of a record without its traceback: what it says, and what was given as extra."""
        given = (f" {name}={_word(value)}" for name, value in extra_of(record).items())
        return super().formatMessage(record) + "".join(given)

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        return self.hidden(super().format(record))

    def hidden(self, text: str) -> str:
        """``text`` without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


class JsonLines(Redacting):
    """One JSON object a line: ts, level, logger, message, what was given as extra, and error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        body: dict[str, Any] = {
            "ts": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        body |= extra_of(record)
        if record.exc_info:
            body["error"] = self.formatException(record.exc_info)
        return self.hidden(orjson.dumps(body, default=str).decode())


def extra_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given with ``extra``, by name."""
    return {k: v for k, v in vars(record).items() if k not in _OWN}


def _word(value: Any) -> str:
    """A value as one word: a stranger who asks for a path with a line end in it ends no line."""
    text = str(value)
    return text if re.fullmatch(r"[!#-~]+", text) else json.dumps(text)


def configure(form: str, level: str, secrets: Iterable[str] = ()) -> None:
    """Send the lines of every logger of ours to the standard error, in one form."""
    logging.captureWarnings(True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level.upper())
    handler.setFormatter((JsonLines if form == "json" else Redacting)(secrets))
    for name in NAMES:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    # Its lines hold what follows the path: the code of a login. The guard writes one without.
    logging.getLogger("uvicorn.access").addFilter(lambda _: False)
    _streamlit_to(handler)


def _streamlit_to(handler: logging.Handler) -> None:
    """Streamlit gives each of its loggers a handler of its own when it makes one: give it ours."""
    from streamlit import logger as theirs

    def set_up(logger: logging.Logger) -> None:
        logger.handlers[:] = [handler]

    theirs.setup_formatter = set_up
    theirs.update_formatter()


def secrets_in(body: Mapping[str, Any]) -> list[str]:
    """Every text of a tree of values whose key says that it is secret."""
    found: list[str] = []
    for key, value in body.items():
        if isinstance(value, Mapping):
            found += secrets_in(value)
        elif isinstance(value, str) and any(
            word in key.lower() for word in ("secret", "token", "password", "key")
        ):
            found.append(value)
    return found
