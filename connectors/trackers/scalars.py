"""What the connectors of experiment trackers share: scalars by tag and step in, rows out.

A tracker is written by one process for the whole job and does not say by which, so every value is
the job's: it becomes a row of ``printed_metrics`` without a rank, and never a row of ``steps``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject, table
from steptax.connectors.base import Options, Run
from steptax.connectors.logs.marks import printed
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.trackers.tags import VERSUS_SAMPLES, choose_loss, may_be_loss
from steptax.connectors.wording import said as counted

LOSS = "loss"
_FAR_US = 2**53
_STEP_LIMIT = 2**53
TABLES = ("printed_metrics", "jobs", "events")
SEES = "loss and other scalars of the job over steps and time, as it logged them"
CANNOT = (
    "the ranks: a tracker is written by one process for all of them; the recorder or per-rank step "
    "times would tell who is slow"
)
NO_CLOCK = "no value has a time: the loss cannot be set against dollars"


@dataclass(frozen=True, slots=True)
class Point:
    """A scalar of the job. ``row`` is its record or line in the source, from 1."""

    tag: str
    step: int
    value: float
    at_us: int | None
    row: int
    text: str | None = None
    """Letter by letter, where the source holds text."""


@dataclass(frozen=True, slots=True)
class Writer:
    """From here on another process writes: what it repeats was run again."""

    row: int


@dataclass(frozen=True)
class TrackerBatch(Batch):
    """Points of a stretch, in order, and what it says of the run (columns of ``jobs``)."""

    points: tuple[Point | Writer, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@cache
def _nothing() -> pa.Table:
    """No rows; made when it is asked for, because empty columns make pyarrow import pandas."""
    return table("printed_metrics").arrow.empty_table().drop_columns(["source", "ingested_at_us"])


def tracker_batch(
    points: Iterable[Point | Writer],
    rejects: Iterable[Reject] = (),
    *,
    facts: Mapping[str, Any] | None = None,
    notes: Iterable[str] = (),
) -> TrackerBatch:
    """What ``parse`` gives: nothing of it is a row yet."""
    return TrackerBatch(
        "printed_metrics",
        _nothing(),
        tuple(rejects),
        tuple(notes),
        points=tuple(points),
        facts=facts or {},
    )


def moment_us(seconds: float | None) -> int | None:
    """Seconds since 1970 as microseconds; None where they cannot be a moment."""
    if seconds is None or not math.isfinite(seconds) or not 0 < seconds * 1e6 < _FAR_US:
        return None
    return round(seconds * 1e6)


def whole_step(value: object) -> int | None:
    """A step number; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < _STEP_LIMIT or value != int(value):
        return None
    return int(value)


class Attempts:
    """Which attempt a point belongs to.

    Training went back, and a new attempt begins, where the steps of the loss do; and behind a new
    writer, or with ``every_tag``, where those of any tag do. Else another tag may have a count of
    its own (an evaluation, say).
    """

    def __init__(self, first: int, wanted: str | None, *, every_tag: bool = False) -> None:
        self.number = first
        self._wanted = wanted
        self._every_tag = every_tag
        self._newest: dict[str, int] = {}
        self._is_new_writer = False

    def new_writer(self) -> None:
        """If the next tag that was there before goes back, an attempt begins."""
        self._is_new_writer = bool(self._newest)

    def of(self, point: Point) -> int:
        """The attempt of ``point``, which comes behind all points before."""
        last = self._newest.get(point.tag)
        if last is not None and (
            (point.step <= last and self._is_new_writer)
            or (point.step < last and (self._every_tag or may_be_loss(point.tag, self._wanted)))
        ):
            self.number += 1
            self._newest.clear()
        if last is not None:
            self._is_new_writer = False
        self._newest[point.tag] = max(point.step, self._newest.get(point.tag, 0))
        return self.number


