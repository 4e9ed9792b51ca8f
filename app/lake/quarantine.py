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
import pyarrow.json as pj
import pyarrow.parquet as pq

from steptax.app.lake.segments import Segment
from steptax.app.schema import table

logger = logging.getLogger("steptax.lake")

FOLDER = "quarantine"
_REASON = ".reason.json"
#: A type of a column, and those that are read as it.
_KIN = (
    (pa.types.is_floating, (pa.types.is_integer, pa.types.is_floating)),
    (pa.types.is_decimal, (pa.types.is_integer, pa.types.is_decimal)),
    (pa.types.is_integer, (pa.types.is_integer,)),
    (pa.types.is_string, (pa.types.is_string, pa.types.is_large_string)),
    (pa.types.is_boolean, (pa.types.is_boolean,)),
)


@dataclass(frozen=True)
class SetAside:
    """One damaged file. ``place`` is where it lay in the lake, ``is_moved`` whether it is gone."""

    place: str
    reason: str
    found_us: int
    is_moved: bool


def damage_of(path: Path, schema: pa.Schema | None = None) -> str | None:
    """What is wrong with a segment or a roll-up; None where every row of it can be read.

    Checksums of pages are checked where the file has them, and with ``schema`` whether its values
    are of those types: one text among the numbers fails every question as torn bytes do. A file
    that is gone, or that this process may not read, is not damaged.
    """
    try:
        return _parquet_damage(path, schema) if path.suffix == ".parquet" else _lines(path, schema)
    except (FileNotFoundError, PermissionError, MemoryError):
        return None
    except (pa.ArrowException, OSError) as error:
        return str(error).split("\n")[0][:300] or type(error).__name__


def _parquet_damage(path: Path, schema: pa.Schema | None) -> str | None:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        held = file.schema_arrow
        known = [field for field in schema or () if field.name in held.names]
        for field in known:
            if not _is_kin(held.field(field.name).type, field.type):
                return f"{field.name}: {held.field(field.name).type} instead of {field.type}"
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            for field in known:
                try:
                    rows[field.name].cast(field.type)
                except pa.ArrowInvalid as error:
                    return f"{field.name}: {error}"[:300]
    return None


def _lines(path: Path, schema: pa.Schema | None) -> str | None:
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError as error:
                return f"line {number} is no JSON: {error}"
    if schema is not None:
        # Stricter than the engine, which takes "5" for a number.
        options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        pj.read_json(path, parse_options=options)
    return None


def _is_kin(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are read as those of the other, whatever they are."""
    if pa.types.is_dictionary(held):
        held = held.value_type
    kin = (kinds for is_one, kinds in _KIN if is_one(wanted))
    return pa.types.is_null(held) or any(is_one(held) for is_one in next(kin))


def segment_damage(root: Path, segment: Segment) -> str | None:
    """What is wrong with a segment of the lake at ``root``; None where it can be read."""
    # What retention kept stands for rows of the table, and has columns of its own.
    is_raw = segment.path.is_relative_to(root / "tables")
    return damage_of(segment.path, table(segment.table).arrow if is_raw else None)


def damaged(root: Path, segments: Iterable[Segment]) -> dict[Path, str]:
    """Those of ``segments`` that are damaged, and how."""
    found = ((segment.path, segment_damage(root, segment)) for segment in segments)
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
        file = note.with_name(note.name.removesuffix(_REASON))
        if not file.exists():
            continue
        place, reason, found_us = file.relative_to(root / FOLDER).as_posix(), "", 0
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = orjson.loads(note.read_bytes())
            reason, found_us = str(said["reason"]), int(said["found_us"])
        found.append(SetAside(place, reason or "its note cannot be read", found_us, True))
    return found
