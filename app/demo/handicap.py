"""The ways in which one worker is made slow. Each is the real thing, not a pause.

A ``sequence`` straggler only has longer documents and an ``input`` straggler slow storage: both
are in `steptax.app.demo.corpus`. Here are the two that slow the processor's own work.
"""

from __future__ import annotations

import gc

from steptax.app.demo.model import Array, Model, Tokens


class RepeatedModel:
    """Computes everything ``passes`` times, as long as a device at 1/passes of its clock takes."""

    def __init__(self, model: Model, passes: int) -> None:
        self.passes = passes
        self._model = model

    def loss_and_gradient(
        self, flat: Array, inputs: Tokens, targets: Tokens, lengths: list[int]
    ) -> tuple[float, Array]:
        """See `steptax.app.demo.model.Model.loss_and_gradient`."""
        for _ in range(self.passes - 1):
            self._model.loss_and_gradient(flat, inputs, targets, lengths)
        return self._model.loss_and_gradient(flat, inputs, targets, lengths)


class Node:
    """One of the objects that a leaky program keeps, referring to itself."""

    __slots__ = ("me", "value")

    def __init__(self, value: int) -> None:
        self.me = self
        self.value = value


class LeakyHeap:
    """Keeps many objects alive and makes cyclic garbage, so that a full collection takes long.

    A full collection visits every live container: its pause grows with ``live``, not with the
    garbage. ``every_steps`` is how often one happens.
    """

    def __init__(self, *, live: int, garbage_per_step: int, every_steps: int) -> None:
        self.every_steps = every_steps
        self._live = [Node(i) for i in range(live)]
        self._garbage_per_step = garbage_per_step

    def after_compute(self, step: int) -> None:
        """Leave this step's garbage, and collect when it is time."""
        for i in range(self._garbage_per_step):
            Node(i)
        if step % self.every_steps == self.every_steps - 1:
            gc.collect()
