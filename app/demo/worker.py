"""One worker process of the demo: ``python -m steptax.app.demo.worker SPEC``.

It ends with exit code 0 after its steps or when asked to stop, and 1 with one line of explanation
on its standard error when the job failed. On its standard output it says when it has met the
others, and at last its `WorkerResult`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from steptax.app.demo import plan
from steptax.app.demo.collective import AllReduce, Mesh, SharedMemoryMean
from steptax.app.demo.config import JOINED, WorkerResult, WorkerSpec
from steptax.app.demo.corpus import ColdShard, Shard, library_files, mean_tokens
from steptax.app.demo.handicap import LeakyHeap, RepeatedModel
from steptax.app.demo.model import Model, NumpyModel, Shape
from steptax.app.demo.optimiser import Adam
from steptax.app.errors import SteptaxError
from steptax.connectors.recorder import StepRecorder

#: Processes start at different times, and Python itself takes seconds on a busy machine.
START_TIMEOUT_S = 120.0
#: How long an orphan may take to write its records down.
ORPHAN_GRACE_S = 5.0


class Worker:
    """A rank of the training job."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        contention = plan.Contention.of(spec.workers, spec.cores)
        context = contention.context
        self.shape = Shape(context=context)
        self.model, make_reduce = backend(spec, self.shape)
        self.flat = self.shape.initial(spec.seed)
        self.optimiser = Adam(self.shape.size)
        files = library_files()
        wish = plan.tokens_per_rank(spec, self.model, self.flat, files)
        if spec.handicap == "compute":
            self.model = RepeatedModel(self.model, contention.passes)
        self.heap = (
            LeakyHeap(live=300_000, garbage_per_step=20_000, every_steps=3)
            if spec.handicap == "gc"
            else None
        )
        mesh = Mesh(spec.rank, spec.inbox_fd, spec.peer_fds)
        mesh.meet(max(START_TIMEOUT_S, spec.collective_timeout_s))
        _say(JOINED)
        self.reduce = make_reduce(mesh)
        self.tokens = self._agree(wish)
        self.shard = self._shard(files[spec.rank :: spec.workers], context)

    def run(self) -> WorkerResult:
        """Train until the steps are done, recording each."""
        loss = float("nan")
        steps = count() if self.spec.steps is None else range(self.spec.steps)
        with self._recorder() as recorder:
            for step in steps:
                loss = self._step(recorder, step)
        digest = sha256(self.flat.tobytes()).hexdigest()
        return WorkerResult(step + 1, loss, digest)

    def _step(self, recorder: StepRecorder, step: int) -> float:
        """One optimiser step; returns the loss over all ranks, in nats per token."""
        with recorder.step(step):
            with recorder.phase("input"):
                batch = self.shard.batch(self.tokens)
            with recorder.phase("compute"):
                own_loss, gradient = self.model.loss_and_gradient(
                    self.flat, batch.inputs, batch.targets, batch.lengths
                )
            if self.heap is not None:
                with recorder.phase("compute"):
                    self.heap.after_compute(step)
            with recorder.collective():
                mean = self.reduce.mean(np.append(gradient, np.float32(own_loss)))
            with recorder.phase("compute"):
                self.optimiser.update(self.flat, mean[:-1])
            recorder.sequences(batch.lengths)
            recorder.loss(float(mean[-1]))
            if self.spec.rank == 0 and (step + 1) % self.spec.checkpoint_every == 0:
                begin_us = time.time_ns() // 1000
                with recorder.phase("checkpoint"):
                    self._save(step)
                recorder.event("checkpoint_save", begin_us, time.time_ns() // 1000)
        return float(mean[-1])

    def _save(self, step: int) -> None:
        """Write parameters and optimiser state, whole or not at all."""
        path = Path(self.spec.scratch) / "checkpoint.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez(
                file,
                step=step,
                flat=self.flat,
                first=self.optimiser.first,
                second=self.optimiser.second,
            )
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".part").replace(path)

    def _agree(self, wish: int) -> int:
        """The mean of all ranks' wishes, through the all-reduce of the gradients."""
        vector = np.zeros(self.shape.size + 1, dtype=np.float32)
        vector[0] = wish
        return int(self.reduce.mean(vector)[0])

    def _shard(self, files: tuple[Path, ...], context: int) -> Shard:
        """Documents of this rank, as its handicap has them."""
        seed = self.spec.seed * self.spec.workers + self.spec.rank
        if self.spec.handicap == "input":
            latency_s = plan.storage_latency_s(self.spec, self.tokens, mean_tokens(files, context))
            return ColdShard(files, seed=seed, context=context, latency_s=latency_s)
        return Shard(files, seed=seed, context=context, long=self.spec.handicap == "sequence")

    def _recorder(self) -> StepRecorder:
        spec, shape = self.spec, self.shape
        job: dict[str, Any] = {
            "name": f"demo ({spec.straggler})",
            "team": "demo",
            "project": "demo",
            "cluster": socket.gethostname(),
            "framework": f"steptax-demo {spec.backend}",
            "start_us": spec.started_us,
            "dp_size": spec.workers,
            "tp_size": 1,
            "pp_size": 1,
            "tokens_per_step": self.tokens * spec.workers,
            "params_total": shape.size,
            "params_active": shape.size,
            "layers": 1,
            "hidden": shape.hidden,
            "ffn": shape.ffn,
            "heads": shape.heads,
            "vocab": shape.vocab,
            "seq_len": shape.context,
            "dtype": "float32",
            "causal": True,
        }
        return StepRecorder(
            spec.lake,
            spec.job_id,
            spec.rank,
            spec.workers,
            attempt=0,
            job=job,
            topology={"dp": spec.rank, "tp": 0, "pp": 0},
        )


def backend(spec: WorkerSpec, shape: Shape) -> tuple[Model, Callable[[Mesh], AllReduce]]:
    """The model, and how to make the all-reduce once the ranks have met."""
    if spec.backend == "torch":
        from steptax.app.demo.torch_backend import GlooMean, TorchModel

        store = str(Path(spec.scratch) / "gloo")
        return TorchModel(shape), lambda mesh: GlooMean(mesh, store, spec.collective_timeout_s)
    return NumpyModel(shape), lambda mesh: SharedMemoryMean(
        mesh, spec.memory_fd, shape.size + 1, spec.collective_timeout_s
    )


def _say(line: str) -> None:
    """Tell the supervisor, who reads it when this process has ended."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """Leave through every ``with``, once, so that the records are written down."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _watch_leash(spec: WorkerSpec) -> None:
    """End this process when the supervisor is gone, however it went.

    Its end of the pipe closes with it. The kernel's death signal is not used: it fires when the
    thread that started the workers ends, which need not be the end of its process.
    """
    os.read(spec.leash_fd, 1)
    shutil.rmtree(spec.scratch, ignore_errors=True)
    main_thread = threading.main_thread().ident
    if main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGTERM)
        time.sleep(ORPHAN_GRACE_S)
    os._exit(1)


def main(arguments: list[str]) -> int:
    """Run one worker; returns its exit code."""
    # Ctrl-C is for the supervisor, which then stops its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec = WorkerSpec.from_json(arguments[0])
    try:
        signal.signal(signal.SIGTERM, _stop)
        threading.Thread(target=_watch_leash, args=(spec,), daemon=True).start()
        result = Worker(spec).run()
    except KeyboardInterrupt:
        return 0
    except SteptaxError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
