"""Three detectors on the same made-up job: ours, one in the manner of NVRx, and a naive one.

*NVRx-style*: reports of so many steps; in each, a rank is flagged when the least median of a
section over the ranks is below 0.75 of its own (relative score), or its own best median so far is
below 0.75 of its newest (individual score). Sections are compute, as its kernel score has it, and
the whole work of a step, as users time it; smaller sections would only add false alarms. Read from
nvidia-resiliency-ext, straggler/reporting; scored by ``nvrx_scores``.

*Naive*: over each stretch of so many steps, every rank is flagged whose mean work exceeds the
median of all by more than a tenth, as an alert on a dashboard does.

The two others name no causes: what is asked about causes is not known of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.causes.device import DeviceEvidence
from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import Scope
from steptax.app.compute.devices.join import RankDevice
from steptax.app.compute.devices.series import SeriesName, build_series
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.arrival import arrivals, choose_basis
from steptax.app.compute.straggler.nvrx_scores import nvrx_scores
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.benchmarks.product.fault_jobs import FaultJob

#: Steps of a report of the two others.
REPORT_STEPS = 25
NAIVE_RATIO = 1.10


@dataclass(frozen=True)
class Found:
    """What a detector says: ranks, when, since when it knew, and why."""

    scope: str
    ranks: tuple[int, ...]
    first: int
    last: int
    detected: int
    cause: str | None = None
    confidence: float | None = None
    """In the cause, where one is named."""
    duty_ratio: float | None = None
    """Share of the steps from first to last in which they are slow, where that is said."""


def matrix_of(job: FaultJob) -> StepMatrix:
    """The steps of ``job``, as they are read from the lake."""
    topology = None
    if all(place["pp"] is not None for place in job.places):
        topology = {p["rank"]: (p["pp"], p["dp"]) for p in job.places}
    rows = job.step_rows()
    return build_matrix(rows, world_size=len(job.places), topology=topology)


def evidence_of(job: FaultJob) -> Evidence:
    """What is known beside the steps."""
    places = {
        kind: np.array([p[kind] for p in job.places], dtype=np.int64)
        for kind in ("tp", "pp", "dp", "ep")
        if all(p[kind] is not None for p in job.places)
    }
    hosts = [p["host"] for p in job.places]
    places["host"] = np.unique(hosts, return_inverse=True)[1].astype(np.int64)
    return Evidence(places, hosts, lambda: _devices(job))


def _devices(job: FaultJob) -> DeviceEvidence | None:
    if job.samples is None:
        return None
    moments, ranks = len(job.samples.ts_us), len(job.places)
    names = tuple(SeriesName(p["host"], p["gpu_uuid"], "nvml", "H100") for p in job.places)
    columns = {name: values.T.ravel() for name, values in job.samples.columns.items()}
    masks = columns.pop("throttle_reasons").astype(np.int64)
    series = build_series(
        names,
        np.repeat(np.arange(ranks), moments),
        np.tile(job.samples.ts_us, ranks),
        columns,
        masks=masks,
    )
    devices = [RankDevice(p["rank"], p["host"], p["gpu_uuid"], p["gpu_index"]) for p in job.places]
    return DeviceEvidence(devices, series)


def steptax(job: FaultJob, matrix: StepMatrix) -> list[Found]:
    """Ours."""
    told = diagnose(matrix, analyse_stragglers(matrix), evidence_of(job))
    return [
        Found(
            f.scope.value,
            f.ranks if f.scope in (Scope.RANKS, Scope.STAGE) else (),
            f.first_step,
            f.last_step,
            f.detected_step,
            None if f.cause.cause is None else f.cause.cause.value,
            None if f.cause.cause is None else f.cause.confidence,
            None if f.in_steps is None else f.in_steps[0] / f.in_steps[1],
        )
        for f in told.findings
    ]


def _work(matrix: StepMatrix) -> np.ndarray | None:
    rules = StragglerRules()
    choice = choose_basis(matrix, rules)
    return None if choice.unknown else arrivals(matrix, choice).work_us


def nvrx_style(_: FaultJob, matrix: StepMatrix) -> list[Found]:
    """NVRx's two scores, report by report; neighbouring reports of a rank are one finding."""
    sections = {n: v for n, v in matrix.phases.items() if n == "compute"}
    work = _work(matrix)
    if work is not None:
        sections["work"] = work
    flagged = []
    ranks = [int(r) for r in matrix.ranks]
    for first in range(0, len(matrix.steps) - REPORT_STEPS + 1, REPORT_STEPS):
        # The individual score needs the reports before, which nvrx_scores cuts itself.
        report = {n: v[first : first + REPORT_STEPS] for n, v in sections.items()}
        so_far = {n: v[: first + REPORT_STEPS] for n, v in sections.items()}
        places = set(nvrx_scores(report, ranks).flagged())
        places |= {
            place
            for place, why in nvrx_scores(so_far, ranks).flagged().items()
            if any("own best" in name for name in why)
        }
        flagged.append(places)
    return _reports(flagged, ranks)


def naive(_: FaultJob, matrix: StepMatrix) -> list[Found]:
    """All ranks whose mean is far above the median of all."""
    work = _work(matrix)
    if work is None:
        return []
    flagged = []
    for first in range(0, len(work) - REPORT_STEPS + 1, REPORT_STEPS):
        means = np.nanmean(work[first : first + REPORT_STEPS], axis=0)
        slow = means > NAIVE_RATIO * np.median(means)
        flagged.append({int(place) for place in np.flatnonzero(slow)})
    return _reports(flagged, [int(r) for r in matrix.ranks])


def _reports(flagged: list[set[int]], ranks: list[int]) -> list[Found]:
    """One finding per rank and run of reports that flag it."""
    out = []
    for place in sorted(set().union(*flagged)) if flagged else []:
        begun: int | None = None
        for i in range(len(flagged) + 1):
            hit = i < len(flagged) and place in flagged[i]
            if hit and begun is None:
                begun = i
            elif not hit and begun is not None:
                first, end = begun * REPORT_STEPS, i * REPORT_STEPS - 1
                out.append(Found("ranks", (ranks[place],), first, end, first + REPORT_STEPS - 1))
                begun = None
    return out


DETECTORS = {"steptax": steptax, "nvrx_style": nvrx_style, "naive": naive}
#: Those that say why a rank is slow.
NAME_CAUSES = frozenset({"steptax"})
