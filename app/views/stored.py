"""What was worked out of each job, kept beside the lake, so that a new process need not do it.

    derived/<kind>/<time>-<random>.parquet       job_id, key, value; without job_id a shared part
    derived/queries/<query>.parquet              rows of a query about many jobs

A value counts while its ``key`` is what it was made of: the job's record, its segments, and the
program that worked it out. So an append makes the value of that job alone anew, a new version of
the program all of them, and what is read always equals what would be worked out now. Of small jobs
only those that have ended are kept: one that runs would be written at every look. Of a large one,
which takes seconds to work out, what was said last is kept whatever its state. Files may be deleted
at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.lake import Lake
from steptax.app.lake.rollups import write_rollup
from steptax.app.views.job.extent import FEW_JOBS, LARGE_JOB_ROWS, rows_of_jobs
from steptax.app.views.stored_codec import Codec, references
from steptax.app.views.workspace import Workspace

logger = logging.getLogger("steptax.stored")

#: Files of one kind, beyond which they are merged into one.
MOST_FILES = 16
#: Fewer files are read as soon as what was stored of them.
MANY_SEGMENTS = 64
_FOLDER = "derived"
_COLUMNS = ("job_id", "key", "value")
#: Folders whose files say what a value is.
_APP = Path(__file__).parent.parent
_PROGRAM = (_APP / "compute", _APP / "views", _APP / "queries" / "sql", _APP / "schema")

T = TypeVar("T")


class Stored(Generic[T]):
    """Values of one kind, by job."""

    def __init__(self, kind: str, codec: Codec) -> None:
        self._kind, self._codec = kind, codec

    def find(self, ws: Workspace, keys: Mapping[str, str]) -> dict[str, T]:
        """Values of jobs by the key that each must have; those that are not there are left out."""
        found: dict[str, T] = {}
        if not keys:
            return found
        wanted = {job_id: _of_program(key) for job_id, key in keys.items()}
        for path in self._files(ws.lake):
            rows, shared = _read(path)
            reader = self._codec.reader(shared)
            for job_id, key, value in rows:
                if wanted.get(job_id) == key:
                    try:
                        found[job_id] = reader.of_text(value)
                    except Exception:  # damaged, or by a hand: it is worked out anew
                        logger.warning("what is stored of job %s cannot be read", job_id)
        return found

    def keep(self, ws: Workspace, values: Mapping[str, tuple[str, T]]) -> None:
        """Keep values by job with their keys. Does nothing where the disk cannot be written.

        Somebody who sees a part of the lake keeps nothing for the others.
        """
        if not values or ws.lake.scope:
            return
        texts, shared = self._codec.to_texts(value for _, value in values.values())
        rows = {
            job_id: (job_id, _of_program(key), text)
            for (job_id, (key, _)), text in zip(values.items(), texts, strict=True)
            if text is not None
        }
        old = self._files(ws.lake)
        if len(old) >= MOST_FILES:
            files = [_read(path) for path in old]
            rows = {row[0]: row for own, _ in files for row in own} | rows
            every = {name: part for _, own in files for name, part in own.items()} | shared
            shared = references((text for *_, text in rows.values()), every)
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.parquet"
        told = [*rows.values(), *((None, key, part) for key, part in shared.items())]
        columns = {name: [row[k] for row in told] for k, name in enumerate(_COLUMNS)}
        with contextlib.suppress(OSError):
            write_rollup(self._folder(ws.lake) / name, pa.table(columns))
            if len(old) >= MOST_FILES:
                for path in old:
                    path.unlink(missing_ok=True)

    def _folder(self, lake: Lake) -> Path:
        return lake.root / _FOLDER / self._kind

    def _files(self, lake: Lake) -> list[Path]:
        """Oldest first."""
        return sorted(self._folder(lake).glob("[0-9]*.parquet"))


def _read(path: Path) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
    """Rows of a file, and the parts that they share."""
    try:
        table = pq.read_table(path, columns=list(_COLUMNS))
    except (OSError, pa.ArrowException):  # merged into another one just now, or damaged
        return [], {}
    rows = list(zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True))
    shared = {key: value for job_id, key, value in rows if job_id is None}
    return [row for row in rows if row[0] is not None], shared


def stored_rows(ws: Workspace, query: str, tables: Sequence[str]) -> pa.Table:
    """The rows of a query without parameters about many jobs: each has files of its own to read.

    They count while the segments of ``tables``, which must be all that it reads, are the same.
    """
    segments = sum(len(ws.lake.segments(name)) for name in tables)
    if segments < MANY_SEGMENTS or ws.lake.scope:
        return ws.engine.run(query)
    key = _of_program("-".join(ws.lake.version(name) for name in tables)).encode()
    path = ws.lake.root / _FOLDER / "queries" / f"{query}.parquet"
    with contextlib.suppress(OSError, pa.ArrowException):
        rows = pq.read_table(path)
        if (rows.schema.metadata or {}).get(b"key") == key:
            return rows.replace_schema_metadata()
    rows = ws.engine.run(query)
    with contextlib.suppress(OSError):
        write_rollup(path, rows.replace_schema_metadata({b"key": key}))
    return rows


def _of_program(key: str) -> str:
    return hashlib.sha256(f"{program()}\n{key}".encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def program() -> str:
    """Changes with the code that works values out."""
    digest = hashlib.sha256()
    for folder in _PROGRAM:
        for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.sql")]):
            name = file.relative_to(folder).as_posix()
            digest.update(name.encode() + b"\n" + file.read_bytes())
    return digest.hexdigest()[:16]


def to_store(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of ``jobs`` whose values are kept: large ones, and of many jobs what has ended.

    A few small jobs are worked out as soon as looked up.
    """
    many = len(jobs) >= FEW_JOBS
    rows = rows_of_jobs(ws, None if many else [str(job["job_id"]) for job in jobs])
    return [
        job
        for job in jobs
        if rows.get(job["job_id"], 0) > LARGE_JOB_ROWS or (many and is_settled(job))
    ]


def is_settled(job: Mapping[str, Any]) -> bool:
    """Whether a job, a row of ``ws.jobs()``, has ended as far as its record tells."""
    return job.get("end_us") is not None and job.get("state") not in ("running", "pending")


def record_text(job: Mapping[str, Any]) -> str:
    """What a job's record says, whenever that was read."""
    return repr(sorted((k, v) for k, v in job.items() if k != "ingested_at_us"))


def job_versions(lake: Lake, name: str) -> Callable[[str], str]:
    """Version of the rows of each job in the by-job table ``name``, as ``lake.version`` has it.

    All jobs in one look: a fleet has thousands.
    """
    own: dict[str, list[bytes]] = {}
    for segment in lake.segments(name):
        own.setdefault(str(segment.job_id), []).append(segment.path.name.encode() + b"\n")

    def version(job_id: str) -> str:
        names = own.get(job_id)
        return "-" if names is None else hashlib.sha256(b"".join(names)).hexdigest()[:16]

    return version
