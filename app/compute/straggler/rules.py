"""The thresholds of verdict, episodes and causes, in one place; ``docs/causes.md`` states them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecurringRules:
    """When a rank that is slow in fewer than half of its steps is slow again and again."""

    least_duty_ratio: float = 0.05
    """Such a rank is slow in at least this share of its steps ..."""
    least_slow_steps: int = 6
    """... in at least so many of them ..."""
    least_stretches: int = 3
    """... in at least so many separate stretches."""
    level_sds: float = 3.0
    """Mean excess of its slow steps, in robust standard deviations of all ranks' excess."""
    share_ratio: float = 0.25
    """Its mean excess is at least this share of the mean excess of the slowest of each step ..."""
    picked_share_ratio: float = 0.4
    """... and this where the steps were picked for what they show."""
    family_error: float = 1e-4
    """Probability that chance alone makes any rank of a job look like that, over the window ..."""
    quiet_steps: int = 20
    """It has ended when it was not slow for more steps than this ..."""
    quiet_gaps: float = 8.0
    """... and for more than so many of its usual pauses."""
    special_ratio: float = 1.5
    """Steps in which the typical rank works more than this many times its median ..."""
    special_steps: int = 20
    """... for no more steps than this on end ..."""
    special_share_ratio: float = 0.2
    """... and in no larger share of all steps judge nobody: evaluations, saves, restarts."""


@dataclass(frozen=True)
class StragglerRules:
    """Thresholds; shares are of 1."""

    slow_over_peers_ratio: float = 0.05
    """A rank is slow in a step when its work exceeds its peers' median by more than this."""
    worker_excess_ratio: float = 0.03
    """A flagged rank's mean excess is at least this share of the mean step, over the typical ..."""
    worker_surely_ratio: float = 0.015
    """... and surely at least this, with the error below for all ranks together."""
    worker_family_error: float = 0.005
    """Probability that a healthy job has any rank that is called slow by chance."""
    worker_persistence_ratio: float = 0.5
    """A flagged rank is slow in at least this share of the steps."""
    lately_steps: int = 20
    """... or, when it became slow only lately, in the last stretch of at least so many steps."""
    stage_excess_ratio: float = 0.03
    """A flagged stage exceeds the median of the other stages by this share of the step."""
    stage_persistence_ratio: float = 0.5
    """... in at least this share of the steps."""
    tax_floor_ratio: float = 0.03
    """Below this tax, and with nobody flagged, there is no straggler to speak of."""
    synchronised_spread_ratio: float = 0.005
    """Durations closer than this over the ranks of a step are wall times across a barrier."""
    measured_share_ratio: float = 0.9
    """A column counts as measured when at least this share of the reports carries it."""
    complete_steps_ratio: float = 0.5
    """Steps with every expected rank are used alone when they are at least this share."""
    complete_steps: int = 32
    """... or so many, where otherwise a rank would be left out ..."""
    complete_pauses: float = 8.0
    """... and the newest of them is no more of their mean pauses behind the newest step."""
    rank_reports_ratio: float = 0.8
    """Otherwise the ranks that reported at least this share of the steps are used ..."""
    step_reports_ratio: float = 0.8
    """... in the steps that at least this share of those ranks reported."""
    stopped_lag_steps: int = 3
    """A rank whose newest step lags by more recorded steps than this has stopped reporting."""
    min_steps: int = 3
    """With fewer steps a lasting straggler cannot be told from a passing one."""
    hint_share_ratio: float = 0.2
    """A cause is named when it carries at least this share of the excess."""
    sequence_correlation: float = 0.9
    """Work follows sequence length when they correlate at least this much (Lin et al., OSDI'25)."""
    sequence_slope_t: float = 4.0
    """... or, under noise, when the slope on the other ranks is this many standard errors."""
    sequence_explains_ratio: float = 0.5
    """... and the fitted slope explains at least this share of the excess in compute."""
    replicates: int = 400
    """Bootstrap replicates."""
    seed: int = 0
    """Seed of the bootstrap."""