class TrackerRun(Run):
    """Makes rows of one source's points.

    ``job_id`` is the job where nobody names one. ``earlier`` are points of other files of the same
    run, which only tell where this one goes on; ``tags`` those of its other files. ``every_tag``:
    see `Attempts`.
    """

    def __init__(
        self,
        source: Path,
        options: Options,
        *,
        kind: str,
        job_id: str,
        earlier: Iterable[Point | Writer] = (),
        tags: Iterable[str] = (),
        every_tag: bool = False,
    ) -> None:
        self._source, self._options, self._kind = source, options, kind
        self._wanted = options.extra.get("loss_tag")
        self._job_id = options.job_id or job_id
        self._attempts = Attempts(options.attempt, self._wanted, every_tag=every_tag)
        self._tags: dict[str, None] = dict.fromkeys(tags)
        self._held: dict[str, list[tuple[Point, int]]] = {}
        self._facts: dict[str, Any] = {}
        self._units: dict[str, str | None] = {}
        self._times_us: list[int] = []
        self._count = self._rejected = self._by_samples = 0
        for item in earlier:
            if isinstance(item, Writer):
                self._attempts.new_writer()
            else:
                self._attempts.of(item)
                self._tags.setdefault(item.tag)

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Rows of what is no loss; what may be one waits for the end."""
        assert isinstance(batch, TrackerBatch)
        self._rejected += len(batch.rejects)
        before = self._facts.get("start_us")
        self._facts.update({k: v for k, v in batch.facts.items() if v is not None})
        if before is not None:
            self._facts["start_us"] = min(before, self._facts["start_us"])
        rows = []
        for point in batch.points:
            if isinstance(point, Writer):
                self._attempts.new_writer()
                continue
            if point.tag.lower().endswith(VERSUS_SAMPLES):
                self._by_samples += 1
                continue
            self._count += 1
            self._tags.setdefault(point.tag)
            attempt = self._attempts.of(point)
            if point.at_us is not None:
                self._times_us = [
                    min([point.at_us, *self._times_us[:1]]),
                    max([point.at_us, *self._times_us[1:]]),
                ]
            if may_be_loss(point.tag, self._wanted) or point.tag == LOSS:
                self._held.setdefault(point.tag, []).append((point, attempt))
            else:
                rows.append(self._row(point, attempt, point.tag))
        found = rows_of("printed_metrics", rows) if rows else _nothing()
        yield Batch("printed_metrics", found, batch.rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """What may have been the loss, under its name; and what is known of the job.

        InputError when the source holds no scalar at all.
        """
        if not self._count and not self._rejected:
            raise InputError(
                "holds no scalars",
                where=str(self._source),
                hint=f"name a file of kind {self._kind} with a value by step in it",
            )
        loss, note = choose_loss(self._tags, self._wanted)
        rows = [
            self._row(point, attempt, LOSS if tag == loss else _other(tag))
            for tag, held in self._held.items()
            for point, attempt in held
        ]
        notes = [note] if note and self._count else []
        if self._by_samples:
            notes.append(
                counted(
                    self._by_samples,
                    "value counts samples, not steps ('... vs samples'), and is",
                    "values count samples, not steps ('... vs samples'), and are",
                )
                + " left out; the same values stand under the tags without it"
            )
        if self._count and not self._times_us:
            notes.append(NO_CLOCK)
        self._held = {}
        found = rows_of("printed_metrics", rows) if rows else _nothing()
        yield Batch("printed_metrics", found, notes=tuple(notes))
        if self._count:
            yield from self._about_job()

    def _about_job(self) -> Iterator[Batch]:
        options, facts = self._options, dict(self._facts)
        start_us = facts.pop("start_us", None)
        if start_us is not None and self._times_us and start_us > self._times_us[0]:
            start_us = None  # written later than what is in it: its moments are made up
        job: dict[str, Any] = {"job_id": self._job_id}
        if options.job_id is None:
            # A job that the person names has a record of its own, which knows better.
            first = min([t for t in (start_us, *self._times_us[:1]) if t is not None], default=None)
            job |= facts | {"start_us": first}
            if facts.get("state") in ("completed", "failed", "cancelled"):
                job.setdefault("end_us", self._times_us[1] if self._times_us else None)
        if options.world_size is not None:
            job["world_size"] = options.world_size
        if options.gpu_model is not None:
            job["gpu_model"] = options.gpu_model
        notes: tuple[str, ...] = ()
        if options.world_size is None:
            notes = (
                "a tracker does not say how many ranks the job has: give --world-size for dollars, "
                "unless its record is in the lake",
            )
        yield Batch("jobs", rows_of("jobs", [job]), notes=notes)
        if start_us is not None:
            event = {
                "job_id": self._job_id,
                "attempt": options.attempt,
                "start_us": start_us,
                "kind": "process_start",
                "detail": f"the run of {self._kind} began",
            }
            yield Batch("events", rows_of("events", [event]))

    def _row(self, point: Point, attempt: int, name: str) -> dict[str, Any]:
        tag = point.tag
        text = repr(point.value) if point.text is None else point.text
        if tag not in self._units:
            self._units[tag] = printed(tag, "0").unit or None
        return {
            "job_id": self._job_id,
            "attempt": attempt,
            "step": point.step,
            "subject": "job",
            "name": name,
            "value": point.value if math.isfinite(point.value) else None,
            "unit": self._units[tag],
            "text": text[:200],
            "printed_as": tag,
            "at_us": point.at_us,
            "source_row": point.row,
        }


def _other(tag: str) -> str:
    """Name of a tag that is not the loss: ``loss`` is taken."""
    return tag if tag != LOSS else "loss (tag)"
