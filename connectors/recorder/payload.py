"""What a step processed: tokens, sequence lengths, loss."""

from __future__ import annotations

import sys
from operator import index
from typing import Any

from steptax.connectors.recorder.device import DeviceLoss
from steptax.connectors.recorder.values import whole


class Payload:
    """Of one step. The methods raise TypeError or ValueError for what is no number."""

    __slots__ = ("_square_sum", "device_loss", "loss", "tokens")

    def __init__(self) -> None:
        self.tokens: int | None = None
        """None when nobody said."""
        self.loss: Any = None
        """A float, None, or something that ``float()`` turns into one, later."""
        self.device_loss: DeviceLoss | None = None
        """The same as ``loss`` while a device is still computing it."""
        self._square_sum: int | None = 0

    @property
    def seq_sq_sum(self) -> int | None:
        """Sum of squared sequence lengths; None unless it is known for all tokens."""
        return None if self.tokens is None else self._square_sum

    def add_tokens(self, count: Any, seq_sq_sum: Any = None) -> None:
        """Add tokens, and their share of ``seq_sq_sum`` if known."""
        square_sum = None if seq_sq_sum is None else whole(seq_sq_sum)
        self.tokens = (self.tokens or 0) + whole(count)
        if square_sum is None or self._square_sum is None:
            self._square_sum = None  # the squares of a part say nothing of the whole
        else:
            self._square_sum += square_sum

    def add_sequences(self, lengths: Any) -> None:
        """Add sequences by their lengths in tokens: any iterable of integers."""
        if getattr(lengths, "is_cuda", False):
            raise TypeError("lengths on the device cannot be read without waiting for the device")
        values = [index(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]
        if min(values, default=0) < 0:
            raise ValueError("a sequence length is negative")
        self.add_tokens(sum(values), sum(n * n for n in values))

    def set_loss(self, value: Any) -> None:
        """Note the loss. What lives on a device is read later, and never waited for."""
        self.device_loss = None
        if isinstance(value, (int, float)):
            self.loss = float(value)
        elif getattr(value, "is_cuda", False):
            self.loss = self.device_loss = DeviceLoss(sys.modules["torch"], value)
        elif hasattr(value, "detach"):
            # Reading a tensor of the processor costs nothing, and the next step may overwrite it.
            detached = value.detach()
            self.loss = float(detached) if detached.device.type == "cpu" else detached
        elif type(value).__module__ == "numpy":
            self.loss = float(value)
        else:
            self.loss = value  # e.g. an array of another framework: read by the writing thread
