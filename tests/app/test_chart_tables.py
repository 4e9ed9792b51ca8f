"""Tables keep one type per column, with their total apart."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.charts.fleet_tables import jobs_table, metrics_table, teams_table
from steptax.app.charts.job_tables import grid_table, heat_table, ledger_table, timeline_table
from steptax.app.charts.tables import (
    Column,
    label_of,
    natural_key,
    pivot,
    records_table,
    table,
    total_text,
)
from steptax.app.compute.measure import Measure
from steptax.app.metrics import METRICS
from steptax.app.views.job.models import Grid, HeatMap, PhaseBar, StepTimeline
from steptax.app.views.models import LedgerLine
from steptax.app.views.review.executive_models import JobSummary


def test_a_table_with_a_total_row(shared: Callable[[str], Path]) -> None:
    path = shared("cases/20-table-with-total-row/usage.csv")
    with path.open() as handle:
        records = list(csv.DictReader(handle))
    made = pivot(
        records,
        index="month",
        columns="team",
        value="gpu_hours",
        unit="GPU-hours",
        index_title="month",
    )
    arrow = made.arrow()
    assert arrow.column("month").to_pylist() == ["1", "2", "12", "unknown"]
    assert arrow.column("total").to_pylist() == [14.5, 7.25, 1.0, 2.0]
    assert {str(field.type) for field in arrow.schema} == {"string", "double"}
    # A month without usage by a team is unknown, not zero.
    assert arrow.column("team-b").to_pylist() == [4.0, None, None, 2.0]
    assert made.total == ("24.8 GPU-hours",)
    assert sum(arrow.column("total").to_pylist()) == 24.75
    assert "24.8" not in made.csv()


def test_a_total_says_what_it_leaves_out() -> None:
    columns = (Column("team", "team", "text"), Column("usd", "cost", "usd"))
    made = table(columns, [("a", 1.5), ("b", None), ("c", 2.0)], sum_of={"usd": "USD"})
    assert made.total == ("$3.50 (without 1 unknown)",)
    assert table(columns, [("a", None)], sum_of={"usd": "USD"}).total == ()


def test_mixed_records_get_one_type_per_field() -> None:
    made = records_table(
        [
            {"n": 1, "mixed": 2, "list": ["a", "b"], "ts_us": 1_764_338_585_000_000, "flag": True},
            {"n": None, "mixed": "total", "list": None, "ts_us": None, "share": 0.5},
        ]
    )
    arrow = made.arrow()
    types = {field.name: str(field.type) for field in arrow.schema}
    assert types == {
        "n": "int64",
        "mixed": "string",
        "list": "string",
        "ts_us": "timestamp[us, tz=UTC]",
        "flag": "string",
        "share": "double",
    }
    assert arrow.column("mixed").to_pylist() == ["2", "total"]
    assert arrow.column("list").to_pylist() == ["a, b", None]
    assert arrow.column("ts_us").to_pylist()[0] == datetime(2025, 11, 28, 14, 3, 5, tzinfo=UTC)


def test_no_records_make_an_empty_table() -> None:
    assert records_table([]).arrow().num_rows == 0
    assert records_table([]).csv() == "\n"


def test_csv_leaves_unknown_empty_and_cannot_run_in_a_spreadsheet() -> None:
    columns = (Column("host", "host", "text"), Column("share", "share", "ratio"))
    hosts = [("=HYPERLINK(1)", 0.25), ("-x", None), ("a,b", 0.0)]
    # Full-width signs, and what begins a cell where cells are separated by semicolons.
    hosts += [("\uff1d1+1", None), ("\uff20x", None), ("a;=1+1|@x", None), ("a=b-c;d", None)]
    text = table(columns, hosts).csv()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [
        ["host", "share"],
        ["'=HYPERLINK(1)", "0.25"],
        ["'-x", ""],
        ["a,b", "0.0"],
        ["'\uff1d1+1", ""],
        ["'\uff20x", ""],
        ["a;'=1+1|'@x", ""],
        ["a=b-c;d", ""],
    ]


def test_shares_are_percent_on_the_page_and_shares_in_the_file() -> None:
    made = table((Column("share", "share", "ratio"),), [(0.834,), (None,)])
    assert made.arrow().column("share").to_pylist() == [pytest.approx(83.4), None]
    assert "0.834" in made.csv()


@pytest.mark.parametrize(
    ("kind", "values", "shown"),
    [
        ("usd", (12.5, 0.0042), "dollar"),
        ("usd", (0.81, 0.113394, 0.0042, 0.0, None), ["$0.81", "$0.11", "$0.0042", "$0.00", ""]),
        ("usd", (None,), "dollar"),
        ("number", (11886.4, 3296.267, 0.348), ["11,886.40", "3,296.27", "0.35"]),
        ("number", (1536.0, 4.0), ["1,536", "4"]),
        ("number", (153.6, 0.1046), "%.4g"),
    ],
)
def test_the_numbers_of_a_column_are_written_alike(
    kind: Any, values: tuple[float | None, ...], shown: str | list[str]
) -> None:
    made = table((Column("it", "it", kind),), [(value,) for value in values])
    if isinstance(shown, str):
        assert made.number_format(made.columns[0]) == shown
        return
    assert made.number_format(made.columns[0]) is None
    body = made.shown(10)._translate(False, False)["body"]
    assert [row[-1]["display_value"] for row in body] == shown


def test_labels_sort_as_people_count() -> None:
    labels = ["12", "unknown", "2", "1", "rank 10", "rank 9"]
    assert sorted(labels, key=natural_key) == ["1", "2", "12", "rank 9", "rank 10", "unknown"]
    assert {label_of(word) for word in (None, "", " N/A ", "nan", "None")} == {"unknown"}
    assert label_of("  x ") == "x"


def test_the_ledger_keeps_unmeasured_rows_without_numbers() -> None:
    made = ledger_table(
        (
            LedgerLine("compute", "compute", 3600.0, 0.75, Decimal("1.50"), False),
            LedgerLine("input", "input stall", 1200.0, 0.25, Decimal("0.50"), True, "estimated"),
            LedgerLine("gc", "garbage collector", None, None, None, True),
        )
    )
    assert made.rows[2] == ("garbage collector", None, None, None, "not measured")
    assert made.rows[1][-1] == "estimated"
    assert made.total == ("1.33 GPU-hours", "100.0 %", "$2.00")


def test_heat_cells_are_listed_worst_first_without_gaps() -> None:
    cells = np.array([[1.0, np.nan], [5.0, -2.0]])
    heat = HeatMap(
        cells, np.arange(4), np.arange(10, 12), np.array([0, 2, 4]), np.array([0, 1, 2]), 5.0
    )
    made = heat_table(heat)
    assert made.rows == ((2, 3, 10, 10, 5.0), (0, 1, 10, 10, 1.0), (2, 3, 11, 11, -2.0))
    assert made.note == "a cell holds the largest excess of its ranks and steps"
    assert [column.key for column in heat_table(heat, "units").columns][-1] == "excess_units"
    blocks = replace(heat, steps=np.array([0, 256]), until=np.array([255, 300]))
    assert [row[2:4] for row in heat_table(blocks).rows] == [(0, 255), (0, 255), (256, 300)]


def test_the_grid_lists_only_cells_with_a_rank() -> None:
    grid = Grid(
        np.array([[1.0, 2.0], [np.nan, 3.0]]),
        np.array([0, 1]),
        np.array([0, 1]),
        np.array([[0, 1], [-1, 3]]),
        "",
    )
    assert grid_table(grid).rows == ((0, 0, 0, 1.0), (0, 1, 1, 2.0), (1, 1, 3, 3.0))


def test_the_timeline_has_a_column_for_each_phase() -> None:
    timeline = StepTimeline(
        7,
        (
            PhaseBar(0, "waits", "rank 0", {"compute": 5.0, "wait": 4.0}),
            PhaseBar(6, "last to arrive", "rank 6", {"compute": 9.0}),
        ),
        8,
        "2 of 8 ranks",
    )
    made = timeline_table(timeline)
    assert [column.key for column in made.columns] == ["rank", "role", "compute_ms", "wait_ms"]
    assert made.rows == ((0, "waits", 5.0, 4.0), (6, "last to arrive", 9.0, None))
    assert made.note == "2 of 8 ranks"


def summary(job_id: str, usd: Measure) -> JobSummary:
    hours = Measure(2.0, "GPU-hours")
    tax = Measure.missing("ratio", "no steps")
    return JobSummary(
        job_id,
        None,
        None,
        None,
        "running",
        None,
        None,
        8,
        hours,
        usd,
        tax,
        hours,
        usd,
        "wait",
        "all",
    )


def test_jobs_with_unknown_amounts_stay_in_the_table() -> None:
    jobs = (
        summary("a", Measure(4.0, "USD")),
        summary("b", Measure.missing("USD", "no price is set")),
    )
    made = jobs_table(jobs)
    arrow = made.arrow()
    assert arrow.column("spend_usd").to_pylist() == [4.0, None]
    assert arrow.column("spend_usd").type == pa.float64()
    assert arrow.column("straggler_tax").to_pylist() == [None, None]
    assert "$4.00 (without 1 unknown)" in made.total
    assert "4.00 GPU-hours" in made.total


def test_showback_totals() -> None:
    row = {
        "team": "a",
        "jobs": 2,
        "gpu_hours": Measure(3.0, "GPU-hours"),
        "spend_usd": Measure(6.0, "USD"),
        "recoverable_usd": Measure.missing("USD", "no steps"),
    }
    made = teams_table([row])
    assert made.rows == (("a", 2, 3.0, 6.0, None),)
    assert made.total == ("3.00 GPU-hours", "$6.00")


def test_every_metric_is_listed_with_its_formula() -> None:
    made = metrics_table()
    assert len(made.rows) == len(METRICS)
    assert all(all(row) for row in made.rows)


def test_a_share_too_small_for_its_digits_is_shown_as_a_bound() -> None:
    columns = (Column("team", "team", "text"), Column("share", "share", "ratio"))
    made = table(columns, [("a", 0.0001), ("b", 0.9999), ("c", None), ("d", 0.0), ("e", 0.123)])
    shown = made.shown(10)
    assert made.number_format(columns[1]) is None
    texts = [row[1]["display_value"] for row in shown._translate(False, False)["body"]]
    assert [row[-1]["display_value"] for row in shown._translate(False, False)["body"]] == [
        "<0.1 %",
        ">99.9 %",
        "",
        "0.0 %",
        "12.3 %",
    ]
    assert texts[0] == "a"
    # Sorted by value, and the file has the value.
    assert list(shown.data["share"].dropna()) == pytest.approx([0.01, 99.99, 0.0, 12.3])
    plain = table(columns, [("a", 0.1)])
    assert plain.number_format(columns[1]) == "%.1f %%"
    assert isinstance(plain.shown(10), pa.Table)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1.0, "jobs", "1 job"), (58.0, "jobs", "58 jobs"), (1_024.0, "hosts", "1,024 hosts")],
)
def test_a_sum_of_what_is_counted_is_a_count(value: float, unit: str, text: str) -> None:
    assert total_text(value, unit) == text
