"""Which kind of source a file is: every connector tries to read its beginning.

No list of marks is kept that could go stale: a connector that takes rows from a file can read it,
one that takes none cannot. Several can, where a format holds another's lines or a table is wide
enough for a general kind; `_order` says which of them tells the most.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from steptax.app.errors import InputError, SteptaxError
from steptax.app.schema import Batch
from steptax.connectors.base import Connector, Options
from steptax.connectors.registry import CONNECTORS
from steptax.connectors.sources import Feed, check_file, is_packed, open_bytes

#: Files up to here, unpacked, are tried whole: a JSON document cannot be cut.
WHOLE_BYTES = 4 << 20
#: Of longer ones, this much is tried.
HEAD_BYTES = 128 << 10
HEAD_ROWS = 2_000
#: Of a folder, as many files are tried, from its first to its last.
FOLDER_FILES = 24
#: A kind that rejects a part of the rows which is greater by this than another's is not meant.
MORE_REJECTED = 1 / 3
#: What is rejected to a greater part is not taken at all, unless the kind is named.
MOST_REJECTED = 0.5
#: Kinds that take tables of any origin: they are meant where nothing more special reads a file.
GENERAL = (
    "device-samples",
    "measurements",
    "nodes",
    "wandb",
    "lightning",
    "scalars",
    "jobs",
    "mlflow",
)
#: Tables that say what each rank did; a kind that gives them knows the format better.
_OF_RANKS = frozenset({"steps", "ops"})
#: A scrape holds no moment; for a trial any will do.
_TRIAL = {"at": "2026-01-01T00:00:00Z"}


@dataclass(frozen=True)
class Reading:
    """What the connector ``kind`` made of the beginning of a file."""

    kind: str
    accepted: int
    rejected: int
    tables: tuple[str, ...]
    level: int
    """Evidence level that the connector promises of it: `Capabilities.level`."""
    is_guess: bool = False
    """Whether nothing in the file names its fields: `Capabilities.is_guess`."""
    refusal: InputError | None = None
    """Why it does not go on."""

    @property
    def rejected_ratio(self) -> float:
        """The part of the rows that were rejected."""
        return self.rejected / max(1, self.accepted + self.rejected)


def readings(path: Path, options: Options | None = None) -> list[Reading]:
    """What each connector that takes rows from ``path`` makes of it, the fittest first.

    InputError where the file cannot be opened, or where no connector reads it: it says what those
    lack that only want to be told more.
    """
    check_file(path)
    options = options or Options()
    options = replace(options, extra={**_TRIAL, **options.extra})
    with _beginning(path) as sample:
        tried = [_try(c, sample, options) for c in CONNECTORS.values()]
    found = [reading for reading in tried if reading.accepted]
    least = min((reading.rejected_ratio for reading in found), default=0.0)
    found = sorted((r for r in found if r.rejected_ratio <= least + MORE_REJECTED), key=_order)
    wants = [
        f"{reading.kind}: {reading.refusal.message} ({reading.refusal.hint})"
        for reading in tried
        if reading.refusal is not None and _lacks_a_word(reading.kind, reading.refusal)
    ]
    if not found or _is_doubtful(found[0], wants):
        also = f"; {found[0].kind} would take {_part(found[0])}" if found else ""
        raise InputError(
            "; ".join(["no connector reads it as it is", *wants]) + also,
            where=str(path),
            hint="name the kind: steptax ingest KIND FILE; steptax connectors lists the kinds, "
            "and --map says which column is which",
        )
    return found


def kind_of(path: Path, options: Options | None = None) -> str:
    """The kind of ``path``; of a folder, the one kind of all its files that are read.

    InputError where no connector reads it, or where the files of a folder are of several kinds.
    """
    if not path.is_dir():
        return readings(path, options)[0].kind
    kinds: dict[str, int] = {}
    files = members(path)
    for file in files[:: -(-len(files) // FOLDER_FILES) or 1]:
        with suppress(InputError):
            kind = readings(file, options)[0].kind
            kinds[kind] = kinds.get(kind, 0) + 1
    if len(kinds) == 1:
        return next(iter(kinds))
    told = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
    raise InputError(
        f"holds files of several kinds: {told}" if kinds else "holds no file that is read",
        where=str(path),
        hint="name the files themselves, or the kind: steptax ingest KIND FOLDER",
    )


def members(folder: Path) -> list[Path]:
    """The files in ``folder`` and below it that hold anything."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)


