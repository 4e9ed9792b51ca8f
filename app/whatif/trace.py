"""The trace in memory: dense arrays indexed by (operation, step, data-parallel rank).

An operation is identified by (type, stage, sequence number); a *lane* is one step of one
data-parallel rank. Every lane holds every operation exactly once, whatever the order of the rows:
steps of which this cannot be said are left out and named in ``findings``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.errors import InputError
from steptax.app.whatif.complete import incomplete, one_rank_each, refuse_moving_ranks
from steptax.app.whatif.findings import DroppedStep, Findings
from steptax.app.whatif.index import Index, index_rows
from steptax.app.whatif.rows import OpRows, rows_from_parquet
from steptax.app.whatif.screen import check_rows, check_times, other_schedule, unusable_steps

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]


@dataclass(frozen=True)
class JobSizes:
    """Parallel sizes of the job as its owner states them; None where not stated."""

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    dsp: int | None = None
    vpp: int | None = None
    world: int | None = None
    name: str | None = None
    run_id: int | str | None = None

    def __post_init__(self) -> None:
        """InputError for a size that is no positive whole number, or a clashing world size."""
        for key in ("dp", "pp", "tp", "dsp", "vpp", "world"):
            value = getattr(self, key)
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"expected a positive whole number, not {value!r}", where=key)
        factors = (self.dp, self.pp, self.tp, self.dsp)
        if self.world is not None and all(f is not None for f in factors):
            product = int(np.prod([f for f in factors if f is not None]))
            if product != self.world:
                raise InputError(
                    f"world size {self.world} is not dp x pp x tp x dsp = {product}",
                    where="sizes",
                )

    @classmethod
    def from_mapping(cls, meta: Mapping[str, Any]) -> JobSizes:
        """From ``dp_size`` ... ``world_size``, ``trial_name`` or ``name``; others are ignored."""
        sizes = {k: meta.get(f"{k}_size") for k in ("dp", "pp", "tp", "dsp", "vpp", "world")}
        return cls(
            **sizes, name=meta.get("trial_name", meta.get("name")), run_id=meta.get("run_id")
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """A screened trace of O operations, S steps, D data-parallel ranks and P stages.

    ``op_type`` indexes ``types``; the operations are sorted by (type, stage, sequence number).
    ``op_global`` is the virtual stage over all stages, ``op_chunk`` inside its stage, -1 where
    none applies; ``op_name`` is what ran, as the first lane has it, None where the source does not
    say. ``start_s`` [O, S, D] counts from the first start of its step over all ranks.
    ``ranks`` [D, P] are global ranks.
    """

    types: tuple[str, ...]
    op_type: Ids
    op_stage: Ids
    op_seq: Ids
    op_chunk: Ids
    op_global: Ids
    start_s: Floats
    duration_s: Floats
    steps: tuple[int, ...]
    dps: tuple[int, ...]
    ranks: Ids
    stages: int
    chunks: int
    in_stream: frozenset[str]
    op_name: tuple[str, ...] | None = None
    sizes: JobSizes = field(default_factory=JobSizes)
    findings: Findings = field(default_factory=Findings)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Operations, steps, data-parallel ranks."""
        o, s, d = self.start_s.shape
        return o, s, d

    @cached_property
    def rows_of(self) -> Mapping[str, slice]:
        """Where the operations of each type lie; they are contiguous."""
        bounds = np.searchsorted(self.op_type, np.arange(len(self.types) + 1))
        return {
            name: slice(int(bounds[i]), int(bounds[i + 1])) for i, name in enumerate(self.types)
        }

    def operation(self, op: int) -> str:
        """For people: ``forward-send 3 of stage 1``."""
        return f"{self.types[self.op_type[op]]} {self.op_seq[op]} of stage {self.op_stage[op]}"

    def gpus(self) -> tuple[int, str | None]:
        """Devices of the job, and a warning where only the recorded ranks are known."""
        if self.sizes.world is not None:
            return self.sizes.world, None
        return self.ranks.size, (
            f"world size unknown: counts only the {self.ranks.size} recorded ranks"
        )


def read_trace(
    path: Path,
    meta: JobSizes | Mapping[str, Any] | None = None,
    *,
    unit: str = "s",
    in_stream: Collection[str] = (),
) -> Trace:
    """The trace in a Parquet file; see ``rows_from_parquet`` and ``make_trace`` for refusals."""
    sizes = meta if isinstance(meta, JobSizes) else JobSizes.from_mapping(meta or {})
    return make_trace(rows_from_parquet(path, unit=unit, in_stream=in_stream), sizes)


