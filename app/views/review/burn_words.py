"""Error budgets and their burn rates, in words and as commands print them."""

from __future__ import annotations

from typing import Any

from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.burn import Burn
from steptax.app.format import format_measure, format_moment, format_usd, format_value


def hours_text(hours: int) -> str:
    """``1 hour``, ``6 hours``."""
    return f"{hours} hour" if hours == 1 else f"{hours} hours"


def error_budget_text(left: Measure, lasts: Measure, allowed: Measure | None = None) -> str:
    """What is left of an error budget of ``allowed``, and for how long that lasts.

    Time of which nobody knows what happened may have been useful: where that decides whether
    anything is left, nothing is claimed.
    """
    whole = "the error budget"
    if allowed is not None and allowed.value is not None:
        whole += f" of {format_usd(allowed.value)}"
    if left.value is None:
        return f"what is left of {whole} is unknown"
    if left.sign_is_open:
        assert left.low is not None
        return (
            f"whether {whole} is overspent is not known: between {format_usd(-left.low)} over it "
            f"and {format_usd(left.high)} left"
        )
    if left.value <= 0:
        return f"{whole} is overspent by {format_measure(left.map(lambda usd: -usd, 'USD'))}"
    text = f"{format_measure(left)} of {whole} are left"
    if lasts.value is not None:
        text += f" and last {format_value(lasts.value, 'd')} at this rate"
    return text


def burning_text(week: Measure) -> str:
    """What a burn rate over seven days says of an error budget; empty where it will last."""
    if week.value is None or week.value <= 1:
        return ""
    if (week.value if week.low is None else week.low) > 1:
        return "will not last"
    return f"may not last: over 7 days it burns at {format_measure(week)}, and 1× just lasts"


def burn_note(one: Burn) -> str:
    """What limits a rate, or why there is none; empty where nothing does."""
    if one.rate.value is None:
        return one.rate.reason or ""
    if one.is_stale:
        return f"of the newest hours that are known, up to {format_moment(one.end_us)}"
    return "; ".join(one.rate.warnings)


def burn_text(one: Burn) -> str:
    """The rate, whether it is an alarm, and what limits it."""
    rings = f", an alarm from {one.level:.3g}x on" if one.rings else ""
    note = burn_note(one) if one.rate.value is not None else ""
    return f"{format_measure(one.rate)}{rings}{f' ({note})' if note else ''}"


def burn_json(one: Burn) -> dict[str, Any]:
    """As every command prints it."""
    return {
        "hours": one.window.hours,
        "rate": one.rate,
        "alarm_at": one.level,
        "up_to_us": one.end_us,
        "is_stale": one.is_stale,
        "rings": one.rings,
    }
