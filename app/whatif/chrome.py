"""A step, or all, as a trace that Perfetto and chrome://tracing open.

The JSON object form of the Trace Event Format (Google, "Trace Event Format", 2016): complete events
("X") with microseconds, metadata events ("M") with names of processes and threads. What was
recorded is one process and what would ideally happen another, at the same times, so that they can
be compared; each stream of a rank is a thread. Operations that move data together share ``group``
in their arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import orjson

from steptax.app.whatif.analysis import Model
from steptax.app.whatif.playback import (
    STREAMS,
    Playback,
    group_of,
    ideal,
    micro_batches,
    recorded,
    stream_of,
)

ORIGINAL_PID, IDEAL_PID = 1, 2
#: Between two steps, as a share of the longest.
_GAP_RATIO = 0.02
#: Neighbours on a stream that overlap by less are rounding: the earlier is shortened by it.
_ROUNDING_US = 1.0


@dataclass(frozen=True)
class Written:
    """What a trace holds. ``overlapping`` slices went to a track of their own."""

    slices: int
    steps: int
    tracks: int
    overlapping: int


def write_chrome(
    target: BinaryIO,
    model: Model,
    *,
    steps: Sequence[int] | None = None,
    with_ideal: bool = True,
    job: str = "",
) -> Written:
    """Write ``steps`` (numbers; None: all) of ``model`` to ``target`` as they are made.

    NotFoundError for a step that was not analysed.
    """
    chosen = model.trace.steps if steps is None else tuple(steps)
    writer = _Writer(model)
    target.write(b'{"displayTimeUnit":"ms","otherData":')
    target.write(orjson.dumps({"job": job, "steps": list(chosen), "made_by": "steptax"}))
    target.write(b',"traceEvents":[\n')
    played = ideal(model) if with_ideal else None
    first = True
    for event in writer.events(chosen, played):
        target.write(b"" if first else b",\n")
        target.write(event)
        first = False
    target.write(b"\n]}\n")
    return Written(writer.slices, len(chosen), len(writer.tracks), writer.overlapping)


class _Writer:
    """Turns operations into events; threads are named when they first occur."""

    def __init__(self, model: Model) -> None:
        trace = model.trace
        self.model = model
        self.stream = np.array([STREAMS.index(s) for s in stream_of(trace)])[trace.op_type]
        self.group = group_of(model).tolist()
        self.synced = [g.synced for g in model.graph.groups]
        self.micro = micro_batches(model).tolist()
        self.ops_of = {
            (stage, stream): np.flatnonzero((trace.op_stage == stage) & (self.stream == stream))
            for stage in range(trace.stages)
            for stream in range(len(STREAMS))
        }
        self.tracks: dict[tuple[int, int, int, int], int] = {}
        self.slices = 0
        self.overlapping = 0

    def events(self, steps: Sequence[int], played: Playback | None) -> Iterator[bytes]:
        """Every event, one JSON object each."""
        yield from _process(ORIGINAL_PID, "original (as recorded)")
        if played is not None:
            yield from _process(IDEAL_PID, "ideal (simulated)")
        offset_us = 0.0
        longest = float(self.model.work.base_s.max()) * 1e6
        for step in steps:
            measured = recorded(self.model, step)
            yield from self._timeline(ORIGINAL_PID, step, measured, offset_us)
            span = measured.span_s
            if played is not None:
                yield from self._timeline(IDEAL_PID, step, played, offset_us)
                span = max(span, played.span_s)
            offset_us += span * 1e6 + _GAP_RATIO * longest

    def _timeline(self, pid: int, step: int, play: Playback, offset_us: float) -> Iterator[bytes]:
        dps = self.model.trace.shape[2]
        for stage in range(self.model.trace.stages):
            for dp in range(dps):
                for stream in range(len(STREAMS)):
                    ops = self.ops_of[stage, stream]
                    if len(ops):
                        yield from self._lane(pid, step, play, offset_us, (dp, stage, stream), ops)

    def _lane(
        self,
        pid: int,
        step: int,
        play: Playback,
        offset_us: float,
        place: tuple[int, int, int],
        ops: np.ndarray,
    ) -> Iterator[bytes]:
        """One stream of one rank in one step; what overlaps goes to further tracks."""
        dp, stage, stream = place
        starts, ends, waits = (
            values[ops, dp] * 1e6 for values in (play.start_s, play.end_s, play.wait_s)
        )
        order = np.lexsort((ends, starts))
        free: list[float] = []
        pending: list[tuple[int, float, float] | None] = []
        for k in order.tolist():
            begin, end = float(starts[k]), max(float(starts[k]), float(ends[k]))
            track = next((i for i, t in enumerate(free) if t <= begin + _ROUNDING_US), len(free))
            if track == len(free):
                free.append(end)
                pending.append(None)
            held = pending[track]
            if held is not None:
                yield self._slice(pid, step, place, track, ops, waits, offset_us, held, begin)
            self.overlapping += track > 0
            yield from self._thread(pid, dp, stage, stream, track)
            pending[track] = (k, begin, end)
            free[track] = end
        for track, held in enumerate(pending):
            if held is not None:
                yield self._slice(pid, step, place, track, ops, waits, offset_us, held, np.inf)

    def _slice(
        self,
        pid: int,
        step: int,
        place: tuple[int, int, int],
        track: int,
        ops: np.ndarray,
        waits: np.ndarray,
        offset_us: float,
        held: tuple[int, float, float],
        until_us: float,
    ) -> bytes:
        """The event of one operation, ended at ``until_us`` where the next begins before."""
        dp, stage, stream = place
        k, begin, end = held
        op = int(ops[k])
        trace = self.model.trace
        arguments: dict[str, object] = {
            "step": step,
            "rank": int(trace.ranks[dp, stage]),
            "dp": trace.dps[dp],
            "stage": stage,
            "seq": int(trace.op_seq[op]),
        }
        if self.micro[op] >= 0:
            arguments["micro_batch"] = self.micro[op]
        if trace.op_name is not None and trace.op_name[op]:
            arguments["name"] = trace.op_name[op]
        if (group := self.group[op]) >= 0:
            # Over data-parallel ranks a group is one; a transfer between stages is each lane's own.
            own = "" if self.synced[group] else f".dp{trace.dps[dp]}"
            arguments["group"] = f"{step}.{group}{own}"
            arguments["wait_us"] = round(float(waits[k]), 3)
        self.slices += 1
        # Both ends are rounded alike: what touches must not overlap for it.
        from_us, to_us = round(offset_us + begin, 3), round(offset_us + min(end, until_us), 3)
        return orjson.dumps(
            {
                "ph": "X",
                "pid": pid,
                "tid": self.tracks[pid, dp * trace.stages + stage, stream, track],
                "ts": from_us,
                "dur": max(0.0, round(to_us - from_us, 3)),
                "name": trace.types[trace.op_type[op]],
                "cat": STREAMS[stream],
                "args": arguments,
            }
        )

    def _thread(self, pid: int, dp: int, stage: int, stream: int, track: int) -> Iterator[bytes]:
        key = (pid, dp * self.model.trace.stages + stage, stream, track)
        if key in self.tracks:
            return
        tid = self.tracks[key] = len(self.tracks) + 1
        trace = self.model.trace
        extra = f", overlapping {track}" if track else ""
        name = (
            f"rank {trace.ranks[dp, stage]} (DP {trace.dps[dp]}, stage {stage}) "
            f"{STREAMS[stream]}{extra}"
        )
        yield _meta("thread_name", pid, tid, name=name)
        yield _meta("thread_sort_index", pid, tid, sort_index=self._place(key))

    def _place(self, key: tuple[int, int, int, int]) -> int:
        """Stages of a data-parallel rank below each other, the streams of a rank together."""
        _, worker, stream, track = key
        return (worker * len(STREAMS) + stream) * 16 + min(track, 15)


def _process(pid: int, name: str) -> Iterator[bytes]:
    yield _meta("process_name", pid, 0, name=name)
    yield _meta("process_sort_index", pid, 0, sort_index=pid)


def _meta(kind: str, pid: int, tid: int, **arguments: object) -> bytes:
    return orjson.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": arguments})
