"""One job costs the same wherever it is looked at: a bill wins, then what is typed, then a list."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.alerts.rules import read_rules
from steptax.app.alerts.store import AlertStore
from steptax.app.alerts.watch import one_round
from steptax.app.charts.fleet_view_tables import groups_by_state_table, states_table
from steptax.app.format import format_value
from steptax.app.views.alerting import reading_of
from steptax.app.views.bill.record import record_view
from steptax.app.views.compare.load import Part
from steptax.app.views.compare.view import side_by_side
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.job.view import job_view
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.pricing.offers import OfferFilter
from steptax.app.views.procurement.view import job_procurement
from steptax.app.views.review.executive import executive_view
from steptax.app.views.whatif.job import job_inputs
from steptax.app.views.whatif.view import whatif_view
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, RANKS, S, charge, job, lake_of, on, steps, us
from tests.app.fleet_outputs import cells_of
from tests.page_run import open_page

TYPED = Decimal(9)
BEGIN = us(2026, 11, 10)
LENGTH = 120
"""Steps of a minute: two hours."""


LISTED = {
    "provider": "x",
    "gpu_model": "H100 SXM",
    "form_factor": "SXM",
    "region": "r",
    "term": "on-demand",
    "segment": "neocloud",
    "observed_on": "2026-10-01",
    "usd_per_gpu_hour": Decimal("3.25"),
}

BILLED = {"charges": [charge("1", BEGIN, BEGIN + 2 * HOUR, "20", "n")]}


def lake(folder: Path, **more: Any) -> Workspace:
    return lake_of(
        folder,
        jobs=[
            job(
                "a",
                BEGIN,
                BEGIN + LENGTH * 60 * S,
                state="failed",
                team="red",
                cluster="c",
                gpu_model="H100 SXM",
            )
        ],
        ranks=on("a", "n"),
        steps=steps("a", BEGIN, LENGTH, slow_us=6 * S),
        **more,
    )


@pytest.mark.parametrize(
    ("more", "typed", "per_hour", "whose"),
    [
        (BILLED | {"prices": [LISTED]}, TYPED, 2.5, "effective cost of 1 charge"),
        ({"prices": [LISTED]}, TYPED, float(TYPED), "$9.00 per GPU-hour"),
        ({"prices": [LISTED]}, None, 3.25, "no price is given: "),
        ({}, TYPED, float(TYPED), "$9.00 per GPU-hour"),
    ],
    ids=["bill", "typed-over-list", "list", "typed"],
)
def test_every_view_has_the_same_price(
    tmp_path: Path,
    steptax: Callable[..., Any],
    more: dict[str, Any],
    typed: Decimal | None,
    per_hour: float,
    whose: str,
) -> None:
    ws = lake(tmp_path / "lake", **more)
    usd = pytest.approx(per_hour * 2 * RANKS)
    fleet = fleet_view(ws, price=typed)
    assert fleet.usd.value == usd
    assert fleet.costs["state"]["failed"].value == fleet.costs["team"]["red"].value == usd
    for drawn in (states_table(fleet), groups_by_state_table(fleet.groups["team"], "team", fleet)):
        at = [column.key for column in drawn.columns].index("usd")
        assert [row[at] for row in drawn.rows] == [usd]
    assert fleet.metrics["failed_jobs_ratio"].value == 1
    losses = {row.what: row for row in fleet.losses}
    assert losses["jobs that failed"].usd.value == usd
    waiting = losses["waiting for the slowest rank"]
    assert waiting.gpu_hours.value is not None
    assert waiting.gpu_hours.value > 0
    assert waiting.usd.value == pytest.approx(waiting.gpu_hours.value * per_hour)
    review = executive_view(ws, price=typed)
    assert review.jobs[0].spend_usd.value == usd
    bill = fleet_bill(ws, price=typed)
    assert bill.total is not None
    assert bill.total.cost is not None
    assert float(bill.total.cost) == usd
    price = job_view(ws, "a", price=typed).price.usd_per_gpu_hour
    assert float(price or 0) == pytest.approx(per_hour)
    assert record_view(ws, "a", price=typed).price.usd_per_gpu_hour == price
    assert job_price(ws, "a", typed).usd_per_gpu_hour == price
    _repair(ws, steptax, typed, per_hour, whose)
    assert whose in job_price(ws, "a", typed).basis
    assert whose in bill.cost_basis
    halves = side_by_side(ws, Part("a", 0, 59), Part("a", 60, 119), price=typed)
    per_1000 = per_hour * RANKS * 1000 / 60
    assert halves.a.usd_per_1000.value == halves.b.usd_per_1000.value == pytest.approx(per_1000)
    assert whose in halves.price_text
    own = next(
        o for o in job_procurement(ws, "a", OfferFilter(), own_price=typed).options if o.is_own
    )
    assert float(own.price or 0) == pytest.approx(per_hour)
    assert whose in own.price_text
    asked = () if typed is None else ("--price", str(typed))
    (line,) = steptax("jobs", *asked)
    assert line["spend_usd"]["value"] == usd
    _files_and_page(tmp_path, steptax, typed, f"{per_hour * 2 * RANKS:,.2f}")
    _alert(ws, tmp_path, typed, per_hour)


def test_waiting_is_one_sum_where_reports_of_ranks_are_missing(tmp_path: Path) -> None:
    rows = steps("a", BEGIN, LENGTH, slow_us=6 * S)
    del rows[5 * RANKS : 5 * RANKS + 2], rows[-1]
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", BEGIN, BEGIN + LENGTH * 60 * S)],
        ranks=on("a", "n"),
        steps=rows,
    )
    losses = {row.what: row for row in fleet_view(ws, price=TYPED).losses}
    fleet = losses["waiting for the slowest rank"]
    review = next(
        line for line in executive_view(ws, price=TYPED).ledger if line.bucket == "straggler_wait"
    )
    ledger = next(
        line for line in job_view(ws, "a", price=TYPED).ledger if line.bucket == "straggler_wait"
    )
    assert ledger.gpu_seconds
    assert fleet.gpu_hours.value == pytest.approx(ledger.gpu_seconds / 3600, rel=1e-9)
    assert review.gpu_seconds == pytest.approx(ledger.gpu_seconds, rel=1e-9)
    assert round(fleet.usd.value or 0, 2) == float(review.usd or 0) == float(ledger.usd or 0)


def _repair(
    ws: Workspace,
    steptax: Callable[..., Any],
    typed: Decimal | None,
    per_hour: float,
    whose: str,
) -> None:
    """What it returns to replace the slowest rank, on the page, in a terminal and simulated."""
    view = whatif_view("remove-worst", {}, source=job_inputs(ws, "a", price=typed), price=typed)
    assert view.answer is not None
    named = {one.name: one.measure.value for one in view.answer.measures}
    saved = named["recovered_ratio"]
    assert saved is not None
    assert saved > 0
    usd = named["recovered_usd_per_day"]
    assert usd == pytest.approx(saved * RANKS * 24 * per_hour)
    assert f"of the GPU time, {format_value(usd, 'USD')} a day; " in view.answer.sentence
    assert whose in next(f.origin_text for f in view.fields if f.name == "usd_per_gpu_hour")
    asked = () if typed is None else ("--price", str(typed))
    told = steptax("calc", "remove-worst", "--job", "a", *asked)
    assert told["measures"]["recovered_usd_per_day"]["value"] == pytest.approx(usd)
    assert whose in next(i["basis"] for i in told["inputs"] if i["name"] == "usd_per_gpu_hour")
    fixed = steptax("whatif", "fix", "--job", "a", "--worst", "1", *asked)
    hours = fixed["recovered_gpu_hours_per_day"]["value"]
    assert hours > 0
    assert fixed["recovered_usd_per_day"]["value"] == pytest.approx(hours * per_hour)


def _files_and_page(
    folder: Path, steptax: Callable[..., Any], typed: Decimal | None, cents: str
) -> None:
    """The brief as a table, as what a browser prints, and the page itself."""
    ask = ["report", "executive", "--by", "team", "-o"]
    if typed is not None:
        ask[4:4] = ["--price", str(typed)]
    for form in ("csv", "html"):
        steptax(*ask, folder / f"review.{form}")
    cells = cells_of(folder / "review.csv")
    assert [row["cost"] for row in (*cells["bill"], *cells["bill_total"])] == [cents, cents]
    assert f"${cents}" in (folder / "review.html").read_text()
    at = open_page("../pages/executive.py", **({} if typed is None else {"price": str(typed)}))
    assert not at.exception
    shown = [*(one.value for one in at.markdown), *(one.value for one in at.caption)]
    assert any(f"${cents}" in text.replace("\\", "") for text in shown)


def _alert(ws: Workspace, folder: Path, typed: Decimal | None, per_hour: float) -> None:
    """A rule about dollars rings at the same price."""
    path = folder / "alerts.toml"
    path.write_text('[[rule]]\nname = "r"\nmetric = "spend_usd"\nabove = 0.01\nfor_s = 0\n')
    store = AlertStore(folder / "alerts.sqlite3")
    reading = reading_of(job_view(ws, "a", price=typed))
    one_round(store, read_rules(path), [reading], BEGIN + 3 * HOUR)
    (alert,) = store.alerts()
    store.close()
    # Of the recorded steps, which are all of the job.
    assert alert["value"] == pytest.approx(per_hour * 2 * RANKS)
