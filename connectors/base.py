"""The contract of every connector: probe, fetch, parse, read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from steptax.app.errors import InputError, IntegrityError, SteptaxError
from steptax.app.schema import Batch

#: Units that ``--time-unit`` takes; a relative unit is a normalised duration without a clock.
TIME_UNITS = ("us", "ms", "s", "ns", "relative")


@dataclass(frozen=True)
class Capabilities:
    """What a source can give.

    ``level`` is the evidence level (0 job log, 1 per-rank step time, 2 per-rank phases,
    3 per-operation trace, 4 device health); ``sees`` and ``cannot_see`` are for people.
    ``is_guess`` says that nothing in the source names it: what looks alike might be anything.
    """

    tables: tuple[str, ...]
    level: int
    sees: str
    cannot_see: str
    is_guess: bool = False


@dataclass(frozen=True)
class Options:
    """What the person says about a source that the source does not say itself.

    ``mapping`` gives a target the column, or the sum or difference of columns, that it is read
    from, e.g. ``{"rank": "worker", "compute": "forward_ms+backward_ms-comm_ms"}``; ``time_unit``
    is the unit of times whose column name has none. InputError for a unit that does not exist or
    for sizes that cannot be.
    """

    job_id: str | None = None
    attempt: int = 0
    mapping: Mapping[str, str] = field(default_factory=dict)
    time_unit: str | None = None
    meta: Path | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    world_size: int | None = None
    gpu_model: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no source can have."""
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise InputError(
                f"there is no time unit {self.time_unit!r}",
                where="--time-unit",
                hint=f"use one of {', '.join(TIME_UNITS)}",
            )
        if self.world_size is not None and self.world_size < 1:
            raise InputError(
                f"a job has at least one rank, not {self.world_size}",
                where="--world-size",
                hint="leave it out where the source holds every rank",
            )
        if self.attempt < 0:
            raise InputError(
                f"attempts count from 0, not {self.attempt}",
                where="--attempt",
                hint="leave it out for a job that never restarted",
            )
        if self.job_id is not None and not self.job_id.strip():
            raise InputError(
                "a job id cannot be empty", where="--job", hint="leave it out for the file's name"
            )


@dataclass(frozen=True)
class RawChunk:
    """A stretch of a source as it was read: nothing in it is interpreted yet.

    ``source`` is the file or address, ``first_row`` the line or row that the stretch begins
    with, counted from 1; ``payload`` is what the connector's own ``parse`` takes.
    """

    source: str
    first_row: int
    payload: Any


class Run:
    """What one reading of a source remembers from chunk to chunk.

    ``parse`` is pure, so whatever spans chunks (numbering, the ranks seen) lives here.
    """

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Pass a parsed batch on, changed or held back."""
        yield batch

    def close(self) -> Iterator[Batch]:
        """The batches that only the end of the source makes known."""
        return iter(())

    def flush(self) -> Iterator[Batch]:
        """What can be said before the end of a source that still grows; may be said again."""
        return self.close()

    def state(self) -> Mapping[str, Any]:
        """What the rest of the source will be read by, as JSON can hold it."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave."""


@dataclass(frozen=True)
class LineFormat:
    """How a file is read that grows line by line.

    ``chunk`` makes whole lines of it what ``parse`` takes; ``cut_at(data, cut)`` may move the end
    of a stretch from the line end at ``cut`` to an earlier one, where a record goes on over line
    ends.
    """

    chunk: Callable[[Any], RawChunk]
    cut_at: Callable[[bytes, int], int]


class Connector(ABC):
    """One kind of source.

    A new kind is one module with a subclass of this and one line in ``registry``. Raising
    anything but a ``SteptaxError`` from ``read`` is a fault of the connector.
    """

    kind: ClassVar[str]
    """Name in ``steptax ingest KIND``."""
    version: ClassVar[int]
    """Raised when the same input would give other rows; part of what makes an ingest idempotent."""
    title: ClassVar[str]
    """One line for lists."""
    doc: ClassVar[str]
    """Formats, columns and units, as ``--help`` prints them."""
    in_folder: ClassVar[tuple[str, ...]] = ()
    """Patterns of the files that make up one source in a folder; none: a folder is not read."""
    folder_is_job: ClassVar[bool] = False
    """Whether the files of a folder are the ranks of one job, called by the folder."""
    named_by_folder: ClassVar[bool] = False
    """Whether a job is called by its place in the folder that is read: ``extra['folder']``."""

    @abstractmethod
    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look at the head of ``source`` only; InputError says what is wrong with it."""

    @abstractmethod
    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Read ``source`` in stretches of bounded size. I/O only; InputError when unreadable."""

    @abstractmethod
    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one stretch. Pure: no I/O, no state, same input same output."""

    def begin(self, source: Path, options: Options) -> Run:
        """State for one reading of ``source``."""
        return Run()

    def has_local_clock(self, options: Options) -> bool:
        """Whether moments may be local times of a zone that nobody has named."""
        return False

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """How ``source`` can be read while it grows; None where only the whole file can.

        Looks at its head only; InputError says what is wrong with it.
        """
        return None

    def pull(self, url: str, options: Options) -> Iterator[tuple[str, bytes]]:
        """What lies at ``url`` as files that ``read`` takes: a name and the content of each.

        InputError where the kind is not read from an address, or nothing can be had from it.
        """
        raise InputError(
            f"{self.kind} is not read from an address",
            where=url,
            hint="save it to a file first and name that",
        )

    def read(self, source: Path, options: Options) -> Iterator[Batch]:
        """All batches of ``source``; each note once.

        InputError when the source cannot be read at all; IntegrityError when the connector
        itself fails, so that nothing unnamed gets past it.
        """
        said: set[str] = set()
        try:
            self.probe(source, options)
            run = self.begin(source, options)
            for raw in self.fetch(source, options):
                for batch in self.parse(raw, options):
                    for out in run.take(batch):
                        yield _say_once(out, said)
            for out in run.close():
                yield _say_once(out, said)
        except SteptaxError:
            raise
        except OSError as error:
            raise InputError(
                f"cannot be read: {error}", where=str(source), hint="check disk and permissions"
            ) from error
        except Exception as error:
            raise IntegrityError(
                f"connector {self.kind} failed: {type(error).__name__}: {error}",
                where=str(source),
                hint="this is a fault of the connector, not of the file; please report it",
            ) from error


def _say_once(batch: Batch, said: set[str]) -> Batch:
    fresh = tuple(note for note in dict.fromkeys(batch.notes) if note not in said)
    said.update(fresh)
    return batch if fresh == batch.notes else replace(batch, notes=fresh)
