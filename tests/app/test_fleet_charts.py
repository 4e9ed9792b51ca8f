"""The whole bill as a figure and as tables."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from steptax.app.charts.fleet_bill import (
    MAX_BARS,
    bill_figure,
    bill_table,
    bill_units,
    groups_table,
    not_billed_table,
    range_key,
)
from steptax.app.charts.style import PAGE_BYTES, payload_bytes
from steptax.app.commands.ledger import print_bill
from steptax.app.compute.bill.buckets import BUCKETS
from steptax.app.compute.measure import Measure
from steptax.app.metrics import METRICS
from steptax.app.theme import DARK, LIGHT
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import FleetBill
from steptax.app.views.fleet.groups import GROUP_METRICS
from tests.app.fleet_lake import RANKS, S, event, job, lake_of, steps, us

START = us(2026, 11, 1)
JOBS = MAX_BARS + 5


@pytest.fixture
def view(tmp_path: Path) -> FleetBill:
    """More jobs than bars, one hour each; the first has steps."""
    jobs = [job(f"j{k:02}", START + k * 3600 * S, START + (k + 1) * 3600 * S) for k in range(JOBS)]
    ws = lake_of(
        tmp_path / "lake",
        jobs=[*jobs, job("none", None, None)],
        events=[event("j00", "process_start", START)],
        steps=steps("j00", START + 600 * S, 40),
    )
    return fleet_bill(ws, by="job", price=Decimal("1.11"))


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_every_hour_is_in_one_bar(view: FleetBill, palette: object) -> None:
    figure = bill_figure(view, "GPU-hours", palette)  # type: ignore[arg-type]
    assert sum(sum(trace.x) for trace in figure.data) == pytest.approx(JOBS * RANKS)
    assert {len(trace.y) for trace in figure.data} == {MAX_BARS + 1}
    assert figure.data[0].y[-1] == "the other 5"
    costs = bill_figure(view, "cost", LIGHT)
    assert sum(sum(trace.x) for trace in costs.data) == pytest.approx(
        float(Decimal("1.11") * JOBS * RANKS)
    )
    shares = bill_figure(view, "%", LIGHT)
    for k in range(MAX_BARS + 1):
        assert sum(trace.x[k] for trace in shares.data) == pytest.approx(100)


def test_buckets_differ_by_more_than_colour(view: FleetBill) -> None:
    looks = set()
    figure = bill_figure(view, "GPU-hours", LIGHT)
    for trace in figure.data:
        looks.add((trace.marker.color, trace.marker.pattern.shape))
    assert len(looks) == len(figure.data)


def test_periods_stand_upright_and_stay_small(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "year", jobs=[job("j", us(2024, 1, 1), us(2026, 1, 1))])
    view = fleet_bill(ws, by="day")
    assert len(view.groups) == 731
    figure = bill_figure(view, bill_units(view)[0], LIGHT)
    assert figure.data[0].x[-1] == "2025-12-31"
    assert sum(figure.data[0].y) == pytest.approx(24 * RANKS * len(figure.data[0].x))
    assert payload_bytes(figure) < PAGE_BYTES


def test_the_table_lists_every_bucket_of_every_group(view: FleetBill) -> None:
    made = bill_table(view)
    plain = [bucket for bucket in BUCKETS.values() if not bucket.is_coarse]
    for group in view.groups:
        listed = {row[2] for row in made.rows if row[0] == group.name}
        assert {bucket.title for bucket in plain} <= listed
    read = list(csv.DictReader(io.StringIO(made.csv())))
    assert sum(float(row["gpu_hours"] or 0) for row in read) == pytest.approx(JOBS * RANKS)
    total = sum(Decimal(row["cost"]) for row in read if row["cost"])
    assert view.total is not None
    assert total == view.total.cost
    assert "of paid" in [column.title for column in made.columns]
    assert made.note is not None
    assert "paid time" in made.note
    # Unknown is empty, with its reason beside it, not zero.
    bubble = next(row for row in read if row["bucket"] == "pipeline bubble")
    assert bubble["gpu_hours"] == ""
    assert bubble["note"]


def test_every_factor_is_registered_with_its_formula(view: FleetBill) -> None:
    keys = [column.key for column in groups_table(view).columns]
    assert view.total is not None
    for name in GROUP_METRICS:
        assert METRICS[name].unit == view.total.metrics[name].unit
        assert METRICS[name].formula
    assert {"ettr_ratio", "effective_mfu_ratio", "at_risk_gpu_hours"} <= {*keys}
    assert not_billed_table(view).rows[0][0] == "none"


def test_a_goodput_that_is_a_bound_is_shown_with_its_interval(
    view: FleetBill, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table of the page and its file, in the brief, and in a terminal."""
    bound = Measure(0.602, "ratio", low=0.602, high=0.7204)
    reason = "between 10.0 % and 60.0 %: half of the time is not explained"
    open_one = replace(view.groups[0], metrics=view.groups[0].metrics | {"goodput_ratio": bound})
    missing = Measure.missing("ratio", reason)
    unknown = replace(view.groups[1], metrics=view.groups[1].metrics | {"goodput_ratio": missing})
    shown = replace(view, groups=(open_one, unknown, *view.groups[2:]))
    drawn = groups_table(shown)
    keys = [column.key for column in drawn.columns]
    at = keys.index("goodput_ratio")
    assert keys[at + 1] == range_key("goodput_ratio")
    assert drawn.rows[0][at : at + 2] == (0.602, "60.2–72.0 %")
    assert drawn.rows[1][at : at + 2] == (None, "")
    assert f"goodput: {reason}" in drawn.rows[1][keys.index("note")]
    assert len(groups_table(replace(view, groups=())).columns) == len(keys)
    assert drawn.arrow().num_rows == len(drawn.rows)
    print_bill(shown)
    assert "60.2 % (60.2–72.0)" in capsys.readouterr().out


def test_registered_formulas_are_those_of_the_code(view: FleetBill) -> None:
    first = next(group for group in view.groups if group.name == "j00")
    found = {name: measure.value for name, measure in first.metrics.items()}
    in_steps, pending = 40 / 60, 0.0
    assert found["goodput_ratio"] == pytest.approx(in_steps)
    assert found["ettr_ratio"] == pytest.approx(in_steps / (1 - pending))
    assert METRICS["goodput_ratio"].formula.startswith("GPU-time in retained steps / A")
    assert METRICS["ettr_ratio"].formula == (
        "GPU-time in retained steps / (A − unallocated − pending)"
    )
    assert METRICS["scheduling_ratio"].formula == "(A − unallocated − pending) / A"
    assert "scheduling goodput × ETTR × MFU" in METRICS["effective_mfu_ratio"].formula
