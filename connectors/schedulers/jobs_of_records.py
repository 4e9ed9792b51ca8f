"""Records of accounting folded into jobs: steps, requeues and parts of one job belong together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.schedulers.hostlist import tasks_in
from steptax.connectors.schedulers.sacct_rows import Record
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.wording import said

_HOUR_US = 3_600_000_000
_BATCH_JOBS = 50_000
#: Strange states that a note names.
_NAMED = 5
_OVER = ("completed", "failed", "cancelled", "timeout")
#: What the end of an attempt is called that was followed by another one.
_END_KINDS = {"PREEMPTED": "evict", "REVOKED": "evict"}


class NoJobsError(InputError):
    """Accounting that can be read and holds no job: nothing ran in the time that it is of."""

    @property
    def kind(self) -> str:
        """Whoever reads a file is told the same as of any other one that gives nothing."""
        return InputError.__name__


@dataclass
class Jobs:
    """All records of a source, until its end tells which of them are of one job."""

    _records: dict[tuple[str | None, str], list[Record]] = field(default_factory=dict)
    _gpu_partitions: set[str] = field(default_factory=set)
    _strange: Counter[str] = field(default_factory=Counter)

    def add(self, records: Iterable[Record]) -> None:
        """Take records."""
        for record in records:
            self._records.setdefault((record.cluster, record.base), []).append(record)
            if (record.gpus or record.sliced) and record.partition:
                self._gpu_partitions.add(record.partition)

    def __len__(self) -> int:
        return len(self._records)

    def batches(self, options: Options) -> Iterator[Batch]:
        """Rows of ``jobs``, and of ``events`` for jobs that ran more than once."""
        counted: Counter[str] = Counter()
        clusters: dict[str, set[str | None]] = defaultdict(set)
        for cluster, base in self._records:
            clusters[base].add(cluster)
        jobs: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        for (cluster, base), records in self._records.items():
            suffix = ""
            if len(clusters[base]) > 1:
                suffix = f"@{cluster or 'unnamed'}"
                counted["same id on several clusters, called ID@CLUSTER"] += 1
            row, told = self._job(base + suffix, records, options, counted)
            tasks = tasks_in(base)
            # By the names that they keep when they run: that of the rest changes with each of them.
            jobs += (
                [row]
                if tasks is None
                else [
                    {**row, "job_id": task + suffix}
                    for task in tasks
                    if (cluster, task) not in self._records
                ]
            )
            events += told
        if self._strange:
            words = ", ".join(repr(word[:40]) for word, _ in self._strange.most_common(_NAMED))
            more = ", ..." if len(self._strange) > _NAMED else ""
            counted[f"state {words}{more} is not one we know: unknown"] = self._strange.total()
        notes = tuple(f"{said(n, 'job')}: {what}" for what, n in counted.items())
        for at in range(0, len(jobs), _BATCH_JOBS):
            yield Batch("jobs", rows_of("jobs", jobs[at : at + _BATCH_JOBS]), notes=notes)
        if events:
            yield Batch("events", rows_of("events", events))

    def _job(
        self, job_id: str, records: Sequence[Record], options: Options, counted: Counter[str]
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        whole = [r for r in records if r.step is None]
        if not whole:
            counted["only steps are there; their time and devices are taken for the job's"] += 1
            whole = [_of_steps(records)]
        parts: dict[int | None, list[Record]] = defaultdict(list)
        for record in whole:
            parts[record.part].append(record)
        if len(parts) > 1:
            counted["parts of a heterogeneous job are added"] += 1
        attempts = _attempts(parts, counted)
        last = attempts[-1]
        lead = last[0]
        sizes = [self._gpus(r, counted) for r in last]
        hours_us = [self._gpu_us(r) for attempt in attempts for r in attempt]
        if len(parts) > 1 and None in sizes and set(sizes) != {None}:
            # The part that is known was held for certain: all of it would be lost as unknown.
            counted["devices of a part are unknown: what is stored is of its other parts"] += 1
            sizes = [n for n in sizes if n is not None]
            hours_us = [self._gpu_us(r) for a in attempts for r in a if self._known(r) is not None]
        if any(r.differs for attempt in attempts for r in attempt):
            counted[
                "Elapsed differs from End - Start (suspended, clock change): Elapsed is taken"
            ] += 1
        if any(r.held_us is None and self._known(r) != 0 for a in attempts for r in a):
            counted["how long it ran is not told: GPU-hours unknown"] += 1
        if lead.state is None and lead.detail:
            self._strange[lead.detail] += 1
        models = sorted({m for r in last for m in r.models})
        if len(models) > 1:
            counted["devices of several models, so none is named"] += 1
        starts = [r.start_us for attempt in attempts for r in attempt if r.start_us is not None]
        ends = [r.until_us for r in last]
        submits = [r.submit_us for attempt in attempts for r in attempt if r.submit_us is not None]
        row = {
            "job_id": job_id,
            "name": lead.name,
            "team": lead.account,
            "account": lead.account,
            "cluster": lead.cluster,
            "owner": lead.owner,
            "state": lead.state,
            "state_detail": lead.detail,
            "submit_us": min(submits, default=None),
            "start_us": min(starts, default=None),
            "end_us": _latest(ends),
            "gpu_model": models[0] if len(models) == 1 else options.gpu_model,
            "world_size": _sum(sizes),
            "gpu_hours": None if None in hours_us else sum(u or 0 for u in hours_us) / _HOUR_US,
            "time_basis": "wall",
            "hosts": self._hosts(attempts, counted),
            "source_row": whole[0].row,
        }
        if len(attempts) == 1:
            return row, []
        counted["requeued; each run of it is an attempt"] += 1
        return row, list(_events(job_id, attempts, options.attempt))

    def _gpus(self, record: Record, counted: Counter[str]) -> int | None:
        found = self._known(record)
        if record.sliced:
            counted[
                "MIG slices were held, and what part of a device is not told: GPU-hours unknown"
            ] += 1
        elif found is None and record.tres_said:
            counted[
                "in a GPU partition, and its resources do not say how many GPUs: unknown, not 0"
            ] += 1
        return found

    def _hosts(self, attempts: Sequence[Sequence[Record]], counted: Counter[str]) -> str | None:
        """The nodes that held the devices of a job, by commas; None where no one list is true."""
        found: set[tuple[str, ...]] = set()
        for attempt in attempts:
            # Of several parts only those with devices: an even share of them is on each node.
            sizes = [(r, self._known(r)) for r in attempt]
            holders = [r for r, n in sizes if n] or [r for r, n in sizes if n is None]
            if any(r.hosts is None for r in holders):
                counted["the list of its nodes cannot be read, so they are unknown"] += 1
                return None
            shares = {(self._known(r) or 0) / len(r.hosts) for r in holders if r.hosts}
            if len(shares) > 1:
                counted["its parts hold unlike numbers of devices per node: nodes unknown"] += 1
                return None
            found.add(tuple(dict.fromkeys(host for r in holders for host in r.hosts or ())))
        found.discard(())
        if len(found) > 1:
            counted["ran on other nodes after a requeue, so no one list of them is true"] += 1
        return ",".join(*found) if len(found) == 1 else None

    def _known(self, record: Record) -> int | None:
        """Devices; resources without any are none at all only outside of GPU partitions."""
        if record.sliced:
            return None
        if record.gpus is not None or not record.tres_said:
            return record.gpus
        partition = record.partition or ""
        return None if partition in self._gpu_partitions or "gpu" in partition.lower() else 0

    def _gpu_us(self, record: Record) -> int | None:
        held, gpus = record.held_us, self._known(record)
        if held == 0 or gpus == 0:
            return 0
        return None if held is None or gpus is None else held * gpus


def _attempts(parts: dict[int | None, list[Record]], counted: Counter[str]) -> list[list[Record]]:
    """The runs of a job in their order, each with the records of its parts."""
    runs = []
    for _, records in sorted(parts.items(), key=lambda pair: pair[0] or 0):
        by_start: dict[int | None, Record] = {}
        for record in records:
            known = by_start.get(record.start_us)
            if known is not None:
                counted["told twice; the state that is over, or the later line, holds"] += 1
            if known is None or known.state not in _OVER or record.state in _OVER:
                by_start[record.start_us] = record
        # Without a start: cancelled before it, or waiting to run again.
        started = sorted(
            (r for r in by_start.values() if r.start_us is not None), key=lambda r: r.start_us or 0
        )
        waits = [r for r in by_start.values() if r.start_us is None]
        runs.append([*started, *waits])
    most = max(len(own) for own in runs)
    return [[own[i] for own in runs if i < len(own)] for i in range(most)]


def _of_steps(steps: Sequence[Record]) -> Record:
    """What the steps of a job tell of it, where its allocation is not there."""
    first = steps[0]
    starts = [s.start_us for s in steps if s.start_us is not None]
    ends = [s.end_us for s in steps]
    start, end = min(starts, default=None), _latest(ends)
    alone = first.elapsed_us if len(steps) == 1 else None
    elapsed = end - start if alone is None and start is not None and end is not None else alone
    gpus = [s.gpus for s in steps if s.gpus is not None]
    return Record(
        first.row,
        first.base,
        cluster=first.cluster,
        partition=first.partition,
        owner=first.owner,
        account=first.account,
        state=first.state if len(steps) == 1 else None,
        detail=first.detail if len(steps) == 1 else None,
        start_us=start,
        end_us=end,
        elapsed_us=elapsed,
        gpus=max(gpus, default=None),
        models=tuple(sorted({m for s in steps for m in s.models})),
        has_start=first.has_start,
        tres_said=any(s.tres_said for s in steps),
        sliced=any(s.sliced for s in steps),
        hosts=tuple(dict.fromkeys(host for s in steps for host in s.hosts or ())),
    )


def _events(
    job_id: str, attempts: Sequence[Sequence[Record]], first: int
) -> Iterator[dict[str, Any]]:
    """When each run began and ended, and why the runs before the last one ended."""
    for number, attempt in enumerate(attempts):
        starts = [r.start_us for r in attempt if r.start_us is not None]
        end = _latest([r.until_us for r in attempt])
        if not starts:
            continue
        always = {"job_id": job_id, "attempt": first + number, "source_row": attempt[0].row}
        yield always | {"kind": "allocated", "start_us": min(starts)}
        if end is None:
            continue
        detail = attempt[0].detail
        if attempt[0].state in ("failed", "timeout") or detail in _END_KINDS:
            kind = _END_KINDS.get(detail or "", "failure")
            yield always | {"kind": kind, "start_us": end, "detail": detail}
        yield always | {"kind": "process_end", "start_us": end, "detail": detail}


def _latest(ends: Sequence[int | None]) -> int | None:
    """The latest end; None while one is not known."""
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(v or 0 for v in values)
