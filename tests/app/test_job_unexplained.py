"""What is unexplained of a job is one number, on its page and in the bill of all jobs."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from steptax.app.views.job.view import job_view
from tests.app.fleet_lake import HOUR, job, lake_of, steps, us


def test_a_job_and_the_whole_bill_say_the_same_unexplained_share(tmp_path: Path) -> None:
    begin = us(2026, 11, 10)
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, begin + 2 * HOUR)],
        steps=steps("a", begin, 60),
    )
    view = job_view(ws, "a", price=Decimal(2))
    (line,) = [one for one in view.bill.lines if one.bucket == "unexplained"]
    assert line.share
    assert view.metrics["unexplained_ratio"].value == pytest.approx(line.share)
