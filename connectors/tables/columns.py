"""Which column of a file means which column of a table, and in which unit."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.sources import Format
from steptax.connectors.tables.rows import Header, looks_like_number

_UNIT_WORDS = {
    "ns": ("ns", "nsec", "nanosec", "nanoseconds"),
    "us": ("us", "usec", "microsec", "microseconds"),
    "ms": ("ms", "msec", "millisec", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "min": ("min", "mins", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "relative": ("norm", "normalized", "normalised", "relative"),
}
_UNIT_OF_WORD = {word: unit for unit, words in _UNIT_WORDS.items() for word in words}

#: Largest value of the columns that hold 32 bits.
INT32_MAX = 2.0**31 - 1


class Kind(Enum):
    """What the cells of a target are."""

    TEXT = "text"
    WHOLE = "whole number"
    MASK = "bit mask"
    REAL = "number"
    TIME = "duration"
    TIME_NS = "duration in ns"
    MOMENT = "moment"


@dataclass(frozen=True)
class Target:
    """A column of a table that a file can fill.

    ``name`` is what ``--map`` calls it; ``column`` the table's column; ``aliases`` other names
    that files give it, without unit, in the order of preference. ``floor`` and ``ceiling`` bound
    numbers, both included; durations in microseconds.
    ``unit`` holds where neither the file's column nor the person names one.
    """

    name: str
    column: str
    kind: Kind
    doc: str
    aliases: tuple[str, ...] = ()
    required: bool = False
    floor: float | None = None
    ceiling: float | None = None
    unit: str | None = None

    @property
    def has_unit(self) -> bool:
        """Whether a column for it needs a unit."""
        return self.kind in (Kind.TIME, Kind.TIME_NS, Kind.MOMENT)


@dataclass(frozen=True)
class Term:
    """One column of the file and the unit of its numbers; None where there is none.

    ``sign`` is -1 for a column that is taken away from the sum.
    """

    column: str
    unit: str | None = None
    sign: int = 1


@dataclass(frozen=True)
class Plan:
    """What each target is read from: a column, or the sum or difference of several."""

    terms: Mapping[str, tuple[Term, ...]]
    unused: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def wanted(self) -> frozenset[str]:
        """The file's columns that are read."""
        return frozenset(term.column for terms in self.terms.values() for term in terms)


