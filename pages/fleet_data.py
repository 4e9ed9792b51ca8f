"""View models of all jobs for the pages, shared by all readers; kept as those of one job are.

What is said of all jobs changes while any of them runs: the newest of each question is kept, and
told for up to a minute while it is made anew. Whatever else is stored is told at once. What depends
on the clock beside the data (silent sources, error budgets) is five minutes old at most.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

from steptax.app.errors import disk_error
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import FleetBill
from steptax.app.views.fleet.facts import fleet_facts
from steptax.app.views.fleet.filter import FleetChoices, FleetFilter
from steptax.app.views.fleet.filter import fleet_choices as fleet_choices_of
from steptax.app.views.fleet.models import FleetView
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.kept import Latest, unhurried
from steptax.app.views.review.budget import BudgetView, budget_view, scopes
from steptax.app.views.review.budget import set_budget as store_budget
from steptax.app.views.review.executive import days_of, executive_view
from steptax.app.views.review.executive_models import ExecutiveView
from steptax.app.views.workspace import Workspace
from steptax.pages import data, reader

_REVIEW_EVERY_S = 300
#: Tables that change what a bill of all jobs says, beside those of the jobs themselves.
_BILLED = ("events", "charges", "charge_states", "prices", "device_samples")

_often = partial(unhurried, is_live=lambda _: True, every_s=_REVIEW_EVERY_S)

_executive_views: Latest[ExecutiveView] = _often(16)
_fleet_views: Latest[FleetView] = _often(32)
_fleet_choices: Latest[FleetChoices] = _often(4)
_whole_bills: Latest[FleetBill] = _often(16)
_budgets: Latest[BudgetView] = _often(16)
_scopes: Latest[list[str]] = _often(4)


def executive(
    price: Decimal | None,
    first: date | None = None,
    last: date | None = None,
    compare_to: str = "previous",
) -> ExecutiveView:
    """The cost review at ``price`` from ``first`` to ``last``, both days included."""
    ws = data.workspace()
    note = data.price_note(price)
    first_us, last_us = days_of(first, last)
    return _executive_views.get(
        (*_key(ws), price, note, first, last, compare_to),
        _version(ws),
        lambda: data.with_spinner(
            "Adding up the jobs",
            lambda: executive_view(
                ws,
                price=price,
                price_note=note,
                first_us=first_us,
                last_us=last_us,
                compare_to=compare_to,
            ),
        ),
    )


def fleet_choices() -> FleetChoices:
    """What the jobs of the fleet can be chosen by."""
    ws = data.workspace()
    version = f"{ws.version()}-{ws.lake.version('events')}"
    return _fleet_choices.get(_key(ws), version, lambda: fleet_choices_of(fleet_facts(ws)))


def fleet(price: Decimal | None, only: FleetFilter) -> FleetView:
    """The fleet at ``price``, of the jobs that are chosen."""
    ws = data.workspace()
    note = data.price_note(price)
    return _fleet_views.get(
        (*_key(ws), price, note, only),
        f"{_version(ws)}-{ws.lake.version('nodes')}",
        lambda: data.with_spinner(
            "Looking at all jobs",
            lambda: fleet_view(ws, price=price, price_note=note, only=only),
        ),
    )


def whole_bill(
    by: str,
    denominator: str,
    tz: str,
    price: Decimal | None,
    first: date | None = None,
    last: date | None = None,
) -> FleetBill:
    """The whole bill of all jobs by ``by``, from ``first`` to ``last``, both days included."""
    ws = data.workspace()
    return _whole_bills.get(
        (*_key(ws), by, denominator, tz, price, first, last),
        _version(ws),
        lambda: data.with_spinner(
            "Adding up the bills",
            lambda: fleet_bill(
                ws, by=by, denominator=denominator, tz=tz, price=price, first=first, last=last
            ),
        ),
    )


def budget_scopes() -> list[str]:
    """What a budget can be of: all, and the teams, projects and clusters of the jobs."""
    ws = data.workspace()
    return _scopes.get(_key(ws), _version(ws), lambda: list(scopes(ws)))


def budget(scope: str, period: str | None, price: Decimal | None) -> BudgetView:
    """How a scope stands in a period."""
    ws = data.workspace()
    return _budgets.get(
        (*_key(ws), scope, period, price),
        _version(ws),
        lambda: budget_view(ws, scope=scope, period=period, price=price),
    )


def set_budget(**entry: Any) -> None:
    """Store a budget; UserError says what is wrong with it, or that the reader may not."""
    reader.current().check_budget(str(entry["scope"]))
    try:
        store_budget(data.workspace(), **entry)
    except OSError as error:
        raise disk_error(error) or error from error


def _key(ws: Workspace) -> tuple[str, ...]:
    """Changes with what must be told at once: all but what a running job adds by the second."""
    told = [ws.lake.version(name) for name in ("jobs", "budgets", *_BILLED[:-1])]
    if not data.something_runs():
        told.append(ws.version())
    return ws.key, *told


def _version(ws: Workspace) -> str:
    """Changes when what all jobs did, or what of it was paid, may have."""
    return "-".join([ws.version(), *(ws.lake.version(name) for name in _BILLED)])
