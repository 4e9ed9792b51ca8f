"""The operations of a job's devices, from the lake."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.trace_breakdown import DeviceWork, Work
from steptax.app.views.profile_load import RankWork
from steptax.app.views.workspace import Workspace
from steptax.app.whatif.generic_rows import STEP, Ops, is_generic, read_ops

#: Types of ``ops`` that only a device has.
_COPIES = ("h2d-copy", "copy", "memset")
_ON_DEVICE = ("kernel", *_COPIES)
#: Types of ``ops`` that are no work of a device.
_BESIDE = (STEP, "ready", "input", "cpu")
_NOT_STORED = (
    "when the host launched each operation is not stored: give the trace files themselves "
    "(steptax profile FILES)"
)


def work_of_job(ws: Workspace, job_id: str) -> list[RankWork]:
    """What the devices of the ranks of ``job_id`` did, by rank.

    Empty where no operations of a profiler are stored; NotFoundError for an unknown job.
    """
    ws.job(job_id)
    if not ws.lake.segments("ops", job_id):
        return []
    steps = ws.engine.run("op_counts", job_id=job_id)["step"].to_pylist()
    table = ws.engine.run("trace_ops", job_id=job_id, first_step=min(steps), last_step=max(steps))
    if not is_generic(table):
        return []
    ops = read_ops(table)
    return [_of_rank(ops, rank) for rank in range(len(ops.ranks))]


def _of_rank(ops: Ops, rank: int) -> RankWork:
    mine = ops.rank == rank
    device = ~ops.of(*_BESIDE) & mine
    if not (ops.of(*_ON_DEVICE) & mine).any():
        device[:] = False  # Communication without any kernel or copy is the host's own (gloo).
    rows = np.flatnonzero(device)
    kind = np.full(len(rows), int(Work.COMMUNICATION))
    kind[ops.of("kernel")[rows]] = int(Work.COMPUTE)
    kind[ops.of(*_COPIES)[rows]] = int(Work.COPY)
    steps = np.array(ops.steps, np.int64)
    numbers = np.unique(ops.step[mine])
    return RankWork(
        ops.ranks[rank],
        "ops",
        tuple(steps[numbers].tolist()),
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
        ),
        _NOT_STORED,
        (),
    )
