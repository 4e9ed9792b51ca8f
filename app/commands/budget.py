"""``steptax budget``: what was promised, how the period stands, who changed what."""

from __future__ import annotations

import getpass
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.errors import UserError
from steptax.app.format import UNKNOWN, format_measure, format_moment, format_usd
from steptax.app.views.review.budget import (
    BudgetEntry,
    BudgetView,
    budget_entries,
    budget_view,
    changes,
    history_json,
    set_budget,
)
from steptax.app.views.review.burn_words import burn_text, hours_text
from steptax.app.views.workspace import open_workspace

ScopeFlag = Annotated[
    str, typer.Option("--scope", help="all, team:NAME, project:NAME, cluster:NAME, job:ID")
]
_SPEND = {
    "spent_usd": "spent",
    "at_end_usd": "at the end",
    "left_usd": "left",
    "over_usd": "over the budget at the end",
    "used_ratio": "used",
    "lasts_days": "lasts",
}
_ERRORS = {
    "goodput_ratio": "goodput",
    "allowed_usd": "error budget",
    "lost_usd": "lost of it",
    "left_usd": "left of it",
    "week_burn": "burn rate, 7 days",
    "lasts_days": "it lasts",
}

budget = typer.Typer(
    help="Budgets and goodput objectives: set them, and see how the period stands.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(budget, name="budget")


@budget.command("set")
def set_command(
    period: Annotated[str, typer.Option("--period", help="2026-11, 2026-Q4 or 2026")],
    scope: ScopeFlag = "all",
    usd: Annotated[str | None, typer.Option("--usd", help="budget in USD")] = None,
    slo: Annotated[
        float | None, typer.Option("--goodput-slo", help="useful share promised, 0.9")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="who sets it; else your login")] = None,
    note: Annotated[str | None, typer.Option("--note", help="why; it is kept")] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Set a budget, an objective, or both; what was set before is kept."""
    entry = set_budget(
        open_workspace(lake_root(lake)),
        scope=scope,
        period=period,
        budget_usd=_amount(usd),
        goodput_slo_ratio=slo,
        set_by=by or getpass.getuser(),
        note=note,
    )
    show(entry.as_json(), as_json=as_json, text=lambda: console.print("set"))


def _amount(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        return Decimal(text.removeprefix("$").replace(",", ""))
    except InvalidOperation:
        raise UserError(
            f"expected an amount in USD, found {text!r}", where="--usd", hint="write it as 12000"
        ) from None


@budget.command("show")
def show_command(
    scope: ScopeFlag = "all",
    period: Annotated[str | None, typer.Option("--period", help="else this month")] = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """How a scope stands in a period: spend, spend at the end, error budget and burn rates."""
    view = budget_view(
        open_workspace(lake_root(lake)), scope=scope, period=period, price=price_of(price)
    )
    show(view.as_json(), as_json=as_json, text=lambda: _print(view))


def _print(view: BudgetView) -> None:
    console.print(view.sentence)
    rows = [(title, format_measure(getattr(view.spend, name))) for name, title in _SPEND.items()]
    rows += [(title, format_measure(getattr(view.errors, name))) for name, title in _ERRORS.items()]
    rows += [(f"burn rate, {hours_text(b.window.hours)}", burn_text(b)) for b in view.burns]
    console.print(table_of(f"{view.scope}, {view.period.name}", ("what", "value"), rows))
    if view.currency_note:
        console.print(f"note: {view.currency_note}")


@budget.command("history")
def history_command(lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """Every budget that was ever set: by whom, when and why."""
    entries = budget_entries(open_workspace(lake_root(lake)))
    show(
        {"entries": history_json(entries)},
        as_json=as_json,
        text=lambda: _print_history(entries),
    )


def _print_history(entries: tuple[BudgetEntry, ...]) -> None:
    rows = [
        (
            e.scope,
            e.period,
            format_moment(e.set_at_us),
            UNKNOWN if e.budget_usd is None else format_usd(e.budget_usd),
            "" if e.goodput_slo_ratio is None else f"{e.goodput_slo_ratio:g}",
            e.set_by or "",
            change,
            e.note or "",
        )
        for e, change in zip(entries, changes(entries), strict=True)
    ]
    print_wide(
        table_of(
            "Budgets",
            ("scope", "period", "set", "budget", "goodput", "by", "what changed", "why"),
            rows,
        )
    )
