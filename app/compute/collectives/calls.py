"""Collectives as single ranks saw them, and what ranks say of their communicators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: The rank under which something is said of a communicator as a whole.
ALL_RANKS = -1


class Scope(StrEnum):
    """What a rank number counts."""

    GLOBAL = "global"
    COMMUNICATOR = "communicator"


@dataclass(frozen=True)
class Call:
    """One operation on one rank. Times are microseconds; None is unknown."""

    comm_id: str
    op: str
    seq: int
    rank: int
    scope: Scope = Scope.GLOBAL
    dtype: str | None = None
    shape: str | None = None
    bytes: int | None = None
    """Whole result of an all-gather, whole input of the others."""
    n_ranks: int | None = None
    enqueued_us: int | None = None
    """On the clock of the rank."""
    duration_us: int | None = None
    """With the waiting for peers."""

    @property
    def is_transfer(self) -> bool:
        """Whether it is a send or a receive, which are numbered apart from collectives."""
        return self.op.startswith(("send", "recv", "coalesced"))


@dataclass(frozen=True)
class GroupState:
    """What is last known of a communicator at one of its ranks."""

    comm_id: str
    rank: int
    scope: Scope = Scope.GLOBAL
    name: str | None = None
    members: frozenset[int] | None = None
    n_ranks: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    op_counts: Mapping[str, int] = field(default_factory=dict)
    """Operations launched, by kind."""
    state: str | None = None
    place: str | None = None
    """Host, process and device, for people."""


def group_names(states: list[GroupState]) -> dict[str, str]:
    """What to call each communicator: its name with its id, or the id alone."""
    names: dict[str, str] = {}
    for state in states:
        told = state.name and state.name != state.comm_id
        if told or state.comm_id not in names:
            names[state.comm_id] = f"{state.name} ({state.comm_id})" if told else state.comm_id
    return names
