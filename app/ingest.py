"""From a file to the lake: the connector reads, the lake stores, all or nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import IngestResult, fingerprint, ingest
from steptax.connectors.base import Options
from steptax.connectors.registry import connector


def ingest_file(lake: Lake, kind: str, path: Path, options: Options) -> IngestResult:
    """Read ``path`` with the connector ``kind`` and store what it gives.

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
    # The default job id is the file's name, so the same content under another name is another job.
    ingest_id = fingerprint([], kind, reader.version, identity, sorted(facts.items()), path.name)
    return ingest(
        lake,
        reader.read(path, options),
        ingest_id=ingest_id,
        source=f"{kind}:{path.name}",
        detail={"connector": kind, "version": reader.version, "options": facts},
    )
