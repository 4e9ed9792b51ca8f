"""The straggler card as text, for a terminal or a ticket."""

from __future__ import annotations

from steptax.app.compute.measure import Measure
from steptax.app.format import UNKNOWN, format_measure, format_moment
from steptax.app.views.job.models import NO_GROUP, Card, JobView
from steptax.app.views.pricing.given import price_brief


def card_as_text(view: JobView, *, link: str | None = None, lake: str | None = None) -> str:
    """The card with one field a line; a field that cannot be known says why, once.

    ``link`` leads to the page of the same steps, and ``lake`` holds them.
    """
    card, header = view.card, view.header
    lines = [
        ("job", f"{header.job_id} · {header.topology}"),
        ("coverage", view.coverage.text),
        ("finding", card.sentence),
    ]
    if card.slowdown.value is not None:
        lines += [
            (
                "job utilisation",
                f"{format_measure(card.job_utilisation)}: step {_brief(card.step_ms)}, ideal "
                f"{_brief(card.ideal_step_ms)}, S = {_brief(card.slowdown)}",
            ),
            ("straggler tax", format_measure(card.straggler_tax)),
            ("largest loss", card.dominant_cause),
        ]
    if card.culprit_rank is not None:
        lines += _culprit(card)
    cause, seen = card.cause_titles
    lines.append((cause, card.probable_cause))
    lines += [(seen, text) for text in card.evidence_for]
    lines += [("against it", text) for text in card.evidence_against]
    lines += [("would settle it", text) for text in card.would_settle]
    if card.cost_per_hour_usd.value is not None:
        lines.append(
            (
                "costs",
                f"{format_measure(card.cost_per_hour_usd)}, "
                f"{format_measure(card.cost_per_day_usd)} {card.cost_basis}, "
                f"{price_brief(view.price)}",
            )
        )
        if card.cost_since_usd is not None:
            lines.append(
                (
                    "costs since",
                    f"{format_measure(card.cost_since_usd)} of steps, the mean of those since step "
                    f"{card.since_step}, when it began",
                )
            )
        lines.append(("price", view.price.basis))
    elif card.slowdown.value is not None:
        lines.append(("costs", format_measure(card.cost_per_hour_usd)))
    lines.append(("next", card.next_action))
    if card.slow_steps:
        lines.append(("see steps", ", ".join(map(str, card.slow_steps))))
    lines.append(("evidence", card.level))
    if card.estimate_note:
        lines.append(("note", card.estimate_note))
    lines += [("stopped", rank.text) for rank in view.coverage.stopped]
    window, newest_us = view.window, view.coverage.newest_us
    ended = "" if newest_us is None else f", the newest ended {format_moment(newest_us)}"
    lines.append(("steps", f"{window.first_step:,} to {window.last_step:,}{ended}"))
    lines += [(name, told) for name, told in (("lake", lake), ("page", link)) if told]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _culprit(card: Card) -> list[tuple[str, str]]:
    others = [str(rank) for rank in card.culprit_ranks if rank != card.culprit_rank]
    also = f" (also {', '.join(others[:8])})" if others else ""
    place = f" · {card.culprit_place}" if card.culprit_place else ""
    phase = "unknown: no phase was measured"
    if card.phase is not None:
        phase = f"{card.phase}, {format_measure(card.phase_share)} of the excess"
    return [
        ("largest straggler", f"rank {card.culprit_rank}{place}{also}"),
        ("scope", card.culprit_scope or NO_GROUP),
        ("phase", phase),
        ("excess", f"{format_measure(card.excess_ms)} {card.excess_against}"),
        ("persistence", _persistence(card)),
        ("slow", card.since),
    ]


def _persistence(card: Card) -> str:
    share = f"{format_measure(card.persistence)} of the {card.persistence_of}"
    if card.stability.value is None and card.stability.reason:
        return f"{share}; {card.stability.reason}"
    return f"{share}; last to arrive in {format_measure(card.stability)} of the slow ones"


def _brief(measure: Measure) -> str:
    """Without the reason, which is said elsewhere on the card."""
    return UNKNOWN if measure.value is None else format_measure(measure)
