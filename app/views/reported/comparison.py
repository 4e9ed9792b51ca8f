"""How other references and other detectors see the steps of a job."""

from __future__ import annotations

from typing import Any

import numpy as np

from steptax.app.compute.spoken import spoken_list, spoken_ratio, spoken_us
from steptax.app.compute.stats.changepoint import FALCON_RATIO, Changes, change_points
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.arrival import arrivals
from steptax.app.compute.straggler.nvrx_scores import (
    FLAG_BELOW,
    KernelStat,
    NvrxScores,
    nvrx_scores,
)
from steptax.app.compute.straggler.onset import Onset, onset
from steptax.app.compute.straggler.result import StragglerResult
from steptax.app.compute.straggler.slow_groups import GroupCheck, group_checks
from steptax.app.compute.straggler.steps import StepMatrix, without_inconsistent
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.reported.comparison_models import (
    Blame,
    BlameRow,
    ChangeRow,
    Comparison,
    FalconView,
    GroupRow,
    IdealRow,
    NvrxRow,
    NvrxView,
)
from steptax.app.views.workspace import Workspace

US_PER_S = 1e6
_IDEALS = {
    "mean": "mean rank: the same work, evenly spread; the only one that adds up with the ledger",
    "median": "median rank: what if all were like a typical rank; outside the ledger",
    "p10": "10th percentile: what if all were like a good rank; outside the ledger",
    "min": "fastest rank: what if all were like the fastest; over-states, outside the ledger",
}
_NVRX_NOTE = (
    "For comparison only: the fastest rank is the reference, so a normal spread already lowers the "
    "scores of the others, and a straggler is over-stated."
)
_COORDINATES = ("tp", "pp", "dp", "cp")


def rank_onset(loaded: LoadedJob, result: StragglerResult, work: Floats, peers: Floats) -> Onset:
    """Since when the culprit is slow, from its work over its peers' [S, R]."""
    culprit = result.verdict.culprit
    if culprit is None:
        return Onset("no single rank makes the others wait")
    if result.slow_links is not None:
        found = result.slow_links
        return Onset(
            f"in {found.slow_probes} of {found.probes} link probes, first in step "
            f"{found.first_step}",
            found.first_step,
        )
    place = int(np.flatnonzero(loaded.matrix.ranks == culprit)[0])
    # Of the steps that all else of it is told of: the card and its findings give one answer.
    looked = result.coverage.step_places
    own, others = work[looked, place], peers[looked, place]
    usable = np.nan_to_num(others) > 0
    ratio = np.where(usable, own / np.where(usable, others, 1.0), np.nan)
    again = result.recurring.get(culprit)
    if again is not None:
        steps = loaded.matrix.steps[looked]
        return Onset(
            f"again and again since step {int(steps[again.first])}: in {again.slow_steps:,} of "
            f"{again.steps:,} steps, {again.stretches:,} separate stretches; last in step "
            f"{int(steps[again.last])}"
        )
    # Little, and the same in every step, is slow as well: half of it is the limit then.
    usual = float(np.nanmedian(ratio)) - 1.0 if np.isfinite(ratio).any() else 0.0
    limit = result.rules.slow_over_peers_ratio
    if usual >= result.rules.worker_excess_ratio:
        limit = min(limit, 0.5 * usual)
    return onset(loaded.matrix.steps[looked], ratio, slow_ratio=limit)


def build_blame(loaded: LoadedJob, result: StragglerResult) -> Blame:
    """Who is charged how many GPU-seconds of the waiting in the used steps, most first."""
    table = result.ranks
    if table is None or loaded.matrix.time_is_relative:
        reason = "the times are normalised, so they are no GPU-seconds"
        if table is None:
            reason = result.tax_ratio.reason or result.verdict.text
        return Blame(None, None, (), "", reason)
    # A recorded rank may stand for a whole group of paid ones.
    scale = float(loaded.matrix.weight) / US_PER_S
    wait = float(np.nansum(result.steps.wait_sum_us)) * scale
    charged = table.blame_us * scale
    order = [int(i) for i in np.argsort(-charged, kind="stable") if charged[i] > 0]
    rows = tuple(
        BlameRow(int(table.ranks[i]), float(charged[i]), float(charged[i]) / wait) for i in order
    )
    return Blame(
        wait,
        max(0.0, wait - float(charged.sum())),
        rows,
        "Each stretch of waiting is charged in equal parts to the ranks still missing then "
        "(airport game, Littlechild and Owen 1973); unlike what repairs would save, the parts "
        "add up.",
    )


def build_comparison(ws: Workspace, loaded: LoadedJob, result: StragglerResult) -> Comparison:
    """All four ideals, FALCON's rule and NVRx's scores on the used steps."""
    sound, _ = without_inconsistent(loaded.matrix)
    part = sound.select(result.coverage.step_places, result.coverage.rank_places)
    return Comparison(
        ideals=tuple(
            IdealRow(row.ideal, _IDEALS[row.ideal], row.slowdown_ratio, row.waste_ratio)
            for row in result.ideals
        ),
        falcon=_falcon(loaded, result, part),
        nvrx=_nvrx(part, _kernels(ws, loaded.job["job_id"])),
    )


