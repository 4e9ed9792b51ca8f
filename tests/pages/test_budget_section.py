"""Budget and objective on the Executive review: shown, set in the page, history kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.views.review.budget import budget_entries
from steptax.app.views.workspace import open_workspace

Add = Callable[..., None]
Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]

JOBS = """job_id,team,state,start,end,gpus
a,red,completed,2026-10-01T00:00:00Z,2026-10-03T00:00:00Z,10
b,blue,completed,2026-10-02T00:00:00Z,2026-10-05T00:00:00Z,5
"""


@pytest.fixture
def fleet(add: Add) -> None:
    add("usage", kind="jobs", text=JOBS)


@pytest.mark.usefixtures("fleet")
def test_a_budget_is_set_in_the_page(show: Show, text_of: Text, lake: Lake) -> None:
    at = show(price="2.0", period="2026-10")
    assert not at.exception
    assert "All jobs spent $1,680 in 2026-10, and no budget is set" in text_of(at).replace("\\", "")
    at.number_input(key="budget_usd").set_value(2000.0)
    at.number_input(key="budget_slo").set_value(0.9)
    at.text_input(key="budget_by").set_value("ada")
    at.text_input(key="budget_note").set_value("first try")
    next(b for b in at.button if b.label.startswith("Set for all")).click()
    at.run()
    assert not at.exception
    (entry,) = budget_entries(open_workspace(lake.root))
    assert (entry.budget_usd, entry.set_by, entry.note) == (2000, "ada", "first try")
    said = text_of(at).replace("\\", "")
    assert "of $2,000 in 2026-10" in said
    (history,) = [f.value for f in at.dataframe if "set_by" in f.value.columns]
    assert list(history["set_by"]) == ["ada"]


@pytest.mark.usefixtures("fleet")
def test_a_budget_without_a_name_is_refused(show: Show, lake: Lake, text_of: Text) -> None:
    at = show(price="2.0", period="2026-10")
    at.number_input(key="budget_usd").set_value(2000.0)
    next(b for b in at.button if b.label.startswith("Set for all")).click()
    at.run()
    assert not at.exception
    assert "a budget needs who set it" in text_of(at)
    assert not budget_entries(open_workspace(lake.root))


@pytest.mark.usefixtures("fleet")
def test_a_scope_and_a_period_from_the_link(show: Show, text_of: Text) -> None:
    at = show(price="2.0", period="2026-10", scope="team:red")
    assert "team red spent $960" in text_of(at).replace("\\", "")
    at = show(price="2.0", period="soon")
    assert not at.exception
    assert "there is no period" in text_of(at)
    at = show(price="2.0")
    this_month = f"{datetime.now(UTC):%Y-%m}"
    assert f"All jobs in {this_month}: spend is not known" in text_of(at).replace("\\", "")
