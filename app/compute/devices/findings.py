"""What is out of line with a device: against its peers, its own maximum, or what must never be.

These say that a device differs, not that it is why a rank is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from steptax.app.compute.devices.facts import DeviceFacts

#: A clock this far below the peers' cannot be the noise of a boost clock.
SLOW_CLOCK_RATIO = 0.95
#: Share of the time at work in which temperature, power brake or hardware held a device.
THROTTLED_RATIO = 0.05
#: A power cap is a usual state of a busy device: only one that its peers are not held by counts.
CAPPED_BEYOND_RATIO = 0.10
POWER_LIMIT_RATIO = 0.99
HOTTER_C = 10.0
#: Link errors are repaired and happen; this many times those of the peers do not.
LINK_ERRORS_TIMES = 10.0
STALE_RATIO = 0.10
_POWER_CAP = "sw_power_cap"


class Kind(Enum):
    """What is out of line; in the order in which it matters."""

    HEALTH = "health"
    CLOCK = "clock"
    THROTTLED = "throttled"
    PCIE = "pcie"
    NVLINK_DOWN = "nvlink_down"
    POWER_LIMIT = "power_limit"
    XID = "xid"
    ECC = "ecc"
    REMAPPED = "remapped"
    NVLINK_ERRORS = "nvlink_errors"
    HOT = "hot"
    STALE = "stale"


_ORDER = {kind: place for place, kind in enumerate(Kind)}


@dataclass(frozen=True)
class DeviceFinding:
    """One thing that is out of line with the device of ``facts``.

    ``size`` orders findings of one kind: the larger, the worse.
    """

    facts: DeviceFacts
    kind: Kind
    size: float


def device_findings(facts: Sequence[DeviceFacts]) -> tuple[DeviceFinding, ...]:
    """Everything that is out of line, worst first."""
    found = [one for device in facts if device.reason is None for one in _of(device)]
    return tuple(sorted(found, key=lambda f: (_ORDER[f.kind], -f.size, f.facts.rank)))


def _of(device: DeviceFacts) -> Iterator[DeviceFinding]:
    for kind, size in _sizes(device):
        if size is not None and size > 0:
            yield DeviceFinding(device, kind, size)


def _sizes(device: DeviceFacts) -> Iterator[tuple[Kind, float | None]]:
    """The size of each kind; 0 or None where it is in line, or not known."""
    if device.health:
        yield Kind.HEALTH, max(device.health.values()) or 1e-9
    yield Kind.XID, float(len(device.xids))
    clock = device["sm_clock_mhz"].ratio
    yield Kind.CLOCK, None if clock is None or clock > SLOW_CLOCK_RATIO else 1.0 - clock
    yield Kind.THROTTLED, _throttled(device)
    yield Kind.PCIE, _pcie(device)
    yield Kind.NVLINK_DOWN, _below(device["nvlink_up"].difference)
    limit = device["power_limit_w"].ratio
    yield Kind.POWER_LIMIT, None if limit is None or limit > POWER_LIMIT_RATIO else 1.0 - limit
    yield Kind.ECC, device.value("ecc_uncorrected")
    yield Kind.REMAPPED, device.value("remapped_rows")
    errors = device["nvlink_errors"]
    if errors.own.value and errors.peers.value is not None:
        beyond = errors.own.value >= LINK_ERRORS_TIMES * max(errors.peers.value, 1.0)
        yield Kind.NVLINK_ERRORS, errors.own.value if beyond else None
    hotter = device["temperature_max_c"].difference
    yield Kind.HOT, None if hotter is None or hotter < HOTTER_C else hotter
    stale = device.stale.value
    yield Kind.STALE, None if stale is None or stale < STALE_RATIO else stale


def _throttled(device: DeviceFacts) -> float | None:
    """Share of the time at work in which it was held back, where that is out of line."""
    by = device.throttled_by
    hard = max((share for name, share in by.items() if name != _POWER_CAP), default=0.0)
    if hard >= THROTTLED_RATIO:
        return hard
    beyond = device["throttled_ratio"].difference
    capped = by.get(_POWER_CAP, 0.0)
    return capped if beyond is not None and beyond >= CAPPED_BEYOND_RATIO else None


def _pcie(device: DeviceFacts) -> float | None:
    """Part of the link's width or speed that is missing, against its maximum and its peers'."""
    missing = 0.0
    for name in ("pcie_width", "pcie_gen"):
        now, most = device.value(name), device.value(f"{name}_max")
        peers = device[name].peers.value
        for limit in (most, peers):
            if now is not None and limit:
                missing = max(missing, 1.0 - now / limit)
    return missing


def _below(difference: float | None) -> float | None:
    return None if difference is None else -difference
