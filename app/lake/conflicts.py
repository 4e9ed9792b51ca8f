"""Rows whose key is stored with other values: said with both sources, and never merged unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.lake.commits import CommitLog
from steptax.app.lake.duplicates import Duplicate, newest_attempts

#: Tables whose moments tell whether an input is of a later run of the same job.
_RUN_TABLES = ("steps", "printed_metrics")
_NAMED = 3
#: Two sources tell of the same moments when theirs are no further apart.
_SAME_US = 5_000_000
#: Clocks of two time zones differ by a multiple of this, and by no more than that.
_ZONE_US = 900_000_000
_FARTHEST_ZONE_US = 14 * 3_600_000_000


class LaterRunError(InputError):
    """An input tells steps of a job again that an earlier run of it has told.

    ``attempt`` is the newest attempt of the job that it contradicts; ``executed`` is whether it
    does so in the time of steps, and not in printed values alone; ``is_doubtful`` is whether the
    run may be the same one, by a clock of another time zone.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str,
        hint: str,
        attempt: int,
        executed: bool,
        is_doubtful: bool = False,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.attempt = attempt
        self.executed = executed
        self.is_doubtful = is_doubtful

    def at(self, path: Path) -> LaterRunError:
        """The same, with the path of the input."""
        return LaterRunError(
            self.message,
            where=str(path),
            hint=self.hint or "",
            attempt=self.attempt,
            executed=self.executed,
            is_doubtful=self.is_doubtful,
        )


@dataclass
class Conflicts:
    """What an input contradicts, table by table. ``source`` is the input."""

    source: str
    commits: CommitLog
    _found: dict[tuple[str, str | None], list[Duplicate]] = field(default_factory=dict)

    def add(self, table: str, job: str | None, duplicates: Sequence[Duplicate]) -> None:
        """Those of ``duplicates`` that contradict a stored row."""
        found = [duplicate for duplicate in duplicates if duplicate.differs is not None]
        if found:
            found.sort(key=lambda d: (d.attempt or 0, d.step or 0, d.source_row or 0))
            self._found[table, job] = found

    @property
    def counts(self) -> dict[str, int]:
        """Rows that contradict a stored one, by table."""
        counts: dict[str, int] = {}
        for (table, _), found in self._found.items():
            counts[table] = counts.get(table, 0) + len(found)
        return counts

    def notes(self) -> list[str]:
        """One for each table and job: how many, where from, an example, and what to do."""
        notes = []
        for (table, job), found in self._found.items():
            first = found[0]
            of_job = "" if job is None else f" of job {job}"
            rows = "1 row" if len(found) == 1 else f"{len(found):,} rows"
            apart = _apart_us(found)
            if job is None:
                what = "keep one of the two sources"
            elif apart and max(map(abs, apart)) <= _SAME_US:
                what = "both tell of the same moments: one run, of which two sources tell"
            else:
                what = (
                    "two different jobs? ingest this one with --job NAME into a lake that has not "
                    "seen it; a later run of the same job? --attempt N"
                )
            notes.append(
                f"CONFLICT: {rows} of {table}{of_job} contradict what is stored from "
                f"{self._stored(job, found)}: {first.key}: {first.differs}. The stored ones are "
                f"kept, those of {self.source} are left out ({what})"
            )
        return notes

    def refuse_later_run(self, *, local_clock: bool = False) -> None:
        """LaterRunError where the rows are of a later run: its moments lie after the stored ones.

        Of a ``local_clock``, whose zone nobody named, also where all of them lie whole hours before
        or behind: only a person knows whether the run is the same, by a clock of another zone. A
        log or its steps are told apart by their moments only; rows without any are counted.
        """
        of_runs = [key for key in self._found if key[0] in _RUN_TABLES]
        for table, job in sorted(of_runs, key=lambda key: _RUN_TABLES.index(key[0])):
            found = self._found[table, job]
            told = [
                (d.moment_us, d.stored_moment_us)
                for d in found
                if d.moment_us is not None and d.stored_moment_us is not None
            ]
            zone = _zone_us(_apart_us(found)) if local_clock else None
            is_later = bool(told) and min(new for new, _ in told) > max(old for _, old in told)
            if zone is None and not is_later:
                continue
            steps = [d.step for d in found if d.step is not None]
            attempt = max((d.attempt for d in found if d.attempt is not None), default=0)
            span = f"steps {min(steps)} to {max(steps)}" if steps else "steps"
            how = "later and with other values than" if is_later else "with other values than"
            again = f"tells {span} of job {job} again, {how} {self._stored(job, found)}"
            hint = f"a later run of the same job: --attempt {attempt + 1}; another job: --job NAME"
            if zone is not None:
                side = "behind" if zone > 0 else "before"
                again += f", each {abs(zone) / 3_600_000_000:g} h {side} it"
                hint += "; the same run, by a local clock: --timezone ZONE"
            raise LaterRunError(
                again,
                where=self.source,
                hint=hint,
                attempt=attempt,
                executed=table == "steps",
                is_doubtful=zone is not None,
            )

    def refuse_older_attempt(
        self, job: str, staged: Sequence[Path], stored: Sequence[Path]
    ) -> None:
        """LaterRunError where steps begin after a newer attempt than the one they are put in."""
        found = newest_attempts(staged, stored)
        if found is None:
            return
        attempt, begins_us, newest, ended_us = found
        if attempt < newest and begins_us > ended_us:
            raise LaterRunError(
                f"begins after attempt {newest} of job {job}",
                where=self.source,
                hint=f"it is of the newest attempt, or a new one: --attempt {newest + 1}; another "
                "job: --job NAME",
                attempt=newest - 1,
                executed=True,
            )

    def _stored(self, job: str | None, found: Sequence[Duplicate]) -> str:
        """The sources of the stored rows, by path where the lake knows it."""
        names = dict.fromkeys(d.stored_source for d in found if d.stored_source is not None)
        said = []
        for name in names:
            paths = {
                str(commit.detail["path"])
                for commit in self.commits.all().values()
                if commit.detail.get("source") == name
                and "path" in commit.detail
                and (job is None or job in commit.detail.get("job_ids", ()))
            }
            said.append(f"{name} ({', '.join(sorted(paths)[:_NAMED])})" if paths else name)
        more = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
        return ", ".join(said[:_NAMED]) + more


def _apart_us(found: Sequence[Duplicate]) -> list[int]:
    """By how much later each row happened than the stored one; of rows that tell it."""
    return [
        d.moment_us - d.stored_moment_us
        for d in found
        if d.moment_us is not None and d.stored_moment_us is not None
    ]


def _zone_us(apart_us: Sequence[int]) -> int | None:
    """By how much two clocks of different time zones differ; None where no such pair fits.

    A run that is executed again an exact number of quarters of an hour later looks the same, to
    within seconds in each of its steps; that is rare.
    """
    if len(apart_us) < 2:
        return None
    shift = round(apart_us[0] / _ZONE_US) * _ZONE_US
    if not shift or abs(shift) > _FARTHEST_ZONE_US:
        return None
    return shift if all(abs(us - shift) <= _SAME_US for us in apart_us) else None
