"""Figures: what is sent to the browser, how large it is, and that spikes and gaps survive."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.charts.heatmap import (
    cell_at,
    cell_axis,
    columns_note,
    encode,
    fit,
    grid_figure,
    heat_figure,
    heat_note,
    rank_at,
    worst_in_box,
)
from steptax.app.charts.series import loss_figure, spikes, step_figure
from steptax.app.charts.style import CONFIG, LIVE_BYTES, MAX_POINTS, PAGE_BYTES, payload_bytes
from steptax.app.charts.tables import Column, table
from steptax.app.charts.timeline import PHASE_ORDER, phases_of, timeline_figure
from steptax.app.charts.waterfall import amount, units_of, waterfall_figure
from steptax.app.theme import DARK, LIGHT, palette_of
from steptax.app.views.job.models import Grid, HeatMap, PhaseBar, Series, StepTimeline
from steptax.app.views.job.shape import MAX_HEAT_CELLS, heat_map, thin_series
from steptax.app.views.models import LedgerLine
from steptax.pages.parts import _column_config


def heat_of(cells: np.ndarray, first_step: int = 0) -> HeatMap:
    """A map without pooling; ``cells`` are ms by rank and step."""
    ranks, steps = cells.shape
    known = np.abs(cells[~np.isnan(cells)])
    return HeatMap(
        cells,
        np.arange(ranks),
        np.arange(first_step, first_step + steps),
        np.arange(ranks + 1),
        np.arange(steps + 1),
        float(np.percentile(known, 99)) if known.size else 1.0,
    )


def series_of(count: int, *, spike: tuple[int, float] | None = None) -> Series:
    """Steps of about 100 ms; ``spike`` is a place and its length in ms."""
    rng = np.random.default_rng(5)
    work = 100 + rng.normal(0, 1, count)
    slowest = rng.integers(0, 8, count)
    if spike is not None:
        work[spike[0]] = spike[1]
        slowest[spike[0]] = 517
    return Series(
        np.arange(count),
        work + 5,
        work - 10,
        work - 2,
        work,
        slowest,
        np.full(count, 0.1),
        None,
        count,
    )


def data_of(figure: go.Figure) -> list[dict[str, Any]]:
    """The traces as they are sent."""
    return list(json.loads(figure.to_json())["data"])


def array_of(sent: dict[str, str]) -> np.ndarray:
    """What a typed array of a trace holds."""
    raw = np.frombuffer(base64.b64decode(sent["bdata"]), dtype=np.dtype(sent["dtype"]))
    shape = [int(n) for n in sent.get("shape", str(raw.size)).split(",")]
    return raw.reshape(shape)


def points_in(figure: go.Figure) -> int:
    """Points of all lines and bars."""
    return sum(len(trace.x) for trace in figure.data if trace.type in {"scatter", "bar"})


LEDGER = (
    LedgerLine("compute", "compute", 3600.0, 0.5, Decimal("1.00"), False),
    LedgerLine("straggler_wait", "straggler wait", 1800.0, 0.25, Decimal("0.50"), True),
    LedgerLine("input", "input stall", 1800.0, 0.25, Decimal("0.50"), True),
    LedgerLine("gc", "garbage collector", 0.0, 0.0, Decimal("0.00"), True),
    LedgerLine("checkpoint", "checkpoint", None, None, None, True),
)


# -- rank by step ----------------------------------------------------------------------------


def test_cells_go_as_a_typed_array() -> None:
    cells = np.random.default_rng(0).normal(0, 3, (8, 50))
    trace = data_of(heat_figure(heat_of(cells), LIGHT, budget_bytes=PAGE_BYTES))[0]
    assert trace["z"]["dtype"] == "f4"
    assert array_of(trace["z"]) == pytest.approx(cells, rel=1e-6)
    assert (trace["zmin"], trace["zmax"], trace["zmid"]) == (-trace["zmax"], trace["zmax"], 0)


@pytest.mark.parametrize(
    ("largest_ms", "dtype", "unit"),
    [(20.0, np.int16, "µs"), (9_000.0, np.int16, "ms"), (90_000.0, np.float32, "ms")],
)
def test_many_cells_are_sent_as_small_integers(largest_ms: float, dtype: type, unit: str) -> None:
    cells = np.full((512, 1024), 1.25)
    cells[3, 4] = largest_ms
    values, sent_unit = encode(heat_of(cells), 1_000_000)
    assert values.dtype == dtype
    assert sent_unit == unit
    factor = 1000 if unit == "µs" else 1
    assert values[3, 4] == pytest.approx(largest_ms * factor)
    assert values[0, 0] == pytest.approx(1.25 * factor, abs=0.5)


def test_a_missing_cell_stays_missing_and_is_no_number() -> None:
    cells = np.zeros((512, 1024))
    cells[1, 2] = np.nan
    values, _ = encode(heat_of(cells), 1000)
    assert values.dtype == np.float32
    assert np.isnan(values[1, 2])
    assert np.isnan(values).sum() == 1
    trace = data_of(heat_figure(heat_of(cells[:4, :4]), LIGHT, budget_bytes=1000))[0]
    assert trace["hoverongaps"] is False


def test_normalised_times_are_not_called_milliseconds() -> None:
    cells = np.full((512, 1024), 1.25)
    _, unit = encode(heat_of(cells), 1000, "units")
    assert unit == "units"
    figure = heat_figure(heat_of(cells[:4]), LIGHT, budget_bytes=PAGE_BYTES, unit="units")
    assert " units<extra>" in figure.data[0].hovertemplate
    assert figure.data[0].colorbar.title.text == "units"


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("shape", [(256, 500), (1024, 2000), (4096, 16)])
def test_a_live_map_fits_its_budget_and_keeps_its_spike(
    shape: tuple[int, int], missing: bool
) -> None:
    cells = np.random.default_rng(1).normal(0, 2, shape)
    cells[shape[0] - 3, shape[1] // 3] = 9_000.0
    if missing:
        cells[0, 0] = np.nan
    fitted = fit(heat_of(cells), LIVE_BYTES)
    figure = heat_figure(fitted, LIGHT, budget_bytes=LIVE_BYTES)
    # The labels and the layout come on top of the cells.
    assert payload_bytes(figure) < 300_000
    assert np.nanmax(fitted.excess_ms) == 9_000.0
    assert fitted.rank_edges[-1] == shape[0]
    assert fitted.step_edges[-1] == shape[1]
    assert fitted.excess_ms.shape == (len(fitted.rank_edges) - 1, len(fitted.step_edges) - 1)


def test_a_map_that_fits_is_left_alone() -> None:
    heat = heat_of(np.zeros((8, 8)))
    assert fit(heat, LIVE_BYTES) is heat


def test_labels_say_what_a_cell_covers() -> None:
    cells = heat_map(np.zeros((1000, 600)), np.arange(600), np.arange(1000, 2000))
    trace = data_of(heat_figure(cells, LIGHT, budget_bytes=PAGE_BYTES))[0]
    assert trace["x"][0] == "1000–1005"
    assert trace["y"][0] == "0–4"
    assert cells.excess_ms.size <= MAX_HEAT_CELLS
    assert len(set(trace["x"])) == cells.excess_ms.shape[1]
    assert "largest excess of the cell" in trace["hovertemplate"]
    for word in ("rank %{y}", "step %{x}"):
        assert word in trace["hovertemplate"]


@pytest.mark.parametrize(
    ("steps", "block", "told"),
    [
        (86_400, 256, "a column is 512 to 768 steps, of whose blocks of 256 the largest mean is"),
        (20_480, 256, "a column is 256 steps"),
        (20_481, 256, "a column is 256 steps"),
        (100, 256, "a column is 100 steps"),
    ],
)
def test_columns_of_blocks_say_how_many_steps_they_hold(steps: int, block: int, told: str) -> None:
    starts = np.arange(0, steps, block)
    until = np.minimum(starts + block - 1, steps - 1)
    ranks = np.arange(1024)
    heat = heat_map(np.zeros((len(starts), 1024)), ranks, starts, until=until)
    note = columns_note(heat, block)
    assert note.startswith(told)
    is_pooled = len(heat.rank_edges) - 1 < len(ranks)
    assert note.endswith("a row the rank of its group that exceeds most") == is_pooled
    # Together the columns are the job, each step once.
    assert (heat.columns[0][0], heat.columns[-1][1]) == (0, steps - 1)
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(heat.columns))
    trace = data_of(heat_figure(heat, LIGHT, budget_bytes=10**9))[0]
    assert trace["x"][0] == f"0–{heat.columns[0][1]}"


def test_the_choice_is_pointed_at() -> None:
    figure = heat_figure(
        heat_of(np.zeros((8, 20)), 100), DARK, chosen=(3, 107), budget_bytes=PAGE_BYTES
    )
    places = {(note.x, note.y) for note in figure.layout.annotations}
    assert places == {(1, 3), (7, 1)}
    gone = heat_figure(heat_of(np.zeros((8, 20))), DARK, chosen=(99, None), budget_bytes=PAGE_BYTES)
    assert len(gone.layout.annotations) == 0


def test_a_single_spike_is_circled_and_the_cell_keeps_its_click() -> None:
    cells = np.random.default_rng(2).normal(0, 2, (64, 200))
    assert len(data_of(heat_figure(heat_of(cells), LIGHT, budget_bytes=PAGE_BYTES))) == 1
    assert heat_note(heat_of(cells)) is None
    cells[17, 133] = 9_000.0
    heat = heat_of(cells)
    _, circles = data_of(heat_figure(heat, LIGHT, budget_bytes=PAGE_BYTES))
    assert (circles["x"], circles["y"]) == (["133"], ["17"])
    assert circles["hoverinfo"] == "skip"
    assert heat_note(heat) == "Circles: far beyond the colours."


def test_a_pooled_map_says_so() -> None:
    heat = heat_map(np.zeros((1000, 600)), np.arange(600), np.arange(1000))
    assert heat_note(heat) == "A cell holds the largest excess of its ranks and steps."


@pytest.mark.parametrize("shape", [(500, 1024), (128, 16_384), (20_000, 8), (500, 8), (1, 30_000)])
def test_no_map_has_more_cells_than_a_screen_shows(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    excess_us = rng.normal(0, 1000, shape)
    excess_us[rng.random(shape) < 0.01] = np.nan
    steps, ranks = np.arange(shape[0]), np.arange(shape[1])
    largest, mean = heat_map(excess_us, ranks, steps), heat_map(excess_us, ranks, steps, "mean")
    assert largest.excess_ms.size == mean.excess_ms.size <= MAX_HEAT_CELLS
    assert largest.is_pooled == (excess_us.size > MAX_HEAT_CELLS)
    assert np.nanmax(largest.excess_ms) == pytest.approx(np.nanmax(excess_us) / 1000)
    for i, j in ((0, 0), (-1, -1)):
        cells = excess_us.T[heat_slice(largest.rank_edges, i), heat_slice(largest.step_edges, j)]
        assert largest.excess_ms[i, j] == pytest.approx(np.nanmax(cells) / 1000)
        assert mean.excess_ms[i, j] == pytest.approx(np.nanmean(cells) / 1000)
    assert fit(mean, LIVE_BYTES) is mean  # nothing is pooled twice


#: Ranks, of which one is slow by 40 ms from the middle on, and steps.
_SLOW, _RANKS, _STEPS = 1_365, 4_096, 200


def noisy(ranks: int, steps: int, slow: int, excess_ms: float = 40.0) -> np.ndarray[Any, Any]:
    """Excess in µs by step and rank: levels and noise as jobs have them, and one that is slow."""
    rng = np.random.default_rng(3)
    excess_us = rng.normal(0, 2_000, ranks) + rng.uniform(-6_000, 6_000, (steps, ranks))
    excess_us[steps // 2 :, slow] += excess_ms * 1000
    return excess_us


@pytest.mark.parametrize("steps", [_STEPS, 4])
@pytest.mark.parametrize("budget_bytes", [PAGE_BYTES, 20_000])
def test_the_straggler_of_a_large_job_stands_out_of_its_map(steps: int, budget_bytes: int) -> None:
    """The largest of many is above the peers everywhere: not everybody is drawn as slow."""
    heat = heat_map(noisy(_RANKS, steps, _SLOW), np.arange(_RANKS), np.arange(steps))
    heat = fit(heat, budget_bytes)
    trace = data_of(heat_figure(heat, LIGHT, budget_bytes=budget_bytes))[0]
    low, middle, high = trace["zmin"], trace["zmid"], trace["zmax"]
    assert middle == pytest.approx((low + high) / 2)
    cells = array_of(trace["z"]).astype(float)
    assert cells.shape[0] <= 256
    strength = (cells - middle) / (high - middle)
    row = int(np.searchsorted(heat.rank_edges, _SLOW, side="right")) - 1
    half = cells.shape[1] // 2
    # It is strongly coloured, and neither cut off nor beyond the colours; nobody else is.
    assert strength[row, half + 1 :].min() > 0.6
    assert strength[row].max() < 1.25
    assert np.percentile(np.abs(np.delete(strength, row, axis=0)), 99) < 0.25
    note = heat_note(heat)
    assert note is not None
    assert f"typical cell +{heat.middle_ms:.2f} ms: that is the middle of the colours" in note
    assert "Circles" not in note


def test_a_single_spike_of_a_large_job_does_not_pale_all_others() -> None:
    excess_us = noisy(_RANKS, _STEPS, _SLOW)
    excess_us[17, 99] = 9e6
    heat = heat_map(excess_us, np.arange(_RANKS), np.arange(_STEPS))
    assert heat.colour_limit_ms < 50
    assert str(heat_note(heat)).endswith("Circles: far beyond the colours.")


@pytest.mark.parametrize("ranks", [8, 64])
def test_zero_stays_the_middle_where_the_peers_lie_on_both_sides(ranks: int) -> None:
    excess_us = noisy(ranks, 500, 3)
    heat = heat_map(excess_us, np.arange(ranks), np.arange(500))
    assert heat.middle_ms == 0
    assert heat.colour_limit_ms == pytest.approx(np.percentile(np.abs(heat.excess_ms), 99))
    mean = heat_map(noisy(_RANKS, _STEPS, 3), np.arange(_RANKS), np.arange(_STEPS), "mean")
    assert mean.middle_ms == 0
    assert "colours" not in str(heat_note(mean))


def test_a_map_in_seconds_tells_its_middle_in_them() -> None:
    heat = heat_map(2e7 + noisy(_RANKS, _STEPS, 3), np.arange(_RANKS), np.arange(_STEPS))
    told = str(heat_note(heat, "s"))
    assert "typical cell +20.0 s: that is" in told


def heat_slice(edges: np.ndarray[Any, Any], place: int) -> slice:
    begins, ends = edges[:-1], edges[1:]
    return slice(int(begins[place]), int(ends[place]))


def test_a_drag_selects_and_a_cell_is_a_rank_and_a_step() -> None:
    heat = heat_of(np.zeros((8, 20)), first_step=500)
    figure = heat_figure(heat, LIGHT, budget_bytes=PAGE_BYTES)
    assert figure.layout.dragmode == "select"
    assert cell_at(heat, series_of(0), 3, 7) == (3, 507)
    assert cell_at(heat, series_of(0), 99, -1) == (7, 500)


def test_a_pooled_cell_leads_to_its_spike() -> None:
    excess_us = np.zeros((2000, 1024))
    excess_us[1333, 517] = 8.2e6
    heat = heat_map(excess_us, np.arange(1024), np.arange(2000))
    assert heat.is_pooled
    row, column = np.unravel_index(int(np.argmax(heat.excess_ms)), heat.excess_ms.shape)
    found = cell_at(heat, series_of(2000, spike=(1333, 9_000.0)), int(row), int(column))
    assert found == (517, 1333)


def test_a_box_leads_to_its_worst_cell() -> None:
    cells = np.zeros((8, 20))
    cells[2, 11] = 5.0
    cells[6, 1] = 50.0
    heat = heat_of(cells)
    assert worst_in_box(heat, [9.6, 14.2], [3.4, 0.2]) == (2, 11)
    assert worst_in_box(heat, [-3, 99], [-3, 99]) == (6, 1)
    assert worst_in_box(heat, [4.4, 4.45], [4.4, 4.45]) == (4, 4)
    assert worst_in_box(replace(heat, excess_ms=np.full((8, 20), np.nan)), [3, 5], [1, 2]) == (1, 3)


@given(st.integers(1, 40), st.integers(1, 300), st.integers(0, 2**31))
def test_pooling_never_loses_the_largest_excess(ranks: int, steps: int, seed: int) -> None:
    cells = np.random.default_rng(seed).normal(0, 5, (ranks, steps))
    fitted = fit(heat_of(cells), 2_000)
    assert fitted.excess_ms.max() == cells.max()
    assert np.all(np.diff(fitted.rank_edges) > 0)
    assert np.all(np.diff(fitted.step_edges) > 0)


# -- stage by replica ------------------------------------------------------------------------


def test_the_grid_names_ranks_and_skips_holes() -> None:
    grid = Grid(
        np.array([[0.1, 5.0], [np.nan, -0.2]]),
        np.array([0, 1]),
        np.array([0, 1]),
        np.array([[0, 2], [-1, 3]]),
        "one slow worker",
    )
    trace = data_of(grid_figure(grid, LIGHT))[0]
    assert array_of(trace["z"])[0, 1] == 5.0
    assert np.isnan(array_of(trace["z"])[1, 0])
    assert trace["texttemplate"] == "%{z:+.1f}"
    assert rank_at(grid, 0, 1) == 2
    assert rank_at(grid, 1, 0) is None
    assert rank_at(grid, 5, 0) is None


def test_a_large_grid_has_no_numbers_in_its_cells() -> None:
    cells = np.zeros((16, 64))
    grid = Grid(cells, np.arange(64), np.arange(16), np.arange(1024).reshape(16, 64), "even")
    trace = data_of(grid_figure(grid, LIGHT))[0]
    assert "texttemplate" not in trace


# -- step by step ----------------------------------------------------------------------------


def test_lines_stay_within_the_points_a_browser_draws() -> None:
    series = thin_series(series_of(100_000, spike=(54_321, 9_000.0)))
    figure = step_figure(series, LIGHT)
    assert points_in(figure) <= MAX_POINTS
    assert payload_bytes(figure) < LIVE_BYTES
    assert max(float(trace.y.max()) for trace in figure.data) == pytest.approx(9_005.0)
    slowest = next(trace for trace in figure.data if trace.name == "slowest")
    at = int(np.argmax(slowest.y))
    assert (slowest.x[at], slowest.customdata[at]) == (54_321, 517)
    assert all(trace.type == "scatter" for trace in figure.data)


def test_lines_differ_by_more_than_colour() -> None:
    figure = step_figure(series_of(50), LIGHT, chosen_step=7)
    looks = {(trace.line.dash, trace.line.width) for trace in figure.data}
    assert len(looks) == len(figure.data) == 4
    assert figure.layout.shapes[0].x0 == 7
    assert len(step_figure(series_of(50), LIGHT, chosen_step=99).layout.shapes) == 0


def test_a_band_of_quantiles_says_how_exact_it_is() -> None:
    figure = step_figure(series_of(50), LIGHT, spread_of=" of 8 steps", error_ratio=0.004)
    said = {trace.name: trace.hovertemplate for trace in figure.data}
    for name in ("median", "95 %"):
        assert "± 0.4 % of 8 steps" in said[name]
    assert "±" not in said["step"] + said["slowest"]
    assert [(trace.name, trace.fill) for trace in figure.data if trace.fill] == [
        ("median", "tonexty")
    ]
    # Without a 95 % beside it nothing is filled, and of exact ones neither.
    half = replace(series_of(50), work_p95_ms=np.full(50, np.nan))
    for one in (step_figure(half, LIGHT, error_ratio=0.004), step_figure(series_of(50), LIGHT)):
        assert not any(trace.fill for trace in one.data)


def test_a_line_without_values_is_left_out() -> None:
    series = replace(series_of(10), work_p50_ms=np.full(10, np.nan))
    assert [t.name for t in step_figure(series, LIGHT).data] == ["step", "slowest", "95 %"]


@given(st.integers(1, 5_000), st.integers(0, 2**31))
def test_thinning_keeps_the_longest_step_and_work(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = replace(series_of(count), duration_ms=rng.random(count), work_max_ms=rng.random(count))
    keep = spikes(series, 200)
    assert len(keep) <= 200
    assert series.duration_ms[keep].max() == series.duration_ms.max()
    assert series.work_max_ms[keep].max() == series.work_max_ms.max()
    assert np.all(np.diff(keep) > 0)


def test_loss_is_drawn_only_where_it_is_known() -> None:
    series = series_of(10)
    assert loss_figure(series) is None
    assert loss_figure(replace(series, loss=np.full(10, np.nan))) is None
    loss = np.linspace(3, 2, 10)
    loss[4] = np.nan
    figure = loss_figure(replace(series, loss=loss))
    assert figure is not None
    assert 4 not in figure.data[0].x
    assert len(figure.data[0].x) == 9


# -- one step --------------------------------------------------------------------------------


def timeline_of(*bars: PhaseBar) -> StepTimeline:
    return StepTimeline(7, bars, len(bars))


def test_phases_keep_one_order_and_look() -> None:
    timeline = timeline_of(
        PhaseBar(0, "waits", "rank 0", {"compute": 5.0, "input": 1.0, "wait": 4.0}),
        PhaseBar(6, "last to arrive", "rank 6", {"compute": 9.5, "novel": 0.5}),
    )
    assert phases_of(timeline) == ("input", "compute", "wait", "novel")
    figure = timeline_figure(timeline, LIGHT)
    assert [trace.name for trace in figure.data] == [
        "input",
        "compute",
        "waiting for peers",
        "novel",
    ]
    looks = {(t.marker.color, t.marker.pattern.shape) for t in figure.data}
    assert len(looks) == 4
    assert list(figure.data[0].y) == ["0", "last · 6"]
    # A phase that a rank did not measure has no bar, rather than one of length zero.
    assert list(figure.data[0].x) == [1.0, None]


def test_every_phase_looks_different() -> None:
    timeline = timeline_of(PhaseBar(0, "rank", "rank 0", dict.fromkeys(PHASE_ORDER, 1.0)))
    for palette in (LIGHT, DARK):
        figure = timeline_figure(timeline, palette)
        looks = {(t.marker.color, t.marker.pattern.shape) for t in figure.data}
        assert len(looks) == len(PHASE_ORDER)


# -- the ledger ------------------------------------------------------------------------------


def test_losses_lead_from_paid_to_useful() -> None:
    figure = waterfall_figure(LEDGER, "%", LIGHT)
    bar = figure.data[0]
    assert list(bar.y) == ["paid", "straggler wait", "input stall", "compute"]
    assert list(bar.x) == [1.0, 0.25, 0.25, 0.5]
    assert list(bar.base) == [0.0, 0.75, 0.5, 0.0]
    # The last loss ends where what is useful ends.
    assert bar.base[2] == bar.x[3]
    assert "50.0 %" in figure.layout.yaxis.ticktext[3]


def test_amounts_in_dollars_and_hours() -> None:
    assert units_of(LEDGER) == ("$", "%", "GPU-hours")
    assert amount(LEDGER[1], "GPU-hours") == 0.5
    assert amount(LEDGER[4], "$") is None
    text = waterfall_figure(LEDGER, "$", LIGHT).layout.yaxis.ticktext[1]
    assert "$0.50 · 25.0 %" in text
    assert "0.500 GPU-hours" in waterfall_figure(LEDGER, "GPU-hours", DARK).layout.yaxis.ticktext[1]


def test_the_share_beside_an_amount_is_that_of_the_time_not_of_its_cents() -> None:
    cents = tuple(replace(line, usd=line.usd and Decimal("0.01")) for line in LEDGER)
    text = waterfall_figure(cents, "$", LIGHT).layout.yaxis.ticktext[1]
    assert "$0.01 · 25.0 %" in text


def test_what_was_paid_is_all_of_it_where_parts_overlap_too() -> None:
    below = replace(LEDGER[1], share=None, gpu_seconds=-18.0, note="negative")
    figure = waterfall_figure((*LEDGER, below), "%", LIGHT)
    assert figure.data[0].x[0] == 1.0


def test_without_a_price_there_are_no_dollars_to_choose() -> None:
    unpriced = tuple(replace(line, usd=None) for line in LEDGER)
    assert units_of(unpriced) == ("%", "GPU-hours")
    relative = tuple(replace(line, usd=None, gpu_seconds=None) for line in LEDGER)
    assert units_of(relative) == ("%",)


def test_a_ledger_without_measured_buckets_draws_nothing_but_paid() -> None:
    figure = waterfall_figure(LEDGER[4:], "%", LIGHT)
    assert list(figure.data[0].x) == [0]


# -- all of them -----------------------------------------------------------------------------


def test_nothing_is_offered_for_upload() -> None:
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["displaylogo"] is False


def test_every_figure_has_a_fixed_height() -> None:
    figures = [
        heat_figure(heat_of(np.zeros((4, 4))), LIGHT, budget_bytes=PAGE_BYTES),
        step_figure(series_of(5), LIGHT),
        timeline_figure(timeline_of(PhaseBar(0, "rank", "rank 0", {"compute": 1.0})), LIGHT),
        waterfall_figure(LEDGER, "%", LIGHT),
    ]
    assert all(isinstance(figure.layout.height, (int, float)) for figure in figures)


def _lightness(colour: str) -> float:
    """CIELAB L* of an sRGB colour."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_faster_and_slower_are_equally_light(palette: Any) -> None:
    colours = palette.diverging
    assert len(colours) % 2 == 1
    for below, above in zip(colours, reversed(colours), strict=True):
        assert _lightness(below) == pytest.approx(_lightness(above), abs=2.0)
    middle = len(colours) // 2
    arm = [_lightness(colour) for colour in colours[middle:]]
    assert arm == sorted(arm) or arm == sorted(arm, reverse=True)
    assert palette.missing not in colours


