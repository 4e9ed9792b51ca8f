"""How long a test waits for what must come.

Nothing is slower for it: a wait ends when it has what it waits for. How fast the product is, its
benchmarks say; a test fails where nothing comes, also on a machine that has other work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 300.0
PATIENCE_MS = PATIENCE_S * 1_000


def until(
    condition: Callable[[], Found], what: str = "what must come", every_s: float = 0.02
) -> Found:
    """Wait for another thread, process or page; what the condition gave that is true."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < give_up_s, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(every_s)
    return found
