"""Causes that lie in a device: what it reported while its rank was slow, against its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptax.app.compute.causes.device_clock import clock_causes
from steptax.app.compute.causes.device_errors import error_causes, link_causes
from steptax.app.compute.causes.device_seen import DeviceSeen
from steptax.app.compute.causes.model import CauseVerdict
from steptax.app.compute.causes.onset import Onset, Window
from steptax.app.compute.devices.facts import DeviceFacts, device_facts
from steptax.app.compute.devices.join import RankDevice
from steptax.app.compute.devices.series import DeviceSeries
from steptax.app.compute.straggler.rules import CauseRules

#: What settles a cause in a device, where nothing is recorded of it.
NO_SAMPLES = "samples of the devices (clock, throttle reasons, ECC, Xid, PCIe, NVLink)"
#: Peers whose devices are read beside the culprit's, at most.
_PEERS = 32


@dataclass(frozen=True, eq=False)
class DeviceEvidence:
    """Which device each rank of the matrix holds [R], and what devices reported."""

    ranks: Sequence[RankDevice]
    samples: DeviceSeries

    def facts(self, columns: Sequence[int], begin_us: int, end_us: int) -> list[DeviceFacts]:
        """Facts of the devices of ``columns``, the first of which is compared with the others."""
        ranks = [self.ranks[c] for c in columns]
        wanted = {r.gpu_uuid for r in ranks}
        s = self.samples
        named_here = np.array([n.gpu_uuid in wanted for n in s.names], dtype=bool)
        keep = named_here[s.series] & (s.ts_us >= begin_us) & (s.ts_us < end_us)
        part = replace(
            s,
            series=s.series[keep],
            ts_us=s.ts_us[keep],
            duration_us=s.duration_us[keep],
            values={name: values[keep] for name, values in s.values.items()},
            masks=s.masks[keep],
            health=s.health[keep],
        )
        return list(device_facts(ranks, part, (begin_us, end_us)))


def device_causes(
    evidence: DeviceEvidence,
    column: int,
    peers: Sequence[int],
    window: Window,
    part: str | None,
    excess_over_work: float,
    rules: CauseRules,
) -> tuple[list[CauseVerdict], str | None]:
    """Causes in the device of ``column``; or none, and why its device says nothing.

    ``peers`` are columns to compare with, ``part`` the part of the step that carries the excess,
    ``excess_over_work`` the excess as a share of the peers' work.
    """
    columns = [column, *(p for p in peers if p != column)][: _PEERS + 1]
    during, *beside = evidence.facts(columns, *window.during_us)
    if during.reason is not None:
        return [], during.reason
    before = None
    if window.before_us is not None:
        first = evidence.facts(columns, *window.before_us)[0]
        before = first if first.reason is None else None
    uuid = evidence.ranks[column].gpu_uuid
    onset = Onset.of(evidence.samples, uuid, window)
    seen = DeviceSeen(during, before, beside, part, excess_over_work, onset, rules)
    found = [*clock_causes(seen), *error_causes(seen)] if seen.on_device else []
    found += link_causes(
        seen,
        pcie=part == "h2d" or seen.on_device,
        nvlink=part == "transfer" or seen.on_device,
    )
    return found, None
