"""The what-if section of the job page without a browser, on real and generated traces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options
from steptax.pages import bridge, state, trace_data

JOB = "../pages/job.py"
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]
Shared = Callable[[str], Path]


@pytest.fixture
def traced(lake: Lake, fill: Callable[..., None], shared: Shared) -> Callable[..., None]:
    """Store the operations of a trace of the collection as a job of the same name."""

    def store(name: str, file: str | None = None) -> None:
        path = shared(f"ops/{file or f'trace-{name}'}.parquet")
        meta = shared(f"ops/{file or f'meta-{name}'}.yaml")
        options = Options(job_id=name, meta=meta)
        fill(lake, f"{name} {path.stem}", lambda made: ingest_file(made, "ops", path, options))

    return store


def by_key(figures: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {figure["id"].rsplit("-", 1)[-1]: figure for figure in figures}


def number(at: AppTest, title: str) -> str:
    """The last number of that title: what the rail says, where it says it too."""
    return [m.value.replace("\\", "") for m in at.metric if m.label.replace("\\", "") == title][-1]


def times(text: str) -> float:
    return float(text.removesuffix("×").replace(",", ""))


def test_a_slow_worker_is_named_priced_and_framed(
    traced: Callable[..., None],
    show: Show,
    text_of: Text,
    figures: Figures,
    array: Callable[[Any], np.ndarray],
) -> None:
    traced("AR")
    at = show(JOB, job="AR", price="2.0")
    assert not at.exception
    assert not at.error
    said = text_of(at)
    assert "One worker is slow: rank 0" in said
    assert "To do: swap or drain" in said.replace("**", "")
    # Published slowdown of this trace, and 64 GPUs at 2 dollars.
    assert times(number(at, "S")) == pytest.approx(1.97305, abs=0.006)
    assert number(at, "Waste per day") == "$1,515/day"
    heat = by_key(figures(at))["trace_heat"]["spec"]
    cells = array(heat["data"][0]["z"])
    assert cells.shape == (4, 4)
    assert np.unravel_index(cells.argmax(), cells.shape) == (0, 0)
    assert heat["data"][0]["zmin"] == 1.0
    frames = [shape for shape in heat["layout"]["shapes"] if shape["type"] == "rect"]
    assert [(f["x0"], f["x1"], f["y0"], f["y1"]) for f in frames] == [(-0.5, 0.5, -0.5, 0.5)]


def test_a_heavy_stage_is_framed_as_a_row(
    traced: Callable[..., None], show: Show, text_of: Text, figures: Figures
) -> None:
    traced("ST")
    at = show(JOB, job="ST", price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "Pipeline stage 3, the last, has more to do" in said
    assert times(number(at, "S")) == pytest.approx(1.1787, abs=0.006)
    frames = by_key(figures(at))["trace_heat"]["spec"]["layout"]["shapes"]
    assert [(f["x0"], f["x1"], f["y0"], f["y1"]) for f in frames] == [(-0.5, 1.5, 2.5, 3.5)]
    assert at.checkbox(key="fix.stages").label.endswith("[suggested]")


def test_ticked_fixes_are_answered_together(
    traced: Callable[..., None], show: Show, text_of: Text
) -> None:
    traced("AR")
    at = show(JOB, job="AR", price="2.0")
    before = times(number(at, "S"))
    at.checkbox(key="fix.ranks").check().run()
    repaired = times(number(at, "S"))
    assert repaired < 1.01 < before
    assert number(at, "Step") == "23.4 s"
    assert number(at, "GPU-hours/day") == "759"
    assert "steptax whatif fix --job AR --also ranks:0 --price 2.0" in text_of(at)
    at.checkbox(key="fix.kernel").check().run()
    at.number_input(key="fix.kernel.factor").set_value(1.5).run()
    assert "--also 'kernel:*-compute:1.5'" in text_of(at)
    # A faster kernel makes what rank 0 is slow at shorter as well: less than 1.5 times 23.4 s.
    assert 15.0 < float(number(at, "Step").removesuffix(" s")) < 16.5


def test_a_link_brings_fixes_step_and_window_back(
    traced: Callable[..., None], show: Show, text_of: Text, figures: Figures
) -> None:
    traced("AR")
    at = show(
        JOB,
        job="AR",
        **{
            "fix.worst": "true",
            "fix.worst.k": "2",
            "trace_step": "408",
            "trace_ranks": "16",
            "rank": "32",
        },
    )
    assert not at.exception
    said = text_of(at)
    assert "--also worst:2" in said
    assert "step 408: S 1.990" in said
    assert "Step 408, operation by operation" in said
    found = by_key(figures(at))
    gantt = found["trace_gantt"]["spec"]
    assert gantt["layout"]["yaxis"]["ticktext"] == ["16 · PP 1 DP 0"]
    marks = found["trace_heat"]["spec"]["layout"]["annotations"]
    assert [(mark["x"], mark["y"]) for mark in marks] == [(1, 2), (0, 1)]


def test_without_a_price_there_are_no_dollars(
    traced: Callable[..., None], show: Show, text_of: Text
) -> None:
    traced("AR")
    at = show(JOB, job="AR", **{"fix.ranks": "true"})
    assert not at.exception
    assert number(at, "Waste per day") == "unknown"
    assert number(at, "GPU-hours/day") == "759"
    assert [c.value for c in at.code if "whatif fix" in c.value] == [
        "steptax whatif fix --job AR --also ranks:0"
    ]
    assert "$" not in text_of(at)


def test_a_click_on_a_worker_puts_it_in_focus(
    traced: Callable[..., None], show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A button stands in for the browser's click.
    def button(target: str, callback: Callable[[int, int], None]) -> None:
        st.button(f"click {target}", key=f"{target}_press", on_click=callback, args=(2, 1))

    monkeypatch.setattr(bridge, "on_cell", button)
    traced("AR")
    at = show(JOB, job="AR")
    at.button(key="trace_heat_press").click().run()
    assert not at.exception
    # Stage 2, data-parallel rank 1.
    assert at.number_input(key="rank").value == 36
    assert at.query_params["rank"] == "36"


def test_what_is_sent_is_small_and_private(
    traced: Callable[..., None], show: Show, figures: Figures
) -> None:
    traced("AR")
    found = {k: f for k, f in by_key(figures(show(JOB, job="AR"))).items() if "trace_" in k}
    assert set(found) == {
        "trace_heat",
        "trace_types",
        "trace_stages",
        "trace_dps",
        "trace_series",
        "trace_worst",
        "trace_gantt",
    }
    for figure in found.values():
        assert figure["config"]["showSendToCloud"] is False
    assert sum(f["bytes"] for k, f in found.items() if k != "trace_gantt") < 30_000
    assert found["trace_gantt"]["bytes"] < 700_000


def test_the_timeline_has_both_parts_and_few_bars(
    traced: Callable[..., None],
    show: Show,
    figures: Figures,
    array: Callable[[Any], np.ndarray],
) -> None:
    traced("AR")
    gantt = by_key(figures(show(JOB, job="AR", trace_step="408")))["trace_gantt"]["spec"]
    assert {trace["yaxis"] for trace in gantt["data"]} == {"y", "y2"}
    lengths = {trace["name"]: len(array(trace["x"])) for trace in gantt["data"]}
    assert "waiting for peers" in lengths
    assert 500 < sum(len(array(trace["x"])) for trace in gantt["data"]) <= 5_000
    # Nothing that only colour tells: each kind of a row has its own pattern.
    shapes = {t["name"]: t["marker"]["pattern"]["shape"] for t in gantt["data"]}
    assert shapes["forward"] != shapes["backward"]
    assert shapes["forward transfers"] != shapes["backward transfers"]
    ends = [shape["x0"] for shape in gantt["layout"]["shapes"]]
    assert ends[0] == pytest.approx(46_950, rel=0.01)
    assert ends[1] == pytest.approx(23_484.7, rel=1e-4)


def test_a_part_of_the_step_is_shown_in_detail(
    traced: Callable[..., None], show: Show, text_of: Text, figures: Figures
) -> None:
    traced("AR")
    at = show(JOB, job="AR", trace_step="408")
    at.slider(key="trace_window").set_value((10.0, 20.0)).run()
    assert not at.exception
    low, high = by_key(figures(at))["trace_gantt"]["spec"]["layout"]["xaxis"]["range"]
    assert (low, high) == pytest.approx((4_695, 9_390), rel=0.01)
    at.button(key="trace_whole").click().run()
    assert "the whole step" in text_of(at)


def test_the_file_for_perfetto_holds_both_timelines(
    traced: Callable[..., None], lake: Lake, show: Show
) -> None:
    traced("ST")
    at = show(JOB, job="ST", trace_step="23")
    assert not at.exception
    offered = {b.key: b.label for b in at.get("download_button")}
    assert offered["trace_chrome"].startswith("Step 23 for Perfetto")
    from steptax.app.views.trace.view import open_trace
    from steptax.app.views.workspace import open_workspace

    made = json.loads(trace_data.chrome_file(open_trace(open_workspace(lake.root), "ST"), 23))
    slices = [event for event in made["traceEvents"] if event["ph"] == "X"]
    # 6,784 operations in 32 steps, once as recorded and once ideal.
    assert len(slices) == 2 * 6_784 / 32
    assert len({event["pid"] for event in slices}) == 2


@pytest.mark.parametrize("file", ["A_pp4", "B_pp1_dp4", "D_vpp2_ovlp", "E_nodp"])
def test_generated_traces_of_other_shapes(
    traced: Callable[..., None], show: Show, text_of: Text, figures: Figures, file: str
) -> None:
    traced("made", file)
    at = show(JOB, job="made", price="2.0")
    assert not at.exception
    assert not at.error
    found = by_key(figures(at))
    assert {"trace_gantt", "trace_series"} <= set(found)
    if file == "D_vpp2_ovlp":
        # Its timing is not physical: that is said, and no cause is named.
        assert any("No verdict" in warning.value for warning in at.warning)
        assert "more than 5.0 %: no verdict" in text_of(at)


def test_per_rank_times_give_an_estimate_when_asked(
    add: Callable[..., None], show: Show, text_of: Text, figures: Figures
) -> None:
    add("worker")
    at = show(JOB, job="worker", price="2.0")
    assert at.toggle(key="whatif_open").value is False
    assert "its per-rank times give an estimate" in text_of(at)
    assert not any("trace_" in key for key in by_key(figures(at)))
    at.toggle(key="whatif_open").set_value(True).run()
    assert not at.exception
    said = text_of(at)
    assert "Per-rank estimate, no dependency graph" in said
    assert times(number(at, "S, estimated")) > 1.2
    assert "a per-operation trace gives the dependency graph" in at.info[0].value.replace("\\", "")
    assert "Not for this job: fix one pipeline stage" in said
    assert set(by_key(figures(at))) >= {"trace_heat", "trace_worst"}
    at.checkbox(key="fix.ranks").check().run()
    assert "If rank 5 is like the others" in text_of(at)


def test_what_cannot_be_told_is_said(add: Callable[..., None], show: Show, text_of: Text) -> None:
    add("times", phases=False)
    at = show(JOB, job="times", whatif_open="true", price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "No answer: " in said
    assert "Repair, and see" not in said
    assert number(at, "S, estimated") == number(at, "Waste per day") == "unknown"


def test_a_running_job_is_analysed_only_when_asked_and_not_at_each_step(
    traced: Callable[..., None], lake: Lake, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced("ST")
    calls: list[str] = []
    opened = trace_data.open_trace

    def count(ws: Any, job_id: str) -> Any:
        calls.append(job_id)
        return opened(ws, job_id)

    versions = itertools.count()
    monkeypatch.setattr(trace_data, "open_trace", count)
    monkeypatch.setattr(trace_data.time, "time", lambda: 1_000_000.0)
    # What a running job looks like: something new at each look.
    workspace = trace_data.data.workspace()
    monkeypatch.setattr(type(workspace), "version", lambda *_: f"v{next(versions)}", raising=True)
    chosen = trace_data.Selection(job_id="ST", last_steps=None, price=None, live=True)
    for _ in range(3):
        trace_data.trace(chosen, "ST", is_live=True)
    assert calls == ["ST"]
    for _ in range(2):
        trace_data.trace(chosen, "ST")
    assert calls == ["ST"] * 3


def test_a_wrong_parameter_is_a_message_and_the_rest_stays(
    traced: Callable[..., None], show: Show, text_of: Text
) -> None:
    traced("ST")
    at = show(JOB, job="ST", **{"fix.ranks": "true", "fix.ranks.ranks": "99"})
    assert not at.exception
    assert "rank 99 is not in the trace" in at.error[0].value.replace("\\", "")
    assert "Pipeline stage 3" in text_of(at)
    at.text_input(key="fix.ranks.ranks").set_value("no").run()
    assert "expected ranks:0,7" in at.error[0].value.replace("\\", "")


def test_another_job_starts_without_the_fixes_of_the_one_before(
    traced: Callable[..., None], show: Show, text_of: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A button stands in for what leads from one job to another.
    def button(target: str, callback: Callable[[int, int], None]) -> None:
        if target == "trace_heat":
            st.button("other", key="other", on_click=state.choose_job, args=("AR",))

    monkeypatch.setattr(bridge, "on_cell", button)
    traced("AR")
    traced("ST")
    at = show(JOB, job="ST", trace_step="23", **{"fix.stages": "true"})
    assert "Step 23, operation by operation" in text_of(at)
    at.button(key="other").click().run()
    assert not at.exception
    assert at.selectbox(key="job").value == "AR"
    assert at.checkbox(key="fix.stages").value is False
    assert at.selectbox(key="trace_step").value == "all steps"
    assert "One worker is slow: rank 0" in text_of(at)
