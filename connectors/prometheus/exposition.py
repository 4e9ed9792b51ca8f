"""The text in which exporters answer a scrape: a metric with labels and a value on each line.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from steptax.connectors.values import BadValueError

_LINE = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s{}]+)"
    r"(?:\s+(?P<ts>-?\d+(?:\.\d+)?))?\s*(?:#\s.*)?"
)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
#: No line of an exporter is longer.
_CHARACTERS = 1 << 14
#: Seconds from 1970 are less and milliseconds are more, for any moment that a scrape can be of.
_MS_FROM = 1e11
#: The year 2200: a moment beyond it is none.
_LAST_S = 7_258_118_400


@dataclass(frozen=True)
class Line:
    """A line: ``labels`` as they are written; ``value`` is text, ``ts`` too where there is one."""

    name: str
    labels: str
    value: str
    ts: str | None


def line_of(text: str) -> Line:
    """``text`` in its parts; BadValueError where it is no line of a metric."""
    found = _LINE.fullmatch(text.strip()) if len(text) <= _CHARACTERS else None
    if found is None:
        raise BadValueError("metric", "NAME{LABELS} VALUE", text)
    return Line(found["name"], found["labels"] or "", found["value"], found["ts"])


def labels_of(written: str) -> dict[str, str]:
    """Labels by name, unescaped; BadValueError where they are damaged."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(written):
        label = _LABEL.match(written, at)
        if label is None or label[1] in labels:
            raise BadValueError("labels", 'LABEL="VALUE", each once', written[at:])
        labels[label[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label[2])
        at = label.end()
    try:
        "".join(labels.values()).encode()
    except UnicodeEncodeError:
        raise BadValueError("labels", "UTF-8 text", "other bytes") from None
    return labels


def value_of(text: str) -> float:
    """The number ``text``, which may be NaN or infinite; BadValueError where it is none."""
    try:
        return float(text)
    except ValueError:
        raise BadValueError("value", "a number", text) from None


def moment_us(ts: str) -> int:
    """``ts`` in microseconds: seconds as OpenMetrics writes them, or milliseconds."""
    number = float(ts)
    found = us_of(number / 1000 if "." not in ts and abs(number) >= _MS_FROM else number)
    if found is None:
        raise BadValueError("timestamp", "a moment since 1970", ts)
    return found


def us_of(seconds: object) -> int | None:
    """Seconds since 1970 as microseconds, to the millisecond; None where they are no moment."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not 0 < seconds < _LAST_S or math.isnan(seconds):
        return None
    return round(seconds * 1000) * 1000
