"""Causes that lie in a device: what it reported while its rank was slow, against its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptax.app.compute.cause_model import Cause, CauseVerdict, named
from steptax.app.compute.cause_onset import Onset, Window
from steptax.app.compute.device_facts import DeviceFacts, device_facts
from steptax.app.compute.device_join import RankDevice
from steptax.app.compute.device_series import DeviceSeries
from steptax.app.compute.rules import CONFIDENCES, CauseRules
from steptax.app.compute.spoken import spoken_ratio

_THERMAL = ("sw_thermal", "hw_thermal", "hw_slowdown")
_POWER = ("sw_power_cap", "hw_power_brake")
#: Xid codes that name hardware (NVIDIA Xid catalogue); others come from programs as well.
HARDWARE_XIDS = frozenset({48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140})
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
    seen = _Seen(during, before, beside, part, excess_over_work, onset, rules)
    return [c for c in seen.candidates() if c is not None], None


@dataclass(frozen=True)
class _Seen:
    now: DeviceFacts
    past: DeviceFacts | None
    beside: Sequence[DeviceFacts]
    """Of the peers, in the same time."""
    part: str | None
    excess: float
    onset: Onset
    rules: CauseRules

    def candidates(self) -> list[CauseVerdict | None]:
        on_device = self.part in (None, "compute", "work")
        found: list[CauseVerdict | None] = []
        if on_device:
            thermal = self._throttled(Cause.THERMAL, _THERMAL)
            power = self._power()
            found += [thermal, power, self._clock(thermal, power)]
            found += [self._ecc(), self._xid()]
        if self.part == "h2d" or on_device:
            found.append(self._pcie())
        if self.part == "transfer" or on_device:
            found.append(self._nvlink())
        return found

    @property
    def _deficit(self) -> float | None:
        """How far the clock lies below the peers', as a share of theirs."""
        ratio = self.now["sm_clock_mhz"].ratio
        return None if ratio is None else 1.0 - ratio

    def _clock_text(self) -> tuple[float | None, str]:
        """Share of the excess that the clock explains, and in words."""
        deficit = self._deficit
        if deficit is None or not self.excess > 0:
            return None, "its clock or its peers' is not known"
        explains = deficit / max(1e-9, 1.0 - deficit) / self.excess
        return explains, (
            f"SM clock {self.now.value('sm_clock_mhz') or 0:.0f} MHz, "
            f"{spoken_ratio(abs(deficit))} {'below' if deficit > 0 else 'above'} its peers': "
            f"explains {spoken_ratio(max(0.0, explains))} of the excess"
        )

    def _held(self, facts: DeviceFacts | None, names: tuple[str, ...]) -> float | None:
        if facts is None or not facts.throttled_by:
            return None
        return max((facts.throttled_by.get(name, 0.0) for name in names), default=0.0)

    def _peers_held(self, names: tuple[str, ...]) -> float | None:
        """The same of the typical peer; None where no peer tells."""
        known = [held for one in self.beside if (held := self._held(one, names)) is not None]
        return float(np.median(known)) if known else None

    def _throttled(self, cause: Cause, names: tuple[str, ...]) -> CauseVerdict | None:
        share = self._held(self.now, names)
        if share is None or share < self.rules.throttled_ratio:
            return None
        past = self._held(self.past, names)
        if past is not None and share - past < self.rules.throttled_ratio:
            return None
        # A whole fleet that is warm is no reason why one rank of it is slow.
        peers = self._peers_held(names)
        if peers is not None and share - peers < self.rules.throttled_ratio:
            return None
        explains, text = self._clock_text()
        said = [name for name in names if self.now.throttled_by.get(name, 0.0) > 0]
        lines = [f"{' or '.join(said)} reported in {spoken_ratio(share)} of its time at work"]
        if past is not None:
            lines.append(f"before it was slow: {spoken_ratio(past)}")
        if peers is not None:
            lines.append(f"its typical peer: {spoken_ratio(peers)}")
        hotter = self.now["temperature_max_c"].difference
        if cause is Cause.THERMAL and hotter is not None and hotter >= self.rules.hotter_c:
            lines.append(f"up to {hotter:.0f} °C hotter than its peers")
        return self._with_clock(cause, explains, text, lines)

    def _with_clock(
        self, cause: Cause, explains: float | None, text: str, lines: list[str]
    ) -> CauseVerdict:
        if explains is None:
            return named(
                cause, CONFIDENCES.clock_unknown, tuple(lines), settle=("SM clock of that device",)
            )
        if explains >= self.rules.clock_explains_ratio:
            return named(cause, CONFIDENCES.clock_explains, (*lines, text))
        return named(cause, CONFIDENCES.clock_denies, tuple(lines), (text,))

    def _power(self) -> CauseVerdict | None:
        lines = []
        limit = self.now["power_limit_w"].ratio
        if limit is not None and limit < 1.0 - self.rules.clock_ratio:
            lines.append(
                f"power limit {self.now.value('power_limit_w') or 0:.0f} W, "
                f"{spoken_ratio(1.0 - limit)} below its peers'"
            )
        share, past = self._held(self.now, _POWER), self._held(self.past, _POWER)
        told = self._peers_held(_POWER)
        peers = told or 0.0
        if (
            share is not None
            and share - peers >= self.rules.throttled_ratio
            and (past is None or share - past >= self.rules.throttled_ratio)
        ):
            beside = (
                "not known of its peers"
                if told is None
                else f"its typical peer in {spoken_ratio(peers)}"
            )
            lines.append(
                f"held by its power cap in {spoken_ratio(share)} of its time at work, {beside}"
            )
        if not lines:
            return None
        explains, text = self._clock_text()
        return self._with_clock(Cause.POWER_CAP, explains, text, lines)

    def _clock(
        self, thermal: CauseVerdict | None, power: CauseVerdict | None
    ) -> CauseVerdict | None:
        """A clock that is low for no reason that the device gives."""
        deficit = self._deficit
        if thermal is not None or power is not None:
            return None
        if deficit is None or deficit < self.rules.clock_ratio:
            return None
        explains, text = self._clock_text()
        if explains is None or explains < self.rules.clock_explains_ratio:
            return None
        before = None if self.past is None else self.past["sm_clock_mhz"].ratio
        if before is not None and 1.0 - before > self.rules.before_ratio * deficit:
            return None
        heat, held = self._held(self.now, _THERMAL), self._held(self.now, _POWER)
        if heat is None or held is None:
            settle = ("throttle reasons of that device",)
            return named(Cause.CLOCKS, CONFIDENCES.low_clock, (text,), settle=settle)
        given = (
            f"reported in its time at work: heat {spoken_ratio(heat)}, "
            f"power cap {spoken_ratio(held)}"
        )
        return named(Cause.CLOCKS, CONFIDENCES.low_clock, (text, given))

    def _grown(self, name: str) -> tuple[float, str] | None:
        """Errors in the episode where they are out of line, and those of its peers in words."""
        own = self.now[name].own.value
        if own is None:
            return None
        told = self.now[name].peers.value
        peers = told or 0.0
        past = 0.0 if self.past is None else self.past.value(name) or 0.0
        line = max(self.rules.errors, self.rules.errors_over_peers * max(peers, past))
        beside = "not known of its peers" if told is None else f"its typical peer {told:.0f}"
        return (own, beside) if own >= line else None

    def _as_before(self, name: str) -> float:
        """How many errors there would be at the pace of before the episode."""
        window = self.onset.window
        if self.past is None or window.before_us is None:
            return 0.0
        lengths = [end - begin for begin, end in (window.before_us, window.during_us)]
        return (self.past.value(name) or 0.0) * lengths[1] / max(1, lengths[0])

    def _ecc(self) -> CauseVerdict | None:
        fatal = self.now.value("ecc_uncorrected") or 0.0
        many = self._grown("ecc_corrected")
        if not fatal and many is None:
            return None
        lines, late = [], []
        before = self._as_before("ecc_uncorrected")
        if fatal and before >= fatal / self.rules.errors_over_peers and many is None:
            text = (
                f"{fatal:.0f} uncorrected memory errors: at the pace of before it was slow there "
                f"would be {before:.0f}"
            )
            return self._after(Cause.ECC, text)
        if fatal:
            late.append(self.onset.late(self.onset.grew_us["ecc_uncorrected"]))
            lines.append(f"{fatal:.0f} uncorrected memory errors while it was slow")
        if many is not None:
            late.append(self.onset.late(self.onset.grew_us["ecc_corrected"]))
            lines.append(f"{many[0]:.0f} corrected memory errors, {many[1]}")
        if all(late):
            return self._after(Cause.ECC, f"{'; '.join(lines)}: the first came {late[0]}")
        return self._less_if_clocked(
            Cause.ECC, CONFIDENCES.ecc_uncorrected if fatal else CONFIDENCES.ecc_corrected, lines
        )

    def _xid(self) -> CauseVerdict | None:
        since = self.onset.window.onset_us[0]
        past = () if self.past is None else self.past.xids
        near = [x for x in past if x.is_new and x.first_us >= since]
        old = {x.code for x in past} - {x.code for x in near}
        old |= {x.code for x in past if x.first_us < since}
        first: dict[int, int] = {}
        for one in (*near, *self.now.xids):
            if one.code in HARDWARE_XIDS and one.code not in old:
                first[one.code] = min(one.first_us, first.get(one.code, one.first_us))
        if not first:
            return None
        late = {code: self.onset.late(at_us) for code, at_us in first.items()}
        in_time = sorted(code for code, after in late.items() if after is None)
        if not in_time:
            code = min(first, key=lambda c: first[c])
            return self._after(Cause.XID, f"Xid {code} was first reported {late[code]}")
        lines = [f"Xid {', '.join(map(str, in_time))} on record when it became slow"]
        if self.past is not None:
            lines[0] += ", and not long before"
        return self._less_if_clocked(Cause.XID, CONFIDENCES.xid, lines)

    def _after(self, cause: Cause, text: str) -> CauseVerdict:
        """What began after the rank had become slow is at most its effect; what was, no cause."""
        return named(cause, CONFIDENCES.after_onset, (), (text,))

    def _less_if_clocked(self, cause: Cause, confidence: float, lines: list[str]) -> CauseVerdict:
        """Errors besides a low clock that explains the excess are less likely to be the cause."""
        explains, text = self._clock_text()
        if explains is not None and explains >= self.rules.clock_explains_ratio:
            return named(cause, confidence - CONFIDENCES.besides_clock, tuple(lines), (text,))
        return named(cause, confidence, tuple(lines))

    def _pcie(self) -> CauseVerdict | None:
        lines = []
        for name, unit in (("pcie_width", "lanes"), ("pcie_gen", "generation")):
            own, most = self.now.value(name), self.now.value(f"{name}_max")
            most = most or self.now[name].peers.value
            if own is None or not most or own >= most:
                continue
            past = None if self.past is None else self.past.value(name)
            if past is not None and past <= own:
                continue
            lines.append(f"PCIe {unit} {own:.0f} of {most:.0f}")
        if not lines:
            return None
        return named(
            Cause.PCIE,
            CONFIDENCES.pcie_copies if self.part == "h2d" else CONFIDENCES.pcie_compute,
            tuple(lines),
        )

    def _nvlink(self) -> CauseVerdict | None:
        many = self._grown("nvlink_errors")
        down = self.now["nvlink_up"].difference
        lines = []
        if many is not None:
            late = self.onset.late(self.onset.grew_us["nvlink_errors"])
            if late is not None and not (down is not None and down < 0):
                return self._after(
                    Cause.NVLINK, f"{many[0]:.0f} NVLink errors: the first came {late}"
                )
            lines.append(f"{many[0]:.0f} NVLink errors while it was slow, {many[1]}")
        if down is not None and down < 0:
            lines.append(f"{-down:.0f} NVLinks fewer up than on its peers")
        if not lines:
            return None
        return named(
            Cause.NVLINK,
            CONFIDENCES.nvlink_transfer if self.part == "transfer" else CONFIDENCES.nvlink_compute,
            tuple(lines),
        )
