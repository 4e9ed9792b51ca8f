"""What ``with`` takes: steps and phases as blocks. They never raise and swallow nothing."""

from __future__ import annotations

from types import TracebackType

from steptax.connectors.recorder.book import StepBook
from steptax.connectors.recorder.notes import Notes


class StepBlock:
    """One step. Left by an exception, it is abandoned: a step that failed was not made."""

    __slots__ = ("_book", "_notes", "_step")

    def __init__(self, book: StepBook, notes: Notes, step: int) -> None:
        self._book = book
        self._notes = notes
        self._step = step

    def __enter__(self) -> None:
        try:
            self._book.begin(self._step)
        except Exception as error:
            self._notes.caught("the begin of a step", error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._book.end()
            else:
                self._book.abandon()
        except Exception as problem:
            self._notes.caught("the end of a step", problem)


class PhaseBlock:
    """One kind of phase, or the collective; may be entered again, and inside others."""

    __slots__ = ("_book", "_bucket", "_notes")

    def __init__(self, book: StepBook, notes: Notes, bucket: int) -> None:
        self._book = book
        self._notes = notes
        self._bucket = bucket

    def __enter__(self) -> None:
        try:
            self._book.enter(self._bucket)
        except Exception as error:
            self._notes.caught("a phase", error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._book.leave(self._bucket)
        except Exception as problem:
            self._notes.caught("the end of a phase", problem)
