"""What faults do to the rows of a job: the time that they add, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.benchmarks.product.fault_model import Fault

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Traits:
    """What a fault needs to know of its job."""

    attention_ratio: float
    """Share of compute that grows with the sum of squared lengths."""
    replicas: NDArray[np.int64]
    """[R] data-parallel replica of each rank."""


def add_fault(
    fault: Fault,
    amount: float,
    parts: dict[str, Floats],
    transfer: Floats,
    sequences: Floats,
    traits: Traits,
    g: np.random.Generator,
) -> None:
    """Add ``amount`` of a step, on average over the steps of ``fault``, to the parts [S, R]."""
    rows = np.arange(fault.first, fault.last + 1)
    cols = np.array(fault.ranks, dtype=np.int64) if fault.ranks else np.arange(transfer.shape[1])
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
        longer = np.full(shape, amount / traits.attention_ratio)
        if fault.cause == "sequence_moving":
            wide = g.lognormal(0.0, 1.0, (len(rows), traits.replicas.max() + 1))
            longer *= 0.5 * wide[:, traits.replicas]
        sequences[cells] += longer
        parts["compute"][cells] += traits.attention_ratio * longer
    elif fault.cause in ("network", "link", "nvlink"):
        each = amount * g.lognormal(0.0, 0.15, (len(rows), 1))
        transfer[cells] += np.broadcast_to(each, shape)
    else:
        parts["compute"][cells] += grown


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
