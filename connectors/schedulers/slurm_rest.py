"""``slurm-rest``: jobs as slurmrestd and ``squeue --json``, ``sacct --json`` give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.schedulers.answers import SavedAnswer, document_in, errors_in, refused
from steptax.connectors.schedulers.hostlist import hosts_in
from steptax.connectors.schedulers.jobs_of_records import Jobs, NoJobsError
from steptax.connectors.schedulers.sacct import RecordBatch
from steptax.connectors.schedulers.sacct_rows import Record
from steptax.connectors.schedulers.slurm_values import gpus_in, state_of
from steptax.connectors.tables.norows import no_rows
from steptax.connectors.values import BadValueError

_FAR_S = 2**36
_OVER = ("completed", "failed", "cancelled", "timeout")


class SlurmRestConnector(SavedAnswer):
    """Jobs of Slurm from its JSON."""

    kind = "slurm-rest"
    version = 4
    title = "Slurm's JSON: jobs of slurmrestd (slurm and slurmdb), squeue --json, sacct --json"
    of = "slurmrestd"
    keys = ("jobs", "errors")
    save_by = "sacct --json --allusers > jobs.json"
    doc = (
        "One JSON object with the list 'jobs', as slurmrestd answers /slurm/v0.0.NN/jobs and "
        "/slurmdb/v0.0.NN/jobs, or as squeue, scontrol and sacct print with --json. Numbers may "
        'be plain or {"set": true, "number": 5}; states a word or a list of words.\n'
        "Devices are gres/gpu of tres_alloc_str or of tres.allocated, the total of the job; typed "
        "entries repeat it. GPU-hours are devices times the elapsed time where the answer has "
        "it, else start to end of jobs that are over; of a running job the end is only what its "
        "limit allows, so it is left out, and its GPU-hours are those up to last_update. Its nodes "
        "are where charges of a bill find it.\n"
        "The account is who pays (team). An answer of slurmrestd that is an error is refused; "
        "one that has jobs beside errors is read, and they are shown. A state that Slurm's manual "
        "does not list is unknown, and so are the GPU-hours of a job without any times."
    )

    @property
    def capabilities(self) -> Capabilities:
        """Jobs and their runs."""
        return Capabilities(
            ("jobs", "events"),
            0,
            "jobs, accounts, states, when they ran, devices held, GPU-hours",
            "what happened inside a job: steps, phases, stragglers; which GPU it was",
        )

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Records and rejects; jobs are counted as lines."""
        jobs, now_s, notes = _jobs_of(raw.payload, raw.source)
        records: list[Record] = []
        rejects: list[Reject] = []
        for row, job in enumerate(jobs, 1):
            try:
                if not isinstance(job, dict):
                    raise BadValueError("jobs", "an object for each job", job)
                records.append(_record(job, row, now_s))
            except BadValueError as error:
                rejects.append(refused(error, row, job))
        return [RecordBatch("jobs", no_rows("jobs"), tuple(rejects), notes, tuple(records))]

    def begin(self, source: Path, options: Options) -> Run:
        """Holds all records until the end."""
        return _RestRun(source, options)


