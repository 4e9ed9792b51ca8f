"""The buckets of a bill: where a paid GPU-second can have gone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from steptax.app.compute.bill.attempt_layer import State


class Group(StrEnum):
    """Which factor of goodput a bucket belongs to."""

    SCHEDULING = "scheduling"
    RUNTIME = "runtime"
    PROGRAM = "program"
    USEFUL = "useful"


@dataclass(frozen=True)
class Bucket:
    """A bucket; ``number`` names its place, or the places that it holds together."""

    name: str
    number: str
    title: str
    group: Group
    is_coarse: bool = False
    """Holds several buckets together, because nothing tells them apart."""

    @property
    def is_loss(self) -> bool:
        """Whether all of it is lost: what is not split may hold useful time."""
        return self.group is not Group.USEFUL and not (
            self.is_coarse and self.group is Group.PROGRAM and self.name not in _COARSE_LOSSES
        )


_COARSE_LOSSES = ("comm_and_bubble", "comm_and_gaps", "kernel_and_recompute")
_S, _R, _P = Group.SCHEDULING, Group.RUNTIME, Group.PROGRAM

_BUCKETS = (
    Bucket("unallocated", "0", "paid, held by no job", _S),
    Bucket("pending", "1", "held, training process not running", _S),
    Bucket("pending_and_startup", "1-2", "before the first step, not split", _R, True),
    Bucket("startup", "2", "start-up", _R),
    Bucket("recovery", "3", "recovery after interruptions", _R),
    Bucket("lost_work", "4", "lost work", _R),
    Bucket("checkpoint", "5", "checkpoint", _R),
    Bucket("other_blocking", "6", "evaluation, pause, other blocking", _R),
    Bucket("input", "7", "input stall", _P),
    Bucket("exposed_comm", "8", "exposed communication", _P),
    Bucket("comm_and_bubble", "8-9a", "communication and bubble, not separable", _P, True),
    Bucket("pipeline_bubble", "9a", "pipeline bubble", _P),
    Bucket("straggler_wait", "9b", "straggler wait", _P),
    Bucket("host_gaps", "10", "host and launch gaps", _P),
    Bucket("comm_and_gaps", "8+10", "communication and host gaps, not separable", _P, True),
    Bucket("kernel_inefficiency", "11", "kernel inefficiency", _P),
    Bucket("kernel_and_recompute", "11-12", "kernel inefficiency and recomputation", _P, True),
    Bucket("recompute", "12", "recomputation", _P),
    Bucket("compute", "11-13", "compute, not split: no model FLOPs known", _P, True),
    Bucket("step_unsplit", "7-13", "step time that was not split", _P, True),
    Bucket("ranks_unrecorded", "7-13", "ranks that did not report a step", _P, True),
    Bucket("steps_unrecorded", "7-13", "steps that ran without a record", _P, True),
    Bucket("step_rest", "7-13", "inside steps, in no rank's report", _P, True),
    Bucket("useful", "13", "useful: model FLOPs at peak", Group.USEFUL),
    Bucket("unexplained", "rest", "unexplained", _R),
)

BUCKETS: dict[str, Bucket] = {bucket.name: bucket for bucket in _BUCKETS}
"""Every bucket by name, in the order in which they are listed."""

#: States of a job that are a bucket by themselves.
OF_STATE = {
    State.UNALLOCATED: "unallocated",
    State.PENDING: "pending",
    State.BEFORE_FIRST: "pending_and_startup",
    State.STARTUP: "startup",
    State.RECOVERY: "recovery",
    State.LOST: "lost_work",
    State.CHECKPOINT: "checkpoint",
    State.BLOCKING: "other_blocking",
    State.UNEXPLAINED: "unexplained",
}

#: Of time outside of steps of which nothing tells what happened.
UNEXPLAINED = "unexplained"
#: Buckets of which it is not known what happened in them; all others of them are in steps.
OPEN = (UNEXPLAINED, "step_rest", "step_unsplit", "ranks_unrecorded", "steps_unrecorded")
