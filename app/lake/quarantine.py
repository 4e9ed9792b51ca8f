"""Damaged files: set aside under their name, so that the rest of the lake answers.

    quarantine/<where it lay>             the file as it was found
    quarantine/<where it lay>.reason.json what is wrong with it, and since when

Nothing is deleted. A file that cannot be moved (a disk that is read only) is passed over by the
process that found it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.lake.segments import Segment

logger = logging.getLogger("steptax.lake")

FOLDER = "quarantine"
_REASON = ".reason.json"


@dataclass(frozen=True)
class SetAside:
    """One damaged file. ``place`` is where it lay in the lake, ``is_moved`` whether it is gone."""

    place: str
    reason: str
    found_us: int
    is_moved: bool


def damage_of(path: Path) -> str | None:
    """What is wrong with a segment or a roll-up; None where every row of it can be read.

    Checksums of pages are checked where the file has them. A file that is gone, or that this
    process may not read, is not damaged.
    """
    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    file.read_row_group(group)
        else:
            with path.open("rb") as handle:
                for number, line in enumerate(handle, 1):
                    try:
                        orjson.loads(line)
                    except orjson.JSONDecodeError as error:
                        return f"line {number} is no JSON: {error}"
    except (FileNotFoundError, PermissionError):
        return None
    except (pa.ArrowException, OSError) as error:
        return str(error).split("\n")[0][:300] or type(error).__name__
    return None


def damaged(segments: Iterable[Segment]) -> dict[Path, str]:
    """Those of ``segments`` that are damaged, and how."""
    found = ((segment.path, damage_of(segment.path)) for segment in segments)
    return {path: reason for path, reason in found if reason is not None}


def move_aside(root: Path, path: Path, reason: str) -> SetAside:
    """Move a damaged file out of the tables, and say so in the log."""
    place = path.relative_to(root).as_posix()
    target = root / FOLDER / place
    now_us = time.time_ns() // 1000
    is_moved = False
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        note = {"place": place, "reason": reason, "found_us": now_us}
        target.with_name(target.name + _REASON).write_bytes(orjson.dumps(note))
        path.rename(target)
        is_moved = True
    logger.error(
        "%s is damaged and was %s: %s",
        place,
        "set aside" if is_moved else "passed over",
        reason,
    )
    return SetAside(place, reason, now_us, is_moved)


def moved_aside(root: Path) -> list[SetAside]:
    """What lies in the quarantine of a lake, by name."""
    found = []
    for note in sorted((root / FOLDER).rglob(f"*{_REASON}")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            said = orjson.loads(note.read_bytes())
            if note.with_name(note.name.removesuffix(_REASON)).exists():
                found.append(SetAside(said["place"], said["reason"], said["found_us"], True))
    return found
