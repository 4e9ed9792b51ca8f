"""Reference figures: complete, marked, and computed where they follow from others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from steptax.app.charts.reference_tables import reference_table
from steptax.app.reference import STUDIES, ReferenceFigure, computed, studies
from steptax.app.reference_figures import reference_figures

FIGURES = reference_figures()


def one(study: str, words: str) -> ReferenceFigure:
    found = [f for f in FIGURES if f.study == study and words in f.figure]
    assert len(found) == 1, words
    return found[0]


def follows(figure: ReferenceFigure) -> str:
    return "\n".join(made.text for made in figure.follows)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f"{f.study}-{f.figure[:24]}")
def test_every_figure_has_value_scope_and_source(figure: ReferenceFigure) -> None:
    assert figure.value
    assert figure.scope
    assert figure.mark in {"primary", "second-hand"}
    study = studies()[figure.study]
    assert study.cluster
    assert re.search(r"arXiv:\d{4}\.\d{5}", study.citation)
    for quote in figure.misquotes:
        assert quote.right.endswith(".")


def test_every_study_has_figures_and_two_are_of_stragglers() -> None:
    assert {study.key for study in STUDIES} == {figure.study for figure in FIGURES}
    pair = [study for study in STUDIES if study.is_straggler_study]
    assert len(pair) == 2
    assert "dedicated" in pair[0].cluster
    assert "shared" in pair[1].cluster
    assert pair[0].cluster != pair[1].cluster


def test_slowdown_is_not_waste() -> None:
    longer = one("wu2024", "longer completion of large jobs")
    assert longer.value.startswith("34.59 %")
    assert "25.7 % of GPU time" in follows(longer)
    assert "$491,520 to $860,160" in follows(longer)
    assert "$589,824 to $1,032,192" in follows(longer)
    probes = follows(one("wu2024", "longer completion of small probes"))
    assert "10.5 %" in probes
    assert "13.4 %" in probes
    assert "33.3 %" in follows(one("wu2024", "delayed by more than half"))


def test_a_small_sample_has_its_interval() -> None:
    large = one("wu2024", "large jobs with a fail-slow")
    assert large.value == "16 of 27"
    assert "59.3 % (38.8 % to 77.6 %, 95 %)" in follows(large)
    assert "network" in large.misquotes[0].right


def test_the_other_cluster_has_other_figures() -> None:
    assert one("lin2025", "10 % or more").value == "42.5 % of jobs"
    assert one("lin2025", "GPU time").value == "10.4 % of all allocated GPU-hours"
    worst = one("lin2025", "worst jobs")
    assert "45.0 % or more" in worst.value
    assert "as much as 45 %" in worst.misquotes[0].said
    assert "67.1 %" in follows(one("lin2025", "slow workers"))


def test_llama_3_is_counted_not_copied() -> None:
    assert "3.09 h" in follows(one("llama3", "unexpected interruptions"))
    assert "50,677 h" in follows(one("llama3", "unexpected interruptions"))
    assert "2.78 h" in follows(one("llama3", "planned ones included"))
    assert "35.3 %" in follows(one("llama3", "a faulty GPU"))
    assert one("llama3", "a faulty GPU").misquotes[0].said == "30.1 %"
    assert "64.0 %" in follows(one("llama3", "anything of the GPU"))
    assert "78.3 %" in follows(one("llama3", "suspected hardware"))
    assert "40.4 %" in one("llama3", "MFU").misquotes[0].right


def test_implicit_failures_hang() -> None:
    said = follows(one("byterobust", "failures"))
    assert "90.3 %" in said
    assert "0.8 %" in said
    assert one("byterobust", "effective training").value == "up to 97 %"


def test_what_others_quote_is_marked() -> None:
    second = [figure for figure in FIGURES if figure.mark == "second-hand"]
    assert [figure.value for figure in second] == ["2.4 to 4.75 %"]
    gain = one("stragglar", "all-reduce")
    assert "1.36×" in follows(gain)
    assert "1.94×" in follows(gain)


def test_what_could_not_be_verified_is_not_there() -> None:
    text = "\n".join(str(figure) for figure in FIGURES).lower()
    for words in (
        "host 535",
        "number 6",
        "232",
        "human oversight",
        "ziteng",
        "16,383",
        "94 of 100",
    ):
        assert words not in text


@pytest.mark.parametrize(
    "made",
    [made for figure in FIGURES for made in figure.follows],
    ids=lambda made: made.text[:40],
)
def test_what_follows_is_what_the_command_says(made: Any, steptax: Callable[..., Any]) -> None:
    words = shlex.split(made.command)
    assert words[:2] == ["steptax", "calc"]
    printed = steptax(*words[1:])["measures"]
    shown = {
        f"{value * scale:,.{digits}f}"
        for measure in printed.values()
        for value in (measure["value"], measure["low"], measure["high"])
        if value is not None
        for scale in (1, 100)
        for digits in (0, 1, 2)
    }
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", made.text)
    assert any(number in shown for number in numbers), (numbers, shown)


def test_a_measure_that_is_not_there_cannot_be_shown() -> None:
    with pytest.raises(KeyError):
        computed("waste", "delight", "{}", slowdown=1.1)


def test_the_table_holds_everything() -> None:
    made = reference_table(FIGURES)
    assert len(made.rows) == len(FIGURES)
    text = made.csv()
    assert "25.7 %" in text
    assert "steptax calc waste --slowdown 1.3459" in text
    assert "Lin et al., OSDI'25, arXiv:2505.05713, section 4.4" in text
    assert "second-hand" in text
