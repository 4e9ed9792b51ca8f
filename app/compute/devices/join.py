"""Which samples are of the device that a rank runs on.

The scheduler, the job and the monitor each number devices in their own way, so equal numbers mean
nothing (https://github.com/PrincetonUniversity/jobstats/issues/34): only the device's own identity
joins. Where a record has none, the rank's device is not identified, and that is said.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.devices.claims import GLOBAL_UUID, NO_UUID
from steptax.app.compute.devices.series import SeriesName

#: AMD's unique id, its digits as HIP gives them in the bytes of a UUID, and as amd-smi puts them
#: into one (https://github.com/Xilinx/XRT/pull/9146,
#: https://github.com/ROCm/legacy-rocm-build/issues/5480). A device without one is called XX.
_HEX_16, _HEX_32 = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{32}")
_HIP = re.compile(rb"[0-9a-f]{16}|XX")
_AMD_SMI = re.compile(r"([0-9a-f]{2})ff[0-9a-f]{4}-0000-1000-80([0-9a-f]{2})-([0-9a-f]{12})")
#: How samples call a device that did not tell its identity: by its place, which is none.
_PLACE = re.compile(r"(?:index|pci|place) .*")


@dataclass(frozen=True)
class RankDevice:
    """What the record of a rank says of its device."""

    rank: int
    host: str | None = None
    gpu_uuid: str | None = None
    gpu_index: int | None = None


@dataclass(frozen=True)
class Joined:
    """The series of a rank's device; none, and why not."""

    rank: RankDevice
    series: tuple[int, ...]
    """Places in the names that were given: one for each monitor of the device."""
    reason: str | None = None


def join_devices(ranks: Sequence[RankDevice], names: Sequence[SeriesName]) -> tuple[Joined, ...]:
    """The series that are of the device of each of ``ranks``, in their order."""
    anywhere: dict[str, list[int]] = defaultdict(list)
    on_host: dict[tuple[str, str], list[int]] = defaultdict(list)
    hosts = Counter(host for host, _ in {(_short(n.host), n.gpu_uuid) for n in names})
    for place, name in enumerate(names):
        identity = _identity(name.gpu_uuid)
        if identity is None:
            continue
        if GLOBAL_UUID.fullmatch(name.gpu_uuid.strip()):
            anywhere[identity].append(place)
        on_host[_short(name.host), identity].append(place)
    return tuple(_join(rank, anywhere, on_host, hosts) for rank in ranks)


def _join(
    rank: RankDevice,
    anywhere: dict[str, list[int]],
    on_host: dict[tuple[str, str], list[int]],
    hosts: Counter[str],
) -> Joined:
    identity = _identity(rank.gpu_uuid)
    if identity is None:
        what = "no identity of its device (gpu_uuid)"
        if rank.gpu_index is not None:
            what = f"only a number of its device ({rank.gpu_index}), which others count differently"
        return Joined(rank, (), f"GPU not identified: the rank's record has {what}")
    if identity.startswith("mig-"):
        return Joined(rank, (), "runs on a MIG instance, and samples are of whole devices")
    found = anywhere.get(identity) or on_host.get((_short(rank.host or ""), identity))
    if found:
        return Joined(rank, tuple(found))
    seen = hosts[_short(rank.host or "")]
    where = f"on {rank.host}" if rank.host else "on its node"
    others = "none is there " + where
    if seen:
        others = f"{seen:,} other devices {where} have some"
        if seen == 1:
            others = f"1 other device {where} has some"
    return Joined(rank, (), f"no samples of {rank.gpu_uuid}: {others}")


def _identity(uuid: str | None) -> str | None:
    """``uuid`` in one spelling for all tools; None for what is no identity."""
    text = (uuid or "").strip().lower()
    if text in NO_UUID or _PLACE.fullmatch(text):
        return None
    text = text.removeprefix("gpu-")
    if text.startswith("0x"):
        return text[2:].zfill(16)
    if amd := _AMD_SMI.fullmatch(text):
        return amd[1] + amd[2] + amd[3]
    spelled = _ascii(text.replace("-", ""))
    return text if spelled is None else spelled if _HEX_16.fullmatch(spelled) else None


def _ascii(digits: str) -> str | None:
    """The text that the HIP library puts in the place of 16 bytes of identity; None for others."""
    if not _HEX_32.fullmatch(digits):
        return None
    found = bytes.fromhex(digits).rstrip(b"\0")
    return found.decode() if found and _HIP.fullmatch(found) else None


def _short(host: str) -> str:
    """A node's name without its domain: half of the tools leave it out."""
    head = host.strip().lower().partition(".")[0]
    return host.strip().lower() if head.isdigit() else head
