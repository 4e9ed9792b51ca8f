"""The cause of transfers that take longer for some ranks than for others: a link, or a device's."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.causes.beside import link_sides
from steptax.app.compute.causes.device import NO_SAMPLES, DeviceEvidence, device_causes
from steptax.app.compute.causes.groups import Coordinates, Joint
from steptax.app.compute.causes.model import Cause, CauseVerdict, decide, named
from steptax.app.compute.causes.onset import Window
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.rules import CONFIDENCES, CauseRules


def transfer_cause(
    joint: Joint,
    excess: Floats,
    places: Coordinates,
    devices: DeviceEvidence | None,
    window: Window | None,
    rules: CauseRules,
) -> tuple[CauseVerdict, tuple[CauseVerdict, ...]]:
    """Cause of transfers that take longer for some ranks than for others.

    ``excess`` [K, R] is that of transfers in the steps of ``joint``.
    """
    candidates: list[CauseVerdict] = []
    settle = ["per-collective times of that group, and port counters of its hosts"]
    others = [c for c in range(_count(places)) if c not in set(joint.columns)]
    why: str | None = NO_SAMPLES
    if devices is not None and window is not None:
        for column in joint.columns:
            found, why = device_causes(devices, column, others, window, "transfer", 0.0, rules)
            if found:
                candidates = found
                break
    one_host = "host" in places and len(np.unique(places["host"][list(joint.columns)])) == 1
    if not candidates and joint.kinds and not one_host:
        sides = link_sides(excess, joint.columns, joint.excess_ratio, rules)
        candidates.append(named(Cause.LINK, CONFIDENCES.link, *sides))
    if one_host and not candidates:
        settle.append(why or "NVLink error counters and link states of that node's devices")
    return decide(
        candidates,
        rules.least_confidence,
        abstain_text=f"cause not named: transfers are slow, {_shared(joint, places)}",
        settle=tuple(dict.fromkeys(settle)),
        action="test the links of these ranks with a collective benchmark",
    )


def _shared(joint: Joint, places: Coordinates) -> str:
    """What ranks with slow transfers have in common."""
    if len(joint.columns) == 1:
        return "of this rank alone"
    if "host" in places and len(np.unique(places["host"][list(joint.columns)])) == 1:
        return "of ranks of one node"
    return "of ranks that share no group" if places else "of ranks whose groups are not known"


def _count(places: Coordinates) -> int:
    return max((len(values) for values in places.values()), default=0)
