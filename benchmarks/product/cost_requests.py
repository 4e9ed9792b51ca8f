"""What a store in the cloud is asked, counted: recorders, the compactor and a live page, a minute.

All of it is the real code against a server that speaks S3 (``store_server``): nodes of 8 ranks that
send a step a second as recorders do, a compactor from a timer each minute, and one page of the
running job, which looks each second. It is played for two numbers of nodes; what is asked of a
bigger job follows, as a fixed part and one for each node.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.lake import lake_at, one_look
from steptax.app.lake.bucket_commits import BucketCommits
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.compact import GRACE_S, TARGET_ROWS, compact
from steptax.app.lake.fold import fold_log
from steptax.app.queries import DuckEngine
from steptax.app.settings import Settings
from steptax.app.views.job.models import JobView
from steptax.app.views.job.newest import newest_step
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import Workspace
from steptax.benchmarks.product.scale_data import EPOCH_US, JOB
from steptax.benchmarks.product.store_server import StoreServer
from steptax.connectors.recorder.batch import Header, Piece, encode_batch
from steptax.connectors.recorder.over_fsspec import FsspecTransport
from steptax.connectors.recorder.segments import encode_segment, segment_name

RANKS_OF_NODE = 8
NODES = (2, 6)
_BUCKET = "steptax-cost"
_URL = f"s3://{_BUCKET}/lake"
_NEVER_OLD_S = 1e9
_MINUTE_S = 60
STEP_S = 1.0
#: The last one counts: in the first nothing is merged yet, and all that a lake keeps is read.
_MINUTES = 2
#: Names in an answer to a list; a longer list is as many requests more (Amazon S3, ListObjectsV2).
NAMES_A_LIST = 1_000


@dataclass(frozen=True)
class Asked:
    """Requests of one minute, by who asked and their kind.

    Of the lists ``growing`` are those of the job's segments and of its signs of life (``steps`` and
    ``live``), which are longer than one answer where there are many nodes.
    """

    counts: Mapping[str, Counter[str]]
    growing: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class Requests:
    """A fixed part and one for each node, of a minute; and bytes of the log of commits."""

    fixed: Mapping[tuple[str, str], float]
    by_node: Mapping[tuple[str, str], float]
    growing: Mapping[tuple[str, str], int]
    record: float
    """Bytes of the record of a merge, for each segment that it replaced."""
    folded: float
    """Bytes that are left of it once it is folded."""

    def a_day(self, who: str, kind: str, nodes: float) -> float:
        """Requests of ``kind`` that ``who`` makes in a day of a job on so many nodes."""
        minute = self.fixed[who, kind] + nodes * self.by_node[who, kind]
        if (who, kind) == ("compactor", "PUT"):
            # One merge, of a part and its record, was counted; of many rows more are made.
            minute *= max(1.0, nodes * RANKS_OF_NODE * _MINUTE_S / STEP_S / TARGET_ROWS)
        if kind == "LIST":
            minute += self.growing[who, "steps"] * (names_alive(nodes) // NAMES_A_LIST)
            minute += self.growing[who, "live"] * (nodes // NAMES_A_LIST)
        return minute * 1440

    def replaced_a_day(self, nodes: float) -> float:
        """Segments of recorders that merges replace."""
        return nodes * _MINUTE_S / FsspecTransport.pack_s * 1440


def names_alive(nodes: float) -> float:
    """Segments of recorders that are listed: of a minute, and replaced ones in their grace."""
    a_minute = nodes * _MINUTE_S / FsspecTransport.pack_s
    return a_minute * (1 + GRACE_S / _MINUTE_S)


def counted() -> Requests:
    """Play the minutes; ImportError without moto or s3fs."""
    few, many = (_played(nodes) for nodes in NODES)
    keys = [(who, kind) for who in few[0].counts for kind in ("PUT", "LIST", "GET")]
    by_node = {
        (who, kind): (many[0].counts[who][kind] - few[0].counts[who][kind]) / (NODES[1] - NODES[0])
        for who, kind in keys
    }
    fixed = {
        (who, kind): few[0].counts[who][kind] - NODES[0] * by_node[who, kind] for who, kind in keys
    }
    return Requests(fixed, by_node, many[0].growing, many[1], many[2])


def _played(nodes: int) -> tuple[Asked, float, float]:
    """The last minute's requests, and bytes of the log for each replaced segment, then folded."""
    with _store() as store:
        lake_at(_URL, create=True)
        recorders = [FsspecTransport(_URL) for _ in range(nodes)]
        page = _Page()
        counts: dict[str, Counter[str]] = {}
        growing: Counter[tuple[str, str]] = Counter()
        for minute in range(_MINUTES):
            counts = {who: Counter() for who in ("recorders", "compactor", "page")}
            growing = Counter()

            @contextlib.contextmanager
            def by(
                who: str,
                times: int = 1,
                counts: dict[str, Counter[str]] = counts,
                growing: Counter[tuple[str, str]] = growing,
            ) -> Iterator[None]:
                store.forget()
                yield
                counts[who].update({kind: times * n for kind, n in store.counts.items()})
                for edge, kind, path in store.events:
                    of = path.rstrip("/").removesuffix(f"/job={JOB}").rpartition("/")[2]
                    if edge == "begin" and kind == "LIST" and of in ("steps", "live"):
                        growing[who, of] += times if path.rstrip("/").endswith(JOB) else 0

            for begin_s in range(0, _MINUTE_S, int(FsspecTransport.pack_s)):
                with by("recorders"):
                    for node, recorder in enumerate(recorders):
                        _send(recorder, node, minute * _MINUTE_S + begin_s)
                with by("page"):
                    page.look()
                # Until rows come again, each look asks the same.
                with by("page", int(FsspecTransport.pack_s) - 1):
                    page.look()
            with by("compactor"), _elsewhere():
                compact(BucketLake(_URL, fresh_s=0), grace_s=0)
        replaced = nodes * _MINUTES * _MINUTE_S / FsspecTransport.pack_s
        record, folded = _log_bytes()
        return Asked(counts, growing), record / replaced, folded / replaced


