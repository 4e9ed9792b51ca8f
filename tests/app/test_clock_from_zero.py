"""A job whose clock counts from 0 is told as any other: a moment of 0 is one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from steptax.app.views.job.learning import learning_view
from steptax.app.views.job.view import job_view
from tests.app.fleet_lake import HOUR, event, job, lake_of, steps


def test_what_a_job_held_is_told_from_zero_on(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "lake", jobs=[job("a", 0, 2 * HOUR)], steps=steps("a", 0, 60))
    note = job_view(ws, "a", price=Decimal(2)).ledger_note
    assert "From start to end the job held 8.00 GPU-hours" in note
    assert "4.00 GPU-hours (50.0 %) lie outside the steps" in note


def test_what_is_paid_for_a_loss_begins_at_zero(tmp_path: Path) -> None:
    told = [row | {"loss": 9.0 - row["step"] / 60} for row in steps("a", HOUR, 60)]
    paid = [
        learning_view(
            lake_of(
                tmp_path / f"lake {start}",
                jobs=[job("a", start, 2 * HOUR)],
                events=[event("a", "process_start", HOUR // 2)],
                steps=told,
            ),
            "a",
            price=Decimal(2),
        ).spent_usd.value
        for start in (0, 1)
    ]
    assert paid == [pytest.approx(16.0), pytest.approx(16.0)]
