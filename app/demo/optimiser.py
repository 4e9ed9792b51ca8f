"""Adam on one flat vector (Kingma & Ba, 2015)."""

from __future__ import annotations

import numpy as np

from steptax.app.demo.model import Array


class Adam:
    """Updates parameters in place; the same gradients give the same parameters on every rank."""

    def __init__(self, size: int, *, rate: float = 3e-3, warmup_steps: int = 20) -> None:
        self.rate = rate
        self.warmup_steps = warmup_steps
        self.steps = 0
        self.first = np.zeros(size, dtype=np.float32)
        self.second = np.zeros(size, dtype=np.float32)

    def update(self, flat: Array, gradient: Array) -> None:
        """One step along ``gradient``, with bias correction; the rate rises linearly at first."""
        decay_1, decay_2, epsilon = np.float32(0.9), np.float32(0.99), np.float32(1e-8)
        self.steps += 1
        self.first += (1 - decay_1) * (gradient - self.first)
        self.second += (1 - decay_2) * (gradient * gradient - self.second)
        rate = self.rate * min(1.0, self.steps / self.warmup_steps)
        mean = self.first / (1 - decay_1**self.steps)
        spread = np.sqrt(self.second / (1 - decay_2**self.steps))
        flat -= np.float32(rate) * mean / (spread + epsilon)
