"""Executed steps of a job in the order of execution.

Attempts come by number, never by clock, because hosts disagree about the time; in an attempt, steps
come by number, or by start where the attempt ran a step more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from steptax.app.compute.bill.job_events import Event, Finding, Rows, columns_of
from steptax.app.compute.stats.rows import Flags, Floats, Ints

#: Events that a step without a start is laid behind, best first.
_ANCHORS = ("first_step", "process_start", "allocated")
#: Rejected rows that are listed by name; the rest is counted.
_NAMED = 5


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Executions:
    """Executed steps in the order of execution, one entry per execution [N]."""

    attempt: Ints = field(default_factory=_none)
    step: Ints = field(default_factory=_none)
    start_us: Ints = field(default_factory=_none)
    end_us: Ints = field(default_factory=_none)
    lost: Flags = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Rolled back, or executed again later."""

    def __len__(self) -> int:
        """Executions."""
        return len(self.step)

    @property
    def duration_us(self) -> Ints:
        """[N] start to end."""
        return self.end_us - self.start_us


def _numbers(rows: Rows, names: tuple[str, ...]) -> dict[str, Floats]:
    """Columns as floats, NaN for null; microseconds since 1970 are exact up to the year 2255."""
    out = {}
    for name in names:
        given = rows.get(name) if isinstance(rows, Mapping) else None
        if isinstance(given, np.ndarray) and given.dtype != object:
            out[name] = given.astype(np.float64)
        else:
            listed = columns_of(rows, (name,))[name]
            out[name] = np.array([np.nan if v is None else v for v in listed], dtype=np.float64)
    count = max(len(column) for column in out.values())
    return {name: v if len(v) else np.full(count, np.nan) for name, v in out.items()}


def read_steps(
    rows: Rows, events: tuple[Event, ...] = (), *, origin_us: int = 0
) -> tuple[Executions, tuple[Finding, ...]]:
    """Rows of the ``steps`` table, or one row per executed step, as executions in order.

    Columns: ``step``, ``duration_us``; ``attempt`` (0 if absent), ``start_us`` (may be null) and
    ``rank``. With ``rank`` there is a row per rank; an execution starts with its first rank and
    lasts as long as its longest report, so that ranks whose clocks differ do not stretch it. Rows
    of one rank with the same attempt and step that do not overlap in time are further executions.

    A step without a start is laid directly behind the one before it; the first of an attempt
    behind that attempt's first-step, process-start or allocated event, else behind the attempt
    before, else at ``origin_us``. Rows without a step number or with an impossible duration are
    named and left out, and equal rows count once.
    """
    names = ("attempt", "step", "rank", "start_us", "duration_us")
    columns = _numbers(rows, names)
    if not len(columns["step"]):
        return Executions(), ()
    # Null starts are kept as a flag: NaN differs from NaN, and equal rows could not be told.
    unplaced = np.isnan(columns["start_us"])
    table = np.column_stack([*(columns[name] for name in names), unplaced])
    table[:, 0] = np.nan_to_num(table[:, 0])
    sound = ~np.isnan(table[:, 1]) & np.isfinite(table[:, 4]) & (table[:, 4] >= 0)
    findings = _rejected(table[~sound])
    known = np.unique(np.nan_to_num(table[sound]), axis=0)
    if twice := int(sound.sum()) - len(known):
        findings.append(Finding("duplicate", f"{twice} step rows came twice"))
    known[:, 3] = np.where(known[:, 5] > 0, np.nan, known[:, 3])
    table = _in_order(_reduced(known[:, :5]))
    attempt, step = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    duration = np.rint(table[:, 3]).astype(np.int64)
    start = _placed(attempt, table[:, 2], duration, events, origin_us)
    if laid := int(np.isnan(table[:, 2]).sum()):
        text = f"{laid} steps have no start and are laid end to end"
        findings.append(Finding("inferred", text))
    findings.sort(key=lambda finding: finding.text)
    lost = np.zeros(len(step), dtype=np.bool_)
    return Executions(attempt, step, start, start + duration, lost), tuple(findings)


def _rejected(rows: Floats) -> list[Finding]:
    """Rows without a step or with an impossible duration, the first ones by name."""
    if not len(rows):
        return []
    first = rows[np.lexsort((rows[:, 4], rows[:, 1], rows[:, 0]))][:_NAMED]
    named = "; ".join(f"attempt {a:.0f} step {s:.0f} lasts {d} us" for a, s, _, _, d, _ in first)
    return [Finding("rejected", f"{len(rows)} step rows cannot be: {named}")]


def _reduced(table: Floats) -> Floats:
    """Rows (attempt, step, rank, start, duration) to (attempt, step, start, duration)."""
    if not len(table):
        return table[:, [0, 1, 3, 4]]
    table = table[np.lexsort((table[:, 4], table[:, 3], table[:, 2], table[:, 1], table[:, 0]))]
    same = np.append(False, (table[1:, :3] == table[:-1, :3]).all(axis=1))
    apart = np.append(False, table[1:, 3] >= table[:-1, 3] + np.maximum(table[:-1, 4], 1))
    past = np.cumsum(same & apart)
    turn = past - np.maximum.accumulate(np.where(same, 0, past))
    order = np.lexsort((turn, table[:, 1], table[:, 0]))
    table, turn = table[order], turn[order]
    new = (np.diff(table[:, :2], axis=0) != 0).any(axis=1) | (np.diff(turn) != 0)
    begin = np.append(0, np.flatnonzero(new) + 1)
    return np.column_stack(
        [
            table[begin, 0],
            table[begin, 1],
            np.fmin.reduceat(table[:, 3], begin),
            np.maximum.reduceat(table[:, 4], begin),
        ]
    )


def _in_order(table: Floats) -> Floats:
    """Executions (attempt, step, start, duration) in the order of execution."""
    attempt, step, start, duration = table.T
    again = (attempt[1:] == attempt[:-1]) & (step[1:] == step[:-1])
    by_start = np.isin(attempt, attempt[1:][again])
    first, second = np.where(by_start, start, step), np.where(by_start, step, start)
    return table[np.lexsort((duration, second, first, attempt))]


def _placed(
    attempt: Ints, start: Floats, duration: Ints, events: tuple[Event, ...], origin_us: int
) -> Ints:
    """[N] starts, with those that were not recorded laid behind the step before."""
    placed = np.nan_to_num(start).astype(np.int64)
    anchor = {(event.attempt, event.kind): event.start_us for event in reversed(events)}
    for k in np.flatnonzero(np.isnan(start)):
        behind = int(placed[k - 1] + duration[k - 1]) if k else origin_us
        if k and attempt[k - 1] == attempt[k]:
            placed[k] = behind
        else:
            own = (anchor.get((int(attempt[k]), kind)) for kind in _ANCHORS)
            placed[k] = next((at for at in own if at is not None), behind)
    return placed
