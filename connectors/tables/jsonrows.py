"""JSON Lines as columns of text: a number stays as it is written, and a bad line costs itself."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from steptax.app.errors import InputError
from steptax.connectors.sources import BadLine, Format, TextBlock, text_of
from steptax.connectors.tables.rows import Header, Rows, looks_like_number

#: Records that tell the keys of a file.
_HEAD_RECORDS = 1000


def json_header(data: bytes, where: str) -> Header:
    """Header of a JSON Lines file that begins with ``data``: the keys of its first records.

    InputError when no line of the head is an object.
    """
    samples: dict[str, str | None] = {}
    reason = "no line"
    lines = data.split(b"\n")
    for line in lines[:_HEAD_RECORDS]:
        record = _record(line)
        if isinstance(record, str):
            reason = record
            continue
        for key, value in (record or {}).items():
            if samples.get(key) is None:
                samples[key] = _text(value)
    if not samples:
        raise InputError(
            f"holds no JSON object in its first lines: {reason}",
            where=where,
            hint="JSON Lines are read: one object per line",
        )
    return Header(Format.JSON_LINES, tuple(samples), samples=tuple(samples.values()))


def split_json(block: TextBlock, header: Header, wanted: Collection[str]) -> Rows:
    """The objects of ``block`` as columns; of ``header``'s columns only ``wanted`` ones.

    Columns are typed where the whole block is well formed, else text with its digits as written;
    what was a string in the head of the file is always text.
    """
    lines = block.data.split(b"\n")
    names = [name for name in header.columns if name in wanted]
    fast = _parse_fast(block.data, lines, header, names)
    at, columns, keys, bad = fast or _parse_slow(lines, names, block.first_line)
    known = set(header.columns)
    return Rows(
        columns,
        block.first_line + np.array(at, np.int64),
        lambda row: text_of(lines[at[row]]),
        (*bad, *block.broken),
        tuple(
            f"key {key!r} is not in the first records and is not used"
            for key in keys
            if key not in known
        ),
    )


_Parsed = tuple[list[int], dict[str, pa.Array], Iterable[str], list[BadLine]]


def _parse_fast(
    data: bytes, lines: list[bytes], header: Header, names: list[str]
) -> _Parsed | None:
    """Line numbers, columns and keys of a block of flat objects; None when it is not that."""
    at = [number for number, line in enumerate(lines) if line and not line.isspace()]
    flat = data.count(b"{") == data.count(b"}") == len(at)
    if not flat or b"\\u" in data or not all(lines[i].lstrip()[:1] == b"{" for i in at):
        return None
    text = [name for name in names if not looks_like_number(header.sample(name))]
    try:
        data.decode()
        found = pajson.read_json(
            pa.py_buffer(data),
            pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pajson.ParseOptions(explicit_schema=pa.schema([(name, pa.string()) for name in text])),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    if found.num_rows != len(at):
        return None
    nothing = pa.nulls(len(at), pa.string())
    columns = {
        name: found[name].combine_chunks() if name in found.column_names else nothing
        for name in names
    }
    return at, columns, found.column_names, []


def _parse_slow(lines: list[bytes], names: list[str], first_line: int) -> _Parsed:
    """As ``_parse_fast``, line by line: what is no object becomes a bad line."""
    records: list[dict[str, Any]] = []
    at: list[int] = []
    bad: list[BadLine] = []
    keys: dict[str, None] = {}
    for number, line in enumerate(lines):
        record = _record(line)
        if isinstance(record, str):
            bad.append(BadLine(first_line + number, record, text_of(line)))
        elif record is not None:
            records.append(record)
            at.append(number)
            keys.update(dict.fromkeys(record))
    columns = {name: pa.array([_text(r.get(name)) for r in records], pa.string()) for name in names}
    return at, columns, keys, bad


def _record(line: bytes) -> dict[str, Any] | str | None:
    """The object of ``line``, the reason why it is none, or None for a blank line."""
    if not line or line.isspace():
        return None
    try:
        text = line.decode()
        record = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # Half of a surrogate pair is legal JSON and no text.
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return "expected UTF-8 text, found other bytes"
    except UnicodeEncodeError:
        return "expected text, found half of a surrogate pair"
    except RecursionError:
        return "expected a flat object, found deep nesting"
    except ValueError as error:
        return f"expected a JSON object, found none: {error}"
    if not isinstance(record, dict):
        return f"expected a JSON object, found {type(record).__name__}"
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


#: Numbers stay text, so that none is rounded or overflows before its own conversion.
_DECODER = json.JSONDecoder(
    parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_object
)


def _text(value: Any) -> str | None:
    """A JSON value as text; null stays null."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
