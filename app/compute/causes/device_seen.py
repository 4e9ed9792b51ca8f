"""What a device reported while its rank was slow, beside its own past and its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.causes.onset import Onset
from steptax.app.compute.devices.facts import DeviceFacts
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.straggler.rules import CauseRules


@dataclass(frozen=True)
class DeviceSeen:
    """One device in the time of an episode."""

    now: DeviceFacts
    past: DeviceFacts | None
    """Before the episode; None where nothing is known of that."""
    beside: Sequence[DeviceFacts]
    """Of the peers, in the same time."""
    part: str | None
    """The part of the step that carries the excess."""
    excess_over_work: float
    """The excess as a share of the peers' work."""
    onset: Onset
    rules: CauseRules

    @property
    def on_device(self) -> bool:
        """Whether the slow part of the step is what the device itself works."""
        return self.part in (None, "compute", "work")

    @property
    def clock_deficit(self) -> float | None:
        """How far the clock lies below the peers', as a share of theirs."""
        ratio = self.now["sm_clock_mhz"].ratio
        return None if ratio is None else 1.0 - ratio

    def clock_text(self) -> tuple[float | None, str]:
        """Share of the excess that the clock explains, and in words."""
        deficit = self.clock_deficit
        if deficit is None or not self.excess_over_work > 0:
            return None, "its clock or its peers' is not known"
        explains = deficit / max(1e-9, 1.0 - deficit) / self.excess_over_work
        return explains, (
            f"SM clock {self.now.value('sm_clock_mhz') or 0:,.0f} MHz, "
            f"{spoken_ratio(abs(deficit))} {'below' if deficit > 0 else 'above'} its peers': "
            f"explains {spoken_ratio(max(0.0, explains))} of the excess"
        )

    def peers_held(self, names: tuple[str, ...]) -> float | None:
        """Share of the time that the typical peer is held back; None where no peer tells."""
        known = [share for one in self.beside if (share := held(one, names)) is not None]
        return float(np.median(known)) if known else None


def held(facts: DeviceFacts | None, names: tuple[str, ...]) -> float | None:
    """Share of its time at work that a device is held back by any of ``names``."""
    if facts is None or not facts.throttled_by:
        return None
    return max((facts.throttled_by.get(name, 0.0) for name in names), default=0.0)
