"""The two clocks of a recorder, injectable so that tests decide what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """``wall_ns`` dates things (ns since 1970, UTC); ``mono_ns`` measures durations (ns)."""

    wall_ns: Callable[[], int] = time.time_ns
    mono_ns: Callable[[], int] = time.perf_counter_ns


SYSTEM_CLOCK = Clock()