def _lacks_a_word(kind: str, refusal: InputError) -> bool:
    """Whether a connector would go on if it were told one thing.

    A flag; or, of a table with step, rank and times, which of them make up the duration.
    """
    is_of_ranks = kind == "steps" and refusal.message.startswith("no column for duration;")
    has_times = re.search(r"_(ns|us|ms|s)\b", refusal.message) is not None
    return (is_of_ranks and has_times) or (refusal.hint or "").startswith("pass --")


def _is_doubtful(fittest: Reading, wants: list[str]) -> bool:
    """Whether a file must not be taken for the kind that reads it best.

    A table that lacks but a unit to be steps is none of any numbers; of a file that is mostly
    rejected, or of a general kind by a guess, nobody knows what it is.
    """
    is_general = fittest.kind in GENERAL
    return (
        is_general and (bool(wants) or fittest.is_guess)
    ) or fittest.rejected_ratio > MOST_REJECTED


def _part(reading: Reading) -> str:
    rows = reading.accepted + reading.rejected
    return "it" if not reading.rejected else f"{reading.accepted:,} of its first {rows:,} rows"


def _order(reading: Reading) -> tuple[bool, int, bool, int, int]:
    """Named fields before guesses, special before general, ranks before sums, more rows first."""
    return (
        reading.is_guess,
        GENERAL.index(reading.kind) if reading.kind in GENERAL else -1,
        not _OF_RANKS & set(reading.tables),
        -reading.accepted,
        -reading.level,
    )


def _try(connector: Connector, path: Path, options: Options) -> Reading:
    accepted = rejected = level = 0
    is_guess = False
    refusal = None
    tables: set[str] = set()
    try:
        capable = connector.probe(path, options)
        level, is_guess = capable.level, capable.is_guess
        for batch in _until_enough(connector.read(path, options)):
            accepted += batch.rows.num_rows
            rejected += len(batch.rejects)
            if batch.rows.num_rows:
                tables.add(batch.table)
    except InputError as error:
        refusal = error
    except SteptaxError:
        pass  # The connector's own fault, of which its tests tell; the others take their turn.
    return Reading(
        connector.kind, accepted, rejected, tuple(sorted(tables)), level, is_guess, refusal
    )


def _until_enough(batches: Iterable[Batch]) -> Iterator[Batch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.rows.num_rows
        if rows > HEAD_ROWS:
            return


@contextmanager
def _beginning(path: Path) -> Iterator[Path]:
    """``path``, or a file of its name with its beginning where it is long."""
    with path.open("rb") as handle:
        is_parquet = handle.read(4) == b"PAR1"
    if path.stat().st_size <= WHOLE_BYTES and not _unpacks_to_more(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
        sample = Path(folder) / path.name.removesuffix(".gz")
        if is_parquet:
            _first_rows(path, sample)
        else:
            with open_bytes(path) as handle:
                head = Feed(handle).read(HEAD_BYTES)
            sample.write_bytes(head[: head.rfind(b"\n") + 1] or head)
        yield sample


def _unpacks_to_more(path: Path) -> bool:
    """Whether a packed file holds more than is tried whole: it may be a thousand times its size."""
    if not is_packed(path):
        return False
    with open_bytes(path) as handle:
        return len(Feed(handle).read(WHOLE_BYTES + 1)) > WHOLE_BYTES


def _first_rows(path: Path, sample: Path) -> None:
    try:
        with pq.ParquetFile(path) as file, pq.ParquetWriter(sample, file.schema_arrow) as writer:
            writer.write_batch(next(file.iter_batches(HEAD_ROWS)))
    except (OSError, ValueError) as error:
        raise InputError(
            f"is no whole Parquet file: {error}", where=str(path), hint="copy or write it anew"
        ) from error
