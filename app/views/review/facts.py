"""What the cost review keeps of a job with steps: small, so that all of a fleet fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steptax.app.compute.bill.ledger import Ledger
from steptax.app.compute.causes.model import Diagnosis, Scope
from steptax.app.compute.fleet.slow import SlowFact
from steptax.app.compute.measure import Measure
from steptax.app.compute.straggler.result import StepTable
from steptax.app.format import format_share
from steptax.app.views.fleet.record_bills import JobBill
from steptax.app.views.job.actions import next_action
from steptax.app.views.job.bill_metrics import tokens_of
from steptax.app.views.job.causes import finding_rows
from steptax.app.views.job.jobs import Analysed, summarise
from steptax.app.views.job.slow_facts import cause_text, slow_fact
from steptax.app.views.review.executive_models import JobSummary

#: The newest part of a job's steps that the trend of its tax holds against those before.
LATE_RATIO = 0.25
#: Fewer steps tell no trend.
MIN_STEPS = 20
#: Shares closer than this are level.
LEVEL_RATIO = 0.01
_NO_USD = Measure.missing("USD", "facts of steps know no price")


@dataclass(frozen=True)
class StepFacts:
    """What the steps of one job say, without money."""

    summary: JobSummary
    """Without a price."""
    ledger: Ledger
    is_relative: bool
    """Its times are normalised."""
    world_is_unknown: bool
    """A log of it does not say how many ranks it has."""
    is_of_job: bool
    """A log tells its steps, not each rank."""
    has_waiting: bool
    wait_us: float
    """GPU-microseconds in which ranks waited for a slower one."""
    told_us: float
    """Of the recorded steps, if stragglers can be looked for in them; else 0."""
    recover_us: float
    """What could come back."""
    trend: str | None
    culprit: str | None
    """Who makes the others wait, in words; None where nobody does for good."""
    action: str
    recoverable_hours_per_day: float | None
    """Of a day in which it steps all the time, as the mean of its steps."""
    tokens: float
    has_loss: bool
    world_size: int
    slow: SlowFact
    """What the fleet page counts of it."""
    cause: str | None
    """What was diagnosed of the largest loss; None where no cause is named."""
    left_out: str | None
    """That ranks are not compared, as a clause, where one of them may be the one to name."""
    culprit_cause: str | None
    """The same of what is slow in one place, and not in all."""

    @property
    def is_timed(self) -> bool:
        """Whether its times are real and all of its ranks are known."""
        return not (self.is_relative or self.world_is_unknown)

    @property
    def recorded_us(self) -> float:
        """GPU-microseconds of all recorded steps."""
        return float(self.ledger.paid_gpu_us)


def step_facts(job: dict[str, Any], analysed: Analysed, diagnosis: Diagnosis) -> StepFacts:
    """The facts of ``job``, a row of ``ws.jobs()``; they rest on its steps, and not on its bill."""
    loaded, result = analysed.loaded, analysed.result
    row = analysed.ledger.row("straggler_wait")
    share = result.recoverable_ratio.value
    culprit = None
    if result.verdict.culprit is not None:
        rank = result.verdict.culprit
        host = (loaded.places.get(rank) or {}).get("host")
        culprit = f"rank {rank}" + (f" on {host}" if host else "")
    elif result.verdict.stage is not None:
        culprit = f"pipeline stage {result.verdict.stage}"
    timed = not (loaded.matrix.time_is_relative or loaded.world_is_unknown)
    return StepFacts(
        summary=summarise(job, analysed, JobBill(str(job["job_id"])), price=None),
        ledger=analysed.ledger,
        is_relative=loaded.matrix.time_is_relative,
        world_is_unknown=loaded.world_is_unknown,
        is_of_job=bool(loaded.matrix.of_job),
        has_waiting=row is not None and row.gpu_us is not None,
        wait_us=0.0 if row is None or row.gpu_us is None else float(row.gpu_us),
        told_us=0.0 if share is None else float(analysed.ledger.paid_gpu_us),
        recover_us=0.0 if share is None else share * float(analysed.ledger.paid_gpu_us),
        trend=tax_trend(result.steps),
        culprit=culprit,
        action=next_action(result, finding_rows(loaded, diagnosis, _NO_USD), str(job["job_id"])),
        recoverable_hours_per_day=None
        if share is None or not timed
        else share * loaded.matrix.world_size * 24,
        tokens=tokens_of(loaded) or 0.0,
        has_loss=loaded.matrix.loss is not None,
        world_size=loaded.matrix.world_size,
        slow=slow_fact(analysed, diagnosis),
        cause=cause_text(diagnosis.findings),
        left_out=result.verdict.why_open,
        culprit_cause=cause_text([f for f in diagnosis.findings if f.scope is not Scope.JOB]),
    )


def tax_trend(steps: StepTable) -> str | None:
    """The straggler tax before the newest quarter of the steps, and in it; None of few steps."""
    used = np.flatnonzero(steps.used & np.isfinite(steps.tax_ratio) & np.isfinite(steps.step_us))
    if len(used) < MIN_STEPS:
        return None
    cut = len(used) - max(1, round(len(used) * LATE_RATIO))
    early, late = (
        float(np.average(steps.tax_ratio[part], weights=steps.step_us[part]))
        for part in (used[:cut], used[cut:])
    )
    word = "level" if abs(late - early) < LEVEL_RATIO else "rising" if late > early else "falling"
    return f"{word}: {format_share(early)} to {format_share(late)}"
