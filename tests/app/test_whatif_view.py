"""The What-if view: where each input came from, what the answer is, and how it is kept."""

from __future__ import annotations

import csv
import gc
import shlex
import weakref
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.charts.style import PAGE_BYTES, payload_bytes
from steptax.app.charts.whatif_figures import answer_figures
from steptax.app.charts.whatif_tables import inputs_table, results_table
from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.calculators.registry import CALCULATORS
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.traps import TRAPS
from steptax.app.errors import NotFoundError, UserError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.theme import DARK, LIGHT
from steptax.app.views.job.load import load_job
from steptax.app.views.whatif.catalog import entry, ordered
from steptax.app.views.whatif.inputs import start_fields, whatif_fields
from steptax.app.views.whatif.job import JobInputs, job_inputs
from steptax.app.views.whatif.models import InputField, Numbers, Origin, WhatIfView, Word
from steptax.app.views.whatif.scale import scale_curve
from steptax.app.views.whatif.view import calculator_titles, whatif_view
from steptax.app.views.whatif.words import label_of, plain_number, shown_value, title_of
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.connectors.base import Options

Run = Callable[..., Any]
JOB = "worker"
NAMES = ordered()
COLUMNS = [
    *("step", "rank", "host", "dp", "compute_ms", "comm_ms", "input_ms", "checkpoint_ms"),
    *("gc_ms", "tokens", "seq_sq_sum", "duration_ms", "loss"),
]
#: Every calculator with its example and with a job.
CASES = [
    pytest.param(name, with_job, id=f"{name}-{'job' if with_job else 'example'}")
    for name in NAMES
    for with_job in (False, True)
]


