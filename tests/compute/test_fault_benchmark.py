"""The fault laboratory: its jobs are like real ones, its counting is right, its score stands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from steptax.benchmarks.product import fault_real, faults
from steptax.benchmarks.product.fault_detectors import DETECTORS, Found, matrix_of
from steptax.benchmarks.product.fault_jobs import FaultJob, make_job
from steptax.benchmarks.product.fault_model import (
    CAUSES,
    NOISES,
    PATTERNS,
    ROUGH_NOISES,
    Fault,
    Plan,
    Shape,
    ranks_of,
)
from steptax.benchmarks.product.fault_plans import FULL, SMALL, plans
from steptax.benchmarks.product.fault_score import Score, both_found

SIXTEEN = Shape(16)
HOT = Fault("thermal", (5,), 80, 199, 0.25)


def job(*faults_of: Fault, shape: Shape = SIXTEEN) -> FaultJob:
    return make_job(Plan(3, shape, 240, NOISES[1], faults_of))


def test_only_the_culprit_works_longer_and_everybody_else_waits() -> None:
    made = job(HOT).columns
    work = made["duration_us"] - made["comm_us"]
    sound, slow = slice(20, 80), slice(100, 199)
    grown = np.median(work[slow], axis=0) / np.median(work[sound], axis=0)
    assert np.argmax(grown) == 5
    assert np.abs(np.delete(grown, 5) - 1).max() < 0.02
    longer = np.median(made["wait_us"][slow], axis=0) - np.median(made["wait_us"][sound], axis=0)
    assert np.argmin(longer) == 5
    assert (np.delete(longer, 5) > 0.1 * np.median(made["duration_us"])).all()


@pytest.mark.parametrize("shape", [Shape(16), Shape(8, 4, 2), Shape(4, 2, 8)])
def test_all_ranks_report_the_same_step_and_its_parts_add_up(shape: Shape) -> None:
    made = job(HOT, shape=shape).columns
    length = made["duration_us"]
    assert np.ptp(length, axis=1).max() <= 2
    named = sum(made[f"{p}_us"] for p in ("compute", "input", "h2d", "gc", "checkpoint", "comm"))
    assert (named <= length + 4).all()
    assert np.abs(made["wait_us"] + made["transfer_us"] - made["comm_us"]).max() <= 1


def test_the_excess_is_what_was_planned() -> None:
    made = job(HOT).columns
    before, during = made["duration_us"][20:80], made["duration_us"][110:199]
    assert np.median(during) / np.median(before) == pytest.approx(1.25, abs=0.04)


def test_healthy_ranks_are_not_alike() -> None:
    made = job().columns
    work = made["compute_us"]
    assert np.ptp(np.median(work[20:], axis=0)) > 0.005 * np.median(work)
    assert work[0].mean() > 1.3 * np.median(work)
    assert (made["gc_us"] > 0).any(axis=0).all()
    assert (work[20:] > 1.05 * np.median(work)).any()


def test_the_same_plan_gives_the_same_job_and_the_same_seed_the_same_plans() -> None:
    one, two = job(HOT), job(HOT)
    for name, values in one.columns.items():
        assert (values == two.columns[name]).all()
    assert plans(SMALL, 4) == plans(SMALL, 4)
    assert plans(SMALL, 4) != plans(SMALL, 5)


def test_every_cause_is_made_with_and_without_its_signals_and_none_and_two() -> None:
    for setting in (SMALL, FULL):
        made = plans(setting, 1)
        kinds = {(f.cause, f.signals) for plan in made for f in plan.faults if f.excess_ratio}
        assert kinds >= {(cause, signals) for cause in CAUSES for signals in (True, False)}
        assert any(not plan.faults for plan in made)
        assert any(len(plan.faults) == 2 for plan in made)
    ranks = {plan.shape.ranks for plan in plans(FULL, 1)}
    assert min(ranks) == 8
    assert max(ranks) >= 1024


@pytest.mark.parametrize(
    ("cause", "shape", "gone"),
    [
        ("gc", Shape(16), ("gc_us", "compute_us")),
        ("sequence", Shape(16), ("seq_sq_sum",)),
        ("link", Shape(16, 2, 2), ("wait_us", "transfer_us")),
        ("network", Shape(16), ("comm_us",)),
    ],
)
def test_without_its_signals_a_cause_leaves_no_trace(
    cause: str, shape: Shape, gone: tuple[str, ...]
) -> None:
    ranks = () if cause == "network" else (5,)
    hidden = job(Fault(cause, ranks, 80, 199, 0.2, signals=False), shape=shape)
    assert not set(gone) & set(hidden.columns)
    assert set(gone) <= set(job(Fault(cause, ranks, 80, 199, 0.2), shape=shape).columns)


def test_ranks_are_numbered_tensor_first() -> None:
    at = ranks_of(Shape(4, 2, 8, experts=2))
    assert at["tp"][:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert (at["dp"][8], at["pp"][32], at["host"][8], at["ep"][24]) == (1, 1, 1, 1)


def test_the_score_counts_what_was_said() -> None:
    made, score = job(HOT), Score()
    right = Found("ranks", (5,), 85, 199, 95, "thermal")
    score.add(made.plan, [right, Found("ranks", (7,), 85, 120, 95)])
    got = score.figures()
    assert (got["rank_recall"], got["rank_precision"]) == (1, 0.5)
    assert (got["cause_accuracy"], got["steps_to_detect_p50"]) == (1, 15)
    score.add(made.plan, [Found("ranks", (5,), 85, 199, 95, "gc")])
    assert score.figures()["cause_accuracy"] == 0.5
    assert score.figures()["wrong_cause"] == 0.5
    score.add(made.plan, [])
    assert score.figures()["rank_recall"] == pytest.approx(2 / 3)
    assert score.to_detect == [15, 15, HOT.steps]
    assert score.figures()["rank_f1"] == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))


def test_steps_to_detect_are_compared_on_the_faults_that_both_found() -> None:
    """Whoever finds the easy ones alone is quick at those."""
    made, ours, other = job(HOT), Score(), Score()
    for score, told in ((ours, (90, 150, None)), (other, (100, None, 95))):
        for at in told:
            score.add(made.plan, [] if at is None else [Found("ranks", (5,), 85, 199, at)])
    mine, theirs = both_found(ours, other, "naive")
    assert (mine["faults_both_naive"], theirs["faults_both_naive"]) == (1, 1)
    assert mine["steps_to_detect_p50_both_naive"] == 90 - HOT.first
    assert theirs["steps_to_detect_p90_both_naive"] == 100 - HOT.first


def test_an_alarm_is_true_only_where_most_of_it_is() -> None:
    """A touch of one step is no hit, and neither is a rank that is not at fault."""
    made = job(HOT)
    for alarm, right in (
        (Found("ranks", (5,), 0, 80, 80), 0),
        (Found("ranks", (5,), 40, 119, 90), 1),
        (Found("ranks", (5,), 0, 239, 90), 1),
        (Found("ranks", (6,), 80, 199, 90), 0),
    ):
        score = Score()
        score.add(made.plan, [alarm])
        assert (score.true_alarms, score.false_alarms) == (right, 1 - right), alarm


def test_a_decoy_is_no_fault() -> None:
    decoy = Fault("thermal", (9,), 80, 199, 0.0)
    made = make_job(Plan(3, SIXTEEN, 240, NOISES[1], (HOT,), (decoy,)))
    assert made.plan.faults == (HOT,)
    assert made.samples is not None
    assert (made.samples.columns["temperature_c"][17:39, 9] > 80).all()
    plain = job(HOT).columns
    assert all((values == plain[name]).all() for name, values in made.columns.items())
    score = Score()
    score.add(made.plan, [Found("ranks", (9,), 80, 199, 90)])
    assert (score.true_alarms, score.false_alarms) == (0, 1)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_fault_that_comes_and_goes_costs_on_average_what_was_planned(pattern: str) -> None:
    fault = Fault("kernel", (5,), 40, 239, 0.2, signals=False, duty_ratio=0.25, pattern=pattern)
    made = job(fault).columns["compute_us"]
    over = made[40:, 5] / np.median(np.delete(made[40:], 5, axis=1), axis=1)
    there = over > 1.3
    assert there.mean() == pytest.approx(0.25, abs=0.08)
    assert made[10:40, 5].max() < 1.3 * np.median(made[10:40])
    length = np.median(job().columns["duration_us"])
    added = (made - job().columns["compute_us"])[40:, 5].mean()
    assert added == pytest.approx(0.2 * length, rel=0.05)


def test_what_comes_and_goes_is_scored_with_its_duty() -> None:
    fault = Fault("gc", (5,), 40, 239, 0.2, duty_ratio=0.25, pattern="random")
    made, score = job(fault), Score()
    score.add(made.plan, [Found("ranks", (5,), 40, 239, 60, "gc", 0.9, 0.3)])
    assert score.figures()["duty_error_p50"] == pytest.approx(0.05)


def test_lost_rows_are_lost() -> None:
    made = make_job(Plan(3, Shape(64), 240, NOISES[1], (), (), 0.01))
    rows = made.step_rows()
    lost = 1 - len(rows["step"]) / (240 * 64)
    assert lost == pytest.approx(0.01, abs=0.003)
    assert {len(values) for values in rows.values()} == {len(rows["step"])}
    assert np.isnan(matrix_of(made).duration_us).mean() == pytest.approx(lost)


def test_faults_in_rough_noise_count_in_their_own_rows_alone_and_alarms_in_all() -> None:
    rough = make_job(Plan(3, SIXTEEN, 240, ROUGH_NOISES[1], (HOT,)))
    assert "wild: a healthy rank's steps vary by 30 %" in faults.groups_of(rough.plan)
    alarms = [Found("ranks", (7,), 80, 199, 90)]
    whole, own = Score(), Score(counts_rough=True)
    for score in (whole, own):
        score.add(rough.plan, alarms)
    assert whole.figures()["rank_recall"] is None
    assert whole.figures()["rank_precision"] == 0
    assert own.figures()["rank_recall"] == 0


def test_jobs_are_in_the_groups_that_they_belong_to() -> None:
    seen = {group for plan in plans(FULL, 1) for group in faults.groups_of(plan)}
    assert seen == {
        *(faults.noise_group(noise) for noise in (*NOISES, *ROUGH_NOISES)),
        "comes and goes",
        "lost rows",
        "short window",
        "1,024 ranks and more",
    }
    patterns = {f.pattern for plan in plans(FULL, 1) for f in plan.faults}
    assert patterns >= set(PATTERNS)
    decoyed = [plan for plan in plans(FULL, 1) if plan.decoys]
    assert {len(d.ranks) > 1 for plan in decoyed for d in plan.decoys} == {True, False}


def test_naming_a_cause_without_its_signals_is_a_guess_even_if_it_is_right() -> None:
    hidden = Fault("thermal", (5,), 80, 199, 0.25, signals=False)
    made, score = job(hidden), Score()
    score.add(made.plan, [Found("ranks", (5,), 85, 199, 95, "thermal")])
    assert score.figures()["abstention"] == 0
    score.add(made.plan, [Found("ranks", (5,), 85, 199, 95)])
    assert score.figures()["abstention"] == 0.5


def test_a_fault_that_was_not_found_is_no_abstention() -> None:
    made, score = job(Fault("thermal", (5,), 80, 199, 0.25, signals=False)), Score()
    score.add(made.plan, [])
    assert score.figures()["abstention"] is None
    assert score.by_cause["thermal"] == {"not found": 1}


def test_a_detector_that_names_no_causes_has_no_figures_about_them() -> None:
    score = Score(names_causes=False)
    for signals in (True, False):
        made = job(Fault("thermal", (5,), 80, 199, 0.25, signals=signals))
        score.add(made.plan, [Found("ranks", (5,), 85, 199, 95)])
    got = score.figures()
    assert got["rank_recall"] == 1
    for name in ("cause_accuracy", "wrong_cause", "abstention", "right_of_named"):
        assert got[name] is None, name


def test_the_naive_one_flags_every_rank_far_above_the_median() -> None:
    made = job(Fault("host_cpu", (4, 5, 6), 80, 199, 0.6))
    found = {f.ranks for f in DETECTORS["naive"](made, matrix_of(made))}
    assert found == {(4,), (5,), (6,)}


def test_alarms_in_a_healthy_job_are_false() -> None:
    made, score = job(), Score()
    score.add(made.plan, [Found("ranks", (1, 2), 10, 20, 15)])
    got = score.figures()
    assert got["false_alarms_per_1000_healthy_steps"] == pytest.approx(2 * 1000 / 240)
    assert got["false_alarms_per_100000_healthy_rank_steps"] == pytest.approx(2e5 / (240 * 16))


def test_the_others_find_what_they_should() -> None:
    """They are opponents, not straw men: a rank half as slow again is beyond both thresholds."""
    made = job(Fault("thermal", (5,), 80, 199, 0.6))
    for name in ("nvrx_style", "naive"):
        found = DETECTORS[name](made, matrix_of(made))
        assert {f.ranks for f in found} == {(5,)}, name
        assert all(f.cause is None for f in found)


def test_the_score_of_the_small_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "score.json"
    assert faults.main(["--small", "--seed", "5", "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    ours, nvrx, naive = (result["detectors"][n] for n in ("steptax", "nvrx_style", "naive"))
    assert ours["rank_recall"] >= 0.98
    assert ours["rank_precision"] >= 0.95
    assert ours["job_wide_recall"] >= 0.9
    assert ours["cause_accuracy"] >= 0.9
    assert ours["abstention"] >= 0.95
    assert ours["false_alarms_per_100000_healthy_rank_steps"] <= 1
    for other in (nvrx, naive):
        for name in ("rank_recall", "job_wide_recall"):
            assert ours[name] > other[name], name
        for name in ("cause_accuracy", "wrong_cause", "abstention", "mean_confidence_of_named"):
            assert other[name] is None, name
        assert ours["rank_precision"] >= other["rank_precision"]
        assert ours["rank_f1"] > other["rank_f1"]
        for name in ("steps_to_detect_p50", "false_alarms_per_1000_healthy_steps"):
            assert ours[name] <= other[name], name
    for name, other in (("nvrx_style", nvrx), ("naive", naive)):
        paired = f"steps_to_detect_p90_both_{name}"
        assert ours[f"faults_both_{name}"] == other[f"faults_both_{name}"] > 0
        assert ours[paired] <= other[paired]
    assert (result["jobs"], result["seeds"]) == (len(plans(SMALL, 5)), [5])
    assert result["targets"]["rank_recall"]["met"] is True
    short = result["groups"]["short window"]
    alarms = "false_alarms_per_100000_healthy_rank_steps"
    assert short["steptax"][alarms] == 0
    assert short["naive"][alarms] > 1
    assert result["groups"]["comes and goes"]["steptax"]["rank_recall"] >= 0.6
    text = capsys.readouterr().out
    assert "nvrx_style" in text
    assert "target rank_recall 0.98: " in text


@pytest.mark.slow
def test_a_real_job_with_an_injected_fault_is_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "real.json"
    arguments = ["--only", "gc", "--steps", "60", "--step-ms", "60", "--out", str(out)]
    assert fault_real.main(arguments) == 0
    (one,) = json.loads(out.read_text())
    assert (one["culprit_found"], one["cause"], one["cause_right"]) == (True, "gc", True)
    assert "garbage collector pauses" in capsys.readouterr().out
