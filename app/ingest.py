"""From a file to the lake: the connector reads, the lake stores, all or nothing."""

from __future__ import annotations

import re
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import IngestResult, fingerprint, ingest
from steptax.connectors.base import Options
from steptax.connectors.registry import connector


def ingest_file(
    lake: Lake, kind: str, path: Path, options: Options, *, place: str | None = None
) -> IngestResult:
    """Read ``path`` with the connector ``kind`` and store what it gives.

    ``place`` is what identifies the source beside its content: what its default job id rests on.
    Raises NotFoundError for an unknown kind and InputError for a file that cannot be read at all;
    single bad rows are counted and kept as rejects.
    """
    reader = connector(kind)
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
    return ingest(
        lake,
        reader.read(path, options),
        ingest_id=ingest_id,
        source=f"{kind}:{path.name}",
        detail={"connector": kind, "version": reader.version, "options": facts},
    )


def ingest_folder(
    lake: Lake, kind: str, folder: Path, options: Options
) -> tuple[list[IngestResult], list[str]]:
    """Read the files of ``folder`` that are of ``kind``, in the order of their numbers.

    The second is a note for each file that cannot be read: what one rank failed to write must not
    hide the others. Raises InputError where the kind is not read by folder, or no file can be.
    """
    patterns = connector(kind).in_folder
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    if not found:
        raise InputError(
            "expected a file, found a folder" if not patterns else f"holds no {kind} file",
            where=str(folder),
            hint="name the files themselves; a shell pattern such as folder/*.csv works",
        )
    if connector(kind).named_by_folder:
        options = replace(options, extra={**options.extra, "folder": str(folder)})
    results: list[IngestResult] = []
    skipped: list[InputError] = []
    for path in sorted(found, key=_by_number):
        try:
            results.append(ingest_file(lake, kind, path, options))
        except InputError as error:
            skipped.append(error)
    if not results:
        raise skipped[0]
    return results, [f"not read: {error}" for error in skipped]


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
    results: list[IngestResult] = []
    empty: list[InputError] = []
    with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
        for name, content in reader.pull(url, options):
            path = Path(folder) / name
            path.write_bytes(content)
            try:
                results.append(ingest_file(lake, kind, path, options, place=name))
            except InputError as error:
                empty.append(InputError(f"{name}: {error.message}", where=url, hint=error.hint))
            path.unlink()
    if not results:
        raise (
            empty[0]
            if empty
            else InputError(
                "holds nothing", where=url, hint="check the address: it names no run with metrics"
            )
        )
    return results


def _by_number(path: Path) -> list[tuple[int, str]]:
    """``rank_2`` before ``rank_10``."""
    return [(int(n or 0), text) for text, n in re.findall(r"(\D*)(\d*)", path.name)]