def write_job(path: Path, *, kept: list[str] | None = None, steps: int = 60) -> None:
    """Eight ranks; rank 5 computes 40 ms longer. A save every 20 steps, a pause now and then."""
    rng = np.random.default_rng(11)
    ranks = 8
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, kept or COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for step in range(steps):
            tokens = rng.integers(4_000, 5_000, ranks)
            squares = rng.integers(4_000_000, 9_000_000, ranks)
            compute = 20 + tokens * 0.01 + squares * 2e-6 + rng.normal(0, 1, ranks)
            compute[5] += 40
            save = 30.0 if step % 20 == 19 else 0.0
            pause = np.where(rng.random(ranks) < 0.05, 12.0, 0.0)
            work = compute + 5 + save + pause
            length = work.max() + 10
            for rank in range(ranks):
                values = (
                    step,
                    rank,
                    f"node-{rank // 4}",
                    rank,
                    f"{compute[rank]:.3f}",
                    f"{length - work[rank]:.3f}",
                    "5.000",
                    f"{save:.3f}",
                    f"{pause[rank]:.3f}",
                    tokens[rank],
                    squares[rank],
                    f"{length:.3f}",
                    f"{8 - step / 20:.3f}",
                )
                writer.writerow(dict(zip(COLUMNS, values, strict=True)))


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A lake with one job that recorded everything and one that recorded durations only."""
    root = tmp_path_factory.mktemp("whatif")
    lake = Lake(root / "lake", create=True)
    full, bare = root / f"{JOB}.csv", root / "bare.csv"
    write_job(full)
    write_job(bare, kept=["step", "rank", "duration_ms"])
    for path in (full, bare):
        ingest_file(lake, "steps", path, Options())
    return open_workspace(root / "lake")


@pytest.fixture(scope="module")
def source(ws: Workspace) -> JobInputs:
    return job_inputs(ws, JOB, price=Decimal(2))


def field_of(view: WhatIfView, name: str) -> InputField:
    return next(field for field in view.fields if field.name == name)


def values_of(view: WhatIfView) -> dict[str, float | None]:
    assert view.answer is not None
    return {item.name: item.measure.value for item in view.answer.measures}


# --- inputs -----------------------------------------------------------------------------------


def test_without_a_job_there_is_an_example() -> None:
    view = whatif_view("kernel-speedup", {})
    assert [field_of(view, n).value for n in ("compute_ms", "comm_ms", "wait_ms")] == [100, 30, 15]
    assert field_of(view, "compute_ms").origin is Origin.EXAMPLE
    assert field_of(view, "other_ms").origin_text == "default"
    assert field_of(view, "hidden_comm_ms").origin_text == "not given: the answer is a band"
    assert field_of(view, "comm_contention").origin_text == "not given"


def test_what_is_typed_comes_first(source: JobInputs) -> None:
    view = whatif_view("kernel-speedup", {"wait_ms": 7.0, "speedup": "10"}, source=source)
    assert field_of(view, "wait_ms").value == 7
    assert field_of(view, "wait_ms").origin_text == "you typed it"
    assert field_of(view, "wait_ms").measure is None
    assert view.typed == {"wait_ms": "7", "speedup": "10"}
    empty = whatif_view("kernel-speedup", {"wait_ms": None, "speedup": ""}, source=source)
    assert field_of(empty, "wait_ms").origin is Origin.MEASURED
    assert empty.typed == {}


def test_measured_parts_say_where_they_came_from_and_add_up(
    ws: Workspace, source: JobInputs
) -> None:
    view = whatif_view("kernel-speedup", {}, source=source)
    held = [field_of(view, n) for n in ("compute_ms", "comm_ms", "wait_ms", "other_ms")]
    for field in held:
        assert field.origin_text == f"measured: job {JOB}, all 60 steps"
        assert field.measure is not None
        assert field.measure.low is not None
        assert field.measure.low <= field.measure.value <= field.measure.high
    matrix = load_job(ws, ws.job(JOB), last_steps=None).matrix
    ledger = step_ledger(matrix, None)
    cells = matrix.duration_us.size * 1000.0
    assert sum(field.value for field in held) == pytest.approx(
        float(ledger.paid_gpu_us) / cells, rel=1e-5
    )
    # The ledger cuts parts that exceed their report by rounding; the inputs are as measured.
    for field, bucket in zip(held, ("compute", "exposed_comm", "straggler_wait"), strict=False):
        row = ledger.row(bucket)
        assert row is not None
        assert row.gpu_us is not None
        assert field.value == pytest.approx(float(row.gpu_us) / cells, rel=1e-4)


def test_what_is_drawn_of_a_job_does_not_keep_its_steps(ws: Workspace) -> None:
    source = job_inputs(ws, JOB)
    assert scale_curve(source) is not None
    assert scale_curve(source) is scale_curve(source)
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None


def test_the_window_is_named(ws: Workspace) -> None:
    assert job_inputs(ws, JOB, last_steps=20).basis == f"job {JOB}, last 20 steps"


def test_pauses_saves_and_spread_are_read_off_the_steps(source: JobInputs) -> None:
    def value(calculator: str, name: str) -> float:
        known = source.of(calculator)[name]
        assert isinstance(known, Measure)
        assert known.value is not None, known.reason
        return known.value

    assert value("checkpoint-interval", "checkpoint_s") == pytest.approx(0.030)
    # Twenty steps from one save to the next, without the save itself.
    assert value("checkpoint-interval", "interval_s") > 20 * 0.1
    assert value("gc-sync", "pause_ms") == pytest.approx(12.0)
    assert 10 <= value("gc-sync", "every_steps") <= 40
    assert value("local-sgd", "persistent_ratio") == pytest.approx(40 * 7 / 8 / 93, rel=0.1)
    assert value("expected-max", "cv_ratio") > value("local-sgd", "cv_ratio")
    assert value("remove-worst", "worst") == 1
    assert value("waste", "slowdown") > 1.2
    # Compute was made of 0.01 ms a token and 2e-6 ms a squared token.
    assert value("sequence-balance", "equal_parts_tokens") == pytest.approx(5_000, rel=0.5)
    times = source.of("remove-worst")["times_ms"]
    assert isinstance(times, Numbers)
    assert times.values is not None
    assert int(np.argmax(times.values)) == 5


def test_a_lasting_straggler_in_the_spread_is_pointed_out(source: JobInputs) -> None:
    view = whatif_view("expected-max", {}, source=source)
    assert any("always slow" in text for text in view.warnings)


def test_what_was_not_recorded_says_why(ws: Workspace) -> None:
    bare = job_inputs(ws, "bare")
    view = whatif_view("kernel-speedup", {}, source=bare)
    assert view.answer is None
    assert [field.name for field in view.missing] == ["compute_ms", "comm_ms", "wait_ms"]
    for field in view.missing:
        assert field.value is None
        assert field.origin_text.startswith("not measured: every rank reports the same step time")
        assert not field.origin_text.endswith(".")
    for name in NAMES:
        for field in start_fields(name, source=bare):
            assert field.origin is not Origin.NONE or field.origin_text
            if field.required and field.value is None:
                assert field.origin_text.startswith("not measured: "), (name, field.name)


def test_an_unknown_job_is_an_error(ws: Workspace) -> None:
    with pytest.raises(NotFoundError):
        job_inputs(ws, "nobody")


def test_missing_measures_can_be_typed(ws: Workspace) -> None:
    typed = {"compute_ms": 100, "comm_ms": 30, "wait_ms": 15}
    view = whatif_view("kernel-speedup", typed, source=job_inputs(ws, "bare"))
    assert values_of(view)["step_after_ms"] == pytest.approx(45.43, abs=0.005)


def test_the_price_is_the_page_s_own() -> None:
    priced = whatif_view("remove-worst", {}, price=Decimal("3.50"))
    assert field_of(priced, "usd_per_gpu_hour").origin is Origin.PRICE
    assert field_of(priced, "usd_per_gpu_hour").value == 3.5
    assert values_of(priced)["recovered_usd_per_day"] is not None
    assert values_of(whatif_view("remove-worst", {}))["recovered_usd_per_day"] is None
    dearer = whatif_view("break-even", {}, price=Decimal(3))
    assert field_of(dearer, "a_usd_per_gpu_hour").value == 3


def test_another_way_of_saying_it_replaces_the_start(source: JobInputs) -> None:
    for given_source in (None, source):
        view = whatif_view("waste", {"waste_ratio": 0.2}, source=given_source)
        assert values_of(view)["slowdown"] == pytest.approx(1.25)
        assert field_of(view, "delay_ratio").value is None
    counted = whatif_view("any-slow", {"observed_ranks": 64})
    assert field_of(counted, "slow_ratio").value is None
    assert counted.answer is not None


def test_a_mistake_names_the_input() -> None:
    with pytest.raises(UserError) as caught:
        whatif_view("kernel-speedup", {"accelerated_ratio": 34.59})
    assert caught.value.where == "accelerated_ratio"
    assert caught.value.hint == "34.59 % is 0.3459"
    with pytest.raises(UserError, match="can hide under"):
        whatif_view("kernel-speedup", {"hidden_comm_ms": 500})
    with pytest.raises(NotFoundError):
        whatif_view("kernel", {})


# --- answers ----------------------------------------------------------------------------------


def test_of_several_ways_the_job_gave_none(source: JobInputs) -> None:
    typed = {"tokens_per_s": 1e4, "params": 1e9}
    view = whatif_view("mfu", typed, source=source)
    assert view.answer is None
    assert [field.name for field in view.missing] == ["device"]
    assert view.missing[0].origin_text.endswith("the job does not say which device it runs on")
    peak = {"peak_tflops": 989.5, "peak_basis": "dense"}
    assert whatif_view("mfu", typed | peak, source=source).answer is not None
    with pytest.raises(UserError) as caught:
        whatif_view("mfu", typed | {"peak_tflops": 989.5}, source=source)
    assert caught.value.where == "peak_basis"
    used = next(f for f in start_fields("break-even", source=source) if f.name == "a_mfu_ratio")
    assert used.origin_text == ("not measured: tokens per step of the whole job are not recorded")


def test_the_band_comes_first() -> None:
    answer = whatif_view("kernel-speedup", {}).answer
    assert answer is not None
    assert answer.band == "1.00× to 4.75×"
    assert answer.headline.title == "step speed-up"
    one_value = whatif_view(
        "kernel-speedup",
        {"hidden_comm_ms": 0, "wait_follows_ratio": 0},
    ).answer
    assert one_value is not None
    assert one_value.band is None


def test_a_measured_interval_gives_the_band_where_there_is_no_other(source: JobInputs) -> None:
    view = whatif_view("waste", {}, source=source)
    assert view.answer is not None
    assert view.answer.band is not None
    assert "actual time / ideal time" in view.answer.band_note.lower()
    swing = view.answer.swings[0]
    slowdown = field_of(view, "slowdown").measure
    assert slowdown is not None
    assert (swing.low_input, swing.high_input) == (slowdown.low, slowdown.high)


def test_only_a_bound_is_a_band_too() -> None:
    view = whatif_view("failures", {"observed_failures": 0})
    assert view.answer is not None
    assert view.answer.headline.measure.value is None
    assert view.answer.band is not None
    assert view.answer.band.startswith("at least ")


@pytest.mark.parametrize(("name", "with_job"), CASES)
def test_every_calculator_answers_or_says_what_it_needs(
    name: str, with_job: bool, source: JobInputs
) -> None:
    view = whatif_view(
        name, {}, source=source if with_job else None, price=Decimal(2) if with_job else None
    )
    assert view.traps
    assert view.formula
    assert view.source
    if view.answer is None:
        assert with_job
        assert view.missing
        return
    assert view.answer.sentence.endswith(".")
    assert view.answer.headline.measure.value is not None or view.answer.band
    for palette in (LIGHT, DARK):
        for drawn in answer_figures(view.answer, palette):
            assert payload_bytes(drawn.figure) < PAGE_BYTES / 40
            assert drawn.table().rows
    assert len(inputs_table(view.fields).rows) == len(CALCULATORS[name].parameters)
    assert len(results_table(view.answer.measures).rows) == len(view.answer.measures)


@pytest.mark.parametrize(("name", "with_job"), CASES)
def test_the_command_gives_the_same_numbers(
    name: str, with_job: bool, source: JobInputs, steptax: Run
) -> None:
    view = whatif_view(
        name, {}, source=source if with_job else None, price=Decimal(2) if with_job else None
    )
    if view.answer is None:
        assert view.missing
        return
    words = shlex.split(view.command)
    assert words[:3] == ["steptax", "calc", name]
    printed = steptax(*words[1:])
    assert printed["sentence"] == view.answer.sentence
    for item in view.answer.measures:
        assert printed["measures"][item.name]["value"] == item.measure.value
        assert printed["measures"][item.name]["low"] == item.measure.low
        assert printed["measures"][item.name]["high"] == item.measure.high


@pytest.mark.parametrize("name", NAMES)
def test_what_is_typed_comes_back_from_a_link(name: str) -> None:
    first = whatif_view(name, {})
    typed = {f.name: f.value for f in first.fields if f.origin is Origin.EXAMPLE}
    second = whatif_view(name, typed)
    again = whatif_view(name, second.typed)
    assert set(again.typed) == set(typed)
    assert again.answer is not None
    assert first.answer is not None
    assert again.answer.measures == second.answer.measures == first.answer.measures


def test_the_step_is_shown_before_and_after() -> None:
    answer = whatif_view("kernel-speedup", {}).answer
    assert answer is not None
    made = answer.composition
    assert made is not None
    totals = {bar.label: bar.total_ms for bar in made.bars}
    assert totals["before"] == 145
    assert totals["after"] == pytest.approx(45.43, abs=0.005)
    assert totals["after, at best"] == pytest.approx(30.5, abs=0.05)
    assert totals["after, at worst"] == pytest.approx(145)


def test_the_curve_passes_through_the_answer_and_stays_below_its_ceiling() -> None:
    answer = whatif_view("kernel-speedup", {}).answer
    assert answer is not None
    curve = answer.curves[0]
    line = curve.lines[0]
    assert curve.marker == (232.0, answer.headline.measure.value)
    assert curve.ceiling is not None
    assert curve.ceiling.value == pytest.approx(3.22, abs=0.005)
    assert line.low is not None
    assert line.high is not None
    for value, low, high in zip(line.y, line.low, line.high, strict=True):
        assert value is not None
        assert low <= value <= high
        assert value < curve.ceiling.value
    assert list(line.y) == sorted(line.y)


@pytest.mark.parametrize("name", [n for n in NAMES if entry(n).sweep is not None])
def test_a_curve_is_the_calculator_at_other_inputs(name: str) -> None:
    sweep = entry(name).sweep
    assert sweep is not None
    view = whatif_view(name, {})
    assert view.answer is not None
    curve = view.answer.curves[0]
    place = len(curve.x) // 3
    moved = whatif_view(name, {sweep.parameter: curve.x[place]})
    for line, measure in zip(curve.lines, sweep.measures, strict=True):
        assert values_of(moved)[measure] == line.y[place]


def test_more_ranks_are_extrapolated_from_the_job_s_own(source: JobInputs) -> None:
    answer = whatif_view("expected-max", {}, source=source).answer
    assert answer is not None
    curve = answer.curves[-1]
    assert curve.key == "scale"
    assert curve.x == (8, 16, 32, 64, 128, 256, 512)
    line = curve.lines[0]
    assert None not in line.y
    assert all(low <= y <= high for y, low, high in zip(line.y, line.low, line.high, strict=True))
    assert "beyond 64 times" in str(curve.note)
    assert "up to 100.0 % of jobs of 512 ranks" in str(curve.note)


def test_a_job_s_ranks_speak_for_64_times_as_many_at_most(source: JobInputs) -> None:
    view = whatif_view("expected-max", {"ranks": 8 * 64 + 1}, source=source)
    assert view.answer is not None
    assert field_of(view, "observed_ranks").value == 8
    assert view.answer.headline.measure.value is None
    assert "more than 64 times the 8 measured" in view.answer.sentence
    told = {"ranks": 8 * 64 + 1, "bad_rank_ratio": 0.01, "bad_slowdown": 3}
    again = whatif_view("expected-max", told, source=source).answer
    assert again is not None
    assert again.headline.measure.value is not None


def test_no_curve_of_more_ranks_without_work(ws: Workspace) -> None:
    view = whatif_view("expected-max", {"cv_ratio": 0.1}, source=job_inputs(ws, "bare"))
    assert view.answer is not None
    assert [curve.key for curve in view.answer.curves] == ["expected-max_curve"]


def test_the_tornado_lists_what_moves_the_headline(source: JobInputs) -> None:
    answer = whatif_view("kernel-speedup", {}, source=source).answer
    assert answer is not None
    widths = [swing.width for swing in answer.swings]
    assert widths == sorted(widths, reverse=True)
    assert min(widths) > 0
    assert {swing.parameter for swing in answer.swings} <= set(answer.swing_labels)
    wait = next(swing for swing in answer.swings if swing.parameter == "wait_ms")
    assert wait.high_input != pytest.approx(1.1 * wait.low_input / 0.9)


# --- catalogue and words ----------------------------------------------------------------------


def test_the_catalogue_knows_only_what_exists() -> None:
    assert set(NAMES) == set(CALCULATORS)
    assert len(NAMES) == len(set(NAMES))
    assert next(iter(calculator_titles())) == "kernel-speedup"
    for name in NAMES:
        known = entry(name)
        parameters = {p.name for p in CALCULATORS[name].parameters}
        assert {*known.asked, *known.example} <= parameters
        assert {p for group in known.instead for p in group} <= parameters
        assert set(known.traps) <= set(TRAPS)
        if known.sweep is not None:
            assert known.sweep.parameter in parameters


def test_a_calculator_without_an_entry_still_works() -> None:
    assert entry("another").example == {}
    assert entry("another").sweep is None


def test_every_result_and_input_has_words() -> None:
    for name in NAMES:
        view = whatif_view(name, {})
        assert view.answer is not None
        for item in view.answer.measures:
            assert item.title
            assert "_" not in item.title
        for field in view.fields:
            assert field.label
            assert "_" not in field.label
            assert field.label[0] == field.label[0].upper()


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("step_speedup", "step speed-up"),
        ("comm_share_after_ratio", "communication share after"),
        ("b_break_even_usd_per_gpu_hour", "break-even price of B"),
        ("daly_s", "Daly"),
        ("b_usd_per_eflop", "a useful EFLOP on B"),
    ],
)
def test_titles_read_like_words(name: str, title: str) -> None:
    assert title_of(name) == title


def test_labels_say_the_thing_and_its_unit() -> None:
    assert label_of("all else in the step: input, host", "ms") == "All else in the step, ms"
    assert label_of("spread: sd / mean", "ratio") == "Spread, 0 to 1"
    assert label_of("layers", "") == "Layers"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_exactly(value: float) -> None:
    assert float(plain_number(value)) == value


def test_a_word_that_is_not_a_choice_is_not_used() -> None:
    source = JobInputs(
        "x", "job x", {"mfu": {"recompute": Word("sometimes")}}, None, None, Level.LOG
    )
    fields = whatif_fields("mfu", {}, source=source)
    assert next(f for f in fields if f.name == "recompute").value is None


def test_large_times_are_spoken_and_shown_without_powers_of_ten() -> None:
    typed = {"compute_ms": 102_210.0, "comm_ms": 15_345.0, "wait_ms": 45_913.0}
    view = whatif_view("kernel-speedup", typed)
    assert view.answer is not None
    assert "next limit: wait, 45.9 s." in view.answer.sentence
    assert shown_value(102_210.4, "ms") == "102,210"
