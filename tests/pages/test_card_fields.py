"""The card says every field, and why it cannot where it cannot; names are registered metrics."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from steptax.app.charts.card import Field, about_text, basis_text, card_fields, value_text
from steptax.app.charts.focus import (
    focus,
    job_time_unit,
    stopped_lines,
    timeline_ranks,
    title_of,
)
from steptax.app.compute.measure import Level, Measure
from steptax.app.lake import Lake
from steptax.app.metrics import METRICS, help_of
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.models import StoppedRank
from steptax.app.views.workspace import open_workspace


@pytest.fixture
def view(lake: Lake, add: Callable[..., None]) -> JobView:
    add("worker")
    return job_view(open_workspace(lake.root), "worker", price=Decimal("2.00"))


def by_key(fields: tuple[Field, ...]) -> dict[str, Field]:
    return {field.key: field for field in fields}


def test_every_line_of_the_card(view: JobView) -> None:
    fields = by_key(card_fields(view))
    wanted = (
        "job_utilisation straggler_tax dominant_cause culprit scope phase excess persistence "
        "stability probable_cause cost next_action level"
    )
    assert set(wanted.split()) <= set(fields)
    assert fields["culprit"].text == "rank 5"
    assert "node-1" in fields["culprit"].detail
    assert "S = 1." in fields["job_utilisation"].detail
    assert fields["cost"].text.startswith("$")
    assert "/day" in fields["cost"].text
    assert "/h" in fields["cost"].detail
    assert not any(field.is_missing for field in fields.values())


def test_a_number_brings_its_interval_its_evidence_and_its_formula(view: JobView) -> None:
    excess = by_key(card_fields(view))["excess"]
    low, high = view.card.excess_ms.low, view.card.excess_ms.high
    assert low is not None
    assert high is not None
    assert f"({low:.1f}–{high:.1f})" in excess.text
    assert "L2 per-rank phases" in excess.detail
    assert excess.help == help_of("excess_ms")


def test_what_is_missing_gives_its_reason_in_place_of_a_number(view: JobView) -> None:
    missing = Measure.missing("ms", "no phase was measured")
    card = replace(view.card, excess_ms=missing, culprit_scope=None, cost_per_day_usd=missing)
    fields = by_key(card_fields(replace(view, card=card)))
    assert fields["excess"].text == "unknown: no phase was measured"
    assert fields["cost"].is_missing
    assert fields["scope"].is_missing


def test_without_a_culprit_there_is_no_rank_line(view: JobView) -> None:
    fields = by_key(card_fields(replace(view, card=replace(view.card, culprit_rank=None))))
    assert not {"culprit", "scope", "phase"} & set(fields)


@pytest.mark.parametrize("kind", ["moving", "none", "untellable"])
def test_without_a_culprit_no_cause_is_called_probable(view: JobView, kind: str) -> None:
    assert by_key(card_fields(view))["probable_cause"].label == "probable cause"
    calm = replace(view, card=replace(view.card, verdict=kind, culprit_rank=None))
    assert by_key(card_fields(calm))["probable_cause"].label == "cause"
    assert "probable" not in card_as_text(calm)
    stage = replace(view, card=replace(view.card, verdict="stage", culprit_rank=None))
    assert by_key(card_fields(stage))["probable_cause"].label == "probable cause"


def test_many_culprits_are_counted(view: JobView) -> None:
    card = replace(view.card, culprit_ranks=tuple(range(5, 105)))
    detail = by_key(card_fields(replace(view, card=card)))["culprit"].detail
    assert "also 6, 7, 8, 9, 10, 11 and 93 more" in detail


def test_every_metric_of_a_job_is_registered_with_its_unit(view: JobView) -> None:
    for name, measure in view.metrics.items():
        assert METRICS[name].unit == measure.unit, name
        assert METRICS[name].formula
        assert name in METRICS[name].help
    assert help_of("no_such_metric") is None


def test_what_stands_with_a_number() -> None:
    measure = Measure(0.123, "ratio", 0.11, 0.13, Level.PHASES, warnings=("an estimate",))
    assert value_text(measure) == "12.3 %"
    assert basis_text(measure) == "11.0–13.0 · L2 per-rank phases"
    about = about_text(measure, "straggler_tax_ratio", "more")
    assert about.startswith("12.3000 %\n\nmore\n\n")
    assert "metric straggler_tax_ratio" in about
    assert about.endswith("an estimate")
    hours = Measure(4.48, "GPU-hours")
    assert (value_text(hours), value_text(hours, "GPU-hours")) == ("4.48 GPU-hours", "4.48")
    missing = Measure.missing("USD", "no price is set")
    assert (value_text(missing), basis_text(missing)) == ("unknown", "no price is set")


def test_focus_follows_the_reader_then_the_culprit(view: JobView) -> None:
    assert focus(view, 3, 7) == (3, 7)
    assert focus(view, None, None) == (5, view.card.slow_steps[0])
    calm = replace(view, card=replace(view.card, culprit_rank=None, slow_steps=()), ranks=())
    assert focus(calm, None, None) == (None, view.window.last_step)
    assert timeline_ranks(view, 3) == (3, 5)
    assert timeline_ranks(view, 5) == (5,)


def test_the_title_names_what_is_known(view: JobView) -> None:
    assert title_of(view).endswith("8 ranks")
    header = replace(view.header, name="llama", gpu_model="H100", attempt=2, time_basis="relative")
    named = replace(view, header=header)
    assert title_of(named).startswith("llama · H100")
    assert "attempt 2 · normalised times" in title_of(named)
    assert (job_time_unit(view), job_time_unit(named)) == ("ms", "units")


def test_many_stopped_ranks_are_counted(view: JobView) -> None:
    stopped = tuple(StoppedRank(r, None, None, None, None, f"rank {r} stopped") for r in range(9))
    many = replace(view, coverage=replace(view.coverage, stopped=stopped))
    assert stopped_lines(many)[-1] == "and 5 more ranks"
    assert len(stopped_lines(many)) == 5
    assert stopped_lines(view) == ()


def test_the_copied_card_says_of_what_it_is(view: JobView) -> None:
    text = card_as_text(view, link="https://pages/job?job=worker", lake="/data/lake")
    lines = dict(line.split("  ", 1) for line in text.splitlines())
    assert lines["page"].strip() == "https://pages/job?job=worker"
    assert lines["lake"].strip() == "/data/lake"
    assert re.search(r"^0 to \d+, the newest ended 2026-.* UTC$", lines["steps"].strip())
    assert "/data" not in card_as_text(view)
