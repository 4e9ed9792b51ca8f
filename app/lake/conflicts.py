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


class LaterRunError(InputError):
    """An input tells steps of a job again that an earlier run of it has told.

    ``attempt`` is the newest attempt of the job that it contradicts; ``executed`` is whether it
    does so in the time of steps, and not in printed values alone.
    """

    def __init__(
        self, message: str, *, where: str, hint: str, attempt: int, executed: bool
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.attempt = attempt
        self.executed = executed

    def at(self, path: Path) -> LaterRunError:
        """The same, with the path of the input."""
        return LaterRunError(
            self.message,
            where=str(path),
            hint=self.hint or "",
            attempt=self.attempt,
            executed=self.executed,
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
            what = (
                "two different jobs? ingest this one with --job NAME into a lake that has not seen "
                "it; a later run of the same job? --attempt N"
                if job is not None
                else "keep one of the two sources"
            )
            notes.append(
                f"CONFLICT: {rows} of {table}{of_job} contradict what is stored from "
                f"{self._stored(job, found)}: {first.key}: {first.differs}. The stored ones are "
                f"kept, those of {self.source} are left out ({what})"
            )
        return notes

    def refuse_later_run(self) -> None:
        """LaterRunError where the rows are of a later run: its moments lie after the stored ones.

        A log or its steps are told apart by their moments only; rows without any are counted.
        """
        of_runs = [key for key in self._found if key[0] in _RUN_TABLES]
        for table, job in sorted(of_runs, key=lambda key: _RUN_TABLES.index(key[0])):
            found = self._found[table, job]
            told = [
                (d.moment_us, d.stored_moment_us)
                for d in found
                if d.moment_us is not None and d.stored_moment_us is not None
            ]
            if not told or min(new for new, _ in told) <= max(old for _, old in told):
                continue
            steps = [d.step for d in found if d.step is not None]
            attempt = max((d.attempt for d in found if d.attempt is not None), default=0)
            span = f"steps {min(steps)} to {max(steps)}" if steps else "steps"
            raise LaterRunError(
                f"tells {span} of job {job} again, later and with other values than "
                f"{self._stored(job, found)}",
                where=self.source,
                hint=f"a later run of the same job: --attempt {attempt + 1}; another job: "
                "--job NAME",
                attempt=attempt,
                executed=table == "steps",
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
