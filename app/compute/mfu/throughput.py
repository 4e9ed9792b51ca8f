"""Tokens per second from a log that spans restarts.

The token counter goes on from a checkpoint while the clock of a session begins anew, so dividing
one by the other after a resume gives absurd rates. Rates are therefore differences inside a
session, and what a session starts from is what was consumed at the step that it resumed from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from steptax.app.compute.learning.curve import superseded
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.errors import UserError


class Clock(StrEnum):
    """What the times of a log count from."""

    SESSION = "session"
    """From the start of each session: a first row's time is the time of its steps."""
    WALL = "wall"
    """From one moment for all: time between sessions is not step time."""


@dataclass(frozen=True)
class Progress:
    """A log row by row [N], in the order of time; NaN where a row does not tell."""

    session: Ints
    """Counted from 0."""
    step: Ints
    seconds: Floats
    """Time of the row's own steps."""
    tokens: Floats
    """Tokens that the row's own steps consumed."""
    lost: Flags
    """Run again later, after a restart."""

    @property
    def tokens_per_s(self) -> Floats:
        """Rate of each row [N]; NaN where its start is not known."""
        known = self.seconds > 0
        return np.where(known, self.tokens / np.where(known, self.seconds, 1.0), np.nan)

    @property
    def sessions(self) -> int:
        """How many sessions the log has."""
        return int(self.session.max()) + 1 if len(self.session) else 0

    @property
    def resumed_rows(self) -> list[int]:
        """Rows that begin a session after the first."""
        return [int(k) for k in np.flatnonzero(np.diff(self.session)) + 1]

    @property
    def repeated_steps(self) -> list[int]:
        """Steps that were run more than once."""
        return sorted({int(s) for s in self.step[self.lost]})

    @property
    def lost_seconds(self) -> float:
        """Time of the steps that were run again later."""
        return float(np.nansum(self.seconds[self.lost]))


def progress(
    step: Sequence[int],
    time_s: Sequence[float],
    consumed_tokens: Sequence[float],
    *,
    session: Sequence[int | str] | None = None,
    clock: Clock = Clock.SESSION,
) -> Progress:
    """What each row of a log did: rows in the order in which they were written.

    ``consumed_tokens`` counts from the start of training, over all sessions. A new session begins
    where ``session`` changes; if that is not known, where the step or the time does not grow.
    A session's first row is held against what was consumed at the step before it: on record if an
    earlier session logged that step, zero if there is none before it, else not known.

    Raises:
        UserError: lengths that differ, times or tokens that cannot be.
    """
    steps = np.asarray(step, dtype=np.int64)
    times = np.asarray(time_s, dtype=np.float64)
    consumed = np.asarray(consumed_tokens, dtype=np.float64)
    if not len(steps) == len(times) == len(consumed):
        raise UserError(
            f"{len(steps)} steps, {len(times)} times and {len(consumed)} token counts", where="step"
        )
    if session is not None and len(session) != len(steps):
        raise UserError(f"{len(steps)} steps and {len(session)} sessions", where="session")
    for name, values in (("time_s", times), ("consumed_tokens", consumed)):
        if not np.all(np.isfinite(values) & (values >= 0)):
            raise UserError("must be zero or more in every row", where=name)
    numbers = _sessions(steps, times, session)
    first = np.append(True, np.diff(numbers) > 0)[: len(steps)]
    seconds, tokens = np.diff(times, prepend=0.0), np.diff(consumed, prepend=0.0)
    on_record: dict[int, float] = {}
    for k in range(len(steps)):
        if first[k]:
            start = 0.0 if steps[k] <= 1 else on_record.get(int(steps[k]) - 1, math.nan)
            tokens[k] = consumed[k] - start
            seconds[k] = math.nan if clock is Clock.WALL else times[k]
        elif seconds[k] < 0 or tokens[k] < 0:
            what = "time" if seconds[k] < 0 else "the token count"
            raise UserError(f"{what} falls inside a session, at step {steps[k]}", where=f"row {k}")
        on_record[int(steps[k])] = float(consumed[k])
    return Progress(numbers, steps, seconds, tokens, superseded(steps))


def _sessions(steps: Ints, times: Floats, session: Sequence[int | str] | None) -> Ints:
    """Session number of each row, from 0."""
    if session is None:
        change = (np.diff(steps) <= 0) | (np.diff(times) <= 0)
    else:
        change = np.array([a != b for a, b in pairwise(session)], dtype=np.bool_)
    return np.concatenate([[0], np.cumsum(change)])[: len(steps)].astype(np.int64)


def throughput(log: Progress, *, last: int | None = None, retained: bool = False) -> Measure:
    """Tokens per second over the last rows (all if None): sum of tokens / sum of seconds.

    With ``retained`` the tokens of lost steps do not count while their time does, which is the
    rate of progress. Rows whose start is not known are left out of both sums.

    Raises:
        UserError: a window that is not positive.
    """
    if last is not None and last < 1:
        raise UserError(f"must be at least 1, not {last}", where="last")
    rows = slice(None) if last is None else slice(-last, None)
    known = (~np.isnan(log.seconds) & ~np.isnan(log.tokens))[rows]
    seconds, tokens = log.seconds[rows][known], log.tokens[rows][known]
    total_s = float(seconds.sum())
    if total_s <= 0:
        return Measure.missing(
            "tokens/s", "no row in the window tells its own time", level=Level.LOG
        )
    if retained:
        tokens = tokens[~log.lost[rows][known]]
    unknown = int((~known).sum())
    return Measure(
        float(tokens.sum()) / total_s,
        "tokens/s",
        level=Level.LOG,
        inputs=("step", "time", "consumed tokens"),
        warnings=(f"{unknown} rows after a restart are left out",) if unknown else (),
    )
