"""A job that ended and was started again under its name: one that runs has no end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake import Lake
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.workspace import open_workspace
from tests.app.fleet_lake import HOUR, job, rows, steps, us

T0 = us(2026, 11, 1)
AGAIN = us(2026, 11, 3)


def test_a_job_that_runs_again_is_billed_for_it_and_has_no_end(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for record in (
        job("j", T0, T0 + HOUR, state="failed"),
        job("j", T0, None, state="running"),
    ):
        lake.append("jobs", rows([record]), source="test")
    told = steps("j", T0, 10) + steps("j", AGAIN, 60, attempt=1, first=10)
    lake.append("steps", rows(told), source="test")
    ws = open_workspace(lake.root)
    assert (ws.job("j")["state"], ws.job("j").get("end_us")) == ("running", None)
    (listed,) = steptax("jobs")
    assert (listed["state"], listed["end_us"]) == ("running", None)
    assert steptax("job", "j")["job"]["end_us"] is None
    after = fleet_bill(ws, first=date(2026, 11, 3), last=date(2026, 11, 3))
    assert (after.jobs, after.total.gpu_hours) == (1, pytest.approx(4.0))
