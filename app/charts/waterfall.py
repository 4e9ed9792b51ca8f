"""The ledger as a picture: from what was paid down to what was useful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from steptax.app.charts.style import blank, pattern
from steptax.app.format import format_exact, format_value
from steptax.app.theme import Palette
from steptax.app.views.models import LedgerLine

Unit = Literal["$", "%", "GPU-hours"]

Look = Literal["neutral", "loss", "gain"]
"""Fields of a palette."""

_FORMAT_UNIT = {"$": "USD", "%": "ratio", "GPU-hours": "GPU-hours"}
_SECONDS_PER_HOUR = 3600.0
#: A longer name is cut at its first comma.
LONG_TITLE = 40


@dataclass(frozen=True)
class WaterfallBar:
    """One bar, in the unit that was asked for."""

    title: str
    size: float
    base: float
    """Where it begins."""
    look: Look
    text: str
    """The amount, and its share."""


def units_of(ledger: Sequence[LedgerLine]) -> tuple[Unit, ...]:
    """The units in which every measured bucket is known."""
    held = [line for line in ledger if line.share is not None]
    units: list[Unit] = []
    if held and all(line.usd is not None for line in held):
        units.append("$")
    units.append("%")
    if held and all(line.gpu_seconds is not None for line in held):
        units.append("GPU-hours")
    return tuple(units)


def amount(line: LedgerLine, unit: Unit) -> float | None:
    """A bucket in ``unit``; None where it was not measured, or has no price."""
    if unit == "$":
        return None if line.usd is None else float(line.usd)
    if unit == "GPU-hours":
        return None if line.gpu_seconds is None else line.gpu_seconds / _SECONDS_PER_HOUR
    return line.share


def waterfall_bars(
    ledger: Sequence[LedgerLine], unit: Unit, *, full: bool = False
) -> tuple[WaterfallBar, ...]:
    """Paid at the top, each loss taken away, then what is no loss; ``full``: to the cent.

    Buckets that hold nothing or were not measured have no bar; the table lists them.
    """
    amounts = [(line, amount(line, unit)) for line in ledger]
    known = [(line, value) for line, value in amounts if value is not None]
    # Where parts overlap, a bucket below zero has an amount and no share: the rest is over 100 %.
    paid = 1.0 if known and unit == "%" else sum(value for _, value in known)
    seen = [(line, value) for line, value in known if value > 0]
    losses = sorted(((n, v) for n, v in seen if n.is_loss), key=lambda item: -item[1])
    rest = [(line, value) for line, value in seen if not line.is_loss]
    # The share is that of the time: cents are too coarse to divide.
    whole = 1.0 if known else None
    bars = [WaterfallBar("paid", paid, 0.0, "neutral", _label(paid, whole, unit, full=full))]
    # A bar floats from `base`; each loss begins where what is left of the paid amount ends.
    left = paid
    for line, value in losses:
        left -= value
        bars.append(
            WaterfallBar(
                line.title, value, left, "loss", _label(value, line.share, unit, full=full)
            )
        )
    base = 0.0
    for line, value in rest:
        look: Look = "gain" if line.bucket in ("compute", "useful") else "neutral"
        bars.append(
            WaterfallBar(line.title, value, base, look, _label(value, line.share, unit, full=full))
        )
        base += value
    return tuple(bars)


def waterfall_figure(ledger: Sequence[LedgerLine], unit: Unit, palette: Palette) -> go.Figure:
    """``waterfall_bars`` as a picture."""
    bars = waterfall_bars(ledger, unit)
    paid = bars[0].size
    names = [bar.title for bar in bars]
    colours = [getattr(palette, bar.look) for bar in bars]
    patterns = ["/" if bar.look == "loss" else "" for bar in bars]
    # The amount stands with the name: beside the bar it would take width that a telephone lacks.
    amounts_text = [bar.text for bar in bars]
    figure = blank(24 + 48 * len(names))
    figure.add_trace(
        go.Bar(
            y=names,
            x=[bar.size for bar in bars],
            base=[bar.base for bar in bars],
            orientation="h",
            marker={"color": colours, "pattern": pattern(patterns, palette)},
            customdata=amounts_text,
            hovertemplate="%{y}<br>%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(bargap=0.25, dragmode=False)
    figure.update_xaxes(visible=False, range=[0, paid or 1.0], fixedrange=True)
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        fixedrange=True,
        tickmode="array",
        tickvals=names,
        ticktext=[
            f"{_wrap(name)}<br><b>{text}</b>"
            for name, text in zip(names, amounts_text, strict=True)
        ],
    )
    return figure


def _label(value: float, share: float | None, unit: Unit, *, full: bool) -> str:
    """Amount, and its share where the amount is not a share already."""
    write = format_exact if full and unit != "%" else format_value
    text = write(value, _FORMAT_UNIT[unit])
    if unit == "%" or share is None:
        return text
    return f"{text} · {format_value(share, 'ratio')}"


def _wrap(title: str, width: int = 28) -> str:
    """A name in lines; of a long one what comes before a comma, to leave room for the bars."""
    lines = [""]
    for word in (title.split(",")[0] if len(title) > LONG_TITLE else title).split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)
