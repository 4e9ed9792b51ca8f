"""The named queries: one ``.sql`` file each, in the subset that DuckDB and Spark both speak.

Subset: ``max_by`` not ``arg_max``, with a filter where a value may be null; ``WITHIN GROUP``;
``CAST(floor(a / b) AS INT)`` not ``//``; ``explode(split(...))`` not ``unnest``; ``(a, b)`` not
``ROW(a, b)``; ``STRING`` not ``VARCHAR``; float literals as ``1.0e0``; ``ORDER BY`` with full
tie-breaks, unless pages ask for very many rows or for one (a user is given those in order as well,
by ``named_query``), and ``NULLS FIRST`` or ``NULLS LAST`` of what may be null; parameters as
``:name``; tables, and levels of roll-ups, by their schema's name. ``<level>_parts`` are the rows of
a level as they are stored, several of one bucket: for a query that adds them up anyway; of
``<level>_spans`` some may be added up over ``:window_steps`` already. A line ``-- include NAME``
stands for the text of ``shared/NAME.sql``, which several queries begin with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from steptax.app.schema import TABLES
from steptax.app.schema.rollups import LEVELS

#: What follows the name of a level that is read as it is stored.
PARTS = "_parts"
#: The same where it adds up buckets of ``:window_steps``, which its own are to be rounded to.
SPANS = "_spans"
_FOLDER = Path(__file__).parent / "sql"
_SHARED = _FOLDER / "shared"
_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_APART = re.compile(r"(?:GROUP|PARTITION|ORDER) BY [^()]*\bjob_id\b")
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)\b")


@dataclass(frozen=True)
class Query:
    """One named text. ``tables`` are the schema's tables that it reads, ``levels`` roll-ups.

    ``parts`` are levels that it reads as they are stored, before anything is merged, and ``spans``
    those of which rows may stand for as many steps as its parameter ``window_steps`` says.
    """

    name: str
    text: str
    tables: tuple[str, ...]
    parameters: tuple[str, ...]
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The text without its comments."""
        return "\n".join(
            line for line in self.text.splitlines() if not line.lstrip().startswith("--")
        )

    @property
    def is_of_one_job(self) -> bool:
        """Whether rows of several jobs would be taken for one's: it reads them, and keeps them not
        apart.
        """
        own = [*self.tables, *(LEVELS[level].table for level in (*self.levels, *self.spans))]
        return any(TABLES[name].by_job for name in own) and not _APART.search(self.body)

    @property
    def is_ordered(self) -> bool:
        """Whether the text says in which order its rows come."""
        _, order, rest = self.body.rpartition("ORDER BY")
        return bool(order) and rest.count("(") >= rest.count(")")

    @property
    def doc(self) -> str:
        """The leading comment of the file."""
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("--"):
                break
            lines.append(line.removeprefix("--").strip())
        return " ".join(lines)


def _load(path: Path) -> Query:
    text = _INCLUDE.sub(
        lambda found: (_SHARED / f"{found[1]}.sql").read_text(encoding="utf-8").rstrip("\n"),
        path.read_text(encoding="utf-8"),
    )
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    tables, levels, parts, spans = (
        tuple(name for name in names if re.search(rf"\b(?:FROM|JOIN) {name}{suffix}\b", body))
        for names, suffix in ((TABLES, ""), (LEVELS, ""), (LEVELS, PARTS), (LEVELS, SPANS))
    )
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(body)))
    return Query(path.stem, text, tables, parameters, levels, parts, spans)


#: Every query by name.
QUERIES: dict[str, Query] = {path.stem: _load(path) for path in sorted(_FOLDER.glob("*.sql"))}


def query(name: str) -> Query:
    """The query called ``name``; KeyError names the ones that exist."""
    try:
        return QUERIES[name]
    except KeyError:
        raise KeyError(f"no query {name!r}; there are {', '.join(QUERIES)}") from None
