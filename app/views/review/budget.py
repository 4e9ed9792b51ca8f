"""Budgets and objectives: setting them, their history, and how the period stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.compute.bill.job_days import DAY_US, OTHER
from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.budget import (
    Day,
    ErrorBudget,
    Period,
    SpendOutlook,
    error_budget,
    spend_outlook,
)
from steptax.app.compute.spend.burn import FAST, SLOW, Burn, burn
from steptax.app.errors import NotFoundError, UserError
from steptax.app.format import UNKNOWN, format_measure, format_share, format_usd
from steptax.app.lake import one_look
from steptax.app.metrics import check_metrics
from steptax.app.schema import table
from steptax.app.views.fleet.bill_models import USD
from steptax.app.views.pricing.given import price_view
from steptax.app.views.review.base import review_base
from steptax.app.views.review.burn_words import burn_json, error_budget_text
from steptax.app.views.review.money import review_of
from steptax.app.views.review.periods import daily
from steptax.app.views.workspace import Workspace

ALL = "all"
_HOUR_US = 3_600_000_000
KINDS = ("team", "project", "cluster", "owner", "job")


@dataclass(frozen=True)
class BudgetEntry:
    """One setting of a budget: who set what when, and why."""

    scope: str
    period: str
    set_at_us: int
    budget_usd: Decimal | None
    goodput_slo_ratio: float | None
    set_by: str | None
    note: str | None

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return dict(vars(self))


def changes(entries: Sequence[BudgetEntry]) -> tuple[str, ...]:
    """What each of ``entries`` changed, in words; newest first within scope and period."""
    said = []
    for place, entry in enumerate(entries):
        older = [
            e for e in entries[place + 1 :] if (e.scope, e.period) == (entry.scope, entry.period)
        ]
        parts = []
        if entry.budget_usd is not None:
            before = next((e.budget_usd for e in older if e.budget_usd is not None), None)
            parts.append(_change("budget", before, entry.budget_usd, format_usd))
        if entry.goodput_slo_ratio is not None:
            was = next(
                (e.goodput_slo_ratio for e in older if e.goodput_slo_ratio is not None), None
            )
            parts.append(_change("goodput objective", was, entry.goodput_slo_ratio, format_share))
        said.append(", ".join(parts))
    return tuple(said)


def standing(entries: Sequence[BudgetEntry]) -> tuple[tuple[Decimal | None, float | None], ...]:
    """Budget and objective that hold once each of ``entries`` was set; newest first, as they are.

    What a change leaves out holds on.
    """
    found = []
    for place, entry in enumerate(entries):
        own = [e for e in entries[place:] if (e.scope, e.period) == (entry.scope, entry.period)]
        found.append(
            (
                next((e.budget_usd for e in own if e.budget_usd is not None), None),
                next((e.goodput_slo_ratio for e in own if e.goodput_slo_ratio is not None), None),
            )
        )
    return tuple(found)


def _change(what: str, before: Any, now: Any, write: Callable[[Any], str]) -> str:
    if before is None:
        return f"{what} set to {write(now)}"
    if before == now:
        return f"{what} left at {write(now)}"
    return f"{what} from {write(before)} to {write(now)}"


@dataclass(frozen=True)
class BudgetView:
    """How a scope stands in a period."""

    scope: str
    period: Period
    today: str
    budget_usd: Decimal | None
    goodput_slo_ratio: float | None
    sentence: str
    spend: SpendOutlook
    errors: ErrorBudget
    burns: tuple[Burn, ...]
    """In the fast and in the slow window."""
    days: tuple[Day, ...]
    history: tuple[BudgetEntry, ...]
    currency_note: str | None = None

    @property
    def metrics(self) -> dict[str, Measure]:
        """What is shown first, by metric id."""
        return check_metrics(
            {
                "budget_spent_usd": self.spend.spent_usd,
                "budget_at_end_usd": self.spend.at_end_usd,
                "budget_left_usd": self.spend.left_usd,
                "error_budget_left_usd": self.errors.left_usd,
                "error_budget_lasts_d": self.errors.lasts_days,
                "burn_rate_ratio": self.errors.week_burn,
            }
        )

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "scope": self.scope,
            "period": self.period.name,
            "today": self.today,
            "budget_usd": self.budget_usd,
            "goodput_slo_ratio": self.goodput_slo_ratio,
            "sentence": self.sentence,
            "metrics": self.metrics,
            "spend": dict(vars(self.spend)),
            "error_budget": dict(vars(self.errors)),
            "burn": [burn_json(one) for one in self.burns],
            "days": [
                {"day": str(d.day), "usd": d.usd, "goodput_ratio": d.goodput_ratio}
                for d in self.days
            ],
            "history": history_json(self.history),
            "note": self.currency_note,
        }


def history_json(entries: Sequence[BudgetEntry]) -> list[dict[str, Any]]:
    """Entries as every command prints them, each with what it changed."""
    told = zip(entries, changes(entries), strict=True)
    return [entry.as_json() | {"change": change} for entry, change in told]


def scopes(ws: Workspace) -> tuple[str, ...]:
    """What a budget can be of here: all, and every label of the jobs but single jobs."""
    base = review_base(ws)
    named = [
        f"{kind}:{name}" for kind in KINDS if kind != "job" for name in base.groups(kind)[1] if name
    ]
    return (ALL, *sorted(named))


def read_scope(text: str) -> str:
    """A scope as it is stored; UserError for none."""
    kind, colon, name = text.strip().partition(":")
    if text.strip() == ALL or (colon and kind in KINDS and name.strip()):
        return ALL if text.strip() == ALL else f"{kind}:{name.strip()}"
    raise UserError(
        f"there is no scope {text!r}",
        where="--scope",
        hint=f"write {ALL}, or {', '.join(f'{k}:NAME' for k in KINDS)}",
    )


def set_budget(
    ws: Workspace,
    *,
    scope: str,
    period: str,
    budget_usd: Decimal | None,
    goodput_slo_ratio: float | None,
    set_by: str,
    note: str | None = None,
    at_us: int | None = None,
) -> BudgetEntry:
    """Store a budget, an objective, or both; what was set before stays in the history.

    UserError for a scope, a period or a value that cannot be, and where neither is given.
    """
    where = Period.read(period).name
    if budget_usd is None and goodput_slo_ratio is None:
        raise UserError(
            "neither a budget nor an objective is given",
            where="budget set",
            hint="use --usd 10000, --goodput-slo 0.9, or both",
        )
    if budget_usd is not None and not (budget_usd.is_finite() and 0 <= budget_usd < 10**12):
        raise UserError(f"expected an amount of at least 0, not {budget_usd}", where="--usd")
    if goodput_slo_ratio is not None and not 0 < goodput_slo_ratio < 1:
        raise UserError(
            f"expected a share between 0 and 1, not {goodput_slo_ratio:g}", where="--goodput-slo"
        )
    if not set_by.strip():
        raise UserError("a budget needs who set it", where="--by", hint="give a name")
    entry = BudgetEntry(
        read_scope(scope),
        where,
        time.time_ns() // 1000 if at_us is None else at_us,
        budget_usd,
        goodput_slo_ratio,
        set_by.strip(),
        note,
    )
    spec = table("budgets")
    row = {name: [value] for name, value in vars(entry).items()}
    types = {name: spec.column(name).type for name in row}
    rows = pa.table({name: pa.array(value, types[name]) for name, value in row.items()})
    ws.lake.append("budgets", rows, source=f"set by {entry.set_by}")
    return entry


def budget_entries(ws: Workspace) -> tuple[BudgetEntry, ...]:
    """Every setting there ever was, newest first within scope and period."""
    return tuple(BudgetEntry(**row) for row in ws.engine.run("budget_rows").to_pylist())


@one_look()
def budget_view(
    ws: Workspace,
    *,
    scope: str = ALL,
    period: str | None = None,
    price: Decimal | None = None,
    now_us: int | None = None,
) -> BudgetView:
    """How ``scope`` stands in ``period`` (None: this month) at the moment ``now_us``.

    NotFoundError where no job belongs to the scope.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    today = datetime.fromtimestamp(now / 1e6, UTC).date()
    when = Period.read(period or f"{today:%Y-%m}")
    named = read_scope(scope)
    history = tuple(e for e in budget_entries(ws) if (e.scope, e.period) == (named, when.name))
    usd = next((e.budget_usd for e in history if e.budget_usd is not None), None)
    slo = next((e.goodput_slo_ratio for e in history if e.goodput_slo_ratio is not None), None)
    base = review_base(ws)
    review = review_of(ws, base, price_view(price))
    note = None
    if review.currency not in (None, USD):
        note = f"the bill is in {review.currency}: a budget in USD is not held against it"
    keep = np.ones(len(review.owner), dtype=np.bool_)
    if named != ALL:
        keep = np.isin(review.owner, [base.place[job] for job in _jobs_of(ws, named)])
    jobs = np.ones(len(base.jobs), dtype=np.bool_)
    if named != ALL:
        jobs = np.isin(base.ids, _jobs_of(ws, named))
    until_us = min(now, _end_us(when))
    days = daily(review, keep, when, today)
    spend = spend_outlook(
        when,
        days,
        today,
        None if usd is None else float(usd),
        _left_of_day(now),
        review.no_price,
    )
    errors = error_budget(when, days, today, slo, spend.at_end_usd)
    return BudgetView(
        scope=named,
        period=when,
        today=str(today),
        budget_usd=usd,
        goodput_slo_ratio=slo,
        sentence=_sentence(
            named, when, usd, slo, spend, errors, bool((review.owner[keep] == OTHER).any())
        ),
        spend=spend,
        errors=errors,
        burns=tuple(burn(w, base.held, jobs, slo, until_us) for w in (FAST, SLOW)),
        days=days,
        history=history,
        currency_note=note,
    )


