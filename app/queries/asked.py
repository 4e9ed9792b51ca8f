"""What is asked of an engine: a named query, its parameters, and the segments that it must read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from steptax.app.lake import Lake, Segment
from steptax.app.lake.kept import kept_parts
from steptax.app.lake.segments import order_column
from steptax.app.queries.arrays import Columns
from steptax.app.queries.texts import PARTS, SPANS, Query, query
from steptax.app.schema import table
from steptax.app.schema.rollups import LEVELS


class Engine(Protocol):
    """Whatever runs named queries on a lake."""

    @property
    def lake(self) -> Lake:
        """The lake that is asked."""

    def run(
        self,
        name: str,
        *,
        job_id: str | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        jobs: Collection[str] | None = None,
        **parameters: object,
    ) -> pa.Table:
        """Run query ``name``; by-job tables are read for ``job_id`` only, when it is given.

        Given ``jobs``, by-job tables are read for those alone: who asks about many small jobs
        need not read through a big one beside them.

        ``first_step`` and ``last_step`` leave out segments that hold no such step, and the
        parameters ``first_us`` and ``last_us`` samples of other moments; a query that must filter
        exactly says so in its text.
        """

    def arrays(
        self, name: str, *, job_id: str, first_step: int | None = None, last_step: int | None = None
    ) -> Columns:
        """The rows of query ``name``, of which all columns are numbers, as columns for numpy.

        One that is null throughout is left out; one with nulls is in float64, and NaN there. Of
        very many rows they take a fraction of what ``run`` takes.
        """

    def roll_up(self) -> int:
        """Store the roll-ups that segments lack; for how many segments one was made."""


@dataclass(frozen=True)
class Asked:
    """One question: the query's text, the values of its parameters, and what it is about."""

    query: Query
    values: Mapping[str, Any]
    job_id: str | None
    spans: Mapping[str, tuple[Any, Any]]
    jobs: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        job_id: str | None,
        first_step: int | None,
        last_step: int | None,
        parameters: Mapping[str, object],
        jobs: Collection[str] | None = None,
    ) -> Asked:
        """What ``Engine.run`` was given; KeyError names a parameter that is missing."""
        spec = query(name)
        available: dict[str, object] = {
            "job_id": job_id,
            "first_step": first_step,
            "last_step": last_step,
            **parameters,
        }
        spans = {
            "step": (first_step, last_step),
            "ts_us": (parameters.get("first_us"), parameters.get("last_us")),
        }
        values = {key: available[key] for key in spec.parameters}
        return cls(spec, values, job_id, spans, None if jobs is None else frozenset(jobs))

    @property
    def levels(self) -> Mapping[str, str]:
        """Level by the relation that the query calls it: merged, or as it is stored."""
        merged = {level: level for level in self.query.levels}
        parts = {f"{level}{PARTS}": level for level in self.query.parts}
        return merged | parts | {f"{level}{SPANS}": level for level in self.query.spans}

    def span(self, relation: str) -> int | None:
        """Width to which parts of ``relation`` may be added up; None where they may not be."""
        width = self.values.get("window_steps")
        level = relation.removesuffix(SPANS)
        is_one = level in self.query.spans and width in LEVELS[level].spans
        return int(str(width)) if is_one else None

    def segments(self, lake: Lake, name: str, *, here: bool = True) -> Sequence[Segment]:
        """Segments of the table ``name`` that may hold what is asked for; ``here``: as files."""
        own = table(name)
        first, last = self.spans.get(order_column(own.names) or "", (None, None))
        job = self.job_id if own.by_job else None
        found = self._of_jobs(lake.segments(name, job, first_step=first, last_step=last))
        return lake.fetched(found) if here else found

    def rolled_segments(self, lake: Lake, level: str, *, here: bool = True) -> Sequence[Segment]:
        """Segments below the roll-up ``level``; buckets that hold the ends are whole."""
        first, last = self._buckets(level)
        job, own = self._job_of(level), LEVELS[level].table
        found = self._of_jobs(lake.segments(own, job, first_step=first, last_step=last))
        return lake.fetched(found) if here else found

    def kept(self, lake: Lake, level: str, *, here: bool = True) -> Sequence[Segment]:
        """Parts of ``level`` that stand for rows which retention dropped."""
        first, last = self._buckets(level)
        found = self._of_jobs(
            kept_parts(lake, LEVELS[level], level, self._job_of(level), first=first, last=last)
        )
        return lake.fetched(found) if here else found

    def _of_jobs(self, found: Sequence[Segment]) -> Sequence[Segment]:
        if self.jobs is None:
            return found
        return [s for s in found if s.job_id is None or s.job_id in self.jobs]

    def _job_of(self, level: str) -> str | None:
        return self.job_id if table(LEVELS[level].table).by_job else None

    def _buckets(self, level: str) -> tuple[int | None, int | None]:
        rollup = LEVELS[level]
        width = rollup.levels[level]
        first, last = self.spans[rollup.at]
        return (
            None if first is None else first - first % width,
            None if last is None else last - last % width + width - 1,
        )
