"""Memory of a server that lives for weeks: what is freed goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Iterator

#: glibc's ``M_ARENA_MAX``, ``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD``: see mallopt(3).
_ARENA_MAX, _TRIM_THRESHOLD, _MMAP_THRESHOLD = -8, -1, -3
_ARENAS = 2
_KEPT_BYTES = 16 << 20
_MAPPED_BYTES = 1 << 20
#: Cycles are looked for so often, where so many young generations came since: a page makes more.
COLLECT_S, YOUNG = 2.0, 10


def give_back_what_is_freed() -> bool:
    """Bound what the C library keeps of freed memory; False where it is not glibc.

    Each page is drawn by a thread of its own, and glibc gives threads arenas, up to eight per core,
    that keep what was freed in them: a server grows with every reader that ever came.
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        options = (
            (_ARENA_MAX, _ARENAS),
            (_TRIM_THRESHOLD, _KEPT_BYTES),
            (_MMAP_THRESHOLD, _MAPPED_BYTES),
        )
        return all(library.mallopt(option, value) for option, value in options)
    return False


def settle() -> None:
    """Take what is alive now out of what the collector of cycles looks at.

    Streamlit runs a full collection after each run of a page, which reads every object of every
    module that is imported: a fifth of a second of processor time for what never goes away. Called
    once everything is imported.
    """
    gc.collect()
    gc.freeze()


def collect_now_and_then(every_s: float = COLLECT_S) -> None:
    """Let a thread collect cycles while objects are made, and no page.

    Views and figures are in cycles, and hold arrays that the collector does not count: left to
    itself, it would come late. After each run of a page, as Streamlit would have it, it takes a
    fifth of the processor time of fifty readers.
    """
    threading.Thread(target=_collect, args=(every_s,), name="collect", daemon=True).start()


def _collect(every_s: float) -> None:
    seen = 0
    while True:
        time.sleep(every_s)
        young = gc.get_stats()[0]["collections"]
        if young - seen >= YOUNG and gc.isenabled():  # not while ``building``
            gc.collect()
            seen = young


_building = threading.Lock()
_builders = 0


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Leave the collector of cycles alone while very many objects are made that stay.

    It would look at all of them again and again, a third of the time that it takes to make them.
    """
    global _builders
    with _building:
        _builders += 1
        gc.disable()
    try:
        yield
    finally:
        with _building:
            _builders -= 1
            if not _builders:
                gc.enable()
