"""A lake as somebody sees it who may see some teams only: the one place where rows are kept back.

Everything that reads goes through a lake: which files there are (``segments``), and which of their
rows count (``seen``, which the engine puts around every table). A table that is not named here is
kept back whole, so that a new one tells nobody anything by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa

from steptax.app.errors import UserError
from steptax.app.lake.bucket import url_of
from steptax.app.lake.commits import Commit
from steptax.app.lake.lake import Lake, Seen
from steptax.app.lake.segments import Segment
from steptax.app.schema import TABLES, table

#: Tables about nobody's job: list prices, published results, measured hardware.
OPEN = frozenset({"prices", "held_prices", "public_results", "public_runs", "bench_results"})
#: Tables whose rows lie in a folder of their job.
BY_JOB = frozenset(name for name, spec in TABLES.items() if spec.by_job)
#: Tables of which some rows are seen.
FILTERED = frozenset({"jobs", "budgets", "device_samples", "port_samples"})

_FOREVER = 2**63 - 1
_NO_ROW = Seen("false", {})
#: A device by its identity; a whole node only while nobody else has any part of it.
_SAMPLES = """
{by_uuid} EXISTS (
    SELECT 1 FROM _own_places o
    WHERE {whole_node} o.host = _rows.host
        AND _rows.ts_us >= o.first_us AND _rows.ts_us < o.last_us
) AND NOT EXISTS (
    SELECT 1 FROM _other_places h
    WHERE h.host = _rows.host AND _rows.ts_us >= h.first_us AND _rows.ts_us < h.last_us
)"""
_BY_UUID = """
EXISTS (
    SELECT 1 FROM _own_places o
    WHERE o.gpu_uuid = _rows.gpu_uuid
        AND _rows.ts_us >= o.first_us AND _rows.ts_us < o.last_us
) OR"""
_PLACES = pa.schema(
    [
        ("host", pa.string()),
        ("gpu_uuid", pa.string()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
    ]
)
_Place = tuple[str | None, str | None, int, int]


class ScopedLake(Lake):
    """The jobs of ``teams`` and nothing of any other; for reading only.

    A job without a team is seen by nobody who is limited to teams. Bills, rejected rows and what
    devices did while others held them are kept back. ``row_counts`` counts what is seen.
    """

    def __init__(self, root: Path | str, teams: Iterable[str]) -> None:
        if url_of(root) is not None:
            raise UserError(
                "a lake in a bucket cannot be shown to some teams only",
                where=str(root),
                hint="copy it to a folder and serve that, or give the reader every team",
            )
        super().__init__(root)
        self.teams = frozenset(teams)
        self._whole = Lake(root)
        self._lock = Lock()
        self._jobs: tuple[str, dict[str, dict[str, Any]]] | None = None
        self._places: dict[tuple[str, str], tuple[tuple[str | None, str | None], ...]] = {}

    @property
    def scope(self) -> str:
        """The teams; part of the key of everything that is kept in memory."""
        return repr(sorted(self.teams))

    def sees_job(self, job_id: str | None) -> bool:
        """Whether the newest record of the job names one of the teams."""
        return job_id is not None and self._team_of(job_id) in self.teams

    def job_ids(self, name: str) -> list[str]:
        """Jobs of the teams that have a folder in the by-job table ``name``, sorted."""
        return [job for job in super().job_ids(name) if self.sees_job(job)]

    def segments(
        self,
        name: str,
        job_id: str | None = None,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
    ) -> list[Segment]:
        """Segments that hold a row which may be seen; none of a table that is kept back."""
        if name not in OPEN | FILTERED | BY_JOB:
            return []
        if name in BY_JOB and job_id is not None and not self.sees_job(job_id):
            return []
        return super().segments(name, job_id, first_step=first_step, last_step=last_step)

    def seen(self, name: str) -> Seen | None:
        """Which rows of a table count, as SQL; None where ``segments`` has settled it."""
        if name in OPEN | BY_JOB:
            return None
        if name == "jobs":
            ids = [job for job, row in self._known_jobs().items() if row["team"] in self.teams]
            return Seen(
                "_rows.job_id IN (SELECT job_id FROM _own_jobs)",
                {"_own_jobs": pa.table({"job_id": pa.array(ids, pa.string())})},
            )
        if name == "budgets":
            scopes = [f"team:{team}" for team in self.teams]
            scopes += [f"job:{job}" for job in self._known_jobs() if self.sees_job(job)]
            return Seen(
                "_rows.scope IN (SELECT scope FROM _own_scopes)",
                {"_own_scopes": pa.table({"scope": pa.array(scopes, pa.string())})},
            )
        if name in ("device_samples", "port_samples"):
            # A port is of the whole node; so is a device of a job that names none.
            is_device = name == "device_samples"
            condition = _SAMPLES.format(
                by_uuid=_BY_UUID if is_device else "",
                whole_node="o.gpu_uuid IS NULL AND" if is_device else "",
            )
            return Seen(condition, self._held())
        return _NO_ROW

    def read(self, name: str, job_id: str | None = None) -> pa.Table:
        """All rows that may be seen of a small table."""
        if name in BY_JOB and job_id is not None and not self.sees_job(job_id):
            return table(name).arrow.empty_table()
        rows, seen = super().read(name, job_id), self.seen(name)
        if seen is None:
            return rows
        connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        try:
            for relation, held in {"_rows": rows, **seen.relations}.items():
                connection.register(relation, held)
            sql = f"SELECT * FROM _rows WHERE {seen.condition}"
            return connection.sql(sql).to_arrow_table().cast(rows.schema)
        finally:
            connection.close()

    def live_job_ids(self) -> list[str]:
        """Jobs of the teams whose recorders have given a sign of life, sorted."""
        return [job for job in super().live_job_ids() if self.sees_job(job)]

    def heartbeats(self, job_id: str) -> list[dict[str, Any]]:
        """What each rank's recorder last said; nothing of a job of others."""
        return super().heartbeats(job_id) if self.sees_job(job_id) else []

    def ingests(self) -> list[Commit]:
        """Imports that gave rows of jobs of the teams, and of nobody else's."""
        # A commit names at most a thousand jobs; beyond that nobody knows whose they are.
        return [
            commit
            for commit in super().ingests()
            if 0 < len(jobs := commit.detail.get("job_ids", ())) < 1000
            and all(map(self.sees_job, jobs))
        ]

    def row_counts(self) -> dict[str, int]:
        """Rows that are seen per table; 0 of a table that is kept back."""
        return {
            name: self.read(name).num_rows
            if name in FILTERED
            else sum(s.rows for s in self.segments(name))
            for name in TABLES
        }

    def append(self, name: str, rows: pa.Table, *, source: str) -> list[Path]:
        """Append rows; of budgets only those of the teams. Others are a fault of the caller."""
        own = {f"team:{team}" for team in self.teams}
        if name != "budgets" or not set(rows["scope"].to_pylist()) <= own:
            raise PermissionError(f"{name} of {self.scope} cannot be written")
        return super().append(name, rows, source=source)

    def commit(self, commit: Commit) -> None:
        """Refused: imports and compactions are of the whole lake."""
        raise PermissionError("a view of some teams commits nothing")

    def _known_jobs(self) -> dict[str, dict[str, Any]]:
        """Newest record of every job of the lake, by id: team, hosts, begin and end."""
        version = self._whole.version("jobs")
        with self._lock:
            if self._jobs is None or self._jobs[0] != version:
                names = ["job_id", "team", "hosts", "start_us", "end_us", "state"]
                rows = self._whole.read("jobs").select(names).to_pylist()
                self._jobs = version, {row["job_id"]: row for row in rows}
            return self._jobs[1]

    def _team_of(self, job_id: str) -> str | None:
        row = self._known_jobs().get(job_id)
        return None if row is None else row["team"]

    def _held(self) -> dict[str, pa.Table]:
        """Devices and nodes that jobs of the teams, and those of others, held, and when."""
        own: list[_Place] = []
        other: list[_Place] = []
        jobs = self._known_jobs()
        for job in {*jobs, *self._whole.job_ids("ranks")}:
            row = jobs.get(job, {})
            first, last = row.get("start_us"), row.get("end_us")
            if row.get("state") == "running":
                last = None
            is_own = self.sees_job(job)
            if is_own and first is None:
                continue  # nobody knows when it had its devices
            span = (first or 0, _FOREVER if last is None else last)
            places = self._places_of(job) or tuple(
                (host.strip(), None) for host in (row.get("hosts") or "").split(",") if host.strip()
            )
            (own if is_own else other).extend((*place, *span) for place in places)
        return {"_own_places": _place_table(own), "_other_places": _place_table(other)}

    def _places_of(self, job_id: str) -> tuple[tuple[str | None, str | None], ...]:
        key = job_id, self._whole.version("ranks", job_id)
        with self._lock:
            known = self._places.get(key)
        if known is None:
            rows = self._whole.read("ranks", job_id)
            pairs = zip(rows["host"].to_pylist(), rows["gpu_uuid"].to_pylist(), strict=True)
            known = tuple(dict.fromkeys(pair for pair in pairs if pair != (None, None)))
            with self._lock:
                self._places[key] = known
        return known


def _place_table(places: list[_Place]) -> pa.Table:
    columns: Mapping[str, list[Any]] = {
        name: [place[k] for place in places] for k, name in enumerate(_PLACES.names)
    }
    return pa.table(columns, schema=_PLACES)
