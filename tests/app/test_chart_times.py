"""Figures and tables of long steps are in seconds, as the sentences about them are."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from steptax.app import charts as charts_package
from steptax.app.charts.focus import job_time_unit
from steptax.app.charts.heatmap import heat_figure
from steptax.app.charts.job_tables import heat_table, ranks_table, series_table
from steptax.app.charts.procurement import options_table
from steptax.app.charts.series import step_figure
from steptax.app.charts.style import blank, day_axis
from steptax.app.charts.times import curve_in_unit, in_measure, in_unit, time_unit
from steptax.app.charts.whatif import composition_figure, curve_figure
from steptax.app.charts.whatif_tables import composition_table
from steptax.app.compute.measure import Measure
from steptax.app.lake import Lake
from steptax.app.theme import LIGHT
from steptax.app.views.compare.rows import metric_rows
from steptax.app.views.compare.view import MetricPair, SideBySide
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.procurement.models import Option, Procurement
from steptax.app.views.whatif.models import Composition, CompositionBar, Curve, Line
from steptax.app.views.workspace import open_workspace
from tests.app.device_lake import HOT, store_steps


@pytest.fixture
def view(tmp_path: Path) -> JobView:
    lake = Lake(tmp_path / "lake", create=True)
    store_steps(lake, "a")
    return job_view(open_workspace(lake.root), "a", price=None)


@pytest.mark.parametrize(
    ("values", "own", "unit"),
    [
        ([120.0, 130.0], "ms", "ms"),
        ([9_000.0, 165_000.0, 166_000.0], "ms", "s"),
        ([165_000.0, None], "ms", "s"),
        ([165_000.0], "units", "units"),
        ([float("nan")], "ms", "ms"),
        ([], "ms", "ms"),
    ],
)
def test_half_of_the_values_choose_the_unit(values: list[Any], own: str, unit: str) -> None:
    assert time_unit(values, own) == unit


def test_a_job_is_told_in_seconds_from_ten_of_them_on(view: JobView) -> None:
    assert job_time_unit(view) == "ms"
    series = replace(view.series, duration_ms=view.series.duration_ms * 100)
    assert job_time_unit(replace(view, series=series)) == "s"


def test_a_figure_and_its_table_have_the_same_values_in_seconds(view: JobView) -> None:
    figure = step_figure(view.series, LIGHT, unit="s")
    assert figure.layout.yaxis.title.text == "s"
    shown = {trace.name: np.asarray(trace.y) for trace in figure.data}
    np.testing.assert_allclose(shown["step"], view.series.duration_ms / 1000, rtol=1e-6)
    table = series_table(view.series, "s")
    place = [column.key for column in table.columns].index("duration_s")
    assert table.rows[0][place] == pytest.approx(view.series.duration_ms[0] / 1000)


def test_the_map_of_excess_is_in_seconds_with_its_colours(view: JobView) -> None:
    figure = heat_figure(view.heat, LIGHT, budget_bytes=1_000_000, unit="s")
    (cells,) = [trace for trace in figure.data if trace.type == "heatmap"]
    z: Any = cells.to_plotly_json()["z"]
    if isinstance(z, dict):
        z = np.frombuffer(base64.b64decode(z["bdata"]), dtype=z["dtype"])
    assert np.nanmax(np.asarray(z)) == pytest.approx(
        np.nanmax(view.heat.excess_ms) / 1000, rel=1e-5
    )
    assert cells.zmax == pytest.approx(view.heat.colour_limit_ms / 1000)
    assert cells.colorbar.title.text == "s"
    assert heat_table(view.heat, "s").rows[0][-1] == pytest.approx(
        float(np.nanmax(view.heat.excess_ms)) / 1000
    )


def test_the_ranks_of_long_steps_are_in_seconds(view: JobView) -> None:
    series = replace(view.series, duration_ms=view.series.duration_ms * 100)
    table = ranks_table(replace(view, series=series))
    first = dict(zip([column.key for column in table.columns], table.rows[0], strict=True))
    assert first["rank"] == HOT
    assert view.ranks[0].excess_ms is not None
    assert first["excess_s"] == pytest.approx(view.ranks[0].excess_ms / 1000)


def test_a_step_before_and_after_is_in_seconds() -> None:
    bars = (CompositionBar("now", (100_000.0, 52_000.0)), CompositionBar("after", (90_000.0, 0.0)))
    composition = Composition(("compute", "wait"), bars)
    figure = composition_figure(composition, LIGHT)
    assert figure.layout.xaxis.title.text == "s per step"
    assert list(figure.data[0].x) == [100.0, 90.0]
    table = composition_table(composition)
    assert [column.key for column in table.columns][1:] == ["compute_s", "wait_s", "total_s"]
    assert table.rows[0][1:] == (100.0, 52.0, 152.0)


def test_a_curve_keeps_its_gaps_its_mark_and_what_is_no_time() -> None:
    line = Line("k", (152_000.0, None, 119_000.0))
    curve = Curve("k", "t", "x", (0.0, 1.0, 2.0), "step", "ms", (line,), marker=(1.0, 119_000.0))
    shown = curve_in_unit(curve)
    assert (shown.y_unit, shown.marker) == ("s", (1.0, 119.0))
    assert shown.lines[0].y == (152.0, None, 119.0)
    ratio = replace(curve, y_unit="ratio")
    assert curve_in_unit(ratio) is ratio
    # The unit stands on the axis, also of a word that has its letter.
    titled = replace(shown, y_title="step")
    assert curve_figure(titled, LIGHT).layout.yaxis.title.text == "step, s"
    assert (
        curve_figure(replace(titled, y_title="step, s"), LIGHT).layout.yaxis.title.text == "step, s"
    )
    assert in_measure(Measure(0.5, "ratio"), "s") == Measure(0.5, "ratio")
    assert in_measure(Measure(2_000.0, "ms", 1_000.0, 3_000.0), "s").high == 3.0
    assert in_unit(3.0, "units") == 3.0


def test_an_axis_of_days_writes_them_as_every_table_does() -> None:
    for days, every in ((3, 86_400_000), (40, None)):
        figure = blank(200)
        day_axis(figure, days)
        axis = figure.layout.xaxis
        assert (axis.type, axis.dtick) == ("date", every)
        assert axis.tickformat == axis.hoverformat == "%Y-%m-%d"


def test_no_figure_makes_an_axis_of_days_of_its_own() -> None:
    """Plotly would write ``Nov 1`` over ``2026`` there."""
    charts = Path(charts_package.__file__).parent
    for path in charts.glob("*.py"):
        if path.name != "style.py":
            assert not re.search(r"""["']date["']|%b""", path.read_text()), path.name


def _option(name: str, step_ms: float) -> Option:
    measures = {
        "usd_per_result": Measure(1.0, "USD"),
        "result_min": Measure(5.0, "min"),
        "step_ms": Measure(step_ms, "ms"),
    }
    return Option(name, name, 8, None, "no offer", measures, "spec", "table of devices")


@pytest.mark.parametrize(
    ("steps_ms", "title", "cells"),
    [
        ((2_005.0, 45_900.0), "step, s", [2.005, 45.9]),
        ((2_005.0, 5_900.0), "step, ms", [2_005.0, 5_900.0]),
    ],
)
def test_steps_of_options_are_in_one_unit(
    steps_ms: tuple[float, float], title: str, cells: list[float]
) -> None:
    options = tuple(_option(f"option {i}", ms) for i, ms in enumerate(steps_ms))
    columns = ("usd_per_result", "result_min", "step_ms")
    drawn = options_table(Procurement("w", "r", "s", "o", options, columns=columns))
    (at,) = (i for i, column in enumerate(drawn.columns) if column.title.startswith("step"))
    assert drawn.columns[at].title == title
    assert drawn.columns[at].key == f"step_{title[6:]}"
    assert [row[at] for row in drawn.rows] == pytest.approx(cells)


def test_both_sides_of_a_comparison_are_in_one_unit() -> None:
    """Not 2,005 ms beside 45.9 s."""
    pair = MetricPair(
        "step_ms", Measure(2_005.0, "ms"), Measure(45_900.0, "ms"), Measure(21.9, "x")
    )
    side = SimpleNamespace(usd_per_1000=Measure.missing("USD", "no price is set"))
    shown = cast(SideBySide, SimpleNamespace(pairs=(pair,), a=side, b=side))
    (_, a, b, *_), *_ = metric_rows(shown)
    assert (a, b) == ("2.00 s", "45.9 s")
