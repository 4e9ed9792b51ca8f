"""Commit records: the one rename that makes an ingest or a compaction visible.

A commit lists the segments that it adds and those that it replaces. A reader reads the commits
first and lists the segments after: whatever happens in between, it sees the state before or the
state after, never a mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from steptax.app.lake.files import write_whole


@dataclass(frozen=True)
class Commit:
    """One record. ``adds`` and ``removes`` are paths relative to the lake."""

    id: str
    kind: str
    created_us: int
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


class CommitLog:
    """The folder of commit records. Records never change, so each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Commit] = {}

    def all(self) -> dict[str, Commit]:
        """Every commit by id, as of now."""
        try:
            names = {entry.name for entry in self.folder.iterdir()}
        except FileNotFoundError:
            names = set()
        for name in names - self._known.keys():
            if name.endswith(".json") and not name.startswith("."):
                self._known[name] = self._read(self.folder / name)
        return {c.id: c for name, c in self._known.items() if name in names}

    def get(self, commit_id: str) -> Commit | None:
        """The commit ``commit_id``, or None."""
        path = self.folder / f"{commit_id}.json"
        return self._read(path) if path.exists() else None

    def write(self, commit: Commit) -> None:
        """Make ``commit`` true."""
        body = {
            "id": commit.id,
            "kind": commit.kind,
            "created_us": commit.created_us,
            "adds": list(commit.adds),
            "removes": list(commit.removes),
            "detail": dict(commit.detail),
        }
        write_whole(self.folder / f"{commit.id}.json", orjson.dumps(body))

    @staticmethod
    def _read(path: Path) -> Commit:
        body = orjson.loads(path.read_bytes())
        return Commit(
            body["id"],
            body["kind"],
            body["created_us"],
            tuple(body["adds"]),
            tuple(body["removes"]),
            body["detail"],
        )
