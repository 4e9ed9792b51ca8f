"""Reference figures without a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.compute.causes.model import Cause
from steptax.app.reference import STUDIES
from steptax.app.reference_figures import reference_figures
from steptax.app.views.cause_policy import named_causes
from steptax.pages.cause_list import ALL, address

REFERENCE = "../pages/reference.py"

Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]


@pytest.mark.usefixtures("lake")
def test_it_needs_no_job(show: Show, text_of: Text) -> None:
    at = show(REFERENCE)
    assert not at.exception
    assert not at.error
    assert "disagree because their clusters differ" in text_of(at)


def test_all_figures_are_shown_with_their_mark(
    add: Callable[..., None], show: Show, text_of: Text
) -> None:
    add("worker")
    at = show(REFERENCE)
    assert not at.exception
    said = text_of(at).lower()
    for figure in reference_figures():
        assert figure.value.lower() in said
        for quote in figure.misquotes:
            assert quote.said.lower() in said
            assert quote.right.lower() in said
        for made in figure.follows:
            assert made.text.lower() in said
            assert made.command.lower() in said
    assert said.count("badge[primary]") == len(reference_figures()) - 1
    assert said.count("badge[second-hand]") == 1


@pytest.mark.usefixtures("lake")
def test_both_straggler_studies_stand_side_by_side(show: Show) -> None:
    at = show(REFERENCE)
    said = ["\n".join(m.value.replace("\\", "") for m in column.markdown) for column in at.columns]
    pair = [study for study in STUDIES if study.is_straggler_study]
    assert len(said) == len(pair) == 2
    for text, study in zip(said, pair, strict=True):
        assert study.name in text
        assert study.cluster in text


@pytest.mark.usefixtures("lake")
def test_every_cause_has_a_place_that_pages_lead_to(show: Show, text_of: Text) -> None:
    at = show(REFERENCE)
    anchors = {heading.anchor for heading in (*at.header, *at.subheader)}
    ids = [one.cause_id for one in named_causes()]
    assert ids == [cause.value for cause in Cause]
    assert {ALL.partition("#")[2], *(address(one).partition("#")[2] for one in ids)} <= anchors
    said = text_of(at)
    for one in named_causes():
        for name, text in one.lines:
            assert f"*{name}*: {text}" in said
