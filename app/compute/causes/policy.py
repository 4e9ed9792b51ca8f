"""When a cause is named, in words: what ``docs/causes.md`` and the page of references say of each.

The names of thresholds stand between backticks; ``named_when`` puts their values beside them.
"""

from __future__ import annotations

import re
from dataclasses import fields

from steptax.app.compute.causes.model import Cause
from steptax.app.compute.straggler.rules import CauseRules, EpisodeRules, StragglerRules

#: As the table of causes has it, by cause.
NAMED_WHEN: dict[Cause, str] = {
    Cause.THERMAL: (
        "compute (or no phases) carries the excess; `sw_thermal`, `hw_thermal` or "
        "`hw_slowdown` in at least `throttled_ratio` of the time at work, that much more "
        "than before and than its typical peer; the clock explains the excess"
    ),
    Cause.POWER_CAP: (
        "the same with `sw_power_cap` or `hw_power_brake`, that much more than its "
        "typical peer (a busy healthy device reports it as well) and than before; or a "
        "power limit below the peers'; the clock explains the excess"
    ),
    Cause.CLOCKS: (
        "clock at least `clock_ratio` below the peers', newly, explains the excess, and "
        "neither heat nor power is the reason"
    ),
    Cause.ECC: (
        "uncorrected errors in the episode, `errors_over_peers` times as often as before "
        "it, or at least `errors` corrected ones and `errors_over_peers` times the peers' "
        "and its own before"
    ),
    Cause.PCIE: (
        "lanes or generation below what the link can do, newly, and copies or compute "
        "carry the excess"
    ),
    Cause.NVLINK: (
        "link errors (rule as for corrected ECC) or fewer links up than the peers, and "
        "transfers or compute carry the excess"
    ),
    Cause.XID: (
        "an Xid that names hardware, first reported within `onset_steps` of the first slow step"
    ),
    Cause.HOST_CPU: (
        "own time that no phase names carries the excess, on most ranks of one host together"
    ),
    Cause.GC: "collector pauses carry the excess",
    Cause.INPUT_LOADER: "waiting for data carries the excess of a rank or a host",
    Cause.INPUT_STORAGE: (
        "waiting for data became longer, or takes `job_share_ratio` of the paid time, on "
        "the typical rank"
    ),
    Cause.SEQUENCE: (
        "compute follows sequence lengths (correlation or slope, "
        "`StragglerRules.sequence_*`) and the slope of the other ranks explains the "
        "excess"
    ),
    Cause.STAGE: (
        "the median of a stage's ranks exceeds the other stages' in most steps, and the "
        "stage has several ranks"
    ),
    Cause.EXPERT: "the ranks of one expert place are slow together in several replicas",
    Cause.NETWORK: "transfer of the typical rank became longer",
    Cause.LINK: (
        "measured transfers of one group that spans hosts became longer, those of others did not"
    ),
    Cause.CHECKPOINT: (
        "checkpoints carry the excess of a rank, or take `job_share_ratio` of the paid time"
    ),
    Cause.LAUNCH_BOUND: (
        "own time that no phase names became longer, or takes `job_share_ratio` of the "
        "paid time, on the typical rank"
    ),
}

_THRESHOLD = re.compile(r"`([a-z]+(?:_[a-z]+)*)`")


def named_when(cause: Cause) -> str:
    """When ``cause`` is named, each threshold with the value that holds: ``errors (10)``."""
    return _THRESHOLD.sub(_with_value, NAMED_WHEN[cause]).replace("`", "")


def _with_value(found: re.Match[str]) -> str:
    name = found.group(1)
    value = _VALUES.get(name)
    return name if value is None else f"{name} ({value:g})"


#: Numbers by the name that the text calls them by; names of signals are in none of these.
_VALUES: dict[str, float] = {
    field.name: value
    for rules in (StragglerRules(), EpisodeRules(), CauseRules())
    for field in fields(rules)
    if isinstance(value := getattr(rules, field.name), int | float)
}