@dataclass
class _RestRun(Run):
    source: Path
    options: Options

    def __post_init__(self) -> None:
        self._jobs = Jobs()
        self._refused = False

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold the records back, pass rejects on."""
        if isinstance(batch, RecordBatch):
            self._jobs.add(batch.records)
        self._refused |= bool(batch.rejects)
        yield Batch(batch.table, batch.rows, batch.rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """One row per job."""
        if not len(self._jobs) and not self._refused:
            raise NoJobsError(
                "holds no job", where=str(self.source), hint="check the time that was asked for"
            )
        yield from self._jobs.batches(self.options)


def _jobs_of(data: bytes, where: str) -> tuple[list[Any], int | None, tuple[str, ...]]:
    """The list of jobs, when it was made, and notes; InputError when there is none."""
    found = document_in(data, where)
    jobs = found.get("jobs") if isinstance(found, dict) else None
    told = errors_in(found)
    if not jobs and told:
        # An empty list beside an error is no answer: it must not pass for a cluster without jobs.
        raise InputError(
            f"is an error that slurmrestd answers: {told}",
            where=where,
            hint="mend that, then save the answer of /jobs anew",
        )
    if not isinstance(jobs, list):
        raise InputError("holds no list 'jobs'", where=where, hint="save the answer of /jobs")
    notes = (f"slurmrestd tells of an error, so jobs may be missing: {told}",) if told else ()
    return jobs, _number(found.get("last_update")), notes


def _number(value: Any) -> int | None:
    """A number, plain or as ``{"set": true, "infinite": false, "number": 5}``."""
    if isinstance(value, Mapping):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _FAR_S:
        return None
    return value


def _moment(*values: Any) -> int | None:
    """The first moment in microseconds; 0 means that there is none."""
    for value in values:
        found = _number(value)
        if found:
            return found * 1_000_000
    return None


def _text(*values: Any) -> str | None:
    return next((v for v in values if isinstance(v, str) and v), None)


def _record(job: Mapping[str, Any], row: int, now_s: int | None) -> Record:
    number = _number(job.get("job_id"))
    if number is None:
        raise BadValueError("job_id", "a whole number", job.get("job_id"))
    base = str(number)
    array, time, user = (_object(job.get(name)) for name in ("array", "time", "association"))
    array_id = _number(array.get("job_id", job.get("array_job_id")))
    task = _number(array.get("task_id", job.get("array_task_id")))
    if array_id and task is not None:
        base = f"{array_id}_{task}"
    het = _object(job.get("het"))
    het_id = _number(het.get("job_id", job.get("het_job_id")))
    part = _number(het.get("job_offset", job.get("het_job_offset"))) if het_id else None
    if het_id:
        base = str(het_id)
    state, detail = _state(job)
    start = _moment(time.get("start"), job.get("start_time"))
    end = _moment(time.get("end"), job.get("end_time"))
    elapsed_s = _number(time.get("elapsed"))
    if state == "pending":
        start = end = None  # what the scheduler expects
    elif state not in _OVER and not (state is None and end and now_s and end <= now_s * 1_000_000):
        end = None  # what the limit allows
        if state is not None and elapsed_s is None and start is not None and now_s:
            elapsed_s = max(0, now_s - start // 1_000_000)
    if start is not None and end is not None and end < start:
        raise BadValueError("end_time", "an end after the start", end)
    tres = _tres(job)
    gpus = gpus_in(tres)
    return Record(
        row,
        base,
        part,
        None,
        _text(job.get("cluster")),
        _text(job.get("partition")),
        _text(job.get("name")),
        _text(job.get("user_name"), job.get("user"), user.get("user")),
        _text(job.get("account"), user.get("account")),
        state,
        detail,
        _moment(time.get("submission"), job.get("submit_time")),
        start,
        end,
        None if elapsed_s is None else elapsed_s * 1_000_000,
        gpus.count,
        gpus.models,
        has_start=state == "pending"
        or any(told is not None for told in (time.get("start"), job.get("start_time"))),
        tres_said=bool(tres),
        sliced=gpus.sliced,
        hosts=hosts_in(_text(job.get("nodes")) or ""),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _state(job: Mapping[str, Any]) -> tuple[str | None, str | None]:
    value = job.get("job_state", job.get("state"))
    if isinstance(value, Mapping):
        value = value.get("current")
    if isinstance(value, list):  # flags such as COMPLETING follow the state
        value = value[0] if value else None
    if not isinstance(value, str) or not value.strip():
        return None, None
    return state_of(value)


def _tres(job: Mapping[str, Any]) -> str:
    """What was allocated, as sacct writes it."""
    told = job.get("tres_alloc_str")
    if isinstance(told, str) and told:
        return told
    allocated = _object(job.get("tres")).get("allocated")
    parts = []
    for item in allocated if isinstance(allocated, list) else []:
        own = _object(item)
        name, count = _text(own.get("name")), _number(own.get("count"))
        kind = _text(own.get("type"))
        if kind and count is not None:
            parts.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(parts)
