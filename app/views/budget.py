"""Budgets and objectives: setting them, their history, and how the period stands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from steptax.app.compute.budget import (
    Day,
    ErrorBudget,
    Period,
    SpendOutlook,
    error_budget,
    spend_outlook,
)
from steptax.app.compute.measure import Measure
from steptax.app.errors import NotFoundError, UserError
from steptax.app.format import format_measure, format_usd, format_value
from steptax.app.metrics import check_metrics
from steptax.app.schema import table
from steptax.app.views.fleet_bill import fleet_bill
from steptax.app.views.workspace import Workspace

ALL = "all"
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
                "burn_rate_ratio": self.errors.slow_burn,
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
            "days": [
                {"day": str(d.day), "usd": d.usd, "goodput_ratio": d.goodput_ratio}
                for d in self.days
            ],
            "history": [entry.as_json() for entry in self.history],
            "note": self.currency_note,
        }


def scopes(ws: Workspace) -> tuple[str, ...]:
    """What a budget can be of here: all, and every label of the jobs but single jobs."""
    jobs = ws.jobs()
    named = {
        f"{kind}:{row[kind]}" for row in jobs for kind in KINDS if kind != "job" and row.get(kind)
    }
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
    bill = fleet_bill(
        ws,
        by="day",
        price=price,
        first=when.first,
        last=min(when.last, max(today, when.first)),
        job_ids=() if named == ALL else _jobs_of(ws, named),
    )
    note = None
    if bill.currency not in (None, "USD"):
        note = f"the bill is in {bill.currency}: a budget in USD is not held against it"
    days = tuple(
        Day(
            day=datetime.strptime(group.name, "%Y-%m-%d").replace(tzinfo=UTC).date(),
            usd=None if group.cost is None or note else float(group.cost),
            goodput_ratio=group.metrics["goodput_ratio"].value,
        )
        for group in bill.groups
        if _is_day(group.name)
    )
    spend = spend_outlook(when, days, today, None if usd is None else float(usd))
    errors = error_budget(when, days, today, slo, spend.at_end_usd)
    return BudgetView(
        scope=named,
        period=when,
        today=str(today),
        budget_usd=usd,
        goodput_slo_ratio=slo,
        sentence=_sentence(named, when, usd, slo, spend, errors),
        spend=spend,
        errors=errors,
        days=days,
        history=history,
        currency_note=note,
    )


def _is_day(name: str) -> bool:
    try:
        datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return False
    return True


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
) -> str:
    who = "All jobs" if scope == ALL else scope.replace(":", " ")
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
    if slo is not None and errors.left_usd.value is not None:
        left = errors.left_usd.value
        text += f". Goodput is {format_measure(errors.goodput_ratio)} against {slo:.1%}".replace(
            "%", " %"
        ).replace("  %", " %")
        if left <= 0:
            text += f"; the error budget is overspent by {format_usd(-left)}"
        else:
            text += f"; {format_usd(left)} of error budget are left"
            if errors.lasts_days.value is not None:
                text += f" and last {format_value(errors.lasts_days.value, 'd')} at this rate"
    return f"{text}."
