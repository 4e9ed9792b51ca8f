"""A report as one HTML file: no script, no network, every name escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from steptax.app.format import format_moment
from steptax.app.printable import printable, printable_value
from steptax.app.report.models import Report
from steptax.app.theme import LIGHT

#: Notes of a brief that are printed; the others are counted.
BRIEF_NOTES = 4
#: Sizes of the letters of a brief on paper: the largest with which it fits one page is taken.
BRIEF_PX = (10.0, 9.3, 8.6)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("steptax.app.report", "templates"),
        autoescape=True,
        finalize=printable_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = format_moment
    made.filters["place"] = _place
    return made


def as_html(report: Report, brief_px: float = BRIEF_PX[0]) -> str:
    """The page of ``report``, for a browser, a mail and paper of size A4.

    ``brief_px`` is the size of the letters of a brief on paper.
    """
    printed = [number for number in report.numbers if number.is_printed]
    is_led = report.is_brief and any(number.is_lead for number in printed)
    listed = BRIEF_NOTES if report.is_brief else len(report.notes)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            cards=[number for number in printed if number.is_lead or not is_led],
            beside=[number for number in printed if is_led and not number.is_lead],
            palette=LIGHT,
            brief_px=brief_px,
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
    lines += [*report.first, ""] if report.first else []
    for number in (one for one in report.numbers if one.is_printed):
        exact = f" ({number.exact})" if number.exact else ""
        lines.append(f"{number.title}: {number.text}{exact}")
        if number.measure.value is None:
            lines[-1] += f": {number.basis}"
        lines += [f"  {text}" for text in (number.comparison, *number.details) if text]
    lines += ["", *report.basis, f"Page: {report.link.url}"]
    return printable("\n".join(lines) + "\n")
