"""How much of the job the numbers rest on, in one line and in detail."""

from __future__ import annotations

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.straggler.result import StragglerResult
from steptax.app.format import format_age
from steptax.app.views.job.liveness import liveness
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.models import Coverage
from steptax.app.views.workspace import Workspace


def build_coverage(
    ws: Workspace, loaded: LoadedJob, result: StragglerResult, *, now_us: int
) -> Coverage:
    """Coverage of ``loaded`` at the moment ``now_us``."""
    found = result.coverage
    job_id = loaded.job["job_id"]
    live = liveness(
        loaded, ws.lake.heartbeats(job_id), stopped_ranks=found.stopped_ranks, now_us=now_us
    )
    ingests = ws.ingests(job_id)
    # A job's own repeats: an input that holds several jobs cannot say whose they are.
    refused = sum(commit.detail["repeated"].get("steps", 0) for commit in ingests)
    repeated = refused + loaded.repeated_rows
    rejected = sum(commit.detail["rejected"].get("steps", 0) for commit in ingests)
    # Of a job that has ended, or of imported data, nobody reports any more: who did is what counts.
    silent = {s.rank for s in live.stopped} & {int(r) for r in loaded.matrix.ranks}
    reporting = found.ranks_seen - (len(silent) if live.is_live else 0)
    said = "reporting" if live.is_live and live.is_heard else "reported"
    parts = [f"{reporting:,} of {found.ranks_expected:,} ranks {said}"]
    if loaded.matrix.of_job:
        paid = "an unknown number of" if loaded.world_is_unknown else f"{found.world_size:,}"
        parts = [f"step time of the job, as its log prints it · {paid} ranks paid"]
    elif found.world_size != found.ranks_expected:
        parts.append(f"{found.world_size:,} ranks paid, each recorded one stands for its group")
    used = f"{found.steps_used:,} of {found.steps_total:,} steps used"
    parts.append(used if found.label is None else f"{used} {found.label}")
    if found.missing_reports:
        cells = found.steps_used * found.ranks_used
        parts.append(
            f"{found.missing_reports:,} of {cells:,} rows in them missing "
            f"({spoken_ratio(found.missing_reports / cells)})"
        )
    if found.steps_incomplete:
        parts.append(f"{found.steps_incomplete:,} incomplete")
    if repeated:
        parts.append(f"{repeated:,} duplicate {'row' if repeated == 1 else 'rows'} left out")
    if rejected - refused:
        parts.append(f"{rejected - refused:,} rows rejected")
    if live.is_live and live.newest_age_s is not None:
        parts.append(f"newest step {format_age(live.newest_age_s)} ago")
    if loaded.window.note:
        parts.append(loaded.window.note)
    warnings = list(result.basis.warnings)
    if loaded.repeated_rows:
        warnings.insert(
            0,
            f"{loaded.repeated_rows:,} rows tell of a step and rank that a later row of the same "
            "attempt tells of too, which holds: a restart without its attempt number "
            "(StepRecorder(attempt=...)), or two processes that say they are the same rank",
        )
    return Coverage(
        text=" · ".join(parts),
        ranks_reporting=reporting,
        ranks_expected=found.ranks_expected,
        steps_used=found.steps_used,
        steps_total=found.steps_total,
        steps_incomplete=found.steps_incomplete,
        duplicates=repeated,
        rejected_rows=rejected,
        newest_us=live.newest_us,
        newest_age_s=live.newest_age_s,
        is_live=live.is_live,
        stale=live.stale,
        stopped=live.stopped,
        warnings=tuple(warnings),
    )
