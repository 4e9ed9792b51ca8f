"""Heartbeats of many ranks, one file a job: ``live/job=<id>/beats-collector.json``."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import orjson

from steptax.app.lake.heartbeats import fault_of
from steptax.app.lake.segments import job_folder

logger = logging.getLogger("steptax.collect")

WRITE_S = 1.0
#: A job that has not been heard of for so long is forgotten here; its file stays.
_FORGET_S = 3_600.0
#: Ranks whose heartbeats are held, of all jobs.
_MOST = 1_000_000
_TEXT_CHARACTERS = 1_000
#: A heartbeat from further ahead of this machine's clock gives way to the next one that comes.
_AHEAD_US = 60_000_000


def read_beat(given: Any) -> tuple[str, dict[str, Any]]:
    """Job and heartbeat as the lake holds it; raises ValueError for what is none."""
    if not isinstance(given, dict):
        raise ValueError("expected an object")
    beat = {
        str(name)[:64]: value[:_TEXT_CHARACTERS] if isinstance(value, str) else value
        for name, value in list(given.items())[:32]
        if value is None or isinstance(value, (str, int, float))
    }
    job_id = given.get("job_id")
    if not isinstance(job_id, str) or not job_id or len(job_folder(job_id).encode()) > 255:
        raise ValueError("job_id: expected text that fits a folder's name")
    for name in ("rows_written", "rows_dropped"):
        if beat.get(name) is None:
            raise ValueError(f"{name}: expected a whole number, found none")
    if fault := fault_of(beat):
        raise ValueError(fault)
    return job_id, beat


class Beats(threading.Thread):
    """Takes heartbeats and writes those that changed, every second; a new job's at once.

    Rows of a job whose recorders were not heard of look like those of one that has ended.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(name="beats", daemon=True)
        self._root = root / "live"
        self._jobs: dict[str, dict[int, dict[str, Any]]] = {}
        self._heard_s: dict[str, float] = {}
        self._changed: set[str] = set()
        self._guard = threading.Lock()
        self.refused = 0
        """Heartbeats that had not the shape of one, since the collector was started."""
        self._due = threading.Event()
        self._is_ended = False

    @property
    def ranks(self) -> int:
        """Ranks that have been heard of."""
        with self._guard:
            return sum(map(len, self._jobs.values()))

    def take(self, found: list[tuple[str, dict[str, Any]]]) -> None:
        """Keep what is newer than what is there.

        What is there may come from a clock that was ahead and has been set right since: no rank
        falls silent until the time that such a clock told.
        """
        ahead_us = time.time_ns() // 1000 + _AHEAD_US
        with self._guard:
            is_new = any(job_id not in self._jobs for job_id, _ in found)
            room = _MOST - sum(map(len, self._jobs.values()))
            for job_id, beat in found:
                if job_id not in self._jobs:
                    self._jobs[job_id] = self._load(job_id)
                    self._heard_s[job_id] = time.monotonic()  # it can be forgotten, whatever comes
                ranks, rank = self._jobs[job_id], beat["rank"]
                known = ranks.get(rank)
                if known is None:
                    room -= 1
                if known is None and room < 0:
                    continue
                if known and beat["ts_us"] < known["ts_us"] < ahead_us:
                    continue
                ranks[rank] = beat
                self._changed.add(job_id)
                self._heard_s[job_id] = time.monotonic()
        if is_new:
            self._due.set()

    def count_refused(self, count: int) -> None:
        """Note that ``count`` heartbeats were none."""
        with self._guard:
            self.refused += count

    def close(self) -> None:
        """Write what changed, and stop."""
        self._is_ended = True
        self._due.set()
        self.join()

    def run(self) -> None:
        """The thread."""
        while not self._is_ended:
            self._due.wait(WRITE_S)
            self._due.clear()
            self._write()
        self._write()

    def _path(self, job_id: str) -> Path:
        return self._root / job_folder(job_id) / "beats-collector.json"

    def _load(self, job_id: str) -> dict[int, dict[str, Any]]:
        """What a collector before this one has written."""
        try:
            found = orjson.loads(self._path(job_id).read_bytes())
            return {beat["rank"]: beat for beat in found if fault_of(beat) is None}
        except (OSError, ValueError, TypeError):
            return {}

    def _write(self) -> None:
        with self._guard:
            bodies = {
                job: orjson.dumps(sorted(self._jobs[job].values(), key=lambda b: b["rank"]))
                for job in self._changed
            }
            self._changed.clear()
            before_s = time.monotonic() - _FORGET_S
            for job in [job for job, heard in self._heard_s.items() if heard < before_s]:
                del self._jobs[job], self._heard_s[job]
        for job, body in bodies.items():
            path = self._path(job)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # Not forced to the disk: the next one comes in a second.
                temporary = path.with_name(f".{path.name}.tmp")
                temporary.write_bytes(body)
                temporary.replace(path)
            except OSError as error:
                logger.warning("heartbeats of %s were not written: %s", job, error)
                # The last one of a rank that has ended is followed by no other.
                with self._guard:
                    if job in self._jobs:
                        self._changed.add(job)
