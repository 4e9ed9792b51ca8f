"""``opencost``: what OpenCost's allocation API tells of pods on Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.schedulers.allocated_jobs import Job
from steptax.connectors.schedulers.allocations import EXPORT_COLUMNS, Allocation, allocations
from steptax.connectors.schedulers.answers import SavedAnswer, refused
from steptax.connectors.schedulers.kube_labels import JOB_LABELS
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.norows import no_rows
from steptax.connectors.values import BadValueError

_TARGETS = ("job_id", "team", "project")


@dataclass(frozen=True)
class AllocationBatch(Batch):
    """Allocations of a source: which of them are one job only its end tells."""

    found: tuple[Allocation, ...] = ()


class OpenCostConnector(SavedAnswer):
    """Jobs from the allocations of OpenCost or Kubecost."""

    kind = "opencost"
    version = 2
    title = "OpenCost and Kubecost: JSON of the allocation API, or the daily CSV export"
    of = "the allocation API"
    keys = ("data", "code")
    save_by = "curl 'http://HOST:9003/allocation?window=7d&aggregate=pod'"
    doc = (
        "The answer of /allocation (or /allocation/compute) of OpenCost or Kubecost, with "
        "aggregate=pod or none. GPU-hours are those that it states: GPUs requested times hours, "
        "used or not. Fractions of a GPU count as such; windows of a series are added.\n"
        "Pods of one job are added: a label names it, of "
        f"{', '.join(JOB_LABELS)}, or the one of --map job_id=LABEL; a pod without one is a job of "
        "its own. The label 'team' of the pod or of its namespace, or the one of --map team=LABEL, "
        "is who pays, else the namespace; --map project=LABEL likewise. Labels are found as "
        "Kubernetes or as Prometheus spells them. What is idle is no job and is told in a note.\n"
        "The CSV export has devices per container and day, but not for how long of it they were "
        "held: GPU-hours stay unknown, and a note says what they can be at most.\n"
        "Costs are list prices times requests and no bill, so they are not stored: connect the "
        "bill. Rows of an answer are counted as lines: the first allocation is 1."
    )

    @property
    def capabilities(self) -> Capabilities:
        """Jobs alone."""
        return Capabilities(
            ("jobs",),
            0,
            "GPU-hours that pods asked for, their namespaces and when they ran",
            "whether the GPUs were used; steps; what was paid",
        )

    def is_answer(self, data: bytes) -> bool:
        """An answer, or the head of the export."""
        first = data.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]
        return super().is_answer(data) or all(name.encode() in first for name in EXPORT_COLUMNS)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Allocations and rejects; the end of the source adds them to jobs."""
        if strange := set(options.mapping) - set(_TARGETS):
            raise InputError(
                f"a label cannot give {', '.join(sorted(strange))}",
                where="--map",
                hint=f"targets are {', '.join(_TARGETS)}, each =LABEL",
            )
        found: list[Allocation] = []
        rejects: list[Reject] = []
        idle_hours = 0.0
        for row, one, value in allocations(raw.payload, raw.source, options):
            if isinstance(one, BadValueError):
                rejects.append(refused(one, row, value))
            elif one.is_idle:
                idle_hours += one.gpu_hours or 0.0
            else:
                found.append(one)
        notes: tuple[str, ...] = ()
        if idle_hours:
            notes += (f"{idle_hours:,.2f} GPU-hours are idle, and no job",)
        if any(one.is_group for one in found):
            notes += ("rows are sums of several pods, not jobs: ask for aggregate=pod",)
        if most := sum(one.most_gpu_hours for one in found):
            notes += (
                f"the export does not say for how long of a day devices were held: GPU-hours are "
                f"unknown, at most {most:,.2f}; the answer of /allocation states them",
            )
        return [AllocationBatch("jobs", no_rows("jobs"), tuple(rejects), notes, tuple(found))]

    def begin(self, source: Path, options: Options) -> Run:
        """Adds the allocations of each job."""
        return _Jobs(source, options)


class _Jobs(Run):
    def __init__(self, source: Path, options: Options) -> None:
        self._source, self._options = source, options
        self._jobs: dict[str, Job] = {}
        self._said = False

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Add what each allocation says of its job; pass rejects and notes on."""
        if isinstance(batch, AllocationBatch):
            for one in batch.found:
                self._jobs.setdefault(one.job_id, Job(one)).add(one)
        self._said |= bool(batch.rejects or batch.notes)
        yield Batch(batch.table, batch.rows, batch.rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """One row per job."""
        if not self._jobs:
            if not self._said:
                raise InputError(
                    "holds no allocation", where=str(self._source), hint="check the window"
                )
            return
        model = {"gpu_model": self._options.gpu_model} if self._options.gpu_model else {}
        rows = [job.row() | model for job in self._jobs.values()]
        yield Batch("jobs", rows_of("jobs", rows))
