"""Made-up jobs with known faults, as the rows that real jobs have: steps, ranks, samples, events.

How a step is made. Each rank works (compute, input, copies, collector pauses, host time), meets its
tensor-parallel peers, then the stages of its pipeline, then everybody at the end of the step. Only
the culprit's own work grows; whoever is ready sooner waits in communication, so that all ranks
report the same step time. Healthy ranks are not alike either: silicon differs, noise has heavy
tails and is shared by the ranks of a host, sequences differ in length, the collector pauses each
rank at its own steps, the first steps compile, checkpoints block, and the pace of a whole job
drifts. Devices report clocks, bits and counters that mean nothing most of the time.

The parameters are drawn from ranges that published measurements and common sense give; none was
chosen by what a detector makes of them. The same seed gives the same job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptax.benchmarks.product.fault_devices import DeviceSamples, device_samples

Floats = NDArray[np.float64]

GPUS_PER_HOST = 8
#: Cause to where it shows: on single ranks, on a host's ranks, a stage's, a group's, or on all.
SCOPES = {
    "thermal": "rank",
    "power_cap": "rank",
    "clocks": "rank",
    "ecc": "rank",
    "pcie": "rank",
    "xid": "rank",
    "nvlink": "tp_group",
    "host_cpu": "host",
    "gc": "rank",
    "input_loader": "rank",
    "sequence": "replica",
    "expert": "expert",
    "link": "dp_group",
    "stage": "stage",
    "gc_moving": "moving",
    "sequence_moving": "moving",
    "input_storage": "job",
    "network": "job",
    "checkpoint": "job",
    "launch_bound": "job",
    "kernel": "rank",
}
#: Slow compute that nothing which is recorded tells the cause of: it may not be named.
UNNAMED = frozenset({"kernel"})
CAUSES = tuple(cause for cause in SCOPES if cause not in UNNAMED)
#: How a fault that comes and goes comes: at random steps, every so many, or in bursts.
PATTERNS = ("random", "periodic", "bursts")
DEVICE_CAUSES = ("thermal", "power_cap", "clocks", "ecc", "pcie", "xid", "nvlink")
#: Causes that are there from the first step to the last.
_ALWAYS = frozenset({"stage", "launch_bound", "checkpoint", "gc_moving", "sequence_moving"})
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


@dataclass(frozen=True)
class Shape:
    """Sizes of the parallel groups; ranks are numbered tp first, then dp, then pp."""

    dp: int
    pp: int = 1
    tp: int = 1
    experts: int = 0
    """Expert-parallel ranks, a divisor of dp; 0 for a dense model."""

    @property
    def ranks(self) -> int:
        """World size."""
        return self.dp * self.pp * self.tp


@dataclass(frozen=True)
class Noise:
    """How unlike healthy ranks and steps are; shares of the compute of a step."""

    name: str
    sd_ratio: float
    """Of a rank's compute from step to step."""
    rank_sd_ratio: float
    """Between ranks, for good."""
    tail_probability: float
    """Of a spike, per rank and step; its size is Pareto with exponent 2 from 3 % on."""
    sequence_cv: float
    """Of the sum of squared sequence lengths of a replica from step to step."""


NOISES = (
    Noise("quiet", 0.003, 0.004, 0.001, 0.0),
    Noise("usual", 0.010, 0.008, 0.003, 0.05),
    Noise("loud", 0.025, 0.010, 0.008, 0.12),
)
#: Noise in which small excesses cannot be told: false alarms count all the same.
ROUGH_NOISES = (
    Noise("harsh", 0.10, 0.010, 0.008, 0.12),
    Noise("wild", 0.30, 0.010, 0.008, 0.12),
)


