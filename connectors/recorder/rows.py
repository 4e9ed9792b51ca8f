"""From what the training thread hands over to the columns of the ``steps`` table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from steptax.connectors.recorder.timeline import (
    CHECKPOINT,
    COLLECTIVE,
    COMM,
    COMPUTE,
    GC,
    H2D,
    INPUT,
    OTHER,
)
from steptax.connectors.recorder.values import INT64_MAX

_PHASE_COLUMNS = (
    ("compute_us", COMPUTE),
    ("comm_us", COMM),
    ("input_us", INPUT),
    ("checkpoint_us", CHECKPOINT),
    ("h2d_us", H2D),
    ("gc_us", GC),
    ("other_us", OTHER),
    ("collective_us", COLLECTIVE),
)

#: Column name to one value per row.
Columns = Mapping[str, Sequence[Any]]


class FinishedStep(NamedTuple):
    """One step of one rank as it was measured, before rounding; cheap to make."""

    step: int
    start_ns: int
    """Wall clock."""
    duration_ns: int
    spent_ns: list[int]
    """By bucket; adds up to ``duration_ns``."""
    seen: int
    """Bit ``b`` is set when bucket ``b`` has been measured in this run."""
    tokens: int | None
    seq_sq_sum: int | None
    loss: Any
    """A float, None, or something that ``float()`` turns into one."""


def step_columns(steps: Sequence[FinishedStep]) -> dict[str, list[Any]]:
    """The measured columns of ``steps``, in whole microseconds.

    Everything is rounded down, so that the phases of a row never exceed its duration. A phase that
    the run has not used so far is null; one that was used before is 0 in a step without it.
    """
    columns: dict[str, list[Any]] = {
        "step": [s.step for s in steps],
        "start_us": [s.start_ns // 1000 for s in steps],
        "duration_us": [s.duration_ns // 1000 for s in steps],
        "tokens": [_int64(s.tokens) for s in steps],
        "seq_sq_sum": [_int64(s.seq_sq_sum) for s in steps],
        "loss": [_loss(s.loss) for s in steps],
    }
    for name, bucket in _PHASE_COLUMNS:
        bit = 1 << bucket
        columns[name] = [s.spent_ns[bucket] // 1000 if s.seen & bit else None for s in steps]
    return columns


def _int64(value: int | None) -> int | None:
    return value if value is None or value <= INT64_MAX else None


def _loss(value: Any) -> float | None:
    """None for what is no number or not finite: a loss of NaN is not a number to average."""
    if value is None:
        return None
    try:
        number = float(value)
    except Exception:  # an accelerator's tensor may fail in ways of its own
        return None
    return number if math.isfinite(number) else None
