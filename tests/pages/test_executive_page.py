"""Executive review without a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

Add = Callable[..., None]
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]

USAGE = """job_id,name,team,user,state,start,end,gpus
acct-1,ablation,research,bob,completed,2026-11-01T00:00:00Z,2026-11-01T10:00:00Z,16
acct-2,no end,,bob,running,2026-11-02T00:00:00Z,,16
"""


def numbers(at: AppTest) -> dict[str, str]:
    """Headline numbers by their title, as they read."""
    return {m.label.replace("\\", ""): m.value.replace("\\", "") for m in at.metric}


def table_with(at: AppTest, *columns: str) -> Any:
    """The first table of the page that has these columns."""
    found = [frame.value for frame in at.dataframe if {*columns} <= {*frame.value.columns}]
    assert found, [list(frame.value.columns) for frame in at.dataframe]
    return found[0]


@pytest.fixture
def fleet(add: Add) -> None:
    add("worker")
    add("usage", kind="jobs", text=USAGE)


@pytest.mark.usefixtures("fleet")
def test_one_sentence_then_numbers_then_money(show: Show, text_of: Text) -> None:
    at = show(price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "You paid $320" in said
    metrics = numbers(at)
    assert metrics["Spend"] == "$320.04"
    assert metrics["GPU-hours"] == "160"
    assert metrics["Straggler tax"].endswith("%")
    assert "GPU-hours are unknown for 1 of 3 jobs" in said


@pytest.mark.usefixtures("fleet")
def test_jobs_are_ranked_and_keep_their_types(show: Show, text_of: Text) -> None:
    at = show(price="2.0")
    jobs = table_with(at, "job_id", "spend_usd")
    assert jobs["job_id"].iloc[0] == "worker"
    assert set(jobs["job_id"]) == {"worker", "acct-1", "acct-2"}
    assert jobs["spend_usd"].dtype.kind == "f"
    by_job = jobs.set_index("job_id")["spend_usd"]
    assert by_job["acct-1"] == 320.0
    assert by_job.isna()["acct-2"]
    assert "(without 1 unknown)" in text_of(at)


def ledger_labels(figures: Figures, at: AppTest) -> list[str]:
    """Names and amounts beside the bars of the waterfall, the first figure that writes its own."""
    found, *_ = [
        labels for f in figures(at) if (labels := f["spec"]["layout"]["yaxis"].get("ticktext"))
    ]
    return list(found)


@pytest.mark.usefixtures("fleet")
def test_the_ledger_can_be_read_in_three_units(show: Show, figures: Figures) -> None:
    at = show(price="2.0")
    labels = ledger_labels(figures, at)
    assert "$" in labels[0]
    at.segmented_control(key="unit").set_value("GPU-hours").run()
    assert not at.exception
    labels = ledger_labels(figures, at)
    assert "GPU-hours" in labels[0]


@pytest.mark.usefixtures("fleet")
def test_without_a_price_shares_are_drawn_and_dollars_are_unknown(
    show: Show, text_of: Text, figures: Figures
) -> None:
    at = show()
    assert not at.exception
    metrics = numbers(at)
    assert metrics["Spend"] == metrics["Recoverable now"] == "unknown"
    assert "$0" not in text_of(at)
    assert at.segmented_control(key="unit").options == ["%", "GPU-hours"]
    assert "100.0 %" in ledger_labels(figures, at)[0]


@pytest.mark.usefixtures("fleet")
def test_a_unit_that_needs_a_price_falls_back(show: Show, figures: Figures) -> None:
    at = show(price="2.0", unit="$")
    at.number_input(key="price").set_value(None).run()
    assert not at.exception
    assert "%" in ledger_labels(figures, at)[0]


@pytest.mark.usefixtures("fleet")
def test_showback_names_the_team_that_is_not_stated(show: Show) -> None:
    teams = table_with(show(price="2.0"), "team", "jobs", "recoverable_usd").set_index("team")
    assert teams.loc["research", "spend_usd"] == 320.0
    assert teams.loc["no team stated", "jobs"] == 2


def test_jobs_without_steps_have_no_ledger(add: Add, show: Show, text_of: Text) -> None:
    add("usage", kind="jobs", text=USAGE)
    at = show(price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "No job has per-rank steps" in said
    # What the accounting alone tells has its bill all the same.
    groups = table_with(at, "name", "goodput_ratio").set_index("name")
    assert groups.loc["research", "gpu_hours"] == 160
    assert groups.isna().loc["research", "goodput_ratio"]


@pytest.mark.usefixtures("fleet")
def test_choices_for_a_job_rest_here(show: Show) -> None:
    at = show(job="worker", window="100")
    assert at.selectbox(key="job").disabled
    assert at.selectbox(key="window").disabled
    on_job = at.switch_page("../pages/job.py").run()
    assert on_job.selectbox(key="job").value == "worker"
    assert on_job.selectbox(key="window").value == "100"
    assert not on_job.selectbox(key="job").disabled


@pytest.mark.usefixtures("fleet")
def test_a_bar_of_the_ledger_leads_to_its_jobs(show: Show, text_of: Text) -> None:
    at = show(price="2.0")
    assert not [f for f in at.dataframe if {"job_id", "share"} <= {*f.value.columns}]
    at.selectbox(key="bucket").set_value("unexplained").run()
    assert not at.exception
    behind = table_with(at, "job_id", "gpu_hours", "share")
    first = behind.iloc[0]
    assert (first["job_id"], first["gpu_hours"], first["usd"]) == ("acct-1", 160.0, 320.0)
    assert first["share"] == 100.0
    assert "Select a row to open the job" in text_of(at)
    # Of the recorded steps it is the jobs that have some.
    at.segmented_control(key="ledger_of").set_value("recorded steps").run()
    at.selectbox(key="bucket").set_value("straggler_wait").run()
    assert not at.exception
    assert list(table_with(at, "job_id", "gpu_hours", "share")["job_id"]) == ["worker"]


@pytest.mark.usefixtures("fleet")
def test_the_list_says_what_was_diagnosed_or_that_nothing_was(show: Show) -> None:
    jobs = table_with(show(price="2.0"), "job_id", "cause").set_index("job_id")["cause"]
    assert "confidence" in jobs["worker"] or "not named; largest loss" in jobs["worker"]
    assert jobs["acct-1"].startswith("unknown: no per-rank steps")
