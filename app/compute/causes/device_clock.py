"""Causes that hold a device's clock back: heat, a power cap, or no reason that it gives."""

from __future__ import annotations

from steptax.app.compute.causes.device_seen import DeviceSeen, held
from steptax.app.compute.causes.model import Cause, CauseVerdict, named
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.straggler.rules import CONFIDENCES

_THERMAL = ("sw_thermal", "hw_thermal", "hw_slowdown")
_POWER = ("sw_power_cap", "hw_power_brake")


def clock_causes(seen: DeviceSeen) -> list[CauseVerdict]:
    """What holds the clock of the device back, if anything does."""
    thermal = _throttled(seen, Cause.THERMAL, _THERMAL)
    power = _power(seen)
    found = (thermal, power, _clock(seen, thermal, power))
    return [cause for cause in found if cause is not None]


def _throttled(seen: DeviceSeen, cause: Cause, names: tuple[str, ...]) -> CauseVerdict | None:
    share = held(seen.now, names)
    if share is None or share < seen.rules.throttled_ratio:
        return None
    past = held(seen.past, names)
    if past is not None and share - past < seen.rules.throttled_ratio:
        return None
    # A whole fleet that is warm is no reason why one rank of it is slow.
    peers = seen.peers_held(names)
    if peers is not None and share - peers < seen.rules.throttled_ratio:
        return None
    explains, text = seen.clock_text()
    said = [name for name in names if seen.now.throttled_by.get(name, 0.0) > 0]
    what = f"{' or '.join(said)} reported in"
    lines = [f"{what} {spoken_ratio(share)} of its time at work"]
    if past is not None:
        lines.append(f"{what} {spoken_ratio(past)} of that time before it was slow")
    if peers is not None:
        lines.append(f"{what} {spoken_ratio(peers)} of the time at work of its typical peer")
    hotter = seen.now["temperature_max_c"].difference
    if cause is Cause.THERMAL and hotter is not None and hotter >= seen.rules.hotter_c:
        lines.append(f"up to {hotter:.0f} °C hotter than its peers")
    return _with_clock(seen, cause, explains, text, lines)


def _with_clock(
    seen: DeviceSeen, cause: Cause, explains: float | None, text: str, lines: list[str]
) -> CauseVerdict:
    if explains is None:
        return named(
            cause, CONFIDENCES.clock_unknown, tuple(lines), settle=("SM clock of that device",)
        )
    if explains >= seen.rules.clock_explains_ratio:
        return named(cause, CONFIDENCES.clock_explains, (*lines, text))
    return named(cause, CONFIDENCES.clock_denies, tuple(lines), (text,))


def _power(seen: DeviceSeen) -> CauseVerdict | None:
    lines = []
    limit = seen.now["power_limit_w"].ratio
    if limit is not None and limit < 1.0 - seen.rules.clock_ratio:
        lines.append(
            f"power limit {seen.now.value('power_limit_w') or 0:.0f} W, "
            f"{spoken_ratio(1.0 - limit)} below its peers'"
        )
    share, past = held(seen.now, _POWER), held(seen.past, _POWER)
    told = seen.peers_held(_POWER)
    peers = told or 0.0
    if (
        share is not None
        and share - peers >= seen.rules.throttled_ratio
        and (past is None or share - past >= seen.rules.throttled_ratio)
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
    explains, text = seen.clock_text()
    return _with_clock(seen, Cause.POWER_CAP, explains, text, lines)


def _clock(
    seen: DeviceSeen, thermal: CauseVerdict | None, power: CauseVerdict | None
) -> CauseVerdict | None:
    """A clock that is low for no reason that the device gives."""
    deficit = seen.clock_deficit
    if thermal is not None or power is not None:
        return None
    if deficit is None or deficit < seen.rules.clock_ratio:
        return None
    explains, text = seen.clock_text()
    if explains is None or explains < seen.rules.clock_explains_ratio:
        return None
    before = None if seen.past is None else seen.past["sm_clock_mhz"].ratio
    if before is not None and 1.0 - before > seen.rules.before_ratio * deficit:
        return None
    heat, power_held = held(seen.now, _THERMAL), held(seen.now, _POWER)
    if heat is None or power_held is None:
        settle = ("throttle reasons of that device",)
        return named(Cause.CLOCKS, CONFIDENCES.low_clock, (text,), settle=settle)
    given = (
        f"reported in its time at work: heat {spoken_ratio(heat)}, "
        f"power cap {spoken_ratio(power_held)}"
    )
    return named(Cause.CLOCKS, CONFIDENCES.low_clock, (text, given))
