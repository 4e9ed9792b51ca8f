"""The metric registry: one id, one definition, for pages, commands, exports and documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from steptax.app.compute.measure import Measure
from steptax.app.compute.traps import traps_of
from steptax.app.errors import IntegrityError

Direction = Literal["up", "down", "none"]


@dataclass(frozen=True)
class MetricSpec:
    """What a metric is. ``good_direction``: whether more of it is better, worse or neither."""

    id: str
    title: str
    formula: str
    unit: str
    good_direction: Direction
    doc: str

    @property
    def is_share(self) -> bool:
        """Whether it is a part of a whole, 0..1; other ratios may exceed 1 or be below 0."""
        return self.unit == "ratio" and self.id not in _NOT_SHARES

    @property
    def help(self) -> str:
        """For a tooltip: formula, meaning, how it misleads, id."""
        traps = [trap.text for trap in traps_of(self.id)]
        return "\n\n".join((self.formula, self.doc, *traps, f"metric {self.id}"))


#: Ratios that are no shares: more than a step can be lost against peers that are faster than the
#: step, and parts that overlap leave less than nothing unexplained.
_NOT_SHARES = frozenset({"excess_step_ratio", "unexplained_ratio"})
#: Rounding that a share may carry.
_ROUNDING = 1e-9

_SPECS = (
    MetricSpec(
        "straggler_tax_ratio",
        "Straggler tax",
        "sum over steps and ranks of (latest arrival − own arrival) / (ranks × sum of step times)",
        "ratio",
        "down",
        "Share of paid GPU time in which ranks were ready and waited for a slower peer. "
        "It equals 1 − 1/slowdown with the mean rank as ideal; it is not the slowdown.",
    ),
    MetricSpec(
        "waste_ratio",
        "Waste",
        "1 − 1/slowdown",
        "ratio",
        "down",
        "Share of the time that the ideal of the slowdown would save (Lin et al., OSDI'25).",
    ),
    MetricSpec(
        "slowdown_ratio",
        "Slowdown S",
        "sum of step times / sum of ideal step times",
        "x",
        "down",
        "How many times longer a step takes than without stragglers; 1.10 and above is called a "
        "straggling job by Lin et al., OSDI'25.",
    ),
    MetricSpec(
        "job_utilisation_ratio",
        "Job utilisation",
        "ideal step time / step time = 1/slowdown",
        "ratio",
        "up",
        "Share of the step that would remain without stragglers.",
    ),
    MetricSpec(
        "persistent_share_ratio",
        "Persistent share",
        "(largest rank mean of work − mean work) / (mean over steps of the largest work − mean)",
        "ratio",
        "none",
        "The part of the tax that the same rank causes for good. Repair or rebalancing wins it "
        "back; the rest moves from rank to rank.",
    ),
    MetricSpec(
        "persistent_ratio",
        "Persistent tax",
        "(largest rank mean of work − mean work) / mean step time",
        "ratio",
        "down",
        "Persistent and transient tax add up to the straggler tax.",
    ),
    MetricSpec(
        "transient_ratio",
        "Transient tax",
        "straggler tax − persistent tax",
        "ratio",
        "down",
        "Waiting for a rank that is slow in this step only.",
    ),
    MetricSpec(
        "between_stage_ratio",
        "Tax between stages",
        "(largest stage mean of work − mean work) / mean step time",
        "ratio",
        "down",
        "The part of the tax that comes from unequal pipeline stages.",
    ),
    MetricSpec(
        "within_stage_ratio",
        "Tax within stages",
        "straggler tax − tax between stages",
        "ratio",
        "down",
        "The part of the tax that comes from ranks that differ from peers of their own stage.",
    ),
    MetricSpec(
        "recoverable_ratio",
        "Recoverable",
        "(latest arrival − the same once the flagged ranks work like their peers) / step time",
        "ratio",
        "down",
        "Share of paid time that comes back if the flagged ranks become like their peers.",
    ),
    MetricSpec(
        "goodput_ratio",
        "Goodput",
        "GPU-time in retained steps / A = scheduling goodput × ETTR",
        "ratio",
        "up",
        "A is the denominator that stands beside it: paid or allocated GPU-time. What is not in "
        "retained steps: unallocated, pending, start-up, recovery, lost work, checkpoints, other "
        "blocking. How well the steps used the devices is MFU.",
    ),
    MetricSpec(
        "scheduling_ratio",
        "Scheduling goodput",
        "(A − unallocated − pending) / A",
        "ratio",
        "up",
        "Share of the paid (or allocated) GPU-time A in which a job held the device and its "
        "process ran.",
    ),
    MetricSpec(
        "ettr_ratio",
        "ETTR",
        "GPU-time in retained steps / (A − unallocated − pending)",
        "ratio",
        "up",
        "Effective training time ratio, the runtime goodput: steps that were rolled back do not "
        "count. A is paid or allocated GPU-time.",
    ),
    MetricSpec(
        "mfu_ratio",
        "MFU",
        "(model FLOPs / peak FLOP/s) / GPU-time in retained steps = tokens per second × model "
        "FLOPs per token / (devices × peak FLOP/s)",
        "ratio",
        "up",
        "Model FLOPs utilisation (Chowdhery et al., 2022), the program goodput: no recomputation, "
        "dense peak of the data type that ran.",
    ),
    MetricSpec(
        "hfu_ratio",
        "HFU",
        "tokens per second × executed FLOPs per token / (devices × peak FLOP/s)",
        "ratio",
        "up",
        "Hardware FLOPs utilisation: as MFU, with the FLOPs that recomputation adds.",
    ),
    MetricSpec(
        "effective_mfu_ratio",
        "Effective MFU",
        "(model FLOPs of retained steps / peak FLOP/s) / A = scheduling goodput × ETTR × MFU",
        "ratio",
        "up",
        "Model FLOPs of retained steps over what all paid (or allocated) GPU-time A could have "
        "done.",
    ),
    MetricSpec(
        "compute_share_ratio",
        "Own computing",
        "GPU-seconds in the compute phase / paid GPU-seconds of the recorded steps",
        "ratio",
        "up",
        "Time in which ranks computed; how well they computed is MFU.",
    ),
    MetricSpec(
        "step_ms",
        "Step time",
        "mean over steps of (last end − first start)",
        "ms",
        "down",
        "Wall-clock time of an optimiser step.",
    ),
    MetricSpec(
        "ideal_step_ms",
        "Ideal step time",
        "step time − (largest work − mean work)",
        "ms",
        "down",
        "The step if every rank worked as long as the mean of all; total work stays the same.",
    ),
    MetricSpec(
        "wait_ms",
        "Waiting per step",
        "mean over ranks and steps of (latest arrival − own arrival)",
        "ms",
        "down",
        "Time in which a rank was ready at the barrier while a peer was not.",
    ),
    MetricSpec(
        "excess_us",
        "Excess step time",
        "mean over steps of (work of the rank − median work of its peers)",
        "us",
        "down",
        "Peers are the other ranks, of the same pipeline stage where there is one.",
    ),
    MetricSpec(
        "excess_ms",
        "Excess step time",
        "mean over steps of (work of the rank − median work of its peers)",
        "ms",
        "down",
        "Peers are the other ranks, of the same pipeline stage where there is one. The interval is "
        "95 %, by moving-block bootstrap over steps.",
    ),
    MetricSpec(
        "excess_step_ratio",
        "Excess share of the step",
        "excess step time / step time",
        "ratio",
        "down",
        "Excess in relation to the step, which holds for normalised times too.",
    ),
    MetricSpec(
        "persistence_ratio",
        "Persistence",
        "steps in which the rank is slow / steps",
        "ratio",
        "none",
        "A rank is slow in a step when its work exceeds its peers' median by more than 5 %.",
    ),
    MetricSpec(
        "stability_ratio",
        "Same culprit",
        "steps in which this rank arrives last / steps in which any rank is slow",
        "ratio",
        "none",
        "How often it is the same rank that makes the others wait.",
    ),
    MetricSpec(
        "last_ratio",
        "Arrives last",
        "steps in which the rank arrives last / steps",
        "ratio",
        "none",
        "The last rank to arrive waits least and makes the others wait.",
    ),
    MetricSpec(
        "phase_share_ratio",
        "Share of the phase",
        "excess of the rank in the phase / excess of the rank, at most 1",
        "ratio",
        "none",
        "How much of the excess lies in the named phase.",
    ),
    MetricSpec(
        "gpu_hours",
        "GPU-hours",
        "A, paid or allocated GPU-time of the whole job / 3600 s; where nothing tells when it ran, "
        "sum of all its step times × GPUs / 3600 s",
        "GPU-hours",
        "none",
        "Time for which GPUs were held, from the job's allocation to its end, whatever window of "
        "steps is shown.",
    ),
    MetricSpec(
        "window_gpu_hours",
        "GPU-hours, steps shown",
        "sum of step times × GPUs / 3600 s, over the recorded steps of the window",
        "GPU-hours",
        "none",
        "A part of the job's GPU-hours: start-up, recovery and other steps come on top.",
    ),
    MetricSpec(
        "at_risk_gpu_hours",
        "Work at risk",
        "GPU-time in retained steps that began after the last save",
        "GPU-hours",
        "down",
        "What a failure at the end of the record would lose. It stands beside goodput, because "
        "saving less often raises goodput and this with it.",
    ),
    MetricSpec(
        "recoverable_gpu_hours",
        "Recoverable GPU-hours",
        "recoverable share × GPU-hours",
        "GPU-hours",
        "down",
        "What the flagged ranks cost beyond their peers, in this window.",
    ),
    MetricSpec(
        "spend_usd",
        "Spend",
        "GPU-hours of the whole job × price per GPU-hour",
        "USD",
        "none",
        "No price is ever assumed: a connected bill tells it, else the price that you give, else a "
        "connected list price, and it is said which. In a period it is the part in it.",
    ),
    MetricSpec(
        "window_usd",
        "Spend, steps shown",
        "GPU-hours of the steps shown × price per GPU-hour",
        "USD",
        "none",
        "A part of the job's spend, at the price shown at the top.",
    ),
    MetricSpec(
        "recoverable_usd",
        "Recoverable",
        "recoverable GPU-hours × price per GPU-hour",
        "USD",
        "down",
        "What persistent stragglers cost beyond their peers' median, at the price shown.",
    ),
    MetricSpec(
        "recoverable_usd_per_hour",
        "Recoverable per hour",
        "recoverable share × GPUs × price per GPU-hour",
        "USD/h",
        "down",
        "What an hour costs in which the job steps all the time, as the mean of the steps looked "
        "at. An hour with start-up, saves or gaps in it costs less.",
    ),
    MetricSpec(
        "recoverable_usd_per_day",
        "Recoverable per day",
        "recoverable per hour × 24",
        "USD/day",
        "down",
        "What a day costs in which the job steps all the time, as the mean of the steps looked at: "
        "of a rank that became slow among them, a day from now costs more. A day with start-up, "
        "saves or gaps in it costs less.",
    ),
    MetricSpec(
        "recoverable_since_usd_per_day",
        "Recoverable per day, since it began",
        "recoverable share of the steps since the rank became slow × GPUs × price per GPU-hour × "
        "24",
        "USD/day",
        "down",
        "What a day costs in which the job steps all the time and the rank stays as slow as it is. "
        "Only where it became slow among the steps looked at and is so in the last of them.",
    ),
    MetricSpec(
        "unexplained_ratio",
        "Unexplained",
        "of jobs: GPU-seconds of their whole bill that no measured bucket holds / all of them, and "
        "of their recorded steps alone where there is no whole bill or two stretches of steps are "
        "compared; of a provider's bill: cost of resources that no job ran on / effective cost",
        "ratio",
        "down",
        "Shown rather than spread over the other buckets or jobs.",
    ),
    MetricSpec(
        "usd_per_billion_tokens",
        "Cost per billion tokens",
        "spend / tokens of retained steps × 10⁹",
        "USD",
        "down",
        "Steps that were rolled back cost money and add no tokens.",
    ),
    MetricSpec(
        "cost_usd",
        "Cost",
        "effective cost of what was paid for in the period, as the provider's bill has it; without "
        "a bill: GPU-hours in the period × price per GPU-hour",
        "USD",
        "none",
        "Split by time: a job counts with the part of its hours that lies in the period. With a "
        "bill, devices that no job held are in it.",
    ),
    MetricSpec(
        "straggler_tax_usd",
        "Cost of waiting",
        "sum over jobs and days of time that ranks waited for a slower one × cost of their hours",
        "USD",
        "down",
        "What the straggler tax comes to in money, in recorded steps.",
    ),
    MetricSpec(
        "usd_per_checkpoint",
        "Cost per checkpoint kept",
        "cost of jobs with saves on record / saves after which no earlier step was gone back to",
        "USD",
        "down",
        "What a state that can be gone back to costs; saves of steps that were rolled back are not "
        "kept. Saving more often lowers it and wins nothing.",
    ),
    MetricSpec(
        "budget_spent_usd",
        "Spent of the period",
        "sum of the cost of its days so far",
        "USD",
        "none",
        "Cost of the scope in the period up to now, today included as far as it is billed.",
    ),
    MetricSpec(
        "budget_at_end_usd",
        "Spend at the end",
        "spent + mean of the newest complete days × days left",
        "USD",
        "none",
        "Where the spend is heading if the days that are left cost what the newest 14 did; the "
        "band is that of a prediction of as many days.",
    ),
    MetricSpec(
        "budget_left_usd",
        "Budget left",
        "budget − spent",
        "USD",
        "up",
        "Below zero the budget is overspent.",
    ),
    MetricSpec(
        "error_budget_left_usd",
        "Error budget left",
        "(1 − objective) × spend at the end − sum over days of cost × (1 − goodput)",
        "USD",
        "up",
        "What may still be lost in the period before the objective for goodput is missed.",
    ),
    MetricSpec(
        "error_budget_lasts_d",
        "Error budget lasts",
        "error budget left / what was lost a day over the newest week",
        "d",
        "up",
        "Days until the error budget is used up if as much is lost a day as lately.",
    ),
    MetricSpec(
        "burn_rate_ratio",
        "Burn rate",
        "share of cost that was lost in the window / (1 − objective)",
        "x",
        "down",
        "1 uses the error budget up exactly at the end of the period; 2 in half of it.",
    ),
    MetricSpec(
        "failed_jobs_ratio",
        "Jobs that failed",
        "jobs in state failed / jobs that ended in a known state",
        "ratio",
        "down",
        "Counts a job of one GPU as much as one of a thousand; failures of the user's own program "
        "count too. Where the state is unknown the interval says how far it could be off.",
    ),
    MetricSpec(
        "failed_gpu_hours_ratio",
        "GPU-hours of failed jobs",
        "GPU-hours of jobs in state failed / GPU-hours of jobs that ended in a known state",
        "ratio",
        "down",
        "What failed jobs held. It is all lost only where nothing of it was saved.",
    ),
    MetricSpec(
        "mtbf_gpu_hours",
        "Between failures",
        "GPU-hours of jobs whose outcome is known / their failures",
        "GPU-hours",
        "up",
        "Divided by the devices of a job it is the mean time between its failures, as far as the "
        "1/N model holds. Its interval is that of a Poisson count.",
    ),
    MetricSpec(
        "slow_jobs_ratio",
        "Jobs slowed by 10 % or more",
        "jobs with a slowdown of at least 1.10 / jobs whose slowdown is known",
        "ratio",
        "down",
        "Straggling jobs in the sense of Lin et al., OSDI'25, among those with per-rank steps.",
    ),
    MetricSpec(
        "fail_slow_jobs_ratio",
        "Jobs with a fail-slow",
        "jobs with an episode of a slower rank, host or link / jobs in which that can be told",
        "ratio",
        "down",
        "Slower for a while than its peers or its past, for a cause that may lie in a device, a "
        "host, a link or the storage; what a program does to itself does not count.",
    ),
    MetricSpec(
        "unallocated_ratio",
        "Unallocated",
        "GPU-hours that were paid for and that no job held / GPU-hours that were paid for",
        "ratio",
        "down",
        "Known only where a provider's bill is connected.",
    ),
)

METRICS: dict[str, MetricSpec] = {spec.id: spec for spec in _SPECS}
"""Every metric by its id."""


def help_of(metric_id: str) -> str | None:
    """Tooltip of a metric; None for an id that is not registered."""
    spec = METRICS.get(metric_id)
    return None if spec is None else spec.help


def check_metric(metric_id: str, measure: Measure) -> Measure:
    """``measure`` if it can be what ``metric_id`` says.

    Raises IntegrityError, naming the metric, for one that is not registered, for another unit, and
    for a share with a value or a bound outside of 0..1.
    """
    spec = METRICS.get(metric_id)
    if spec is None:
        raise IntegrityError("this metric is not registered", where=metric_id)
    if measure.unit != spec.unit:
        raise IntegrityError(f"{spec.title} is in {spec.unit}, not {measure.unit}", where=metric_id)
    if spec.is_share:
        for value in (measure.value, measure.low, measure.high):
            if value is not None and not -_ROUNDING <= value <= 1 + _ROUNDING:
                raise IntegrityError(
                    f"{spec.title} is a share and must lie in 0..1, not {value:.6g}",
                    where=metric_id,
                    hint=spec.formula,
                )
    return measure


def check_metrics(metrics: Mapping[str, Measure]) -> dict[str, Measure]:
    """The same for several, before a page or a command shows them."""
    return {name: check_metric(name, measure) for name, measure in metrics.items()}
