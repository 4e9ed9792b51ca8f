"""What went wrong inside a recorder: counted, remembered, said once; never raised."""

from __future__ import annotations

import contextlib
import logging

logger = logging.getLogger("steptax.recorder")


class Notes:
    """Counters for ``stats`` and heartbeats."""

    def __init__(self) -> None:
        self.misuse = 0
        self.errors = 0
        self.last_misuse: str | None = None
        self.last_error: str | None = None
        self.muted = False
        self._said: set[str] = set()

    def misused(self, what: str, topic: str = "misuse") -> None:
        """A call that makes no sense where it was made, or a value that no column can hold."""
        if self.muted:
            return
        self.misuse += 1
        self.last_misuse = what
        self.say(topic, f"{what} (more of it is only counted, see stats)")

    def failed(self, doing: str, error: BaseException, topic: str | None = None) -> None:
        """Something that the recorder tried did not work; training goes on without it."""
        self.errors += 1
        self.last_error = f"{doing}: {type(error).__name__}: {_words(error)}"
        self.say(
            topic or doing, f"{self.last_error} (training goes on; more of it is only counted)"
        )

    def caught(self, doing: str, error: Exception) -> None:
        """An exception that must not reach the training loop: misuse when a value was wrong."""
        if isinstance(error, (TypeError, ValueError, OverflowError)):
            self.misused(f"{doing}: {_words(error)}")
        else:
            self.failed(doing, error)

    def say(self, topic: str, message: str) -> None:
        """Warn, once per topic."""
        if topic in self._said or self.muted:
            return
        self._said.add(topic)
        with contextlib.suppress(Exception):  # a log handler of the host program may raise
            logger.warning("%s", message)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of the host program may not even say what it is
        return "no message"
