"""A report as one HTML file: no script, no network, every name escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from steptax.app.format import format_moment
from steptax.app.report.models import Report
from steptax.app.theme import LIGHT

#: Notes of a brief that are printed; the others are counted.
BRIEF_NOTES = 4


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("steptax.app.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = format_moment
    made.filters["place"] = _place
    return made


def as_html(report: Report) -> str:
    """The page of ``report``, for a browser, a mail and paper of size A4."""
    listed = BRIEF_NOTES if report.is_brief else len(report.notes)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            palette=LIGHT,
            notes=report.notes[:listed],
            more_notes=max(0, len(report.notes) - listed),
            halves=[s for s in report.sections if s.is_printed and s.is_half],
            others=[s for s in report.sections if s.is_printed and not s.is_half],
        )
    )


def _place(value: float, whole: float) -> str:
    """Where ``value`` lies on an axis of 100 that ends at ``whole``."""
    return f"{min(100.0, max(0.0, 100.0 * value / whole)):.2f}" if whole > 0 else "0"


def text_of(report: Report) -> str:
    """The same in plain text, for the body of a mail: sentence, numbers, link."""
    lines: list[Any] = [f"{report.title}, {report.period}", "", report.sentence, ""]
    for number in report.numbers:
        exact = f" ({number.exact})" if number.exact else ""
        lines.append(f"{number.title}: {number.text}{exact}")
        if number.measure.value is None:
            lines[-1] += f": {number.basis}"
    lines += ["", *report.basis, f"Page: {report.link.url}"]
    return "\n".join(lines) + "\n"
