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
from steptax.connectors.tables.cells import EMPTY, Cells, is_text

#: Signs of one currency only; $ and £ are those of several.
_SIGNS = {"€": "EUR", "US$": "USD", "₹": "INR", "₩": "KRW", "₪": "ILS", "C$": "CAD", "A$": "AUD"}
_STEP = Decimal(1).scaleb(-MONEY.scale)
#: No amount is larger: a million of them must still fit into the column together.
_MOST = Decimal(10) ** 18
_PLAIN = r"^-?[0-9]{1,18}(\.[0-9]{1,12})?$"
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
#: Where the comma divides: ``1.234,5`` with any usual sign between thousands, or ``1234,5``.
_COMMA = r"^[+-]?(\d{1,3}([.' \x{a0}\x{202f}]\d{3})+|\d+)(,\d+)?([eE][+-]?\d{1,3})?$"


@dataclass(frozen=True)
class Amounts:
    """A column of money, and how many of its values had more digits than are kept."""

    cells: Cells
    rounded: int = 0


def amounts(column: pa.Array, *, comma: bool = False) -> Amounts:
    """Money as decimals with 12 places, rounded half to even beyond them; exact from text.

    ``1.5E-7``, ``1,234.50`` and numbers of any Arrow type are read, with ``comma`` text as
    ``1.234,50``; currency signs are not.
    """
    kind = column.type
    none = np.zeros(len(column), bool)
    if pa.types.is_decimal(kind) and kind.scale <= MONEY.scale and kind.precision - kind.scale < 19:
        null = column.is_null().to_numpy(zero_copy_only=False)
        return Amounts(Cells(pc.cast(column, MONEY), null, none))
    text = pc.utf8_trim_whitespace(_as_text(column))
    text = pc.if_else(pc.is_in(text, value_set=pa.array(EMPTY)), pa.scalar(None, pa.string()), text)
    if comma and is_text(kind):
        text = point_decimals(text)
    null = text.is_null().to_numpy(zero_copy_only=False)
    plain = pc.fill_null(pc.match_substring_regex(text, _PLAIN), True)
    found = pc.cast(pc.if_else(plain, text, pa.scalar(None, pa.string())), MONEY)
    odd = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    if not len(odd):
        return Amounts(Cells(found, null, none))
    bad = none
    kept: list[Decimal | None] = []
    rounded = 0
    for i, cell in zip(odd.tolist(), text.take(pa.array(odd)).to_pylist(), strict=True):
        exact = amount(cell)
        bad[i] = exact is None
        kept.append(None if exact is None else _kept(exact))
        rounded += kept[-1] != exact
    found = pc.replace_with_mask(found, pc.invert(plain), pa.array(kept, MONEY))
    return Amounts(Cells(found, null, bad), rounded)


def currency_code(text: str) -> str:
    """The code of ISO 4217: in capitals, and for a sign that only one currency has."""
    clean = text.strip().upper()
    return _SIGNS.get(clean, clean)


def point_decimals(text: pa.Array) -> pa.Array:
    """Numbers such as ``1.234,50`` as ``1234.50``; any other text gets a mark that is no number."""
    good = pc.match_substring_regex(text, _COMMA)
    digits = pc.replace_substring_regex(text, r"[.' \x{a0}\x{202f}]", "")
    return pc.if_else(
        good, pc.replace_substring(digits, ",", "."), pc.binary_join_element_wise("no ", text, "")
    )


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
    try:
        return pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([None if v is None else repr(v)[:200] for v in column.to_pylist()])


def tags(column: pa.Array) -> Cells:
    """Tags as JSON objects: from JSON, JSON without braces, lists of pairs, maps; else as text."""
    if is_text(column.type) and not pa.types.is_dictionary(column.type):
        # A bill has many lines and few different tags: each is read once.
        coded = column.dictionary_encode()
        out = pa.array([_tags(value) for value in coded.dictionary.to_pylist()], pa.string())
        out = out.take(coded.indices)
    else:
        out = pa.array([_tags(value) for value in column.to_pylist()], pa.string())
    null = out.is_null().to_numpy(zero_copy_only=False)
    return Cells(out, null, np.zeros(len(out), bool))


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
