"""From the marks of a log to rows: steps, printed values, events, and what is known of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options, Run
from steptax.connectors.logs.events import LogEvents
from steptax.connectors.logs.job import about_job, account, log_stem, name_short, tell_returns
from steptax.connectors.logs.marks import Again, Kind, LogBatch, Mark, Printed, value_of
from steptax.connectors.logs.rows import LogRows
from steptax.connectors.logs.state import LogState
from steptax.connectors.logs.step_rows import StepRows
from steptax.connectors.logs.streams import Accepted, Attempts, Entry, Stray, Stream
from steptax.connectors.schedulers.sacct import TIMEZONE

#: Lines that nobody understood and that are shown.
_SHOWN = 3


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
        named = options.extra.get(TIMEZONE)
        self._zone = "the clock of the log has no zone: it is taken as " + (
            named or "UTC; pass --timezone if it is local"
        )
        self._state = LogState(options.attempt)
        self._blocks: dict[str, tuple[Entry | None, str | None]] = {}
        self._current: Entry | None = None
        self._rows = LogRows(options.job_id or log_stem(source))
        self._events = LogEvents(self._rows, self._state, source.name)
        self._steps = StepRows(self._rows, self._state, self._events, options.attempt)
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
            self._steps.printed(line, attempt, step or 0, at_us, Printed(**printed), None)
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
            name_short(self._steps.durations, self._rows)
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
        self._steps = StepRows(self._rows, self._state, self._events, self._options.attempt)
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
                self._rows.note(self._zone)
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
            self._steps.printed(
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
                self._steps.printed(line, self._attempts.newest, 0, at_us, printed, None)
            elif entry.attempt is None:
                entry.extra.append((line, None, at_us, printed))
            else:
                self._steps.printed(line, entry.attempt, entry.step, at_us, printed, entry.interval)

    def _event(self, mark: Mark) -> None:
        if mark.new_attempt:
            self._state.ended = None
            for stream in self._streams.values():
                self._decide(stream, stream.close())
                stream.restart()
        current = self._current.step if self._current else 0
        for printed in mark.printed:
            step, line = current if mark.step is None else mark.step, mark.line
            self._steps.printed(line.number, self._attempts.newest, step, line.at_us, printed, None)
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
            self._steps.accept(stream, found)

    def _about_job(self) -> Iterator[Batch]:
        return about_job(self._state, self._options, self._source, self._frameworks)


def _process(mark: Mark) -> str:
    """Which process printed a line, as far as its prefix tells."""
    return f"{mark.line.host or ''} {'' if mark.line.rank is None else mark.line.rank}"
