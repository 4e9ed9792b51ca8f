"""The whole bill on the executive page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace

Add = Callable[..., None]
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]

USAGE = """job_id,team,project,state,start,end,gpus
late,red,x,completed,2026-10-31T12:00:00Z,2026-11-01T12:00:00Z,8
plain,blue,x,completed,2026-11-02T00:00:00Z,2026-11-02T06:00:00Z,8
open,,y,running,2026-11-02T00:00:00Z,,8
"""


@pytest.fixture
def fleet(add: Add) -> None:
    add("worker")
    add("usage", kind="jobs", text=USAGE)


def groups(at: AppTest) -> Any:
    """The table of groups, by name."""
    (found,) = [f.value for f in at.dataframe if "scheduling_ratio" in f.value.columns]
    return found.set_index("name")


def bars(figures: Figures, at: AppTest) -> dict[str, Any]:
    (found,) = [
        f
        for f in figures(at)
        if {"straggler wait", "unexplained"} & {t.get("name") for t in f["spec"]["data"]}
    ]
    return dict(found["spec"])


@pytest.mark.usefixtures("fleet")
def test_by_team_at_first(show: Show, text_of: Text, figures: Figures) -> None:
    at = show(price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "The whole bill" in said
    assert "paid time" in said
    assert "Not reconciled: no bill is connected" in said
    table = groups(at)
    assert table.loc["red", "gpu_hours"] == 192.0
    assert table.loc["red", "cost"] == 384.0
    assert table.isna().loc["red", "goodput_ratio"]
    assert table.loc["no team stated", "goodput_ratio"] > 0
    spec = bars(figures, at)
    assert spec["layout"]["barmode"] == "relative"
    names = {trace["name"] for trace in spec["data"]}
    assert "straggler wait" in names
    assert "unexplained" in names
    (reasons,) = [f.value for f in at.dataframe if list(f.value.columns) == ["job_id", "reason"]]
    assert list(reasons["job_id"]) == ["open"]


@pytest.mark.usefixtures("fleet")
def test_choices_live_in_the_url(show: Show, text_of: Text, figures: Figures) -> None:
    at = show(price="2.0", by="month", denominator="allocated", tz="Asia/Tokyo", bill_unit="%")
    assert not at.exception
    table = groups(at)
    # Noon to noon in UTC: three of 24 hours are October in Tokyo.
    assert table.loc["2026-10", "gpu_hours"] == 24.0
    assert "allocated time: what jobs held" in text_of(at)
    assert "Asia/Tokyo" in text_of(at)
    spec = bars(figures, at)
    assert spec["layout"]["yaxis"]["title"]["text"] == "% of allocated time"
    at.segmented_control(key="by").set_value("project").run()
    assert not at.exception
    assert set(groups(at).index) == {"x", "no project stated"}
    at.segmented_control(key="denominator").set_value("paid").run()
    assert "paid time: what jobs held" in text_of(at)


@pytest.mark.usefixtures("fleet")
def test_without_a_price_hours_are_drawn(show: Show) -> None:
    at = show()
    assert not at.exception
    assert at.segmented_control(key="bill_unit").options == ["GPU-hours", "%"]
    assert groups(at)["cost"].isna().all()


@pytest.mark.usefixtures("fleet")
def test_a_bill_is_reconciled_on_the_page(lake: Lake, show: Show, text_of: Text) -> None:
    def us(*moment: int) -> int:
        return int(datetime(*moment, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]

    shown = groups(show(price="2.0"))
    assert shown.loc["red", "cost"] == 384.0
    ranks = [{"job_id": "late", "rank": r, "host": "n"} for r in range(8)]
    lake.append("ranks", pa.Table.from_pylist(ranks), source="t")
    charges = [
        {
            "provider": "p",
            "invoice": "i",
            "line": str(k),
            "charge_start_us": us(2026, 10, 31),
            "charge_end_us": us(2026, 11, 2),
            "effective_cost": cost,
            "billed_cost": cost,
            "currency": "USD",
            "resource_id": resource,
        }
        for k, (cost, resource) in enumerate([(Decimal(100), "n"), (Decimal(25), "disk")])
    ]
    lake.append("charges", pa.Table.from_pylist(charges), source="t")
    at = show(price="2.0")
    assert not at.exception
    (table,) = [f.value for f in at.dataframe if "meaning" in f.value.columns]
    costs = table.set_index("part")["cost"]
    assert costs["effective"] == costs["jobs"] + costs["unallocated"] + costs["unexplained"] == 125
    assert costs["jobs"] == 50
    assert groups(at).loc["red", "cost"] == 50.0
    assert groups(at).loc["held by no job", "cost"] == 50.0
    assert "20.0 % of the effective cost is unexplained" in text_of(at)
    assert costs["jobs, by resource"] == 50
    (invoices,) = [f.value for f in at.dataframe if "by_category" in f.value.columns]
    assert invoices[["invoice", "charges", "billed"]].to_numpy().tolist() == [["i", 2, 125]]
    lake.append(
        "charges",
        pa.Table.from_pylist([charges[0] | {"line": "x", "currency": "EUR"}]),
        source="t",
    )
    broken = show(price="2.0")
    assert not broken.exception
    assert "charges are in EUR, USD" in text_of(broken)
    assert "Jobs by what can be won back" in text_of(broken)


def test_a_job_that_ends_before_it_starts_takes_nothing_away(add: Add, lake: Lake) -> None:
    add("usage", kind="jobs", text=USAGE)
    jobs = [{"job_id": "z", "start_us": 2 * 10**15, "end_us": 10**15, "world_size": 8}]
    lake.append("jobs", pa.Table.from_pylist(jobs), source="t")
    view = executive_view(open_workspace(lake.root), price=None)
    hours = {job.job_id: job.gpu_hours for job in view.jobs}
    assert hours["z"].value is None
    assert "before it starts" in (hours["z"].reason or "")
    assert "240 GPU-hours" in view.sentence


def test_without_a_price_jobs_rank_by_hours_that_can_be_won_back(add: Add, lake: Lake) -> None:
    add("a-short", steps=20)
    add("b-long", steps=80)
    view = executive_view(open_workspace(lake.root), price=None)
    assert [job.job_id for job in view.jobs] == ["b-long", "a-short"]
    assert view.jobs[0].recoverable_usd.value is None
    assert view.jobs[0].recoverable_gpu_hours.value
    assert "Fix first: job b-long, worth" in view.sentence
    assert "GPU-hours" in view.sentence.split("first: ")[1]
    priced = executive_view(open_workspace(lake.root), price=Decimal(2))
    assert [job.job_id for job in priced.jobs] == ["b-long", "a-short"]
