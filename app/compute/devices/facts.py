"""What the device of each rank did over a window, beside what the devices of its peers did.

Figures are means over time, each sample weighted with the time that it stands for. *At work* is
time in which a device was not idle: clock, power and throttle reasons of an idle device say nothing
of how fast it works. Where a device does not tell its utilisation, whatever it does not call idle
is work. Repeated old values (``device_time``) enter nothing. What a device does not tell is missing
with its reason, and never 0.

Peers are the devices of the same model that serve the other ranks of the job; their figure is the
median of theirs, without the device in question.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from steptax.app.compute.causes.throttle import THROTTLES
from steptax.app.compute.devices.join import Joined, RankDevice, join_devices
from steptax.app.compute.devices.series import DeviceSeries
from steptax.app.compute.devices.sums import COUNTERS, DeviceSums, Xid, sum_devices
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.compute.straggler.peers import peer_median

Span = tuple[int, int]


@dataclass(frozen=True)
class Figure:
    """One figure of a device. Counters are by how much they grew in the window."""

    name: str
    unit: str
    title: str
    needs_work: bool = False
    """Whether it is of the time at work only."""


FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("util_ratio", "ratio", "utilisation"),
        Figure("sm_clock_mhz", "MHz", "SM clock", needs_work=True),
        Figure("memory_clock_mhz", "MHz", "memory clock", needs_work=True),
        Figure("power_w", "W", "power", needs_work=True),
        Figure("power_limit_w", "W", "power limit"),
        Figure("temperature_c", "degC", "temperature"),
        Figure("temperature_max_c", "degC", "highest temperature"),
        Figure("memory_temperature_max_c", "degC", "highest temperature of the memory"),
        Figure("memory_used_bytes", "bytes", "memory in use"),
        Figure("throttled_ratio", "ratio", "throttle reasons", needs_work=True),
        Figure("ecc_corrected", "errors", "corrected ECC errors"),
        Figure("ecc_uncorrected", "errors", "uncorrected ECC errors"),
        Figure("remapped_rows", "rows", "remapped memory rows"),
        Figure("nvlink_errors", "errors", "NVLink errors"),
        Figure("nvlink_up", "links", "NVLink links that are up"),
        Figure("pcie_width", "lanes", "PCIe lanes", needs_work=True),
        Figure("pcie_width_max", "lanes", "PCIe lanes that device and slot have"),
        Figure("pcie_gen", "generation", "PCIe generation", needs_work=True),
        Figure("pcie_gen_max", "generation", "PCIe generation that device and slot can do"),
        Figure("processes", "processes", "compute processes"),
    )
}


@dataclass(frozen=True)
class Against:
    """A figure of a device and the median of it over its peers; either may be missing."""

    own: Measure
    peers: Measure

    @property
    def ratio(self) -> float | None:
        """Own over peers; None where one is missing or the peers' is 0."""
        if self.own.value is None or not self.peers.value:
            return None
        return self.own.value / self.peers.value

    @property
    def difference(self) -> float | None:
        """Own less peers; None where one is missing."""
        if self.own.value is None or self.peers.value is None:
            return None
        return self.own.value - self.peers.value


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of the device of one rank in a window."""

    rank: int
    host: str | None
    gpu_uuid: str | None
    """As its samples name it; as the rank's record does where it has none."""
    gpu_model: str | None
    monitors: tuple[str, ...]
    """The connectors that its samples came by."""
    reason: str | None
    """Why nothing is known of it; None where something is."""
    samples: int
    newest_us: int | None
    observed: Measure
    """Share of the window of which there are fresh samples."""
    stale: Measure
    """Share of the window in which a collector repeated an old value."""
    at_work: Measure
    """Share of the observed time in which it was not idle."""
    figures: Mapping[str, Against]
    """By the names of ``FIGURES``; all of them."""
    totals: Mapping[str, Measure]
    """The newest value of each counter, whatever it was before the window."""
    throttled_by: Mapping[str, float]
    """Share of the time at work by reason, all reasons that throttle; empty where not known."""
    clock_held_by: Mapping[str, float]
    """The same of reasons that are no throttling: a clock that was set, boost kept in step, ..."""
    xids: tuple[Xid, ...]
    xid_reason: str | None
    """Why codes are not known; None where an empty ``xids`` means that there was none."""
    health: Mapping[str, float] = field(default_factory=dict)
    """Share of the observed time by what was wrong with the whole device: lost, ..."""
    has_mig: bool = False
    """Whether it was split into MIG instances: figures are of the whole device."""

    def __getitem__(self, name: str) -> Against:
        """The figure called ``name``."""
        return self.figures[name]

    def value(self, name: str) -> float | None:
        """Its own figure called ``name``."""
        return self.figures[name].own.value


