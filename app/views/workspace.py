"""A lake opened for reading, with the engine that answers questions about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from steptax.app.errors import NotFoundError
from steptax.app.lake import Lake, ScopedLake, lake_at
from steptax.app.lake.commits import Commit
from steptax.app.memory import building
from steptax.app.queries import Engine, EngineName, open_engine
from steptax.app.queries.python_rows import python_rows
from steptax.app.settings import Settings
from steptax.app.views.kept import Kept

#: Job rows of a few lakes, or of views of one: of fifty thousand they take a quarter second.
_rows: Kept[list[dict[str, Any]]] = Kept(4)


@dataclass(frozen=True)
class Workspace:
    """One lake and one engine; safe to share between threads."""

    lake: Lake
    engine: Engine
    settings: Settings

    @property
    def root(self) -> Path:
        """Root of the lake."""
        return self.lake.root

    @property
    def place(self) -> str:
        """Where the lake lies, for people: of one in a bucket its URL, not that of its copies."""
        return self.lake.url or str(self.root)

    @property
    def key(self) -> str:
        """What tells this lake, as its reader sees it, from every other: the key of any cache."""
        return f"{self.root}\n{self.lake.scope}"

    def jobs(self) -> list[dict[str, Any]]:
        """Job rows, newest start first; jobs without a record of their own come last.

        What no job of the lake tells is in no row: ``get`` gives None for it. So it does for the
        end of a job that runs.
        The rows are shared with every other reader: they must not be changed.
        """
        key = self.key, self.lake.version("jobs")
        rows = _rows.get(key, self._listed)
        unlisted = self.job_ids_with_steps() | self.job_ids_with_collectives()
        unlisted -= {row["job_id"] for row in rows}
        return rows + [{"job_id": job} for job in sorted(unlisted)]

    def _listed(self) -> list[dict[str, Any]]:
        found = self.engine.run("job_list")
        with building():
            rows = python_rows(_without_blanks(found))
        for row in rows:
            if row.get("state") == "running":
                # Of an attempt before this one: the record of a new one has no end yet.
                row.pop("end_us", None)
        return rows

    def job_ids(self) -> list[str]:
        """Ids of all jobs: those with per-rank steps first, in each part newest start first."""
        with_steps = self.job_ids_with_steps()
        return sorted(
            (row["job_id"] for row in self.jobs()), key=lambda job_id: job_id not in with_steps
        )

    def job(self, job_id: str) -> dict[str, Any]:
        """The row of one job; NotFoundError names the nearest that exist."""
        jobs = self.jobs()
        for row in jobs:
            if row["job_id"] == job_id:
                return row
        listed = ", ".join(row["job_id"] for row in jobs[:5]) or "none yet"
        raise NotFoundError(
            f"there is no job {job_id!r} in this lake",
            where=self.place,
            hint=f"steptax jobs lists them; the newest: {listed}",
        )

    def job_ids_with_steps(self) -> set[str]:
        """Jobs of which there are per-rank steps or operations."""
        return {*self.lake.job_ids("steps"), *self.lake.job_ids("ops")}

    def job_ids_with_collectives(self) -> set[str]:
        """Jobs of which there are collectives, or the state of communicators."""
        return {*self.lake.job_ids("collectives"), *self.lake.job_ids("communicators")}

    def version(self, job_id: str | None = None) -> str:
        """Changes when rows of the job (of any job) or of the jobs table may have changed."""
        names = ("steps", "ops", "ranks", "printed_metrics", "reported_scores")
        parts = [self.lake.version(name, job_id) for name in names]
        return "-".join([*parts, self.lake.version("jobs")])

    def ingests(self, job_id: str | None = None) -> list[Commit]:
        """Ingests that gave rows of the job (all without one), oldest first."""
        found = self.lake.ingests()
        return [c for c in found if job_id is None or job_id in c.detail.get("job_ids", ())]


def _without_blanks(rows: pa.Table) -> pa.Table:
    """``rows`` less the columns without any value: most lakes fill a third, and rows are many."""
    names = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
    return rows.select(names)


def open_workspace(
    lake: Path | str | None = None,
    *,
    teams: Iterable[str] | None = None,
    engine: EngineName | None = None,
    master: str | None = None,
    bill_rules: Path | None = None,
) -> Workspace:
    """Open the lake that is named, or the installation's; NotFoundError where there is none.

    ``engine``, ``master`` and ``bill_rules`` are else the installation's. With ``teams`` nothing
    but what those teams may see is in it, whatever is asked.
    """
    settings = Settings()
    if bill_rules is not None:
        settings = settings.model_copy(update={"bill_rules": bill_rules})
    root = lake if lake is not None else settings.lake
    store = lake_at(root) if teams is None else ScopedLake(root, teams)
    engine = engine or settings.engine
    if engine == "spark":
        master = master or settings.spark_master
    return Workspace(store, open_engine(store, engine, master), settings)
