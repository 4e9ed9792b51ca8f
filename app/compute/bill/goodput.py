"""How the useful share of a bill factors: scheduling x runtime x program goodput.

    SG = (A - unallocated - pending) / A
    RG = time in steps that count / (A - unallocated - pending)       the ETTR
    PG = useful / time in steps that count                            MFU in those steps
    useful / A = SG RG PG

A is the denominator: time paid for, or time allocated. Scheduling, runtime and program goodput are
those of ML Productivity Goodput (Google, 2024), with the program held against peak FLOPs; ETTR as
in ByteRobust (SOSP'25). Goodput rises for a job that saves less often, and would for one that
counts steps it lost: so lost steps do not count, and the work at risk is shown beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.format import format_share

GPU_US_PER_HOUR = 3_600_000_000
#: Unexplained time below this share would widen a ratio by less than its printed digits.
LEAST_OPEN = Fraction(1, 2000)
#: Where more than this share is not known, there is no ratio.
LARGEST_OPEN = Fraction(1, 2)


def open_text(low: float, high: float, rest: float, of: str = "time") -> str:
    """Why there is no ratio, though it has bounds."""
    return (
        f"between {format_share(low)} and {format_share(high)}: of {format_share(rest)} of the "
        f"{of} it is not known what happened"
    )


class Denominator(StrEnum):
    """What shares are shares of."""

    PAID = "paid"
    ALLOCATED = "allocated"


@dataclass(frozen=True)
class LossBar:
    """One bar of the cascade from everything to what is useful."""

    title: str
    gpu_us: Fraction
    share_ratio: Fraction


@dataclass(frozen=True)
class Goodput:
    """The factors of one bill, exact. Any may be None with its reason."""

    denominator: Denominator
    total_gpu_us: Fraction
    """A"""
    scheduled_gpu_us: Fraction
    """A without what nobody held and what waited for its first process."""
    in_steps_gpu_us: Fraction | None
    """In steps that count; None where no steps are known."""
    useful_gpu_us: Fraction | None
    """At peak speed for the model FLOPs of steps that count."""
    level: Level
    no_steps: str = ""
    """Why there are no steps."""
    no_useful: str = ""
    """Why the useful part is not known."""
    warnings: tuple[str, ...] = ()
    unexplained_gpu_us: Fraction = Fraction(0)
    """Of which nothing tells what happened in it; it counts as scheduled."""

    @property
    def scheduling(self) -> Fraction | None:
        """SG."""
        return _over(self.scheduled_gpu_us, self.total_gpu_us)

    @property
    def runtime(self) -> Fraction | None:
        """RG, the effective training time ratio."""
        return _over(self.in_steps_gpu_us, self.scheduled_gpu_us)

    @property
    def program(self) -> Fraction | None:
        """PG, MFU in steps that count."""
        return _over(self.useful_gpu_us, self.in_steps_gpu_us)

    @property
    def share(self) -> Fraction | None:
        """Useful / A = SG RG PG, the effective MFU."""
        return _over(self.useful_gpu_us, self.total_gpu_us)

    @property
    def bars(self) -> tuple[LossBar, ...]:
        """What each factor loses, one after the other, and what remains; they add up to A.

        Stops at the first factor that is not known; what remains is then named after that.
        """
        left = self.total_gpu_us
        bars: list[LossBar] = []
        for title, after in (
            ("not scheduled", self.scheduled_gpu_us),
            ("not in steps that count", self.in_steps_gpu_us),
            ("in steps, not useful", self.useful_gpu_us),
        ):
            if after is None:
                return (*bars, self._bar("not known further", left))
            bars.append(self._bar(title, left - after))
            left = after
        return (*bars, self._bar("useful", left))

    def _bar(self, title: str, gpu_us: Fraction) -> LossBar:
        return LossBar(title, gpu_us, _over(gpu_us, self.total_gpu_us) or Fraction(0))

    def measures(self) -> dict[str, Measure]:
        """The factors by metric id: scheduling, ETTR, goodput, MFU in steps and effective MFU.

        Time of which nobody knows what happened may have been anything: it widens the interval of
        each ratio that it could belong to, and where it is the larger part there is no ratio.
        """
        no_useful = self.no_steps or self.no_useful
        goodput = _over(self.in_steps_gpu_us, self.total_gpu_us)
        paid, scheduled = self.total_gpu_us, self.scheduled_gpu_us
        return {
            "scheduling_ratio": self._open(self.scheduling, paid, "", Level.LOG, below=True),
            "ettr_ratio": self._open(self.runtime, scheduled, self.no_steps, Level.LOG),
            "goodput_ratio": self._open(goodput, paid, self.no_steps, Level.LOG),
            "mfu_ratio": self._ratio(self.program, no_useful, self.level),
            "effective_mfu_ratio": self._open(self.share, paid, no_useful, self.level),
            "gpu_hours": self.gpu_hours,
        }

    @property
    def gpu_hours(self) -> Measure:
        """A in hours."""
        return Measure(
            float(self.total_gpu_us / GPU_US_PER_HOUR),
            "GPU-hours",
            level=Level.LOG,
            inputs=(f"{self.denominator} time",),
        )

    def _open(
        self,
        value: Fraction | None,
        whole: Fraction,
        reason: str,
        level: Level,
        *,
        below: bool = False,
    ) -> Measure:
        """A ratio to ``whole``, of which the unexplained time may add to it, or be ``below`` it."""
        found = self._ratio(value, reason, level)
        rest = _over(self.unexplained_gpu_us, whole)
        if value is None or found.value is None or rest is None or rest < LEAST_OPEN:
            return found
        low, high = (max(value - rest, Fraction(0)), value) if below else (value, value + rest)
        high = min(high, Fraction(1))
        if rest > LARGEST_OPEN and not below:
            said = open_text(float(low), float(high), float(rest))
            return Measure.missing("ratio", said, level=level)
        return replace(found, low=float(low), high=float(high))

    def _ratio(self, value: Fraction | None, reason: str, level: Level) -> Measure:
        if value is None:
            return Measure.missing("ratio", reason or "there is no time to share", level=level)
        inputs = (f"{self.denominator} time",)
        return Ratio(float(value), level=level, inputs=inputs, warnings=self.warnings)


def _over(part: Fraction | None, whole: Fraction | None) -> Fraction | None:
    return None if part is None or not whole else part / whole
