"""Reads the operations of a job, or of a file, and analyses them: what all trace views rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import InputError, NotFoundError, UserError
from steptax.app.whatif import GraphError, JobSizes, WhatIfResult, analyse_file, analyse_ops
from steptax.app.whatif.analysis import THRESHOLD, Analysis, analyse, prepare
from steptax.app.whatif.findings import Findings
from steptax.app.whatif.pattern import Pattern, find_pattern, pattern_of_shares
from steptax.app.whatif.report import build_result, refused_result
from steptax.app.whatif.rows import numbers as flat
from steptax.app.whatif.trace import read_trace

if TYPE_CHECKING:  # each takes a quarter of a second, and a file needs neither
    from steptax.app.views.workspace import Workspace
    from steptax.app.whatif.coarse import Coarse

#: Operations that one view may load; beyond it the last steps are taken, and it says so.
MAX_OP_ROWS = 4_000_000

StepRanges = Sequence[tuple[int, int]]
"""Steps to look at, first and last of each range, both included; none at all means every step."""


@dataclass(frozen=True, eq=False)
class TraceJob:
    """A job that was read and analysed; it knows no price.

    ``coarse`` has per-rank times where there is no dependency graph and these tell something;
    ``no_graph`` says why there is none. ``hosts`` by rank. ``version`` changes when the rows of the
    job may have changed; empty for a file.
    """

    job_id: str
    result: WhatIfResult
    pattern: Pattern
    steps_note: str
    coarse: Coarse | None = None
    no_graph: str | None = None
    notes: tuple[str, ...] = ()
    hosts: Mapping[int, str | None] = field(default_factory=dict)
    layers: int | None = None
    """Transformer layers of the model, where the job's record has them."""
    version: str = ""

    @property
    def analysis(self) -> Analysis | None:
        """The analysis with its dependency graph of a pipeline; None where there is none."""
        found = self.result.analysis
        return found if isinstance(found, Analysis) else None


def open_trace(
    ws: Workspace,
    job_id: str,
    *,
    steps: StepRanges = (),
    threshold: float = THRESHOLD,
    max_rows: int = MAX_OP_ROWS,
    in_stream: Sequence[str] = (),
    align_clocks: bool = False,
) -> TraceJob:
    """Analyse the operations of ``job_id``, or its per-rank steps where there are none.

    ``steps`` restricts means and ideal work; decompositions are told from a slowdown of
    ``threshold`` on; ``in_stream`` and ``align_clocks`` as ``analyse_ops`` has them.
    NotFoundError for an unknown job, one without steps, or steps that it lacks.
    """
    job = ws.job(job_id)
    version = ws.version(job_id)
    hosts = {
        row["rank"]: row["host"] for row in ws.engine.run("rank_places", job_id=job_id).to_pylist()
    }
    more: dict[str, Any] = {"hosts": hosts, "layers": job.get("layers"), "version": version}
    if not ws.lake.segments("ops", job_id):
        reason = (
            "only per-rank steps are stored: a per-operation trace gives the dependency graph "
            "(steptax ingest ops FILE)"
        )
        return _without_operations(ws, job, steps, reason, more)
    try:
        result, note = _from_lake(
            ws, job, steps, threshold, max_rows, in_stream=in_stream, align_clocks=align_clocks
        )
    except NotFoundError:
        raise
    except InputError as error:
        return _without_operations(ws, job, steps, f"no dependency graph: {error}", more)
    if result.S.value is None:
        reason = _reason(result)
        return _without_operations(ws, job, steps, reason, more, result)
    return _job(job_id, result, note, more)


def open_trace_file(
    path: Path,
    sizes: JobSizes | Mapping[str, Any] | None = None,
    *,
    steps: StepRanges = (),
    threshold: float = THRESHOLD,
    unit: str = "s",
    in_stream: Sequence[str] = (),
    align_clocks: bool = False,
) -> TraceJob:
    """The same for a Parquet file of operations, without a lake; see ``analyse_file``."""
    result = analyse_file(
        path,
        sizes=sizes,
        threshold=threshold,
        unit=unit,
        in_stream=in_stream,
        align_clocks=align_clocks,
    )
    name = path.stem
    if result.S.value is None:
        from steptax.app.whatif.coarse import LABEL, coarse_of_trace, coarse_pattern

        coarse = coarse_of_trace(read_trace(path, sizes, unit=unit, in_stream=in_stream))
        reason = _reason(result)
        note = f"{len(coarse.part.steps):,} steps, {LABEL}"
        return TraceJob(name, result, coarse_pattern(coarse), note, coarse, no_graph=reason)
    if isinstance(result.analysis, Analysis):
        labels = _labels(result.analysis.model.trace.steps, steps, str(path))
        result = _only(result, labels, threshold)
    return _job(name, result, None, {})


def _job(job_id: str, result: WhatIfResult, note: str | None, more: dict[str, Any]) -> TraceJob:
    analysis = result.analysis
    if isinstance(analysis, Analysis):
        pattern = find_pattern(analysis)
        trace = analysis.model.trace
        said = f"{len(trace.steps):,} steps, {trace.steps[0]} to {trace.steps[-1]}"
    else:
        pattern = pattern_of_shares(result)
        used = () if result.generic is None else result.generic.model.step_labels
        said = f"{len(used):,} of {result.findings.recorded_steps:,} steps"
    notes = () if note is None else (note,)
    return TraceJob(job_id, result, pattern, note or said, notes=notes, **more)


