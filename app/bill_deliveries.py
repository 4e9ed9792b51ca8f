"""A bill that comes again: which stored lines a new delivery tells again, and which it replaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from steptax.app.lake import Lake
from steptax.app.queries import DuckEngine
from steptax.app.queries.bill_match import BillMatch, Matched
from steptax.app.schema import Batch
from steptax.connectors.money.identity import CONTENT, SUBJECT

#: Kinds that come as two exports of a month: what was billed, and what it is worth (amortised).
_HALVES = ("azure-cost",)
#: When the file of a delivery was written, in what its commit tells.
CHANGED = "changed_us"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def delivered(
    lake: Lake,
    source: str,
    batches: Iterable[Batch],
    *,
    same_month: str = "hold",
    changed_us: int | None = None,
) -> Iterator[Batch]:
    """``batches`` of one bill, and at their end the states of the lines that they change.

    Of an earlier delivery of the same provider, account, billing month and kind of file, the lines
    that start in the time that this one spans are replaced where it names at least half of what
    they are for. A line that says the same under another name (of an older version, or of an
    invoice that had no id yet) is replaced always.

    Where another kind of file tells of the same account in that time, ``same_month`` says what
    counts: ``hold`` what was there first, ``replace`` this one, ``add`` both. Billed and amortised
    exports of one month are joined: each counts for what it alone says. ``changed_us`` is when the
    file was written: one that replaces lines of a file of later may have come in the wrong order.
    """
    engine = DuckEngine(lake)
    months = _months(engine)
    if not months:
        yield from batches
        return
    kind = source.partition(":")[0]
    with BillMatch(
        source, content=CONTENT, subject=SUBJECT, months=months, halves=kind in _HALVES
    ) as match:
        for batch in batches:
            if batch.table == "charges" and batch.rows.num_rows:
                match.add_new(batch.rows)
            yield batch
        if match.is_empty:
            return
        stored = [s.path for s in lake.fetched(lake.segments("charges")) if s.is_parquet]
        match.add_stored(stored, engine.run("bill_states"))
        found = match.matched(same_month)
    if found.states.num_rows:
        yield Batch("charge_states", found.states, notes=())
    notes = (*_notes(kind, found), *_out_of_order(lake, found, changed_us))
    if notes:
        yield Batch("charges", pa.table({}), notes=notes)


def _months(engine: DuckEngine) -> list[tuple[str, str]]:
    """Provider in lower case and month of everything that is stored; no month where none tells."""
    rows = engine.run("bill_days").to_pylist()
    return sorted({(row["provider"].lower(), _month(row["day"])) for row in rows})


def _month(day: int | None) -> str:
    """Month of a day since 1970; empty where there is none, or none that a bill can be of."""
    if day is None:
        return ""
    try:
        return (_EPOCH + timedelta(days=day)).strftime("%Y-%m")
    except OverflowError:
        return ""


def _notes(kind: str, found: Matched) -> Iterator[str]:
    for file, lines in found.again:
        yield f"tells {_count(lines)} of {file} again"
    for file, lines in found.replaced:
        yield f"replaces {_count(lines)} of {file}: they stay stored and count no more"
    for file, lines in found.added:
        yield f"adds to {file}, of which {_count(lines)} of the same time and account still count"
    if found.joined:
        yield (
            f"joined with the other export of its month, {_count(found.joined)}: what is billed "
            "counts from the actual cost, what it is worth from the amortised one"
        )
    for file, month, lines in found.held:
        yield (
            f"HELD, NOT COUNTED: {_count(lines)} of {month}, of which {file} tells already; the "
            f"ledger goes on with that one. To count {kind} in its place ingest the file with "
            "--same-month replace; where both are different charges, with --same-month add"
        )
    for file, month, lines in found.yielded:
        yield f"takes the place of {_count(lines)} of {file} of {month}: they count no more"
    for file, month, _ in found.beside:
        yield (
            f"COUNTED TWICE? {file} tells of {month} of the same provider and counts beside this "
            f"{kind} file where it is of another account or another time"
        )


def _out_of_order(lake: Lake, found: Matched, changed_us: int | None) -> Iterator[str]:
    """A warning for each replaced file that was written after this one."""
    if changed_us is None:
        return
    written: dict[str, int] = {}
    for commit in lake.ingests():
        if CHANGED in commit.detail:
            written[str(commit.detail["source"])] = int(commit.detail[CHANGED])
    for file, _ in found.replaced:
        if written.get(file, changed_us) > changed_us:
            yield (
                f"OUT OF ORDER? {file}, of which this file replaces lines, was written after it: "
                "where it is the newer export, ingest it again under another name, so that it holds"
            )


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
