"""What a fold of the log says: one file in the place of the old records of merges.

    commits/fold-00000007.json               what the records that it stands for come to
    commits/fold-00000007-<16 hex>.names     names that are spent, as sorted digests of 12 bytes

The records of merges name every file that was ever replaced, a million a day for a large job. A
fold keeps of them what can still be asked for:

* the commits whose segments live, or are named by a commit outside of it: each names the segments
  of imports that are in it, through however many merges, and how many live ones (``LIVE``);
* that a segment was replaced, and that a record was folded. Senders may write a live one again,
  days later; and a backup may bring back either. Digests of 96 bits tell it: of a thousand million
  names any two agree with a probability of 1e-11.

Neither file ever changes. A fold has the next number, is whole in itself, and the one of the
highest number holds. The digests lie in runs that folds share; a look-up reads a few pages of each,
so that what is resident does not grow with the days.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from steptax.app.lake.records import Commit, commit_from, fields_of

#: In the detail of a commit of a fold: how many live segments were merged into what it adds.
LIVE = "live_segments"
VERSION = 1
DIGEST_BYTES = 12
_FOLD = re.compile(r"fold-(\d{8})\.json")
_RUN = re.compile(r"fold-(\d{8})-[0-9a-f]{16}\.names")

Digests = npt.NDArray[np.bytes_]


@dataclass(frozen=True, eq=False)
class Run:
    """Sorted digests of spent names. ``first`` and ``last``: the live segments' names among them.

    Both are empty where there is none.
    """

    name: str
    first: str
    last: str
    digests: Digests

    def among(self, asked: Digests) -> npt.NDArray[np.bool_]:
        """Which of ``asked`` it has."""
        if not len(self.digests):
            return np.zeros(len(asked), bool)
        at = np.searchsorted(self.digests, asked)
        at[at == len(self.digests)] = 0
        return np.asarray(self.digests[at] == asked)


@dataclass(frozen=True, eq=False)
class Folded:
    """A fold of the log; number 0 is that of a log that was never folded."""

    number: int = 0
    created_us: int = 0
    next_number: int = 0
    """In a bucket: what the number of the next merge is at least."""
    commits: Mapping[str, Commit] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()

    @property
    def name(self) -> str:
        """Name of its file."""
        return fold_name(self.number)

    def spent(self, places: Sequence[str]) -> set[str]:
        """Those of ``places`` (segments, or records as ``commits/<name>``) that it stands for."""
        if not self.runs or not places:
            return set()
        asked = digests_of(places)
        found = np.zeros(len(asked), bool)
        for run in self.runs:
            found |= run.among(asked)
        return {places[int(k)] for k in np.flatnonzero(found)}

    def replaced(self, place: str) -> bool:
        """Whether a live segment was replaced by a merge that is folded."""
        entry = place[place.rfind("/") + 1 :]
        if not self._first <= entry <= self._last:
            return False  # almost every one that is listed: it came after what is folded
        return is_live(entry) and bool(self.spent([place]))

    @cached_property
    def _first(self) -> str:
        return min((run.first for run in self.runs if run.first), default="~")

    @cached_property
    def _last(self) -> str:
        return max((run.last for run in self.runs), default="")


class Replaced(Mapping[str, Commit]):
    """Every segment that was replaced; by which commit is told of those that no fold forgot."""

    def __init__(self, exact: Mapping[str, Commit], folded: Folded) -> None:
        self._exact = exact
        self._folded = folded

    def __getitem__(self, place: str) -> Commit:
        return self._exact[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._exact)

    def __len__(self) -> int:
        return len(self._exact)

    def __contains__(self, place: object) -> bool:
        return place in self._exact or (isinstance(place, str) and self._folded.replaced(place))


def is_live(entry: str) -> bool:
    """Whether a file name is of a segment that is visible without a commit."""
    return entry.startswith("live-")


def digests_of(places: Iterable[str]) -> Digests:
    """A digest of each of ``places``, in their order."""
    joined = b"".join(
        hashlib.blake2b(place.encode(), digest_size=DIGEST_BYTES).digest() for place in places
    )
    return np.frombuffer(joined, f"S{DIGEST_BYTES}")


def fold_name(number: int) -> str:
    """Name of the file of fold ``number``."""
    return f"fold-{number:08d}.json"


def run_name(number: int, data: bytes) -> str:
    """Name of a run that is written for fold ``number``."""
    return f"fold-{number:08d}-{hashlib.blake2b(data, digest_size=8).hexdigest()}.names"


def is_whole(run: Run) -> bool:
    """Whether a run holds what its name says: reads all of it."""
    number = run_number(run.name)
    return number is not None and run_name(number, run.digests.tobytes()) == run.name


def fold_number(name: str) -> int | None:
    """The number of the fold whose file ``name`` is; None for other files."""
    match = _FOLD.fullmatch(name)
    return None if match is None else int(match[1])


def run_number(name: str) -> int | None:
    """The number of the fold for which the run ``name`` was written; None for other files."""
    match = _RUN.fullmatch(name)
    return None if match is None else int(match[1])


def body_of_fold(folded: Folded) -> bytes:
    """The file of a fold, as it is stored."""
    return orjson.dumps(
        {
            "fold": VERSION,
            "number": folded.number,
            "created_us": folded.created_us,
            "next_number": folded.next_number,
            "commits": [fields_of(commit) for commit in folded.commits.values()],
            "runs": [
                {
                    "name": run.name,
                    "count": len(run.digests),
                    "first": run.first,
                    "last": run.last,
                }
                for run in folded.runs
            ],
        }
    )


def runs_named(body: bytes) -> list[str]:
    """Names of the runs that a fold's file rests on; ValueError, KeyError, TypeError of none."""
    found = _told(body)
    names = [str(run["name"]) for run in found["runs"]]
    if any(run_number(name) is None for name in names):
        raise ValueError("expected names of runs")
    return names


def fold_of(body: bytes, paths: Mapping[str, Path]) -> Folded:
    """The fold that a file holds; ``paths``: where each of its runs lies on this machine.

    ValueError, KeyError or TypeError where it is none, OSError where a run is gone.
    """
    found = _told(body)
    runs = []
    for told in found["runs"]:
        path, count = paths[told["name"]], told["count"]
        if path.stat().st_size != count * DIGEST_BYTES:
            raise ValueError(f"{told['name']}: expected {count:,} digests")
        digests: Digests = (
            np.memmap(path, f"S{DIGEST_BYTES}", "r") if count else np.zeros(0, f"S{DIGEST_BYTES}")
        )
        runs.append(Run(path.name, str(told["first"]), str(told["last"]), digests))
    commits = [commit_from(one) for one in found["commits"]]
    return Folded(
        int(found["number"]),
        int(found["created_us"]),
        int(found["next_number"]),
        {commit.id: commit for commit in commits},
        tuple(runs),
    )


def _told(body: bytes) -> dict[str, Any]:
    found = orjson.loads(body)
    if not isinstance(found, dict) or found.get("fold") != VERSION:
        raise ValueError(f"expected a fold of version {VERSION}")
    return found
