"""Whether rows are a trace of training steps at all, in the unit that they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.errors import InputError
from steptax.app.whatif.arrays import median
from steptax.app.whatif.findings import DroppedStep
from steptax.app.whatif.index import Index
from steptax.app.whatif.optypes import BACKWARD, CLIP, FORWARD, KNOWN, OPTIMIZER, REDUCE_SCATTER
from steptax.app.whatif.rows import OpRows

#: No micro-batch of a pipeline computes for so long: then the unit is another.
_LONGEST_COMPUTE_S = 60.0
_SHORTEST_STEP_S = 1e-3
#: No operation of a step lasts for a day: such a duration is a fault of the recording.
_LONGEST_S = 86_400.0
#: Start times that were stored more coarsely than this cannot tell who waited for whom.
_COARSEST_S = 1e-3


def check_rows(rows: OpRows, types: tuple[str, ...]) -> list[str]:
    """Refuse what the dependency model does not hold for; returns warnings.

    ``types`` are those that occur.

    InputError without forward or backward computing, or with operation types of which it is not
    known that they run on the compute stream.
    """
    if FORWARD not in types or BACKWARD not in types:
        absent = FORWARD if FORWARD not in types else BACKWARD
        raise InputError(
            f"no {absent} recorded: the dependency model is that of a training step with forward "
            "and backward passes",
            where="operations",
            hint="an evaluation or a forward-only trace has per-rank times, but no such graph",
        )
    unknown = [t for t in types if t not in KNOWN]
    strange = [t for t in unknown if t not in rows.in_stream]
    if strange:
        row = int(np.argmax(rows.type_code == rows.types.index(strange[0])))
        raise InputError(
            f"unknown operation types: {', '.join(strange)}",
            where=f"step {rows.step[row]}, rank {rows.rank[row]}",
            hint="name those that run on the compute stream (--in-stream), or leave them out",
        )
    if rows.resolution_s > _COARSEST_S:
        raise InputError(
            f"start times were stored in steps of {rows.resolution_s:.3g} s",
            where="start",
            hint="count start times from the begin of the step, or store them in 64 bits",
        )
    warnings = []
    if unknown:
        warnings.append(
            f"unknown operation types taken as computing on the compute stream: "
            f"{', '.join(unknown)}"
        )
    absent_types = [t for t in (CLIP, OPTIMIZER) if t not in types]
    if REDUCE_SCATTER not in types and rows.dp.min() < rows.dp.max():
        absent_types.insert(0, REDUCE_SCATTER)
    if absent_types:
        warnings.append(f"not recorded, hence not modelled: {', '.join(absent_types)}")
    return warnings


def unusable_steps(
    start: npt.NDArray[Any],
    duration: npt.NDArray[Any],
    index: Index,
    unit_s: float,
) -> list[DroppedStep]:
    """Steps with a duration that is negative, beyond a day or no number, or a start that is none.

    ``start`` and ``duration`` [O, S, D] are in units of ``unit_s`` seconds.
    """
    longest = _LONGEST_S / unit_s
    sound = duration >= 0
    sound &= duration <= longest
    if duration.dtype.kind == "f":
        sound &= np.isfinite(start)
    if sound.all():
        return []
    forward = duration[index.op_type == index.types.index(FORWARD)]
    if median(forward[:, 0]) > longest:
        # All of them are so long: ``check_times`` says that the unit is another.
        sound = (duration >= 0) & (duration < np.inf) & np.isfinite(start)
    out = []
    for step in np.flatnonzero(~sound.all(axis=(0, 2))):
        op, dp = (int(v[0]) for v in np.nonzero(~sound[:, step]))
        value = duration[op, step, dp]
        stage = int(index.op_stage[op])
        if not value >= 0 or value == np.inf:
            reason = f"duration {value}"
        elif value > longest:
            reason = f"duration {value * unit_s:.3g} s"
        else:
            reason = "start is no number"
        out.append(
            DroppedStep(
                int(index.steps[step]),
                reason,
                int(index.ranks[dp, stage]),
                index.operation(op),
            )
        )
    return out


def other_schedule(
    rows: OpRows, index: Index, global_chunk: npt.NDArray[np.intp]
) -> list[DroppedStep]:
    """Steps in which a virtual stage comes at another place than ``global_chunk`` [O] has it."""
    if int(global_chunk.max()) < index.stages or (rows.global_chunk < 0).all():
        return []
    flat = np.empty(int(np.prod(index.shape)), rows.global_chunk.dtype)
    flat[index.cell] = rows.global_chunk
    other = flat.reshape(index.shape) != global_chunk[:, None, None]
    out = []
    for step in np.flatnonzero(other.any(axis=(0, 2))):
        op, dp = (int(v[0]) for v in np.nonzero(other[:, step]))
        stage = int(index.op_stage[op])
        out.append(
            DroppedStep(
                int(index.steps[step]),
                "another virtual stage than in the first step",
                int(index.ranks[dp, stage]),
                index.operation(op),
            )
        )
    return out


def check_times(
    index: Index,
    start_s: npt.NDArray[np.float64],
    duration_s: npt.NDArray[np.float64],
) -> list[str]:
    """Refuse a unit that cannot be; returns warnings. ``start_s`` [O, S, D] from each step's begin.

    InputError when micro-batches compute for minutes or nothing ever takes time.
    """
    forward = duration_s[index.op_type == index.types.index(FORWARD)]
    typical = median(forward[:, 0])
    span = float(start_s[:, 0].max()) + typical
    place = f"step {index.steps[0]}"
    if typical > _LONGEST_COMPUTE_S:
        raise InputError(
            f"a forward pass takes {typical:.4g} s",
            where=place,
            hint="the times are not in the stated unit: say ms, us or ns",
        )
    if not duration_s.any():
        raise InputError("every duration is zero", where="duration")
    if span < _SHORTEST_STEP_S:
        return [f"{place} lasts {span:.3g} s: check the unit of the times"]
    return []