def plain(name: str) -> str:
    """``Step Time (ms)`` as ``step_time_ms``, ``GPU util [%]`` as ``gpu_util_pct``: to compare."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower().replace("%", " pct ")).strip("_")


@functools.cache
def _own(name: str) -> str:
    """``plain`` of a name that a target has: the same few for every file."""
    return plain(name)


def split_unit(name: str) -> tuple[str, str | None]:
    """Name without its unit, and the unit: ``step_time_ms`` is ``("step_time", "ms")``."""
    clean = plain(name)
    stem, _, word = clean.rpartition("_")
    unit = _UNIT_OF_WORD.get(word)
    return (stem, unit) if stem and unit else (clean, None)


def make_plan(targets: Sequence[Target], header: Header, options: Options, where: str) -> Plan:
    """Find a column for each target: what ``--map`` says, else by the targets' names.

    InputError when the mapping names a target or a column that does not exist, when a duration
    has no unit, or when normalised and real durations are mixed. A required target that has no
    column is left to the connector, which knows what to suggest.
    """
    columns = header.columns
    by_name = {name: t for t in targets for name in (t.name, t.column)}
    mapped: dict[str, Mapping[str, int]] = {}
    for name, expression in options.mapping.items():
        target = by_name.get(name.strip())
        if target is None:
            raise InputError(
                f"there is no target {name!r}" + _nearest(name, by_name),
                where=f"--map {name}={expression}",
                hint=f"targets are {', '.join(t.name for t in targets)}",
            )
        mapped[target.name] = _columns_of(expression, columns, target)
    taken = {column for found in mapped.values() for column in found}
    spelt = {column: (plain(column), *split_unit(column)) for column in columns}
    terms: dict[str, tuple[Term, ...]] = {}
    for target in targets:
        found = mapped.get(target.name) or dict.fromkeys(_by_alias(target, spelt, taken), 1)
        if found:
            terms[target.name] = tuple(
                replace(_term(target, column, header, options, where), sign=sign)
                for column, sign in found.items()
            )
            taken.update(found)
    durations = [term for t in targets if t.kind is Kind.TIME for term in terms.get(t.name, ())]
    units = {term.unit for term in durations}
    if "relative" in units and len(units) > 1:
        mixed = sorted(term.column for term in durations)
        raise InputError(
            f"normalised and real times are mixed: {', '.join(mixed)}",
            where=where,
            hint="map either the normalised or the real ones",
        )
    return Plan(
        terms,
        tuple(c for c in columns if c not in taken),
        _unheard(targets, terms, options, where),
    )


def _unheard(
    targets: Sequence[Target],
    terms: Mapping[str, tuple[Term, ...]],
    options: Options,
    where: str,
) -> tuple[str, ...]:
    """A note where ``--time-unit`` says otherwise than the name of every column that has a unit.

    InputError where it says that durations are normalised: what they cost would be computed of a
    clock that they do not have.
    """
    asked = options.time_unit
    timed = [(t, term) for t in targets if t.has_unit for term in terms.get(t.name, ())]
    # Of a moment a relative unit says nothing.
    heard = [(t, term) for t, term in timed if asked != "relative" or t.kind is not Kind.MOMENT]
    if asked is None or not heard or any(term.unit in (asked, None) for _, term in heard):
        return ()
    names = ", ".join(term.column for _, term in heard)
    said = f"--time-unit {asked}, but the names of the columns say their unit: {names}"
    if asked == "relative":
        raise InputError(
            said,
            where=where,
            hint="leave --time-unit out; if these times are normalised, rename the columns, "
            f"e.g. {split_unit(heard[0][1].column)[0]}_norm",
        )
    return (f"{said}; the option is not used",)


def lacking(targets: Iterable[Target], plan: Plan) -> list[Target]:
    """The required targets without a column."""
    return [t for t in targets if t.required and t.name not in plan.terms]


def refuse_second_job(job: Target, plan: Plan, options: Options) -> None:
    """InputError where a table has a column for ``job`` and the options name one, too."""
    if job.name in plan.terms and options.job_id is not None:
        raise InputError(
            "the table names its jobs itself",
            where="--job",
            hint="leave --job out, or take the column out of the file",
        )


def describe(targets: Iterable[Target]) -> str:
    """The targets as lines of help: name, kind, other names, meaning."""
    lines = []
    for t in targets:
        kind = f"{t.kind.value}{', required' if t.required else ''}"
        aliases = f" Also called {', '.join(t.aliases)}." if t.aliases else ""
        lines.append(f"  {t.name} ({kind}): {t.doc}.{aliases}")
    return "\n".join(lines)


def unused_note(plan: Plan) -> tuple[str, ...]:
    """What the plan notes, and the columns that nothing is read from."""
    unused = (f"columns not used: {', '.join(plan.unused)}",) if plan.unused else ()
    return (*plan.notes, *unused)


def _columns_of(expression: str, columns: Sequence[str], target: Target) -> dict[str, int]:
    """The columns that a ``--map`` expression sums, each with its sign."""
    whole = expression.strip()
    where = f"--map {target.name}={expression}"
    signed = [(whole, 1)] if whole in columns else _signed(whole, columns)
    found = dict(signed)
    for name in found:
        if name not in columns:
            raise InputError(
                f"there is no column {name!r}" + _nearest(name, columns),
                where=where,
                hint=f"the file has {', '.join(columns)}",
            )
    if len(signed) > 1 and target.kind in (Kind.TEXT, Kind.MOMENT):
        raise InputError(
            f"{target.name} is a {target.kind.value}, not a sum",
            where=where,
            hint="name one column",
        )
    if len(found) < len(signed):
        raise InputError(
            "the same column is added twice", where=where, hint="name each column once"
        )
    return found


def _signed(expression: str, columns: Sequence[str]) -> list[tuple[str, int]]:
    """``a+b-c`` taken apart; a name that has a minus itself stays whole."""
    found: list[tuple[str, int]] = []
    for part in (part.strip() for part in expression.split("+")):
        first, *rest = [part] if part in columns else [p.strip() for p in part.split("-")]
        found += [(first, 1), *((name, -1) for name in rest)]
    return found


def _by_alias(
    target: Target, columns: Mapping[str, tuple[str, str, str | None]], taken: set[str]
) -> tuple[str, ...]:
    """The first free column with one of the target's names.

    ``columns`` holds what ``plain`` and ``split_unit`` make of each column.
    """
    own, needs_unit = _own(target.column), target.has_unit
    exact = [c for c, (clean, _, _) in columns.items() if clean == own]
    for name in (target.name, *target.aliases):
        wanted = _own(name)
        for column in (*exact, *columns):
            clean, stem, unit = columns[column]
            same = clean == wanted or column in exact
            if needs_unit and not same:
                same = unit is not None and wanted in (stem, stem.removesuffix("_time"))
                same = same or clean.removesuffix("_time") == wanted
            if same and column not in taken:
                return (column,)
    return ()


def _term(target: Target, column: str, header: Header, options: Options, where: str) -> Term:
    """The column with its unit; InputError when its numbers have none.

    A moment may be ISO text, and Parquet has durations that know their unit: these need none. The
    first value tells.
    """
    if not target.has_unit:
        return Term(column)
    unit = split_unit(column)[1] or _UNIT_OF_WORD.get(plain(column))
    unit = unit or options.time_unit or target.unit
    if target.kind is Kind.MOMENT and unit == "relative":
        unit = None
    may_lack = target.kind is Kind.MOMENT or header.format is Format.PARQUET
    if unit is None and not (may_lack and not looks_like_number(header.sample(column))):
        raise InputError(
            f"the unit of column {column!r} is not known",
            where=where,
            hint="pass --time-unit us, ms, s, ns or relative, or put the unit into its name, "
            f"e.g. {plain(column)}_ms",
        )
    return Term(column, unit)


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; is it {found[0]!r}?" if found else ""
