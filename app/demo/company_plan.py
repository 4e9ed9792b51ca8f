"""The plan of the company of ``steptax demo --company``: its jobs, where and when they run.

All of it is made up. Jobs are placed on whole nodes, none on a node that another job holds; the
same seed and the same end give the same plan. What is wrong with a job is planted here, so that a
test can hold what the pages say against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
DAYS = 42
"""The six weeks before ``until``."""
CLUSTER = "synthetic-h100"
GPU_MODEL = "NVIDIA H100 80GB HBM3"
GPUS_PER_NODE = 8
NODES = tuple(f"node-{k:02d}" for k in range(1, 17))
#: The device that throttles: of node-05, the third.
HOT_NODE, HOT_GPU = "node-05", 2
PEAK_FLOPS_PER_S = 989e12
"""Dense bf16 peak of an H100 SXM, NVIDIA H100 data sheet."""


@dataclass(frozen=True)
class Model:
    """Shape of a transformer; ``params`` is what its layers, hidden size and vocabulary give."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    seq_len: int
    vocab: int = 128_256

    @property
    def params(self) -> int:
        """Attention with grouped keys and values, three matrices of a gated MLP, embeddings."""
        attention = 2 * self.hidden**2 * (1 + self.kv_heads / self.heads)
        return int(
            self.layers * (attention + 3 * self.hidden * self.ffn) + 2 * self.vocab * self.hidden
        )


LARGE = Model(80, 8192, 28_672, 64, 8, 8192)
MIDDLE = Model(48, 6656, 17_920, 52, 4, 8192)
SMALL = Model(32, 4096, 14_336, 32, 8, 8192)
TINY = Model(24, 2048, 8192, 16, 8, 4096)


