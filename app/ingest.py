"""From a file to the lake: the connector reads, the lake stores, all or nothing."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.lake.conflicts import LaterRunError
from steptax.app.lake.ingest import IngestResult, fingerprint, ingest
from steptax.app.lake.standing import known, lies_in
from steptax.app.schema import Batch
from steptax.connectors.asking import shown
from steptax.connectors.base import Options
from steptax.connectors.money.bill import BillConnector
from steptax.connectors.money.offers import DEVICES, PEERS
from steptax.connectors.recognise import kind_of, members
from steptax.connectors.registry import connector

PRICES = "prices"
#: Option of bills: what is done where another kind of file tells of the same time.
SAME_MONTH = "same_month"
_SAME_MONTH = ("hold", "replace", "add")


def ingest_file(
    lake: Lake,
    kind: str,
    path: Path,
    options: Options,
    *,
    place: str | None = None,
    named: bool | None = None,
) -> IngestResult:
    """Read ``path`` with the connector ``kind`` and store what it gives.

    ``place`` is what identifies the source beside its content: what its default job id rests on.
    ``named`` is whether a person named the job; that the options have one says so, as a rule.
    Raises NotFoundError for an unknown kind and InputError for a file that cannot be read at all;
    single bad rows are counted and kept as rejects. A file that tells a later run of the job that
    is named is stored as its next attempt; LaterRunError where no job is named.
    """
    reader = connector(kind)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(
            "expected a file, found a pipe or a device",
            where=str(path),
            hint="save it to a file first",
        )
    if not path.is_file():
        raise InputError(
            "there is no such file" if not path.exists() else "expected a file, found a folder",
            where=str(path),
            hint="name the files themselves; a shell pattern such as folder/*.csv works",
        )
    identity = fingerprint([path, *([options.meta] if options.meta else [])])
    facts = {k: str(v) for k, v in asdict(options).items() if v}
    # The default job id is the file's name, so the same content under another name is another job;
    # so it is in another folder where that gives the name.
    if place is None:
        place = str(path.resolve()) if reader.named_by_folder else path.name
    ingest_id = fingerprint([], kind, reader.version, identity, sorted(facts.items()), place)
    if kind == PRICES:
        # What is stored already tells which price is far off; it is no part of what the input is.
        from steptax.app.price_book import device_names, peers

        told = {PEERS: peers(lake), DEVICES: device_names()}
        options = replace(options, extra={**options.extra, **told})
    named = options.job_id is not None if named is None else named
    source = f"{kind}:{path.name}"
    detail: dict[str, Any] = {
        "connector": kind,
        "version": reader.version,
        "options": facts,
        "path": str(path.resolve()),
    }

    def store(batches: Iterable[Batch], *, refuse: bool) -> IngestResult:
        is_bill = isinstance(reader, BillConnector)
        with lake.commits.delivering(lake.root) if is_bill else nullcontext():
            return ingest(
                lake,
                batches,
                ingest_id=ingest_id,
                source=source,
                detail=detail,
                refuse_later_run=refuse,
                refuse_older_attempt=refuse and named,
                local_clock=reader.has_local_clock(options),
            )

    said: tuple[str, ...] = ()
    read_as = options
    while True:
        try:
            batches: Iterable[Batch] = chain([_notes_only(said)], reader.read(path, read_as))
            if isinstance(reader, BillConnector):
                from steptax.app.bill_deliveries import CHANGED, delivered

                changed_us = detail[CHANGED] = path.stat().st_mtime_ns // 1000
                same_month = _same_month(options)
                lost = known(lake, ingest_id).lost
                # Lines that are put back count as they did: what was said of them is there still.
                if not lost or any(lies_in("charge_states", name) for name in lost):
                    batches = delivered(
                        lake, source, batches, same_month=same_month, changed_us=changed_us
                    )
            return store(batches, refuse=True)
        except LaterRunError as later:
            if not named or not later.executed or later.is_doubtful:
                # Nobody said that the two are one job, and files of two jobs may be called the
                # same; a tracker has a file per metric, of which each would find its own attempt.
                raise later.at(path) from None
            if later.attempt < read_as.attempt:
                # The source counts its attempts itself: what it contradicts is only told.
                return store(chain([_notes_only(said)], reader.read(path, options)), refuse=False)
            read_as = replace(options, attempt=later.attempt + 1)
            said = (f"{later.message}: it is stored as attempt {read_as.attempt}",)


def _same_month(options: Options) -> str:
    """What is done where another kind of file tells of the bill; InputError for what is none."""
    told = options.extra.get(SAME_MONTH, _SAME_MONTH[0])
    if told not in _SAME_MONTH:
        raise InputError(
            f"expected {', '.join(_SAME_MONTH)}, found {told!r}",
            where="--same-month",
            hint="hold: what is stored counts; replace: this file does; add: both do",
        )
    return told


def _notes_only(notes: tuple[str, ...]) -> Batch:
    return Batch("steps", pa.table({}), notes=notes)


def ingest_folder(
    lake: Lake, kind: str, folder: Path, options: Options
) -> tuple[list[IngestResult], list[str]]:
    """Read the files of ``folder`` that are of ``kind``, in the order of their numbers.

    The second is a note for each file that cannot be read: what one rank failed to write must not
    hide the others. Raises InputError where the kind is not read by folder, or no file can be.
    """
    paths = files_in(kind, folder)
    named = options.job_id is not None
    if connector(kind).folder_is_job and not named:
        options = replace(options, job_id=folder.resolve().name or None)
    if connector(kind).named_by_folder:
        options = replace(options, extra={**options.extra, "folder": str(folder)})
    results: list[IngestResult] = []
    skipped: list[InputError] = []
    for path in paths:
        try:
            results.append(ingest_file(lake, kind, path, options, named=named))
        except InputError as error:
            skipped.append(error)
    if not results:
        raise skipped[0]
    return results, [f"not read: {error}" for error in skipped]


def ingest_found(lake: Lake, path: Path, options: Options) -> tuple[list[IngestResult], list[str]]:
    """Find out which kind ``path`` is, a file or a folder of one kind, and store it.

    The second are notes: as what it is read, and what could not be. Raises InputError where no
    connector reads it, or the files of a folder are of several kinds.
    """
    kind = kind_of(path, options)
    notes = [f"{path.name} is read as {kind}"]
    if path.is_dir() and connector(kind).in_folder:
        results, unread = ingest_folder(lake, kind, path, options)
        return results, [*notes, *unread]
    results = []
    for file in members(path) if path.is_dir() else [path]:
        try:
            results.append(ingest_file(lake, kind, file, options))
        except InputError as error:
            if not path.is_dir():
                raise
            notes.append(f"not read: {error}")
    return results, notes


def files_in(kind: str, folder: Path) -> list[Path]:
    """The files of ``folder`` that are of ``kind`` by their names, in the order of their numbers.

    InputError where the kind is not read by folder, or there is no such file.
    """
    patterns = connector(kind).in_folder
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    if not found:
        raise InputError(
            "expected a file, found a folder"
            if not patterns
            else f"holds no {kind} file: none is called {', '.join(patterns)}",
            where=str(folder),
            hint="name the files themselves; a shell pattern such as folder/*.csv works",
        )
    return sorted(found, key=_by_number)


def url_of(path: Path) -> str | None:
    """The address that a path of the command line was meant to be; None where it is a path."""
    found = re.match(r"(https?):/+(?=[^/])", str(path))
    return None if found is None else f"{found[1]}://{str(path)[found.end() :]}"


def ingest_url(lake: Lake, kind: str, url: str, options: Options) -> list[IngestResult]:
    """Pull what lies at ``url`` and store each document of it as `ingest_file` does.

    The same content again adds nothing. Raises NotFoundError for an unknown kind and InputError
    where the kind is not read from an address, or the server gives nothing that can be read.
    """
    reader = connector(kind)
    ignored = _ignored_login(kind, url)
    results: list[IngestResult] = []
    empty: list[InputError] = []
    with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
        for name, content in _pulled(reader.pull(url, options), ignored):
            path = Path(folder) / name
            path.write_bytes(content)
            try:
                results.append(ingest_file(lake, kind, path, options, place=name))
            except InputError as error:
                empty.append(
                    InputError(f"{name}: {error.message}", where=shown(url), hint=error.hint)
                )
            path.unlink()
    if not results:
        raise (
            empty[0]
            if empty
            else InputError(
                "holds nothing",
                where=shown(url),
                hint="check the address: it names no run with metrics",
            )
        )
    if ignored:
        results[0] = replace(results[0], notes=(*results[0].notes, ignored))
    return results


def _ignored_login(kind: str, url: str) -> str:
    """What to say of user and password in an address, which are never sent; empty without any."""
    if "@" not in urlsplit(url).netloc:
        return ""
    prefix = "MLFLOW_TRACKING" if kind == "mlflow" else "PROMETHEUS"
    return (
        "user and password in the address are ignored, since addresses end up in histories and "
        f"logs: set {prefix}_USERNAME and {prefix}_PASSWORD, or {prefix}_TOKEN"
    )


def _pulled(documents: Iterable[tuple[str, bytes]], ignored: str) -> Iterator[tuple[str, bytes]]:
    """``documents``; where the server gives none, the error says what was ``ignored``."""
    try:
        yield from documents
    except InputError as error:
        if not ignored:
            raise
        raise InputError(
            f"{error.message}; {ignored}", where=error.where, hint=error.hint
        ) from None


def _by_number(path: Path) -> list[tuple[int, str]]:
    """``rank_2`` before ``rank_10``."""
    return [(int(n or 0), text) for text, n in re.findall(r"(\D*)(\d*)", path.name)]
