"""What a job would take and cost on another device, from its own step and not from peak alone.

A step is compute, communication, waiting for other ranks, and the rest. On another device compute
is as much faster as measurements say (or, lacking those, the specification); communication
inside a node as much as its links; the wait shrinks with the compute that causes it, or not at
all; the rest stays. What is not known is a band, not a guess: the step is monotone in each part,
so the ends of the parts bound it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum

from steptax.app.compute.calculators.base import Swing
from steptax.app.compute.calculators.parameter import SWING
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.device_table import Device
from steptax.app.compute.mfu.kernel_model import StepParts

S_PER_HOUR = 3600.0


class Badge(StrEnum):
    """What a figure rests on, best first."""

    MEASURED = "measured"
    """Measured by you, on your own devices."""
    PUBLISHED = "published"
    """Measured by somebody else, and published."""
    SPEC = "spec"
    """Only what the maker states."""


@dataclass(frozen=True)
class Factor:
    """How many times as fast something is on the other device, its band, and what says so."""

    times: float
    low: float
    high: float
    badge: Badge
    source: str


SAME = Factor(1.0, 1.0, 1.0, Badge.MEASURED, "the job's own device")


def compute_factor(
    own: Device, other: Device, dtype: str, measured_tflops: Mapping[str, float]
) -> Factor | None:
    """How many times as fast ``other`` computes in ``dtype``; None where nothing says so.

    The best matrix-multiply rate that was measured on both (``measured_tflops`` by device key:
    your own benchmark), else the published one of both, else their dense peaks. Parts of a model
    wait for memory instead: the band reaches to the ratio of the memory bandwidths.
    """
    if own.key == other.key:
        return SAME
    source = f"{other.source}; {own.source}"
    if own.key in measured_tflops and other.key in measured_tflops:
        times = measured_tflops[other.key] / measured_tflops[own.key]
        badge, source = Badge.MEASURED, "matrix multiplication on your own devices"
    elif dtype in own.mamf_tflops and dtype in other.mamf_tflops:
        times = other.mamf_tflops[dtype] / own.mamf_tflops[dtype]
        badge = Badge.PUBLISHED
    elif dtype in own.peak_tflops and dtype in other.peak_tflops:
        times, badge = other.peak_tflops[dtype] / own.peak_tflops[dtype], Badge.SPEC
    else:
        return None
    ends = [times]
    if own.hbm_tb_per_s and other.hbm_tb_per_s:
        ends.append(other.hbm_tb_per_s / own.hbm_tb_per_s)
    return Factor(times, min(ends), max(ends), badge, source)


def comm_factor(own: Device, other: Device, nodes: int | None) -> Factor:
    """How many times as fast ``other`` communicates.

    Within one node as its links are. Between nodes the network decides, which is bought apart
    from the device: it stays, and the band reaches to the ratio of the links.
    """
    if own.key == other.key:
        return SAME
    if not (own.scale_up_gb_per_s and other.scale_up_gb_per_s):
        source = "links of one of the two are not known: communication is taken as it is"
        return Factor(1.0, 1.0, 1.0, Badge.SPEC, source)
    links = other.scale_up_gb_per_s / own.scale_up_gb_per_s
    low, high = min(1.0, links), max(1.0, links)
    if nodes == 1:
        return Factor(links, low, high, Badge.SPEC, "links to the peers of the node")
    return Factor(1.0, low, high, Badge.SPEC, "the network between nodes is taken as it is")


@dataclass(frozen=True)
class Profile:
    """A job as it was measured: what procurement needs to know of it."""

    job_id: str
    device: Device
    dtype: str
    gpus: int
    nodes: int | None
    parts: StepParts
    """Mean parts of a step in ms, as measured on ``device``."""
    goodput_ratio: Measure
    """Share of paid time in useful steps; what else is lost stays as it is."""
    mfu_ratio: Measure
    """Model FLOP utilisation of the steps on ``device``."""


@dataclass(frozen=True)
class Projection:
    """The job on another device, with as many of them. Bands are ends, not chances."""

    compute: Factor
    comm: Factor
    step_ms: Measure
    wait_ratio: Measure
    """Share of the step in which ranks wait for others."""
    speedup: Measure
    """Old step over new step."""
    delivered_pflops: Measure
    """Model PFLOP/s per device that become useful steps."""
    gpu_hours_per_result: Measure

    @property
    def badge(self) -> Badge:
        """The weaker of what changes: communication that stays as it is rests on nothing new."""
        order = list(Badge)
        asked = [self.compute.badge] + ([self.comm.badge] if self.comm.times != 1 else [])
        return max(asked, key=order.index)


def project(
    profile: Profile, other: Device, result_steps: int, measured_tflops: Mapping[str, float]
) -> Projection | None:
    """``profile`` on ``other``; a result is ``result_steps`` useful steps of all devices.

    None where nothing tells how fast ``other`` computes.
    """
    compute = compute_factor(profile.device, other, profile.dtype, measured_tflops)
    if compute is None:
        return None
    comm = comm_factor(profile.device, other, profile.nodes)
    old = profile.parts
    nominal = _parts(old, compute.times, comm.times, compute.times)
    fast = _parts(old, compute.high, comm.high, max(1.0, compute.high))
    slow = _parts(old, compute.low, comm.low, min(1.0, compute.low))
    step = Measure(nominal.total_ms, "ms", fast.total_ms, slow.total_ms)
    # Every corner of the band: the share of the wait is not monotone in the parts together.
    shares = [
        part.wait_ms / part.total_ms
        for part in (
            _parts(old, c, n, w)
            for c in (compute.low, compute.high)
            for n in (comm.low, comm.high)
            for w in (1.0, c)
        )
    ]
    return Projection(
        compute=compute,
        comm=comm,
        step_ms=step,
        wait_ratio=Measure(nominal.wait_ms / nominal.total_ms, "ratio", min(shares), max(shares)),
        speedup=step.map(lambda ms: old.total_ms / ms, "x"),
        delivered_pflops=_delivered(profile, step),
        gpu_hours_per_result=_gpu_hours(profile, step, result_steps),
    )


def _parts(old: StepParts, compute: float, comm: float, wait: float) -> StepParts:
    return StepParts(old.compute_ms / compute, old.comm_ms / comm, old.wait_ms / wait, old.other_ms)


def _delivered(profile: Profile, step: Measure) -> Measure:
    """Useful model FLOPs are the job's; only the time that they take changes."""
    unit = "PFLOP/s"
    mfu, goodput = profile.mfu_ratio, profile.goodput_ratio
    peak_tflops = profile.device.peak_tflops.get(profile.dtype)
    if peak_tflops is None:
        return Measure.missing(unit, f"no {profile.dtype} peak of {profile.device.key} is known")
    for known in (mfu, goodput):
        if known.value is None:
            return Measure.missing(unit, known.reason or "not known")
    assert mfu.value is not None
    assert goodput.value is not None
    useful = peak_tflops / 1000 * mfu.value * goodput.value * profile.parts.total_ms
    return step.map(lambda ms: useful / ms, unit)


