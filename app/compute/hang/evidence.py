"""The kinds of evidence that a rank holds up others, each as notes against ranks.

What each kind means, and what follows from them together, is in ``hang``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from steptax.app.compute.collectives.calls import ALL_RANKS, Call, GroupState, Scope
from steptax.app.compute.spoken import spoken_list

#: Every member must contribute before any rank can leave; a root may leave a broadcast early.
_NEEDS_ALL = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
#: An operation that ended just now is noticed by some watchdogs a moment later than by others.
_DEVICE_LAG = 2
_SILENT = ("UNRESPONSIVE", "DEAD", "ERROR", "ABORT")

#: States by communicator and rank, where numbers are those of collectives alone.
Groups = Mapping[str, Mapping[int, GroupState]]


@dataclass
class Notes:
    """Evidence by rank, as it is found; the key is the communicator (None = global) and rank."""

    kinds: dict[tuple[str | None, int], list[str]] = field(default_factory=dict)
    texts: dict[tuple[str | None, int], list[str]] = field(default_factory=dict)

    def add(self, key: tuple[str | None, int], kind: str, text: str) -> None:
        """Note ``text`` of one kind against a rank."""
        self.kinds.setdefault(key, []).append(kind)
        self.texts.setdefault(key, []).append(text)


def issued(state: GroupState) -> int:
    """Number of the newest operation that the rank issued; 0 = none."""
    return state.last_enqueued or 0


def note_behind(groups: Groups, names: dict[str, str], found: Notes) -> dict[int, set[int]]:
    """Note ranks that issued fewer operations than a peer; who waits for whom, as rank -> ranks.

    A rank waits where it has issued an operation that has not ended and that the other has not
    issued.
    """
    waits: dict[int, set[int]] = defaultdict(set)
    for comm, ranks in groups.items():
        newest = max(map(issued, ranks.values()))
        late = {rank: s for rank, s in ranks.items() if issued(s) < newest}
        for rank, state in late.items():
            ahead = [
                peer
                for peer, other in ranks.items()
                if issued(other) > issued(state) and (other.last_completed or 0) < issued(other)
            ]
            if not ahead:
                continue
            for peer in ahead:
                waits[peer].add(rank)
            lag = newest - issued(state)
            text = (
                f"in {names[comm]} it issued operations up to {issued(state):,}; "
                f"{spoken_ranks(sorted(ahead))} issued up to {lag:,} more and wait"
            )
            found.add((None, rank), "behind", text)
    return waits


def note_launched(states: Sequence[GroupState], names: dict[str, str], found: Notes) -> None:
    """Note ranks that launched fewer operations of a kind than the ranks of their communicator."""
    by_comm: dict[str, list[GroupState]] = defaultdict(list)
    for state in states:
        if state.op_counts:
            by_comm[state.comm_id].append(state)
    for comm, told in by_comm.items():
        for op in sorted({op for state in told for op in state.op_counts}):
            counts = {s.rank: s.op_counts[op] for s in told if op in s.op_counts}
            newest = max(counts.values())
            for rank, count in counts.items():
                if rank != ALL_RANKS and count < newest:
                    text = f"launched {count:,} {op} in {names[comm]}, a peer {newest:,}"
                    found.add((comm, rank), "behind", text)


def note_device(
    groups: Groups,
    calls: Sequence[Call],
    names: dict[str, str],
    found: Notes,
) -> None:
    """Note ranks that did not see operations end which their peers saw end."""
    kinds: dict[str, dict[int, str]] = defaultdict(dict)
    for call in calls:
        if not call.is_transfer:
            kinds[call.comm_id][call.seq] = call.op
    for comm, ranks in groups.items():
        ended = {r: s.last_completed for r, s in ranks.items() if s.last_completed is not None}
        newest = max(ended.values(), default=0)
        for rank, own in ended.items():
            last = min(newest, issued(ranks[rank]))
            binding = [
                seq
                for seq in range(own + 1, min(last, own + 10_000) + 1)
                if kinds[comm].get(seq) in _NEEDS_ALL
            ]
            if last - own < _DEVICE_LAG or not binding:
                continue
            peers = sorted(peer for peer, end in ended.items() if end >= last)
            text = (
                f"in {names[comm]} it has not seen operations {own + 1:,} to {last:,} end, which "
                f"{spoken_ranks(peers)} saw end and which needed its part: its device or its "
                "watchdog stopped"
            )
            found.add((None, rank), "device", text)


def note_silent(states: Sequence[GroupState], names: dict[str, str], found: Notes) -> None:
    """Note ranks that do not answer or report an error."""
    for state in states:
        if state.state and state.state.startswith(_SILENT):
            scope = state.comm_id if state.scope is Scope.COMMUNICATOR else None
            if state.rank == ALL_RANKS and not state.place:
                continue
            text = f"{state.state.lower()} in {names[state.comm_id]}"
            found.add((scope, state.rank), "silent", text)


def note_absent(
    states: Sequence[GroupState],
    groups: Groups,
    pending: tuple[str, ...],
    absent: tuple[int, ...],
    names: dict[str, str],
    found: Notes,
) -> None:
    """Note absent members of communicators in which everybody else waits for the same operation."""
    for comm in pending:
        ranks = groups.get(comm)
        members = frozenset[int]().union(
            *(s.members for s in states if s.comm_id == comm and s.members)
        )
        gone = sorted(members & set(absent))
        if ranks and gone and len({issued(s) for s in ranks.values()}) == 1:
            for rank in gone:
                text = f"nothing was recorded of it, and all others of {names[comm]} wait"
                found.add((None, rank), "absent", text)


def spoken_ranks(ranks: Sequence[int]) -> str:
    """For people: ``rank 3``, ``ranks 1, 2 and 3``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {spoken_list(ranks)}"
