"""What the rows of a file say of its job and its ranks, told once at the end of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from steptax.app.schema import Batch, table
from steptax.connectors.base import Options, Run

_SHOWN = 8


class JobFacts(Run):
    """Folds the ``jobs`` and ``ranks`` batches of all chunks into one row per job and rank.

    ``parse`` gives them per chunk, with what it saw there. Of a job the earliest start and the
    latest end hold, of everything else the first value that is known; a rank that says two
    different things of itself is named in a note.
    """

    def __init__(self, options: Options, job: Mapping[str, Any] | None = None) -> None:
        self._options = options
        self._always = dict(job or {})
        self._jobs: dict[str, dict[str, Any]] = {}
        self._ranks: dict[tuple[str, int], dict[str, Any]] = {}
        self._notes: dict[str, None] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold facts back, pass everything else on."""
        if batch.table == "jobs":
            for row in batch.rows.to_pylist():
                _fold_job(self._jobs.setdefault(row["job_id"], {}), row)
        elif batch.table == "ranks":
            for row in batch.rows.to_pylist():
                self._fold_rank(row)
        else:
            yield batch

    def close(self) -> Iterator[Batch]:
        """One row per job and one per rank, sorted."""
        ranks_of: dict[str, list[int]] = {}
        for job_id, rank in sorted(self._ranks):
            ranks_of.setdefault(job_id, []).append(rank)
        jobs = [
            row | self._always | {"world_size": self._world_size(job_id, ranks_of.get(job_id, []))}
            for job_id, row in sorted(self._jobs.items())
        ]
        if jobs:
            yield Batch("jobs", rows_of("jobs", jobs), notes=tuple(self._notes))
        if self._ranks:
            yield Batch("ranks", rows_of("ranks", [row for _, row in sorted(self._ranks.items())]))

    def state(self) -> Mapping[str, Any]:
        """What is known of the jobs, and which ranks were seen."""
        ranks: dict[str, list[int]] = {}
        for job_id, rank in self._ranks:
            ranks.setdefault(job_id, []).append(rank)
        return {"jobs": self._jobs, "ranks": ranks}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave; what was known of each rank is stored already."""
        self._jobs = {job_id: dict(row) for job_id, row in state["jobs"].items()}
        for job_id, ranks in state["ranks"].items():
            for rank in ranks:
                self._ranks.setdefault((job_id, rank), {"job_id": job_id, "rank": rank})

    def _world_size(self, job_id: str, ranks: list[int]) -> int:
        if self._options.world_size is not None:
            return self._options.world_size
        known = self._always.get("world_size")
        if known is not None:
            return int(known)
        if ranks != list(range(len(ranks))):
            shown = ", ".join(map(str, ranks[:_SHOWN])) + (" ..." if len(ranks) > _SHOWN else "")
            self._notes.setdefault(
                f"job {job_id}: the ranks seen are {shown}; its world size is taken as their "
                f"number, {len(ranks)}: pass --world-size if it has more"
            )
        return len(ranks)

    def _fold_rank(self, row: dict[str, Any]) -> None:
        known = self._ranks.setdefault((row["job_id"], row["rank"]), {})
        for name, value in row.items():
            if value is None:
                continue
            before = known.setdefault(name, value)
            if before != value:
                self._notes.setdefault(
                    f"job {row['job_id']}, rank {row['rank']}: {name} is {before!r} and later "
                    f"{value!r}; the first is kept"
                )


def rows_of(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of table ``name`` from dictionaries, with the columns that any of them knows."""
    spec = table(name)
    used = [c for c in spec.columns if any(row.get(c.name) is not None for row in rows)]
    return pa.table({c.name: _column([r.get(c.name) for r in rows], c.type) for c in used})


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """``values`` as a column; halves of surrogate pairs, which no text holds, as question marks."""
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        sound = [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
        return pa.array(sound, kind)


def _fold_job(known: dict[str, Any], row: dict[str, Any]) -> None:
    for name, value in row.items():
        if value is None:
            continue
        before = known.get(name)
        if before is None:
            known[name] = value
        elif name == "start_us":
            known[name] = min(before, value)
        elif name == "end_us":
            known[name] = max(before, value)
