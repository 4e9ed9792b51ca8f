"""The metrics of two sides as rows of text, for a terminal and a page."""

from __future__ import annotations

from steptax.app.compute.measure import Measure
from steptax.app.format import MINUS, format_alike, format_share, format_value
from steptax.app.metrics import METRICS
from steptax.app.views.compare.text import NOT_BETWEEN
from steptax.app.views.compare.view import MetricPair, SideBySide


def metric_rows(view: SideBySide) -> list[tuple[str, str, str, str, str]]:
    """Title, A, B, change and better side of each metric, as text."""
    rows = [
        (METRICS[p.metric_id].title, *_texts(p.a, p.b), change_text(p), better(p))
        for p in view.pairs
    ]
    a, b = view.a.usd_per_1000, view.b.usd_per_1000
    return [*rows, (f"Cost of a thousand steps, {NOT_BETWEEN}", *_texts(a, b), *_dearer(a, b))]


def _dearer(a: Measure, b: Measure) -> tuple[str, str]:
    """How much more B costs than A, and which of them costs less."""
    if not a.value or b.value is None:
        return "", ""
    more = b.value / a.value - 1
    return _signed(more, format_share(abs(more))), "" if not more else "B" if more < 0 else "A"


def change_text(pair: MetricPair) -> str:
    """``+12.0 %``, of shares ``+3.1 points``; empty where it is not known."""
    value = pair.change.value
    if value is None:
        return ""
    text = format_share(abs(value))
    if pair.a.unit == "ratio":
        text = text.replace(" %", " points")
    return _signed(value, text)


def _signed(value: float, text: str) -> str:
    sign = "" if text.startswith("0.0") or value == 0 else "+" if value > 0 else MINUS
    return f"{sign}{text}"


def better(pair: MetricPair) -> str:
    """The side with the better figure; empty where neither is better, or it is not known."""
    direction = METRICS[pair.metric_id].good_direction
    if direction == "none" or not pair.change.value:
        return ""
    return "B" if (pair.change.value > 0) == (direction == "up") else "A"


def _texts(a: Measure, b: Measure) -> tuple[str, str]:
    """Both sides, spans of time in one unit."""
    if a.unit != b.unit:
        return format_value(a.value, a.unit), format_value(b.value, b.unit)
    of_a, of_b = format_alike([a.value, b.value], a.unit)
    return of_a, of_b
