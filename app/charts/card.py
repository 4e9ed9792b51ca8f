"""The straggler card as labelled fields, each with its interval, its evidence and its formula."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.measure import Measure
from steptax.app.format import format_count, format_interval, format_value
from steptax.app.metrics import help_of
from steptax.app.views.job.models import NO_GROUP, Card, JobView
from steptax.app.views.pricing.given import price_brief

_LISTED = 6
CAUSE_FIELD = "probable_cause"


@dataclass(frozen=True)
class Field:
    """One line of the card. ``detail`` is said smaller; ``is_missing`` makes ``text`` a reason.

    ``link`` leads to the page that explains ``text``.
    """

    key: str
    label: str
    text: str
    detail: str = ""
    help: str | None = None
    is_missing: bool = False
    link: str | None = None


def card_fields(view: JobView) -> tuple[Field, ...]:
    """Every line of the card, top to bottom; what cannot be known says why."""
    card = view.card
    cause, seen = card.cause_titles
    fields = [
        _measure(
            "job_utilisation",
            "job utilisation",
            card.job_utilisation,
            "job_utilisation_ratio",
            f"step {value_text(card.step_ms)}, ideal {value_text(card.ideal_step_ms)}, "
            f"S = {value_text(card.slowdown)}",
        ),
        _measure("straggler_tax", "straggler tax", card.straggler_tax, "straggler_tax_ratio"),
        Field("dominant_cause", "largest loss", card.dominant_cause),
    ]
    if card.culprit_rank is not None:
        others = [rank for rank in card.culprit_ranks if rank != card.culprit_rank]
        fields += [
            Field(
                "culprit",
                "largest straggler",
                f"rank {card.culprit_rank}",
                " · ".join(part for part in (card.culprit_place, _also(others)) if part),
            ),
            Field(
                "scope",
                "scope",
                card.culprit_scope or NO_GROUP,
                is_missing=card.culprit_scope is None,
            ),
            _measure(
                "phase",
                "phase",
                card.phase_share,
                "phase_share_ratio",
                f"of its excess is {card.phase}" if card.phase else "",
            ),
        ]
    fields += [
        _measure("excess", "excess step time", card.excess_ms, "excess_ms", card.excess_against),
        _measure(
            "persistence",
            "persistence",
            card.persistence,
            "persistence_ratio",
            f"of the {card.persistence_of}",
        ),
        _measure(
            "stability",
            "same culprit",
            card.stability,
            "stability_ratio",
            "of the slow steps",
        ),
        *_since(card),
        Field(CAUSE_FIELD, cause, card.probable_cause),
        *(Field("evidence_for", seen, text) for text in card.evidence_for),
        *(Field("evidence_against", "against it", text) for text in card.evidence_against),
        *(Field("would_settle", "would settle it", text) for text in card.would_settle),
        *_costs(view),
        Field("next_action", "next", card.next_action, _steps(card.slow_steps)),
        Field("level", "evidence", card.level, card.estimate_note or ""),
    ]
    return tuple(fields)


def named_cause(view: JobView) -> str | None:
    """Id of the cause that the card says; None where it names none."""
    said = view.card.probable_cause
    told = (finding.cause for finding in view.findings)
    return next((one.cause for one in told if one.cause and one.sentence == said), None)


def value_text(measure: Measure, title: str = "") -> str:
    """The value alone, or ``unknown``; without its unit where ``title`` begins with it already."""
    is_said = bool(measure.unit) and title.split(",")[0] == measure.unit
    return format_value(measure.value, "" if is_said else measure.unit)


def basis_text(measure: Measure) -> str:
    """What stands under a value: its interval and evidence, or why it is missing."""
    if measure.value is None:
        return measure.reason or ""
    interval = format_interval(measure)
    parts = [interval, None if measure.level is None else measure.level.label]
    return " · ".join(part for part in parts if part)


def about_text(measure: Measure, metric_id: str, *more: str) -> str:
    """For a tooltip: all digits, the formula, and what limits the number."""
    full = "" if measure.value is None else format_value(measure.value, measure.unit, full=True)
    parts = [full, *more, help_of(metric_id), *measure.warnings]
    return "\n\n".join(part for part in parts if part)


def _measure(key: str, label: str, measure: Measure, metric_id: str, detail: str = "") -> Field:
    if measure.value is None:
        return Field(key, label, f"unknown: {measure.reason}", "", help_of(metric_id), True)
    interval = format_interval(measure)
    text = value_text(measure) + (f" ({interval})" if interval else "")
    level = None if measure.level is None else measure.level.label
    details = " · ".join(part for part in (detail, level) if part)
    return Field(key, label, text, details, help_of(metric_id))


def _costs(view: JobView) -> list[Field]:
    card = view.card
    per_day, per_hour = card.cost_per_day_usd, card.cost_per_hour_usd
    if per_day.value == 0 and per_day.warnings:
        said = f"nothing: {per_day.warnings[0]}"
        return [Field("cost", "costs", said, "", help_of("recoverable_usd_per_day"))]
    at = price_brief(view.price)  # who says so stands under the sentence of the page
    field = _measure("cost", "costs", per_day, "recoverable_usd_per_day", at)
    if per_hour.value is None or per_day.value is None:
        return [field]
    window = card.cost_window_usd
    parts = [f"{value_text(per_hour)} {card.cost_basis}"]
    if card.cost_since_usd is not None:
        parts.insert(0, f"since step {card.since_step}: {value_text(card.cost_since_usd)}")
    if window.value is not None:
        parts.append(f"{value_text(window)} in this window")
    return [Field("cost", "costs", field.text, " · ".join([*parts, at]), field.help)]


def _since(card: Card) -> tuple[Field, ...]:
    return () if card.culprit_rank is None else (Field("since", "slow", card.since),)


def _also(ranks: list[int]) -> str:
    if not ranks:
        return ""
    listed = ", ".join(map(str, ranks[:_LISTED]))
    more = len(ranks) - _LISTED
    return f"also {listed}" + (f" and {format_count(more)} more" if more > 0 else "")


def _steps(steps: tuple[int, ...]) -> str:
    return f"see steps {', '.join(map(str, steps[:_LISTED]))}" if steps else ""
