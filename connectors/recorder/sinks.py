"""Where the writing thread puts rows and signs of life."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

from steptax.connectors.recorder.rows import Columns
from steptax.connectors.recorder.segments import SegmentWriter, replace_file


class Sink(Protocol):
    """What the writing thread needs. All raise OSError when the disk does not take it."""

    lost: int
    """Rows that were taken and given up later."""

    def write(self, table: str, columns: Columns, rows: int, now_us: int) -> None:
        """Take rows; they are safe when this returns."""

    def beat(self, beat: dict[str, Any]) -> None:
        """Replace the rank's sign of life."""

    def last_beat(self) -> dict[str, Any] | None:
        """What an earlier attempt of this rank last said; None where that cannot be seen."""

    def turn(self) -> None:
        """Called at every interval."""

    def close(self) -> None:
        """Called once, at the end."""

    def stats(self) -> dict[str, Any]:
        """How the way to the lake is doing; empty where there is nothing to say."""


class FolderSink:
    """A lake in a folder, which other processes and hosts may share."""

    lost = 0

    def __init__(self, writer: SegmentWriter, beat_path: tuple[str, str]) -> None:
        self._writer = writer
        self._beat_path = beat_path

    def write(self, table: str, columns: Columns, rows: int, now_us: int) -> None:
        """Append a segment to the lake."""
        self._writer.write(table, columns, rows, now_us)

    def beat(self, beat: dict[str, Any]) -> None:
        """Replace the heartbeat in the lake."""
        replace_file(*self._beat_path, json.dumps(beat).encode())

    def last_beat(self) -> dict[str, Any] | None:
        """From the lake."""
        return read_beat(self._beat_path)

    def turn(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def stats(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}


def read_beat(path: tuple[str, str]) -> dict[str, Any]:
    """What an earlier attempt of this rank last said of itself; empty when nothing is there."""
    try:
        with open(os.path.join(*path), "rb") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
