"""What a faster kernel does to the step, once its speed-up has met synchronisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.mfu.kernel_model import KernelModel, StepParts
from steptax.app.compute.spoken import spoken_us
from steptax.app.format import format_share


@dataclass(frozen=True, kw_only=True)
class KernelSpeedup(Result):
    """The step before and after; every band spans what was not given.

    ``ceiling`` is the step speed-up with the accelerated part at zero, under the same assumptions;
    ``next_limit`` names the largest part of the new step.
    """

    headline: str = "step_speedup"

    step_speedup: Measure
    ceiling: Measure
    step_before_ms: Measure
    step_after_ms: Measure
    compute_share_before_ratio: Ratio
    compute_share_after_ratio: Ratio
    comm_share_before_ratio: Ratio
    comm_share_after_ratio: Ratio
    wait_share_before_ratio: Ratio
    wait_share_after_ratio: Ratio
    other_share_before_ratio: Ratio
    other_share_after_ratio: Ratio
    next_limit: str
    model: KernelModel


@calculator(
    name="kernel-speedup",
    title="A faster kernel",
    formula="T' = C(1-f) + C f/s + (K - H') + w_c C'/C + w_0 + R; "
    "H' in [H C'/C, min(H, eta C'_window)]; K = exposed + hidden communication",
    source="Amdahl 1967, with overlap lost as the compute above it shrinks; parts of a step as in "
    "Lin et al., OSDI'25",
    page="A kernel's speed-up reaches the step only as far as the step was that kernel. "
    "Communication that ran under the old kernel comes into the open when the kernel shrinks, and "
    "a wait shrinks with compute only if a slow kernel caused it. Where hidden communication or "
    "the cause of the wait is not given, the answer is a band: its low end loses all the overlap "
    "there can have been and keeps the wait, its high end had nothing hidden and a wait that goes.",
    parameters=(
        Parameter("compute_ms", "ms", "compute per step", above=0),
        Parameter(
            "comm_ms", "ms", "communication per step not under compute, waiting excluded", minimum=0
        ),
        Parameter("wait_ms", "ms", "waiting for slower ranks per step", minimum=0),
        Parameter("speedup", "x", "old kernel time / new kernel time", above=0),
        Parameter("other_ms", "ms", "all else in the step: input, host, checkpoint", minimum=0),
        Parameter(
            "accelerated_ratio", "ratio", "share of compute that gets faster", minimum=0, maximum=1
        ),
        Parameter("hidden_comm_ms", "ms", "communication per step under compute", minimum=0),
        Parameter(
            "wait_follows_ratio",
            "ratio",
            "share of the wait that shrinks with compute",
            minimum=0,
            maximum=1,
        ),
        Parameter(
            "spread_factor",
            "x",
            "new spread between ranks / old, beside the change in compute",
            minimum=0,
        ),
        Parameter(
            "overlap_window_ms",
            "ms",
            "compute that communication can run under; all if left out",
            minimum=0,
        ),
        Parameter(
            "overlap_limit_ratio",
            "ratio",
            "share of that window in which it can run",
            minimum=0,
            maximum=1,
        ),
        Parameter(
            "comm_contention", "x", "communication time with the new kernel / before", minimum=1
        ),
    ),
)
def kernel_speedup(
    *,
    compute_ms: float,
    comm_ms: float,
    wait_ms: float,
    speedup: float,
    other_ms: float = 0.0,
    accelerated_ratio: float = 1.0,
    hidden_comm_ms: float | None = None,
    wait_follows_ratio: float | None = None,
    spread_factor: float = 1.0,
    overlap_window_ms: float | None = None,
    overlap_limit_ratio: float = 1.0,
    comm_contention: float | None = None,
) -> KernelSpeedup:
    """The step after ``accelerated_ratio`` of compute became ``speedup`` times faster.

    Values assume nothing hidden and a wait that stays, where these are not given; the band does
    not. With contention the answer can be a slower step.

    Raises:
        UserError: more hidden communication than fits under the compute.
    """
    model = KernelModel(
        StepParts(compute_ms, comm_ms, wait_ms, other_ms),
        accelerated_ratio,
        hidden_comm_ms,
        wait_follows_ratio,
        spread_factor,
        overlap_window_ms,
        overlap_limit_ratio,
        1.0 if comm_contention is None else comm_contention,
    )
    warnings = _unknown(model, comm_contention is None)
    value, low, high = model.step_speedup(speedup)
    after = model.after(speedup, model.nominal)
    parts = {
        "compute": after.compute_ms,
        "communication": after.comm_ms,
        "wait": after.wait_ms,
        "other": after.other_ms,
    }
    limit = max(parts, key=lambda name: parts[name])

    def measure(unit: str, read: Callable[[StepParts], float], at: float = speedup) -> Measure:
        nominal, least, most = model.band(at, read)
        return Measure(nominal, unit, least, most, warnings=warnings)

    def share(read: Callable[[StepParts], float]) -> tuple[Ratio, Ratio]:
        nominal, least, most = model.band(speedup, lambda step: read(step) / step.total_ms)
        return Ratio(read(model.before) / model.before.total_ms), Ratio(
            nominal, low=least, high=most, warnings=warnings
        )

    compute, comm, wait, other = (
        share(read)
        for read in (
            lambda step: step.compute_ms,
            lambda step: step.comm_ms,
            lambda step: step.wait_ms,
            lambda step: step.other_ms,
        )
    )
    return KernelSpeedup(
        step_speedup=Measure(value, "x", low, high, warnings=warnings),
        ceiling=_ceiling(model, warnings),
        step_before_ms=Measure(model.before.total_ms, "ms"),
        step_after_ms=measure("ms", lambda step: step.total_ms),
        compute_share_before_ratio=compute[0],
        compute_share_after_ratio=compute[1],
        comm_share_before_ratio=comm[0],
        comm_share_after_ratio=comm[1],
        wait_share_before_ratio=wait[0],
        wait_share_after_ratio=wait[1],
        other_share_before_ratio=other[0],
        other_share_after_ratio=other[1],
        next_limit=limit,
        model=model,
        sentence=_sentence(speedup, (value, low, high), after, limit, parts[limit]),
        warnings=warnings,
        unknown={
            name: ends
            for name, ends, value in (
                ("hidden_comm_ms", (0.0, model.most_hidden_ms), hidden_comm_ms),
                ("wait_follows_ratio", (0.0, 1.0), wait_follows_ratio),
            )
            if value is None
        },
    )


def _ceiling(model: KernelModel, warnings: tuple[str, ...]) -> Measure:
    """The step speed-up with the accelerated part gone; missing where nothing would remain."""
    left = [model.after(math.inf, a).total_ms for a in (model.nominal, *model.corners)]
    if min(left) <= 0:
        return Measure.missing("x", "nothing but the accelerated kernel is in the step")
    nominal, *ends = (model.before.total_ms / ms for ms in left)
    return Measure(nominal, "x", min(ends), max(ends), warnings=warnings)


def _unknown(model: KernelModel, no_contention: bool) -> tuple[str, ...]:
    said = (
        (model.hidden_comm_ms is None, "hidden communication not given: the band allows for any"),
        (model.wait_follows_ratio is None, "cause of the wait not given: it may stay or shrink"),
        (no_contention, "contention for the device is not modelled: the step may get slower"),
    )
    return tuple(text for unknown, text in said if unknown)


def _sentence(
    speedup: float,
    step: tuple[float, float, float],
    after: StepParts,
    limit: str,
    limit_ms: float,
) -> str:
    value, low, high = step
    compute = format_share(after.compute_ms / after.total_ms)
    wait = format_share(after.wait_ms / after.total_ms)
    shares = (
        f"compute is then {compute} of the step and waiting {wait}; next limit: {limit}, "
        f"{spoken_us(limit_ms * 1e3)}."
    )
    if high < 1:
        return f"{speedup:g}× on this kernel makes the step slower, {value:.2f}×: {shares}"
    if high - low < 0.005:
        return f"{speedup:g}× on this kernel gives {value:.2f}× on the step: {shares}"
    return (
        f"{speedup:g}× on this kernel gives {low:.2f}× to {high:.2f}× on the step. At {value:.2f}× "
        + shares
    )


CALCULATORS = (kernel_speedup,)
