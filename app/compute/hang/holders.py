"""Who holds up a job that hangs, from what each rank says of its communicators.

A collective ends on no rank before every rank has taken part. Of a snapshot of a hang that gives:

    behind    a rank has issued fewer operations of a communicator than its peers: they wait for it
    device    peers saw operations end that this rank issued and did not see end; they could not
              have ended without its part, so its device or its watchdog stopped after it
    differs   a rank calls another operation, size or type under the same number
    silent    the rank does not answer, is dead, or reports an error
    absent    nothing was recorded of a member, while the others wait

A rank that is behind in one communicator may itself wait for another rank in a second one; it is
then a victim. Whoever is behind and waits for nobody holds up the rest. Sends and receives are
numbered apart on each rank, so communicators that have any are left out of the comparison.
Read as PyTorch's flight recorder analyser reads dumps (tools/flight_recorder), with the device rule
added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.collectives.calls import (
    ALL_RANKS,
    Call,
    GroupState,
    Scope,
    group_names,
)
from steptax.app.compute.hang.evidence import (
    Groups,
    Notes,
    note_absent,
    note_behind,
    note_device,
    note_launched,
    note_silent,
    spoken_ranks,
)
from steptax.app.compute.hang.mismatch import Mismatch, mismatches
from steptax.app.compute.spoken import spoken_list

SNAPSHOT = (
    "the dumps are taken to be of one moment of a hang, as on a timeout: ranks of a job that runs "
    "differ by a few operations all the time"
)
ASK_AGAIN = "counts differ in a job that runs, too: ask again; a hang is where they stay the same"


@dataclass(frozen=True)
class Suspect:
    """A rank that holds up others. ``comm_id`` is set where the rank counts inside it."""

    rank: int
    comm_id: str | None
    kinds: tuple[str, ...]
    evidence: tuple[str, ...]
    place: str | None = None

    @property
    def label(self) -> str:
        """For people: ``rank 12``, ``rank 21 of 0xcf26``."""
        text = f"rank {self.rank}" + (f" of {self.comm_id}" if self.comm_id else "")
        if self.rank == ALL_RANKS and self.comm_id:
            text = self.comm_id
        return f"{text} ({self.place})" if self.place else text


@dataclass(frozen=True)
class Hang:
    """The verdict; ``reason`` says why there is none."""

    suspects: tuple[Suspect, ...]
    waiting: tuple[int, ...]
    """Global ranks that wait for a rank that is behind."""
    absent: tuple[int, ...]
    """Members of some communicator of which nothing was recorded."""
    mismatches: tuple[Mismatch, ...]
    pending: tuple[str, ...]
    """Communicators with operations that were issued and have not ended."""
    verdict: str
    reason: str | None = None
    assumptions: tuple[str, ...] = ()
    recorded_ranks: int = 0
    expected_ranks: int | None = None


def find_hang(states: Sequence[GroupState], calls: Sequence[Call] = ()) -> Hang:
    """Judge the newest state of every communicator at every rank, with the recorded operations."""
    states = [s for s in states if s.last_enqueued is not None or s.op_counts or s.state]
    if not states:
        reason = "no source says which operations each rank has issued: a flight recorder dump of "
        reason += "every rank, or the answer of NCCL RAS, would tell"
        return Hang((), (), (), (), (), f"No verdict: {reason}.", reason)
    names = group_names(list(states))
    found = Notes()
    groups = _comparable(states, calls)
    absent, expected = _absent(states)
    waits = note_behind(groups, names, found)
    note_launched(states, names, found)
    note_device(groups, calls, names, found)
    differs = mismatches([c for c in calls if c.scope is Scope.GLOBAL], names)
    for mismatch in differs:
        for rank in mismatch.odd_ranks:
            found.add((None, rank), "differs", mismatch.text)
    note_silent(states, names, found)
    pending = _pending(states, groups)
    note_absent(states, groups, pending, absent, names, found)
    suspects = _suspects(states, found, waits)
    waiting = sorted(set(waits) - {s.rank for s in suspects if s.comm_id is None})
    shown = tuple(names[comm] for comm in pending)
    snapshot = any(s.last_enqueued is not None for s in states)
    recorded = len({s.rank for s in states if s.rank != ALL_RANKS and s.scope is Scope.GLOBAL})
    return Hang(
        suspects,
        tuple(waiting),
        absent,
        tuple(differs),
        shown,
        _verdict(suspects, waiting, absent, shown, _cycle(found, waits, suspects), snapshot),
        assumptions=_assumptions(suspects, pending, snapshot) + _uncompared(pending, groups, names),
        recorded_ranks=recorded,
        expected_ranks=expected,
    )


def _assumptions(
    suspects: tuple[Suspect, ...], pending: tuple[str, ...], snapshot: bool
) -> tuple[str, ...]:
    """What the verdict takes for granted; where nothing hangs it takes nothing."""
    if not snapshot:
        return (ASK_AGAIN,)
    return (SNAPSHOT,) if suspects or pending else ()


def _uncompared(pending: tuple[str, ...], groups: Groups, names: dict[str, str]) -> tuple[str, ...]:
    """What is said of pending communicators with sends and receives."""
    left = [names[comm] for comm in pending if comm not in groups]
    if not left:
        return ()
    return (
        f"not compared: {spoken_list(left, 3)}, where sends or receives are pending, which each "
        "rank numbers for itself; their ranks may wait, too",
    )


def _comparable(
    states: Sequence[GroupState], calls: Sequence[Call]
) -> dict[str, dict[int, GroupState]]:
    """States by communicator and rank, where numbers are those of collectives alone."""
    mixed = {call.comm_id for call in calls if call.is_transfer}
    groups: dict[str, dict[int, GroupState]] = defaultdict(dict)
    for state in states:
        if state.last_enqueued is not None and state.comm_id not in mixed:
            groups[state.comm_id][state.rank] = state
    return groups


def _absent(states: Sequence[GroupState]) -> tuple[tuple[int, ...], int | None]:
    """Members of whom nothing is known, and the number of ranks that there should be."""
    told = [s for s in states if s.scope is Scope.GLOBAL]
    members = frozenset[int]().union(*(s.members for s in told if s.members))
    recorded = {s.rank for s in told if s.rank != ALL_RANKS}
    return tuple(sorted(members - recorded)), len(members | recorded) if members else None


def _pending(states: Sequence[GroupState], groups: Groups) -> tuple[str, ...]:
    """Communicators with operations that have not ended on some rank, also of transfers."""
    open_ = [
        s.comm_id
        for s in states
        if s.last_enqueued is not None
        and s.last_completed is not None
        and s.last_completed < s.last_enqueued
    ]
    return tuple(sorted(dict.fromkeys(open_), key=lambda comm: (comm not in groups, comm)))


def _suspects(
    states: Sequence[GroupState], found: Notes, waits: dict[int, set[int]]
) -> tuple[Suspect, ...]:
    """Ranks with evidence, without those that are behind only because they wait themselves."""
    places = {(s.comm_id, s.rank): s.place for s in states if s.place}
    out = []
    for (comm, rank), kinds in found.kinds.items():
        victim = comm is None and set(kinds) == {"behind"} and bool(waits.get(rank))
        if not victim:
            texts = tuple(dict.fromkeys(found.texts[comm, rank]))
            place = places.get((comm or "", rank))
            out.append(Suspect(rank, comm, tuple(dict.fromkeys(kinds)), texts, place))
    return tuple(sorted(out, key=lambda s: (s.comm_id or "", s.rank)))


def _cycle(
    found: Notes, waits: dict[int, set[int]], suspects: tuple[Suspect, ...]
) -> tuple[int, ...]:
    """Ranks that are behind and wait for one another, where nobody holds up all of them."""
    if suspects:
        return ()
    return tuple(sorted(r for (comm, r) in found.kinds if comm is None and waits.get(r)))


def _verdict(
    suspects: tuple[Suspect, ...],
    waiting: Sequence[int],
    absent: tuple[int, ...],
    pending: tuple[str, ...],
    cycle: tuple[int, ...],
    snapshot: bool,
) -> str:
    """The finding in a sentence or two; what may pass (no ``snapshot``) is not called a hang."""
    gone = f" Nothing was recorded of {spoken_ranks(absent)}." if absent else ""
    if suspects and not snapshot:
        groups: dict[str, list[str]] = {}
        for suspect in suspects:
            groups.setdefault(" and ".join(suspect.kinds), []).append(suspect.label)
        parts = [f"{spoken_list(labels)}: {kind}" for kind, labels in groups.items()]
        return f"Stand out: {'; '.join(parts)}.{gone}"
    if suspects:
        who = spoken_list([s.label for s in suspects])
        verb = "holds" if len(suspects) == 1 else "hold"
        others = f": {spoken_ranks(waiting)} wait" if waiting else ""
        text = f"{who} {verb} up the others{others}.{gone}"
        return text[0].upper() + text[1:]
    if cycle:
        return (
            f"Ranks {spoken_list(cycle)} wait for one another: they issue the collectives of "
            f"several communicators in different orders.{gone}"
        )
    if pending:
        return (
            f"Every recorded rank has issued what is pending in {spoken_list(pending, 3)}: it "
            f"hangs in the transport or on a device, and the record does not tell on which.{gone}"
        )
    return f"Nothing hangs in these records: no rank is behind and every operation has ended.{gone}"
