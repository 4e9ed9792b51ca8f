"""A bill that comes again: which stored lines a new delivery tells again, and which it replaces."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from steptax.app.lake import Lake
from steptax.app.queries import DuckEngine
from steptax.app.schema import Batch
from steptax.connectors.money.identity import SUBJECT, digests

_FAR_US = 2**62
_COLUMNS = ("provider", "invoice", "line", "billing_account", "billing_start_us", "charge_start_us")
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Line:
    """A line of a bill; ``content`` and ``subject`` are digests of what it says and is for."""

    key: _Key
    account: str | None
    month: str
    start_us: int | None
    content: str
    subject: str
    counts: bool = True
    delivery: tuple[str, int] = ("", 0)
    file: str = ""

    @property
    def named(self) -> bool:
        """Whether the invoice has an id, and is not called by account, month or file."""
        stem = Path(self.file.partition(":")[2]).name.partition(".")[0]
        return not self.key[1].endswith(f" {self.month}") and self.key[1] != stem


def delivered(lake: Lake, source: str, batches: Iterable[Batch]) -> Iterator[Batch]:
    """``batches`` of one bill, and at their end the states of the stored lines that they change.

    Of an earlier delivery of the same provider, account, billing month and kind of file, the lines
    that start in the time that this one spans are replaced where it names at least half of what
    they are for. A line that says the same under another name (of an older version, or of an
    invoice that had no id yet) is replaced always.
    """
    new: list[_Line] = []
    for batch in batches:
        if batch.table == "charges" and batch.rows.num_rows:
            new += _lines(batch.rows, source)
        yield batch
    if not new:
        return
    moments = [line.start_us for line in new if line.start_us is not None]
    bounds = _months_around(moments)
    found = DuckEngine(lake).run("bill_lines", first_us=bounds[0], last_us=bounds[1])
    stored = _stored(found)
    kind = source.partition(":")[0]
    notes = _other_kinds(kind, new, stored)
    states, said = _states(new, [line for line in stored if line.file.startswith(f"{kind}:")])
    notes += said
    if states:
        columns = list(zip(*states, strict=True))
        names = ("provider", "invoice", "line", "counts", "file")
        yield Batch("charge_states", pa.table(dict(zip(names, columns, strict=True))), notes=())
    if notes:
        yield Batch("charges", pa.table({}), notes=tuple(notes))


def _states(
    new: Sequence[_Line], stored: Sequence[_Line]
) -> tuple[list[tuple[str, str, str, bool, str | None]], list[str]]:
    """Rows of ``charge_states``, and what to tell of each earlier delivery."""
    keys = {line.key for line in new}
    again = [line for line in stored if line.key in keys]
    states: dict[_Key, tuple[str, str, str, bool, str | None]] = {
        line.key: (*line.key, True, None) for line in again
    }
    rest = [line for line in stored if line.key not in keys and line.counts]
    scopes: dict[tuple[str, str], list[_Line]] = defaultdict(list)
    for line in new:
        scopes[line.key[0], line.month].append(line)
    gone: list[_Line] = []
    told: Counter[str] = Counter()
    for name, own in scopes.items():
        near = [line for line in rest if (line.key[0], line.month) == name]
        near = _of_same_bill(near, own)
        # The same line by another name.
        known = {line.key for line in again}
        contents = Counter(line.content for line in own if line.key not in known)
        same = [line for line in near if _take(contents, line.content)]
        gone += same
        taken = {line.key for line in same}
        starts = [line.start_us for line in own if line.start_us is not None]
        span = (min(starts), max(starts)) if starts else (-_FAR_US, _FAR_US)
        by_delivery: dict[tuple[str, int], list[_Line]] = defaultdict(list)
        for line in [*near, *_of_same_bill(again, own)]:
            if line.counts and (line.start_us is None or span[0] <= line.start_us <= span[1]):
                by_delivery[line.delivery].append(line)
        for delivery, lines in by_delivery.items():
            subjects = Counter(line.subject for line in own)
            shared = sum(_take(subjects, line.subject) for line in lines)
            left = [line for line in lines if line.key not in keys and line.key not in taken]
            if 2 * shared >= len(lines):
                gone += left
            elif left:
                told[delivery[0]] += len(left)
    replaced = Counter(line.file for line in gone)
    states |= {line.key: (*line.key, False, line.file) for line in gone}
    repeated = Counter(line.file for line in again)
    notes = [f"tells {_count(n)} of {file} again" for file, n in sorted(repeated.items())]
    notes += [
        f"replaces {_count(n)} of {file}: they stay stored and count no more"
        for file, n in sorted(replaced.items())
    ]
    notes += [
        f"adds to {file}, of which {_count(n)} of the same time and account still count"
        for file, n in sorted(told.items())
    ]
    return list(states.values()), notes


def _of_same_bill(stored: Sequence[_Line], own: Sequence[_Line]) -> list[_Line]:
    """Those of ``stored`` whose account and invoice may be one that ``own`` is of."""
    provider, month = own[0].key[0], own[0].month
    accounts = {line.account for line in own}
    invoices = {line.key[1] for line in own}
    is_open = any(not line.named for line in own)
    return [
        line
        for line in stored
        if line.key[0] == provider
        and line.month == month
        and (line.account in accounts or line.account is None or None in accounts)
        and (is_open or not line.named or line.key[1] in invoices)
    ]


def _other_kinds(kind: str, new: Sequence[_Line], stored: Sequence[_Line]) -> list[str]:
    """A warning for each other kind of file that tells of a month of the same provider."""
    mine = {(line.key[0].lower(), line.month) for line in new}
    found = {
        (line.key[0], line.month, line.file)
        for line in stored
        if line.counts
        and not line.file.startswith(f"{kind}:")
        and ":" in line.file
        and (line.key[0].lower(), line.month) in mine
    }
    return [
        f"COUNTED TWICE? {provider} of {month} is stored from {file} and now comes as {kind} too: "
        "both count, and the ledger adds them up. Keep one kind of file for each provider and "
        "month: ingest that one alone into a new lake"
        for provider, month, file in sorted(found)
    ]


def _take(bag: Counter[str], name: str) -> bool:
    """Whether ``bag`` has one more of ``name``, which is taken out of it."""
    if bag[name] <= 0:
        return False
    bag[name] -= 1
    return True


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"


def _lines(rows: pa.Table, file: str) -> list[_Line]:
    columns = [
        rows[name].to_pylist() if name in rows.column_names else [None] * rows.num_rows
        for name in _COLUMNS
    ]
    said = digests(rows), digests(rows, SUBJECT)
    return [
        _Line(
            (provider, invoice, line),
            account,
            _month(charge if begin is None else begin),
            begin if charge is None else charge,
            content,
            subject,
            file=file,
        )
        for provider, invoice, line, account, begin, charge, content, subject in zip(
            *columns, *said, strict=True
        )
    ]


def _stored(rows: pa.Table) -> list[_Line]:
    lines = _lines(rows, "")
    columns = (rows[name].to_pylist() for name in ("source", "counts", "delivery", "delivered_us"))
    for line, file, counts, name, at_us in zip(lines, *columns, strict=True):
        line.file, line.counts, line.delivery = file, counts, (name, at_us)
    return lines


def _month(us: int | None) -> str:
    return "" if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m")


def _months_around(moments: Sequence[int]) -> tuple[int, int]:
    """Moments between which every line of the same months lies."""
    if not moments:
        return -_FAR_US, _FAR_US
    day_us = 86_400_000_000
    return min(moments) - 62 * day_us, max(moments) + 62 * day_us
