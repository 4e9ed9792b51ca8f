"""What the devices of a made-up job report: signs of the faults, and signs of nothing.

Every job has devices that look odd and are not: the power-cap bit comes and goes on busy devices,
some run hotter than others, corrected memory errors trickle in, and an old Xid stays on record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from steptax.benchmarks.product.fault_model import Fault

Floats = NDArray[np.float64]

#: Bits of NVML's clock event reasons.
APPLICATION_CLOCKS, POWER_CAP, SW_THERMAL, HW_THERMAL = 0x2, 0x4, 0x20, 0x40
CLOCK_MHZ = 1980.0
POWER_LIMIT_W = 700.0
#: Steps between two samples of a device.
STEPS_PER_SAMPLE = 5


@dataclass(eq=False)
class DeviceSamples:
    """Columns of ``device_samples``, [M, R] each; ``ts_us`` [M]. Counters since driver load."""

    ts_us: NDArray[np.int64]
    columns: dict[str, Floats]


def device_samples(
    faults: Sequence[Fault], start_us: Floats, g: np.random.Generator
) -> DeviceSamples:
    """Samples of each device, every few steps."""
    steps = np.arange(0, len(start_us), STEPS_PER_SAMPLE)
    size = (len(steps), start_us.shape[1])
    capped = g.random(size) < g.uniform(0.0, 0.4)
    temperature = g.normal(64, 4, size[1]) + g.normal(0, 1.5, size)
    old = g.random(size[1]) < 0.01
    c: dict[str, Floats] = {
        "util_ratio": np.full(size, 1.0),
        "throttle_reasons": np.where(capped, float(POWER_CAP), 0.0),
        "sm_clock_mhz": CLOCK_MHZ
        - np.where(capped, g.uniform(15, 60, size), 0.0)
        - 15 * g.integers(0, 2, size),
        "temperature_c": temperature,
        "power_w": np.minimum(POWER_LIMIT_W, g.normal(640, 25, size)),
        "power_limit_w": np.full(size, POWER_LIMIT_W),
        "ecc_corrected": np.cumsum(g.random(size) < 0.0005, axis=0).astype(np.float64),
        "ecc_uncorrected": np.zeros(size),
        "xid": np.where(old, 13.0, np.nan)[None, :].repeat(size[0], axis=0),
        "pcie_width": np.full(size, 16.0),
        "pcie_width_max": np.full(size, 16.0),
        "pcie_gen": np.full(size, 5.0),
        "pcie_gen_max": np.full(size, 5.0),
        "nvlink_errors": np.cumsum(g.random(size) < 0.001, axis=0).astype(np.float64),
    }
    for fault in faults:
        rows = np.flatnonzero((steps >= fault.first) & (steps <= fault.last))
        if len(rows):
            _sign(fault, c, rows, np.flatnonzero(steps >= fault.first), g)
    ts = np.rint(start_us[steps].max(axis=1)).astype(np.int64)
    return DeviceSamples(ts, c)


def _sign(
    fault: Fault,
    c: dict[str, Floats],
    rows: NDArray[np.intp],
    later: NDArray[np.intp],
    g: np.random.Generator,
) -> None:
    """What the devices of ``fault`` report: while it lasts, and in counters from then on."""
    cells = np.ix_(rows, np.array(fault.ranks, dtype=np.int64))
    shape = (len(rows), len(fault.ranks))
    lowered = CLOCK_MHZ / (1.0 + fault.excess_ratio) * g.normal(1.0, 0.01, shape)
    often = g.random(shape) < g.uniform(0.7, 1.0)
    bits = c["throttle_reasons"][cells].astype(np.int64)
    if fault.cause == "thermal":
        c["sm_clock_mhz"][cells] = lowered
        bits |= np.where(often, int(g.choice((SW_THERMAL, HW_THERMAL))), 0)
        c["temperature_c"][cells] = g.normal(87, 1.5, shape)
    elif fault.cause == "power_cap":
        c["sm_clock_mhz"][cells] = lowered
        bits |= np.where(often, POWER_CAP, 0)
        limit = float(g.uniform(350, 550))
        c["power_limit_w"][cells] = limit
        c["power_w"][cells] = limit - np.abs(g.normal(0, 5, shape))
    elif fault.cause == "clocks":
        c["sm_clock_mhz"][cells] = lowered
        bits |= APPLICATION_CLOCKS
        c["power_w"][cells] *= 0.8
    elif fault.cause == "pcie":
        c["pcie_width"][cells] = float(g.choice((4, 8)))
    c["throttle_reasons"][cells] = bits
    first = np.array(fault.ranks, dtype=np.int64)[:1]
    onward = np.ix_(later, first)
    if fault.cause == "ecc":
        grown = np.cumsum(g.poisson(2.0, len(later)))[:, None]
        c["ecc_corrected"][onward] += 10.0 * grown
        c["ecc_uncorrected"][onward] += (grown + 9) // 10
    elif fault.cause == "xid":
        c["xid"][onward] = float(g.choice((48, 63, 74, 79, 94, 95)))
    elif fault.cause == "nvlink":
        c["nvlink_errors"][onward] += np.cumsum(g.poisson(20.0, len(later)))[:, None]
