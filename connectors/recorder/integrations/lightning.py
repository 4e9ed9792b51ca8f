"""A callback for Lightning (``lightning.pytorch`` or ``pytorch_lightning``).

from steptax.connectors.recorder.integrations.lightning import lightning_callback

trainer = Trainer(..., callbacks=[lightning_callback("/shared/steptax-lake", "llm-7b")])
"""

from __future__ import annotations

import os
import sys
from typing import Any

from steptax.connectors.recorder.integrations.cycle import StepCycle
from steptax.connectors.recorder.integrations.ddp import GradientTimer
from steptax.connectors.recorder.integrations.environment import recorder_from_environment
from steptax.connectors.recorder.integrations.probe import LinkProbe
from steptax.connectors.recorder.integrations.quiet import quiet


def lightning_callback(
    lake: str | os.PathLike[str] | None = None,
    job_id: str | None = None,
    *,
    time_gradients: bool = True,
    probe_links_every: int | None = None,
    **options: Any,
) -> Any:
    """A callback that records each optimiser step; raises ImportError where there is no Lightning.

    ``lake``, ``job_id`` and ``options`` are those of `recorder_from_environment`; rank and world
    size are the trainer's. A step lasts from the end of the one before to its own end, over all its
    micro-batches. ``time_gradients`` tells the wait for the gradients of DistributedDataParallel
    apart from backward (see `GradientTimer`; not where the model has a communication hook). Time
    in validation is ``other``, from the begin of a checkpoint to the next batch ``checkpoint``.
    ``probe_links_every`` so many steps the links between the ranks are probed (see `LinkProbe`).
    """

    class StepRecorderCallback(_base()):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recorder: Any = None
            self.gradients: GradientTimer | None = None
            self.probe: LinkProbe | None = None
            self._cycle: StepCycle | None = None
            self._step = 0
            self._loss: Any = None

        @quiet
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            given = {"rank": trainer.global_rank, "world_size": trainer.world_size, **options}
            self.recorder = recorder_from_environment(lake, job_id, **given)
            self.recorder.start()
            self.gradients = GradientTimer(self.recorder)
            if time_gradients and hasattr(trainer.strategy.model, "register_comm_hook"):
                self.gradients.attach(trainer.strategy.model)
            if probe_links_every is not None:
                self.probe = LinkProbe(self.recorder, every=probe_links_every)
            self._step = trainer.global_step
            self._cycle = StepCycle(self.recorder)
            self._cycle.open(self._step)

        @quiet
        def on_train_batch_start(self, *_: Any, **__: Any) -> None:
            if self.probe is not None:
                self.probe(self._step)
            self._phase("compute")

        @quiet
        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
            self._loss = loss
            if self.gradients is not None:
                self.gradients.begin()

        @quiet
        def on_after_backward(self, *_: Any, **__: Any) -> None:
            if self.gradients is not None:
                self.gradients.end()

        @quiet
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if self._cycle is None or trainer.global_step == self._step:
                self._phase("input")  # a micro-batch of a step that goes on
                return
            # Lightning divides the loss of a micro-batch by their number.
            loss = None if self._loss is None else self._loss.detach() * _parts(trainer)
            self._cycle.close(loss)
            self._step = trainer.global_step
            self._cycle.open(self._step)

        @quiet
        def on_save_checkpoint(self, *_: Any, **__: Any) -> None:
            self._phase("checkpoint")

        @quiet
        def on_validation_start(self, *_: Any, **__: Any) -> None:
            self._phase("other")

        @quiet
        def on_validation_end(self, *_: Any, **__: Any) -> None:
            self._phase("input")

        @quiet
        def on_train_end(self, *_: Any, **__: Any) -> None:
            self._close(None)

        @quiet
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._close(exception)

        def _phase(self, name: str) -> None:
            if self._cycle is not None:
                self._cycle.phase(name)

        def _close(self, error: BaseException | None) -> None:
            if self.recorder is not None:
                self.recorder.__exit__(None if error is None else type(error), error, None)

        def __getstate__(self) -> dict[str, Any]:
            """A copy in another process makes a recorder of its own."""
            return {
                **vars(self),
                "recorder": None,
                "gradients": None,
                "probe": None,
                "_cycle": None,
                "_loss": None,
            }

    return StepRecorderCallback()


def _base() -> Any:
    """``Callback`` of the Lightning that is used, or of the one that is installed."""
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback

        return Callback
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
    return Callback


def _parts(trainer: Any) -> int:
    parts = getattr(trainer, "accumulate_grad_batches", 1)
    return parts if isinstance(parts, int) and parts > 0 else 1
