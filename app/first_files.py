"""Files of the working directory that some connector reads, for who has nothing connected yet.

The files themselves are tried, as ``steptax ingest`` does it, so that every kind is found that can
be read; few and small ones only, since nobody asked for it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from steptax.app.errors import InputError

#: How names end of what is tried: text, tables and JSON.
ENDINGS = frozenset(
    {".csv", ".err", ".json", ".jsonl", ".log", ".ndjson", ".out", ".parquet", ".prom", ".psv"}
    | {".stderr", ".stdout", ".tsv", ".txt"}
)
#: Files that are tried, the newest first, and for how long a next one is begun.
TRIED_FILES = 24
TRIED_S = 6.0
#: Of text, this much is tried; what cannot be cut (JSON, Parquet) only where it is not longer than
#: ``WHOLE_BYTES``.
HEAD_BYTES = 64 << 10
WHOLE_BYTES = 1 << 20
_WHOLE = frozenset({".json", ".parquet"})


@dataclass(frozen=True)
class Recognised:
    """Files of one folder that are of one kind, oldest name first."""

    kind: str
    gives: str
    """What they tell, in the connector's words."""
    files: tuple[Path, ...]


def recognised_in(folder: Path, but: Callable[[str], bool]) -> list[Recognised]:
    """What lies in ``folder`` itself, each kind once, the one with the newest file first.

    Files of whose names ``but`` holds are left out.
    """
    candidates = list(_candidates(folder, but))
    if not candidates:
        return []
    # A second of importing, which only those pay who have such files.
    from steptax.connectors.base import Options
    from steptax.connectors.recognise import readings
    from steptax.connectors.registry import CONNECTORS

    files: dict[str, list[Path]] = {}
    gives: dict[str, str] = {}
    end = time.monotonic() + TRIED_S
    for path in candidates:
        if time.monotonic() > end:
            break
        with suppress(InputError, OSError), _beginning(path) as sample:
            kind = readings(sample)[0].kind
            if kind not in gives:
                gives[kind] = CONNECTORS[kind].probe(sample, Options()).sees
            files.setdefault(kind, []).append(path)
    return [Recognised(kind, gives[kind], tuple(sorted(found))) for kind, found in files.items()]


def _candidates(folder: Path, but: Callable[[str], bool]) -> Iterator[Path]:
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                ending = os.path.splitext(entry.name)[1]
                if ending not in ENDINGS or entry.name[0] == "." or but(entry.name):
                    continue
                if not entry.is_file():
                    continue
                told, is_whole = entry.stat(), ending in _WHOLE
                if told.st_size and not (is_whole and told.st_size > WHOLE_BYTES):
                    found.append((-told.st_mtime, entry.path))
    except OSError:
        return
    yield from (Path(path) for _, path in sorted(found)[:TRIED_FILES])


@contextmanager
def _beginning(path: Path) -> Iterator[Path]:
    """``path``, or a file of its name with its first whole lines where it is long."""
    if path.suffix in _WHOLE or path.stat().st_size <= HEAD_BYTES:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="steptax-") as scratch, path.open("rb") as handle:
        head = handle.read(HEAD_BYTES)
        sample = Path(scratch) / path.name
        sample.write_bytes(head[: head.rfind(b"\n") + 1] or head)
        yield sample
