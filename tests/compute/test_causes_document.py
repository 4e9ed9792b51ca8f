"""The policy document states the thresholds and the causes that the code has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from steptax.app.compute.causes.model import CAUSE_TEXTS, Cause
from steptax.app.compute.causes.policy import NAMED_WHEN, named_when
from steptax.app.compute.straggler import quiet_failures
from steptax.app.compute.straggler.rules import (
    CauseRules,
    Confidences,
    EpisodeRules,
    RecurringRules,
    StragglerRules,
)

GROUPS = (StragglerRules, EpisodeRules, RecurringRules, CauseRules, Confidences)

DOCUMENT = Path(__file__).parents[2] / "docs" / "causes.md"
ROW = re.compile(r"^\| `(\w+)\.(\w+)` \| ([^|]+) \|", re.MULTILINE)
CAUSE_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def stated() -> dict[tuple[str, str], str]:
    rows = ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    return {(group, name): value.strip() for group, name, value in rows}


@pytest.mark.parametrize("group", GROUPS)
def test_every_threshold_is_stated_with_its_value(group: type) -> None:
    said = {name: value for (of, name), value in stated().items() if of == group.__name__}
    held = {f.name: getattr(group(), f.name) for f in fields(group)}
    assert said.keys() == held.keys()
    for name, value in held.items():
        numbers = value if isinstance(value, tuple) else (value,)
        assert [float(part) for part in said[name].split(",")] == list(numbers), name


def test_the_thresholds_of_the_quiet_failures_are_stated_with_their_values() -> None:
    said = {name: float(value) for (of, name), value in stated().items() if of == "quiet_failures"}
    held = {n: v for n, v in vars(quiet_failures).items() if n.isupper() and not n.startswith("_")}
    held.pop("US_PER_S")
    assert said == held


def test_every_cause_is_described_in_the_words_of_the_product() -> None:
    rows = {row[0]: row[1:] for row in CAUSE_ROW.findall(DOCUMENT.read_text(encoding="utf-8"))}
    assert rows.keys() == {cause.value for cause in Cause}
    for cause, text in CAUSE_TEXTS.items():
        title, when, settle = rows[cause.value]
        assert (title, settle) == (text.title, text.settle)
        assert when.strip() == NAMED_WHEN[cause]


def test_a_threshold_is_told_with_the_value_that_holds() -> None:
    told = named_when(Cause.THERMAL)
    assert f"at least throttled_ratio ({CauseRules().throttled_ratio:g}) of the time" in told
    assert "sw_thermal, hw_thermal or hw_slowdown" in told
    held = {f.name for group in GROUPS for f in fields(group)}
    for cause in Cause:
        text = named_when(cause)
        assert "`" not in text
        for name in held & set(re.findall(r"[a-z]+(?:_[a-z]+)+", text)):
            assert f"{name} (" in text


def test_thresholds_that_the_text_names_exist() -> None:
    held = {f.name for group in GROUPS for f in fields(group)}
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:StragglerRules\.)?([a-z]+(?:_[a-z]+)+)`", text))
    signals = {"sw_thermal", "hw_thermal", "hw_slowdown", "sw_power_cap", "hw_power_brake"}
    assert named - held - signals - {cause.value for cause in Cause} == set()
