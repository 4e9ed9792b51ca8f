"""What a way over the network answers, and how long to wait after it said no."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

#: Between attempts that fail: doubled from the first to the last.
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
#: A receiver that asks for more patience than this has made a mistake.
LONGEST_ASKED_S = 300.0


class Answer(NamedTuple):
    """``kind`` is done, refused (this batch will never be taken) or retry."""

    kind: str
    reason: str | None = None
    after_s: float | None = None
    """How long the receiver wants to be left alone."""
    lost: tuple[tuple[int, str], ...] = ()
    """Places of pieces that were refused while the others were taken, and why."""


DONE = Answer("done")


class Transport(Protocol):
    """A destination. Neither method raises for what a network does."""

    pack_s: float
    """Seconds between batches while all goes well."""
    beat_s: float
    """Seconds between heartbeats."""

    def send(self, data: bytes, *, is_first: bool) -> Answer:
        """Deliver a batch; ``is_first`` is False when an earlier attempt may have succeeded."""

    def send_beats(self, sender: str, beats: Sequence[dict[str, Any]]) -> Answer:
        """Deliver heartbeats, each with its ``job_id``; what is lost is not repeated."""

    def close(self) -> None:
        """Let go of connections."""


class Backoff:
    """How long to wait after the n-th failure in a row: exponential, with jitter.

    Jitter matters more than the exponent: senders that failed together must not come back
    together.
    """

    def __init__(self) -> None:
        self.failures = 0

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0

    def failed(self, asked_s: float | None) -> float:
        """Seconds to wait; never less than what the receiver asked for, up to 5 minutes."""
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self.failures, 30))
        self.failures += 1
        wait_s *= random.uniform(0.5, 1.0)
        if asked_s is None:
            return wait_s
        return max(wait_s, min(asked_s, LONGEST_ASKED_S) * random.uniform(1.0, 1.5))
