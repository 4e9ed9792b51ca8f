"""The events of one rank laid into its profiled steps: phases, operations, collectives.

Device work belongs to the step in which the host launched it, where the trace links the two by
their correlation, else to the step in whose time it starts. Phases are what the device did in the
host's time of a step: computing; communication while nothing computes; copies from the host while
neither runs; waiting for data while the device is idle; other copies. What is left of a step,
the device waited for launches. In a trace without device the host's operations take the place of
kernels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from steptax.app.intervals import (
    EMPTY,
    Ints,
    Spans,
    both,
    length_until,
    measure,
    minus,
    union,
)
from steptax.connectors.kineto.fields import DEVICE, NO_NUMBER, Kind
from steptax.connectors.kineto.header import Header
from steptax.connectors.kineto.table import EventTable

_COMPUTE_LANE = (Kind.KERNEL, Kind.H2D, Kind.COPY, Kind.MEMSET)
#: A step with nothing in it that is shorter than this share of the longest is no step: the
#: profiler stopped at its beginning.
_STUMP_RATIO = 0.1
#: Times below this, in a trace without base, are no times since 1970 (then it would be 2001).
_EPOCH_NS = 10**18


@dataclass(frozen=True, eq=False)
class Steps:
    """The profiled steps [S] in the order of time; ``doubled`` are rows of a step seen before."""

    number: Ints
    start_ns: Ints
    end_ns: Ints
    row: Ints
    doubled: Ints
    stumps: tuple[int, ...] = ()

    def at(self, moment_ns: Ints) -> Ints:
        """[N] index of the step that each moment is in, -1 for none."""
        place = np.searchsorted(self.start_ns, moment_ns, side="right") - 1
        inside = (place >= 0) & (moment_ns < np.append(self.end_ns, 0)[place])
        return np.where(inside, place, -1).astype(np.int64)

    def only(self, keep: npt.NDArray[np.bool_], stumps: tuple[int, ...]) -> Steps:
        """Those of ``keep``."""
        return Steps(
            self.number[keep],
            self.start_ns[keep],
            self.end_ns[keep],
            self.row[keep],
            self.doubled,
            stumps,
        )


@dataclass(frozen=True, eq=False)
class Events:
    """The columns of a whole trace as arrays [N], in the order of starts."""

    table: EventTable
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    lane: Ints
    launch_ns: Ints
    """When the host launched device work; its own start where the trace does not tell."""
    launched: npt.NDArray[np.bool_]

    @cached_property
    def on_device(self) -> bool:
        """Whether anything ran on a device."""
        return bool(np.isin(self.kind, [int(k) for k in DEVICE]).any())

    def spans(self, *kinds: Kind) -> Spans:
        """When any of ``kinds`` ran."""
        rows = np.isin(self.kind, [int(k) for k in kinds])
        return union(self.start_ns[rows], self.end_ns[rows])


@dataclass(frozen=True, eq=False)
class Timeline:
    """All that a trace tells of its rank. ``found`` are the steps before empty ones are left out.

    ``based``: times count from 1970. ``whole``: so few events are lost that sums hold.
    """

    job_id: str
    rank: int | None
    header: Header
    events: Events
    steps: Steps
    found: Steps
    based: bool
    whole: bool
    notes: tuple[str, ...]


def make_events(table: EventTable) -> Events:
    """Sort the events and link device work to what launched it."""
    table = table.only(np.lexsort((table.column("row"), table.column("start_ns"))))
    kind, start, duration, lane, number = (
        table.column(c) for c in ("kind", "start_ns", "duration_ns", "lane", "number")
    )
    known = number != NO_NUMBER
    launch, launched = start.copy(), np.zeros(len(start), bool)
    calls = np.flatnonzero(kind == Kind.LAUNCH)
    work = np.flatnonzero(np.isin(kind, [int(k) for k in DEVICE]) & known)
    if len(calls) and len(work):
        calls = calls[np.argsort(number[calls], kind="stable")]
        at = np.minimum(np.searchsorted(number[calls], number[work]), len(calls) - 1)
        match = number[calls[at]] == number[work]
        # A call cannot be later than what it launched: then the numbers are another context's.
        match &= start[calls[at]] <= start[work]
        launch[work[match]] = start[calls[at[match]]]
        launched[work[match]] = True
    return Events(table, kind, start, start + duration, lane, launch, launched)


def since_1970(events: Events, base_ns: int | None) -> tuple[Events, bool]:
    """Times since 1970 where the trace allows it, and whether it does."""
    if base_ns is None:
        return events, bool(len(events.start_ns)) and int(events.start_ns[0]) >= _EPOCH_NS
    # Files before 2024 carry a base and absolute times: adding it would count it twice.
    if len(events.start_ns) and int(events.start_ns[0]) >= _EPOCH_NS:
        return events, True
    top = int(np.abs(events.end_ns).max(initial=0))
    if top + base_ns >= 2**63 - 1:
        return events, False
    return (
        replace(
            events,
            start_ns=events.start_ns + base_ns,
            end_ns=events.end_ns + base_ns,
            launch_ns=events.launch_ns + base_ns,
        ),
        True,
    )


def find_steps(events: Events) -> Steps:
    """The steps that the host annotated; those that come twice are told apart."""
    rows = np.flatnonzero(events.kind == Kind.STEP)
    number = events.table.column("number")[rows]
    _, first = np.unique(number, return_index=True)
    keep = np.zeros(len(rows), bool)
    keep[first] = True
    event_row = events.table.column("row")
    start, end = events.start_ns[rows], events.end_ns[rows]
    # One that begins inside of the step before is another thread's or a nested one.
    kept = np.flatnonzero(keep)
    for before, after in itertools.pairwise(kept):
        if start[after] < end[before]:
            end[before] = start[after]
    return Steps(
        number[keep], start[keep], end[keep], event_row[rows[keep]], event_row[rows[~keep]]
    )


def without_stumps(steps: Steps, events: Events) -> Steps:
    """The steps without those in which nothing happened because profiling stopped."""
    busy = np.isin(events.kind, [int(k) for k in (*DEVICE, Kind.HOST_COMM, Kind.HOST, Kind.REGION)])
    used = np.unique(steps.at(events.launch_ns[busy]))
    duration = steps.end_ns - steps.start_ns
    stump = ~np.isin(np.arange(len(steps.number)), used)
    stump &= duration < _STUMP_RATIO * duration.max(initial=0)
    return steps.only(~stump, tuple(steps.number[stump].tolist()))


@dataclass(frozen=True)
class Phases:
    """Disjoint parts of one step, nanoseconds; None where it cannot be told."""

    compute_ns: int | None
    comm_ns: int | None
    h2d_ns: int | None
    input_ns: int | None
    other_ns: int | None


def phases(events: Events, steps: Steps) -> list[Phases]:
    """The phases of each step."""
    comm_kind = Kind.COMM if events.on_device else Kind.HOST_COMM
    handed_over = bool((events.kind == Kind.QUEUED).any())
    if not events.on_device and not (events.kind == Kind.HOST_COMM).any() and handed_over:
        # The profile of a device job without its device: launches say nothing of durations.
        return [Phases(None, None, None, None, None)] * len(steps.number)
    comm, waiting = events.spans(comm_kind), events.spans(Kind.INPUT)
    # What never occurs was not recorded; a device records all that it does.
    awaited = bool((events.kind == Kind.INPUT).any())
    worked = bool(np.isin(events.kind, (Kind.KERNEL, Kind.HOST, Kind.REGION)).any())
    if events.on_device:
        layers = [events.spans(Kind.KERNEL), comm, events.spans(Kind.H2D), waiting]
        layers.append(events.spans(Kind.COPY, Kind.MEMSET))
    else:
        exposed = minus(comm, events.spans(Kind.HOST))
        work = minus(minus(events.spans(Kind.HOST, Kind.REGION), exposed), waiting)
        layers = [work, exposed, EMPTY, waiting, EMPTY]
    compute, exposed, h2d, data, rest = _disjoint(layers)

    def inside(spans: Spans) -> list[int]:
        length = length_until(spans, steps.end_ns) - length_until(spans, steps.start_ns)
        out: list[int] = length.tolist()
        return out

    def known(spans: Spans, told: bool) -> list[int] | list[None]:
        return inside(spans) if told else [None] * len(steps.number)

    columns = (
        known(compute, worked),
        inside(exposed),
        known(h2d, events.on_device),
        known(data, awaited),
        known(rest, events.on_device),
    )
    return [Phases(*values) for values in zip(*columns, strict=True)]


def device_lag_ns(events: Events, steps: Steps) -> int:
    """By how much the device ends the last step later than the host."""
    device = np.isin(events.kind, [int(k) for k in DEVICE])
    mine = device & (steps.at(events.launch_ns) == len(steps.number) - 1)
    return int(events.end_ns[mine].max(initial=0) - steps.end_ns[-1]) if mine.any() else 0


def ready_ns(events: Events, rows: Ints) -> Ints:
    """[N] when the device work launched before each communication had ended; -1 if unknown.

    A communication waits, by an event, for what its process had launched on the device before it.
    """
    lane = np.isin(events.kind, [int(k) for k in _COMPUTE_LANE]) & events.launched
    before = np.flatnonzero(lane)
    if not len(before):
        return np.full(len(rows), -1, np.int64)
    before = before[np.argsort(events.launch_ns[before], kind="stable")]
    ended = np.maximum.accumulate(events.end_ns[before])
    place = np.searchsorted(events.launch_ns[before], events.launch_ns[rows]) - 1
    told = events.launched[rows] & (place >= 0)
    return np.where(told, np.minimum(ended[place], events.start_ns[rows]), -1).astype(np.int64)


def exposed_share(events: Events, steps: Steps) -> float:
    """Share of the steps in which the device neither computes nor communicates."""
    total = int((steps.end_ns - steps.start_ns).sum())
    windows = (steps.start_ns, steps.end_ns)
    busy = measure(both(events.spans(*DEVICE), union(*windows)))
    return 1 - busy / total if total else 0.0


def _disjoint(layers: list[Spans]) -> list[Spans]:
    """Each layer without what the layers before it cover."""
    out, covered = [], EMPTY
    for layer in layers:
        out.append(minus(layer, covered))
        covered = union(*(np.concatenate([a, b]) for a, b in zip(covered, layer, strict=True)))
    return out
