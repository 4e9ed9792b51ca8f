"""A commit record: what it says, and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import UnionType
from typing import Any

import orjson

from steptax.app.moments import LAST_US

#: The kind of the commits that drop rows, of which sums remain.
RETAIN = "retain"
#: What a record holds, and what is told of it by kind: it may be of another version, or a hand's.
_SHAPE: dict[str, type | UnionType] = {
    **dict.fromkeys(("id", "kind"), str),
    **dict.fromkeys(("adds", "removes"), list),
    "created_us": int,
    "detail": dict,
}
_DETAIL: dict[str, dict[str, type | UnionType]] = {
    "ingest": {
        **dict.fromkeys(("accepted", "rejected", "repeated"), dict),
        **dict.fromkeys(("first_rejects", "job_ids", "notes"), list),
    },
    RETAIN: {
        "table": str,
        "job_id": str | None,
        **dict.fromkeys(("rows", "first", "last"), int),
    },
}
#: What an import of an older version does not say of itself.
_UNSAID: dict[str, Any] = {
    "accepted": {},
    "rejected": {},
    "repeated": {},
    "first_rejects": [],
    "job_ids": [],
    "notes": [],
}


@dataclass(frozen=True)
class Commit:
    """One record. ``adds`` and ``removes`` are paths relative to the lake."""

    id: str
    kind: str
    created_us: int
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def added(self) -> frozenset[str]:
        """``adds``, to look up in."""
        return frozenset(self.adds)


def fields_of(commit: Commit) -> dict[str, Any]:
    """``commit`` as it is written into JSON."""
    return {
        "id": commit.id,
        "kind": commit.kind,
        "created_us": commit.created_us,
        "adds": list(commit.adds),
        "removes": list(commit.removes),
        "detail": dict(commit.detail),
    }


def body_of(commit: Commit) -> bytes:
    """The record of ``commit`` as it is stored."""
    return orjson.dumps(fields_of(commit))


def commit_of(body: bytes) -> Commit:
    """The commit of a record; ValueError, KeyError or TypeError where it is none."""
    return commit_from(orjson.loads(body))


def commit_from(found: Any) -> Commit:
    """The commit that ``fields_of`` gave; ValueError, KeyError or TypeError where it is none."""
    _check("commit", found, _SHAPE)
    commit = Commit(
        found["id"],
        found["kind"],
        found["created_us"],
        tuple(found["adds"]),
        tuple(found["removes"]),
        _UNSAID | found["detail"] if found["kind"] == "ingest" else found["detail"],
    )
    _check("detail", commit.detail, _DETAIL.get(commit.kind, {}))
    if not 0 <= commit.created_us < LAST_US:
        raise ValueError("created_us: expected a moment before the year 10000")
    for place in (*commit.adds, *commit.removes):
        # What is removed is deleted one day: nothing outside of the lake is.
        if not isinstance(place, str) or place[:1] == "/" or "/../" in f"/{place}/":
            raise ValueError(f"expected a place in the lake, found {place!r}")
    for name in ("accepted", "rejected", "repeated") if commit.kind == "ingest" else ():
        if not all(type(count) is int for count in commit.detail[name].values()):
            raise ValueError(f"{name}: expected numbers of rows")
    return commit


def _check(what: str, held: Mapping[str, Any], shape: Mapping[str, type | UnionType]) -> None:
    for name, kind in shape.items():
        if not isinstance(held[name], kind) or isinstance(held[name], bool):
            raise ValueError(f"{what}: {name} is of an unexpected type")
