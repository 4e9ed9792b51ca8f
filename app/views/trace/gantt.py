"""One step as bars: as it was recorded, and as it would ideally have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.errors import NotFoundError, UserError
from steptax.app.views.trace.load import TraceJob
from steptax.app.views.trace.models import GanttBars, GanttLane, IntArray, StepGantt
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.playback import (
    STREAMS,
    Playback,
    ideal,
    micro_batches,
    recorded,
    stream_of,
)
from steptax.app.whatif.questions import worker_of
from steptax.app.whatif.scenarios import Worker

_MS = 1e3
#: Ranks that are drawn unless asked for: two pipelines of eight stages.
SHOWN_RANKS = 16
#: Bars of both timelines together.
MOST_BARS = 5000
#: Bars closer than this share of the window look like one.
_CLOSE = 1 / 2000


def part_of(span_ms: float, percent: tuple[float, float]) -> tuple[float, float]:
    """From when to when a part of a step lasts, in ms, by its ends in per cent of the step."""
    return span_ms * percent[0] / 100.0, span_ms * percent[1] / 100.0


def trace_step(
    job: TraceJob,
    step: int,
    *,
    ranks: Sequence[int] = (),
    window_ms: tuple[float, float] | None = None,
    max_bars: int = MOST_BARS,
) -> StepGantt:
    """One step of ``job``; ``ranks`` to show, else the culprit's pipeline and a healthy one.

    At most ``max_bars`` bars of both timelines together; a smaller ``window_ms`` gives more detail.
    NotFoundError for a step or rank that was not analysed, UserError for an empty window or a job
    without dependency graph.
    """
    analysis = job.analysis
    if analysis is None:
        raise UserError(
            f"a step cannot be drawn operation by operation: {job.no_graph or 'no pipeline'}",
            where=f"step {step}",
            hint="the timeline of the job page shows phases of each rank",
        )
    model = analysis.model
    measured, best = recorded(model, step), ideal(model)
    span = max(measured.span_s, best.span_s) * _MS
    window = (0.0, span) if window_ms is None else window_ms
    if not window[0] < window[1]:
        raise UserError(f"the window {window[0]:g} to {window[1]:g} ms is empty", where="window")
    shown = _chosen(analysis, ranks)
    lanes = _Lanes(analysis, shown)
    original, said = lanes.bars(measured, window, max_bars // 2)
    ideal_bars, said_ideal = lanes.bars(best, window, max_bars // 2)
    notes = []
    total = model.trace.ranks.size
    if len(shown) < total:
        notes.append(f"{len(shown):,} of {total:,} ranks are drawn")
    notes += list(dict.fromkeys(n for n in (said, said_ideal) if n))
    return StepGantt(
        step=step,
        lanes=lanes.lanes,
        op_types=model.trace.types,
        original=original,
        ideal=ideal_bars,
        original_ms=measured.span_s * _MS,
        ideal_ms=best.span_s * _MS,
        window_ms=window,
        span_ms=span,
        ranks_shown=len(shown),
        ranks_total=total,
        note="; ".join(notes) or None,
    )


def _chosen(analysis: Analysis, ranks: Sequence[int]) -> list[Worker]:
    """Workers to draw, by data-parallel rank and stage."""
    trace = analysis.model.trace
    if ranks:
        return sorted({worker_of(trace, rank) for rank in ranks})
    score = analysis.worker_slowdown()
    order = np.argsort(-score.max(axis=1), kind="stable").tolist()
    # The slowest replica beside the fastest, then the rest from the slow end.
    order = [order[0], *([order[-1]] if len(order) > 1 else []), *order[1:-1]]
    workers = [(int(d), p) for d in order for p in range(trace.stages)]
    return sorted(workers[:SHOWN_RANKS])


@dataclass(frozen=True, eq=False)
class _Flat:
    """Bars before they are merged."""

    lane: IntArray
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    wait: npt.NDArray[np.float64]
    op: IntArray


class _Lanes:
    """The streams of the shown ranks, and what lies on them."""

    def __init__(self, analysis: Analysis, workers: Sequence[Worker]) -> None:
        trace = analysis.model.trace
        self.trace = trace
        self.micro = micro_batches(analysis.model).astype(np.int64)
        stream = np.array([STREAMS.index(s) for s in stream_of(trace)])[trace.op_type]
        lanes: list[GanttLane] = []
        self.ops: list[tuple[IntArray, int]] = []
        for dp, stage in workers:
            rank = int(trace.ranks[dp, stage])
            for number, name in enumerate(STREAMS):
                ops = np.flatnonzero((trace.op_stage == stage) & (stream == number))
                if len(ops):
                    label = f"rank {rank} {name}"
                    lanes.append(GanttLane(label, rank, trace.dps[dp], stage, name))
                    self.ops.append((ops.astype(np.int64), dp))
        self.lanes = tuple(lanes)

    def bars(
        self, play: Playback, window_ms: tuple[float, float], most: int
    ) -> tuple[GanttBars, str | None]:
        """At most ``most`` bars in the window, and what was merged or left out for it."""
        flat = self._flat(play, window_ms)
        found = len(flat.op)
        close = (window_ms[1] - window_ms[0]) * _CLOSE
        group = np.arange(found)
        count = found
        while count > most and close < window_ms[1] - window_ms[0]:
            group = self._merged(flat, close)
            count = int(group[-1]) + 1
            close *= 2
        note = None
        if count < found:
            note = f"{found:,} operations are drawn as {count:,} bars: zoom in for single ones"
        bars = self._bars(flat, group)
        if count > most:
            keep = np.sort(np.argsort(-(bars.end_ms - bars.start_ms), kind="stable")[:most])
            note = f"the {most:,} longest of {found:,} operations are drawn: zoom in for the others"
            bars = _only(bars, keep)
        return bars, note

    def _flat(self, play: Playback, window_ms: tuple[float, float]) -> _Flat:
        parts = []
        for lane, (ops, dp) in enumerate(self.ops):
            start, end, wait = (
                values[ops, dp] * _MS for values in (play.start_s, play.end_s, play.wait_s)
            )
            inside = (end >= window_ms[0]) & (start <= window_ms[1])
            order = np.lexsort((ops, start))
            order = order[inside[order]]
            where = np.full(len(order), lane, np.int64)
            parts.append((where, start[order], end[order], wait[order], ops[order]))
        if not parts:
            raise NotFoundError("no rank to draw", where="ranks")
        return _Flat(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _merged(self, flat: _Flat, close_ms: float) -> IntArray:
        """Number of the bar that each operation becomes: runs of one type without visible gaps."""
        kind = self.trace.op_type[flat.op]
        new = np.ones(len(flat.op), bool)
        new[1:] = (
            (flat.lane[1:] != flat.lane[:-1])
            | (kind[1:] != kind[:-1])
            | (flat.start[1:] - flat.end[:-1] > close_ms)
            | (flat.end[1:] - flat.start[1:] > 4 * close_ms)
            | (flat.end[:-1] - flat.start[:-1] > 4 * close_ms)
        )
        return np.cumsum(new) - 1

    def _bars(self, flat: _Flat, group: npt.NDArray[np.intp]) -> GanttBars:
        trace = self.trace
        if not len(group):
            none = np.zeros(0, np.int64)
            empty = np.zeros(0)
            return GanttBars(none, empty, empty, empty, none, none, none, ())
        first = np.flatnonzero(np.diff(group, prepend=-1))
        merged = np.diff(np.append(first, len(group)))
        op = flat.op[first]
        names = tuple(
            self._name(int(o), int(n)) for o, n in zip(op.tolist(), merged.tolist(), strict=True)
        )
        return GanttBars(
            lane=flat.lane[first],
            start_ms=np.minimum.reduceat(flat.start, first),
            end_ms=np.maximum.reduceat(flat.end, first),
            wait_ms=np.add.reduceat(flat.wait, first),
            op_type=trace.op_type[op].astype(np.int64),
            micro_batch=np.where(merged == 1, self.micro[op], -1),
            merged=merged.astype(np.int64),
            name=names,
        )

    def _name(self, op: int, merged: int) -> str:
        trace = self.trace
        kind = trace.types[trace.op_type[op]]
        if merged > 1:
            return f"{merged} x {kind}"
        if trace.op_name is not None and trace.op_name[op]:
            return trace.op_name[op]
        return f"{kind} {trace.op_seq[op]}"


def _only(bars: GanttBars, keep: npt.NDArray[np.intp]) -> GanttBars:
    return GanttBars(
        lane=bars.lane[keep],
        start_ms=bars.start_ms[keep],
        end_ms=bars.end_ms[keep],
        wait_ms=bars.wait_ms[keep],
        op_type=bars.op_type[keep],
        micro_batch=bars.micro_batch[keep],
        merged=bars.merged[keep],
        name=tuple(bars.name[i] for i in keep.tolist()),
    )
