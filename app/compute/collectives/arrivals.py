"""Which rank comes last to the collectives of a communicator, how often, and by how much.

Two kinds of record tell it, without knowing the step:

    waiting   time that each rank spent in the operation. It ends on all ranks together, so the
              rank that came last has the shortest. Needs no clock; as in NCCL Inspector.
    issue     moment at which each rank issued the operation, on its own clock. Needs clocks that
              agree better than the lateness. A clock that is off makes its rank late in every
              operation by the same time: where the rank is not late in some, it is not its clock.

Ranks are joined by communicator, operation and sequence number. A rank is named when it is last
in at least half of the joined operations, more often than chance, and by more than the noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import bdtrc

from steptax.app.compute.collectives.calls import Call, Scope
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spoken import spoken_list, spoken_ratio, spoken_us
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.blame import blame_us

#: With fewer joined operations a rank that is always last cannot be told from one that was.
MIN_JOINED = 5
#: A rank is named when it is last in at least this share of them ...
MIN_SHARE = 0.5
#: ... and chance makes some rank last so often with at most this probability.
MAX_CHANCE = 0.01
#: Lateness below this is noise of the measurement.
FLOOR_US = {"waiting": 10.0, "issue": 50.0}
#: What clocks of a cluster may differ by where nobody says better (NTP; PTP is far below).
CLOCK_US = 1000.0
#: The offset of a clock stays; a lateness that is this much smaller elsewhere is no offset.
_STEADY = 0.5


class ArrivalBasis(StrEnum):
    """What the arrivals come from."""

    WAITING = "waiting"
    ISSUE = "issue"


@dataclass(frozen=True)
class CollectiveArrivals:
    """Arrivals of one operation of one communicator. ``reason`` says why no rank is named."""

    comm_id: str
    op: str
    scope: Scope
    basis: ArrivalBasis | None
    ranks: tuple[int, ...]
    absent: tuple[int, ...] | None
    """Ranks without any record; None where only their number is known or not even that."""
    n_ranks: int | None
    operations: int
    """Sequence numbers that any rank recorded."""
    joined: int
    """Those that every recorded rank has."""
    last_share: tuple[tuple[int, float], ...]
    """Share of the joined operations in which each rank came last, most first."""
    late_rank: int | None
    persistence: Measure
    lateness: Measure
    """How much later than the median of the others the named rank is, median over operations."""
    waiting: Measure
    """Waiting that the named rank causes, summed over its peers and the joined operations."""
    verdict: str
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    newest_seq: tuple[tuple[int, int], ...] = ()
    """Newest sequence number of each rank, where they differ."""


def collective_arrivals(
    calls: Sequence[Call], *, clock_us: float = CLOCK_US
) -> list[CollectiveArrivals]:
    """Arrivals by communicator and operation; sends and receives have no common start.

    ``clock_us`` is what the clocks of the ranks may differ by.
    """
    groups: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in calls:
        if not call.is_transfer:
            groups[call.comm_id, call.op].append(call)
    matrices = {key: _Matrix(group) for key, group in groups.items()}
    return [
        _judge(comm, op, matrix, clock_us, [m for (c, _), m in matrices.items() if c == comm])
        for (comm, op), matrix in sorted(matrices.items())
    ]


class _Matrix:
    """The joined operations of a group: arrival of each rank, [S, R], later is larger."""

    def __init__(self, calls: list[Call]) -> None:
        self.scope = calls[0].scope
        self.ranks = tuple(sorted({call.rank for call in calls}))
        self.n_ranks = max((c.n_ranks for c in calls if c.n_ranks is not None), default=None)
        by_seq: dict[int, dict[int, Call]] = defaultdict(dict)
        self.newest: dict[int, int] = {}
        for call in calls:
            by_seq[call.seq][call.rank] = call
            self.newest[call.rank] = max(self.newest.get(call.rank, call.seq), call.seq)
        self.operations = len(by_seq)
        whole = [c for c in by_seq.values() if len(c) == len(self.ranks)]
        spent = _table(whole, self.ranks, "duration_us")
        issued = _table(whole, self.ranks, "enqueued_us")
        self.basis: ArrivalBasis | None = None
        self.arrival_us: Floats = np.empty((0, len(self.ranks)))
        # Time spent needs no clock, so it goes first.
        if len(spent):
            self.basis, self.arrival_us = ArrivalBasis.WAITING, spent.max(1, keepdims=True) - spent
        elif len(issued):
            self.basis, self.arrival_us = ArrivalBasis.ISSUE, issued - issued.min(1, keepdims=True)

    def late_us(self, column: int) -> Floats:
        """[S] how much later than the median of the others a rank came."""
        others = np.delete(self.arrival_us, column, axis=1)
        return np.asarray(self.arrival_us[:, column] - np.median(others, axis=1))


def _table(rows: list[dict[int, Call]], ranks: tuple[int, ...], field: str) -> Floats:
    """[S, R] of the operations of which every rank has the field; differences stay exact."""
    whole = [[getattr(calls[rank], field) for rank in ranks] for calls in rows]
    known = [values for values in whole if all(value is not None for value in values)]
    # Epoch microseconds exceed what differences of doubles keep, so they start at their least.
    shifted = [[value - min(values) for value in values] for values in known]
    base = shifted if field == "enqueued_us" else known
    return np.array(base, np.float64).reshape(len(base), len(ranks))


def _judge(
    comm: str, op: str, matrix: _Matrix, clock_us: float, beside: list[_Matrix]
) -> CollectiveArrivals:
    ranks, joined = matrix.ranks, len(matrix.arrival_us)
    warnings = _warnings(matrix)
    shares, times = _last(matrix)
    late: int | None = None
    reason = _too_little(matrix)
    unit = ("ratio", "us", "us")
    if reason is None:
        column = int(np.argmax(times))
        lateness = float(np.median(matrix.late_us(column)))
        reason = _no_rank(matrix, column, times, lateness, clock_us, beside)
        if reason is None:
            late = ranks[column]
    if late is None:
        measures = [Measure.missing(u, reason or "", level=Level.TRACE) for u in unit]
        verdict = f"No rank stands out: {reason}."
    else:
        column = ranks.index(late)
        caused = float(np.nansum(blame_us(matrix.arrival_us)[:, column]))
        share = times[column] / joined
        inputs = ("duration_us" if matrix.basis is ArrivalBasis.WAITING else "enqueued_us",)
        measures = [
            Measure(value, u, level=Level.TRACE, inputs=inputs)
            for value, u in zip((share, lateness, caused), unit, strict=True)
        ]
        inside = " of the communicator" if matrix.scope is Scope.COMMUNICATOR else ""
        verdict = (
            f"Rank {late}{inside} comes last in {times[column]:,} of {joined:,} {op} "
            f"({spoken_ratio(share)}), {spoken_us(lateness)} after the others; they wait "
            f"{spoken_us(caused)} for it in all."
        )
        if matrix.basis is ArrivalBasis.ISSUE:
            warnings.append(_clock_note(matrix, column, clock_us, beside))
    newest = tuple(sorted(matrix.newest.items()))
    persistence, lateness_us, waiting = measures
    return CollectiveArrivals(
        comm_id=comm,
        op=op,
        scope=matrix.scope,
        basis=matrix.basis,
        ranks=ranks,
        absent=_absent(matrix),
        n_ranks=matrix.n_ranks,
        operations=matrix.operations,
        joined=joined,
        last_share=shares,
        late_rank=late,
        persistence=persistence,
        lateness=lateness_us,
        waiting=waiting,
        verdict=verdict,
        reason=reason,
        warnings=tuple(warnings),
        newest_seq=newest if len(set(matrix.newest.values())) > 1 else (),
    )


def _last(matrix: _Matrix) -> tuple[tuple[tuple[int, float], ...], list[int]]:
    """Share of the joined operations in which each rank is last, and how often; ties are nobody."""
    arrival = matrix.arrival_us
    if not len(arrival) or len(matrix.ranks) < 2:
        return (), []
    latest = arrival == arrival.max(axis=1, keepdims=True)
    alone = latest[latest.sum(axis=1) == 1]
    times = [int(n) for n in alone.sum(axis=0)]
    shares = [(rank, n / len(arrival)) for rank, n in zip(matrix.ranks, times, strict=True) if n]
    return tuple(sorted(shares, key=lambda pair: (-pair[1], pair[0]))), times


def _too_little(matrix: _Matrix) -> str | None:
    """Why nothing can be said at all."""
    if len(matrix.ranks) < 2:
        of = f" of {matrix.n_ranks}" if matrix.n_ranks else ""
        return f"one rank{of} is recorded, so there is nobody to compare it with"
    if matrix.basis is None:
        return "no operation has, on every recorded rank, the time it took or was issued"
    joined = len(matrix.arrival_us)
    if joined < MIN_JOINED:
        return f"{joined} operations are recorded on every rank, fewer than {MIN_JOINED}"
    return None


def _no_rank(
    matrix: _Matrix,
    column: int,
    times: list[int],
    lateness: float,
    clock_us: float,
    beside: list[_Matrix],
) -> str | None:
    """Why the rank that is last most often is not named."""
    joined, ranks = len(matrix.arrival_us), len(matrix.ranks)
    share = times[column] / joined
    chance = min(1.0, ranks * float(bdtrc(times[column] - 1, joined, 1 / ranks)))
    who = f"rank {matrix.ranks[column]} is last most often, in {times[column]:,} of {joined:,}"
    if share < MIN_SHARE or chance > MAX_CHANCE:
        return f"{who}, which chance explains or which is less than half"
    floor = FLOOR_US[str(matrix.basis)]
    if lateness < floor:
        return (
            f"{who}, by {spoken_us(max(lateness, 0.0))}, less than the noise of {spoken_us(floor)}"
        )
    if (
        matrix.basis is ArrivalBasis.ISSUE
        and lateness < clock_us
        and not _moves(matrix, column, lateness, beside)
    ):
        return f"{who}, by {spoken_us(lateness)}, and clocks may differ by {spoken_us(clock_us)}"
    return None


def _moves(matrix: _Matrix, column: int, lateness: float, beside: list[_Matrix]) -> bool:
    """Whether the rank is clearly less late in other operations: then it is not its clock."""
    rank = matrix.ranks[column]
    least = min(
        float(np.min(other.late_us(other.ranks.index(rank))))
        for other in beside
        if other.basis is ArrivalBasis.ISSUE and rank in other.ranks and len(other.ranks) > 1
    )
    return least < lateness * _STEADY


def _clock_note(matrix: _Matrix, column: int, clock_us: float, beside: list[_Matrix]) -> str:
    lateness = float(np.median(matrix.late_us(column)))
    if _moves(matrix, column, lateness, beside):
        return (
            "arrivals are on each rank's own clock; a clock that is off would make the rank late "
            "in every operation, and it is not late in some"
        )
    return (
        "arrivals are on each rank's own clock, taken to agree within "
        f"{spoken_us(clock_us)}: a clock that is off by {spoken_us(lateness)} would look the same"
    )


def _absent(matrix: _Matrix) -> tuple[int, ...] | None:
    """Ranks without a record, where ranks count inside the communicator."""
    if matrix.n_ranks is None or matrix.scope is not Scope.COMMUNICATOR:
        return None
    return tuple(sorted(set(range(matrix.n_ranks)) - set(matrix.ranks)))


def _warnings(matrix: _Matrix) -> list[str]:
    warnings = []
    absent = _absent(matrix)
    if absent:
        warnings.append(
            f"nothing is recorded of {len(absent):,} of {matrix.n_ranks:,} ranks "
            f"({spoken_list(absent)}); one of them may come later than any other"
        )
    elif matrix.n_ranks is not None and len(matrix.ranks) < matrix.n_ranks:
        gone = matrix.n_ranks - len(matrix.ranks)
        warnings.append(f"nothing is recorded of {gone:,} of {matrix.n_ranks:,} ranks")
    lost = matrix.operations - len(matrix.arrival_us)
    if lost and len(matrix.ranks) > 1:
        warnings.append(
            f"{lost:,} of {matrix.operations:,} operations are not recorded on every rank and "
            "are left out"
        )
    return warnings