class _Page:
    """The page of a running job: each second its newest step, all else when rows are new."""

    def __init__(self) -> None:
        self._lake = lake = BucketLake(_URL, fresh_s=_NEVER_OLD_S)
        self._ws = Workspace(lake, DuckEngine(lake), Settings())
        self._seen: tuple[str, JobView] | None = None

    def look(self) -> None:
        # A second has passed, on any machine: what was listed is too old now.
        assert isinstance(self._lake.commits, BucketCommits)
        self._lake.commits._read_at = -2 * _NEVER_OLD_S
        self._lake._remote._held.clear()
        with one_look():
            version = self._ws.version(JOB)
            if self._seen is None or self._seen[0] != version:
                self._seen = version, job_view(self._ws, JOB, price=None)
                newest_step(self._ws, self._seen[1])


def _send(recorder: FsspecTransport, node: int, first: int) -> None:
    """What a node sends each ten seconds, of a step a second, and its ranks' signs of life."""
    steps = range(first, first + int(recorder.pack_s))
    pieces, bodies = [], []
    now_us = EPOCH_US + steps[-1] * 1_000_000
    ranks = range(node * RANKS_OF_NODE, (node + 1) * RANKS_OF_NODE)
    for rank in ranks:
        columns: dict[str, list[Any]] = {
            "job_id": [JOB] * len(steps),
            "attempt": [0] * len(steps),
            "step": [*steps],
            "rank": [rank] * len(steps),
            "start_us": [EPOCH_US + step * 1_000_000 for step in steps],
            "duration_us": [990_000 + rank] * len(steps),
            "compute_us": [700_000 + rank] * len(steps),
            "source": ["recorder"] * len(steps),
            "ingested_at_us": [now_us] * len(steps),
        }
        data, suffix = encode_segment("steps", columns, len(steps), None)
        name, low, high = segment_name("steps", columns, len(steps), now_us, suffix)
        pieces.append(Piece("steps", JOB, rank, 0, name, len(steps), low, high, len(data)))
        bodies.append(data)
    header = Header(f"{node:032x}", first, f"node-{node}", now_us, tuple(pieces))
    answer = recorder.send(encode_batch(header, bodies), is_first=True)
    beats = [{"job_id": JOB, "rank": rank, "updated_us": now_us} for rank in ranks]
    said = recorder.send_beats(f"{node:016x}", beats)
    if "done" not in (answer.kind, said.kind) or answer.kind != said.kind:
        raise RuntimeError(f"not stored: {answer} {said}")


def _log_bytes() -> tuple[float, float]:
    """Bytes of the records of merges as they are written, and of what stands for them later."""
    lake = BucketLake(_URL, fresh_s=0)

    def held() -> int:
        return sum(
            len(body)
            for body in lake.bucket.read(
                [f"commits/{name}" for name in lake.bucket.names("commits")]
            ).values()
        )

    before = held()
    with lake.commits.compacting(lake.root):
        fold_log(lake, grace_s=0, age_s=0, minimum=1)
        fold_log(lake, grace_s=0, age_s=0, minimum=1)  # what a fold stands for goes after it
    return before, held()


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Another machine, with copies of its own: a compactor need not run beside the pages."""
    here = os.environ["STEPTAX_CACHE"]
    os.environ["STEPTAX_CACHE"] = f"{here}-elsewhere"
    try:
        yield
    finally:
        os.environ["STEPTAX_CACHE"] = here


@contextlib.contextmanager
def _store() -> Iterator[StoreServer]:
    """A server with an empty bucket, which this process is told to ask, and no copies here."""
    import s3fs

    with tempfile.TemporaryDirectory(prefix="steptax-cost-") as folder, StoreServer() as store:
        told = {
            "AWS_ENDPOINT_URL": store.url,
            "AWS_ACCESS_KEY_ID": "cost",
            "AWS_SECRET_ACCESS_KEY": "cost",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "STEPTAX_CACHE": str(Path(folder) / "cache"),
        }
        before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)
        s3fs.S3FileSystem.clear_instance_cache()
        try:
            files = s3fs.S3FileSystem(use_listings_cache=False)
            if files.exists(_BUCKET):
                files.rm(_BUCKET, recursive=True)
            files.mkdir(_BUCKET)
            yield store
        finally:
            s3fs.S3FileSystem.clear_instance_cache()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value