def device_facts(
    ranks: Sequence[RankDevice],
    samples: DeviceSeries,
    window_us: Span,
    *,
    groups: Sequence[Hashable] | None = None,
) -> tuple[DeviceFacts, ...]:
    """Facts of the device of each of ``ranks``, in their order.

    ``samples`` lie in ``window_us`` (begin, end). ``groups`` [R] narrows peers to ranks of the same
    group, a pipeline stage say.
    """
    joined = join_devices(ranks, samples.names)
    place_of: dict[tuple[int, ...], int] = {}
    for one in joined:
        if one.series:
            place_of.setdefault(one.series, len(place_of))
    device_of = np.full(len(samples.names), -1, dtype=np.int64)
    for series, place in place_of.items():
        device_of[list(series)] = place
    sums = sum_devices(samples, device_of, len(place_of))
    places = np.array([place_of.get(one.series, -1) for one in joined], dtype=np.int64)
    models = [_model(one, samples) for one in joined]
    keys = [(m, None if groups is None else groups[i]) for i, m in enumerate(models)]
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)
    own = {name: _spread(sums.figures[name], places) for name in FIGURES}
    peers = {name: peer_median(values[None, :], group_of)[0] for name, values in own.items()}
    return tuple(
        _facts(one, int(places[i]), models[i], samples, sums, window_us, own, peers, i)
        for i, one in enumerate(joined)
    )


def _spread(values: Floats, places: Ints) -> Floats:
    """[D] to [R]: NaN where a rank has no device."""
    return np.append(values, np.nan)[places]


def _model(one: Joined, samples: DeviceSeries) -> str | None:
    found = (samples.names[place].gpu_model for place in one.series)
    return next((model for model in found if model), None)


def _facts(
    one: Joined,
    place: int,
    model: str | None,
    samples: DeviceSeries,
    sums: DeviceSums,
    window_us: Span,
    own: Mapping[str, Floats],
    peers: Mapping[str, Floats],
    at: int,
) -> DeviceFacts:
    rank = one.rank
    names = [samples.names[series] for series in one.series]
    seen = place >= 0
    reason = one.reason
    if seen and sums.newest_us[place] < 0:
        stale = bool(sums.samples[place])
        reason = "all its samples repeat an old value" if stale else "no sample in the window"
    observed_us = int(sums.observed_us[place]) if seen else 0
    length_us = window_us[1] - window_us[0]

    def share(time_us: int, of_us: int, why: str) -> Measure:
        if reason is not None and one.reason is not None:
            return Measure.missing("ratio", reason, level=Level.DEVICE)
        if of_us <= 0:
            return Measure.missing("ratio", why, level=Level.DEVICE)
        return Measure(min(1.0, time_us / of_us), "ratio", level=Level.DEVICE)

    def figure(spec: Figure) -> Against:
        value, others = float(own[spec.name][at]), float(peers[spec.name][at])
        why = reason or _why(spec, place, sums)
        beside = f"no peer of the same model tells its {spec.title}"
        return Against(_measure(value, spec, why), _measure(others, spec, beside))

    xids = sums.xids[place] if seen else None
    return DeviceFacts(
        rank=rank.rank,
        host=rank.host or (names[0].host if names else None),
        gpu_uuid=names[0].gpu_uuid if names else rank.gpu_uuid,
        gpu_model=model,
        monitors=tuple(dict.fromkeys(name.monitor for name in names)),
        reason=reason,
        samples=int(sums.samples[place]) if seen else 0,
        newest_us=int(sums.newest_us[place]) if seen and sums.newest_us[place] >= 0 else None,
        observed=share(observed_us, length_us, "the window has no length"),
        stale=share(
            int(sums.stale_us[place]) if seen else 0, length_us, "the window has no length"
        ),
        at_work=share(
            int(sums.at_work_us[place]) if seen else 0,
            observed_us,
            reason or "there is one sample, which stands for no time",
        ),
        figures={name: figure(spec) for name, spec in FIGURES.items()},
        totals={
            name: _measure(
                float(sums.totals[name][place]) if seen else np.nan,
                FIGURES[name],
                reason or f"the device does not tell its {FIGURES[name].title}",
            )
            for name in COUNTERS
        },
        throttled_by=_reasons(sums, place, throttles=True),
        clock_held_by=_reasons(sums, place, throttles=False),
        xids=xids or (),
        xid_reason=None if xids is not None else reason or "the device does not tell its Xids",
        health=(
            {word: us / max(1, observed_us) for word, us in sums.health_us[place].items()}
            if seen
            else {}
        ),
        has_mig=bool(seen and sums.has_mig[place]),
    )


def _reasons(sums: DeviceSums, place: int, *, throttles: bool) -> dict[str, float]:
    """Shares of the reasons that throttle, or of the others; empty where they are not known."""
    if place < 0 or np.isnan(sums.figures["throttled_ratio"][place]):
        return {}
    return {
        name: float(shares[place])
        for name, shares in sums.by_reason.items()
        if (name in THROTTLES) == throttles
    }


def _measure(value: float, spec: Figure, why: str) -> Measure:
    if np.isnan(value):
        return Measure.missing(spec.unit, why, level=Level.DEVICE)
    return Measure(value, spec.unit, level=Level.DEVICE, inputs=(spec.name,))


def _why(spec: Figure, place: int, sums: DeviceSums) -> str:
    """Why a device of which there are samples has no such figure."""
    if spec.needs_work and not sums.seen_at_work[place]:
        return "the device was never seen at work in the window"
    if spec.name in COUNTERS and not np.isnan(sums.totals[spec.name][place]):
        return "told only once in the window: how much it grew is not known"
    return f"the device does not tell its {spec.title}"
