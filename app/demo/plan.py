"""How much work a step holds, so that it takes about the time asked for on this machine.

With W workers on K cores, R = max(1, W / K) workers share a core. If a common worker computes c
per step and the slow one f times that, the common ones end after about R c and the slow one
(f - 1) c later, alone on its core: T = c (R + f - 1). The plan solves for c and, where f can be
chosen, takes f = 1 + R, which makes the slow worker's step twice as long as the others'.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steptax.app.demo.config import WorkerSpec
from steptax.app.demo.corpus import Shard
from steptax.app.demo.model import Array, Model

#: A token in documents this long costs about 2.5 times, and about 6 times, one in a paragraph.
CONTEXT_OWN_CORE = 768
CONTEXT_SHARED_CORE = 1536
FEWEST_TOKENS = 256
MOST_TOKENS = 1 << 16
TRIAL_TOKENS = 2048
#: Share of the step for which slow storage makes its worker wait.
STORAGE_WAIT_RATIO = 0.75


@dataclass(frozen=True)
class Contention:
    """Workers per core: ``ratio`` is R of the module's text."""

    ratio: float

    @classmethod
    def of(cls, workers: int, cores: int) -> Contention:
        """For so many workers on so many cores."""
        return cls(max(1.0, workers / cores))

    @property
    def context(self) -> int:
        """Longest sequence, in tokens: longer where the slow worker has to share its core."""
        return CONTEXT_SHARED_CORE if self.ratio > 2 else CONTEXT_OWN_CORE

    @property
    def passes(self) -> int:
        """How often the compute straggler computes the same."""
        return 1 + round(self.ratio)


def cpu_s_per_token(model: Model, flat: Array, shard: Shard) -> float:
    """Processor seconds that a token of ``shard`` costs: least of three trials.

    The thread's own time does not grow when others take the core in between.
    """
    batch = shard.batch(TRIAL_TOKENS)
    costs_s = []
    for _ in range(3):
        begin_s = time.thread_time()
        model.loss_and_gradient(flat, batch.inputs, batch.targets, batch.lengths)
        costs_s.append(time.thread_time() - begin_s)
    return min(costs_s) / batch.tokens


def tokens_per_rank(spec: WorkerSpec, model: Model, flat: Array, files: tuple[Path, ...]) -> int:
    """Tokens of each rank in a step for ``spec.step_target_ms``, as this process measures it."""
    contention = Contention.of(spec.workers, spec.cores)
    common_s = cpu_s_per_token(
        model, flat, Shard(files, seed=spec.seed, context=contention.context)
    )
    slow_factor = 1 + contention.ratio
    if spec.straggler == "none":
        slow_factor = 1.0
    elif spec.straggler == "sequence":
        long = Shard(files, seed=spec.seed, context=contention.context, long=True)
        slow_factor = cpu_s_per_token(model, flat, long) / common_s
    elif spec.straggler == "compute":
        slow_factor = contention.passes
    share_s = spec.step_target_ms / 1e3 / (contention.ratio + slow_factor - 1)
    return int(np.clip(share_s / common_s, FEWEST_TOKENS, MOST_TOKENS))


def storage_latency_s(spec: WorkerSpec, tokens: int, mean_document_tokens: float) -> float:
    """Latency of each document on slow storage, for a wait of `STORAGE_WAIT_RATIO` in all."""
    return STORAGE_WAIT_RATIO * spec.step_target_ms / 1e3 * mean_document_tokens / tokens
