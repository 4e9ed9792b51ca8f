"""A comparison of two sides in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from steptax.app.compute.measure import Measure
from steptax.app.compute.straggler.side_by_side import LEAST_RUNS, Contrast, Outcome, Spread
from steptax.app.format import DASH, MINUS, format_share, format_usd, format_value

#: What a comparison of steps does not count, and a choice of devices does.
NOT_BETWEEN = "time between steps not counted"
_PUBLISHED = "equal devices differ by 8 % in a study of five clusters (Sinha et al. 2022)"


def verdict_text(found: Contrast, a: str, b: str, repeats: Spread) -> str:
    """The verdict in one sentence; never "faster" within the noise."""
    change = found.change
    if change.value is None or found.inside_ratio is None:
        return f"Whether {b} is faster than {a} cannot be told: {change.reason}."
    work = "device time per token" if found.per_token else "time per step"
    word = "less" if change.value < 0 else "more"
    size = f"{format_share(abs(change.value))} {word} {work}"
    if found.outcome in (Outcome.FASTER, Outcome.SLOWER):
        beyond = f"beyond the noise from step to step (±{format_share(found.inside_ratio)})"
        return (
            f"{b} is {found.outcome} than {a}: {size} ({_bounds(change)}), {beyond}"
            f"{_between(found, repeats)}."
        )
    if found.outcome is Outcome.OPEN:
        return (
            f"Whether {b} is faster than {a} is not told: it takes {size}, more than the noise "
            f"from step to step (±{format_share(found.inside_ratio)}), but fewer than {LEAST_RUNS} "
            f"runs that are alike are known, and {_PUBLISHED}."
        )
    if found.between_ratio is None or found.between_is_published:
        noise = f"noise from step to step is ±{format_share(found.inside_ratio)}"
    else:
        noise = (
            f"{repeats.runs} runs that are alike lie so far apart that two of them differ by up to "
            f"{format_share(found.between_ratio)}"
        )
    return f"No difference between {a} and {b} that is more than noise: {size}, where {noise}."


def _between(found: Contrast, repeats: Spread) -> str:
    if found.between_ratio is None:
        return ""
    if found.between_is_published:
        return f" and beyond what two runs may differ by: {_PUBLISHED}"
    return (
        f" and beyond what {repeats.runs} runs that are alike differ by (two of them by up to "
        f"{format_share(found.between_ratio)})"
    )


def _bounds(change: Measure) -> str:
    assert change.low is not None
    assert change.high is not None
    sign = -1 if (change.value or 0) < 0 else 1
    low, high = sorted((sign * change.low, sign * change.high))
    digits = [f"{bound * 100:.1f}".replace("-", MINUS) for bound in (low, high)]
    return f"{DASH.join(digits)} %"


def reason_text(
    a: Mapping[str, Measure], b: Mapping[str, Measure], usd_a: Measure, usd_b: Measure
) -> str:
    """How the change of the step time parts into waiting for stragglers and the ranks' own time.

    And what a thousand steps cost on either side, where there is a price.
    """
    step, ideal = ([side[name].value for side in (a, b)] for name in ("step_ms", "ideal_step_ms"))
    if None in (*step, *ideal):
        lacking = next(
            side[name].reason
            for name in ("step_ms", "ideal_step_ms")
            for side in (a, b)
            if side[name].value is None
        )
        return f"Where a change comes from is not known: {lacking}."
    whole = float(step[1] or 0) - float(step[0] or 0)
    own = float(ideal[1] or 0) - float(ideal[0] or 0)
    said = (
        f"Of {_signed(whole)} per step, {_signed(whole - own)} is waiting for stragglers "
        f"(straggler tax {_tax(a)} → {_tax(b)}) and {_signed(own)} what a step takes "
        "without them."
    )
    if usd_a.value is not None and usd_b.value is not None:
        now, before = format_usd(usd_b.value), format_usd(usd_a.value)
        said += f" A thousand steps cost {now} instead of {before}, {NOT_BETWEEN}."
    return said


def _signed(value_ms: float) -> str:
    text = format_value(abs(value_ms), "ms")
    return f"{MINUS if value_ms < 0 else '+'}{text}"


def _tax(side: Mapping[str, Measure]) -> str:
    return format_value(side["straggler_tax_ratio"].value, "ratio")
