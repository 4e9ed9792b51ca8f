"""Which attempt a step of a log belongs to, told from the order of its lines.

A log says only which step a line is about. Where the number goes back, training was restarted from
a checkpoint: a new attempt. One damaged number must not look like that, so a line whose step does
not follow the one before it is held until the next line of its stream shows which of them is odd.
Nor must a line that is there twice, or that another process prints: the step was executed once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from steptax.connectors.logs.marks import Mark, Printed


@dataclass
class Entry:
    """A line about a step. ``extra`` are values of other lines that belong to it."""

    step: int
    line: int
    raw: str
    rank: int | None
    host: str | None
    at_us: int | None
    duration_us: int | None
    elapsed_us: int | None
    precision_us: int
    loss: float | None
    digest: int
    printed: list[Printed]
    attempt: int | None = None
    """None while the line is held."""
    interval: int | None = None
    """Steps that the line is about; None = not known."""
    extra: list[tuple[int, int | None, int | None, Printed]] = field(default_factory=list)
    """Line, step (None = this one), moment and value."""

    @classmethod
    def of(cls, mark: Mark) -> Entry:
        """The entry of a step mark."""
        assert mark.step is not None
        line = mark.line
        return cls(
            mark.step,
            line.number,
            line.raw,
            line.rank,
            line.host,
            line.at_us,
            mark.duration_us,
            mark.elapsed_us,
            mark.precision_us,
            mark.loss,
            _digest(mark),
            list(mark.printed),
        )

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_state(cls, found: dict[str, Any]) -> Entry:
        """The entry that ``state`` gave."""
        values = dict(found)
        values["printed"] = [Printed(**p) for p in values["printed"]]
        values["extra"] = [(n, step, at, Printed(**p)) for n, step, at, p in values["extra"]]
        return cls(**values)


@dataclass(frozen=True)
class Accepted:
    """An entry whose attempt is known; ``before`` is the one that it follows in its attempt."""

    entry: Entry
    before: Entry | None
    restarted: bool
    follower: int | None
    """Step of the next line of the stream, where it is known already."""
    gap: int | None = None
    """Steps since ``before``, where they are so many that lines between are missing."""
    returned_from: Entry | None = None
    """The newest entry of the attempt before, where a new one begins."""


@dataclass(frozen=True)
class Stray:
    """An entry that fits nowhere; ``repeats`` where it tells again what was told."""

    entry: Entry
    reason: str
    repeats: bool = False


#: No process that dies is started again and has repeated a step sooner.
_RESTART_US = 5_000_000


def _digest(mark: Mark) -> int:
    """Of the values of a line, without its clock; of its text where no value is read."""
    told = (mark.step, mark.duration_us, mark.elapsed_us, mark.loss)
    values = [(p.subject, p.printed_as, p.text) for p in mark.printed]
    text = repr((told, values)) if values else mark.line.text
    return zlib.crc32(text.encode("utf-8", "replace"))


class _Told(NamedTuple):
    """What is kept of a line to tell another execution of its step from a line told again."""

    digest: int
    line: int
    at_us: int | None
    loss: float | None

    @classmethod
    def of(cls, entry: Entry) -> _Told:
        """What is kept of ``entry``."""
        return cls(entry.digest, entry.line, entry.at_us, entry.loss)


class Attempts:
    """The newest attempt, which all streams of a log share."""

    def __init__(self, first: int) -> None:
        self.newest = first

    def begin_after(self, attempt: int) -> None:
        """A stream that is in ``attempt`` shows a restart; others may have shown it before."""
        self.newest = max(self.newest, attempt + 1)


class Stream:
    """The step lines that one process printed, in order."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self.attempt = attempts.newest
        self.last: Entry | None = None
        self.held: Entry | None = None
        self.interval: int | None = None
        """Steps between lines, at least."""
        self._newest_interval: int | None = None
        self.fresh = False
        """The next line begins an attempt, whatever its step."""
        self._origin: Entry | None = None
        self._seen: dict[int, _Told] = {}
        """By step: the line that was accepted last."""

    @property
    def current(self) -> Entry | None:
        """The entry that values without a step belong to."""
        return self.held or self.last

    def begin(self, step: int, line: int, at_us: int | None) -> Iterator[Accepted | Stray]:
        """Training begins, again if there were steps, and ``step`` is the first that will end."""
        yield from self.close()
        if self.last is not None:
            self.restart()
        # The moment counts as the end of the step before.
        self._origin = Entry(step - 1, line, "", None, None, at_us, None, None, 0, None, 0, [])

    def restart(self) -> None:
        """The next line begins a new attempt, whatever its step; said again, it changes nothing."""
        if not self.fresh:
            self.fresh = True
            self._attempts.begin_after(self.attempt)

    def add(self, entry: Entry) -> Iterator[Accepted | Stray]:
        """Take the next entry; gives those that are decided by it, in order."""
        current = self.current
        next_to = current is not None and current.step == entry.step
        known = _Told.of(current) if current and next_to else self._seen.get(entry.step)
        if known is not None and current is not None and entry.step <= current.step:
            again = _repeats(known, entry, next_to=next_to)
            if again is not None:
                yield Stray(entry, again, repeats=True)
                return
        held, self.held = self.held, None
        if held is not None:
            reason = self._stray(held, entry.step)
            if reason:
                yield Stray(held, reason)
            else:
                yield self._accept(held, entry.step)
        if self._follows(entry.step):
            yield self._accept(entry, None)
        else:
            self.held = entry

    def close(self) -> Iterator[Accepted | Stray]:
        """No line comes after the held one: it is taken as it stands."""
        held, self.held = self.held, None
        if held is not None:
            yield self._accept(held, None)

    def _follows(self, step: int) -> bool:
        """Whether ``step`` is the one that comes next; of the first two lines nobody knows."""
        if self.last is None or self.fresh or self.interval is None:
            return False
        return step - self.last.step in (self.interval, self._newest_interval)

    def _stray(self, held: Entry, step: int) -> str | None:
        """Why ``held`` is odd, given that ``step`` comes after it; None where it is not."""
        last = self.last
        if last is None or self.fresh:
            return None
        forward = last.step < step < held.step
        # The line itself may be the next one, or have been added between two.
        gone = step - last.step
        on = self.interval is not None and gone in (self.interval, 2 * self.interval)
        back = held.step <= last.step < step and on and step - held.step != self.interval
        if forward or back:
            return (
                f"expected a step between {last.step} and {step}, found {held.step}: the lines "
                "around it go on without it"
            )
        return None

    def _accept(self, entry: Entry, follower: int | None) -> Accepted:
        before, restarted = self.last, False
        left = None
        if before is None or self.fresh or entry.step <= before.step:
            restarted, left = before is not None, before
            if restarted:
                self._attempts.begin_after(self.attempt)
                self._seen = {s: seen for s, seen in self._seen.items() if s >= entry.step}
            self.attempt, self.fresh = self._attempts.newest, False
            before, self._origin = self._origin, None
            if before is not None and before.step >= entry.step:
                before = None
        entry.attempt = self.attempt
        gap = None
        if before is not None:
            entry.interval = entry.step - before.step
        elif entry.step == 1 or self.interval == 1:
            entry.interval = 1
        if before is not None and before is self.last:
            gone = entry.step - before.step
            if self.interval is not None and gone >= 2 * self.interval:
                gap = gone if gone != self._newest_interval else None
            self._newest_interval = gone
            self.interval = min(self.interval or entry.step, gone)
            if gap is not None:
                # Which of the steps since then the line is about, nobody can tell.
                entry.interval = None
        self._seen[entry.step] = _Told.of(entry)
        self.last = entry
        return Accepted(entry, before, restarted, follower, gap, left)

    def state(self) -> dict[str, Any]:
        """As JSON can hold it; digests of earlier lines are not kept."""
        return {
            "attempt": self.attempt,
            "interval": self.interval,
            "newest_interval": self._newest_interval,
            "fresh": self.fresh,
            "last": None if self.last is None else self.last.state() | {"printed": [], "extra": []},
            "held": None if self.held is None else self.held.state(),
            "origin": None if self._origin is None else self._origin.state(),
        }

    def restore(self, found: dict[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        self.attempt, self.interval = int(found["attempt"]), found["interval"]
        self._newest_interval = found["newest_interval"]
        self.fresh = bool(found["fresh"])
        self.last, self.held, self._origin = (
            None if found[name] is None else Entry.from_state(found[name])
            for name in ("last", "held", "origin")
        )
        if self.last is not None:
            self._seen[self.last.step] = _Told.of(self.last)


def _repeats(known: _Told, entry: Entry, *, next_to: bool) -> str | None:
    """Why ``entry`` is no other execution of the step that ``known`` tells; None where it may be.

    Of two lines with clocks the second may only be another execution when there was the time for
    it. Without clocks equal values decide; of lines next to one another (``next_to``) the loss:
    processes that train together print the same one, and each a slightly different time.
    """
    same = known.digest == entry.digest
    same_loss = known.loss is not None and known.loss == entry.loss
    if known.at_us is None or entry.at_us is None:
        if same:
            return f"repeats line {known.line}, with the same values"
        if next_to and same_loss:
            return f"tells the step of line {known.line} again, with the same loss"
        return None
    gap_us = abs(entry.at_us - known.at_us)
    if same and gap_us < _RESTART_US:
        return f"repeats line {known.line}, with the same values"
    if same_loss and gap_us < _RESTART_US:
        return f"tells the step of line {known.line} again, with the same loss"
    if entry.duration_us is not None and 2 * gap_us < entry.duration_us:
        return (
            f"tells the step of line {known.line} again, {gap_us / 1e6:.3g} s from it: too soon "
            "for another execution"
        )
    return None
