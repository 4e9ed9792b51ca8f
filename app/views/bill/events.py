"""What the events of a job tell beside its bill: what stopped it, and the saves that were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.job_events import SAVE
from steptax.app.compute.bill.waterfall_rows import Waterfall

STOPS = ("failure", "evict")
_COUNTED = (State.SPLIT, State.WHOLE, State.UNRECORDED)


def stops(events: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str | None], ...]:
    """Failures and evictions in their order, with the ranks that each names."""
    return tuple((row["kind"], row["ranks"]) for row in events if row["kind"] in STOPS)


def kept_saves(bill: Waterfall | None, events: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """When checkpoints were saved, microseconds, each once: several ranks may report the same one.

    One after a step that was rolled back is of no use, and is none of them.
    """
    saved = {row["start_us"] for row in events if row["kind"] == SAVE} - {None}
    at = np.array(sorted(saved), dtype=np.int64)
    if not len(at) or bill is None or bill.timeline is None:
        return tuple(at.tolist())
    line = bill.timeline
    steps = np.isin(line.state, (*_COUNTED, State.LOST))
    if not steps.any():
        return tuple(at.tolist())
    order = np.argsort(line.start_us[steps], kind="stable")
    starts, states = line.start_us[steps][order], line.state[steps][order]
    before = np.searchsorted(starts, at, side="left") - 1
    return tuple(at[(before >= 0) & (states[before] != State.LOST)].tolist())
