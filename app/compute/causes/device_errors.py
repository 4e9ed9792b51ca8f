"""Causes that a device counts or reports: memory errors, Xids, and worn PCIe and NVLink links."""

from __future__ import annotations

from steptax.app.compute.causes.device_seen import DeviceSeen
from steptax.app.compute.causes.model import Cause, CauseVerdict, named
from steptax.app.compute.straggler.rules import CONFIDENCES

#: Xid codes that name hardware (NVIDIA Xid catalogue); others come from programs as well.
_HARDWARE_XIDS = frozenset({48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140})


def error_causes(seen: DeviceSeen) -> list[CauseVerdict]:
    """Memory errors and Xids that are out of line."""
    return [cause for cause in (_ecc(seen), _xid(seen)) if cause is not None]


def link_causes(seen: DeviceSeen, *, pcie: bool, nvlink: bool) -> list[CauseVerdict]:
    """Links of the device that are worse than they can be, of the kinds asked for."""
    found = (_pcie(seen) if pcie else None, _nvlink(seen) if nvlink else None)
    return [cause for cause in found if cause is not None]


def _ecc(seen: DeviceSeen) -> CauseVerdict | None:
    fatal = seen.now.value("ecc_uncorrected") or 0.0
    many = _grown(seen, "ecc_corrected")
    if not fatal and many is None:
        return None
    lines, late = [], []
    before = _as_before(seen, "ecc_uncorrected")
    if fatal and before >= fatal / seen.rules.errors_over_peers and many is None:
        text = (
            f"{fatal:.0f} uncorrected memory errors: at the pace of before it was slow there "
            f"would be {before:.0f}"
        )
        return _after(Cause.ECC, text)
    if fatal:
        late.append(seen.onset.late(seen.onset.grew_us["ecc_uncorrected"]))
        lines.append(f"{fatal:.0f} uncorrected memory errors while it was slow")
    if many is not None:
        late.append(seen.onset.late(seen.onset.grew_us["ecc_corrected"]))
        lines.append(f"{many[0]:.0f} corrected memory errors, {many[1]}")
    if all(late):
        return _after(Cause.ECC, f"{'; '.join(lines)}: the first came {late[0]}")
    return _less_if_clocked(
        seen, Cause.ECC, CONFIDENCES.ecc_uncorrected if fatal else CONFIDENCES.ecc_corrected, lines
    )


def _xid(seen: DeviceSeen) -> CauseVerdict | None:
    since = seen.onset.window.onset_us[0]
    past = () if seen.past is None else seen.past.xids
    near = [x for x in past if x.is_new and x.first_us >= since]
    old = {x.code for x in past} - {x.code for x in near}
    old |= {x.code for x in past if x.first_us < since}
    first: dict[int, int] = {}
    for one in (*near, *seen.now.xids):
        if one.code in _HARDWARE_XIDS and one.code not in old:
            first[one.code] = min(one.first_us, first.get(one.code, one.first_us))
    if not first:
        return None
    late = {code: seen.onset.late(at_us) for code, at_us in first.items()}
    in_time = sorted(code for code, after in late.items() if after is None)
    if not in_time:
        code = min(first, key=lambda c: first[c])
        return _after(Cause.XID, f"Xid {code} was first reported {late[code]}")
    lines = [f"Xid {', '.join(map(str, in_time))} on record when it became slow"]
    if seen.past is not None:
        lines[0] += ", and not long before"
    return _less_if_clocked(seen, Cause.XID, CONFIDENCES.xid, lines)


def _pcie(seen: DeviceSeen) -> CauseVerdict | None:
    lines = []
    for name, unit in (("pcie_width", "lanes"), ("pcie_gen", "generation")):
        own, most = seen.now.value(name), seen.now.value(f"{name}_max")
        most = most or seen.now[name].peers.value
        if own is None or not most or own >= most:
            continue
        past = None if seen.past is None else seen.past.value(name)
        if past is not None and past <= own:
            continue
        lines.append(f"PCIe {unit} {own:.0f} of {most:.0f}")
    if not lines:
        return None
    return named(
        Cause.PCIE,
        CONFIDENCES.pcie_copies if seen.part == "h2d" else CONFIDENCES.pcie_compute,
        tuple(lines),
    )


def _nvlink(seen: DeviceSeen) -> CauseVerdict | None:
    many = _grown(seen, "nvlink_errors")
    down = seen.now["nvlink_up"].difference
    lines = []
    if many is not None:
        late = seen.onset.late(seen.onset.grew_us["nvlink_errors"])
        if late is not None and not (down is not None and down < 0):
            return _after(Cause.NVLINK, f"{many[0]:.0f} NVLink errors: the first came {late}")
        lines.append(f"{many[0]:.0f} NVLink errors while it was slow, {many[1]}")
    if down is not None and down < 0:
        lines.append(f"{-down:.0f} NVLinks fewer up than on its peers")
    if not lines:
        return None
    return named(
        Cause.NVLINK,
        CONFIDENCES.nvlink_transfer if seen.part == "transfer" else CONFIDENCES.nvlink_compute,
        tuple(lines),
    )


def _grown(seen: DeviceSeen, name: str) -> tuple[float, str] | None:
    """Errors in the episode where they are out of line, and those of its peers in words."""
    own = seen.now[name].own.value
    if own is None:
        return None
    told = seen.now[name].peers.value
    peers = told or 0.0
    past = 0.0 if seen.past is None else seen.past.value(name) or 0.0
    line = max(seen.rules.errors, seen.rules.errors_over_peers * max(peers, past))
    beside = "not known of its peers" if told is None else f"its typical peer {told:.0f}"
    return (own, beside) if own >= line else None


def _as_before(seen: DeviceSeen, name: str) -> float:
    """How many errors there would be at the pace of before the episode."""
    window = seen.onset.window
    if seen.past is None or window.before_us is None:
        return 0.0
    lengths = [end - begin for begin, end in (window.before_us, window.during_us)]
    return (seen.past.value(name) or 0.0) * lengths[1] / max(1, lengths[0])


def _after(cause: Cause, text: str) -> CauseVerdict:
    """What began after the rank had become slow is at most its effect; what was, no cause."""
    return named(cause, CONFIDENCES.after_onset, (), (text,))


def _less_if_clocked(
    seen: DeviceSeen, cause: Cause, confidence: float, lines: list[str]
) -> CauseVerdict:
    """Errors besides a low clock that explains the excess are less likely to be the cause."""
    explains, text = seen.clock_text()
    if explains is not None and explains >= seen.rules.clock_explains_ratio:
        return named(cause, confidence - CONFIDENCES.besides_clock, tuple(lines), (text,))
    return named(cause, confidence, tuple(lines))
