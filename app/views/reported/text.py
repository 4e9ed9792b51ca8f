"""What others say of a job as lines, for a terminal and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from steptax.app.compute.spoken import spoken_list
from steptax.app.format import DASH, format_moment, format_value
from steptax.app.views.reported.models import (
    Beside,
    PrintedValue,
    ReportedScore,
    ReportedScores,
    Reports,
)

SCORES_TITLE = "Straggler reports of other tools"
PRINTED_TITLE = "What the log printed"
PRINTED_NOTE = (
    "As the log printed it, kept beside what is computed here and never mixed with it. Its mean is "
    "over the lines printed, ours over the steps."
)
#: Ranks and scores named in a line.
_NAMED = 5


def scores_lines(scores: ReportedScores) -> tuple[str, ...]:
    """What the newest straggler report of each tool says; empty where there is none."""
    if not scores.rows:
        return ()
    lines = []
    if scores.flagged_ranks:
        which = spoken_list(list(scores.flagged_ranks), _NAMED)
        plural = "s" if len(scores.flagged_ranks) > 1 else ""
        lines.append(f"Slow by these reports: rank{plural} {which}.")
    else:
        lines.append("No rank is slow by these reports.")
    for tool in dict.fromkeys(row.tool for row in scores.rows):
        rows = [row for row in scores.rows if row.tool == tool]
        newest = [row for row in rows if row.report == rows[0].report]
        lines.append(f"{tool}, newest report{_when(newest[0])}: {_said(newest)}.")
    return (*lines, f"{scores.note[:1].upper()}{scores.note[1:]}.")


def _when(row: ReportedScore) -> str:
    if row.at_us is not None:
        return f" of {format_moment(row.at_us)}"
    return "" if row.step is None else f" at step {row.step:,}"


def _telling(row: ReportedScore) -> tuple[int, float, int]:
    """The worst first: flagged ranks, then low relative scores, the lowest first, then the rest.

    A relative score compares ranks with one another; an individual one only with their own past.
    """
    is_low = row.listed != "highest" and row.score is not None
    kind = 0 if row.flagged else 1 if is_low and "relative" in row.metric else 2 if is_low else 3
    return kind, row.score if row.score is not None else 0.0, row.rank


def _said(rows: Sequence[ReportedScore]) -> str:
    rows = sorted(rows, key=_telling)
    texts = [
        f"rank {row.rank} {row.listed}, {row.metric}"
        + ("" if row.score is None else f" {format_value(row.score, row.unit or '')}")
        for row in rows
    ]
    more = len(texts) - _NAMED
    return "; ".join((*texts[:_NAMED], *((f"{more:,} more",) if more > 0 else ())))


def beside_lines(rows: Sequence[Beside]) -> tuple[str, ...]:
    """One figure a line: as printed, then ours."""
    return tuple(
        f"{row.title}: printed {printed_text(row.printed)} {DASH} ours {ours_text(row)}"
        for row in rows
    )


def printed_text(value: PrintedValue) -> str:
    """The newest value as it was printed, with its mean where there are several."""
    unit = "" if value.unit is None or value.text.endswith(value.unit) else f" {value.unit}"
    text = f"{value.text}{unit} at step {value.step:,}"
    if value.values_printed > 1 and value.mean_value is not None:
        text += f", mean {value.mean_value:,.5g} of {value.values_printed:,} values"
    return text


def ours_text(row: Beside) -> str:
    """The same figure as it is computed here, with what it rests on; or why there is none."""
    if row.ours is None or row.ours.value is None:
        return row.ours_is
    return f"{format_value(row.ours.value, row.ours.unit)} ({row.ours_is})"


def reports_lines(
    reports: Reports, rows: Sequence[Beside]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Titles with their lines, for a terminal; nothing of what nobody says."""
    more = len(reports.printed) - len(rows)
    printed = beside_lines(rows)
    if more:
        names = f"{more:,} {'more ' if rows else ''}name{'s' if more != 1 else ''}"
        printed = (*printed, f"{names}; --json prints all")
    if reports.printed:
        printed = (*printed, PRINTED_NOTE)
    said = ((SCORES_TITLE, scores_lines(reports.scores)), (PRINTED_TITLE, printed))
    return tuple((title, lines) for title, lines in said if lines)


def reports_json(reports: Reports, rows: Sequence[Beside]) -> dict[str, Any]:
    """What others say, as every command prints it; series as ``[step, value]``."""
    return {
        "scores": asdict(reports.scores),
        "beside": [
            {
                "name": row.printed.name,
                "title": row.title,
                "printed": asdict(row.printed),
                "ours": row.ours,
                "ours_is": row.ours_is,
            }
            for row in rows
        ],
        "printed": [asdict(value) for value in reports.printed],
        "series": [
            {
                "name": one.name,
                "printed_as": one.printed_as,
                "unit": one.unit,
                "values_printed": one.values_printed,
                "points": [
                    [step, value]
                    for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True)
                ],
            }
            for one in reports.series
        ],
    }