def make_trace(rows: OpRows, sizes: JobSizes | None = None) -> Trace:
    """Screen ``rows`` and lay them out.

    InputError when the operations cannot be those of training steps (no backward, an unknown type
    of which it is not known where it runs, wrong unit, no complete step), naming rank, step and
    operation where one is to blame.
    """
    sizes = sizes or JobSizes()
    index = index_rows(rows)
    warnings = [*rows.notes, *check_rows(rows, index.types)]
    if not index.one_rank:
        rows, note = one_rank_each(rows, index)
        warnings.append(note)
        index = index_rows(rows)
    refuse_moving_ranks(rows, index)
    dropped: list[DroppedStep] = []
    recorded = len(index.steps)
    left_out: tuple[int, ...] = ()
    if not index.complete:
        keep = incomplete(rows, index)
        warnings += keep.warnings
        dropped += keep.dropped
        left_out = keep.left_out_dp
        rows = rows.only(keep.mask)
        index = index_rows(rows)
    start, duration, bad = _dense(rows, index)
    first = _first_lane(rows, index)
    chunk, global_chunk = _chunks(rows, index, first)
    bad += other_schedule(rows, index, global_chunk)
    steps = index.steps
    if bad:
        dropped += bad
        good = ~np.isin(steps, [b.step for b in bad])
        if not good.any():
            raise InputError(f"no usable step: {bad[0].reason}", where=bad[0].where)
        start, duration, steps = start[:, good], duration[:, good], steps[good]
    warnings += check_times(index, start, duration)
    chunks = max(1, int(chunk.max()) + 1, int(global_chunk.max()) // index.stages + 1)
    warnings += _against_sizes(index, sizes, chunks)
    return Trace(
        types=index.types,
        op_type=index.op_type,
        op_stage=index.op_stage,
        op_seq=index.op_seq,
        op_chunk=chunk,
        op_global=global_chunk,
        start_s=start,
        duration_s=duration,
        steps=tuple(steps.tolist()),
        dps=tuple(index.dps.tolist()),
        ranks=index.ranks,
        stages=index.stages,
        chunks=chunks,
        in_stream=rows.in_stream,
        op_name=None if rows.name is None else tuple(rows.name[first].tolist()),
        sizes=sizes,
        findings=Findings(
            recorded_steps=recorded,
            dropped=tuple(dropped),
            left_out_dp=left_out,
            warnings=tuple(warnings),
        ),
    )


def _dense(rows: OpRows, index: Index) -> tuple[Floats, Floats, list[DroppedStep]]:
    """Start and duration in seconds, [O, S, D], and the steps with values that cannot be."""
    shape = index.shape
    arrays = []
    for column in (rows.start, rows.duration):
        # In the type of the source: half the bytes to scatter, and nanoseconds stay exact.
        flat = np.empty(shape[0] * shape[1] * shape[2], column.dtype)
        flat[index.cell] = column
        arrays.append(flat.reshape(shape))
    start, duration = arrays
    bad = unusable_steps(start, duration, index, rows.unit_s)
    if start.dtype != np.int64:
        start = start.astype(np.float64)
    base = earliest(start)
    if base.any():
        with np.errstate(invalid="ignore"):  # Infinite starts: their steps are in ``bad``.
            start -= base[:, None]
    return _seconds(start, rows.unit_s), _seconds(duration, rows.unit_s), bad


def _seconds(values: npt.NDArray[Any], unit_s: float) -> Floats:
    exact = values.astype(np.float64, copy=False)
    return exact if unit_s == 1.0 else np.multiply(exact, unit_s, out=exact)


def earliest(start: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[S] first start of each step; [O, S, D] reduced one axis at a time, which is far faster."""
    out: npt.NDArray[Any] = start.min(axis=0).min(axis=1)
    return out


def _first_lane(rows: OpRows, index: Index) -> Ids:
    """[O] row of each operation in the first step of the first data-parallel rank."""
    lane = np.flatnonzero((rows.step == index.steps[0]) & (rows.dp == index.dps[0]))
    first = np.empty(index.shape[0], np.intp)
    first[index.cell[lane] // (index.shape[1] * index.shape[2])] = lane
    return first


def _chunks(rows: OpRows, index: Index, first: Ids) -> tuple[Ids, Ids]:
    """Virtual stage of each operation inside its stage and over all, as its first lane has it."""
    chunk, whole = (column[first].astype(np.intp) for column in (rows.chunk, rows.global_chunk))
    if (whole < 0).all():
        chunk = np.maximum(chunk, 0)
        whole = chunk * index.stages + index.op_stage
    return chunk, whole


def _against_sizes(index: Index, sizes: JobSizes, chunks: int) -> list[str]:
    """What the trace lacks of what the job's sizes promise; it has ``chunks`` virtual stages."""
    warnings = []
    if sizes.pp is not None and sizes.pp != index.stages:
        warnings.append(f"the job has {sizes.pp} pipeline stages, the trace {index.stages}")
    if sizes.vpp is not None and sizes.vpp != chunks:
        warnings.append(
            f"the job has {sizes.vpp} virtual stages on each pipeline stage, the trace {chunks}: "
            "if the schedule is interleaved, who waits for whom is modelled wrongly"
        )
    if sizes.dp is not None and sizes.dp != len(index.dps):
        absent = sorted(set(range(sizes.dp)) - set(index.dps.tolist()))
        named = f"; not there: {', '.join(map(str, absent[:5]))}" if absent else ""
        warnings.append(
            f"the job has {sizes.dp} data-parallel ranks, the trace {len(index.dps)}{named}"
        )
    return warnings
