"""Folding the log of a lake: old records of merges become one file, and are removed.

1. the names that are spent are written as a run (see ``folded``); nothing rests on it yet;
2. the fold, which names its runs, is written under the next number: from then on it stands for the
   records, which are passed over;
3. the records, and folds and runs that are no more, are removed after a grace time by any later
   pass: for a copy of the folder that was begun before 2.

Killed before 2, the log is as it was, and killed after it a later pass removes what is left. A
record is folded when it is old and none of the files that it replaced is there any more. Records of
imports are not: each is asked for by its name, and names what to ingest again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from steptax.app.lake.commits import RETAIN, Commit, CommitLog, Seen
from steptax.app.lake.folded import (
    LIVE,
    Digests,
    Folded,
    Run,
    body_of_fold,
    digests_of,
    fold_number,
    is_live,
    run_name,
    run_number,
)
from steptax.app.lake.lake import Lake

#: Records are folded once they are so old: longer than anybody reads the files that they replaced.
FOLD_AGE_S = 1_800.0
#: So many of them at once: each fold is written anew, and whoever reads the log reads it.
FOLD_RECORDS = 64
#: Runs of more digests than this are not merged any more. Merging holds 36 bytes for each digest of
#: what comes of it, which are half as many more at the most: 450 MB.
_FULL_RUN = 1 << 23
#: In the detail of an import that was stored again (see ``standing``).
_AGAIN = "again"


@dataclass(frozen=True)
class FoldResult:
    """What a pass did: records that a fold stands for now, and files that were removed."""

    records: int = 0
    removed_files: int = 0


@dataclass
class _Sum:
    """What is merged into a segment, through however many merges."""

    exact: list[str] = field(default_factory=list)
    live: int = 0


def fold_log(
    lake: Lake, *, grace_s: float, age_s: float = FOLD_AGE_S, minimum: int = FOLD_RECORDS
) -> FoldResult:
    """Fold records that are older than ``age_s``, where there are ``minimum``; clear what is left.

    Within ``compacting``. Overtaken where another one, on another machine, was first.
    """
    log = lake.commits
    now_us = time.time_ns() // 1000
    seen = log.look()
    due = _due(lake, seen, now_us - int(age_s * 1e6), max(1, minimum))
    if due:
        _write(lake, seen, due, now_us)
    return FoldResult(len(due), _clear(log, now_us - int(grace_s * 1e6)))


def _due(lake: Lake, seen: Seen, before_us: int, minimum: int) -> dict[str, Commit]:
    """Records of merges and drops that are old, and of whose replaced files none is left.

    None where there are fewer than ``minimum``. Of a merge that is lost these files are kept, and
    its record is what doctor says to remove.
    """
    old = {
        name: commit
        for name, commit in seen.records.items()
        if commit.kind != "ingest" and commit.created_us <= before_us
    }
    if len(old) < minimum:
        return {}
    there = lake.holding(place for commit in old.values() for place in commit.removes)
    due = {name: c for name, c in old.items() if there.isdisjoint(c.removes)}
    return due if len(due) >= minimum else {}


def _write(lake: Lake, seen: Seen, due: Mapping[str, Commit], now_us: int) -> None:
    log = lake.commits
    folded = seen.folded
    pinned = {
        str(place)
        for commit in seen.records.values()
        if _AGAIN in commit.detail
        for place in commit.detail[_AGAIN]["places"]
    }
    kept, gone = summed([*folded.commits.values(), *due.values()], pinned)
    number = folded.number + 1
    spent = digests_of([*gone, *(f"commits/{name}" for name in due)])
    entries = [entry for place in gone if is_live(entry := place[place.rfind("/") + 1 :])]
    first, last = min(entries, default=""), max(entries, default="")
    runs = _with(log, number, folded.runs, Run("", first, last, np.unique(spent)))
    new = Folded(
        number,
        now_us,
        max(folded.next_number, log.next_number(due)),
        {commit.id: commit for commit in kept},
        runs,
    )
    lake.mark_folded()
    log.write_fold(number, body_of_fold(new))


def summed(commits: Sequence[Commit], pinned: Iterable[str]) -> tuple[list[Commit], list[str]]:
    """What ``commits`` come to, and the segments whose names they need not tell any more.

    Merges that were merged again become one commit each of what came of them in the end, which
    names the segments of imports that are in it. Not through what is ``pinned``.
    """
    merges = {c.adds[0]: c for c in commits if c.kind == "compact" and len(c.adds) == 1}
    others = [c for c in commits if merges.get(c.adds[0] if c.adds else "") is not c]
    apart = frozenset(pinned)
    inner = {
        place: merges[place]
        for commit in merges.values()
        for place in commit.removes
        if place in merges and place not in apart
    }
    gone = [*inner]
    kept = []
    dropped = {place for commit in others for place in commit.removes}
    for place, end in [(p, c) for p, c in merges.items() if p not in inner]:
        found = _Sum()
        todo = [end]
        while todo:
            commit = todo.pop()
            found.live += int(commit.detail.get(LIVE, 0))
            for one in commit.removes:
                if one in inner:
                    todo.append(inner.pop(one))
                elif is_live(one[one.rfind("/") + 1 :]):
                    gone.append(one)
                    found.live += 1
                else:
                    found.exact.append(one)
        if place in dropped and not found.exact and place not in apart:
            continue  # dropped by retention, and nobody asks what became of it
        kept.append(replace(end, removes=tuple(sorted(found.exact)), detail={LIVE: found.live}))
    for commit in others:
        if commit.kind == RETAIN:
            went = [p for p in commit.removes if is_live(p[p.rfind("/") + 1 :])]
            gone += went
            if went:
                left = tuple(p for p in commit.removes if p not in set(went))
                commit = replace(commit, removes=left)
        kept.append(commit)
    return kept, gone


def _with(log: CommitLog, number: int, runs: Sequence[Run], new: Run) -> tuple[Run, ...]:
    """``runs`` and ``new``, which is merged with what is no larger than it: so they stay few."""
    left = [*runs]
    while left and len(left[-1].digests) <= 2 * len(new.digests) <= _FULL_RUN:
        other = left.pop()
        firsts = [run.first for run in (other, new) if run.first]
        both: Digests = np.unique(np.concatenate([other.digests, new.digests]))
        new = Run("", min(firsts, default=""), max(other.last, new.last), both)
    data = new.digests.tobytes()
    name = run_name(number, data)
    log.write_run(name, data)
    return (*left, Run(name, new.first, new.last, new.digests))


def _clear(log: CommitLog, before_us: int) -> int:
    """Remove what the newest fold stands for or replaces, once it is of ``before_us`` or older.

    Runs of a higher number are of a fold that another machine is about to write.
    """
    names = log.listed()
    folded = log.folded
    if not folded.number or folded.created_us > before_us:
        return 0
    held = {run.name for run in folded.runs}
    records = [f"commits/{name}" for name in names if name.endswith(".json")]
    gone = [place.rpartition("/")[2] for place in folded.spent(records)]
    for name in names:
        number, run = fold_number(name), run_number(name)
        is_older = number is not None and number < folded.number
        if is_older or (run is not None and run <= folded.number and name not in held):
            gone.append(name)
    log.remove(sorted(gone))
    return len(gone)
