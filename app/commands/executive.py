"""The parts of ``steptax executive`` in a terminal: what the page shows beside ledger and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from steptax.app.commands.output import console, print_wide, table_of
from steptax.app.compute.measure import Measure
from steptax.app.format import format_count, format_measure, format_usd, format_value
from steptax.app.views.review.executive_models import ExecutiveView
from steptax.app.views.review.models import ReviewCard, ShowbackRow
from steptax.app.views.review.periods import change_text

CompareFlag = Annotated[
    str,
    typer.Option(
        "--compare-to",
        metavar="WHAT",
        help="previous, year (the same days a year before), none, or 2026-09-01..2026-09-30",
    ),
]
#: Lines of a table in a terminal; --json prints all.
LISTED = 12
#: Headline numbers without a card of their own.
_BESIDE = ("gpu_hours", "compute_share_ratio")


def print_top(view: ExecutiveView) -> None:
    """What to fix first, and the cards with their changes."""
    if view.empty is not None:
        console.print(view.empty.text)
        for what, command in view.empty.connect:
            console.print(f"  {what}: {command}")
    if view.fix_first is not None:
        found = view.fix_first
        owner = f", of {found.owner}" if found.owner else ""
        console.print(f"Fix first: {found.what}{owner}, worth {found.worth}")
        console.print(f"  why: {found.why}")
        console.print(f"  next: {found.action}")
        if found.a_day:
            console.print(f"  {found.a_day}")
    for found in view.fixes[1:]:
        console.print(f"Then: {found.what}, worth {found.worth}")
        console.print(f"  why: {found.why}")
        console.print(f"  next: {found.action}")
    for kpi in view.kpis:
        if kpi.metric_id in _BESIDE:
            console.print(f"  {kpi.title}: {kpi.text.removesuffix(f' {kpi.title}')}")
    for card in view.cards:
        console.print(f"  {card.title}: {format_measure(card.measure)}{_change(card)}")
        for detail in card.details:
            console.print(f"    {detail}")
    if view.compared:
        console.print(f"Changes are of the {view.compared}")


def _change(card: ReviewCard) -> str:
    if card.delta is None or card.measure.value is None:
        return ""  # why the value is not known stands there already
    if card.delta.change.value is None:
        return f" (no change to tell: {card.delta.change.reason})"
    return f" ({change_text(card.delta)}, {card.delta.against})"


def print_rest(view: ExecutiveView) -> None:
    """Why spend changed, anomalies, weeks, showback, runs."""
    if view.variance is None:
        console.print(f"Why spend changed cannot be told: {view.no_variance}")
    else:
        found = view.variance
        rows = [(name, format_usd(usd), meaning) for name, usd, meaning in found.effects]
        rows = [
            ("before", format_usd(found.before_usd), found.before),
            *rows,
            ("now", format_usd(found.after_usd), found.after),
        ]
        print_wide(table_of("Why spend changed", ("effect", "USD", "meaning"), rows))
        console.print("; ".join(found.notes))
    _anomalies(view)
    _weeks(view)
    for level, groups in view.showback.items():
        _showback(level, groups, (view.unallocated, view.unmatched))
    _runs(view)


def _anomalies(view: ExecutiveView) -> None:
    rows = [
        (
            row.scope,
            row.first_day
            if row.first_day == row.last_day
            else f"{row.first_day} to {row.last_day}",
            format_value(row.impact, row.unit),
            f"{format_value(row.low, row.unit)} to {format_value(row.high, row.unit)}",
            row.driver,
            row.owner or "",
            row.state,
        )
        for row in view.anomalies
    ]
    names = ("of", "days", "impact", "expected range", "driver", "owner", "state")
    if rows:
        print_wide(table_of("Spend anomalies", names, rows[:LISTED]))
        _more(rows)
    console.print(view.anomaly_note)


def _weeks(view: ExecutiveView) -> None:
    rows = [
        (
            week.first_day,
            *(
                _under_its_head(week.figures[name])
                for name in ("cost_usd", "gpu_hours", "goodput_ratio", "straggler_tax_ratio")
            ),
            "" if week.budget_usd is None else format_usd(week.budget_usd),
        )
        for week in view.weeks[-LISTED:]
    ]
    names = ("week of", "spend", "GPU-hours", "goodput", "straggler tax", "budget")
    if rows:
        console.print(table_of("Week by week", names, rows))
    if rows and view.unallocated.gpu_hours.value:
        console.print("spend and GPU-hours with what was paid for and held by no job")
    if view.earlier_weeks(LISTED):
        console.print(view.earlier_weeks(LISTED))


def _under_its_head(measure: Measure) -> str:
    """A value with its interval, in a column whose heading has the unit already."""
    if measure.unit == "GPU-hours" or measure.value is None:
        return format_value(measure.value, "")
    return format_measure(measure)


def _showback(
    level: str, groups: Sequence[ShowbackRow], beside: Sequence[ShowbackRow | None]
) -> None:
    if not groups:
        return
    rows = [
        (
            row.name,
            format_count(row.jobs),
            *map(_under_its_head, (row.gpu_hours, row.spend_usd, row.recoverable_usd)),
        )
        for row in groups
    ]
    names = (level, "jobs", "GPU-hours", "spend", "recoverable")
    console.print(table_of(f"Showback by {level}", names, rows[:LISTED]))
    _more(rows)
    for rest in beside:
        if rest is None:
            continue
        told = [m for m in (rest.gpu_hours, rest.spend_usd) if m.value is not None]
        said = ", ".join(format_measure(m) for m in told or (rest.gpu_hours,))
        console.print(f"{rest.name}: {said}")


def _runs(view: ExecutiveView) -> None:
    if view.forecasts:
        rows = [
            (
                row.job_id,
                f"{row.done_steps:,} of {row.target_steps:,}" if row.target_steps else "",
                row.ends_at,
                format_measure(row.at_end_usd),
            )
            for row in view.forecasts
        ]
        names = ("job", "steps", "done at", "cost at completion")
        print_wide(table_of("Runs under way, to completion", names, rows))
    console.print(f"Completion: {view.forecast_note}")
    if view.learning:
        learned = [
            (
                row.job_id,
                format_value(row.last_loss.value, ""),
                format_measure(row.usd_per_loss),
                format_measure(row.spent_usd),
            )
            for row in view.learning
        ]
        names = ("job", "last loss", "USD per 0.01 of loss", "paid")
        print_wide(table_of("Learning velocity", names, learned))
    console.print(f"Learning: {view.learning_note}")


def _more(rows: Sequence[object]) -> None:
    if len(rows) > LISTED:
        console.print(f"... and {len(rows) - LISTED:,} more; --json prints all")
