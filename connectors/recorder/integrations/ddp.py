"""The gradients' all-reduce of DistributedDataParallel, told apart from backward.

DDP reduces a bucket of gradients as soon as it is full, while backward goes on. What a step waits
for is the rest: from the moment when this rank's last bucket is full to the end of backward. A
communication hook is told of each bucket; the hook here does what DDP does without one.

On CUDA, autograd runs hooks in a thread of its own, where nothing can be said of the step: then the
whole of backward stays compute, and `GradientTimer.seen` stays 0.
"""

from __future__ import annotations

import threading
from typing import Any

from steptax.connectors.recorder.integrations.quiet import warn_once
from steptax.connectors.recorder.recorder import StepRecorder


class GradientTimer:
    """Times what is left of the all-reduce, around ``loss.backward()`` inside a phase.

    timer = GradientTimer(rec)
    timer.attach(ddp_model)
    ...
    with rec.phase("compute"):
        loss = model(batch)
        with timer:
            loss.backward()
    """

    def __init__(self, rec: StepRecorder) -> None:
        self._rec = rec
        self._thread = 0
        self._is_open = False
        self.seen = 0
        """How often the last bucket was seen in time."""

    def attach(self, model: Any) -> bool:
        """Register the hook at a DistributedDataParallel; False where that is not possible."""
        try:
            import torch.distributed as dist

            world = dist.get_world_size(getattr(model, "process_group", None))

            def reduce(_state: object, bucket: Any) -> Any:
                if bucket.is_last():
                    self._arrive()
                total = bucket.buffer().div_(world)
                group = getattr(model, "process_group", None)
                future = dist.all_reduce(total, group=group, async_op=True).get_future()
                return future.then(lambda done: done.value()[0])

            # DDP compares annotations with its own types, and as texts they are not those.
            reduce.__annotations__ = {}
            model.register_comm_hook(None, reduce)
        except Exception as error:
            warn_once("the gradients of DDP are not timed", error)
            return False
        return True

    def begin(self) -> None:
        """Backward begins in this thread."""
        self._thread = threading.get_ident()

    def end(self) -> None:
        """Backward has ended, with all gradients reduced."""
        self._thread = 0
        if self._is_open:
            self._is_open = False
            self._rec.on_collective_end()

    def _arrive(self) -> None:
        if self._thread == threading.get_ident() and not self._is_open:
            self._is_open = True
            self.seen += 1
            self._rec.on_collective_begin()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()
