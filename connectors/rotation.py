"""The files beside a growing one that it was before: rotated once or often, packed or not."""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from steptax.connectors.sources import begins_packed

#: log.1 and log.1.gz of logrotate and Python; log-20260301, log.2026-03-01_10-00 with dates, and
#: log-1772348400 with the seconds since 1970. A date may also stand before the ending of the name.
_NUMBERED = re.compile(r"[.-](?P<age>\d{1,5})(?:\.gz)?")
_DATED = re.compile(r"[._-](?P<date>20\d\d[\d_.:T-]*?|1\d{9})(?:\.gz)?")
#: Looks until two in a row are the same: a rotation renames one file after the other.
_LOOKS = 5


@dataclass(frozen=True)
class Generation:
    """A file of the chain, as it was when the chain was looked at."""

    path: Path
    identity: tuple[int, int]
    """Inode and device: what a renamed file keeps."""
    changed_ns: int


def chain(source: Path) -> list[Generation]:
    """``source``, if it is there, and what it was before, newest first."""
    found = _look(source)
    for _ in range(_LOOKS):
        again = _look(source)
        if [g.identity for g in again] == [g.identity for g in found]:
            break
        found = again
    return found


def _look(source: Path) -> list[Generation]:
    try:
        beside = [p for p in source.parent.iterdir() if p.name.startswith(source.stem)]
    except OSError:
        return []
    names = {p.name for p in beside}
    aged: list[tuple[tuple[int, int, str], Path]] = []
    for path in beside:
        if path.name.endswith(".gz") and path.name.removesuffix(".gz") in names:
            continue  # being packed: the plain one is whole
        rest = path.name.removeprefix(source.name)
        if rest == path.name:
            inner = _before_ending(path.name, source)
            if (dated := _DATED.fullmatch(inner)) is not None:
                aged.append(((2, 0, dated["date"]), path))
        elif not rest:
            aged.append(((0, 0, ""), path))
        elif (numbered := _NUMBERED.fullmatch(rest)) is not None:
            aged.append(((1, int(numbered["age"]), ""), path))
        elif (dated := _DATED.fullmatch(rest)) is not None:
            aged.append(((2, 0, dated["date"]), path))
    plain = sorted((a, p) for a, p in aged if a[0] < 2)
    by_date = sorted(((a, p) for a, p in aged if a[0] == 2), key=lambda e: e[0][2], reverse=True)
    out = []
    for _, path in [*plain, *by_date]:
        try:
            there = path.stat()
        except OSError:
            continue
        if path.is_file():
            identity = (there.st_ino, there.st_dev)
            out.append(Generation(path, identity, there.st_mtime_ns))
    return out


def _before_ending(name: str, source: Path) -> str:
    """What ``name`` has between the stem of ``source`` and its ending: -20260301 of a-20260301.log.

    Numbers there are not taken for ages: they are those of ranks as often.
    """
    plain = name.removesuffix(".gz")
    if not source.suffix or not plain.endswith(source.suffix):
        return ""
    return plain.removesuffix(source.suffix).removeprefix(source.stem)


def open_plain(path: Path) -> tuple[BinaryIO, str | None]:
    """``path`` open for reading, unpacked where it is packed; and where a packed one breaks off.

    Unpacked, it is a file that is gone when it is closed; ``name`` of the handle is its path.

    OSError where it cannot be opened.
    """
    with ExitStack() as opened:
        handle = opened.enter_context(path.open("rb"))
        if not begins_packed(handle):
            opened.pop_all()
            return handle, None
        fault = None
        temporary = tempfile.NamedTemporaryFile(prefix="steptax-")  # noqa: SIM115 - handed on
        unpacked = cast("BinaryIO", temporary)
        with gzip.open(handle) as packed:
            try:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                fault = f"{path.name} breaks off or is damaged ({error}): steps may be missing"
            except BaseException:
                unpacked.close()
                raise
        unpacked.seek(0)
        return unpacked, fault