def test_the_palette_follows_the_screen() -> None:
    assert palette_of("dark") is DARK
    assert palette_of("light") is LIGHT
    assert palette_of(None) is LIGHT


def test_a_thousand_ranks_under_load(shared: Callable[[str], Path]) -> None:
    spec = json.loads(shared("cases/21-dashboard-under-load/series_spec.json").read_text())
    rng = np.random.default_rng(spec["seed"])
    work = rng.normal(spec["base_ms"], spec["noise_sd_ms"], (spec["steps"], spec["ranks"]))
    spike = spec["spikes"][0]
    work[spike["step"], spike["rank"]] = spike["ms"]
    excess_us = (work - np.median(work, axis=1, keepdims=True)) * 1000
    heat = heat_map(excess_us, np.arange(spec["ranks"]), np.arange(spec["steps"]))
    series = thin_series(
        Series(
            np.arange(spec["steps"]),
            work.max(axis=1) + 20,
            np.median(work, axis=1),
            np.percentile(work, 95, axis=1),
            work.max(axis=1),
            work.argmax(axis=1),
            1 - work.mean(axis=1) / work.max(axis=1),
            None,
            spec["steps"],
        )
    )
    lines = step_figure(series, LIGHT)
    assert points_in(lines) <= 5_000
    assert max(float(trace.y.max()) for trace in lines.data) >= 9_000
    for budget in (LIVE_BYTES, PAGE_BYTES):
        fitted = fit(heat, budget)
        figure = heat_figure(fitted, LIGHT, budget_bytes=budget)
        assert payload_bytes(figure) + payload_bytes(lines) < 5e6
        row, column = np.unravel_index(int(np.nanargmax(fitted.excess_ms)), fitted.excess_ms.shape)
        assert cell_at(fitted, series, int(row), int(column)) == (spike["rank"], spike["step"])


@pytest.mark.parametrize(
    ("cells", "wanted", "every"), [(300, 8, 50), (8, 12, 1), (24, 12, 2), (40, 12, 5), (0, 8, 1)]
)
def test_axes_of_cells_are_labelled_at_round_places(cells: int, wanted: int, every: int) -> None:
    labels = [str(number) for number in range(cells)]
    axis = cell_axis(labels, wanted, down=False)
    assert axis["tickvals"] == labels[::every]


def test_a_heading_of_numbers_is_not_cut_off() -> None:
    columns = (Column("a", "failed, of GPU-hours", "ratio"), Column("b", "cost", "usd"))
    made = _column_config(table(columns, [[0.5, 1.0]]))
    assert made["a"]["width"] > made["b"]["width"] == 96
