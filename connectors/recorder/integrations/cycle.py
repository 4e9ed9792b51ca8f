"""Steps of frameworks that fetch a batch before they say that a step begins.

There a step lasts from the end of the one before to its own end, and what comes first in it is the
wait for its batch.
"""

from __future__ import annotations

from typing import Any

from steptax.connectors.recorder.recorder import StepRecorder


class StepCycle:
    """One step after the other, without a gap, in the calls of a callback."""

    def __init__(self, rec: StepRecorder) -> None:
        self.rec = rec
        self.is_open = False

    def open(self, step: int, phase: str = "input") -> None:
        """Begin ``step`` in ``phase``."""
        self.rec.on_step_begin(step)
        self.rec.on_phase(phase)
        self.is_open = True

    def phase(self, name: str | None) -> None:
        """Go over to another phase, where a step is open."""
        if self.is_open:
            self.rec.on_phase(name)

    def close(self, loss: Any = None, tokens: int | None = None) -> None:
        """End the step, where one is open."""
        if self.is_open:
            self.is_open = False
            self.rec.on_phase(None)
            self.rec.on_step_end(loss=loss, tokens=tokens)
