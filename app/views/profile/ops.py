"""The operations of a job's devices, from the lake."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.trace.breakdown import DeviceWork, Work
from steptax.app.intervals import Ints
from steptax.app.views.profile.load import RankWork
from steptax.app.views.workspace import Workspace
from steptax.app.whatif.generic_rows import STEP, Ops, is_generic, read_ops
from steptax.app.whatif.rows import numbers

#: Types of ``ops`` that only a device has.
_COPIES = ("h2d-copy", "copy", "memset")
_ON_DEVICE = ("kernel", *_COPIES)
#: Types of ``ops`` that are no work of a device.
_BESIDE = (STEP, "ready", "input", "cpu")
_NOT_STORED = (
    "when the host launched each operation is not stored: its source does not tell, or it was "
    "imported before that was kept; the trace files may tell (steptax profile FILES)"
)


def work_of_job(ws: Workspace, job_id: str) -> list[RankWork]:
    """What the devices of the ranks of ``job_id`` did, by rank.

    Empty where no operations of a profiler are stored; NotFoundError for an unknown job.
    """
    ws.job(job_id)
    if not ws.lake.segments("ops", job_id):
        return []
    steps = ws.engine.run("op_counts", job_id=job_id)["step"].to_pylist()
    table = ws.engine.run("device_ops", job_id=job_id, first_step=min(steps), last_step=max(steps))
    if not is_generic(table):
        return []
    ops = read_ops(table)
    launch_ns, told = numbers(table["launch_ns"], "ops, launch_ns")
    launched = np.ones(len(launch_ns), bool) if told is None else told
    return [
        _of_rank(ops, rank, launch_ns.astype(np.int64), launched) for rank in range(len(ops.ranks))
    ]


def _of_rank(ops: Ops, rank: int, launch_ns: Ints, launched: NDArray[np.bool_]) -> RankWork:
    mine = ops.rank == rank
    device = ~ops.of(*_BESIDE) & mine
    if not (ops.of(*_ON_DEVICE) & mine).any():
        device[:] = False  # Communication without any kernel or copy is the host's own (gloo).
    rows = np.flatnonzero(device)
    kind = np.full(len(rows), int(Work.COMMUNICATION))
    kind[ops.of("kernel")[rows]] = int(Work.COMPUTE)
    kind[ops.of(*_COPIES)[rows]] = int(Work.COPY)
    steps = np.array(ops.steps, np.int64)
    seen = np.unique(ops.step[mine])
    has_launches = bool(launched[rows].any())
    return RankWork(
        ops.ranks[rank],
        "ops",
        tuple(steps[seen].tolist()),
        (),
        DeviceWork(
            kind=kind,
            start_ns=ops.start_ns[rows],
            end_ns=ops.end_ns[rows],
            name=np.where(ops.name[rows] < 0, len(ops.names), ops.name[rows]),
            names=(*ops.names, "unnamed"),
            stream=np.where(ops.stream[rows] < 0, len(ops.streams), ops.stream[rows]),
            streams=(*ops.streams, "unknown"),
            step=steps[ops.step[rows]],
            launch_ns=launch_ns[rows] if has_launches else None,
            launched=launched[rows] if has_launches else None,
        ),
        None if has_launches else _NOT_STORED,
        (),
    )
