"""A callback for the Trainer of Hugging Face transformers.

from steptax.connectors.recorder.integrations.hf import record

trainer = Trainer(...)
record(trainer, "/shared/steptax-lake", "llm-7b")
trainer.train()
"""

from __future__ import annotations

import os
from typing import Any

from steptax.connectors.recorder.integrations.cycle import StepCycle
from steptax.connectors.recorder.integrations.ddp import GradientTimer
from steptax.connectors.recorder.integrations.environment import recorder_from_environment
from steptax.connectors.recorder.integrations.probe import LinkProbe
from steptax.connectors.recorder.integrations.quiet import quiet


def record(
    trainer: Any,
    lake: str | os.PathLike[str] | None = None,
    job_id: str | None = None,
    **options: Any,
) -> Any:
    """Add the callback of `hf_callback` to ``trainer``, and return it.

    It tells the wait for the gradients of DistributedDataParallel apart from backward (see
    `GradientTimer`), which a callback alone cannot: the Trainer shows it the model without that.
    """
    callback = hf_callback(lake, job_id, trainer=trainer, **options)
    trainer.add_callback(callback)
    return callback


def hf_callback(
    lake: str | os.PathLike[str] | None = None,
    job_id: str | None = None,
    *,
    trainer: Any = None,
    probe_links_every: int | None = None,
    **options: Any,
) -> Any:
    """A callback that records each optimiser step; raises ImportError without transformers.

    ``lake``, ``job_id`` and ``options`` are those of `recorder_from_environment`; rank and world
    size are those of the training arguments. A step lasts from the end of the one before to its
    own end: first the wait for its batches, then compute. The loss is the one that the Trainer
    logs, at the steps at which it does: a mean over the steps since the last.
    ``probe_links_every`` so many steps the links between the ranks are probed (see `LinkProbe`).
    """
    from transformers import TrainerCallback

    class StepRecorderCallback(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.recorder: Any = None
            self.gradients: GradientTimer | None = None
            self.probe: LinkProbe | None = None
            self._cycle: StepCycle | None = None
            self._waits_for_loss = False
            self._trainer = trainer

        @quiet
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            facts = {"rank": args.process_index, "world_size": args.world_size, **options}
            self.recorder = recorder_from_environment(lake, job_id, **facts)
            self.recorder.start()
            model = getattr(self._trainer, "model_wrapped", None)
            if hasattr(model, "register_comm_hook"):
                self.gradients = GradientTimer(self.recorder)
                self.gradients.attach(model)
            if probe_links_every is not None:
                self.probe = LinkProbe(self.recorder, every=probe_links_every)
            self._cycle = StepCycle(self.recorder)
            self._cycle.open(state.global_step)

        @quiet
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._finish(state)
            if self.probe is not None:
                self.probe(state.global_step)
            self._phase("compute")
            if self.gradients is not None:
                self.gradients.begin()

        @quiet
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.gradients is not None:
                self.gradients.end()

        @quiet
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.gradients is not None:
                self.gradients.end()
            # The Trainer's own callback, which comes first, has decided what follows.
            if control.should_log:
                self._phase("other")
                self._waits_for_loss = True
            else:
                self._next(state, None, control)

        @quiet
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if self._waits_for_loss:
                self._waits_for_loss = False
                self._next(state, (logs or {}).get("loss"), control)

        @quiet
        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._phase("checkpoint" if control.should_save else "input")

        @quiet
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._phase("input")

        @quiet
        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._finish(state)
            if self.recorder is not None:
                self.recorder.close()

        def _next(self, state: Any, loss: Any, control: Any = None) -> None:
            if self._cycle is None:
                return
            self._cycle.close(loss)
            then = "input"
            if getattr(control, "should_evaluate", False):
                then = "other"
            elif getattr(control, "should_save", False):
                then = "checkpoint"
            self._cycle.open(state.global_step, then)

        def _finish(self, state: Any) -> None:
            """End a step whose loss was announced and did not come."""
            if self._waits_for_loss:
                self._waits_for_loss = False
                self._next(state, None)

        def _phase(self, name: str) -> None:
            if self._cycle is not None:
                self._cycle.phase(name)

    return StepRecorderCallback()
