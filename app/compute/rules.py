"""The thresholds of the straggler verdict, in one place, so that a page can print them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StragglerRules:
    """Thresholds; shares are of 1."""

    slow_over_peers_ratio: float = 0.05
    """A rank is slow in a step when its work exceeds its peers' median by more than this."""
    worker_excess_ratio: float = 0.03
    """A flagged rank's mean excess is at least this share of the mean step."""
    worker_persistence_ratio: float = 0.5
    """A flagged rank is slow in at least this share of the steps."""
    lately_steps: int = 20
    """... or, when it became slow only lately, in the last stretch of at least so many steps."""
    stage_excess_ratio: float = 0.05
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
    rank_reports_ratio: float = 0.9
    """Otherwise the ranks that reported at least this share of the steps are used."""
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
