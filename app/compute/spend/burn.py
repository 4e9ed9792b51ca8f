"""How fast an error budget is used up right now: burn rates of the newest hours, and their alarms.

The burn rate of a window is the share of paid time that was lost in it over the share that may be;
1 uses the budget up exactly at the end of the period. Two windows ring (Google, Site Reliability
Workbook, chapter 5): a fast one, for what would use up the budget in two days, and a slow one.

An objective for goodput allows much to be lost, so that a rate has a ceiling, 1 / (1 - objective),
that may lie below the level of an alarm: at 0.9 nothing burns faster than 10x. There the alarm
rings once ``NEARLY_ALL`` of the time is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR, Denominator, Goodput
from steptax.app.compute.bill.job_days import NOT_SCHEDULED, STEPS, Stretches
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.exact import int_sum
from steptax.app.compute.stats.rows import Flags, Ints

#: Share of paid time whose loss rings whatever the objective is.
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Window:
    """A length of time, and the burn rate in it that is an alarm."""

    hours: int
    alarm: float

    def level(self, slo_ratio: float) -> float:
        """The rate that rings for an objective."""
        return min(self.alarm, NEARLY_ALL / (1 - slo_ratio))


FAST, SLOW = Window(1, 14.0), Window(6, 6.0)


@dataclass(frozen=True)
class Burn:
    """The rate in one window."""

    window: Window
    rate: Measure
    level: float
    """The rate from which on it rings."""
    end_us: int | None
    """Up to when anything is known; None where nothing is."""
    is_stale: bool
    """Nothing is known of the window up to now: it is an earlier one."""

    @property
    def rings(self) -> bool:
        """Whether somebody has to act."""
        return not self.is_stale and self.rate.value is not None and self.rate.value >= self.level


def burn(
    window: Window, held: Stretches, wanted: Flags, slo_ratio: float | None, until_us: int
) -> Burn:
    """Burn rate of the newest ``window`` up to ``until_us``.

    ``held`` are stretches of time of all jobs, ``wanted`` [jobs] says whose count. Where nothing is
    known up to ``until_us`` it is the window up to the newest that is known, and says so.
    """
    own = wanted[held.job] & (held.start_us < until_us) if len(held.job) else np.zeros(0, np.bool_)
    newest = min(int(held.end_us[own].max(initial=0)), until_us) if own.any() else None
    length_us = window.hours * GPU_US_PER_HOUR
    stale = newest is None or newest < until_us - length_us
    level = window.alarm if slo_ratio is None else window.level(slo_ratio)
    if newest is None:
        reason = "no job held a device in this time"
        return Burn(window, Measure.missing("x", reason), level, None, stale)
    # While jobs run, the newest that is known may be some minutes old.
    end_us = newest if stale else until_us
    goodput = goodput_between(held, own, end_us - length_us, end_us)
    if slo_ratio is None:
        rate = Measure.missing("x", "no objective is set")
    elif goodput.value is None:
        rate = Measure.missing("x", goodput.reason or "")
    else:
        # What is unexplained may have been useful: less was lost then.
        high = goodput.high if goodput.high is not None else goodput.value
        allowed = 1 - slo_ratio
        value, low = (1 - goodput.value) / allowed, (1 - high) / allowed
        is_open = low < value
        rate = Measure(
            value, "x", low if is_open else None, value if is_open else None, level=goodput.level
        )
    return Burn(window, rate, level, newest, stale)


def goodput_between(held: Stretches, own: Flags, first_us: int, end_us: int) -> Measure:
    """Share of the paid time in [first, end) that went into steps that count."""
    us = np.minimum(held.end_us, end_us) - np.maximum(held.start_us, first_us)
    gpu_us = np.where(own, np.maximum(us, 0) * held.gpus, 0)

    def added(states: Ints) -> Fraction:
        return Fraction(int_sum(gpu_us[np.isin(held.state, states)]))

    paid = Fraction(int_sum(gpu_us))
    steps = added(np.array(STEPS))
    return Goodput(
        Denominator.PAID,
        paid,
        paid - added(np.array(NOT_SCHEDULED)),
        steps if steps or paid > added(np.array([State.UNEXPLAINED])) else None,
        None,
        Level.LOG,
        no_steps="no job tells what happened in it",
        unexplained_gpu_us=added(np.array([State.UNEXPLAINED])),
    ).measures()["goodput_ratio"]
