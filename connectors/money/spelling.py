"""How bills are spelled in different places: names of columns, days, and the sign in a number."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.money.amounts import point_decimals
from steptax.connectors.money.bill_run import COSTS
from steptax.connectors.sources import Format
from steptax.connectors.tables.cells import EMPTY
from steptax.connectors.tables.columns import Plan, Target, make_plan
from steptax.connectors.tables.rows import Header

#: Option that says how numbers are written where the file does not show it.
DECIMAL = "decimal"
DECIMALS = ("point", "comma")
_COMMA = re.compile(r"[+-]?(\d{1,3}([. ]\d{3})+|\d+),\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
COMMA_NOTE = "numbers are read as 1.234,50"


def plan_of(targets: tuple[Target, ...], header: Header, options: Options, where: str) -> Plan:
    """``make_plan`` for headers as people's portals write them.

    ``Kosten (Cost)`` of a portal in another language counts as ``Cost``, and ``Meter Category`` as
    ``MeterCategory``.
    """
    short = {name: _short(name) for name in header.columns}
    if len(set(short.values())) < len(short):
        return make_plan(targets, header, options, where)
    long = {ours: name for name, ours in short.items()}
    mapping = {key: short.get(name, name) for key, name in options.mapping.items()}
    found = make_plan(
        targets,
        replace(header, columns=tuple(short.values())),
        replace(options, mapping=mapping),
        where,
    )
    terms = {
        name: tuple(replace(term, column=long[term.column]) for term in own)
        for name, own in found.terms.items()
    }
    return replace(found, terms=terms, unused=tuple(long[name] for name in found.unused))


def _short(name: str) -> str:
    told = re.fullmatch(r".*\S\s*\(([A-Za-z][A-Za-z0-9]*)\)\s*", name)
    return told[1] if told else name.replace(" ", "")


def divides_by_comma(header: Header, plan: Plan, options: Options) -> bool:
    """Whether numbers are written as ``1.234,50``: told, else as the first costs look.

    A whole number does not tell; then a file whose columns end with semicolons is taken to keep
    commas for its numbers.
    """
    told = options.extra.get(DECIMAL)
    if told is not None:
        if told not in DECIMALS:
            raise InputError(
                f"there is no decimal sign {told!r}", where="--decimal", hint="use point or comma"
            )
        return told == "comma"
    if header.format is not Format.DELIMITED:
        return False
    names = [name for name in COSTS if plan.terms.get(name)]
    samples = [header.sample(plan.terms[name][0].column) or "" for name in names]
    if any(_COMMA.fullmatch(s) and not _THOUSANDS.fullmatch(s) for s in samples):
        return True
    return header.delimiter == ";" and not any(re.search(r"\.\d", s) for s in samples)


def iso_moments(column: pa.Array) -> pa.Array:
    """``02/28/2026`` (Azure: month first), ``28.02.2026`` and ``... UTC`` (BigQuery) as ISO."""
    text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    odd = pc.match_substring_regex(text, r"^\d{1,2}[/.]|UTC$")
    if not pc.any(odd).as_py():
        return text
    text = pc.replace_substring_regex(text, r"^(\d)([/.])", r"0\1\2")
    text = pc.replace_substring_regex(text, r"^(\d\d)/(\d)/", r"\1/0\2/")
    text = pc.replace_substring_regex(text, r"^(\d\d)\.(\d)\.", r"\1.0\2.")
    text = pc.replace_substring_regex(text, r"^(\d\d)/(\d\d)/(\d{4})", r"\3-\1-\2")
    text = pc.replace_substring_regex(text, r"^(\d\d)\.(\d\d)\.(\d{4})", r"\3-\2-\1")
    return pc.replace_substring_regex(text, r" *UTC$", "Z")


def point_numbers(column: pa.Array) -> pa.Array:
    """Numbers such as ``1.234,50`` as ``1234.50``, with nothing where nothing is."""
    text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    return pc.if_else(pc.is_in(text, value_set=pa.array(EMPTY)), text, point_decimals(text))
