"""Job drill-down without a browser: what it says, what it sends, and what it does not know."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.pages import bridge, data
from tests.app.fleet_lake import rows

JOB = "../pages/job.py"

Add = Callable[..., None]
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]


def by_name(figures: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {figure["id"].rsplit("-", 1)[-1]: figure for figure in figures}


def numbers(at: AppTest) -> dict[str, str]:
    """Headline numbers by their title, as they read."""
    return {m.label.replace("\\", ""): m.value.replace("\\", "") for m in at.metric}


def heartbeat(lake: Lake, job: str, rank: int, *, age_s: float = 0.0, **more: Any) -> None:
    """What a recorder writes about itself once a second."""
    now_us = time.time_ns() // 1000 - int(age_s * 1e6)
    folder = lake.root / "live" / job_folder(job)
    folder.mkdir(parents=True, exist_ok=True)
    beat = {
        "rank": rank,
        "state": "running",
        "ts_us": now_us,
        "step": 60,
        "phase": "compute",
        "phase_since_us": now_us,
        "last_step_done": 59,
        "rows_written": 60,
        "rows_dropped": 0,
    }
    (folder / f"rank-{rank:05d}.json").write_text(json.dumps(beat | more))


def test_the_culprit_is_named_with_its_numbers(add: Add, show: Show, text_of: Text) -> None:
    add("worker")
    at = show(JOB, job="worker", price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "Rank 5 makes the other 7 wait" in said
    for words in ("job utilisation", "rank 5", "host node-1, GPU 1", "PP stage 1 · DP replica 2"):
        assert words in said
    metrics = numbers(at)
    assert metrics["Straggler tax"].endswith("%")
    assert metrics["Slowdown S"].endswith("×")
    assert metrics["Recoverable"].startswith("$0.0")
    # Formula and metric id are on hover.
    help_text = next(m for m in at.metric if m.label == "Slowdown S").proto.help
    assert "ideal step times" in help_text
    assert "slowdown" in help_text


def test_the_card_can_be_copied_as_text(add: Add, show: Show) -> None:
    add("worker")
    at = show(JOB, job="worker")
    assert "largest straggler  rank 5" in at.code[0].value


def test_what_is_sent_is_small_and_private(
    add: Add, show: Show, figures: Figures, array: Callable[[Any], np.ndarray]
) -> None:
    add("worker")
    found = by_name(figures(show(JOB, job="worker")))
    assert set(found) == {"heat", "timeline", "series", "loss", "grid", "ledger"}
    for figure in found.values():
        assert figure["config"]["showSendToCloud"] is False
        assert figure["config"]["displaylogo"] is False
    assert sum(figure["bytes"] for figure in found.values()) < 300_000
    heat = found["heat"]["spec"]["data"][0]
    assert heat["z"]["dtype"] == "f4"
    assert array(heat["z"]).shape == (8, 60)
    assert int(np.argmax(array(heat["z"]).mean(axis=1))) == 5
    assert found["heat"]["spec"]["layout"]["dragmode"] == "select"


def test_a_link_leads_to_a_rank_and_a_step(add: Add, show: Show, figures: Figures) -> None:
    add("worker")
    at = show(JOB, job="worker", rank="3", step="7")
    assert not at.exception
    timeline = by_name(figures(at))["timeline"]["spec"]
    assert "chosen · 3" in timeline["data"][0]["y"]
    assert "culprit · 5" not in timeline["data"][0]["y"], "it is the last one, and says so"
    assert "### Step 7, rank by rank" in [m.value for m in at.markdown]


def test_a_rank_that_did_not_report_in_the_step_is_told(
    add: Add, show: Show, text_of: Callable[[AppTest], str]
) -> None:
    """A link or a reader may name one that there is not: no bar of the figure is its own."""
    add("worker")
    at = show(JOB, job="worker", rank="4711", step="7")
    assert not at.exception
    assert "no report of rank 4711 in this step" in text_of(at)


def test_without_a_choice_the_culprit_and_a_slow_step_are_shown(
    add: Add, show: Show, figures: Figures
) -> None:
    add("worker")
    at = show(JOB, job="worker")
    assert at.number_input(key="rank").value is None
    assert at.number_input(key="rank").proto.placeholder == "5"
    assert "last · 5" in by_name(figures(at))["timeline"]["spec"]["data"][0]["y"]


def test_typing_a_rank_and_a_step(add: Add, show: Show, figures: Figures) -> None:
    add("worker")
    at = show(JOB, job="worker")
    at.number_input(key="rank").set_value(2)
    at.number_input(key="step").set_value(11).run()
    assert "### Step 11, rank by rank" in [m.value for m in at.markdown]
    marks = by_name(figures(at))["heat"]["spec"]["layout"]["annotations"]
    assert {(mark["x"], mark["y"]) for mark in marks} == {(1, 2), (11, 1)}


def test_a_click_on_a_cell_chooses_rank_and_step(
    add: Add, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A button stands in for the browser's click.
    def button(target: str, callback: Callable[[int, int], None]) -> None:
        st.button(f"click {target}", key=f"{target}_press", on_click=callback, args=(1, 3))

    monkeypatch.setattr(bridge, "on_cell", button)
    add("worker")
    at = show(JOB, job="worker")
    at.button(key="heat_press").click().run()
    assert not at.exception
    assert (at.query_params["rank"], at.query_params["step"]) == ("1", "3")
    # Pipeline stage 1, replica 3 is rank 7 of this job; the step stays.
    at.button(key="grid_press").click().run()
    assert (at.query_params["rank"], at.query_params["step"]) == ("7", "3")


def test_a_step_that_is_not_there_is_an_answer(add: Add, show: Show) -> None:
    add("worker")
    at = show(JOB, job="worker", step="99999")
    assert not at.exception
    assert any("What to do" in error.value for error in at.error)


def test_without_a_price_no_dollar_is_shown(add: Add, show: Show, text_of: Text) -> None:
    add("worker")
    at = show(JOB, job="worker")
    metrics = numbers(at)
    assert metrics["Spend"] == metrics["Recoverable"] == "unknown"
    said = text_of(at)
    assert "no price is set" in said
    assert "$0" not in said


def test_the_price_of_the_installation_is_a_default(
    add: Add, show: Show, text_of: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPTAX_PRICE_USD_PER_GPU_HOUR", "3.25")
    monkeypatch.setenv("STEPTAX_PRICE_NOTE", "set by the contract of May")
    add("worker")
    at = show(JOB, job="worker")
    assert at.number_input(key="price").value == 3.25
    assert "$3.25 per GPU-hour, set by the contract of May" in text_of(at)
    at.number_input(key="price").set_value(4.0).run()
    assert "$4.00 per GPU-hour, you set it" in text_of(at)


def test_step_times_alone_cannot_name_a_culprit(
    add: Add, show: Show, text_of: Text, figures: Figures
) -> None:
    add("times", phases=False)
    at = show(JOB, job="times", price="2.0")
    assert not at.exception
    assert len(at.metric) > 0
    assert "unknown" in {metric.value for metric in at.metric}
    assert "series" in by_name(figures(at))
    assert "record" in text_of(at)


def test_a_job_without_steps_says_what_to_import(add: Add, show: Show) -> None:
    add("usage", kind="jobs", text="job_id,gpus,start,state\nacct-1,8,,pending\n")
    at = show(JOB, job="acct-1")
    assert not at.exception
    assert "has no steps" in at.error[0].value.replace("\\", "")
    assert "steptax ingest steps" in at.error[0].value.replace("\\", "")


def test_a_job_of_accounting_alone_has_its_bill(add: Add, show: Show, text_of: Text) -> None:
    add("usage", kind="jobs", text="job_id,gpus,start,end\nacct-1,8,2026-11-01,2026-11-02\n")
    at = show(JOB, job="acct-1", price="2.0")
    assert not at.exception
    assert not at.error
    metrics = {m.label.replace("\\", ""): m.value.replace("\\", "") for m in at.metric}
    assert (metrics["GPU-hours"], metrics["Spend"]) == ("192", "$384.00")
    assert metrics["Goodput"] == "unknown"
    said = text_of(at)
    assert "has no steps" in said
    assert "cannot be told without per-rank steps" in said
    assert "steptax ingest steps FILE --job acct-1" in said


def test_a_job_that_is_not_there(add: Add, show: Show) -> None:
    add("worker")
    at = show(JOB, job="nowhere")
    assert not at.exception
    assert "nowhere" in at.error[0].value
    assert "worker" in at.error[0].value
    assert at.query_params["job"] == "nowhere"


def test_names_from_files_are_text(add: Add, show: Show, text_of: Text) -> None:
    rows = ["step,rank,host,compute_ms,comm_ms"]
    for step in range(40):
        for rank in range(4):
            slow = 50 if rank == 2 else 0
            host = '"<img src=x onerror=alert(1)> $a$ **b**"'
            rows.append(f"{step},{rank},{host},{100 + slow},{60 - slow}")
    add("hostile", text="\n".join(rows) + "\n")
    at = show(JOB, job="hostile")
    assert not at.exception
    bodies = [element.proto.body for element in at.get("html")]
    assert any("&lt;img src=x" in body for body in bodies)
    assert not any("<img" in body for body in bodies)


@pytest.mark.parametrize(
    ("running", "live", "period"),
    [(True, "true", data.LIVE_EVERY_S), (True, "false", None), (False, "true", None)],
)
def test_only_a_running_job_is_drawn_again(
    lake: Lake,
    add: Add,
    show: Show,
    monkeypatch: pytest.MonkeyPatch,
    running: bool,
    live: str,
    period: int | None,
) -> None:
    periods: list[Any] = []
    fragment = st.fragment

    def spy(*arguments: Any, **options: Any) -> Any:
        periods.append(options.get("run_every"))
        return fragment(*arguments, **options)

    monkeypatch.setattr(st, "fragment", spy)
    add("worker")
    if running:
        for rank in range(8):
            heartbeat(lake, "worker", rank)
    at = show(JOB, job="worker", live=live)
    assert not at.exception
    # Head, the newest step, rest, and what-if, which nothing but its reader draws again.
    newest_too = [] if period is None else [data.NEWEST_EVERY_S]
    assert periods == [period, *newest_too, period, None]
    newest = [m.value for m in at.markdown if m.value.startswith("Step 59 ended")]
    assert bool(newest) == (period is not None)


@pytest.mark.parametrize(
    ("end", "age_s", "every_s"),
    [
        ("2026-03-02T00:00:00Z", 0, None),
        ("", 0, data.WAITING_EVERY_S),
        ("", 3_600, data.RUNNING_EVERY_S),
    ],
)
def test_a_job_at_rest_is_looked_at_again_unless_its_record_says_that_it_ended(
    lake: Lake,
    add: Add,
    show: Show,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    age_s: int,
    every_s: int | None,
) -> None:
    asked: list[Any] = []
    fragment = st.fragment
    monkeypatch.setattr(
        st, "fragment", lambda *a, **o: (asked.append(o.get("run_every")), fragment(*a, **o))[1]
    )
    head = "job_id,gpus,start,end"
    add("record", kind="jobs", text=f"{head}\nworker,1,2026-03-01T00:00:00Z,{end}\n")
    start_us = time.time_ns() // 1_000 - age_s * 1_000_000
    step = {"job_id": "worker", "attempt": 0, "rank": 0, "duration_us": 1_000_000}
    stored = [step | {"step": n, "start_us": start_us + n * 1_000_000} for n in range(3)]
    lake.append("steps", rows(stored), source="test")
    assert not show(JOB, job="worker", live="true").exception
    assert [period for period in asked if period is not None] == [every_s] * (every_s is not None)


def test_old_data_and_stopped_ranks_are_called_out(
    lake: Lake, add: Add, show: Show, text_of: Text
) -> None:
    add("worker")
    for rank in range(8):
        age_s = 60.0 if rank == 6 else 0.0
        phase = "compute" if rank == 6 else "collective"
        heartbeat(lake, "worker", rank, age_s=age_s, phase=phase)
    at = show(JOB, job="worker")
    assert not at.exception
    said = text_of(at)
    assert "rank 6 stopped reporting" in said
    assert "7 of 8 ranks reporting" in said
    assert any("the newest step ended" in warning.value for warning in at.warning)


def test_the_window_limits_what_the_numbers_rest_on(add: Add, show: Show, text_of: Text) -> None:
    add("long", steps=150)
    at = show(JOB, job="long", window="100")
    assert "steps 50 to 149" in text_of(at)
    at.selectbox(key="window").set_value("all").run()
    assert "steps 0 to 149" in text_of(at)


def test_normalised_times_have_no_milliseconds(add: Add, show: Show, figures: Figures) -> None:
    rows = ["worker,time,batch_time_norm"]
    rows += [f"{r},{s},{100 + (30 if r == 1 else 0)}" for s in range(30) for r in range(4)]
    add("normalised", text="\n".join(rows) + "\n")
    at = show(JOB, job="normalised", price="2.0")
    assert not at.exception
    found = by_name(figures(at))
    assert found["series"]["spec"]["layout"]["yaxis"]["title"]["text"] == "units"
    assert found["heat"]["spec"]["data"][0]["colorbar"]["title"]["text"] == "units"
    metrics = numbers(at)
    assert metrics["Spend"] == metrics["GPU-hours"] == "unknown"


def test_other_detectors_are_shown_beside_the_card(add: Add, show: Show) -> None:
    add("worker")
    at = show(JOB, job="worker")
    assert not at.exception
    (shown,) = [e for e in at.expander if e.label == "How other detectors see it"]
    said = "\n".join(caption.value for caption in shown.caption).replace("\\", "")
    for words in ("**FALCON**", "**NVRx**", "rank 5 scores below 0.75", "fastest rank"):
        assert words in said
    for ideal in ("mean: S", "median: S", "p10: S", "min: S"):
        assert ideal in said
    assert "charged to: rank 5" in said
    assert "persistent and" in said


def test_what_reads_aloud_is_told_no_signs_of_markdown(add: Add, show: Show) -> None:
    add("worker")
    at = show(JOB, job="worker", price="2.0", window="100")
    labels = [m.label for m in at.metric]
    assert "GPU-hours" in labels
    assert not [label for label in labels if "\\" in label]


def test_the_numbers_of_the_steps_shown_stand_under_those_of_the_job(
    add: Add, show: Show, text_of: Text
) -> None:
    add("worker", steps=120)
    at = show(JOB, job="worker", price="2.0", window="100")
    titles = [m.label for m in at.metric]
    assert len(titles) == len(set(titles))
    assert not [title for title in titles if "steps shown" in title]
    assert text_of(at).count(" in the steps shown") == 2
