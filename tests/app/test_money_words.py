"""Why an amount is unknown: what is lacking is named, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from steptax.app.lake import Lake
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace


def test_spend_without_jobs_does_not_ask_for_a_price_that_is_set(tmp_path: Path) -> None:
    Lake(tmp_path / "lake", create=True)
    ws = open_workspace(tmp_path / "lake")
    spend = executive_view(ws, price=Decimal(2)).kpis[0]
    assert (spend.title, spend.text) == ("Spend", "there are no jobs")
    assert "no price is set" in executive_view(ws, price=None).kpis[0].text


def test_hours_without_a_month_are_not_denied(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    path = tmp_path / "usage.csv"
    path.write_text("job_id,gpu_hours\na,3\n")
    steptax("ingest", "jobs", str(path))
    bill = fleet_bill(open_workspace(tmp_path / "lake"), by="month", price=Decimal(2))
    assert bill.cost_basis == "given price $2.00 per GPU-hour, of no job: none has a bill here"
    assert "states 3 GPU-hours" in bill.not_billed[0].reason
