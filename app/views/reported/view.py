"""What other tools and the job's own log say: shown beside our numbers, never mixed with them."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from steptax.app.views.reported.models import (
    PrintedSeries,
    PrintedValue,
    ReportedScore,
    ReportedScores,
    Reports,
)
from steptax.app.views.workspace import Workspace

#: Rows of the newest reports that are shown.
SHOWN_SCORES = 200
#: Values of one name that a view holds; of more the extremes of each run of steps stay.
MAX_POINTS = 1_000
#: Values below which a line over steps shows nothing that a table does not.
MIN_POINTS = 5
#: NVRx flags a rank whose score is below this, unless it was set otherwise.
NVRX_THRESHOLD = 0.75


#: What is drawn over steps: loss, and of the rates the first that is printed.
_LOSS = ("loss",)
_RATES = ("tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "tflops_per_gpu")
_NOTHING = ReportedScores((), (), "no straggler report of another tool is stored for this job")


def job_reports(ws: Workspace, job_id: str) -> Reports:
    """All that is stored of what others say of ``job_id``; empty for a job that is not there."""
    has_scores = bool(ws.lake.segments("reported_scores", job_id))
    has_printed = bool(ws.lake.segments("printed_metrics", job_id))
    printed = printed_values(ws, job_id) if has_printed else ()
    of_job = {value.name: value for value in printed if value.subject == "job"}
    drawn = []
    for names in (_LOSS, _RATES):
        name = next((n for n in names if n in of_job), None)
        if name is not None and of_job[name].values_printed >= MIN_POINTS:
            drawn.append(_series(ws, job_id, of_job[name]))
    return Reports(
        reported_scores(ws, job_id) if has_scores else _NOTHING,
        printed,
        tuple(one for one in drawn if len(one.steps) >= MIN_POINTS),
    )


def _series(ws: Workspace, job_id: str, value: PrintedValue) -> PrintedSeries:
    rows = ws.engine.run("printed_metrics", job_id=job_id, printed_name=value.name).to_pylist()
    # Rows come by attempt and step: a later attempt's value replaces that of an earlier one.
    told = {
        row["step"]: row["value"]
        for row in rows
        if row["subject"] == "job" and row["value"] is not None
    }
    steps = np.array(sorted(told), dtype=np.int64)
    values = np.array([told[step] for step in steps.tolist()], dtype=np.float64)
    keep = _extremes(values)
    return PrintedSeries(
        value.name, value.printed_as, value.unit, steps[keep], values[keep], len(steps)
    )


def _extremes(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Places of at most ``MAX_POINTS`` values: smallest and largest of each run stay."""
    if len(values) <= MAX_POINTS:
        return np.arange(len(values), dtype=np.int64)
    edges = np.linspace(0, len(values), MAX_POINTS // 2 + 1).round().astype(np.int64).tolist()
    found = [
        a + int(place)
        for a, b in itertools.pairwise(edges)
        for place in (np.argmin(values[a:b]), np.argmax(values[a:b]))
    ]
    return np.unique(np.array(found, dtype=np.int64))


def reported_scores(ws: Workspace, job_id: str) -> ReportedScores:
    """Scores that other tools' reports give ranks of ``job_id``, newest report first."""
    found = ws.engine.run("reported_scores", job_id=job_id, limit_rows=SHOWN_SCORES).to_pylist()
    names = ReportedScore.__dataclass_fields__
    rows = tuple(ReportedScore(**{name: row[name] for name in names}) for row in found)
    flagged = {row.rank for row in rows if row.flagged or _below(row)}
    if not rows:
        note = _NOTHING.note
    else:
        note = (
            "as the tool printed them, not computed here; a report lists a few ranks only, so a "
            "rank that is absent is not therefore sound"
        )
    return ReportedScores(rows, tuple(sorted(flagged)), note)


def _below(row: ReportedScore) -> bool:
    return row.tool == "nvrx" and row.score is not None and row.score < NVRX_THRESHOLD


def printed_values(ws: Workspace, job_id: str) -> tuple[PrintedValue, ...]:
    """The newest value of each name that the log of ``job_id`` printed, by name and subject."""
    found = ws.engine.run("printed_newest", job_id=job_id).to_pylist()
    return tuple(PrintedValue(**row) for row in found)
