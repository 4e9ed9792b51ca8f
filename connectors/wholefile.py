"""Files that are read at once: their bytes, text or document, and whose job they are of."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.connectors.base import Connector, Options, RawChunk
from steptax.connectors.sources import blocks, open_bytes

#: Scalars of a million steps, or all dumps of a rank; more is no file of these kinds.
WHOLE_BYTES = 256 << 20


def read_json_whole(path: Path) -> bytes:
    """All of ``path``, unpacked; InputError when it is longer than 256 MiB.

    What lies beyond the place where a packed file breaks off is not there: then the text is no
    JSON, and whoever reads it says so.
    """
    data = bytearray()
    for block in blocks(path):
        data += block.data
        if block.broken:
            data += b"\n" + block.broken[0].raw.encode()
        if len(data) > WHOLE_BYTES:
            raise InputError(
                f"is longer than {WHOLE_BYTES >> 20} MiB",
                where=str(path),
                hint="give the file of one run",
            )
    return bytes(data)


_JOB_FOLDER = re.compile(r"nccl-inspector-(?P<job>\d[\w.-]*)")


@dataclass(frozen=True)
class Whole:
    """A file as read at once. ``fault`` says where a packed one breaks off."""

    data: bytes
    fault: str | None
    job_id: str
    """The job where nobody names one."""


def read_whole(path: Path, *, by_folder: bool, limit: int = WHOLE_BYTES) -> Whole:
    """All of ``path``, unpacked; InputError when it is empty or longer than ``limit`` bytes."""
    data = bytearray()
    fault = None
    with open_bytes(path) as handle:
        while len(data) <= limit:
            try:
                part = handle.read(1 << 20)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                fault = f"the compressed file breaks off or is damaged here: {error}"
                break
            if not part:
                break
            data += part
    if len(data) > limit:
        raise InputError(
            f"is longer than {limit >> 20} MiB",
            where=str(path),
            hint="give the output of one run; cut the file where a new run begins",
        )
    if not data:
        raise InputError(
            fault or "is empty where a record was expected",
            where=str(path),
            hint="copy or write it anew",
        )
    return Whole(bytes(data), fault, job_of(path, by_folder=by_folder))


def job_of(path: Path, *, by_folder: bool) -> str:
    """The job of a file that nobody names: its folder where each process writes its own file.

    A folder that NCCL Inspector named after a Slurm job gives that job's id.
    """
    folder = path.absolute().parent.name if by_folder else ""
    if folder:
        named = _JOB_FOLDER.fullmatch(folder)
        return named["job"] if named else folder
    stem = path.name.removesuffix(".gz")
    return Path(stem).stem or stem


def text_in(whole: Whole, where: str) -> str:
    """The file as text; InputError when it is no UTF-8 text."""
    data = whole.data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"is no UTF-8 text: {error.reason} at byte {error.start}",
            where=where,
            hint="name a text file; UTF-16 converts by: iconv -f UTF-16 -t UTF-8 FILE",
        ) from None
    if "\0" in text:
        raise InputError("is no text: it holds zero bytes", where=where, hint="name a text file")
    return text


def whole_json(text: str) -> Any:
    """One JSON document; ValueError with its reason when it is none or has half a character."""
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair") from None
    return found


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a text by their number from 1; any line end counts, and only line ends do."""
    yield from enumerate(re.split(r"\r\n|\n|\r", text), 1)


#: No line that these tools print is longer; patterns are not tried on one that is.
LINE_CHARACTERS = 4096


class WholeFileConnector(Connector):
    """A source that is one file and is read in one stretch: a ``Whole``."""

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        yield RawChunk(str(source), 1, read_whole(source, by_folder=False))
