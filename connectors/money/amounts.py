"""Money as exact decimals, and the tags and words of bills, a whole column at a time."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.schema.table import MONEY
from steptax.connectors.tables.cells import EMPTY, Cells

_STEP = Decimal(1).scaleb(-MONEY.scale)
#: No amount is larger: a million of them must still fit into the column together.
_MOST = Decimal(10) ** 18
_PLAIN = r"^-?[0-9]{1,18}(\.[0-9]{1,12})?$"
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class Amounts:
    """A column of money, and how many of its values had more digits than are kept."""

    cells: Cells
    rounded: int = 0


def amounts(column: pa.Array) -> Amounts:
    """Money as decimals with 12 places, rounded half to even beyond them; exact from text.

    ``1.5E-7``, ``1,234.50`` and numbers of any Arrow type are read; currency signs are not.
    """
    text = _as_text(column)
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, value_set=pa.array(EMPTY)), pa.scalar(None, pa.string()), text)
    null = text.is_null().to_numpy(zero_copy_only=False)
    plain = pc.fill_null(pc.match_substring_regex(text, _PLAIN), True)
    if pc.all(plain).as_py() in (True, None):
        return Amounts(Cells(pc.cast(text, MONEY), null, np.zeros(len(text), bool)))
    values: list[Decimal | None] = []
    bad = np.zeros(len(text), bool)
    rounded = 0
    for i, cell in enumerate(text.to_pylist()):
        found = None if cell is None else amount(cell)
        bad[i] = cell is not None and found is None
        kept = None if found is None else _kept(found)
        rounded += kept != found
        values.append(kept)
    return Amounts(Cells(pa.array(values, MONEY), null, bad), rounded)


def amount(text: str) -> Decimal | None:
    """One amount, exact; None where it is none, or too large to be one."""
    clean = text.strip()
    if _THOUSANDS.fullmatch(clean):
        clean = clean.replace(",", "")
    if not re.fullmatch(r"[+-]?(\d{1,60}\.?\d{0,60}|\.\d{1,60})([eE][+-]?\d{1,3})?", clean):
        return None
    try:
        found = Decimal(clean)
    except InvalidOperation:
        return None
    return found if abs(found) < _MOST else None


def _kept(value: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 120
        return value.quantize(_STEP, ROUND_HALF_EVEN)


def _as_text(column: pa.Array) -> pa.Array:
    """Numbers by their shortest digits, text as it is, anything else as a person would see it."""
    if pa.types.is_floating(column.type):
        shown = [None if v is None or v != v else repr(v) for v in column.to_pylist()]
        return pa.array(shown, pa.string())
    try:
        return pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([None if v is None else repr(v)[:200] for v in column.to_pylist()])


def tags(column: pa.Array) -> Cells:
    """Tags as JSON objects: from JSON, JSON without braces, lists of pairs, maps; else as text."""
    out = [_tags(value) for value in column.to_pylist()]
    null = np.array([value is None for value in out], bool)
    return Cells(pa.array(out, pa.string()), null, np.zeros(len(out), bool))


def _tags(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        clean = value.strip()
        if clean in EMPTY or clean in ("{}", "[]"):
            return None
        value = _parsed(clean)
        if value is None:
            return json.dumps({"text": clean[:2000]})
    if isinstance(value, list):
        value = _of_pairs(value)
    if not isinstance(value, Mapping) or not value:
        return None if not value else json.dumps({"text": str(value)[:2000]})
    known = {str(k): v for k, v in value.items() if v is not None}
    # ASCII: half a surrogate pair stays an escape, which no column of text would hold.
    return json.dumps(known, sort_keys=True, default=str) if known else None


def _parsed(text: str) -> Any:
    """JSON, also where Azure leaves out the braces; None where it is neither."""
    tries = (text, "{" + text + "}") if text.startswith('"') else (text,)
    for candidate in tries:
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, (dict, list)):
            return found
    if text[:1] in "{[" and len(text) < 20_000 and text.count("[") + text.count("{") < 50:
        try:  # what Python printed of a map: {'team': 'red'}
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        return found if isinstance(found, (dict, list)) else None
    return None


def _of_pairs(pairs: list[Any]) -> dict[str, Any]:
    """``[{"key": k, "value": v}, ...]`` of Google, ``[(k, v), ...]`` of an Arrow map."""
    out: dict[str, Any] = {}
    for pair in pairs:
        if isinstance(pair, Mapping) and "key" in pair:
            out[str(pair["key"])] = pair.get("value")
        elif isinstance(pair, (tuple, list)) and len(pair) == 2:
            out[str(pair[0])] = pair[1]
    return out
