"""When a rank calls its communication library, as torch's process groups see it.

A collective that is timed from outside looks the same on every rank: whoever is late to call it
makes all others wait in it, for the same time. What tells them apart is when each rank *called* it:
until then it was at work of its own (packing gradients, copying to the host, held up by somebody
else's hook), and so it is once its calls have returned. While a recorder runs, the methods of
``torch.distributed.ProcessGroup``, through which all of torch.distributed goes, and ``Work.wait``
therefore tell it that they were called: about 0.2 us for each, and 1 us inside a collective of the
recorder. Calls that do not come this way (DDP's own reducer, compiled functional collectives, MPI)
are not seen: the whole collective then counts as communication.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from steptax.connectors.recorder.book import StepBook
from steptax.connectors.recorder.notes import Notes

_CALLS = (
    "_allgather_base",
    "_end_coalescing",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)

_watching: list[LibraryWatch] = []
_replaced: list[tuple[Any, str, Any, Any]] = []


class LibraryWatch:
    """Tells a book when the communication library is called and when a call is through."""

    def __init__(self, book: StepBook, notes: Notes) -> None:
        self._book = book
        self._notes = notes
        self.is_attached = False

    def attach(self) -> bool:
        """Watch torch.distributed, if the program has imported it; True once nothing is left to do.

        A torch that cannot be watched is said once, and collectives are timed from outside.
        """
        dist = sys.modules.get("torch.distributed")
        if dist is None or getattr(dist, "Work", None) is None:  # not there, or being imported
            return False
        try:
            if not _replaced:
                _replace(dist)
            _watching.append(self)
            self.is_attached = True
        except Exception as error:
            self._notes.failed("watching the communication library", error)
        return True

    def detach(self) -> None:
        """Undo it; nothing happens when it was not attached."""
        self.is_attached = False
        if self in _watching:
            _watching.remove(self)
        if not _watching:
            _restore()

    def begins(self, calls: int) -> None:
        """Never raises."""
        try:
            self._book.comm_call_begins(calls)
        except Exception as error:
            self._notes.caught("a call of the communication library", error)

    def ends(self) -> None:
        """Never raises."""
        try:
            self._book.comm_call_ends()
        except Exception as error:
            self._notes.caught("the end of a call of the communication library", error)


def _replace(dist: Any) -> None:
    for name in _CALLS:
        if hasattr(dist.ProcessGroup, name):
            _put(dist.ProcessGroup, name, _told_call)
    _put(dist.Work, "wait", _told_wait)


def _put(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    told = wrapper(original)
    setattr(owner, name, told)
    _replaced.append((owner, name, original, told))


def _restore() -> None:
    """Put the methods back, but not over what somebody else has put there since."""
    while _replaced:
        owner, name, original, told = _replaced.pop()
        if getattr(owner, name, None) is told:
            setattr(owner, name, original)


def _told_call(original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        for watch in _watching:
            watch.begins(1)
        return original(*args, **kwargs)

    return call


def _told_wait(original: Any) -> Any:
    @functools.wraps(original)
    def wait(*args: Any, **kwargs: Any) -> Any:
        for watch in _watching:
            watch.begins(0)
        done = original(*args, **kwargs)
        for watch in _watching:
            watch.ends()
        return done

    return wait
