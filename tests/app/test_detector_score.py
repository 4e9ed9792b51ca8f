"""The detector's own score: what is shipped, what a lake holds, what is no score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steptax.app.charts.fleet_tables import score_groups_table, score_table
from steptax.app.errors import InputError
from steptax.app.views.job.detector_score import DETECTORS, FIGURES, detector_score


def test_the_score_that_is_shipped_was_measured(tmp_path: Path) -> None:
    score = detector_score(tmp_path)
    assert score.measured_at >= "2026-11-30"
    assert score.jobs > 100
    rows = {name: (target, values) for name, target, values in score.rows}
    assert set(rows) == set(FIGURES)
    for target, values in rows.values():
        assert set(values) == set(DETECTORS)
        assert target is None or values["steptax"] is not None
    assert f"measured {score.measured_at}" in score.sentence
    causes = rows["cause_accuracy"][1], rows["abstention"][1]
    for values in causes:  # Two of the three name no causes.
        assert [name for name, value in values.items() if value is None] == ["nvrx_style", "naive"]


def test_the_score_that_is_shipped_tells_each_noise_and_kind_of_job(tmp_path: Path) -> None:
    score = detector_score(tmp_path)
    by_name = {g.group: g for g in score.groups if g.detector == DETECTORS["steptax"]}
    assert {"comes and goes", "lost rows", "short window"} < set(by_name)
    assert sum("a healthy rank's steps vary by" in name for name in by_name) == 5
    # Where there is no fault there is no recall, and where all jobs have one no healthy step.
    assert by_name["short window"].rank_recall is None
    assert by_name["comes and goes"].alarms is None
    shown = score_groups_table(score)
    rows = [row[:2] for row in shown.rows]
    assert rows == [(name, detector) for name in by_name for detector in DETECTORS.values()]
    assert [column.key for column in shown.columns[:2]] == ["group", "detector"]
    harsh = {g.detector: g for g in score.groups if g.group.startswith("harsh")}
    # Recall alone would praise whoever names nearly everybody.
    best = max(harsh.values(), key=lambda g: g.rank_f1 or 0.0)
    assert best.detector == DETECTORS["steptax"]


def test_a_score_of_the_lake_comes_first(tmp_path: Path) -> None:
    mine = {
        "measured_at": "2027-01-02T00:00:00+00:00",
        "seeds": [1],
        "jobs": 7,
        "detectors": {name: {"rank_recall": 0.5, "rank_precision": 0.25} for name in DETECTORS},
    }
    (tmp_path / "detector_score.json").write_text(json.dumps(mine))
    score = detector_score(tmp_path)
    assert score.measured_at == "2027-01-02"
    assert "named 50.0 % of the slow ranks, and 25.0 % of those" in score.sentence


def test_what_a_detector_does_not_tell_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "detector_score.json").write_text(
        json.dumps(
            {
                "measured_at": "2027-01-02T00:00:00+00:00",
                "seeds": [1],
                "jobs": 7,
                "detectors": {
                    "steptax": {"rank_recall": None, "rank_precision": 1.0, "abstention": 0.5},
                    "nvrx_style": {"abstention": None},
                    "naive": {},
                },
            }
        )
    )
    score = detector_score(tmp_path)
    rows = {name: values for name, _, values in score.rows}
    assert rows["abstention"] == {"steptax": 0.5, "nvrx_style": None, "naive": None}
    assert "named an unknown share of the slow ranks, and 100.0 % of those" in score.sentence
    shown = score_table(score)
    place = [column.key for column in shown.columns].index("nvrx_style")
    named = {row[0]: row[place] for row in shown.rows}
    assert named[FIGURES["abstention"]] == ""
    own = {row[0]: row[place - 1] for row in shown.rows}
    assert own[FIGURES["abstention"]] == "50.0 %"


@pytest.mark.parametrize("text", ["", "[]", '{"detectors": {}}', '{"detectors": 3}'])
def test_what_is_no_score_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "detector_score.json").write_text(text)
    with pytest.raises(InputError, match="no score of the fault laboratory") as caught:
        detector_score(tmp_path)
    assert caught.value.where == str(tmp_path / "detector_score.json")