def _falcon(loaded: LoadedJob, result: StragglerResult, part: StepMatrix) -> FalconView:
    found = change_points(result.steps.steps, result.steps.step_us)
    relative = part.time_is_relative
    groups: tuple[GroupCheck, ...] = ()
    if result.ranks is not None:
        used = result.used
        work = arrivals(part, result.basis).work_us if used is None else used.arrived.work_us
        groups = group_checks(work, [int(r) for r in part.ranks], _coordinates(loaded, part))
    rows = tuple(
        GroupRow(
            g.kind,
            g.groups,
            tuple(
                f"{s.label}: {s.over_median_ratio:.2f} times the median group "
                f"(rank{'s' if len(s.ranks) > 1 else ''} {spoken_list(s.ranks)})"
                for s in g.suspects
            ),
            g.reason,
        )
        for g in groups
    )
    return FalconView(
        _falcon_sentence(found, relative=relative),
        tuple(
            ChangeRow(
                point.step,
                None if relative else point.before_mean / 1000.0,
                None if relative else point.after_mean / 1000.0,
                point.change_ratio,
                point.confidence,
            )
            for point in found.points
        ),
        rows,
        found.reason,
    )


def _falcon_sentence(found: Changes, *, relative: bool) -> str:
    if found.reason is not None:
        return f"FALCON: not told, {found.reason}."
    if not found.points:
        return (
            f"FALCON: no lasting change of the step time above {spoken_ratio(FALCON_RATIO)}. A "
            "rank that was slow from the first step on does not show this way."
        )
    said = []
    for point in found.points:
        sign = "+" if point.is_slower else "\N{MINUS SIGN}"
        times = (
            "" if relative else f"{spoken_us(point.before_mean)} to {spoken_us(point.after_mean)}, "
        )
        said.append(
            f"at step {point.step} {times}{sign}{spoken_ratio(abs(point.change_ratio))} "
            f"(posterior {spoken_ratio(point.confidence)})"
        )
    return f"FALCON: the step time changed {spoken_list(said)}."


def _coordinates(loaded: LoadedJob, part: StepMatrix) -> dict[str, list[int | None]]:
    """Coordinate of each used rank by kind; a kind that nobody tells is left out."""
    out: dict[str, list[int | None]] = {}
    for kind in _COORDINATES:
        column = [loaded.places.get(int(rank), {}).get(kind) for rank in part.ranks]
        known = {"pp": part.stage, "dp": part.dp}.get(kind)
        if known is not None:
            column = [int(place) for place in known]
        if any(place is not None for place in column):
            out[kind] = column
    return out


def _kernels(ws: Workspace, job_id: str) -> tuple[KernelStat, ...]:
    if not ws.lake.segments("ops", job_id):
        return ()
    rows: list[dict[str, Any]] = ws.engine.run("kernel_stats", job_id=job_id).to_pylist()
    return tuple(
        KernelStat(
            row["rank"], row["kernel"], row["calls"], row["mean_ns"] / 1e3, row["median_ns"] / 1e3
        )
        for row in rows
    )


def _nvrx(part: StepMatrix, kernels: tuple[KernelStat, ...]) -> NvrxView:
    sections = dict(part.phases)
    if part.work_is_partial:
        sections = {name: times for name, times in sections.items() if name == "compute"}
    ranks = [int(rank) for rank in part.ranks]
    scores = nvrx_scores(sections, ranks, kernels)
    flagged = scores.flagged()
    rows = [_nvrx_row(scores, i, rank, flagged.get(i, ())) for i, rank in enumerate(ranks)]
    rows.sort(key=_lowest)
    reasons = (scores.section_reason, scores.gpu_reason, scores.individual_reason)
    names = tuple(section.section for section in scores.sections)
    return NvrxView(
        _nvrx_sentence(scores, [row.rank for row in rows if row.flagged]),
        _NVRX_NOTE,
        FLAG_BELOW,
        names,
        tuple(rows),
        tuple(reason for reason in reasons if reason),
    )


def _nvrx_row(scores: NvrxScores, i: int, rank: int, flagged: tuple[str, ...]) -> NvrxRow:
    def at(values: Floats | None) -> float | None:
        return None if values is None or not np.isfinite(values[i]) else float(values[i])

    return NvrxRow(
        rank,
        at(scores.gpu),
        {s.section: at(s.relative) for s in scores.sections},
        {s.section: at(s.individual) for s in scores.sections},
        flagged,
    )


def _lowest(row: NvrxRow) -> float:
    known = [v for v in (row.gpu, *row.relative.values()) if v is not None]
    return min(known, default=1.0)


def _nvrx_sentence(scores: NvrxScores, flagged: list[int]) -> str:
    if not scores.sections and scores.gpu is None:
        return f"NVRx: no scores, {scores.section_reason}."
    if not flagged:
        return f"NVRx: no rank scores below {FLAG_BELOW:g}."
    ranks = f"rank{'s' if len(flagged) > 1 else ''} {spoken_list(flagged)}"
    return f"NVRx: {ranks} score{'' if len(flagged) > 1 else 's'} below {FLAG_BELOW:g}."
