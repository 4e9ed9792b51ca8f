"""What the demo can be asked for, and what each of its processes is told."""

from __future__ import annotations

import importlib.util
import json
import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from steptax.app.errors import UserError, install_hint

STRAGGLERS = ("sequence", "compute", "input", "gc", "none")
BACKENDS = ("auto", "numpy", "torch")
MOST_WORKERS = 64
#: What a worker prints once it has met all others.
JOINED = "joined"


@dataclass(frozen=True)
class DemoConfig:
    """One demo job. Raises UserError for a value that cannot be run.

    ``lake`` receives the records; ``steps`` None means until stopped. ``straggler`` says how one
    worker is slow and ``straggler_rank`` which one; where it is not given the seed decides, and it
    is None when no worker is slow. ``step_target_ms`` is about how long a step shall take on this
    machine: the tokens per step are measured out for it. ``collective_timeout_s`` is how long the
    all-reduce waits for a peer before the job fails.
    """

    lake: Path
    job_id: str
    workers: int = 8
    straggler: str = "sequence"
    straggler_rank: int | None = None
    steps: int | None = None
    seed: int = 0
    backend: str = "auto"
    step_target_ms: float = 150
    checkpoint_every: int = 50
    collective_timeout_s: float = 20

    def __post_init__(self) -> None:
        """Refuse what cannot be run, and settle which worker is slow."""
        rank = self.straggler_rank
        checks = (
            (2 <= self.workers <= MOST_WORKERS, "workers", f"from 2 to {MOST_WORKERS}"),
            (self.straggler in STRAGGLERS, "straggler", "one of " + ", ".join(STRAGGLERS)),
            (rank is None or 0 <= rank < self.workers, "straggler_rank", "from 0 to workers - 1"),
            (self.steps is None or self.steps >= 1, "steps", "at least 1, or absent"),
            (self.backend in BACKENDS, "backend", "one of " + ", ".join(BACKENDS)),
            (0 < self.step_target_ms <= 10_000, "step_target_ms", "above 0, at most 10000"),
            (self.checkpoint_every >= 1, "checkpoint_every", "at least 1"),
            (self.collective_timeout_s > 0, "collective_timeout_s", "above 0"),
            (bool(self.job_id), "job_id", "not empty"),
        )
        for holds, name, expected in checks:
            if not holds:
                raise UserError(
                    f"{name} must be {expected}, not {getattr(self, name)!r}",
                    where="demo",
                    hint=f"give another {name}",
                )
        if self.straggler == "none":
            rank = None
        elif rank is None:
            rank = random.Random(self.seed).randrange(self.workers)
        object.__setattr__(self, "straggler_rank", rank)

    def resolved_backend(self) -> str:
        """The backend to run: torch where it is installed, unless one was asked for.

        Raises UserError when torch was asked for and is not installed.
        """
        installed = importlib.util.find_spec("torch") is not None
        if self.backend == "torch" and not installed:
            raise UserError(
                "torch is not installed",
                where="demo",
                hint=f"{install_hint('gpu')}; or use the numpy backend",
            )
        if self.backend == "auto":
            return "torch" if installed else "numpy"
        return self.backend


def usable_cores() -> int:
    """Processor cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class WorkerSpec:
    """Everything that one worker process is told; travels as JSON on its command line.

    ``inbox_fd`` and ``peer_fds`` are the mesh's pipes, ``memory_fd`` the shared gradients,
    ``leash_fd`` a pipe whose other end only the supervisor holds. ``scratch`` is the directory of
    the checkpoints, removed when the job ends; ``started_us`` when the supervisor began.
    """

    lake: str
    job_id: str
    rank: int
    workers: int
    cores: int
    straggler: str
    straggler_rank: int | None
    steps: int | None
    seed: int
    backend: str
    step_target_ms: float
    checkpoint_every: int
    collective_timeout_s: float
    inbox_fd: int
    peer_fds: tuple[int, ...]
    memory_fd: int
    leash_fd: int
    scratch: str
    started_us: int

    @property
    def handicap(self) -> str:
        """How this worker is slow; ``none`` for all but one."""
        return self.straggler if self.rank == self.straggler_rank else "none"

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> WorkerSpec:
        """Inverse of `to_json`."""
        fields = json.loads(line)
        return cls(**{**fields, "peer_fds": tuple(fields["peer_fds"])})


@dataclass(frozen=True)
class WorkerResult:
    """What a worker says when its steps are done.

    ``loss`` is over all ranks, in nats per token; ``parameters`` the SHA-256 of its parameters,
    which is the same on every rank of a job that kept together.
    """

    steps: int
    loss: float
    parameters: str
