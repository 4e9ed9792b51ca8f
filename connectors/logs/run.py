"""From the marks of a log to rows: steps, printed values, events, and what is known of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options, Run
from steptax.connectors.logs.events import LogEvents, Moment
from steptax.connectors.logs.job import about_job, account, log_stem, name_short, tell_returns
from steptax.connectors.logs.marks import Again, Kind, LogBatch, Mark, Printed, value_of
from steptax.connectors.logs.rows import LogRows
from steptax.connectors.logs.state import LogState
from steptax.connectors.logs.streams import Accepted, Attempts, Entry, Stray, Stream

#: A difference of two coarse times is a step time if it is this much longer than they are coarse.
_COARSE = 10
_SHOWN = 3
#: Newest steps of which it is remembered which process told them.
_REMEMBERED = 4096
#: Steps whose times are looked at for ones that cannot be.
_JUDGED = 1000


class LogRun(Run):
    """Puts the lines of one log together.

    ``name`` is the family of logs, ``frameworks`` the framework that each of its dialects is of.
    """

    def __init__(
        self,
        source: Path,
        options: Options,
        *,
        name: str,
        frameworks: Mapping[str, str],
        asynchronous: bool = False,
    ) -> None:
        self._source = source
        self._options = options
        self._name = name
        self._asynchronous = asynchronous
        self._frameworks = frameworks
        self._attempts = Attempts(options.attempt)
        self._streams: dict[str, Stream] = {}
        self._state = LogState(options.attempt)
        self._blocks: dict[str, tuple[Entry | None, str | None]] = {}
        self._current: Entry | None = None
        self._rows = LogRows(options.job_id or log_stem(source))
        self._events = LogEvents(self._rows, self._state, source.name)
        self._durations: dict[int, int] = {}
        self._tellers: dict[tuple[int, int], Stream] = {}
        self._handlers: Mapping[Kind, Callable[[Mark], None]] = {
            Kind.STEP: self._step,
            Kind.BEGIN: self._begin,
            Kind.CURSOR: self._cursor,
            Kind.LAST: self._last,
            Kind.NEXT: self._next,
            Kind.HEAD: self._head,
            Kind.BLOCK: self._block,
            Kind.AT: self._at,
            Kind.EVENT: self._event,
            Kind.SCORE: self._score,
        }

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Rows of the lines that are decided."""
        assert isinstance(batch, LogBatch)
        state = self._state
        for mark in batch.marks:
            self._facts(mark)
            state.count(mark.kind.value)
            handle = self._handlers.get(mark.kind)
            if handle is not None:
                handle(mark)
        state.count("blank", batch.blank)
        state.count("unknown", batch.unknown_count)
        state.count("faulty", len(batch.rejects))
        if batch.rejects and state.fault is None:
            state.fault = f"line {batch.rejects[0].row}: {batch.rejects[0].reason}"
        state.unknown += list(batch.unknown[: max(0, _SHOWN - len(state.unknown))])
        self._rows.reject(*batch.rejects)
        yield from self._rows.emit()

    def flush(self) -> Iterator[Batch]:
        """What is known of the job so far; held lines stay held."""
        if not self._recognised:
            self._rows.note(f"no line so far is one of {self._name}")
            yield from self._rows.emit()
            return
        tell_returns(self._state, self._rows)
        yield from self._rows.emit()
        yield from self._about_job()

    def close(self) -> Iterator[Batch]:
        """Held lines, what is known of the job, and the account of all lines.

        InputError when no line was understood: then the file is no such log.
        """
        for stream in self._streams.values():
            self._decide(stream, stream.close())
        attempt = self._attempts.newest
        for line, step, at_us, printed, _ in self._state.pending:
            self._printed(line, attempt, step or 0, at_us, Printed(**printed), None)
        self._state.pending = []
        self._events.end_saves()
        if not self._recognised:
            raise InputError(
                f"no line is one of {self._name}",
                where=str(self._source),
                hint="steptax connectors lists the kinds; name the one that fits",
            )
        fault = self._state.fault
        if fault is not None and self._state.counts.get("faulty") == self._lines:
            raise InputError(
                f"no line of it can be read; the first: {fault}",
                where=str(self._source),
                hint="see that each message has a line of its own: a copy may have lost line ends",
            )
        if self._asynchronous:
            name_short(self._durations, self._rows)
        account(self._state, self._rows)
        tell_returns(self._state, self._rows)
        yield from self._rows.emit()
        yield from self._about_job()

    @property
    def _lines(self) -> int:
        """Lines with anything on them."""
        derived = ("blank", "went back", "missing", "printed twice", "other process")
        return sum(n for what, n in self._state.counts.items() if what not in derived)

    @property
    def _recognised(self) -> bool:
        """Whether any line was one that such a log has and others have not."""
        counts = self._state.counts
        return any(counts.get(kind, 0) for kind in (*self._handlers, Kind.FACTS, "faulty"))

    def state(self) -> dict[str, Any]:
        """All that later lines are read by, as JSON can hold it."""
        self._state.attempt = self._attempts.newest
        return {
            "log": dict(vars(self._state)),
            "streams": {key: stream.state() for key, stream in self._streams.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        self._state = LogState(**state["log"])
        self._events = LogEvents(self._rows, self._state, self._source.name)
        self._attempts.newest = self._state.attempt
        for key, found in state["streams"].items():
            self._streams[key] = Stream(self._attempts)
            self._streams[key].restore(found)

    # -- marks -------------------------------------------------------------------------------

    def _stream(self, mark: Mark) -> Stream:
        key = _process(mark)
        found = self._streams.get(key)
        if found is None:
            found = self._streams[key] = Stream(self._attempts)
        return found

    def _facts(self, mark: Mark) -> None:
        state, line = self._state, mark.line
        if line.at_us is not None:
            state.first_us = min(state.first_us or line.at_us, line.at_us)
            state.last_us = max(state.last_us or line.at_us, line.at_us)
            if not line.zoned:
                self._rows.note("the clock of the log has no zone: it is taken as UTC")
        facts = dict(mark.facts)
        if line.world is not None:
            facts["world_size"] = line.world
        for name, value in facts.items():
            known = state.facts.setdefault(name, value)
            if known != value and name != "batch":
                self._rows.note(f"{name} is {known!r} and later {value!r}; the first is kept")
        if mark.dialect is not None:
            state.dialects[mark.dialect] = state.dialects.get(mark.dialect, 0) + 1

    def _step(self, mark: Mark) -> None:
        stream = self._stream(mark)
        current = stream.current
        if mark.again is Again.MERGE and current is not None and mark.step == current.step:
            self._values(mark, current)
            return
        if mark.again is Again.IGNORE:
            behind = current is not None and (mark.step or 0) <= current.step
            if behind or mark.of != self._state.facts.get("total_steps"):
                self._state.count(Kind.STEP.value, -1)
                self._state.count(Kind.NOISE.value)
                return
        batch = value_of(mark.printed, "global_batch_size")
        if batch is not None and batch not in self._state.batch_sizes:
            self._state.batch_sizes = [*self._state.batch_sizes, int(batch)][:2]
        entry = Entry.of(mark)
        entry.extra = [
            (line, step, at_us, Printed(**printed))
            for line, step, at_us, printed, _ in self._state.pending
        ]
        self._state.pending, self._state.cursor = [], None
        self._current = entry
        self._decide(stream, stream.add(entry))

    def _begin(self, mark: Mark) -> None:
        stream = self._stream(mark)
        assert mark.step is not None
        self._decide(stream, stream.begin(mark.step, mark.line.number, mark.line.at_us))

    def _cursor(self, mark: Mark) -> None:
        self._state.cursor = mark.step
        self._state.pending = [
            (line, mark.step if early else step, at_us, printed, False)
            for line, step, at_us, printed, early in self._state.pending
        ]
        self._next(mark)

    def _next(self, mark: Mark) -> None:
        step = None if mark.early else self._state.cursor
        for printed in mark.printed:
            fields = {name: getattr(printed, name) for name in Printed.__slots__}
            line = mark.line
            self._state.pending.append((line.number, step, line.at_us, fields, mark.early))

    def _last(self, mark: Mark) -> None:
        stream = self._stream(mark)
        self._values(mark, stream.current or self._current)

    def _at(self, mark: Mark) -> None:
        for printed in mark.printed:
            self._printed(
                mark.line.number,
                self._attempts.newest,
                mark.step or 0,
                mark.line.at_us,
                printed,
                None,
            )

    def _head(self, mark: Mark) -> None:
        self._blocks[_process(mark)] = (self._stream(mark).current or self._current, None)

    def _block(self, mark: Mark) -> None:
        process = _process(mark)
        entry, name = self._blocks.get(process, (self._current, None))
        if mark.detail is not None:
            self._blocks[process] = (entry, mark.detail)
            return
        # In a block of all ranks the name stands above its values.
        values = tuple(
            printed if printed.name else replace(printed, name=name or "", printed_as=name or "")
            for printed in mark.printed
            if printed.name or name
        )
        self._values(mark, entry, values)

    def _values(
        self, mark: Mark, entry: Entry | None, values: tuple[Printed, ...] | None = None
    ) -> None:
        line, at_us = mark.line.number, mark.line.at_us
        for printed in mark.printed if values is None else values:
            if entry is None:
                if mark.detail is not None:
                    # No step is known; several lines must not be taken for one.
                    printed = replace(printed, subject=f"{printed.subject}, {mark.detail}")
                self._printed(line, self._attempts.newest, 0, at_us, printed, None)
            elif entry.attempt is None:
                entry.extra.append((line, None, at_us, printed))
            else:
                self._printed(line, entry.attempt, entry.step, at_us, printed, entry.interval)

    def _event(self, mark: Mark) -> None:
        if mark.new_attempt:
            self._state.ended = None
            for stream in self._streams.values():
                self._decide(stream, stream.close())
                stream.restart()
        current = self._current.step if self._current else 0
        for printed in mark.printed:
            step, line = current if mark.step is None else mark.step, mark.line
            self._printed(line.number, self._attempts.newest, step, line.at_us, printed, None)
        self._events.take(mark, self._attempts.newest)

    def _score(self, mark: Mark) -> None:
        step = self._current.step if self._current else None
        self._events.scores(mark, self._attempts.newest, step)

    # -- rows --------------------------------------------------------------------------------

    def _decide(self, stream: Stream, decided: Iterator[Accepted | Stray]) -> None:
        for found in decided:
            if isinstance(found, Stray):
                entry = found.entry
                self._rows.reject(Reject("steps", found.reason, entry.line, "step", entry.raw))
                self._state.count(Kind.STEP.value, -1)
                self._state.count("repeated" if found.repeats else "strays")
                continue
            self._accept(stream, found)

    def _accept(self, stream: Stream, found: Accepted) -> None:
        entry, before = found.entry, found.before
        assert entry.attempt is not None
        if self._state.ended == "failed":
            self._state.ended = None  # it went on
        if found.restarted or (self._options.attempt and not self._state.flags.get("began")):
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
            if len(self._durations) < _JUDGED:
                self._durations[entry.step] = duration
        elif duration is None:
            self._state.flags["untimed"] = True
        for printed in entry.printed:
            self._printed(
                entry.line, entry.attempt, entry.step, entry.at_us, printed, entry.interval
            )
        for line, step, at_us, printed in entry.extra:
            self._printed(line, entry.attempt, step or entry.step, at_us, printed, entry.interval)
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

    def _printed(
        self,
        line: int,
        attempt: int,
        step: int,
        at_us: int | None,
        printed: Printed,
        interval: int | None,
    ) -> None:
        self._rows.printed(self._state, line, attempt, step, at_us, printed, interval)

    def _about_job(self) -> Iterator[Batch]:
        return about_job(self._state, self._options, self._source, self._frameworks)


def _process(mark: Mark) -> str:
    """Which process printed a line, as far as its prefix tells."""
    return f"{mark.line.host or ''} {'' if mark.line.rank is None else mark.line.rank}"
