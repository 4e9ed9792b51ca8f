"""Addresses that are followed and do not answer: what they would tell is unknown, and not zero.

    watch/<key>.json       what is followed, and since when it has not answered

A commit tells that a source answered. One that never did leaves no commit, so its watch says so
here, until it is answered.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from steptax.app.lake.lake import Lake

_FOLDER = "watch"


@dataclass(frozen=True)
class Unheard:
    """A source that did not answer when it was asked last."""

    source: str
    """``slurm:http://host:6820``."""
    since_us: int
    """When it first did not."""
    error: str


def note_unheard(lake: Lake, key: str, found: Unheard) -> None:
    """Note that the watch ``key`` gets no answer. Does nothing if that is known, or on a full disk.

    ``since_us`` of the first note counts until ``heard``.
    """
    path = lake.root / _FOLDER / f"{key}.json"
    if path.exists():
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".tmp")
        fresh.write_text(json.dumps(asdict(found)))
        fresh.replace(path)


def heard(lake: Lake, key: str) -> None:
    """Forget the note of the watch ``key``: its source answered."""
    with contextlib.suppress(OSError):
        (lake.root / _FOLDER / f"{key}.json").unlink(missing_ok=True)


def unheard(lake: Lake) -> list[Unheard]:
    """Sources that did not answer when they were asked last, by name."""
    notes = (_read(path) for path in sorted((lake.root / _FOLDER).glob("*.json")))
    return sorted((note for note in notes if note is not None), key=lambda one: one.source)


def _read(path: Path) -> Unheard | None:
    try:
        said = json.loads(path.read_text())
        return Unheard(str(said["source"]), int(said["since_us"]), str(said["error"]))
    except (OSError, ValueError, KeyError, TypeError):  # answered just now, or by another hand
        return None
