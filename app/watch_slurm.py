"""Following Slurm's accounting into the lake: every job as it is submitted, runs and ends."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import fingerprint, ingest
from steptax.app.lake.lake import newest_of_each_key
from steptax.app.lake.segments import read_segment
from steptax.app.lake.unheard import Unheard, heard, note_unheard
from steptax.app.schema import Batch, Reject, table
from steptax.app.watch import Clock, Refused, Stored, Told, held, newest_of
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
from steptax.connectors.schedulers.accounting import IDS_AT_ONCE, Accounting, StoppedError
from steptax.connectors.schedulers.jobs_of_records import NoJobsError
from steptax.connectors.schedulers.slurm_values import job_name

KIND = "slurm"
#: What is taken of accounting that was never followed before, where nobody says from when on.
FIRST_S = 86_400.0
#: Every look asks again for so long before the last one: records come late.
OVERLAP_S = 900.0
#: A window that was missed is asked for in parts.
PART_S = 86_400.0
#: Of a job that only goes on to run the hours are stored anew this often.
REFRESH_S = 300.0
#: So much of a line that cannot be read tells whose it is.
_ID_CHARACTERS = 20
_OPEN = ("running", "pending")
_NEVER_US = 2**62
_NO_NEWS = ("source", "source_row", "ingested_at_us")


@dataclass
class SlurmWatch:
    """Follows ``accounting`` into ``lake``. ``clock`` gives seconds since 1970.

    What a commit says of where it stopped, and what the lake holds of this accounting's jobs, is
    all that a new process needs to go on. ``first_us`` is where an accounting begins that was never
    followed before.
    """

    lake: Lake
    accounting: Accounting
    options: Options
    first_us: int | None = None
    clock: Clock = time.time
    _known: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _gone: set[str] = field(default_factory=set, init=False)
    _seen_rejects: set[tuple[str, str]] = field(default_factory=set, init=False)
    _away_since_s: float | None = field(default=None, init=False)
    _at_us: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Take up what the lake knows."""
        self._reader = connector(self.accounting.kind)
        self._facts = sorted((k, str(v)) for k, v in asdict(self.options).items() if v)
        self._key = fingerprint([], "watch", KIND, self.accounting.where, self._facts)
        self._source = f"{KIND}:{self.accounting.where}"
        newest = newest_of(self.lake, self._key)
        if newest is not None:
            self._at_us = newest["position"]["end_us"]
        self._known = _told_by(self.lake, self._source, self._ended_after_us())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold this source: UserError where another watch of it is at work in this lake."""
        with held(self.lake, self._key, self.accounting.where):
            yield

    def look(self, *, settled: bool = False) -> Iterator[Stored | Refused | Told]:
        """Store what changed since the last look.

        Accounting that does not answer is told once, and asked again at the next look for all that
        was missed; with ``settled``, which is the only look, InputError.
        """
        try:
            yield from self._windows()
            heard(self.lake, self._key)
        except StoppedError:
            return
        except (InputError, OSError) as error:
            at_us = round(self.clock() * 1e6)
            note_unheard(self.lake, self._key, Unheard(self._source, at_us, str(error)))
            if settled:
                raise
            if self._away_since_s is None:
                self._away_since_s = self.clock()
                told = error if isinstance(error, InputError) else _no_room(error)
                yield Refused(Path(self.accounting.where), told, waits=True)

    def _windows(self) -> Iterator[Stored | Told]:
        now_us = int(self.clock()) * 1_000_000
        if self._at_us is None:
            first = self.first_us
            start_us = now_us - round(FIRST_S * 1e6) if first is None else first
        else:
            start_us = self._at_us - round(OVERLAP_S * 1e6)
        seen: set[str] = set()
        while start_us < now_us:
            end_us = min(now_us, start_us + round(PART_S * 1e6))
            rows, rest = self._ask(partial(self.accounting.window, start_us, end_us))
            again = [job for job, row in rows.items() if self._ran_before(row)]
            seen |= rows.keys()
            if end_us == now_us:
                # What ran when it was last heard of and is in no window: its end came late.
                again += [job for job, row in self._known.items() if self._is_open(row, seen)]
            for at in range(0, len(again), IDS_AT_ONCE):
                ids = again[at : at + IDS_AT_ONCE]
                whole, more = self._ask(partial(self.accounting.jobs, ids))
                rows |= whole
                rest += more
                self._gone |= set(ids) - whole.keys() - seen
            yield from self._back()
            self._recall(rows)
            yield from self._store(rows, rest, end_us)
            self._at_us = start_us = end_us
        after_us = self._ended_after_us()
        self._known = {
            job: row
            for job, row in self._known.items()
            # What this look was told of comes again: it is no news then.
            if job in seen or row.get("state") in _OPEN or (row.get("end_us") or now_us) >= after_us
        }

    def _recall(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Look up what the lake knows of jobs that accounting tells of long after their end.

        The process before this one remembered that it had told them; no new job is like that.
        """
        after_us = self._ended_after_us()
        old = {
            job
            for job, row in rows.items()
            if job not in self._known and (row.get("end_us") or after_us) < after_us
        }
        if old:
            self._known |= _told_by(self.lake, self._source, -_NEVER_US, only=old)

    def _ended_after_us(self) -> int:
        """Jobs that ended before are in no window to come."""
        return (self._at_us or 0) - round((OVERLAP_S + PART_S) * 1e6)

    def _ask(self, ask: Callable[[Path], None]) -> tuple[dict[str, dict[str, Any]], list[Batch]]:
        """The rows of ``jobs`` by id, and all else that an answer gave."""
        rows: dict[str, dict[str, Any]] = {}
        rest: list[Batch] = []
        with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
            path = Path(folder) / "answer"
            ask(path)
            try:
                for batch in self._reader.read(path, self.options):
                    if batch.table == "jobs":
                        rows |= {row["job_id"]: row for row in batch.rows.to_pylist()}
                        batch = replace(batch, rows=batch.rows.slice(0, 0))
                    rest.append(replace(batch, rejects=self._fresh_rejects(batch.rejects)))
            except NoJobsError:
                return {}, []
            except InputError as error:
                where = self.accounting.where
                raise InputError(error.message, where=where, hint=error.hint) from None
        # Too many tasks of an array wait to be told one by one: one row, whose name changes with
        # each that begins.
        return {job: row for job, row in rows.items() if "[" not in job}, rest

    def _fresh_rejects(self, rejects: Sequence[Reject]) -> tuple[Reject, ...]:
        """Lines that were not told before: windows overlap, and the time of a running job grows."""
        told = {(r.reason, (r.raw or "")[:_ID_CHARACTERS]): r for r in rejects}
        fresh = {key: r for key, r in told.items() if key not in self._seen_rejects}
        self._seen_rejects |= fresh.keys()
        return tuple(fresh.values())

    def _ran_before(self, row: Mapping[str, Any]) -> bool:
        """Whether a job had a run that lies before the window: its hours count as well."""
        known = self._known.get(row["job_id"], {}).get("start_us")
        start = row.get("start_us")
        return known is not None and (start is None or known < start)

    def _is_open(self, row: Mapping[str, Any], seen: set[str]) -> bool:
        job = row["job_id"]
        found = job_name(job)
        return (
            row.get("state") in _OPEN
            and job not in seen
            and job not in self._gone
            and found is not None
        )

    def _back(self) -> Iterator[Told]:
        if self._away_since_s is not None:
            away_s = self.clock() - self._away_since_s
            self._away_since_s = None
            yield Told(
                Path(self.accounting.where),
                (f"answers again after {away_s:,.0f} s; what was missed is asked for",),
            )

    def _store(
        self, rows: Mapping[str, dict[str, Any]], rest: Sequence[Batch], end_us: int
    ) -> Iterator[Stored]:
        news = [row for row in rows.values() if self._is_news(row)]
        batches = [Batch("jobs", _table(news))] if news else []
        told = pa.array([row["job_id"] for row in news], pa.string())
        for batch in rest:
            # Events of a job are told anew with every answer that holds it.
            if "job_id" in batch.rows.column_names:
                fresh = pc.is_in(batch.rows["job_id"], value_set=told)
                batch = replace(batch, rows=batch.rows.filter(fresh))
            if batch.rows.num_rows or batch.rejects or (news and batch.notes):
                batches.append(batch)
        if not batches:
            return
        result = ingest(
            self.lake,
            batches,
            ingest_id=fingerprint([], "watch", self._key, end_us, *sorted(map(repr, news))),
            source=self._source,
            detail={
                "connector": self.accounting.kind,
                "version": self._reader.version,
                "options": dict(self._facts),
                "watch": {"key": self._key, "position": {"end_us": end_us}},
            },
        )
        now_us = round(self.clock() * 1e6)
        for row in news:
            old = self._known.get(row["job_id"], {})
            said = {k: v for k, v in row.items() if v is not None}
            self._known[row["job_id"]] = {**old, **said, "ingested_at_us": now_us}
            self._gone.discard(row["job_id"])
        lag_s = max(0.0, self.clock() - end_us / 1e6)
        yield Stored(Path(self.accounting.where), result, 0, lag_s)

    def _is_news(self, row: Mapping[str, Any]) -> bool:
        """Whether a row says more than the lake knows of its job."""
        known = self._known.get(row["job_id"])
        if known is None:
            return True
        differ = {
            name
            for name, value in row.items()
            if name not in _NO_NEWS and value is not None and value != known.get(name)
        }
        if differ == {"gpu_hours"} and row.get("state") in _OPEN:
            return bool(self.clock() - known["ingested_at_us"] / 1e6 >= REFRESH_S)
        return bool(differ)


