"""Figures of the what-if analysis from hand-made models: shapes whose picture is known."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steptax.app.charts import trace_tables as tables
from steptax.app.charts.style import payload_bytes
from steptax.app.charts.trace_bars import (
    column_figure,
    series_figure,
    slowest_step,
    type_figure,
    worst_figure,
)
from steptax.app.charts.trace_gantt import gantt_figure, shown_ranks, window_of
from steptax.app.charts.trace_heat import frames, worker_at, worker_figure
from steptax.app.compute.measure import Measure
from steptax.app.theme import DARK, LIGHT
from steptax.app.views.trace.models import (
    CurvePoint,
    GanttBars,
    GanttLane,
    StepGantt,
    StepSeries,
    TraceBar,
    WorkerGrid,
)


def grid(stages: int, dps: int, hot: tuple[int, int] = (0, 0), slowdown: float = 1.4) -> WorkerGrid:
    cells = np.full((stages, dps), 1.0)
    cells[hot] = slowdown
    marked = np.zeros((stages, dps), bool)
    marked[hot] = True
    return WorkerGrid(
        slowdown=cells,
        ranks=np.arange(stages * dps, dtype=np.int64).reshape(stages, dps),
        dps=np.arange(dps, dtype=np.int64),
        stages=np.arange(stages, dtype=np.int64),
        highlighted=marked,
        step=None,
        S=slowdown,
        colour_low=1.0,
        colour_high=1.5,
        text="all steps",
    )


def bar(
    key: str, value: float | None, low: float | None = None, high: float | None = None
) -> TraceBar:
    measure = (
        Measure.missing("x", "not told")
        if value is None
        else Measure(value, "x", low=low, high=high)
    )
    return TraceBar(key, key, f"only {key} is as it was", measure)


@given(arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 8))))
def test_frames_cover_what_is_marked_once_and_nothing_else(marked: npt.NDArray[np.bool_]) -> None:
    covered = np.zeros(marked.shape, int)
    for top, left, bottom, right in frames(marked):
        covered[top : bottom + 1, left : right + 1] += 1
    assert (covered == marked).all()


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(slice(1, 2), slice(None)), (slice(None), slice(2, 3)), (slice(None),) * 2],
)
def test_a_row_a_column_and_everything_have_one_frame(rows: slice, columns: slice) -> None:
    marked = np.zeros((4, 5), bool)
    marked[rows, columns] = True
    assert len(list(frames(marked))) == 1


def test_cells_have_numbers_while_they_fit_and_a_rank_in_focus_has_arrows() -> None:
    small = worker_figure(grid(4, 8, hot=(2, 3)), LIGHT, chosen=19)
    assert small.data[0].texttemplate == "%{z:.2f}"
    assert [(a.x, a.y) for a in small.layout.annotations] == [(1, 2), (3, 1)]
    wide = worker_figure(grid(8, 512), DARK, chosen=None)
    assert wide.data[0].texttemplate is None
    assert not wide.layout.annotations
    assert len(wide.layout.xaxis.tickvals) <= 16
    assert payload_bytes(worker_figure(grid(64, 1024), LIGHT)) < 1_000_000


def test_a_cell_leads_to_its_rank_and_an_empty_one_to_none() -> None:
    made = grid(2, 3)
    made.ranks[1, 2] = -1
    assert worker_at(made, 1, 1) == 4
    assert worker_at(made, 1, 2) is None
    assert worker_at(made, 2, 0) is None


def test_bars_start_at_one_and_only_what_surely_costs_is_striped() -> None:
    bars = [
        bar("forward", 1.4, 1.3, 1.5),
        bar("maybe", 1.02, 0.98, 1.06),
        bar("light", 0.95, 0.94, 0.96),
        bar("unknown", None),
    ]
    figure = type_figure(bars, LIGHT)
    drawn = figure.data[0]
    assert list(drawn.y) == ["forward", "maybe", "light"]
    assert np.allclose(np.array(drawn.base) + np.array(drawn.x), [1.4, 1.02, 0.95])
    assert list(drawn.marker.pattern.shape) == ["/", "", ""]
    assert np.allclose(drawn.error_x.array, [0.1, 0.04, 0.01])
    assert np.allclose(drawn.error_x.arrayminus, [0.1, 0.04, 0.01])
    low, high = figure.layout.xaxis.range
    assert low < 0.94
    assert high > 1.5
    columns = column_figure([bar(str(i), 1 + i / 100) for i in range(64)], DARK, "stage")
    assert len(columns.layout.xaxis.tickvals) <= 16
    assert tables.bars_table(bars, "type").rows[-1] == ("unknown", None, None, None)


def test_lines_of_many_steps_keep_the_longest() -> None:
    count = 20_000
    measured = np.full(count, 100.0)
    measured[13_337] = 900.0
    series = StepSeries(
        steps=np.arange(count, dtype=np.int64),
        measured_ms=measured,
        original_ms=measured - 1,
        ideal_ms=80.0,
        S=measured / 80,
        slowest_rank=np.zeros(count, np.int64),
    )
    figure = series_figure(series, LIGHT, chosen_step=13_337)
    assert sum(len(trace.x) for trace in figure.data) <= 2_000
    assert max(figure.data[0].y) == 900.0
    assert figure.layout.shapes[0].x0 == 13_337
    assert slowest_step(series) == 13_337
    assert len(tables.steps_table(series).rows) == count


def test_the_curve_of_repairs_starts_with_none() -> None:
    gone = Measure.missing("USD/day", "no price per GPU-hour is known")
    points = [
        CurvePoint(
            k,
            rank,
            Measure(100.0 - 10 * k, "ms", low=95.0 - 10 * k, high=102.0 - 10 * k),
            Measure(k / 10, "ratio"),
            Measure(24.0 * k, "GPU-hours/day"),
            gone,
        )
        for k, rank in ((1, 7), (2, 3))
    ]
    drawn = worst_figure(points, Measure(100.0, "ms"), LIGHT).data[0]
    assert list(drawn.x) == [0, 1, 2]
    assert list(drawn.y) == [100.0, 90.0, 80.0]
    assert list(drawn.error_y.arrayminus) == [0.0, 5.0, 5.0]
    assert "rank 7 last" in drawn.customdata[1]
    assert "$" not in drawn.customdata[1]
    assert tables.curve_table(points).rows[1][:3] == (2, 3, 80.0)


def step(ops: list[tuple[int, float, float, float, int, int]]) -> StepGantt:
    """Bars (lane, start, end, wait, type, merged) on rank 4's compute and receive streams."""
    lane, start, end, wait, kind, merged = map(np.array, zip(*ops, strict=True))
    bars = GanttBars(
        lane=lane,
        start_ms=start.astype(float),
        end_ms=end.astype(float),
        wait_ms=wait.astype(float),
        op_type=kind,
        micro_batch=np.where(merged == 1, 0, -1),
        merged=merged,
        name=tuple(f"op {i}" for i in range(len(ops))),
    )
    return StepGantt(
        step=9,
        lanes=(
            GanttLane("rank 4 compute", 4, 1, 0, "compute"),
            GanttLane("rank 4 forward-recv", 4, 1, 0, "forward-recv"),
        ),
        op_types=("forward-compute", "forward-recv"),
        original=bars,
        ideal=bars,
        original_ms=100.0,
        ideal_ms=60.0,
        window_ms=(0.0, 100.0),
        span_ms=100.0,
        ranks_shown=1,
        ranks_total=8,
    )