def _left_of_day(now_us: int) -> float:
    """How much of today is to come, in whole hours: two looks a moment apart say the same."""
    return 1 - now_us % DAY_US // _HOUR_US * _HOUR_US / DAY_US


def _end_us(period: Period) -> int:
    return ((period.last - date(1970, 1, 1)).days + 1) * DAY_US


def _jobs_of(ws: Workspace, scope: str) -> Sequence[str]:
    kind, _, name = scope.partition(":")
    column = "job_id" if kind == "job" else kind
    found = [str(row["job_id"]) for row in ws.jobs() if row.get(column) == name]
    if not found:
        known = sorted({str(row[column]) for row in ws.jobs() if row.get(column)})
        raise NotFoundError(
            f"no job is of {kind} {name!r}",
            where="--scope",
            hint=f"there are {', '.join(known[:20]) or f'no jobs with a {kind}'}",
        )
    return found


def _sentence(
    scope: str,
    period: Period,
    usd: Decimal | None,
    slo: float | None,
    spend: SpendOutlook,
    errors: ErrorBudget,
    has_other: bool,
) -> str:
    who = "All jobs" if scope == ALL else scope.replace(":", " ")
    if has_other:
        who += ", idle devices and other charges"
    if spend.spent_usd.value is None:
        return f"{who} in {period.name}: spend is not known, {spend.spent_usd.reason}."
    text = f"{who} spent {format_measure(spend.spent_usd)}"
    if usd is None:
        text += f" in {period.name}, and no budget is set"
    else:
        text += f" of {format_usd(usd)} in {period.name}"
        if spend.at_end_usd.value is not None and spend.over_usd.value is not None:
            over = spend.over_usd.value
            word = "over" if over > 0 else "under"
            text += (
                f"; at the end it will be {format_measure(spend.at_end_usd)}, "
                f"{format_usd(abs(over))} {word}"
            )
    if slo is not None and errors.goodput_ratio.value is None:
        text += (
            f". Goodput is held against {format_share(slo)} and is "
            f"{format_measure(errors.goodput_ratio)}; so the error budget is {UNKNOWN} too"
        )
    elif slo is not None and errors.left_usd.value is not None:
        text += f". Goodput is {format_measure(errors.goodput_ratio)} against {format_share(slo)}"
        text += f"; {error_budget_text(errors.left_usd, errors.lasts_days)}"
    return f"{text}."