def _told_by(
    lake: Lake, source: str, after_us: int, only: Collection[str] | None = None
) -> dict[str, dict[str, Any]]:
    """What ``source`` last said, whatever others said since, of jobs that did not end before.

    With ``only`` of no others.
    """
    spec = table("jobs")
    parts = [read_segment(spec, segment) for segment in lake.fetched(lake.segments("jobs"))]
    mine = [part.filter(pc.equal(part["source"], source)) for part in parts]
    if only is not None:
        wanted = pa.array(sorted(only), pa.string())
        mine = [part.filter(pc.is_in(part["job_id"], value_set=wanted)) for part in mine]
    rows = pa.concat_tables([part for part in mine if part.num_rows] or [spec.arrow.empty_table()])
    rows = newest_of_each_key(spec, rows)
    ended = pc.fill_null(pc.less(rows["end_us"], after_us), False)
    is_open = pc.is_in(rows["state"], value_set=pa.array(_OPEN))
    rows = rows.filter(pc.or_(pc.invert(ended), is_open))
    return {row["job_id"]: row for row in rows.to_pylist()}


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    spec = table("jobs")
    used = [c for c in spec.columns if any(c.name in row for row in rows)]
    return pa.table({c.name: pa.array([r.get(c.name) for r in rows], c.type) for c in used})


def _no_room(error: OSError) -> InputError:
    return InputError(
        f"what it says cannot be stored: {error}",
        where=str(error.filename or "the lake"),
        hint="make room; it is asked for again",
    )