@dataclass(frozen=True)
class Fault:
    """What is wrong, where, and when; ``first`` and ``last`` are steps, both included."""

    cause: str
    ranks: tuple[int, ...]
    """Empty where no rank is to blame: the whole job, or a different rank each time."""
    first: int
    last: int
    excess_ratio: float
    """Mean time that is lost in a step, as a share of the healthy step."""
    signals: bool = True
    """Whether what settles the cause is recorded."""
    duty_ratio: float = 1.0
    """Share of its steps in which it is there."""
    pattern: str = ""
    """Of ``PATTERNS`` where it comes and goes."""

    @property
    def scope(self) -> str:
        """rank, host, tp_group, dp_group, replica, expert, stage, moving or job."""
        return SCOPES[self.cause]

    @property
    def is_placed(self) -> bool:
        """Whether what is recorded can tell the ranks.

        No total of communication tells a link, and of two halves nothing tells the slow one unless
        it is known which ranks do the same work.
        """
        return bool(self.ranks) and (self.signals or self.cause not in ("link", "stage"))

    @property
    def steps(self) -> int:
        """How long it lasts."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Plan:
    """All that a job is made from."""

    seed: int
    shape: Shape
    steps: int
    noise: Noise
    faults: tuple[Fault, ...] = ()
    decoys: tuple[Fault, ...] = ()
    """What devices show signs of and is not there."""
    lost_ratio: float = 0.0
    """Share of the rows of ``steps`` that were lost on the way."""


@dataclass(eq=False)
class FaultJob:
    """A job as it is recorded, and the truth about it."""

    plan: Plan
    columns: dict[str, Floats]
    """Columns of the ``steps`` table, [S, R] each, microseconds (tokens^2 for ``seq_sq_sum``)."""
    places: list[dict[str, Any]]
    """Rows of the ``ranks`` table, one per rank."""
    samples: DeviceSamples | None
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def truth(self) -> tuple[Fault, ...]:
        """The faults, as planned."""
        return self.plan.faults

    def step_rows(self) -> dict[str, NDArray[Any]]:
        """Long columns of the ``steps`` table."""
        step, rank = np.indices(self.columns["duration_us"].shape)
        long: dict[str, NDArray[Any]] = {"step": step.ravel(), "rank": rank.ravel()}
        long |= {name: values.ravel() for name, values in self.columns.items()}
        if not self.plan.lost_ratio:
            return long
        kept = np.random.default_rng(self.plan.seed).random(step.size) >= self.plan.lost_ratio
        return {name: values[kept] for name, values in long.items()}


def ranks_of(shape: Shape) -> dict[str, NDArray[np.int64]]:
    """Coordinate of each rank by kind, and its host."""
    rank = np.arange(shape.ranks)
    out = {
        "tp": rank % shape.tp,
        "dp": rank // shape.tp % shape.dp,
        "pp": rank // (shape.tp * shape.dp),
        "host": rank // GPUS_PER_HOST,
    }
    if shape.experts:
        out["ep"] = out["dp"] % shape.experts
    return out


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
        for fault in self.plan.faults:
            if fault.excess_ratio == 0:
                continue
            self._apply(fault, fault.excess_ratio * healthy, parts, transfer, sequences)
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

    def _apply(
        self,
        fault: Fault,
        amount: float,
        parts: dict[str, Floats],
        transfer: Floats,
        sequences: Floats,
    ) -> None:
        """Add ``amount`` of a step, on average over the steps of ``fault``."""
        g = self.g
        rows = np.arange(fault.first, fault.last + 1)
        cols = np.array(fault.ranks, dtype=np.int64) if fault.ranks else np.arange(self.size[1])
        cells = np.ix_(rows, cols)
        shape = (len(rows), len(cols))
        grown = np.full(shape, amount)
        if fault.cause == "thermal":
            # A device heats up over some steps before its clock falls all the way.
            ramp = np.minimum(1.0, (np.arange(len(rows)) + 1) / g.integers(5, 30))
            grown *= (ramp / ramp.mean())[:, None]
        grown *= g.lognormal(0.0, 0.05, shape)
        if fault.pattern:
            there = _comes_and_goes(fault, len(rows), g)
            grown *= (there / there.mean())[:, None]
            name = {"gc": "gc", "input_loader": "input"}.get(fault.cause, "compute")
            parts[name][cells] += grown
            return
        if fault.cause in ("host_cpu", "launch_bound"):
            parts["host"][cells] += amount * g.gamma(4.0, 0.25, shape)
        elif fault.cause == "pcie":
            parts["h2d"][cells] += grown
        elif fault.cause == "gc":
            parts["gc"][cells] += np.where(g.random(shape) < 0.7, amount / 0.7, 0.0)
        elif fault.cause == "gc_moving":
            # Somebody pauses in most steps, and all others wait.
            pauses = g.random(shape) < min(0.5, 1.5 / shape[1])
            parts["gc"][cells] += np.where(pauses, 1.5 * amount, 0.0)
        elif fault.cause == "input_loader":
            parts["input"][cells] += amount * g.gamma(3.0, 1.0 / 3.0, shape)
        elif fault.cause == "input_storage":
            slow = amount * g.gamma(2.0, 0.5, (len(rows), 1))
            parts["input"][cells] += slow * g.lognormal(0.0, 0.15, shape)
        elif fault.cause == "checkpoint":
            period = int(g.integers(10, 25))
            saved = np.flatnonzero((rows + 1) % period == 0)
            stall = amount * period * g.lognormal(0.0, 0.6, (len(saved), 1))
            parts["checkpoint"][np.ix_(rows[saved], cols)] += stall * g.lognormal(
                0.0, 0.1, (len(saved), len(cols))
            )
        elif fault.cause in ("sequence", "sequence_moving"):
            longer = np.full(shape, amount / self.attention_ratio)
            if fault.cause == "sequence_moving":
                wide = g.lognormal(0.0, 1.0, (len(rows), self.plan.shape.dp))
                longer *= 0.5 * wide[:, self.at["dp"]]
            sequences[cells] += longer
            parts["compute"][cells] += self.attention_ratio * longer
        elif fault.cause in ("network", "link", "nvlink"):
            each = amount * g.lognormal(0.0, 0.15, (len(rows), 1))
            transfer[cells] += np.broadcast_to(each, shape)
        else:
            parts["compute"][cells] += grown

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


def _comes_and_goes(fault: Fault, steps: int, g: np.random.Generator) -> Floats:
    """[S] 1 in the steps of a fault in which it is there, at least one of them; else 0."""
    there = np.zeros(steps)
    if fault.pattern == "random":
        there[g.random(steps) < fault.duty_ratio] = 1.0
    elif fault.pattern == "periodic":
        there[:: max(2, round(1.0 / fault.duty_ratio))] = 1.0
    else:
        length = int(g.integers(5, 16))
        period = round(length / fault.duty_ratio)
        there[np.arange(steps) % period < length] = 1.0
    if not there.any():
        there[0] = 1.0
    return there


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
