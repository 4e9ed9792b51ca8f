"""Findings of a job as the card, the command and the page show them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.cli import main
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.lake import Lake
from steptax.app.views.job.actions import next_action
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.causes import finding_details, findings_lines, findings_note
from steptax.app.views.job.load import load_job
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace
from tests.app.device_lake import HOT, STEPS, hot, store_ranks, store_samples, store_steps

ACTION = "check fans, coolant and airflow of that node; move the rank meanwhile"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(tmp_path / "lake", create=True)
    store_steps(found, "a")
    store_ranks(found, "a")
    return found


def view(lake: Lake, price: str | None = "3.60") -> JobView:
    cost = None if price is None else Decimal(price)
    return job_view(open_workspace(lake.root), "a", price=cost)


def test_a_hot_device_is_named_on_the_card(lake: Lake) -> None:
    store_samples(lake)
    got = view(lake)
    card = got.card
    assert card.culprit_rank == HOT
    assert card.probable_cause == "the device is slowed down by heat (confidence 95 %)"
    assert card.confidence == 0.95
    assert any("sw_thermal" in text for text in card.evidence_for)
    assert any("1,218 MHz" in text for text in card.evidence_for)
    assert card.next_action == ACTION
    first = executive_view(open_workspace(lake.root), price=Decimal("3.60")).fix_first
    assert first is not None
    assert first.action == ACTION
    assert "slowed down by heat (confidence 95 %)" in card_as_text(got)
    (one,) = got.findings
    assert (one.scope, one.ranks, one.cause.cause) == ("ranks", (HOT,), "thermal")
    assert (one.first_step, one.last_step, one.is_open) == (0, STEPS - 1, True)
    assert one.excess_ms == pytest.approx(200, abs=5)
    # A fifth of 60 s on 8 GPUs at $3.60 an hour.
    assert one.lost.value == pytest.approx(0.2, abs=0.01)
    assert one.cost_usd.value == pytest.approx(0.2 * 8 * 60 * 0.001, abs=0.005)


def test_without_a_finding_the_test_of_the_device_is_a_command_that_runs(lake: Lake) -> None:
    ws = open_workspace(lake.root)
    loaded = load_job(ws, ws.job("a"), last_steps=None)
    told = next_action(analyse_stragglers(loaded.matrix), (), "job a")
    assert "steptax bench suspect --job 'job a' prints" in told


def test_without_samples_the_card_abstains_and_says_what_would_settle_it(lake: Lake) -> None:
    card = view(lake).card
    assert card.culprit_rank == HOT
    assert card.probable_cause.startswith("cause not named: ")
    assert card.confidence is None
    assert any("samples of the devices" in text for text in card.would_settle)


def test_samples_of_another_job_s_devices_are_no_evidence(lake: Lake) -> None:
    store_samples(lake, devices=range(HOT))
    card = view(lake).card
    assert card.confidence is None
    assert any("none" in text or "samples" in text for text in card.would_settle)


def test_a_device_that_was_as_hot_on_every_rank_is_no_cause(lake: Lake) -> None:
    store_samples(lake, dict.fromkeys(range(8), hot))
    assert view(lake).card.confidence is None


def test_without_a_price_the_cost_says_why(lake: Lake) -> None:
    store_samples(lake)
    (one,) = view(lake, None).findings
    assert one.lost.value is not None
    assert one.cost_usd.value is None
    assert one.cost_usd.reason
    details = dict(finding_details(one))
    assert details["costs"].endswith("of the paid time")
    assert details["against"] == "nothing that is recorded"


def test_the_command_prints_the_finding_with_its_evidence(
    lake: Lake,
    steptax: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store_samples(lake)
    data = steptax("job", "a")
    (one,) = data["findings"]
    assert (one["cause"]["cause"], one["cause"]["confidence"]) == ("thermal", 0.95)
    assert one["cause"]["would_settle"]
    assert data["no_findings"] is None
    assert data["card"]["confidence"] == 0.95
    monkeypatch.setattr(sys, "argv", ["steptax", "job", "a"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Why it is slow" in text
    assert f"rank {HOT}: +200 ms (20 % of a slow step), step 0 to 59, still going on" in text


def test_a_finding_has_the_same_size_however_many_steps_are_looked_at(lake: Lake) -> None:
    (one,) = view(lake).findings
    assert "still going on" in one.sentence
    # The usual step of a window in which all are slow is a slow one; the excess is of those anyway.
    assert replace(one, excess_ratio=0.5).brief == one.brief
    lake.append("jobs", pa.table({"job_id": ["a"], "state": ["completed"]}), source="end")
    (over,) = view(lake).findings
    assert over.is_open
    assert over.brief == one.brief.replace("still going on", "until the job ended")


def test_a_level_job_has_nothing_to_explain(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "level", create=True)
    store_steps(lake, "a", slow=None)
    got = view(lake)
    assert got.findings == ()
    assert findings_lines(got.findings, got.no_findings) == ["nothing slow was found"]
    assert findings_lines((), "why not") == ["nothing to explain: why not"]


def test_slow_stretches_that_come_and_go_are_counted_in_the_sentence(lake: Lake) -> None:
    store_samples(lake)
    (one,) = view(lake).findings
    assert "steps" not in one.sentence
    row = replace(one, in_steps=(40, 1355))
    assert "step 0 to 59, in 40 of 1,355 steps, still going on: " in row.sentence


def test_the_page_says_how_many_are_not_listed() -> None:
    assert "2 more" in findings_note(10, 8)
    assert "more" not in findings_note(8, 8)
