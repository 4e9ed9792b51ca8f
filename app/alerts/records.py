"""What is kept of one message and of one mute."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from steptax.app.compute.alerting import Change


@dataclass(frozen=True)
class Message:
    """One thing to tell one channel; ``key`` is the same in every attempt."""

    key: str
    channel: str
    change: Change
    attempts: int
    rule: str
    job: str
    severity: str
    metric: str
    value: float | None
    text: str
    fired_us: int
    cleared_us: int | None


@dataclass(frozen=True)
class Mute:
    """Silence over rules and jobs (patterns), with who wants it and why."""

    id: int
    rule: str
    job: str
    reason: str
    owner: str
    from_us: int
    until_us: int | None
    ended_us: int | None

    def holds(self, rule: str, job: str, at_us: int) -> bool:
        """Whether it silences this rule of this job at this moment."""
        return (
            self.ended_us is None
            and self.from_us <= at_us
            and (self.until_us is None or at_us < self.until_us)
            and fnmatchcase(rule, self.rule)
            and fnmatchcase(job, self.job)
        )
