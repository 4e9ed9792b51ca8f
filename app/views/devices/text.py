"""What is out of line with a job's devices, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from steptax.app.compute.devices.facts import Against, DeviceFacts
from steptax.app.compute.devices.findings import DeviceFinding, Kind
from steptax.app.format import format_age, format_moment, format_share
from steptax.app.views.devices.view import DevicesView

TITLE = "Devices"
#: Ranks that a verdict names.
_NAMED = 3
REASONS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal": "thermal slowdown",
    "hw_thermal": "thermal slowdown by hardware",
    "hw_power_brake": "power brake",
    "applications_clocks": "a clock that was set",
    "sync_boost": "boost kept in step with others",
    "display_clocks": "the display's clock",
}
#: What NVIDIA's driver means by codes that tell of hardware, from its list of Xid errors
#: (https://docs.nvidia.com/deploy/xid-errors/); a code that is not here may come from a program.
XIDS = {
    48: "uncorrectable memory error",
    63: "memory row remapped",
    64: "remapping of a memory row failed",
    74: "NVLink error",
    79: "fell off the bus",
    92: "many corrected memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP does not answer",
    120: "GSP error",
}


def verdict(view: DevicesView) -> str:
    """The worst device in a sentence; else that none is out of line, or why it is not known."""
    found_by = by_rank(view)
    if found_by:
        rank, found = next(iter(found_by.items()))
        text = f"{_whose(rank)} {finding_text(found[0])}."
        others = [other for other in found_by if other != rank]
        if others:
            more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
            named = ", ".join(str(other) for other in others[:_NAMED])
            word = "rank" if len(others) == 1 else "ranks"
            text += f" Something is out of line with {word} {named}{more} too."
        return text
    if not view.known:
        return f"Nothing is known of the devices: {_reasons(view)}."
    if view.known == len(view.facts):
        return f"None of the {view.known:,} devices is out of line with its peers."
    return (
        f"None of the {view.known:,} devices that are known is out of line with its peers; "
        f"{len(view.facts) - view.known:,} are not known: {_reasons(view)}."
    )


def pointer(view: DevicesView) -> str:
    """Whether a device is out of line, and of which ranks, for a link to what is said of it."""
    ranks = list(by_rank(view))
    if not ranks:
        return verdict(view)
    named = ", ".join(f"{rank:,}" for rank in ranks[:_NAMED])
    more = f" and {len(ranks) - _NAMED:,} more" if len(ranks) > _NAMED else ""
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"something is out of line with the GPU of {word} {named}{more}"


def lines(view: DevicesView) -> tuple[str, ...]:
    """A sentence for each rank whose device is out of line, worst first."""
    return tuple(
        f"{_whose(rank)} ({place(found[0].facts)}) {_joined(found)}."
        for rank, found in by_rank(view).items()
    )


def coverage(view: DevicesView) -> str:
    """Of how many ranks and of which time something is known."""
    start_us, end_us = view.window_us
    known = [one for one in view.facts if one.reason is None]
    monitors = ", ".join(sorted({name for one in known for name in one.monitors}))
    seen = [one.observed.value for one in known if one.observed.value is not None]
    by = f" by {monitors}, {format_share(sum(seen) / len(seen))} of the time" if seen else ""
    return (
        f"{view.known:,} of {len(view.facts):,} ranks' devices observed{by} · {view.window_basis}: "
        f"{format_moment(start_us)}, {format_age((end_us - start_us) / 1e6)}"
    )


def place(facts: DeviceFacts) -> str:
    """Node and device."""
    return ", ".join(part for part in (facts.host, facts.gpu_uuid) if part) or "place unknown"


def notes(view: DevicesView) -> tuple[str, ...]:
    """Why devices are not known, by reason, and what was left out."""
    if not view.known or view.known == len(view.facts):
        return view.warnings
    return (*view.warnings, f"{len(view.facts) - view.known:,} not known: {_reasons(view)}")


def finding_text(finding: DeviceFinding) -> str:
    """What is out of line, as the end of a sentence that begins with the device."""
    return _TEXTS[finding.kind](finding.facts)


def by_rank(view: DevicesView) -> Mapping[int, list[DeviceFinding]]:
    """Findings by rank, the rank with the worst one first."""
    found: dict[int, list[DeviceFinding]] = {}
    for finding in view.findings:
        found.setdefault(finding.facts.rank, []).append(finding)
    return found


def _whose(rank: int) -> str:
    return f"Rank {rank:,}'s GPU"


def _joined(found: list[DeviceFinding]) -> str:
    kinds = {finding.kind for finding in found}
    # A slow clock names its reasons itself.
    own = [f for f in found if not (f.kind is Kind.THROTTLED and Kind.CLOCK in kinds)]
    return "; it ".join(finding_text(finding) for finding in own)


def _reasons(view: DevicesView) -> str:
    counts: dict[str, int] = {}
    first: dict[str, str] = {}
    for one in view.facts:
        if one.reason is not None:
            kind = one.reason.partition(":")[0].partition(" GPU-")[0]
            counts[kind] = counts.get(kind, 0) + 1
            first.setdefault(kind, one.reason)
    said = [
        first[kind] if count == 1 else f"{first[kind]} (and {count - 1:,} alike)"
        for kind, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    return "; ".join(said)


def throttle_words(facts: DeviceFacts) -> str:
    """``thermal slowdown 83.0 % of the time``, by share; empty where nothing held it back."""
    return _shares(facts.throttled_by)


def _shares(by: Mapping[str, float]) -> str:
    ordered = sorted(by.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{REASONS.get(name, name)} {format_share(share)}" for name, share in ordered if share > 0
    )


def _clock(facts: DeviceFacts) -> str:
    why = _shares({**facts.throttled_by, **facts.clock_held_by})
    if why:
        why = f" ({why} of its time at work)"
    elif facts["throttled_ratio"].own.value is None:
        why = " (it does not tell why)"
    return f"ran at {_beside(facts['sm_clock_mhz'], 'MHz')}{why}"


def _beside(found: Against, unit: str, verb: str = "ran at") -> str:
    own, peers = found.own.value, found.peers.value
    of = "" if peers is None else f" while its peers {verb} {peers:,.0f}"
    return f"{own:,.0f} {unit}{of}"


def _pcie(facts: DeviceFacts) -> str:
    def link(end: str) -> str:
        gen, width = facts.value(f"pcie_gen{end}"), facts.value(f"pcie_width{end}")
        parts = ("" if gen is None else f"gen {gen:.0f}", "" if width is None else f"x{width:.0f}")
        return " ".join(part for part in parts if part) or "an unknown link"

    text = f"had PCIe {link('')} of {link('_max')}"
    peers = facts["pcie_width"].peers.value
    return text if peers is None else f"{text}, its peers x{peers:.0f}"


def _xids(facts: DeviceFacts) -> str:
    said = []
    for xid in facts.xids:
        meaning = f" ({XIDS[xid.code]})" if xid.code in XIDS else ""
        since = f"at {format_moment(xid.first_us)}" if xid.is_new else "of before, or at the start"
        said.append(f"Xid {xid.code}{meaning} {since}")
    return f"gave {', '.join(said)}"


def _health(facts: DeviceFacts) -> str:
    words = sorted(facts.health.items(), key=lambda item: -item[1])
    said = ", ".join(f"{word} for {format_share(share)}" for word, share in words)
    return f"was reported as {said} of the time observed"


def _count(name: str, what: str) -> Callable[[DeviceFacts], str]:
    def text(facts: DeviceFacts) -> str:
        peers = facts[name].peers.value
        beside = "" if peers is None else f" (its peers: {peers:,.0f})"
        return f"had {facts.value(name):,.0f} {what}{beside}"

    return text


_TEXTS: Mapping[Kind, Callable[[DeviceFacts], str]] = {
    Kind.HEALTH: _health,
    Kind.XID: _xids,
    Kind.CLOCK: _clock,
    Kind.THROTTLED: lambda f: f"was held back: {throttle_words(f)} of its time at work",
    Kind.PCIE: _pcie,
    Kind.NVLINK_DOWN: _count("nvlink_up", "NVLink links up at the least"),
    Kind.POWER_LIMIT: lambda f: (
        f"was limited to {_beside(f['power_limit_w'], 'W', 'were limited to')}"
    ),
    Kind.ECC: _count("ecc_uncorrected", "more uncorrected memory errors"),
    Kind.REMAPPED: _count("remapped_rows", "more memory rows remapped"),
    Kind.NVLINK_ERRORS: _count("nvlink_errors", "more NVLink errors"),
    Kind.HOT: lambda f: f"reached {_beside(f['temperature_max_c'], '°C', 'reached')}",
    Kind.STALE: lambda f: (
        f"was not observed for {format_share(f.stale.value)}: a collector repeated old values"
    ),
}
