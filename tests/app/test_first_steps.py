"""What is said of a running job before it has the steps that tell why a rank is slow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steptax.app.views.job.first_steps import (
    FIRST_STEPS,
    FIRST_STEPS_READ,
    demo_text,
    first_steps_text,
    held_back,
)
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace
from tests.app.test_card_standing import lake as lake  # the fixture
from tests.app.test_card_standing import store


@pytest.fixture
def view(lake: Any) -> JobView:
    """Rank 5 computes longer than its peers for a reason that nothing recorded tells."""
    more = np.zeros((60, 8))
    more[:, 5] = 100_000.0
    store(lake, "a", more)
    return job_view(open_workspace(lake.root), "a", price=None)


def early(view: JobView) -> str | None:
    return first_steps_text(replace(view.coverage, is_live=True), view.window)


def test_a_running_job_tells_who_and_not_yet_why(view: JobView) -> None:
    assert "device, host or kernel" in view.card.probable_cause
    said = early(view)
    assert said is not None
    assert "60 so far" in said
    held = held_back(view.card, said)
    assert held.culprit_rank == 5
    assert held.sentence == view.card.sentence
    assert "not told yet" in held.probable_cause
    assert "collect device samples" not in held.next_action
    assert not held.would_settle


def test_a_job_that_is_over_or_long_enough_has_its_verdict(view: JobView) -> None:
    assert first_steps_text(view.coverage, view.window) is None
    long = replace(view.window, stored_last_step=view.window.stored_first_step + FIRST_STEPS - 1)
    assert first_steps_text(replace(view.coverage, is_live=True), long) is None
    assert held_back(view.card, None) == view.card


def test_a_cause_that_is_named_is_told_at_once(view: JobView) -> None:
    named = replace(view.card, probable_cause="sequence-length imbalance (confidence 90 %)")
    assert held_back(named, early(view)) == named


@pytest.mark.parametrize(
    ("name", "says"),
    [("demo (sequence)", "made slow on purpose"), ("demo (none)", "none of them is made slow")],
)
def test_the_demo_says_what_it_is_and_what_to_read(view: JobView, name: str, says: str) -> None:
    text = demo_text(replace(view.header, framework="steptax-demo numpy", name=name))
    assert text is not None
    assert says in text
    assert "Read the sentence first" in text
    assert demo_text(view.header) is None


def test_what_takes_its_place_is_as_long_as_what_said_it(view: JobView) -> None:
    said = early(view)
    assert said is not None
    assert str(FIRST_STEPS) in FIRST_STEPS_READ
    assert abs(len(FIRST_STEPS_READ) - len(said)) <= 8