def _from_lake(
    ws: Workspace,
    job: dict[str, Any],
    steps: StepRanges,
    threshold: float,
    max_rows: int,
    **how: Any,
) -> tuple[WhatIfResult, str | None]:
    """The result, and a note where not every step was loaded; ``how`` goes to ``analyse_ops``."""
    job_id = job["job_id"]
    counts = ws.engine.run("op_counts", job_id=job_id)
    # Not ``to_numpy``: it imports pandas, which takes longer than all of the analysis.
    (numbers, _), (rows, _) = (flat(counts[name], name) for name in ("step", "row_count"))
    labels = _labels(numbers.tolist(), steps, str(ws.root))
    note = None
    if int(rows.sum()) > max_rows:
        wanted = np.ones(len(numbers), bool) if labels is None else np.isin(numbers, labels)
        backwards = np.cumsum(rows[wanted][::-1])
        fit = max(1, int((backwards <= max_rows).sum()))
        chosen = numbers[wanted][-fit:]
        if fit < int(wanted.sum()):
            note = (
                f"the last {fit:,} of {int(wanted.sum()):,} steps: all of them are more than "
                f"{max_rows:,} operations"
            )
            labels = chosen.tolist()
        first, last = int(chosen[0]), int(chosen[-1])
    else:
        first, last = int(numbers[0]), int(numbers[-1])
    table = ws.engine.run("trace_ops", job_id=job_id, first_step=first, last_step=last)
    how |= {"sizes": _sizes(job), "threshold": threshold}
    result = analyse_ops(table, **how)
    if isinstance(result.analysis, Analysis):
        return _only(result, labels, threshold), note
    if labels is not None and result.S.value is not None:
        result = analyse_ops(table, steps=labels, **how)
    return result, note


def _sizes(job: dict[str, Any]) -> JobSizes:
    """The job's sizes; of those that contradict each other the world size alone."""
    keys = ("dp_size", "pp_size", "tp_size", "dsp_size", "vpp_size", "world_size", "name")
    try:
        return JobSizes.from_mapping({key: job.get(key) for key in keys})
    except InputError:
        return JobSizes(world=job.get("world_size"), name=job.get("name"))


def _labels(recorded: Sequence[int], ranges: StepRanges, where: str) -> list[int] | None:
    """Recorded steps in ``ranges``; None for all. NotFoundError when there is none."""
    if not ranges:
        return None
    found = [s for s in recorded if any(first <= s <= last for first, last in ranges)]
    if not found:
        listed = ", ".join(map(str, recorded[:10])) + (", ..." if len(recorded) > 10 else "")
        raise NotFoundError(
            "no recorded step lies in that range", where=where, hint=f"there are {listed}"
        )
    return found


def _only(result: WhatIfResult, labels: list[int] | None, threshold: float) -> WhatIfResult:
    """The result over the steps ``labels`` alone; the graph stays that of the whole trace."""
    analysis = result.analysis
    if labels is None or not isinstance(analysis, Analysis):
        return result
    trace = analysis.model.trace
    usable = [s for s in labels if s in set(trace.steps)]
    if len(usable) == len(trace.steps):
        return result
    if not usable:
        raise UserError(
            "none of the chosen steps can be used",
            where="steps",
            hint="; ".join(d.where + ": " + d.reason for d in result.findings.dropped[:3]),
        )
    try:
        model = prepare(trace, steps=usable)
    except GraphError as error:  # It had one with all steps, so this is not to be expected.
        return refused_result(trace.findings, str(error), result.estimate)
    # Preparing anew says everything about the trace once more.
    findings = model.trace.findings
    findings = replace(findings, warnings=tuple(dict.fromkeys(findings.warnings)))
    model = replace(model, trace=replace(model.trace, findings=findings))
    return build_result(analyse(model, threshold=threshold))


def _without_operations(
    ws: Workspace,
    job: dict[str, Any],
    steps: StepRanges,
    reason: str,
    more: dict[str, Any],
    result: WhatIfResult | None = None,
) -> TraceJob:
    """Per-rank times instead; NotFoundError where there are none either."""
    from steptax.app.views.job.load import load_job
    from steptax.app.whatif.coarse import LABEL, coarse_of, coarse_pattern

    loaded = load_job(ws, job, last_steps=None)
    matrix = loaded.matrix
    labels = _labels(matrix.steps.tolist(), steps, str(ws.root))
    if labels is not None:
        places = np.flatnonzero(np.isin(matrix.steps, labels))
        matrix = matrix.select(places, np.arange(len(matrix.ranks)))
    coarse = coarse_of(matrix)
    if result is None:
        slowdown = coarse.result.slowdown_ratio
        estimate = (
            Measure.missing("x", slowdown.reason or reason, level=Level.PHASES)
            if slowdown.value is None
            else Measure(
                slowdown.value,
                "x",
                slowdown.low,
                slowdown.high,
                slowdown.level,
                slowdown.inputs,
                (*coarse.warnings, *slowdown.warnings),
            )
        )
        result = refused_result(Findings(recorded_steps=len(loaded.matrix.steps)), reason, estimate)
    used = coarse.result.coverage.steps_used
    note = loaded.window.note or f"{used:,} of {len(matrix.steps):,} steps, {LABEL}"
    pattern = coarse_pattern(coarse)
    return TraceJob(job["job_id"], result, pattern, note, coarse, no_graph=reason, **more)


def _reason(result: WhatIfResult) -> str:
    return result.S.reason or "no dependency graph"
