"""Lines of a training log without what launchers and terminals put around them.

Taken off, and remembered: colours, what launchers and collectors put in front (``prefixes``), and
``[date][rank-12/16][INFO] [file:line] :`` of Primus. The date in front of a message is read. A
carriage return ends a line too: progress bars use it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from steptax.connectors.logs.prefixes import Prefix, small, take_off
from steptax.connectors.sources import TextBlock, text_of

#: A moment stands at the beginning of a line, or behind the word datetime.
_PREFIX_CHARACTERS = 100
#: No line that we understand is longer; what is longer is searched no further.
LINE_CHARACTERS = 20_000
_FAR_US = 2.0**53

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_c])")
_MOMENT = re.compile(
    r"(?<!\d)(?P<year>20\d\d)-?(?P<month>\d\d)-?(?P<day>\d\d)[ T]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?(?!\d)"
)
#: The date of ctime, which Open MPI puts in front.
_CTIME = "%a %b %d %H:%M:%S %Y"
_PRIMUS = re.compile(
    r"\[20\d{6} \d\d:\d\d:\d\d(?:[.,]\d+)?\]\[(?:[^\]]*-)?rank-(?P<rank>\d+)/(?P<world>\d+)\]"
    r"\[\w+ *\] ?\[-*(?P<place>[^\]]*)\] : ?"
)
_SAID_RANK = re.compile(r"\[Rank (?P<rank>\d+)\]", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``raw`` is its beginning as it stands in the file, for rejects."""

    number: int
    """In the file, from 1."""
    text: str
    """Without colours and launcher prefixes; dates and logger names are still there."""
    raw: str
    host: str | None = None
    """Node, or task of the launcher, that a prefix names."""
    rank: int | None = None
    """Global rank that a prefix, or ``[Rank N]``, names."""
    world: int | None = None
    at_us: int | None = None
    """Moment, microseconds since 1970; UTC where no zone is printed."""
    zoned: bool = False
    primus: bool = False


def lines_of(block: TextBlock, zone: tzinfo = UTC) -> Iterator[Line]:
    """The lines of ``block`` that are not blank, in order; a clock without zone is of ``zone``."""
    for offset, raw in enumerate(block.data.split(b"\n")):
        if not raw or raw.isspace():
            continue
        text = raw.decode("utf-8", "replace")
        for part in text.split("\r") if "\r" in text else (text,):
            if part and not part.isspace():
                found = clean(part, block.first_line + offset, text_of(raw))
                yield found if zone is UTC else _in_zone(found, zone)


def _in_zone(line: Line, zone: tzinfo) -> Line:
    """``line`` with its moment, where that has no zone of its own, as a local time of ``zone``."""
    if line.at_us is None or line.zoned:
        return line
    local = datetime(1970, 1, 1) + timedelta(microseconds=line.at_us)
    gone = local.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    return replace(line, at_us=gone // timedelta(microseconds=1))


def clean(text: str, number: int, raw: str) -> Line:
    """``text`` as a ``Line``."""
    text = text[:LINE_CHARACTERS]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text, told = take_off(text)
    found = _PRIMUS.match(text)
    if found is not None:
        rank, world = small(found["rank"], told.rank), small(found["world"], None)
        at_us, zoned = moment_us(text[: found.end()])
        return Line(number, text[found.end() :], raw, told.host, rank, world, at_us, zoned, True)
    rank = told.rank
    if rank is None and (said := _SAID_RANK.search(text, 0, _PREFIX_CHARACTERS)):
        rank = small(said["rank"], None)
    at_us, zoned = _moment(text, told)
    return Line(number, text, raw, told.host, rank, None, at_us, zoned)


def _moment(text: str, told: Prefix) -> tuple[int | None, bool]:
    """When a line was printed: by a collector's clock with its zone, else its own, else mpirun's.

    One clock for all lines: beside a collector's, a message's own may be of another zone.
    """
    if told.stamp is not None:
        found = moment_us(told.stamp)
        if found[0] is not None:
            return found
    own = moment_us(text)
    if own[0] is None and told.date is not None:
        try:
            moment = datetime.strptime(told.date.strip(), _CTIME).replace(tzinfo=UTC)
        except ValueError:
            return own
        return int(moment.timestamp()) * 1_000_000, False
    return own


def moment_us(text: str) -> tuple[int | None, bool]:
    """The moment at the beginning of ``text`` or behind ``datetime:``, and if it has a zone."""
    at = text.find("datetime: ", 0, 4 * _PREFIX_CHARACTERS)
    begin = max(at, 0)
    found = _MOMENT.search(text, begin, begin + _PREFIX_CHARACTERS)
    if found is None:
        return None, False
    part = (found["part"] or "")[:6].ljust(6, "0")
    try:
        moment = datetime(
            int(found["year"]),
            int(found["month"]),
            int(found["day"]),
            int(found["hour"]),
            int(found["minute"]),
            int(found["second"]),
            int(part),
            _zone(found["zone"]),
        )
    except ValueError:
        return None, False
    gone = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return gone // timedelta(microseconds=1), found["zone"] is not None


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def number(text: str) -> float | None:
    """The number that ``text`` is, thousands commas allowed; None where it is none.

    ``nan`` and ``inf`` are numbers here; what stores them must decide.
    """
    text = text.strip()
    if text.isascii() and "_" not in text and "," not in text:
        try:
            value = float(text)
        except ValueError:
            return None
        # Always the same object, so that what was read twice from one line is equal.
        return math.nan if math.isnan(value) else value
    if _NUMBER.fullmatch(text):
        try:
            return float(text.replace(",", ""))
        except ValueError:
            return None
    return None


def whole(text: str) -> int | None:
    """The whole number that ``text`` is, below 2**63; None where it is none."""
    text = text.strip().replace(",", "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)


def micros(value: float | None, per_unit: float) -> int | None:
    """``value`` in microseconds, if it is a duration that can be."""
    if value is None or not math.isfinite(value) or value < 0 or value * per_unit >= _FAR_US:
        return None
    return round(value * per_unit)
