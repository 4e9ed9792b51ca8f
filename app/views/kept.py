"""Results that are kept while the data that they rest on does not change."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: A result that goes out of date while it is made is made anew after so many times what it took:
#: however many ask, it takes half of a processor at most.
REST = 1.0
#: Who asks while it is made anew gets the one before, if that rested no longer than this. Seconds.
PATIENCE_S = 10.0
#: What takes longer than this to make is made anew beside whoever asks for it. Seconds.
BESIDE_S = 0.5


class Kept(Generic[T]):
    """The results asked for last, by key: safe to share between threads.

    A key names the lake as its reader sees it (``Workspace.key``) and the versions of its tables.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, T] = OrderedDict()
        self._making: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of ``key``, made now if there is none: by one thread, while others wait."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
            making = self._making.setdefault(key, Lock())
        with making:
            with self._lock:
                if key in self._found:  # by another, while this one waited
                    return self._found[key]
            try:
                made = make()
            except BaseException:
                with self._lock:
                    self._making.pop(key, None)
                raise
            with self._lock:
                self._found[key] = made
                self._making.pop(key, None)
                while len(self._found) > self._most:
                    self._found.popitem(last=False)
            return made


@dataclass
class _Newest(Generic[T]):
    """The newest result of a question. The lock is held by who makes the next one."""

    making: Lock = field(default_factory=Lock)
    made: tuple[T, str, float, float] | None = None
    """Result, version, when it was begun and what it took, in seconds."""


class Latest(Generic[T]):
    """The newest result of each question, of data that may grow by the second.

    At most one reader makes a result at a time, and the old one is dropped. What ``is_live`` says
    of is made anew every ``every_s`` even where the data is the same, and no sooner than ``rest``
    times what it took, ``most_rest_s`` seconds at most, even where it is not. Anything else is made
    anew when its version changes.

    While one makes it anew, who asks gets the one before, if that rested no longer than
    ``patience_s`` more. With ``beside`` nobody at all waits for a live result that took
    ``BESIDE_S`` or more: a thread makes it. ``make`` may not ask who the reader is then.

    A cache by version would keep what a running job was at each of many moments, all of its steps
    in every one.
    """

    def __init__(
        self,
        most: int,
        is_live: Callable[[T], bool] = lambda _: False,
        every_s: float = 0.0,
        *,
        rest: float = REST,
        most_rest_s: float = math.inf,
        patience_s: float = PATIENCE_S,
        beside: bool = False,
    ) -> None:
        self._most = most
        self._is_live = is_live
        self._every_s = every_s
        self._rest = rest
        self._most_rest_s = most_rest_s
        self._patience_s = patience_s
        self._beside = beside
        self._entries: OrderedDict[Hashable, _Newest[T]] = OrderedDict()
        self._lock = Lock()

    def get(
        self,
        key: Hashable,
        version: str,
        make: Callable[[], T],
        *,
        is_live: bool | None = None,
    ) -> T:
        """The result of ``key`` for ``version`` of its data.

        The key names the lake as its reader sees it (``Workspace.key``). ``is_live`` says of what
        the result does not tell it whether it may be older than its data.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Newest())
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        made = entry.made
        if made is not None and self._holds(made, version, is_live):
            return made[0]
        is_patient = made is not None and self._holds(made, version, is_live, self._patience_s)
        if not entry.making.acquire(blocking=not is_patient):
            assert made is not None
            return made[0]
        beside = False
        try:
            made = entry.made  # perhaps by another while this one waited
            if made is not None and self._holds(made, version, is_live):
                return made[0]
            if made is None or not is_patient or not self._beside or made[3] < BESIDE_S:
                return self._make(entry, version, make)
            work = (entry, version, make)
            threading.Thread(target=self._try, args=work, name="view", daemon=True).start()
            beside = True
            return made[0]
        finally:
            if not beside:  # else the thread lets go of it
                entry.making.release()

    def _make(self, entry: _Newest[T], version: str, make: Callable[[], T]) -> T:
        begun_s = time.monotonic()
        result = make()
        entry.made = result, version, begun_s, time.monotonic() - begun_s
        return result

    def _try(self, entry: _Newest[T], version: str, make: Callable[[], T]) -> None:
        """Make it anew on a thread of its own; where that fails, who asks next makes it."""
        try:
            self._make(entry, version, make)
        except Exception:
            entry.made = None
        finally:
            entry.making.release()

    def _holds(
        self,
        made: tuple[T, str, float, float],
        version: str,
        is_live: bool | None,
        more_s: float = 0.0,
    ) -> bool:
        result, of_version, begun_s, took_s = made
        if not (self._is_live(result) if is_live is None else is_live):
            return version == of_version
        age_s = time.monotonic() - begun_s - took_s
        rest_s = min(self._rest * took_s, self._most_rest_s) + more_s
        return age_s < rest_s or (version == of_version and age_s < self._every_s)


def unhurried(
    most: int, is_live: Callable[[Any], bool] = lambda _: False, every_s: float = 60.0
) -> Latest[Any]:
    """For what need not follow each step of a job that runs: its reader does not wait for it.

    A live result rests twelve seconds at most, and is told for a minute more while it is made anew.
    """
    return Latest(most, is_live, every_s, rest=6.0, most_rest_s=12.0, patience_s=60.0, beside=True)


class NewestOfEach(Generic[T]):
    """The newest result of each of many questions: safe to share between threads.

    A running job has a new version of its data every second, and its old results are of no use to
    anybody. At most ``most`` results are kept, and of those that are weighed as many as
    ``most_bytes`` hold, the ones asked for last.
    """

    def __init__(
        self, most: int, *, weigh: Callable[[T], int] = lambda _: 0, most_bytes: int = 0
    ) -> None:
        self._most = most
        self._weigh = weigh
        self._most_bytes = most_bytes
        self._found: OrderedDict[Hashable, tuple[str, T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: Hashable, version: str) -> T | None:
        """The result of ``key`` if it is of that version of its data."""
        with self._lock:
            known = self._found.get(key)
            if known is None or known[0] != version:
                return None
            self._found.move_to_end(key)
            return known[1]

    def keep(self, key: Hashable, version: str, made: T) -> None:
        """Keep ``made`` in place of what was known of ``key``."""
        weight = self._weigh(made)
        with self._lock:
            self._drop(key)
            self._found[key] = version, made, weight
            self._bytes += weight
            while len(self._found) > 1 and (
                len(self._found) > self._most or self._bytes > self._most_bytes
            ):
                self._drop(next(iter(self._found)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._found.clear()
            self._bytes = 0

    def __len__(self) -> int:
        """Results that are kept."""
        return len(self._found)

    def _drop(self, key: Hashable) -> None:
        _, _, weight = self._found.pop(key, ("", None, 0))
        self._bytes -= weight


class OfView:
    """What is made of a view, kept as long as the view itself: whoever holds it may have both.

    So nothing is told to anybody who was not given the view, and nothing outlives it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[int, OrderedDict[Hashable, Any]] = {}
        self._lock = Lock()

    def get(self, view: object, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, of ``view`` and ``key``; of one view the last few keys are kept."""
        with self._lock:
            if id(view) not in self._made:
                self._made[id(view)] = OrderedDict()
                # Before its number can be that of another object.
                weakref.finalize(view, self._made.pop, id(view), None)
            kept = self._made[id(view)]
            if key in kept:
                kept.move_to_end(key)
                found: T = kept[key]
                return found
        made = make()
        with self._lock:
            kept[key] = made
            while len(kept) > self._most:
                kept.popitem(last=False)
        return made
