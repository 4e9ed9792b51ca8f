"""Rows of a book, checked: counters that stand still, gaps.

Whether a sample only repeats an old value is not judged here but where samples are read: it takes
more of them than one answer of a server holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from steptax.app.schema import Batch, Reject
from steptax.connectors.prometheus.book import DEVICES, Book, Row
from steptax.connectors.prometheus.names import ENGINE, MEMORY_FREE, MEMORY_RESERVED
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.wording import said as counted

#: A kernel was resident for this share of the time: then the engine was active.
_BUSY_RATIO = 0.5
#: A distance between samples of so many usual ones is a gap.
_GAP_INTERVALS = 2.5
#: What only grows, by table, and how it is called.
_COUNTERS = {
    "device_samples": (("energy_j",), "energy counters"),
    "port_samples": (("received_bytes", "transmitted_bytes"), "counters of ports"),
}


def batch_of(book: Book, rejects: Sequence[Reject] = ()) -> Batch:
    """The rows of ``book`` by device and moment, what is rejected, and what is to be said."""
    notes = book.notes()
    keys = book.subject.keys
    spec = book.subject.fields.values()
    whole = {f.column for f in spec if f.whole}
    rows = []
    for key in sorted(book.rows):
        found = book.rows[key]
        row = dict(zip(keys, key, strict=True)) | dict(found.facts)
        row |= {name: value for name, (_, value) in found.cells.items()}
        row |= {name: sum(parts.values()) for name, parts in found.parts.items()}
        row |= {name: round(row[name]) for name in whole & row.keys()}
        row["source_row"] = found.source_row
        rows.append(_device(row, found) if book.subject is DEVICES else row)
    bad = list(rejects)
    if book.subject is DEVICES:
        stuck = sum(row.pop("_stuck") for row in rows)
        if stuck:
            notes.append(
                f"{counted(stuck, 'sample has', 'samples have')} a profiling counter at 0 while a "
                "kernel was resident over half of the time: the counter stands still, and "
                "what it says is missing"
            )
    notes += _about_time(rows, keys[:-1], book)
    if book.after_us is not None:
        after_us = book.after_us
        rows = [row for row in rows if row["ts_us"] > after_us]
    bad.sort(key=lambda reject: reject.row or 0)
    return Batch(book.subject.table, rows_of(book.subject.table, rows), tuple(bad), tuple(notes))


def _device(row: dict[str, Any], found: Row) -> dict[str, Any]:
    if found.is_split:
        row["mig_enabled"] = True
    free, reserved = row.pop(MEMORY_FREE, None), row.pop(MEMORY_RESERVED, None)
    used = row.get("memory_used_bytes")
    if row.get("memory_total_bytes") is None and free is not None and used is not None:
        # Before DCGM told the reserved part it was in what is used.
        row["memory_total_bytes"] = used + free + (reserved or 0)
    engine = row.pop(ENGINE, None)
    counted = row.get("sm_active_ratio") if engine is None else engine
    row["_stuck"] = counted == 0 and row.get("util_ratio", 0.0) >= _BUSY_RATIO
    if row["_stuck"]:
        row.pop("sm_active_ratio", None)
        row.pop("tensor_active_ratio", None)
    return row


def _about_time(rows: list[dict[str, Any]], of: tuple[str, ...], book: Book) -> list[str]:
    """Notes on gaps in time and on counters that began again."""
    gaps: list[tuple[int, int, str]] = []
    resets = 0
    counters, whose_counters = _COUNTERS[book.subject.table]
    for key, group in groupby(rows, key=lambda row: tuple(row[name] for name in of)):
        series = list(group)
        resets += _resets(series, counters, book.after_us or 0)
        times = [row["ts_us"] for row in series]
        if len(times) < 3:
            continue
        usual = median(later - earlier for earlier, later in pairwise(times))
        edges = times
        if book.span_us is not None:
            begin_us = book.span_us[0] if book.after_us is None else book.after_us
            lead = [begin_us] if begin_us < times[0] and not book.is_first else []
            edges = [*lead, *times, book.span_us[1]]
        gaps += (
            (later - earlier, earlier, " ".join(key))
            for earlier, later in pairwise(edges)
            if later - earlier > _GAP_INTERVALS * usual and later > (book.after_us or 0)
        )
    said = []
    if gaps:
        length, start, whose = max(gaps)
        said.append(
            f"{counted(len(gaps), 'gap')} between samples, "
            f"{sum(g[0] for g in gaps) / 1e6:,.0f} s in all; "
            f"the longest is {length / 1e6:,.0f} s of {whose} from {start / 1e6:.0f} on: nothing "
            "is known of them"
        )
    if resets:
        again = counted(resets, "time")
        said.append(f"{whose_counters} began again {again}: a restart of driver or node")
    return said


def _resets(series: list[dict[str, Any]], counters: Sequence[str], after_us: int) -> int:
    """Moments behind ``after_us`` at which a counter is lower than before: it began again."""
    moments: set[int] = set()
    for name in counters:
        told = [(row[name], row["ts_us"]) for row in series if row.get(name) is not None]
        moments.update(
            at_us
            for (before, _), (now, at_us) in pairwise(told)
            if now < before and at_us > after_us
        )
    return len(moments)
