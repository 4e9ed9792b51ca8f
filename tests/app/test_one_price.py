"""One job costs the same wherever it is looked at: a bill wins, then a list, then what is typed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.views.executive import executive_view
from steptax.app.views.fleet import fleet_view
from steptax.app.views.fleet_bill import fleet_bill
from steptax.app.views.job import job_view
from steptax.app.views.job_price import job_price
from steptax.app.views.record import record_view
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, RANKS, S, charge, job, lake_of, on, steps, us

TYPED = Decimal(9)
BEGIN = us(2026, 11, 10)
LENGTH = 120
"""Steps of a minute: two hours."""


def lake(folder: Path, **more: Any) -> Workspace:
    return lake_of(
        folder,
        jobs=[job("a", BEGIN, BEGIN + LENGTH * 60 * S, state="failed", team="red", cluster="c")],
        ranks=on("a", "n"),
        steps=steps("a", BEGIN, LENGTH, slow_us=6 * S),
        **more,
    )


@pytest.mark.parametrize(
    ("more", "per_hour"),
    [
        ({"charges": [charge("1", BEGIN, BEGIN + 2 * HOUR, "20", "n")]}, 2.5),
        ({}, float(TYPED)),
    ],
    ids=["bill", "typed"],
)
def test_every_view_has_the_same_price(
    tmp_path: Path, steptax: Callable[..., Any], more: dict[str, Any], per_hour: float
) -> None:
    ws = lake(tmp_path / "lake", **more)
    usd = pytest.approx(per_hour * 2 * RANKS)
    fleet = fleet_view(ws, price=TYPED)
    assert fleet.usd.value == usd
    assert fleet.metrics["failed_jobs_ratio"].value == 1
    losses = {row.what: row for row in fleet.losses}
    assert losses["jobs that failed"].usd.value == usd
    waiting = losses["waiting for the slowest rank"]
    assert waiting.gpu_hours.value is not None
    assert waiting.gpu_hours.value > 0
    assert waiting.usd.value == pytest.approx(waiting.gpu_hours.value * per_hour)
    review = executive_view(ws, price=TYPED)
    assert review.jobs[0].spend_usd.value == usd
    bill = fleet_bill(ws, price=TYPED)
    assert bill.total is not None
    assert bill.total.cost is not None
    assert float(bill.total.cost) == usd
    price = job_view(ws, "a", price=TYPED).price.usd_per_gpu_hour
    assert float(price or 0) == pytest.approx(per_hour)
    assert record_view(ws, "a", price=TYPED).price.usd_per_gpu_hour == price
    assert job_price(ws, "a", TYPED).usd_per_gpu_hour == price
    (line,) = steptax("jobs", "--price", str(TYPED))
    assert line["spend_usd"]["value"] == usd
