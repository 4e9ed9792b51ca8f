"""Bandwidth of recorded collectives by size, and of benchmark sweeps checked against their times.

A rank's time in a collective includes waiting for the last rank. The shortest time over the ranks
is that of the last one, which hardly waits: from it comes the bandwidth of the transfer. What the
typical rank sees, waiting included, stands beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from steptax.app.compute.collectives.bus_bandwidth import (
    Collective,
    Point,
    busbw_gb_per_s,
    headline_busbw,
)
from steptax.app.compute.collectives.calls import Call
from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import UserError

#: A printed bus bandwidth that differs by more from size, time and ranks is another figure.
_AGREES_RATIO = 0.01
#: Half of the last digit that is printed.
_HALF_DIGIT = 0.005
_TEST = re.compile(
    r"(?P<op>\w+)(?P<variant> \([^)]*\))? (?P<metric>time|algbw|busbw)(?P<place> in place)?"
)


@dataclass(frozen=True)
class SizeBandwidth:
    """One operation and size of a communicator."""

    comm_id: str
    op: str
    bytes: int
    n_ranks: int | None
    operations: int
    busbw: Measure
    """By the shortest time over the ranks, median over the operations."""
    busbw_with_waiting: Measure
    """By the median time over the ranks, median over the operations."""


def bandwidth_by_size(calls: Sequence[Call]) -> list[SizeBandwidth]:
    """Bus bandwidth of every operation, size and communicator with a recorded time."""
    groups: dict[tuple[str, str, int], dict[int, list[Call]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for call in calls:
        if call.duration_us and call.bytes and not call.is_transfer:
            groups[call.comm_id, call.op, call.bytes][call.seq].append(call)
    out = []
    for (comm, op, size), by_seq in sorted(groups.items()):
        n_ranks = max((c.n_ranks or 0 for cs in by_seq.values() for c in cs), default=0) or None
        times = [[float(c.duration_us or 0) for c in cs] for cs in by_seq.values()]
        shortest = median(min(values) for values in times)
        typical = median(median(values) for values in times)
        seen = max(len(values) for values in times)
        partly = n_ranks is not None and seen < n_ranks
        warnings = (
            (f"{seen} of {n_ranks} ranks are recorded: the shortest time may be another's",)
            if partly
            else ()
        )
        out.append(
            SizeBandwidth(
                comm,
                op,
                size,
                n_ranks,
                len(by_seq),
                _busbw(op, n_ranks, size, shortest, warnings),
                _busbw(op, n_ranks, size, typical),
            )
        )
    return out


def shares_of_best(found: Sequence[SizeBandwidth]) -> list[Measure]:
    """Bus bandwidth of each of ``found`` over the best of its communicator, 0 to 1.

    Bus bandwidth is comparable across operations and ranks, so the best is over all of them.
    """
    best: dict[str, float] = {}
    for one in found:
        value = one.busbw.value or 0.0
        best[one.comm_id] = max(best.get(one.comm_id, 0.0), value)

    def share(one: SizeBandwidth) -> Measure:
        top = best[one.comm_id]
        if one.busbw.value is None or not top:
            reason = one.busbw.reason or "no size of the communicator has a bandwidth"
            return Measure.missing("ratio", reason, level=Level.TRACE)
        return one.busbw.map(lambda value: value / top, "ratio")

    return [share(one) for one in found]


def _busbw(
    op: str, n_ranks: int | None, size: int, time_us: float, warnings: tuple[str, ...] = ()
) -> Measure:
    if n_ranks is None:
        reason = "the number of ranks is not recorded"
        return Measure.missing("GB/s", reason, level=Level.TRACE)
    try:
        value = busbw_gb_per_s(Collective.read(op), n_ranks, size, time_us / 1e6)
    except UserError as error:
        return Measure.missing("GB/s", error.message, level=Level.TRACE)
    inputs = ("bytes", "duration_us", "n_ranks")
    return Measure(value, "GB/s", level=Level.TRACE, inputs=inputs, warnings=warnings)


@dataclass(frozen=True)
class BenchRow:
    """A row of a benchmark: ``test`` is an operation with what was measured of it."""

    run_id: str
    test: str
    size: str
    dtype: str
    value: float
    ranks: int | None = None
    nodes: int | None = None
    wrong: int | None = None


@dataclass(frozen=True)
class SweepPoint:
    """One size as printed, and its bus bandwidth from size, time and ranks (GB/s)."""

    bytes: int
    time_us: float
    algbw: float | None
    busbw: float | None
    busbw_recomputed: Measure
    agrees: bool | None
    """Whether both bus bandwidths are the same; None where one is missing."""
    wrong: int | None


@dataclass(frozen=True)
class BenchSweep:
    """The sizes of one operation. ``busbw`` is that of the largest: a mean over sizes is none."""

    run_id: str
    test: str
    dtype: str
    ranks: int | None
    nodes: int | None
    points: tuple[SweepPoint, ...]
    busbw: Measure
    algbw: Measure
    warnings: tuple[str, ...]


def bench_sweeps(rows: Sequence[BenchRow]) -> list[BenchSweep]:
    """Sweeps by run, operation, place and type; rows that are no collective are left out."""
    sweeps: dict[tuple[str, str, str], dict[int, dict[str, BenchRow]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        found = _TEST.fullmatch(row.test)
        if found and row.size.isdecimal():
            name = f"{found['op']}{found['variant'] or ''}{found['place'] or ''}"
            sweeps[row.run_id, name, row.dtype][int(row.size)][found["metric"]] = row
    return [_sweep(*key, sizes) for key, sizes in sorted(sweeps.items())]


def _sweep(run: str, test: str, dtype: str, sizes: dict[int, dict[str, BenchRow]]) -> BenchSweep:
    points = []
    first = next(iter(next(iter(sizes.values())).values()))
    for size, by_metric in sorted(sizes.items()):
        if "time" in by_metric:
            points.append(_point(test.split()[0], first.ranks, size, by_metric))
    sound = [p for p in points if not p.wrong and p.bytes > 0]
    warnings = []
    differ = [p.bytes for p in points if p.agrees is False]
    if differ:
        warnings.append(
            f"the printed bus bandwidth of {_sizes(len(differ))} does not follow from size, time "
            f"and {first.ranks} ranks, first at {differ[0]:,} bytes: another operation or rank "
            "count than the file says"
        )
    wrong = [p.bytes for p in points if p.wrong]
    if wrong:
        warnings.append(
            f"wrong results at {_sizes(len(wrong))}, which are left out, first {wrong[0]:,} bytes"
        )
    busbw = _headline(test.split()[0], first.ranks, sound)
    return BenchSweep(
        run,
        test,
        dtype,
        first.ranks,
        first.nodes,
        tuple(points),
        busbw,
        _largest_algbw(sound),
        tuple(warnings),
    )


def _sizes(count: int) -> str:
    return "1 size" if count == 1 else f"{count:,} sizes"


def _point(op: str, ranks: int | None, size: int, by_metric: dict[str, BenchRow]) -> SweepPoint:
    time_us = by_metric["time"].value
    printed = {
        name: by_metric[name].value if name in by_metric else None for name in ("algbw", "busbw")
    }
    again = (
        _busbw(op, ranks, size, time_us)
        if size > 0
        else Measure.missing("GB/s", "no bytes were moved", level=Level.TRACE)
    )
    said = printed["busbw"]
    agrees = None
    if said is not None and again.value is not None:
        agrees = abs(said - again.value) <= max(_AGREES_RATIO * again.value, 2 * _HALF_DIGIT)
    wrong = by_metric["time"].wrong
    return SweepPoint(size, time_us, printed["algbw"], said, again, agrees, wrong)


def _headline(op: str, ranks: int | None, points: list[SweepPoint]) -> Measure:
    if not points:
        return Measure.missing("GB/s", "no size with bytes and right results", level=Level.TRACE)
    if ranks is None or ranks < 2:
        reason = (
            "one rank: nothing was communicated" if ranks else "the number of ranks is not said"
        )
        return Measure.missing("GB/s", reason, level=Level.TRACE)
    try:
        collective = Collective.read(op)
    except UserError as error:
        return Measure.missing("GB/s", error.message, level=Level.TRACE)
    return headline_busbw(collective, ranks, [Point(p.bytes, p.time_us / 1e6) for p in points])


def _largest_algbw(points: list[SweepPoint]) -> Measure:
    if not points:
        return Measure.missing("GB/s", "no size with bytes and right results", level=Level.TRACE)
    largest = points[-1]
    value = largest.bytes / (largest.time_us * 1e-6) / 1e9
    return Measure(value, "GB/s", level=Level.TRACE, inputs=(f"{largest.bytes} bytes",))
