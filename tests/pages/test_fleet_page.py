"""The Fleet page without a browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.charts.fleet import rate_figure, sizes_figure, spread_figure
from steptax.app.charts.fleet_view_tables import places_table, rate_table, sizes_table
from steptax.app.lake import Lake
from steptax.app.theme import DARK, LIGHT
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.workspace import open_workspace

Add = Callable[..., None]
Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]
Figures = Callable[[AppTest], list[dict[str, Any]]]

PAGE = "../pages/fleet.py"
HEAD = "job_id,team,state,start,end,gpus\n"
JOBS = HEAD + "".join(
    f"j{i},red,{state},2026-11-{i + 1:02d}T00:00:00Z,2026-11-{i + 1:02d}T10:00:00Z,{gpus}\n"
    for i, (state, gpus) in enumerate(
        [("failed", 8), ("failed", 1), ("completed", 64), ("completed", 1), ("", 16)]
    )
)


@pytest.fixture
def fleet(add: Add) -> None:
    add("worker")
    add("usage", kind="jobs", text=JOBS)


@pytest.mark.usefixtures("fleet")
def test_the_page_says_what_breaks_and_what_it_costs(show: Show, text_of: Text) -> None:
    at = show(PAGE, price="2.0")
    assert not at.exception
    assert not at.error
    said = text_of(at)
    assert "What breaks most: jobs that failed (2 of 6 jobs), at 90.0 GPU-hours = $180" in said
    metrics = {m.label.replace("\\", ""): m.value.replace("\\", "") for m in at.metric}
    assert metrics["Jobs that failed"] == "50.0 %"
    assert metrics["GPU-hours of failed jobs"] == "12.2 %"
    assert metrics["Jobs with a fail-slow"] == "100.0 %"
    assert metrics["Unallocated"] == "unknown"
    assert "no bill is connected" in said
    assert "the final state is unknown for 2 of 6 jobs" in said
    assert "no objective is set" in said
    columns = [list(frame.value.columns) for frame in at.dataframe]
    assert any({"what", "usd", "share"} <= {*names} for names in columns)
    (places,) = [f.value for f in at.dataframe if "is_named" in f.value.columns]
    assert set(places["name"]) == {"node-1"}
    # Every table can be had as a file.
    assert len(at.get("download_button")) >= len(at.dataframe)


@pytest.mark.usefixtures("fleet")
def test_sizes_can_be_read_in_jobs_and_in_hours(show: Show, figures: Figures) -> None:
    at = show(PAGE)
    by_hours = {t["name"]: t["x"] for t in figures(at)[0]["spec"]["data"]}
    at.segmented_control(key="size_unit").set_value("jobs").run()
    assert not at.exception
    by_jobs = {t["name"]: t["x"] for t in figures(at)[0]["spec"]["data"]}
    assert by_jobs["failed"] == [1.0, 1.0, 0.0, 0.0]
    assert by_hours["failed"] == [10.0, 80.0, 0.0, 0.0]
    assert by_jobs["unknown"] == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.usefixtures("fleet")
def test_without_a_price_there_are_no_dollars(show: Show, text_of: Text) -> None:
    at = show(PAGE)
    assert not at.exception
    (sentence,) = [line for line in text_of(at).splitlines() if "What breaks most" in line]
    assert "at 90.0 GPU-hours, " in sentence
    assert "$" not in sentence
    (losses,) = [f.value for f in at.dataframe if {"what", "usd"} <= {*f.value.columns}]
    assert losses["usd"].isna().all()


@pytest.mark.usefixtures("lake")
def test_an_empty_lake_says_what_to_do(show: Show, text_of: Text) -> None:
    at = show(PAGE)
    assert not at.exception
    assert "steptax demo" in text_of(at)


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_figures_hold_what_the_tables_say(lake: Lake, palette: Any) -> None:
    view = fleet_view(open_workspace(lake.root))
    sizes = sizes_figure(view, "jobs", palette)
    assert sum(sum(trace.x) for trace in sizes.data) == view.jobs
    table = sizes_table(view)
    assert [row[0] for row in table.rows] == ["1", "8-15", "16-63", "64-255"]
    rate = rate_figure(view, palette)
    (points,) = rate.data
    assert list(points.x) == [row[0] for row in rate_table(view).rows]
    # Colour is not alone in telling which size does not go with the model.
    assert set(points.marker.symbol) <= {"circle", "diamond"}
    (bars,) = spread_figure([value for _, value in view.waste_values], "waste").data
    assert sum(bars.y) == len(view.waste_values) == 1
    assert places_table(view.places).csv().startswith("name,kind,what,count,expected")


@pytest.mark.usefixtures("fleet")
def test_a_choice_is_in_the_link_and_changes_every_number(show: Show, text_of: Text) -> None:
    at = show(PAGE, price="2.0", state="failed")
    assert not at.exception
    assert at.multiselect(key="state").value == ["failed"]
    said = text_of(at)
    assert "Only jobs of: state failed" in said
    assert "2 of 6 jobs: the state of 2 is known" in said
    (states,) = [f.value for f in at.dataframe if {"state", "jobs_share"} <= {*f.value.columns}]
    assert list(states["state"]) == ["failed"]
    assert list(states["gpu_hours"]) == [90.0]
    # A second choice narrows it; what fits nothing says so.
    at.multiselect(key="size").set_value(["1"]).run()
    assert "1 of 6 jobs" in text_of(at)
    at.date_input(key="from").set_value(date(2026, 11, 3)).run()
    assert not at.exception
    assert "No job fits the choice." in text_of(at)
    at.button(key="fleet_all").click().run()
    assert not at.exception
    assert "6 jobs: the state of 4 is known" in text_of(at)
    assert "Only jobs of" not in text_of(at)


@pytest.mark.usefixtures("fleet")
def test_a_bar_of_a_histogram_leads_to_its_jobs(show: Show) -> None:
    at = show(PAGE)
    box = at.selectbox(key="fleet_waste_bin")
    chosen = box.options[1]
    box.set_value("4").run()
    assert not at.exception
    assert chosen == "20 to 25 %"
    (found,) = [f.value for f in at.dataframe if {"job_id", "value"} == {*f.value.columns}]
    assert list(found["job_id"]) == ["worker"]
    assert 20 <= found["value"].iloc[0] < 25