def _gpu_hours(profile: Profile, step: Measure, result_steps: int) -> Measure:
    """Paid GPU-hours; of the steps alone, with a warning, where goodput is not known."""
    goodput = profile.goodput_ratio.value
    paid = result_steps * profile.gpus / 1000 / S_PER_HOUR / (goodput or 1.0)
    hours = step.map(lambda ms: ms * paid, "GPU-hours")
    if goodput:
        return hours
    why = profile.goodput_ratio.reason or "goodput is 0"
    return replace(hours, warnings=(f"of the steps alone, without what is lost between: {why}",))


def cost_swings(
    profile: Profile,
    other: Device,
    result_steps: int,
    price: Decimal,
    measured_tflops: Mapping[str, float],
) -> tuple[Swing, ...]:
    """USD of a result on ``other`` as one input at a time moves over its band, widest first.

    Inputs: how many times as fast compute, communication and waiting become, and the price by
    ``SWING`` either way. Empty where nothing tells how fast ``other`` computes.
    """
    compute = compute_factor(profile.device, other, profile.dtype, measured_tflops)
    if compute is None:
        return ()
    comm = comm_factor(profile.device, other, profile.nodes)

    def usd(c: float, n: float, w: float, at: float) -> float:
        step = Measure(_parts(profile.parts, c, n, w).total_ms, "ms")
        return (_gpu_hours(profile, step, result_steps).value or 0.0) * at

    own = float(price)
    c, n = compute.times, comm.times
    found = [
        Swing(
            "compute_speedup",
            "x",
            compute.low,
            compute.high,
            usd(compute.low, n, compute.low, own),
            usd(compute.high, n, compute.high, own),
            is_measured=True,
        ),
        Swing(
            "comm_speedup",
            "x",
            comm.low,
            comm.high,
            usd(c, comm.low, c, own),
            usd(c, comm.high, c, own),
            is_measured=True,
        ),
        Swing(
            "wait_speedup", "x", 1.0, c, usd(c, n, 1.0, own), usd(c, n, c, own), is_measured=True
        ),
        Swing(
            "usd_per_gpu_hour",
            "USD/GPU-hour",
            own * (1 - SWING),
            own * (1 + SWING),
            usd(c, n, c, own * (1 - SWING)),
            usd(c, n, c, own * (1 + SWING)),
        ),
    ]
    return tuple(sorted(found, key=lambda swing: -swing.width))


def straggler_adjusted_usd(price: Decimal, wait_ratio: Measure) -> Measure:
    """USD of a GPU-hour in which no rank waits: price / (1 - share of waiting)."""
    return wait_ratio.map(lambda share: float(price) / (1 - share), "USD/GPU-hour")


def break_even_usd(own_price: Decimal | None, speedup: Measure) -> Measure:
    """The price of a GPU-hour at which the other device costs as much per result.

    Both have as many devices: a result takes 1 / speed-up of the GPU-hours.
    """
    if own_price is None:
        return Measure.missing("USD/GPU-hour", "the price of the job's own device is not known")
    return speedup.map(lambda times: float(own_price) * times, "USD/GPU-hour")


def energy_kwh(gpu_hours: Measure, power_w: float | None) -> Measure:
    """Energy of the devices at the power that their maker states, without the rest of the node."""
    if power_w is None:
        return Measure.missing("kWh", "the power of the device is not known")
    return gpu_hours.map(lambda hours: hours * power_w / 1000, "kWh")


def frontier(points: Mapping[str, tuple[float, float]]) -> frozenset[str]:
    """The names that no other beats in both cost and time, given (cost, time) of each."""
    return frozenset(
        name
        for name, (cost, time) in points.items()
        if not any((c <= cost and t <= time) and (c < cost or t < time) for c, t in points.values())
    )