@dataclass(frozen=True)
class Job:
    """One job. Hours count from its allocation; ``nominal_s`` is a step without any fault.

    ``story`` says what is wrong: throttle, sequence, input, failures, spell, or nothing.
    ``failures_h`` end an attempt each. ``start_us`` and ``nodes`` are set by `placed`.
    """

    job_id: str
    team: str
    project: str
    owner: str
    gpus: int
    day: float
    hours: float
    state: str | None = "completed"
    state_detail: str | None = None
    nominal_s: float = 75.0
    model: Model = SMALL
    story: str = ""
    slow_rank: int | None = None
    slow_from_h: float = 0.0
    slow_to_h: float = 1e9
    slow_factor: float = 1.0
    input_s: float = 0.4
    failures_h: tuple[float, ...] = ()
    restart_min: float = 9.0
    has_loss: bool = False
    has_steps: bool = True
    target_steps: int | None = None
    wanted: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    start_us: int = 0

    @property
    def end_us(self) -> int:
        """When its devices are released; of a running job until when it is recorded."""
        return self.start_us + round(self.hours * HOUR_US)

    def device(self, rank: int) -> tuple[str, int]:
        """Node and number of the device of ``rank``."""
        return self.nodes[rank // GPUS_PER_NODE], rank % GPUS_PER_NODE


#: Jobs whose stories the pages have to tell, in the order in which they begin.
_STORIES = (
    Job(
        "llm-34b-base", "research", "language", "Kim Larsen", 48, 3.1, 44.0, nominal_s=110.0,
        model=MIDDLE,
    ),
    Job(
        "vision-video-encoder", "vision", "video", "Ines Duarte", 32, 9.2, 21.0,
        nominal_s=64.0, story="input", input_s=26.0,
    ),
    Job(
        "llm-70b-pretrain", "research", "language", "Kim Larsen", 64, 17.1, 122.0,
        nominal_s=118.0, model=LARGE, story="throttle", slow_rank=34, slow_from_h=27.5,
        slow_factor=1.46, has_loss=True, wanted=NODES[:8],
    ),
    Job(
        "ranking-moe-v3", "product", "ranking", "Ann Oyelaran", 48, 24.4, 30.0, "completed",
        nominal_s=88.0, story="failures", failures_h=(3.9, 8.4, 12.1, 17.6, 23.3),
        restart_min=31.0,
    ),
    Job(
        "speech-long-audio", "research", "speech", "Lee Park", 32, 27.3, 24.0, nominal_s=76.0,
        story="sequence", slow_rank=3,
    ),
    Job(
        "llm-13b-domain", "research", "language", "Kim Larsen", 32, 30.6, 28.0, nominal_s=84.0,
        model=MIDDLE, story="spell", slow_rank=19, slow_from_h=7.0, slow_to_h=14.5,
        slow_factor=1.22,
    ),
    Job(
        "llm-8b-distill", "product", "assistant", "Omar Haddad", 8, 33.2, 13.0, nominal_s=78.0,
        story="throttle", slow_rank=HOT_GPU, slow_from_h=0.0, slow_factor=1.31,
        wanted=(HOT_NODE,),
    ),
    Job(
        "llm-70b-assistant-sft", "product", "assistant", "Omar Haddad", 16, 35.2, 40.0,
        nominal_s=92.0, model=MIDDLE, story="throttle", slow_rank=10, slow_from_h=0.0,
        slow_factor=1.38, wanted=("node-04", HOT_NODE),
    ),
    Job(
        "llm-34b-multilingual", "research", "language", "Kim Larsen", 32, 0.0, 58.0, "running",
        nominal_s=104.0, model=MIDDLE, has_loss=True, target_steps=4200,
    ),
)  # fmt: skip
#: (team, project, owner, first word of its jobs) of the others.
_PROJECTS = (
    ("research", "language", "Kim Larsen", "tokenizer-ablation"),
    ("research", "speech", "Lee Park", "speech-ctc"),
    ("product", "ranking", "Ann Oyelaran", "ranking-refresh"),
    ("product", "assistant", "Omar Haddad", "assistant-dpo"),
    ("vision", "video", "Ines Duarte", "video-caption"),
    ("vision", "robotics", "Tom Weber", "grasp-policy"),
)
_ROUTINE_STATES = (
    *("completed",) * 15, "failed", "failed", "cancelled", "cancelled", "timeout", "completed",
)  # fmt: skip
_FACTS_ONLY = (
    ("completed", None), ("completed", None), ("failed", "NODE_FAIL"), ("completed", None),
    ("timeout", "TIMEOUT"), ("completed", None), ("cancelled", "CANCELLED"), ("completed", None),
    ("completed", None), (None, "REQUEUE_FED"), ("completed", None),
)  # fmt: skip


def plan(until_us: int, seed: int) -> tuple[Job, ...]:
    """The jobs of the six weeks before ``until_us`` (microseconds since 1970, UTC), in order."""
    dice = np.random.default_rng([seed, 1])
    running = replace(_STORIES[-1], day=DAYS - _STORIES[-1].hours / 24)
    routine = [_routine(k, state, dice) for k, state in enumerate(_ROUTINE_STATES)]
    facts = [_of_scheduler(k, *one, dice) for k, one in enumerate(_FACTS_ONLY)]
    return placed([*_STORIES[:-1], running, *routine, *facts], until_us)


def _routine(k: int, state: str, dice: np.random.Generator) -> Job:
    """A small healthy job with per-rank steps; one that failed ends early and at a failure."""
    team, project, owner, word = _PROJECTS[k % len(_PROJECTS)]
    hours = float(dice.uniform(4, 14)) * (0.5 if state in ("failed", "cancelled") else 1.0)
    return Job(
        f"{word}-{k // len(_PROJECTS) + 1}", team, project, owner,
        gpus=int(dice.choice((8, 8, 16, 16))),
        day=0.3 + k * (DAYS - 3) / len(_ROUTINE_STATES) + float(dice.uniform(0, 1)),
        hours=max(3.0, hours), state=state,
        state_detail="OUT_OF_MEMORY" if k == len(_ROUTINE_STATES) // 2 else None,
        nominal_s=float(dice.uniform(52, 78)), model=TINY if team == "vision" else SMALL,
    )  # fmt: skip


def _of_scheduler(k: int, state: str | None, detail: str | None, dice: np.random.Generator) -> Job:
    """A job of which nothing but the scheduler's record is known."""
    team, project, owner, word = _PROJECTS[(k * 5 + 2) % len(_PROJECTS)]
    return Job(
        f"{word}-sweep-{k + 1}", team, project, owner,
        gpus=int(dice.choice((16, 24, 32))), day=1.5 + k * (DAYS - 4) / len(_FACTS_ONLY),
        hours=float(dice.uniform(5, 20)), state=state, state_detail=detail, has_steps=False,
    )  # fmt: skip


def placed(jobs: Sequence[Job], until_us: int) -> tuple[Job, ...]:
    """``jobs`` with their nodes and starts, in the order of their starts.

    A job that asks for nodes of its own gets these at its time; the others take the first free
    ones, and wait by the hour where there are too few.
    """
    begin_us = until_us - DAYS * DAY_US
    taken: list[Job] = []
    for job in sorted(jobs, key=lambda one: (not one.wanted, one.state != "running", one.day)):
        start_us = begin_us + round(job.day * DAY_US)
        while True:
            own = replace(job, start_us=start_us)
            busy = {
                node
                for other in taken
                if other.start_us < own.end_us and own.start_us < other.end_us
                for node in other.nodes
            }
            count = job.gpus // GPUS_PER_NODE
            free = [node for node in job.wanted or NODES if node not in busy][:count]
            if len(free) == count and (own.end_us <= until_us or job.state == "running"):
                break
            start_us += HOUR_US
            if start_us > until_us:  # no room later: look from the beginning
                start_us = begin_us
        taken.append(replace(own, nodes=tuple(free)))
    return tuple(sorted(taken, key=lambda one: (one.start_us, one.job_id)))


def uuid_of(node: str, gpu: int) -> str:
    """Identity of a device; made up, and the same for ever."""
    number = NODES.index(node) * GPUS_PER_NODE + gpu
    return f"GPU-{number:08x}-5e9d-4000-8000-{number:012x}"
