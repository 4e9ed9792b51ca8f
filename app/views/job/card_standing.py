"""What goes on now and what is over, on the card: findings know it, the verdict of a window not.

The verdict is about all steps that are looked at. What began late is no rank that is slow for good,
and a rank that was slow in most of them may be well again: neither may be said in the wrong tense.
"""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.views.job.cause_models import CauseRow, FindingRow

_NOBODY = (Kind.NONE, Kind.MOVING, Kind.MOST, Kind.SELDOM, Kind.PASSED)
_LEADS = ("ranks", "stage", "job")
#: Ranks that are told one by one.
_LISTED = 3


@dataclass(frozen=True)
class Standing:
    """What the card leads with."""

    sentence: str
    lead: FindingRow | None = None
    """What goes on where the verdict names nobody, or where its ranks are well."""
    over: str | None = None
    """Why nothing is paid for any more; None where something is."""
    is_over: bool = False
    """It has ended, as far as is known."""


def standing(result: StragglerResult, findings: tuple[FindingRow, ...]) -> Standing:
    """The first sentence of the card, and the finding that it is about where the verdict is not."""
    verdict = result.verdict
    text = " ".join((verdict.text, *verdict.notes))
    if result.slow_links is not None:
        return Standing(text)
    going = [row for row in findings if row.is_open and row.scope in _LEADS]
    if verdict.kind in _NOBODY:
        lead = max(going, key=lambda row: row.while_slow.value or 0.0, default=None)
        if lead is None:
            return Standing(text)
        if verdict.kind is Kind.NONE:
            tax = result.tax_ratio.value
            waited = "" if tax is None else f": ranks wait {spoken_ratio(tax)} of the paid time"
            over = f"Over all steps looked at no rank is slow for good{waited}."
            # What is said of ranks that are not compared holds as it is.
            text = over if verdict.left_out is None else verdict.text
        return Standing(f"{_capital(lead.brief)}. {text}", lead)
    if verdict.kind is not Kind.WORKER:
        return Standing(text)
    past = _past(verdict.ranks, findings)
    if not past:
        return Standing(text)
    if len(past) < len(verdict.ranks):
        said = " ".join(f"Rank {rank} is slow no longer." for rank in list(past)[:_LISTED])
        mine = [row for row in going if set(row.ranks) & set(verdict.ranks)]
        lead = max(mine, key=lambda row: row.while_slow.value or 0.0, default=None)
        return Standing(f"{text} {said}", lead)
    rows = list(dict.fromkeys(past.values()))
    silent = all(row.is_silent for row in rows)
    said = "; ".join(_capital(row.brief) for row in rows[:_LISTED])
    lead = max(going, key=lambda row: row.while_slow.value or 0.0, default=None)
    over = (
        "whether it goes on is not known: the slow ranks report no more"
        if silent
        else f"it is over since step {max(row.last_step for row in rows)}"
    )
    end = "." if silent else ". It made the others wait, and is slow no longer."
    now = "" if lead is None else f" {_capital(lead.brief)}."
    return Standing(
        f"{said}{end}{now}", lead, None if lead is not None else over, lead is None and not silent
    )


def leading_cause(
    result: StragglerResult, findings: tuple[FindingRow, ...], now: Standing
) -> CauseRow | None:
    """The cause that the card names: of the costliest finding about the culprit, else what leads.

    None where the evidence of the phases alone stands in.
    """
    if result.slow_links is None and (culprit := result.verdict.culprit) is not None:
        mine = (row.cause for row in findings if row.scope == "ranks" and culprit in row.ranks)
        if why := next(mine, None):
            return why
    return None if now.lead is None else now.lead.cause


def _past(ranks: tuple[int, ...], findings: tuple[FindingRow, ...]) -> dict[int, FindingRow]:
    """The last finding of each of ``ranks`` that has ended, where none goes on."""
    past = {}
    for rank in ranks:
        mine = [row for row in findings if row.scope == "ranks" and rank in row.ranks]
        if mine and not any(row.is_open for row in mine):
            past[rank] = max(mine, key=lambda row: row.last_step)
    return past


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