def test_waiting_is_drawn_apart_from_the_transfer() -> None:
    made = step([(0, 30, 90, 0, 0, 1), (1, 0, 30, 25, 1, 1), (1, 30, 60, 20, 1, 5)])
    figure = gantt_figure(made, LIGHT)
    above = {trace.name: trace for trace in figure.data if trace.yaxis == "y"}
    assert set(above) == {"forward", "forward transfers", "waiting for peers"}
    moved = above["forward transfers"]
    assert list(moved.base) == [25.0]
    assert list(moved.x) == [5.0]
    # Of five operations in one bar most is waiting: nobody knows where in it.
    waiting = above["waiting for peers"]
    assert list(waiting.base) == [0.0, 30.0]
    assert list(waiting.x) == [25.0, 30.0]
    assert "25 waiting" in waiting.customdata[0]
    assert "micro-batch 0" in waiting.customdata[0]
    assert waiting.width[0] < moved.width[0] < above["forward"].width[0]
    assert [trace.showlegend for trace in figure.data] == [True] * 3 + [False] * 3
    assert len(tables.gantt_table(made).rows) == 6


def test_a_box_becomes_a_part_of_the_step() -> None:
    assert window_of(([25.0, 75.0], [0, 1]), 100.0) == (25.0, 75.0)
    assert window_of(([75.0, -5.0], [0, 1]), 100.0) == (0.0, 75.0)
    low, high = window_of(([200.0, 300.0], [0, 1]), 100.0)
    assert 0 <= low < high <= 100


@pytest.mark.parametrize(("stages", "dps"), [(1, 1), (1, 64), (4, 4), (4, 1), (64, 128)])
def test_the_slowest_pipeline_is_drawn_where_nobody_chose(stages: int, dps: int) -> None:
    for hot in itertools.product({0, stages // 2, stages - 1}, {0, dps - 1}):
        ranks = shown_ranks(grid(stages, dps, hot=hot))
        assert len(ranks) == len(set(ranks))
        assert hot[0] * dps + hot[1] in ranks
        assert 1 <= len(ranks) <= 8
