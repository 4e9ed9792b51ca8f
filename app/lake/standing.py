"""Whether the rows that commits tell of are still there: a file may be gone, or set aside.

Reading looks at the files that there are, so a file that is gone makes rows missing and no error.
What ought to be there the commits tell: every segment that one of them adds and none replaces.

An input of which rows are gone can be ingested again. That is another commit (see ``again_id``),
which tells in its detail ``again`` in whose place its rows stand:

    {"of": <ingest id>, "places": [<segments of the earlier commits>], "at_us": <when>}
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steptax.app.lake.commits import RETAIN, Commit, again_id
from steptax.app.lake.folded import LIVE
from steptax.app.lake.lake import Lake
from steptax.app.lake.segments import Segment, parse_name, read_segment
from steptax.app.schema import table

AGAIN = "again"
#: Folders in which an import found rows of its own stored, in its detail: what others stored there
#: it rests on.
LEFT_OUT = "left_out"
#: Inputs that a hint names.
_NAMED = 10
#: Segments that a sentence names.
_PLACES = 3
#: Options of an import as its record names them, and the flags that give them.
_FLAGS = {
    "job_id": "--job",
    "attempt": "--attempt",
    "time_unit": "--time-unit",
    "meta": "--meta",
    "world_size": "--world-size",
    "gpu_model": "--gpu-model",
}


@dataclass(frozen=True)
class Known:
    """What the lake knows of an input: its commits, oldest first, and what of it is gone."""

    commits: tuple[Commit, ...]
    lost: tuple[str, ...]
    """Segments, as commits name them, whose rows are in no file and were not stored again: its own,
    and those that may have had rows which it left out."""
    next_id: str
    """Of the commit that would store it now."""

    @property
    def is_stored(self) -> bool:
        """Whether it was stored, and every row of it is where its commits say."""
        return bool(self.commits) and not self.lost


@dataclass(frozen=True)
class Lost:
    """A segment that a commit tells of and that is not there; or several of one table and job."""

    places: tuple[str, ...]
    rows: int
    inputs: tuple[Commit, ...]
    """Imports whose rows were in it and are nowhere else now, oldest first."""
    live_segments: int
    """Segments of recorders, collectors and watches of devices that were merged into it."""
    undo: str | None
    """The record of the merge that made it, where what it merged lies there still."""
    is_sum: bool
    """Whether it sums up rows that retention dropped."""

    @property
    def is_mended(self) -> bool:
        """Whether all that was in it was ingested again."""
        return not self.inputs and not self.live_segments and not self.is_sum

    @property
    def sentence(self) -> str:
        """What is missing."""
        named = ", ".join(self.places[:_PLACES])
        more = len(self.places) - _PLACES
        which = f"{named} and {more:,} more are gone" if more > 0 else f"{named} is gone"
        if 1 < len(self.places) <= _PLACES:
            which = f"{named} are gone"
        return f"{which}: {self.rows:,} rows are missing"

    def hint(self, lake: Lake) -> str:
        """What to do."""
        if self.undo is not None:
            undo = f"{lake.url or lake.root}/{self.undo}"
            return f"remove {undo}: what was merged is still there, and counts again"
        place = f"{lake.url or lake.root}/{self.places[0]}"
        said = f"put it back to {place} from a backup"
        if self.inputs:
            names = list(dict.fromkeys(map(_command, self.inputs)))
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            order = ", in this order" if len(names) > 1 else ""
            said += f"; or ingest again{order}: {'; '.join(names[:_NAMED])}{more}"
        if self.is_sum:
            said += ": it sums up rows that were dropped, and nothing else has them"
        elif self.live_segments:
            which = "the rest of it" if self.inputs else "it"
            said += f"; of recorders or collectors is {which}, which a backup alone has"
        return said


def known(lake: Lake, ingest_id: str) -> Known:
    """What the lake knows of the input ``ingest_id``, as of now."""
    commits: list[Commit] = []
    next_id = ingest_id
    while (commit := lake.commits.get(next_id)) is not None:
        commits.append(commit)
        next_id = again_id(ingest_id, len(commits))
    return Known(tuple(commits), (*_lost_of(lake, commits), *_lost_beside(lake, commits)), next_id)


def lies_in(name: str, place: str) -> bool:
    """Whether a segment, as commits name it, is of the table ``name``."""
    return place.startswith(f"tables/{name}/")


def lost(lake: Lake, folder: str = "") -> list[Lost]:
    """Every segment that ought to be there and is not, by name; those in the quarantine too.

    With ``folder``, as commits name it, those in it only.
    """
    within = f"{folder}/" if folder else ""
    found, replaced = lake.commits.state()
    added_by = {
        name: c
        for c in found.values()
        for name in c.adds
        if name not in replaced and name.startswith(within)
    }
    there = lake.holding(added_by)
    gone = sorted(name for name in added_by if name not in there)
    if not gone:
        return []
    # What was merged names what it was merged from: back to the imports.
    brought = {name: c for c in found.values() for name in c.adds}
    chains = _chains(found.values())
    lost_of: dict[str, tuple[str, ...]] = {}
    losses = []
    for place in gone:
        inputs: dict[str, Commit] = {}
        commit = added_by[place]
        sources, live = _sources(place, brought)
        for name in sources:
            told = parse_name(name.rpartition("/")[2])
            # Its record may have been damaged and written anew since: what it found it left out.
            source = brought.get(name) or found.get((told and told.commit_id) or "")
            if source is None:
                live += 1
                continue
            first = _first_id(source)
            if first not in lost_of:
                chain = chains[first]
                lost_of[first] = (*_lost_of(lake, chain), *_lost_beside(lake, chain))
            if name in lost_of[first] or (name not in brought and place in lost_of[first]):
                inputs[first] = chains[first][0]
        undo = None
        is_merge = commit.kind == "compact" and lake.url is None and LIVE not in commit.detail
        if is_merge and len(lake.holding(commit.removes)) == len(commit.removes):
            undo = f"commits/{commit.id}.json"
        parsed = parse_name(place.rpartition("/")[2])
        losses.append(
            Lost(
                (place,),
                parsed.rows if parsed is not None else 0,
                _in_order(inputs),
                live,
                undo,
                commit.kind == RETAIN,
            )
        )
    return losses


def sources_in_parts(lake: Lake, commit_id: str) -> list[str]:
    """Sources of what lies there for a commit whose record cannot be read, by name."""
    spec_of = {
        path: table(path.relative_to(lake.root).parts[1])
        for path, own in lake.parts()
        if own == commit_id
    }
    found: set[str] = set()
    for path, spec in spec_of.items():
        segment = Segment(spec.name, None, path, 0, 0, 0)
        with contextlib.suppress(OSError, pa.ArrowException):
            lake.fetched([segment])
            found.update(read_segment(spec, segment)["source"].unique().to_pylist())
    return sorted(found)


def together(found: Iterable[Lost]) -> list[Lost]:
    """Those of one table and job as one."""
    groups: dict[tuple[str, str | None], list[Lost]] = {}
    for one in found:
        groups.setdefault((one.places[0].rpartition("/")[0], one.undo), []).append(one)
    return [
        Lost(
            tuple(place for one in group for place in one.places),
            sum(one.rows for one in group),
            _in_order({commit.id: commit for one in group for commit in one.inputs}),
            sum(one.live_segments for one in group),
            undo,
            any(one.is_sum for one in group),
        )
        for (_, undo), group in groups.items()
    ]


def _in_order(commits: Mapping[str, Commit]) -> tuple[Commit, ...]:
    return tuple(sorted(commits.values(), key=lambda c: (c.created_us, c.id)))


def back_again(lake: Lake) -> list[tuple[Commit, str]]:
    """Commits that stored rows again, and a segment in whose place they stand that is back.

    So the rows of it are there twice.
    """
    found, replaced = lake.commits.state()
    again = [c for c in found.values() if AGAIN in c.detail]
    doubled = []
    for commit in again:
        places = [str(place) for place in commit.detail[AGAIN]["places"]]
        ends = {place: _ends(place, replaced) for place in places}
        there = lake.holding({end for named in ends.values() for end in named})
        back = [place for place, named in ends.items() if named and there.issuperset(named)]
        if back and commit.adds:
            doubled.append((commit, ends[back[0]][0]))
    return doubled


def _chains(commits: Iterable[Commit]) -> dict[str, list[Commit]]:
    """The imports by the id of their input, and what stored it again after it."""
    by_id = {c.id: c for c in commits if c.kind != RETAIN}
    chains: dict[str, list[Commit]] = {}
    for commit in by_id.values():
        first = _first_id(commit)
        if first in chains:
            continue
        chain = [by_id[first]] if first in by_id else []
        number = 1
        while (following := by_id.get(again_id(first, number))) is not None:
            chain.append(following)
            number += 1
        chains[first] = chain or [commit]
    return chains


def _first_id(commit: Commit) -> str:
    return str(commit.detail[AGAIN]["of"]) if AGAIN in commit.detail else commit.id


def _lost_of(lake: Lake, chain: Sequence[Commit]) -> tuple[str, ...]:
    """What the commits of an input add whose rows are nowhere, and that none of them stored again.

    Rows that retention dropped are not lost.
    """
    _, replaced = lake.commits.state()
    restored = _restored(chain)
    ends = {
        place: _ends(place, replaced) for c in chain for place in c.adds if place not in restored
    }
    there = lake.holding({end for named in ends.values() for end in named})
    return tuple(place for place, named in ends.items() if not there.issuperset(named))


def _lost_beside(lake: Lake, chain: Sequence[Commit]) -> tuple[str, ...]:
    """What is lost where an input left rows out, for they were stored there."""
    folders = {str(folder) for c in chain for folder in c.detail.get(LEFT_OUT, ())}
    if not folders:
        return ()
    found, replaced = lake.commits.state()
    passed = _restored(chain) | {name for c in chain for name in c.adds}
    places = [
        name
        for c in found.values()
        for name in c.adds
        if name.rpartition("/")[0] in folders and name not in replaced and name not in passed
    ]
    there = lake.holding(places)
    return tuple(sorted(name for name in places if name not in there))


def _restored(chain: Sequence[Commit]) -> set[str]:
    return {str(p) for c in chain if AGAIN in c.detail for p in c.detail[AGAIN]["places"]}


def _ends(place: str, replaced: Mapping[str, Commit]) -> list[str]:
    """The segments in which the rows of ``place`` ought to lie now; none of what was dropped."""
    ends, todo = [], [place]
    while todo:
        name = todo.pop()
        by = replaced.get(name)
        if by is None:
            ends.append(name)
        elif by.kind != RETAIN:
            todo.extend(by.adds)
    return ends


def _sources(place: str, brought: Mapping[str, Commit]) -> tuple[list[str], int]:
    """The segments of imports, and live ones, that were merged into ``place``; it, if none were.

    And how many live ones more, of which a fold tells no names.
    """
    sources, todo = [], [place]
    live = 0
    while todo:
        name = todo.pop()
        commit = brought.get(name)
        if commit is not None and commit.kind == "compact":
            todo.extend(commit.removes)
            live += int(commit.detail.get(LIVE, 0))
        elif commit is None or commit.kind != RETAIN:
            sources.append(name)
    return sources, live


def _command(commit: Commit) -> str:
    """What brings the rows of an import once more, as far as its record tells."""
    detail: Mapping[str, Any] = commit.detail
    kind, path = detail.get("connector"), detail.get("path")
    if path is None:
        return str(detail.get("address") or detail.get("source"))
    flags, others = "", []
    for name, value in detail.get("options", {}).items():
        if name in _FLAGS:
            flags += f" {_FLAGS[name]} {shlex.quote(str(value))}"
        else:
            others.append(f"{name} {value}")
    more = f" (with what it was given: {', '.join(others)})" if others else ""
    return f"steptax ingest {kind} {shlex.quote(str(path))}{flags}{more}"
