"""The boundary between the collective benchmark and the library that moves the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from steptax.benchmarks.hardware.backend import Work

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send_recv",
)
#: Those of which every rank needs a part of its own.
PARTED = ("all_gather", "reduce_scatter", "all_to_all")
ITEM_BYTES = 4
"""float32 everywhere."""
#: Small whole numbers, so that sums are exact, and no two ranks have the same.
PATTERN = 7


@dataclass(frozen=True)
class Exchange:
    """One operation at one size on one rank."""

    fill: Any
    """Called with a seed: fresh normal values; with None: the pattern that can be checked."""
    reset: Work
    """Before each run and outside of its time: what runs in place begins with its input again."""
    run: Work
    """The operation, up to its end on this rank."""
    wrong: Any
    """After a run of the pattern: elements of the result that are not what they must be."""


class Comm(ABC):
    """One rank's place among its peers."""

    rank: int
    size: int
    driven_by: str
    note: str | None
    """What a reader must know of it before comparing its figures."""
    operations: tuple[str, ...]
    host: str
    device_id: str
    device_model: str | None

    @abstractmethod
    def exchange(self, op: str, size_bytes: int) -> Exchange:
        """``size_bytes`` is S as nccl-tests counts it: the whole result of an all-gather.

        UnsupportedError where the library cannot do it.
        """

    @abstractmethod
    def own_work(self) -> Work:
        """A fixed amount of computing, the same on every rank, some milliseconds of it."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank is here."""

    @abstractmethod
    def everyone(self, mine: Any) -> list[Any]:
        """What every rank gave, by rank; JSON can hold it."""

    @abstractmethod
    def most_bytes(self) -> int:
        """The largest S whose buffers fit on every rank."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""
