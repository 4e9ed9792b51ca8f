"""What a roll-up declaration is: sums over buckets that can be added to one another.

A roll-up of all rows is the roll-ups of any parts of them, merged. So a part is summed up once,
when it is stored; what is stored later never changes it; and what is merged equals what raw rows
give, to the last digit: every sum is one of whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

#: Samples of a device in the widest bucket, a day, at 1.5 a second.
SPREAD_ROWS = 1 << 17


@dataclass(frozen=True)
class Total:
    """One column. ``made`` is its SQL over rows of the table, ``merged`` that over roll-ups."""

    name: str
    made: str
    merged: str
    doc: str
    unit: str = ""
    type: str = "BIGINT"


@dataclass(frozen=True)
class Rollup:
    """Rows of ``table`` summed up by ``keys`` and by buckets of the whole number ``at``.

    ``levels`` gives each relation that queries can name the width of its buckets, in units of
    ``at``, finest first; each width is a multiple of the one before.

    Raise ``version`` when a column comes, or is made in another way: what can be made of rows is
    then made again. Sums of rows that retention dropped cannot: they are read as they were made, by
    the names of their columns. So what comes to mean something else gets another name: a column, or
    where its keys, its buckets or its levels become others, the roll-up.

    ``spans``, each a multiple of the widest level, are widths to which many parts of the finest
    level are added up once for readers of buckets as wide: a part alone has a row per key at least,
    however short it is.

    ``reads`` is SQL of what is summed up, where that is more than the columns of ``{rows}``.
    """

    name: str
    version: int
    table: str
    keys: tuple[str, ...]
    at: str
    bucket: str
    levels: Mapping[str, int]
    totals: tuple[Total, ...]
    spans: tuple[int, ...] = ()
    reads: str = "{rows}"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Column names of every level, in their order."""
        return (*self.keys, self.bucket, *(total.name for total in self.totals))

    def made_sql(self, level: str, rows: str) -> str:
        """SQL that sums ``rows`` of the table up to ``level``."""
        width = self.levels[level]
        bucket = f"{self.at} - {self.at} % {width}"
        source = self.reads.format(rows=rows)
        return self._sql(bucket, {t.name: t.made for t in self.totals}, source)

    def merged_sql(self, level: str, rows: str, width: int | None = None) -> str:
        """SQL that merges ``rows`` of this or of a finer level into ``level``, or into a span."""
        width = width or self.levels[level]
        bucket = f"{self.bucket} - {self.bucket} % {width}"
        return self._sql(bucket, {t.name: t.merged for t in self.totals}, rows)

    def parts_sql(self, parts: str) -> str:
        """SQL of ``parts``, of any version: columns that none of them has are null (DuckDB)."""
        none = ", ".join(f"CAST(NULL AS {total.type}) AS {total.name}" for total in self.totals)
        whole = f"SELECT * FROM {parts} UNION ALL BY NAME SELECT {none} WHERE false"
        return f"SELECT {', '.join(self.columns)} FROM ({whole})"

    def _sql(self, bucket: str, totals: Mapping[str, str], rows: str) -> str:
        types = {total.name: total.type for total in self.totals}
        columns = [*self.keys, f"CAST({bucket} AS BIGINT) AS {self.bucket}"]
        columns += [f"CAST({sql} AS {types[name]}) AS {name}" for name, sql in totals.items()]
        grouped = ", ".join((*self.keys, bucket))
        return f"SELECT {', '.join(columns)} FROM {rows} GROUP BY {grouped}"


def counted(name: str, what: str, doc: str, unit: str = "samples") -> Total:
    """Rows for which ``what`` holds."""
    return Total(name, f"count(*) FILTER (WHERE {what})", f"sum({name})", doc, unit)


def spread(column: str, name: str, scale: int, unit: str, doc: str) -> tuple[Total, ...]:
    """Number, sum, least and greatest of ``column``, as whole multiples of 1 / ``scale``.

    What is no number (NaN, infinite) counts as missing, and what is beyond any device: a counter
    that a fault set to its end, in all samples of a day, would be more than 64 bits hold.
    """
    whole = fixed(column, scale, SPREAD_ROWS)
    return (
        Total(f"{name}_n", f"count({whole})", f"sum({name}_n)", f"samples with {doc}", "samples"),
        Total(f"{name}_sum", f"sum({whole})", f"sum({name}_sum)", f"sum of {doc}", unit),
        Total(f"{name}_min", f"min({whole})", f"min({name}_min)", f"least {doc}", unit),
        Total(f"{name}_max", f"max({whole})", f"max({name}_max)", f"greatest {doc}", unit),
    )


def moment_of_greatest(column: str, name: str, scale: int, at: str, doc: str) -> Total:
    """When ``spread``'s greatest value was, the first time."""
    whole, out = fixed(column, scale, SPREAD_ROWS), f"{name}_max_at_us"
    return Total(
        out,
        f"min_by({at}, (-{whole}, {at})) FILTER (WHERE {whole} IS NOT NULL)",
        f"min_by({out}, (-{name}_max, {out})) FILTER (WHERE {name}_max IS NOT NULL)",
        f"first moment of the greatest {doc}",
        "us",
    )


def histogram(column: str, name: str, scale: int, edges: tuple[int, ...], doc: str) -> list[Total]:
    """Rows by ``column``: one count per bin between ``edges``, in units of 1 / ``scale``.

    A bin holds its lower edge; the last one its upper edge too.
    """
    whole = fixed(column, scale)
    bins = []
    for k, (low, high) in enumerate(pairwise(edges)):
        below = "<=" if k == len(edges) - 2 else "<"
        what = f"{whole} >= {low} AND {whole} {below} {high}"
        bins.append(counted(f"{name}_bin_{k}", what, f"samples with {doc} in bin {k}"))
    return bins


def fixed(column: str, scale: int, rows: int = 1) -> str:
    """SQL of ``column`` as a whole number of 1 / ``scale``; null where it is no number.

    Null as well where ``rows`` of it, added up, would be more than 64 bits hold.

    The comparison, which NaN fails on both engines, is not for the cast: DuckDB 2.0.1 takes a
    ``TRY_CAST`` of a Parquet column without nulls to have none either, and counts every row.
    """
    whole = f"TRY_CAST(round({column} * {scale}) AS BIGINT)"
    return f"CASE WHEN abs({column}) < {9.0e18 / scale / rows:.1e} THEN {whole} END"
