"""What the connectors of communication evidence share: whole files, checked values, job ids."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Run
from steptax.connectors.sources import open_bytes
from steptax.connectors.tables.facts import rows_of

#: A longer text or dump is no output of these tools.
WHOLE_BYTES = 256 << 20
_INT64 = 2**63
_INT32 = 2**31
_JOB_FOLDER = re.compile(r"nccl-inspector-(?P<job>\d[\w.-]*)")


class CommunicatorFacts(Run):
    """Folds the ``communicators`` batches of all chunks into one row per communicator and rank.

    What is known later holds; what is null leaves what was known before.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], dict[str, Any]] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold communicators back, pass everything else on."""
        if batch.table != "communicators":
            yield batch
            return
        if batch.rejects or batch.notes:
            yield Batch(batch.table, batch.rows.slice(0, 0), batch.rejects, batch.notes)
        for row in batch.rows.to_pylist():
            known = self._rows.setdefault((row["job_id"], row["comm_id"], row["rank"]), {})
            known.update({name: value for name, value in row.items() if value is not None})

    def close(self) -> Iterator[Batch]:
        """One row per communicator and rank, sorted."""
        if self._rows:
            rows = [row for _, row in sorted(self._rows.items())]
            yield Batch("communicators", rows_of("communicators", rows))


class BadValueError(Exception):
    """A value that is not what its field holds; the text says what was expected and found."""

    def __init__(
        self, field: str, expected: str, found: object, *, said: str | None = None
    ) -> None:
        """``said`` is what was found, where that is better said than shown."""
        super().__init__(f"expected {expected}, found {said or short(found)}")
        self.field = field


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
        raise InputError(fault or "is empty", where=str(path), hint="copy or write it anew")
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


def whole_number(row: Mapping[str, Any], field: str, *, floor: int = 0, small: bool = False) -> int:
    """A whole number that must be there, also where it is written as text.

    ``small`` bounds it to 32 bits. BadValueError otherwise.
    """
    found = optional_number(row, field, floor=floor, small=small)
    if found is None:
        raise BadValueError(field, "a whole number", row.get(field))
    return found


def optional_number(
    row: Mapping[str, Any], field: str, *, floor: int = 0, small: bool = False
) -> int | None:
    """As ``whole_number``; None where the field is absent or null."""
    found = row.get(field)
    if found is None:
        return None
    value = _as_whole(found)
    limit = _INT32 if small else _INT64
    if value is None or not floor <= value < limit:
        wanted = f"a whole number of at least {floor}" if floor > -limit else "a whole number"
        raise BadValueError(field, wanted, found)
    return value


def _as_whole(found: Any) -> int | None:
    """A whole number, also one written as text or as a float; None for anything else."""
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, float) and math.isfinite(found) and found.is_integer():
        return int(found)
    written = isinstance(found, str) and re.fullmatch(r"\s*-?\d{1,19}\s*", found)
    return int(found) if written else None


def real_number(row: Mapping[str, Any], field: str) -> float | None:
    """A number of at least 0; None where it is absent, null or not a number (``"nan"``).

    BadValueError for anything else, also for an infinite or negative one.
    """
    found = row.get(field)
    if found is None:
        return None
    value: float | None = None
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        value = _as_float(found)
    elif isinstance(found, str):
        try:
            value = float(found)
        except ValueError:
            value = None
    if value is None or math.isinf(value) or value < 0:
        raise BadValueError(field, "a number of at least 0", found)
    return None if math.isnan(value) else value


def _as_float(found: float) -> float:
    try:
        return float(found)
    except OverflowError:
        return math.inf


def text_value(row: Mapping[str, Any], field: str) -> str | None:
    """A text, also where it is written as a number; None where it is absent, null or blank."""
    found = row.get(field)
    if isinstance(found, (dict, list, bool)):
        raise BadValueError(field, "a text", found)
    return None if found is None or not str(found).strip() else str(found)


def short(found: object) -> str:
    """A value as a person may see it in a reason: at most 80 characters."""
    text = repr(found) if not isinstance(found, (dict, list)) else type(found).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a text by their number from 1; any line end counts, and only line ends do."""
    yield from enumerate(re.split(r"\r\n|\n|\r", text), 1)


#: No line that these tools print is longer; patterns are not tried on one that is.
LINE_CHARACTERS = 4096