@dataclass(frozen=True)
class EpisodeRules:
    """Thresholds of slow episodes; excess is a share of the usual step."""

    windows_steps: tuple[int, ...] = (8, 16, 32, 64)
    """Trailing windows over which the excess is averaged; any of them may open an episode."""
    open_ratio: float = 0.035
    """An episode opens when a window's mean excess is at least this ..."""
    open_sds: float = 6.0
    """... and this many standard deviations of such means over all ranks and steps."""
    close_ratio: float = 0.0175
    """It closes when the mean over the closing window falls below this (hysteresis)."""
    close_window_steps: int = 32
    """Trailing window that closes an episode."""
    clip_ratio: float = 0.15
    """A single step counts for no more than this, so that a spike opens nothing ..."""
    wide_clip_ratio: float = 0.6
    """... and for no more than this where the rank has to be slow again and again."""
    merge_gap_steps: int = 32
    """Episodes of a rank that are no further apart are one."""
    min_steps: int = 10
    """A shorter episode is a spell and is not reported."""
    nature_ratio: float = 0.035
    """What is usual for a rank is taken off where it is less than this: silicon, and no fault."""
    report_ratio: float = 0.04
    """An episode is reported when its mean excess is at least this ..."""
    rise_ratio: float = 0.6
    """... at least this share of it is over what is usual for the rank ..."""
    least_cost_steps: float = 1.5
    """... has cost at least so many whole steps ..."""
    persistence_ratio: float = 0.5
    """... and the rank exceeds half of that mean in at least this share of its steps."""
    most_ranks_ratio: float = 0.5
    """More ranks than this slow at once are no stragglers: the job is slow."""
    warm_up_ratio: float = 1.1
    """Leading steps longer than this many median steps are warm-up ..."""
    warm_up_steps: int = 50
    """... but no more than so many of them."""
    joint_overlap_ratio: float = 0.6
    """Episodes that share this much of their time, in one group of ranks, are one finding."""
    job_ratio: float = 0.035
    """Lasting change of a part of all ranks' steps that is reported, as a share of a step ..."""
    job_sds: float = 8.0
    """... in standard deviations of what the noise of the typical rank leaves of it."""
    job_change_ratio: float = 0.021
    """Changes of a part of all ranks' steps that are smaller are joined (share of a step)."""
    job_covers_ratio: float = 0.5
    """A rank's excess below this share of what slows all ranks in the same part belongs to it."""
    job_share_ratio: float = 0.05
    """Share of the paid time at which a part of all ranks' steps is a finding by itself."""


@dataclass(frozen=True)
class CauseRules:
    """Thresholds of the attribution of causes."""

    least_confidence: float = 0.6
    """Below this no cause is named."""
    carries_ratio: float = 0.5
    """A part of the step that carries at least this share of the excess is its place."""
    throttled_ratio: float = 0.3
    """Share of samples with a throttle bit, above the peers' and above the device's own before."""
    clock_ratio: float = 0.03
    """Clock below the peers' median by at least this."""
    before_ratio: float = 0.7
    """A clock that was low by this share of it before the rank was slow is no cause."""
    clock_explains_ratio: float = 0.4
    """... and by at least this share of what would explain the excess in compute."""
    errors: int = 10
    """Corrected memory errors or link errors in the episode that count ..."""
    errors_over_peers: float = 10.0
    """... when they are this many times those of the worst peer."""
    hotter_c: float = 3.0
    """A device is hotter than its peers by at least this, in degrees."""
    onset_steps: int = 20
    """Xids and errors that begin more steps than this after the first slow one are no cause."""
    beside_ratio: float = 0.5
    """Other ranks with this share of the excess are slow beside those that are named."""
    group_share_ratio: float = 0.8
    """Share of a group's ranks that must be slow for the group to be the place."""


@dataclass(frozen=True)
class Confidences:
    """How sure a cause is, of 1, by the evidence for it."""

    phase: float = 0.9
    """The part of the step that carries the excess names the cause (input, collector, ...)."""
    expert: float = 0.9
    """The ranks that hold the same experts are slow together in several replicas."""
    stage: float = 0.9
    """All ranks of a stage work longer; there are several."""
    stage_of_one: float = 0.5
    """... or there is one, which a slow device would look like."""
    job: float = 0.85
    """One part of the step is longer on the typical rank."""
    link: float = 0.8
    """Transfers of one group over several hosts are longer."""
    clock_explains: float = 0.95
    """The device is held back, and its clock explains the excess."""
    clock_unknown: float = 0.75
    """The device is held back, and its clock is not known."""
    clock_denies: float = 0.45
    """The device is held back, and its clock is that of its peers."""
    low_clock: float = 0.9
    """The clock explains the excess, and the device gives no reason for it."""
    ecc_uncorrected: float = 0.85
    """Uncorrected memory errors while the rank was slow."""
    ecc_corrected: float = 0.7
    """Many corrected memory errors while the rank was slow."""
    xid: float = 0.85
    """An Xid that names hardware, new while the rank was slow."""
    after_onset: float = 0.3
    """An Xid or errors that began after the rank had become slow."""
    besides_clock: float = 0.1
    """Taken off memory errors and Xids where a low clock explains the excess."""
    pcie_copies: float = 0.95
    """The PCIe link is degraded, and copies carry the excess."""
    pcie_compute: float = 0.65
    """... and compute carries it."""
    nvlink_transfer: float = 0.95
    """NVLink errors or lost links, and transfers carry the excess."""
    nvlink_compute: float = 0.7
    """... and compute carries it."""


RECURRING_RULES = RecurringRules()
EPISODE_RULES = EpisodeRules()
CAUSE_RULES = CauseRules()
CONFIDENCES = Confidences()
