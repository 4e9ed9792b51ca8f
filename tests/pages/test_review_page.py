"""Period, cards and the parts under them on the Executive review, without a browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.views.review.executive import days_of, executive_view
from steptax.app.views.review.periods import change_text, read_day
from steptax.app.views.workspace import open_workspace

Add = Callable[..., None]
Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]
Figures = Callable[[AppTest], list[dict[str, Any]]]

TITLES = [
    "Spend",
    "Goodput",
    "Straggler tax",
    "Cost per 1 B tokens",
    "Cost per checkpoint kept",
    "Recoverable now",
]


def usage(days: int = 70) -> str:
    """A job of ten hours on eight devices every day up to 28 November 2026; twice as many of
    late, and one huge one.
    """
    rows = ["job_id,team,project,cluster,user,state,start,end,gpus"]
    last = datetime(2026, 11, 28, tzinfo=UTC)
    for n in range(days):
        day = last - timedelta(days=days - 1 - n)
        gpus = 16 if n >= days - 28 else 8
        team = ("red", "blue")[n % 2]
        rows.append(
            f"d{n},{team},p,east,ada,completed,{day:%Y-%m-%d}T00:00:00Z,"
            f"{day:%Y-%m-%d}T10:00:00Z,{gpus}"
        )
    rows.append("huge,red,p,east,eve,completed,2026-11-20T00:00:00Z,2026-11-20T20:00:00Z,256")
    return "\n".join(rows) + "\n"


@pytest.fixture
def year(add: Add) -> None:
    add("worker")
    add("usage", kind="jobs", text=usage())


def values(at: AppTest) -> dict[str, tuple[str, str]]:
    """Value and change of each card, by title."""
    return {
        m.label.replace("\\", ""): (m.value.replace("\\", ""), (m.delta or "").replace("\\", ""))
        for m in at.metric
    }


@pytest.mark.usefixtures("year")
def test_every_card_has_its_value_its_change_and_its_link(
    show: Show, text_of: Text, lake: Any
) -> None:
    at = show(price="2.0")
    assert not at.exception
    found = values(at)
    assert [title for title in found if title in TITLES] == TITLES
    view = executive_view(open_workspace(lake.root), price=Decimal(2))
    for card in view.cards:
        value, change = found[card.title]
        assert (value == "unknown") is (card.measure.value is None), card.title
        told = card.delta is not None and change_text(card.delta) not in ("", "level")
        assert bool(change) is told, card.title
    assert found["Spend"][1].startswith("+")
    assert found["Straggler tax"][0].endswith("%")
    assert found["Recoverable now"][0].startswith("$")
    said = text_of(at)
    assert "newest 4 weeks, 2026-11-01 to 2026-11-28" in said
    assert "vs previous 4 weeks" in said
    assert "no budget is set" in said
    assert "Fix first: job worker" in said
    assert "[Budget and outlook](#budget-and-objective)" in said
    assert {b.key for b in at.button} >= {"open_straggler_tax_ratio", "open_recoverable_usd"}


@pytest.mark.usefixtures("year")
def test_what_to_fix_first_opens_its_job(show: Show) -> None:
    at = show(price="2.0")
    at.button(key="fix_first_open").click().run()
    assert not at.exception
    assert at.selectbox(key="job").value == "worker"
    assert not at.selectbox(key="job").disabled
    # What it is worth rests on all steps, and so does what the page of the job says of it.
    assert at.selectbox(key="window").value == "all"


@pytest.mark.usefixtures("year")
def test_days_and_comparison_live_in_the_link(show: Show, text_of: Text, lake: Any) -> None:
    chosen = {"from": "2026-11-01", "to": "2026-11-28"}
    at = show(price="2.0", compare_to="year before", **chosen)
    assert not at.exception
    first_us, last_us = days_of(*(read_day(text, "") for text in chosen.values()))
    view = executive_view(
        open_workspace(lake.root),
        price=Decimal(2),
        first_us=first_us,
        last_us=last_us,
        compare_to="year",
    )
    said = text_of(at)
    assert view.sentence in said
    assert "chosen days vs same days a year before (2025-11-01 to 2025-11-28)" in said
    assert said.count("so without a change: Spend, ") == 1
    at.selectbox(key="compare_to").set_value("days before").run()
    assert "previous 4 weeks (2026-10-04 to 2026-10-31)" in text_of(at)
    assert values(at)["Spend"][1].startswith("+")
    at.selectbox(key="compare_to").set_value("nothing").run()
    assert not values(at)["Spend"][1]
    at.selectbox(key="compare_to").set_value("days of my own").run()
    assert not at.exception
    at.date_input(key="compare_from").set_value(datetime(2026, 10, 1).date())
    at.date_input(key="compare_until").set_value(datetime(2026, 10, 28).date())
    at.run()
    assert "vs 2026-10-01 to 2026-10-28" in text_of(at)
    # The whole bill is of the same days.
    (groups,) = [f.value for f in at.dataframe if "scheduling_ratio" in f.value.columns]
    assert groups["gpu_hours"].sum() == pytest.approx(28 * 160 + 256 * 20, abs=1)


@pytest.mark.usefixtures("year")
def test_a_link_with_days_that_cannot_be_says_so(show: Show, text_of: Text) -> None:
    at = show(price="2.0", **{"from": "2026-11-20", "to": "2026-11-01"})
    assert not at.exception
    assert "2026-11-01 is before 2026-11-20" in text_of(at)


@pytest.mark.usefixtures("year")
def test_a_period_without_data_says_what_to_connect(show: Show, text_of: Text) -> None:
    at = show(price="2.0", **{"from": "2024-01-01", "to": "2024-01-31"})
    assert not at.exception
    said = text_of(at)
    assert "No job is known to have held a device in 2024-01-01 to 2024-01-31" in said
    assert "steptax ingest focus FILE" in said
    assert {value for title, (value, _) in values(at).items() if title in TITLES} == {"unknown"}


@pytest.mark.usefixtures("year")
def test_weeks_variance_anomalies_and_showback(show: Show, text_of: Text, figures: Figures) -> None:
    at = show(price="2.0")
    said = text_of(at)
    names = [{t.get("name") for t in f["spec"]["data"]} for f in figures(at)]
    assert any({"spend"} <= own for own in names)
    bars = [
        labels
        for f in figures(at)
        if (labels := f["spec"]["layout"].get("yaxis", {}).get("ticktext"))
    ]
    (effects,) = [labels for labels in bars if labels[0].startswith("before")]
    assert [label.split("<br>")[0] for label in effects] == [
        "before",
        "price",
        "volume",
        "efficiency",
        "now",
    ]
    (odd,) = [f.value for f in at.dataframe if "driver" in f.value.columns]
    whole = odd[odd["scope"] == "all jobs"].iloc[0]
    assert whole["first_day"] == "2026-11-20"
    assert "job huge" in whole["driver"]
    assert whole["owner"] == "eve"
    assert "at least 14 days are needed" in said
    at.segmented_control(key="showback").set_value("cluster").run()
    assert not at.exception
    (groups,) = [
        f.value for f in at.dataframe if {"cluster", "recoverable_usd"} <= {*f.value.columns}
    ]
    by_cluster = groups.set_index("cluster")["spend_usd"]
    assert by_cluster["east"] == 2 * (42 * 80 + 28 * 160 + 20 * 256)
    assert "held by no job: no provider's bill is connected" in text_of(at)


@pytest.mark.usefixtures("year")
def test_the_waterfall_is_of_all_that_was_paid_or_of_the_recorded_steps(
    show: Show, text_of: Text, figures: Figures
) -> None:
    def paid(at: AppTest) -> str:
        labels = [
            labels
            for f in figures(at)
            if (labels := f["spec"]["layout"].get("yaxis", {}).get("ticktext"))
        ]
        return next(str(label) for own in labels for label in own if label.startswith("paid"))

    at = show(price="2.0")
    assert "$25.9k" in paid(at) or "$25,9" in paid(at)
    at.segmented_control(key="ledger_of").set_value("recorded steps").run()
    assert not at.exception
    assert "$0.0" in paid(at)
    assert "the buckets add up to it exactly" in text_of(at)


def test_a_run_under_way_and_what_runs_learn(add: Add, show: Show, text_of: Text) -> None:
    add("worker")
    add(
        "jobs",
        kind="jobs",
        text="job_id,state,start,gpus,target_steps\nworker,running,2026-11-28T21:06:40Z,8,120\n",
    )
    at = show(price="2.0")
    assert not at.exception
    (runs,) = [f.value for f in at.dataframe if "target_steps" in f.value.columns]
    assert runs[["done_steps", "target_steps"]].to_numpy().tolist() == [[60, 120]]
    assert runs["at_end_usd"].iloc[0] > 0
    (learned,) = [f.value for f in at.dataframe if "usd_per_loss" in f.value.columns]
    assert list(learned["job_id"]) == ["worker"]
    assert "Assumes that the steps that are left" in text_of(at)
