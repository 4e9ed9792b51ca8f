"""Made-up jobs with known faults, as the rows that real jobs have: steps, ranks, samples, events.

How a step is made. Each rank works (compute, input, copies, collector pauses, host time), meets its
tensor-parallel peers, then the stages of its pipeline, then everybody at the end of the step. Only
the culprit's own work grows; whoever is ready sooner waits in communication, so that all ranks
report the same step time. Healthy ranks are not alike either: silicon differs, noise has heavy
tails and is shared by the ranks of a host, sequences differ in length, the collector pauses each
rank at its own steps, the first steps compile, checkpoints block, and the pace of a whole job
drifts. Devices report clocks, bits and counters that mean nothing most of the time.

What can be wrong is in ``fault_model``, what it does in ``fault_effects``. The same seed gives the
same job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptax.benchmarks.product.fault_devices import DeviceSamples, device_samples
from steptax.benchmarks.product.fault_effects import Traits, add_fault
from steptax.benchmarks.product.fault_model import (
    DEVICE_CAUSES,
    GPUS_PER_HOST,
    UNNAMED,
    Plan,
    ranks_of,
)

Floats = NDArray[np.float64]

#: What must be taken away so that nothing can tell the cause.
_SETTLED_BY = {
    **dict.fromkeys(DEVICE_CAUSES, "samples"),
    **dict.fromkeys(
        ("host_cpu", "gc", "gc_moving", "input_loader", "input_storage", "launch_bound"), "phases"
    ),
    "checkpoint": "phases",
    "sequence": "sequences",
    "sequence_moving": "sequences",
    "expert": "ep",
    "stage": "pp",
    "link": "split",
    "network": "communication",
}
_STEP_US_RANGE = (2e5, 8e6)
_START_US = 1_790_000_000_000_000


@dataclass(eq=False)
class FaultJob:
    """A job as it is recorded; the truth about it is its plan."""

    plan: Plan
    columns: dict[str, Floats]
    """Columns of the ``steps`` table, [S, R] each, microseconds (tokens^2 for ``seq_sq_sum``)."""
    places: list[dict[str, Any]]
    """Rows of the ``ranks`` table, one per rank."""
    samples: DeviceSamples | None
    events: list[dict[str, Any]] = field(default_factory=list)

    def step_rows(self) -> dict[str, NDArray[Any]]:
        """Long columns of the ``steps`` table."""
        step, rank = np.indices(self.columns["duration_us"].shape)
        long: dict[str, NDArray[Any]] = {"step": step.ravel(), "rank": rank.ravel()}
        long |= {name: values.ravel() for name, values in self.columns.items()}
        if not self.plan.lost_ratio:
            return long
        kept = np.random.default_rng(self.plan.seed).random(step.size) >= self.plan.lost_ratio
        return {name: values[kept] for name, values in long.items()}


def make_job(plan: Plan) -> FaultJob:
    """The job of ``plan``."""
    return _Maker(plan).job()


class _Maker:
    """One job in the making; until the end all times are shares of a healthy step's compute."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.g = np.random.default_rng(plan.seed)
        self.at = ranks_of(plan.shape)
        self.size = (plan.steps, plan.shape.ranks)
        g = self.g
        self.step_us = float(np.exp(g.uniform(*np.log(_STEP_US_RANGE))))
        self.transfer_ratio = float(g.uniform(0.05, 0.25))
        self.micro_batches = int(g.choice((8, 16, 32))) if plan.shape.pp > 1 else 1
        self.attention_ratio = float(g.uniform(0.15, 0.4))

    def job(self) -> FaultJob:
        g, (steps, ranks) = self.g, self.size
        sequences = self._sequences()
        parts = {
            "compute": self._compute(sequences),
            "input": g.exponential(0.003, self.size),
            "h2d": 0.004 * g.lognormal(0.0, 0.1, self.size),
            "gc": self._collector(),
            "checkpoint": self._saves(),
            "host": g.uniform(0.01, 0.03) * g.lognormal(0.0, 0.25, self.size),
        }
        transfer = np.repeat(
            self.transfer_ratio * g.lognormal(0.0, 0.05, (steps, 1)) * self._tails((steps, 1)),
            ranks,
            axis=1,
        ) * g.lognormal(0.0, 0.003, self.size)
        own = sum(parts.values(), np.zeros(self.size))
        healthy = float(np.median(self._step_length(own, transfer)))
        traits = Traits(self.attention_ratio, self.at["dp"])
        for fault in self.plan.faults:
            if fault.excess_ratio == 0:
                continue
            amount = fault.excess_ratio * healthy
            add_fault(fault, amount, parts, transfer, sequences, traits, g)
        own = sum(parts.values(), np.zeros(self.size))
        length = self._step_length(own, transfer)
        unit = self.step_us
        columns = {f"{name}_us": values * unit for name, values in parts.items() if name != "host"}
        waits = np.maximum(length[:, None] - own - transfer, 0.0)
        columns |= {
            "wait_us": waits * unit,
            "transfer_us": transfer * unit,
            "comm_us": (waits + transfer) * unit,
            "duration_us": (own + waits + transfer) * unit,
            "seq_sq_sum": np.rint(sequences * 4e6),
        }
        ends = np.cumsum(columns["duration_us"], axis=0)
        columns["start_us"] = _START_US + np.rint(ends - columns["duration_us"])
        columns = {name: np.rint(values) for name, values in columns.items()}
        samples = device_samples((*self.plan.faults, *self.plan.decoys), columns["start_us"], g)
        job = FaultJob(self.plan, columns, self._places(), samples, self._events(columns))
        for fault in self.plan.faults:
            if not fault.signals and fault.cause not in UNNAMED:
                _hide(job, _SETTLED_BY[fault.cause])
        return job

    def _sequences(self) -> Floats:
        """[S, R] sum of squared lengths over its mean; all ranks of a replica have the same."""
        cv, steps = self.plan.noise.sequence_cv, self.plan.steps
        drawn = self.g.lognormal(0.0, max(cv, 1e-9), (steps, self.plan.shape.dp))
        return np.asarray(drawn[:, self.at["dp"]])

    def _compute(self, sequences: Floats) -> Floats:
        g, noise, (steps, ranks) = self.g, self.plan.noise, self.size
        silicon = np.exp(g.normal(0.0, noise.rank_sd_ratio, ranks))
        hosts = int(self.at["host"].max()) + 1
        shared = _smooth(g.normal(0.0, 0.5 * noise.sd_ratio, (steps, hosts)), 0.8)
        pace = 1.0 + _smooth(g.normal(0.0, 0.002, (steps, 1)), 0.98)
        work = silicon * g.lognormal(0.0, noise.sd_ratio, self.size) * pace
        varied = 1.0 + shared[:, self.at["host"]] + self.attention_ratio * (sequences - 1.0)
        work *= np.maximum(varied, 0.2)
        work *= self._tails(self.size)
        if self.plan.shape.pp > 1:
            # The first stage embeds, the last one has the loss: never quite the same work.
            uneven = g.uniform(-0.01, 0.01, self.plan.shape.pp)
            work *= 1.0 + uneven[self.at["pp"]]
        warm = int(g.integers(2, 8))
        slow = 1.0 + g.uniform(0.5, 4.0) * np.exp(-np.arange(warm) / 1.5)
        work[:warm] *= slow[:, None] * g.lognormal(0.0, 0.1, (warm, ranks))
        return np.asarray(work)

    def _tails(self, size: tuple[int, int]) -> Floats:
        hit = self.g.random(size) < self.plan.noise.tail_probability
        sizes = np.minimum(0.03 * (1.0 + self.g.pareto(2.0, size)), 1.5)
        return np.where(hit, 1.0 + sizes, 1.0)

    def _collector(self) -> Floats:
        """Each rank's collector runs every so many steps, at steps of its own."""
        period = int(self.g.integers(30, 120))
        phase = self.g.integers(0, period, self.size[1])
        runs = (np.arange(self.size[0])[:, None] + phase) % period == 0
        pause = 0.01 * self.g.lognormal(0.0, 0.3, self.size)
        return np.where(runs, pause, 0.0)

    def _saves(self) -> Floats:
        period = int(self.g.integers(50, 200))
        saved = (np.arange(self.size[0]) + 1) % period == 0
        cost = self.g.uniform(0.05, 0.3) * self.g.lognormal(0.0, 0.1, self.size)
        return np.where(saved[:, None], cost, 0.0)

    def _step_length(self, own: Floats, transfer: Floats) -> Floats:
        """[S] length of a step: tensor groups, then pipelines, then everybody."""
        shape, steps = self.plan.shape, self.size[0]
        together = own.reshape(steps, shape.pp, shape.dp, shape.tp).max(axis=3)
        slowest = together.max(axis=1)
        filling = (together.sum(axis=1) - slowest) / self.micro_batches
        ready = (slowest + filling)[:, None, :, None] + transfer.reshape(
            steps, shape.pp, shape.dp, shape.tp
        )
        return np.asarray(ready.reshape(steps, -1).max(axis=1))

    def _places(self) -> list[dict[str, Any]]:
        kinds = ("tp", "pp", "dp", "ep")
        return [
            {
                "rank": rank,
                "host": f"node{self.at['host'][rank]:03d}",
                "local_rank": rank % GPUS_PER_HOST,
                "gpu_index": rank % GPUS_PER_HOST,
                "gpu_uuid": f"GPU-{self.plan.seed:08x}-{rank:05d}",
                **{k: int(self.at[k][rank]) if k in self.at else None for k in kinds},
            }
            for rank in range(self.size[1])
        ]

    def _events(self, columns: dict[str, Floats]) -> list[dict[str, Any]]:
        saved = np.flatnonzero(columns["checkpoint_us"].max(axis=1) > 0)
        return [
            {
                "kind": "checkpoint_save",
                "start_us": int(columns["start_us"][s].max()),
                "end_us": int(columns["start_us"][s].max() + columns["checkpoint_us"][s].max()),
            }
            for s in saved
        ]


def _hide(job: FaultJob, what: str) -> None:
    """Take away what settles a cause, as a site that does not record it."""
    phases = [f"{p}_us" for p in ("compute", "input", "h2d", "gc", "checkpoint")]
    dropped = {
        "phases": phases,
        "sequences": ["seq_sq_sum"],
        "split": ["wait_us", "transfer_us"],
        "communication": ["wait_us", "transfer_us", "comm_us"],
    }
    for name in dropped.get(what, ()):
        job.columns.pop(name, None)
    if what == "phases":
        job.events.clear()
    if what == "samples":
        job.samples = None
    if what in ("ep", "pp"):
        for place in job.places:
            place[what] = None


def _smooth(noise: Floats, memory: float) -> Floats:
    """First-order autoregression down the steps."""
    out = noise.copy()
    for s in range(1, len(out)):
        out[s] += memory * out[s - 1]
    return out
