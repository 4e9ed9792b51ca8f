"""Why a job is slow: findings with causes, from its steps, its ranks' places, and their devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from steptax.app.compute.causes.device import DeviceEvidence
from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.groups import Coordinates
from steptax.app.compute.causes.model import CauseVerdict, Diagnosis, Finding
from steptax.app.compute.devices.join import RankDevice
from steptax.app.compute.measure import Measure
from steptax.app.compute.spoken import spoken_list, spoken_ratio
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.result import StragglerResult
from steptax.app.compute.straggler.steps import StepMatrix
from steptax.app.format import format_measure
from steptax.app.views.devices.view import has_devices, load_samples
from steptax.app.views.job.cause_models import CauseRow, FindingRow
from steptax.app.views.job.liveness import has_ended
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.job.unread import unread
from steptax.app.views.workspace import Workspace

FINDINGS_TITLE = "Why it is slow"
_KINDS = ("tp", "pp", "dp", "ep")
_NOTHING_AGAINST = "nothing that is recorded"


def build_diagnosis(ws: Workspace, loaded: LoadedJob, result: StragglerResult) -> Diagnosis:
    """Findings about the loaded steps; ``result`` is of the same ones."""
    hosts = [loaded.places.get(int(rank), {}).get("host") for rank in loaded.matrix.ranks]
    evidence = Evidence(_coordinates(loaded, hosts), hosts, _devices(ws, loaded))
    try:
        return diagnose(loaded.matrix, result, evidence)
    except Exception as error:  # what is counted of the job holds all the same
        return Diagnosis(reason=unread(loaded.job["job_id"], error).reason)


def finding_rows(
    loaded: LoadedJob, diagnosis: Diagnosis, window_usd: Measure
) -> tuple[FindingRow, ...]:
    """The findings of ``diagnosis`` with what they cost of ``window_usd``."""
    relative = loaded.matrix.time_is_relative
    ended = has_ended(loaded.job)
    return tuple(
        replace(
            _row(finding, window_usd, relative=relative),
            slow_step_ratio=_of_slow_step(loaded, finding),
            has_ended=ended,
        )
        for finding in diagnosis.findings
    )


def _of_slow_step(loaded: LoadedJob, finding: Finding) -> float | None:
    """The excess as a share of the mean step while it was slow."""
    steps_us = slow_steps_us(loaded.matrix, finding)
    mean_us = float(steps_us.mean()) if len(steps_us) else 0.0
    return finding.excess_us / mean_us if mean_us > 0 else None


def slow_steps_us(matrix: StepMatrix, finding: Finding) -> Floats:
    """Lengths of the steps in which what was found was slow."""
    first, last = np.searchsorted(matrix.steps, [finding.first_step, finding.last_step])
    longest = np.nanmax(matrix.duration_us[first : last + 1], axis=1, initial=0.0)
    if finding.in_steps is not None:
        # Slow stretches that come and go: the slow steps are the longest ones.
        longest = np.sort(longest)[-finding.in_steps[0] :]
    return np.asarray(longest)


def findings_lines(rows: tuple[FindingRow, ...], reason: str | None) -> list[str]:
    """For a terminal or a ticket; a line that says so where there is nothing."""
    if not rows:
        return [f"nothing to explain: {reason}" if reason else "nothing slow was found"]
    lines = []
    for row in rows:
        lines.append(row.sentence)
        lines += [f"  {title}: {text}" for title, text in finding_details(row)]
    return lines


def finding_details(row: FindingRow) -> list[tuple[str, str]]:
    """What stands under the sentence of a finding, each with its title."""
    cause = row.cause
    details = []
    if row.lost.value is not None:
        cost = "" if row.cost_usd.value is None else f", {format_measure(row.cost_usd)}"
        details.append(("costs", f"{spoken_ratio(row.lost.value)} of the paid time{cost}"))
    if row.together is not None:
        details.append(("together", row.together))
    details += [("for", text) for text in cause.evidence_for]
    against = cause.evidence_against
    if cause.cause is not None and not against:
        against = (_NOTHING_AGAINST,)
    details += [("against", text) for text in against]
    details += [("also", also.sentence) for also in row.also]
    details += [("would settle it", text) for text in cause.would_settle]
    details.append(("next", cause.next_action))
    return details


def findings_note(count: int, listed: int) -> str:
    """What the confidence rests on, and how many findings are not listed."""
    note = "A confidence is how well the evidence singles the cause out, by rules that are written."
    if count > listed:
        note += f" {count - listed:,} more: steptax job prints all."
    return note


def _row(finding: Finding, window_usd: Measure, *, relative: bool) -> FindingRow:
    if finding.lost_ratio is None:
        lost = Measure.missing("ratio", "what would come back is not known")
        cost = Measure.missing(window_usd.unit, lost.reason or "")
    else:
        share = max(0.0, finding.lost_ratio)
        lost = Measure(share, "ratio", level=window_usd.level)
        cost = window_usd.map(lambda usd: usd * share, window_usd.unit)
    return FindingRow(
        finding.scope.value,
        finding.place,
        finding.ranks,
        finding.first_step,
        finding.last_step,
        finding.detected_step,
        finding.is_open,
        None if relative else finding.excess_us / 1000.0,
        finding.excess_ratio,
        finding.part,
        lost,
        cost,
        cause_row(finding.cause),
        tuple(cause_row(also) for also in finding.also),
        finding.in_steps,
        finding.is_silent,
        _while_slow(finding, lost),
        _together(finding),
    )


def _while_slow(finding: Finding, lost: Measure) -> Measure:
    """What comes back of the time from its first step to its last."""
    span = finding.span_ratio
    if not span:
        return lost if lost.value is None else Measure.missing("ratio", "its steps took no time")
    return lost.map(lambda share: min(1.0, share / span), "ratio")


def _together(finding: Finding) -> str | None:
    one = finding.together
    if one is None:
        return None
    ranks = spoken_list(one.ranks)
    return (
        f"only a joint repair returns it: {spoken_ratio(one.lost_ratio)} of the paid time once "
        f"ranks {ranks} are all like their peers"
    )


def cause_row(verdict: CauseVerdict) -> CauseRow:
    """A verdict as it is shown."""
    return CauseRow(
        None if verdict.cause is None else verdict.cause.value,
        verdict.text,
        verdict.confidence,
        verdict.evidence_for,
        verdict.evidence_against,
        verdict.settle,
        verdict.action,
    )


def _coordinates(loaded: LoadedJob, hosts: list[str | None]) -> Coordinates:
    """Coordinates that are known of every rank; the host by number."""
    out = {}
    for kind in _KINDS:
        column = [loaded.places.get(int(rank), {}).get(kind) for rank in loaded.matrix.ranks]
        if all(place is not None for place in column):
            out[kind] = np.array(column, dtype=np.int64)
    for kind, known in (("pp", loaded.matrix.stage), ("dp", loaded.matrix.dp)):
        if known is not None:
            out[kind] = known.astype(np.int64)
    if hosts and all(host is not None for host in hosts):
        out["host"] = np.unique(np.array(hosts, dtype=np.str_), return_inverse=True)[1].astype(
            np.int64
        )
    return out


def _devices(ws: Workspace, loaded: LoadedJob) -> Callable[[], DeviceEvidence | None] | None:
    """How to load the samples of the ranks' devices; None where there are none to load."""
    start = loaded.matrix.start_us
    if start is None or np.isnan(start).all() or not has_devices(ws, loaded.job["job_id"]):
        return None
    begin = int(np.nanmin(start))
    end = int(np.nanmax(start + loaded.matrix.duration_us))

    def load() -> DeviceEvidence | None:
        ranks = [_rank_device(loaded, int(rank)) for rank in loaded.matrix.ranks]
        _, samples, _ = load_samples(ws, ranks, (begin, end))
        return DeviceEvidence(ranks, samples) if len(samples.series) else None

    return load


def _rank_device(loaded: LoadedJob, rank: int) -> RankDevice:
    place = loaded.places.get(rank, {})
    return RankDevice(rank, place.get("host"), place.get("gpu_uuid"), place.get("gpu_index"))
