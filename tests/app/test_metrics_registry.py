"""Every metric is documented, used and tested, and a share that cannot be is never shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.traps import traps_of
from steptax.app.errors import IntegrityError
from steptax.app.metrics import METRICS, check_metric, check_metrics

ROOT = Path(__file__).resolve().parents[2]
SHARES = sorted(name for name, spec in METRICS.items() if spec.is_share)
#: Where a metric meets a reader.
SURFACES = ("app/views", "app/charts", "app/commands", "app/report", "pages")


@cache
def words(*folders: str) -> frozenset[str]:
    """Every quoted or dotted word of the sources in ``folders``."""
    found: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if path != Path(__file__).resolve():
                found.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
    return frozenset(found)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented(name: str) -> None:
    spec = METRICS[name]
    assert spec.id == name
    for text in (spec.title, spec.formula, spec.unit, spec.doc):
        assert text.strip() == text
        assert len(text) > 0
    assert len(spec.doc.split()) >= 5
    assert spec.doc.endswith(".")
    assert spec.title[0].isupper()
    assert {spec.formula, spec.doc, f"metric {name}"} <= set(spec.help.split("\n\n"))


@pytest.mark.parametrize(
    "name", ["mfu_ratio", "goodput_ratio", "straggler_tax_ratio", "slowdown_ratio", "spend_usd"]
)
def test_how_a_metric_misleads_stands_beside_it(name: str) -> None:
    traps = traps_of(name)
    assert traps
    for trap in traps:
        assert trap.text in METRICS[name].help


@pytest.mark.parametrize("name", METRICS)
def test_the_unit_stands_in_the_name(name: str) -> None:
    unit = METRICS[name].unit
    suffix = {
        "ratio": "_ratio", "x": "_ratio", "ms": "_ms", "us": "_us", "GPU-hours": "gpu_hours",
        "USD": "usd", "d": "_d", "USD/h": "_usd_per_hour", "USD/day": "_usd_per_day",
    }[unit]  # fmt: skip
    assert name.endswith(suffix) or name.startswith("usd_per_")


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_used_where_a_reader_meets_it(name: str) -> None:
    assert name in words(*SURFACES)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_tested(name: str) -> None:
    assert name in words("tests")


@pytest.mark.parametrize("name", SHARES)
def test_every_share_says_of_what_it_is_one(name: str) -> None:
    formula = METRICS[name].formula
    others = "|".join(re.escape(METRICS[other].title.lower()) for other in METRICS)
    assert "/" in formula or re.search(others, formula.lower()), formula


@pytest.mark.parametrize("name", SHARES)
@given(value=st.one_of(st.floats(-1e6, -1e-6), st.floats(1 + 1e-6, 1e6)))
def test_a_share_outside_of_its_whole_never_reaches_a_page(name: str, value: float) -> None:
    with pytest.raises(IntegrityError) as caught:
        check_metric(name, Measure(value, METRICS[name].unit))
    assert caught.value.where == name
    assert "0..1" in caught.value.message
    with pytest.raises(IntegrityError, match=r"0\.\.1"):
        Ratio(value)
    with pytest.raises(IntegrityError):
        check_metric(name, Measure(0.5, "ratio", low=0.4, high=max(value, 1.5)))


@pytest.mark.parametrize("name", SHARES)
@given(value=st.floats(0, 1))
def test_a_share_of_its_whole_does(name: str, value: float) -> None:
    measure = Ratio(value, low=0.0, high=1.0, level=Level.PHASES)
    assert check_metric(name, measure) is measure
    missing = Ratio.missing("ratio", "nobody measured it")
    assert check_metrics({name: missing}) == {name: missing}


def test_an_mfu_above_the_peak_and_a_negative_share_are_refused() -> None:
    with pytest.raises(IntegrityError, match="MFU"):
        check_metrics({"mfu_ratio": Measure(1.4, "ratio")})
    with pytest.raises(IntegrityError, match="Goodput"):
        check_metrics({"goodput_ratio": Measure(-0.01, "ratio")})


def test_what_may_exceed_its_base_is_no_share() -> None:
    assert {n for n, s in METRICS.items() if s.unit == "ratio"} - set(SHARES) == {
        "excess_step_ratio",
        "unexplained_ratio",
    }
    check_metric("excess_step_ratio", Measure(1.7, "ratio"))
    check_metric("unexplained_ratio", Measure(-0.02, "ratio"))


@pytest.mark.parametrize("unit", ["%", "percent"])
def test_a_percentage_without_base_is_refused(unit: str) -> None:
    with pytest.raises(IntegrityError, match="of what"):
        Measure(34.59, unit)


def test_another_unit_and_an_unknown_metric_are_refused() -> None:
    with pytest.raises(IntegrityError, match="is in ms, not us"):
        check_metric("step_ms", Measure(1.0, "us"))
    with pytest.raises(IntegrityError, match="not registered"):
        check_metric("velocity", Measure(1.0, "ratio"))


def test_a_faulty_metric_stops_the_job_command(
    steptax: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.csv"
    rows = [f"{step},{rank},{100 + rank}" for step in range(9) for rank in range(4)]
    path.write_text("step,rank,duration_ms\n" + "\n".join(rows))
    steptax("ingest", "steps", path, "--job", "job")
    monkeypatch.setattr(
        "steptax.app.views.job.view.job_metrics",
        lambda *_: {
            "straggler_tax_ratio": Measure(1.2, "ratio"),
            "window_gpu_hours": Measure.missing("GPU-hours", "nobody counted them"),
        },
    )
    error = steptax("job", "job", fails=1)
    assert error["kind"] == "IntegrityError"
    assert error["where"] == "straggler_tax_ratio"
