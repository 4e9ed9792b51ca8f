"""Every field of the results that were published with two real traces and four generated ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from steptax.app.whatif.analysis import Analysis, analyse, prepare
from steptax.app.whatif.published import published_effect, published_result
from steptax.app.whatif.trace import read_trace

Shared = Callable[[str], Path]

#: Trace, sizes, result, threshold, relative tolerance.
CASES = [
    ("trace-AR", "meta-AR", "result-AR", 1.03, 1e-6),
    ("trace-AR", "meta-AR", "result-AR-decompose-thres-1.0", 1.0, 1e-6),
    ("trace-ST", "meta-ST", "result-ST", 1.03, 1e-6),
    ("trace-ST", "meta-ST", "result-ST-decompose-thres-1.0", 1.0, 1e-6),
    ("A_pp4", "A_pp4", "A_pp4-reference-thres-0.5", 0.5, 5e-6),
    ("B_pp1_dp4", "B_pp1_dp4", "B_pp1_dp4-reference-thres-0.5", 0.5, 5e-6),
    ("D_vpp2_ovlp", "D_vpp2_ovlp", "D_vpp2_ovlp-reference-thres-0.5", 0.5, 5e-6),
    ("E_nodp", "E_nodp", "E_nodp-reference-thres-0.5", 0.5, 5e-6),
]


@cache
def analysed(trace: Path, meta: Path, threshold: float) -> Analysis:
    return analyse(
        prepare(read_trace(trace, yaml.safe_load(meta.read_text()))), threshold=threshold
    )


def differences(ours: Any, theirs: Any, rel: float, path: str = "") -> list[str]:
    """Every field in which two results differ; ``rel`` for numbers, exact for the rest."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{path}: {ours} instead of a table"]
        out = [f"{path}/{key}: only in one" for key in ours.keys() ^ theirs.keys()]
        for key in ours.keys() & theirs.keys():
            out += differences(ours[key], theirs[key], rel, f"{path}/{key}")
        return out
    if isinstance(theirs, float):
        same = isinstance(ours, float) and abs(ours - theirs) <= rel * abs(theirs)
        return [] if same else [f"{path}: {ours} instead of {theirs}"]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{path}: {ours} {theirs}"]


def without_spurious_first_op(result: dict[str, Any]) -> dict[str, Any]:
    """Drop an artefact: without transfers a group of no operations is published as 1.0."""
    if not any(key.endswith("pp-comm") for key in result["blocking_decompose_by_optype"] or ()):
        assert result["blocking_decompose_by_optype"].pop("first-op") == 1.0
        for step in result["blocking_decompose_by_optype_per_step"].values():
            assert step.pop("first-op") == 1.0
    return result


@pytest.mark.parametrize(("trace", "meta", "result", "threshold", "rel"), CASES)
def test_every_published_field(
    shared: Shared, trace: str, meta: str, result: str, threshold: float, rel: float
) -> None:
    theirs = json.loads(shared(f"ops/{result}.json").read_text())
    if trace == "B_pp1_dp4":
        theirs = without_spurious_first_op(theirs)
    analysis = analysed(shared(f"ops/{trace}.parquet"), shared(f"ops/{meta}.yaml"), threshold)
    ours = published_result(analysis)
    assert list(ours) == list(theirs)
    assert differences(ours, theirs, rel) == []


@pytest.mark.parametrize("name", ["AR", "ST"])
@pytest.mark.parametrize("what", ["ms", "mw"])
def test_every_published_share(shared: Shared, name: str, what: str) -> None:
    theirs = json.loads(shared(f"ops/{what}-{name}.json").read_text())
    analysis = analysed(shared(f"ops/trace-{name}.parquet"), shared(f"ops/meta-{name}.yaml"), 1.03)
    effect = analysis.last_stage if what == "ms" else analysis.slowest_effect
    assert effect is not None
    ours = published_effect(analysis, effect, "Ms" if what == "ms" else "Mw")
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        # Shares near zero have no meaningful relative error; times do.
        share = key in ("rem", "add", "Ms", "Mw")
        tolerance = {"abs": 1e-6, "rel": 0} if share else {"rel": 1e-6}
        assert ours[key] == pytest.approx(value, **tolerance), key


@pytest.mark.parametrize(("name", "worker"), [("AR", (0, 0)), ("ST", (1, 3))])
def test_slowest_worker(shared: Shared, name: str, worker: tuple[int, int]) -> None:
    analysis = analysed(shared(f"ops/trace-{name}.parquet"), shared(f"ops/meta-{name}.yaml"), 1.03)
    assert analysis.slowest == (worker,)


@pytest.mark.parametrize("name", ["AR", "ST"])
def test_tables_fall_in_value(shared: Shared, name: str) -> None:
    result = published_result(
        analysed(shared(f"ops/trace-{name}.parquet"), shared(f"ops/meta-{name}.yaml"), 1.0)
    )
    for key in ("blocking_step_slowdown", "launch_step_slowdown", "blocking_decompose_by_optype"):
        values = list(result[key].values())
        assert values == sorted(values, reverse=True), key
    assert list(result["blocking_decompose_by_stage_per_step"]) == list(
        result["blocking_step_slowdown"]
    )
    assert list(result["launch_decompose_by_stage_per_step"]) == list(
        result["launch_step_slowdown"]
    )


def test_below_the_threshold_nothing_is_taken_apart(shared: Shared) -> None:
    result = published_result(
        analysed(shared("ops/trace-ST.parquet"), shared("ops/meta-ST.yaml"), 1.2)
    )
    tables = {k: v for k, v in result.items() if "decompose" in k}
    assert len(tables) == 12
    assert set(tables.values()) == {None}


def test_chosen_steps_decide_ideal_and_means(shared: Shared) -> None:
    trace = read_trace(shared("ops/trace-ST.parquet"), {"dsp_size": 1})
    some = trace.steps[3:9]
    analysis = analyse(prepare(trace, steps=some))
    whole = analyse(prepare(trace))
    assert analysis.model.trace.steps == some
    # Without launch delays a step depends on nothing but itself; the ideal on the steps chosen.
    assert analysis.nodelay_s.tolist() == pytest.approx(whole.nodelay_s[3:9].tolist(), rel=1e-12)
    assert analysis.ideal_finish_s != whole.ideal_finish_s
    assert analysis.slowdown == pytest.approx(analysis.nodelay_s.mean() / analysis.ideal_finish_s)
