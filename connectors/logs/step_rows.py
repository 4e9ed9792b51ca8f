"""Rows of the step lines of a log, once it is decided which attempt each belongs to."""

from __future__ import annotations

from steptax.connectors.logs.events import LogEvents, Moment
from steptax.connectors.logs.marks import Printed
from steptax.connectors.logs.rows import LogRows
from steptax.connectors.logs.state import LogState
from steptax.connectors.logs.streams import Accepted, Entry, Stream

#: A difference of two coarse times is a step time if it is this much longer than they are coarse.
_COARSE = 10
#: Stretches of missing steps that are named.
_SHOWN = 3
#: Newest steps of which it is remembered which process told them.
_REMEMBERED = 4096
#: Steps whose times are looked at for ones that cannot be.
_JUDGED = 1000


class StepRows:
    """Adds to ``rows`` what step lines give; to ``state`` and ``events`` what follows from them.

    ``first_attempt`` is the one that the log begins with.
    """

    def __init__(
        self, rows: LogRows, state: LogState, events: LogEvents, first_attempt: int
    ) -> None:
        self._rows, self._state, self._events = rows, state, events
        self._first_attempt = first_attempt
        self._tellers: dict[tuple[int, int], Stream] = {}
        self.durations: dict[int, int] = {}
        """By step: its time in microseconds, of the first ones."""

    def accept(self, stream: Stream, found: Accepted) -> None:
        """Rows of a step line whose attempt is known."""
        entry, before = found.entry, found.before
        assert entry.attempt is not None
        if self._state.ended == "failed":
            self._state.ended = None  # it went on
        if found.restarted or (self._first_attempt and not self._state.flags.get("began")):
            self._went_back(found)
        self._state.flags["began"] = True
        self._events.end_saves(entry.step)
        if found.gap is not None and before is not None:
            self._missing(before.step + 1, entry.step - 1)
        elif entry.interval is not None and entry.interval > 1:
            self._rows.note(
                "step times are means over the steps since the line before: a row stands for each "
                "line, and none for the steps between"
            )
        duration = entry.duration_us
        if duration is None and before is not None:
            duration = self._between(before, entry)
        usual = stream.interval
        if before is None or usual is None:
            usual = None if found.follower is None else found.follower - entry.step
        if duration is not None and not self._told_by_another(stream, entry):
            start = None
            if entry.at_us is not None and usual == 1:
                start = entry.at_us - duration
                # The log may begin with the end of a step.
                self._state.first_us = min(self._state.first_us or start, start)
            self._rows.add(
                "steps",
                entry.line,
                attempt=entry.attempt,
                step=entry.step,
                rank=entry.rank or 0,
                start_us=start,
                duration_us=duration,
                loss=entry.loss,
            )
            if entry.rank is None:
                self._rows.note(
                    "the log does not say which rank printed it: its steps stand under rank 0"
                )
            else:
                self._state.ranks.setdefault(str(entry.rank), entry.host)
            self._state.flags["timed"] = True
            if len(self.durations) < _JUDGED:
                self.durations[entry.step] = duration
        elif duration is None:
            self._state.flags["untimed"] = True
        for printed in entry.printed:
            self.printed(
                entry.line, entry.attempt, entry.step, entry.at_us, printed, entry.interval
            )
        for line, step, at_us, printed in entry.extra:
            self.printed(line, entry.attempt, step or entry.step, at_us, printed, entry.interval)
        entry.printed, entry.extra = [], []

    def _told_by_another(self, stream: Stream, entry: Entry) -> bool:
        """Whether a process that no rank is known of either has told this step."""
        if entry.rank is not None or entry.attempt is None:
            return False
        key = (entry.attempt, entry.step)
        if self._tellers.setdefault(key, stream) is stream:
            while len(self._tellers) > _REMEMBERED:
                del self._tellers[next(iter(self._tellers))]
            return False
        self._state.count("other process")
        return True

    def _went_back(self, found: Accepted) -> None:
        """A new attempt: training goes on from before the first step of it."""
        entry, left = found.entry, found.returned_from
        at_us = entry.at_us or self._state.last_us
        if entry.at_us is not None and entry.duration_us is not None:
            # The line stands at the step's end; it was gone back before its beginning.
            at_us = entry.at_us - entry.duration_us
            if left is not None and left.at_us is not None and left.at_us <= entry.at_us:
                at_us = max(at_us, left.at_us)
        assert entry.attempt is not None
        moment = Moment(entry.attempt, entry.line, at_us, entry.at_us is not None)
        why = f"a run that begins at step {entry.step}"
        if left is not None:
            goes_back = entry.step <= left.step
            why = "the step number goes back" if goes_back else "training began anew"
            if goes_back:
                self._state.count("went back")
        self._events.happen("rollback", moment, step=max(0, entry.step - 1), text=why)

    def _missing(self, first: int, last: int) -> None:
        """No line tells of steps ``first`` to ``last``."""
        state = self._state
        state.count("missing", last - first + 1)
        state.gaps = [*state.gaps, [first, last]][:_SHOWN]

    def _between(self, before: Entry, entry: Entry) -> int | None:
        """Time per step since the line before, where lines have times and no step time."""
        steps = entry.step - before.step
        if steps < 1:
            return None
        if before.at_us is not None and entry.at_us is not None and entry.at_us > before.at_us:
            self._rows.note(
                "the log has no step time: it is the time between two lines over the steps"
            )
            return round((entry.at_us - before.at_us) / steps)
        if entry.elapsed_us is None or before.elapsed_us is None:
            return None
        gone = entry.elapsed_us - before.elapsed_us
        if gone < _COARSE * entry.precision_us:
            return None
        self._rows.note("step times are differences of a progress bar's whole seconds")
        return round(gone / steps)

    def printed(
        self,
        line: int,
        attempt: int,
        step: int,
        at_us: int | None,
        printed: Printed,
        interval: int | None,
    ) -> None:
        """A row of a printed value."""
        self._rows.printed(self._state, line, attempt, step, at_us, printed, interval)
