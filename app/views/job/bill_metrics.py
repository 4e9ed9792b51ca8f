"""Metrics of a job that rest on its whole bill and on what its window did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steptax.app.compute.bill.buckets import UNEXPLAINED
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.models import Bill, Price
from steptax.app.views.pricing.given import RELATIVE_TIME, dollars

S_PER_HOUR = 3600.0
_TOKENS = 1e9
_STEPS_ONLY = "recorded steps only: what the job was paid for between them comes on top"
_AT_LEAST = "at least this: what is not split of the steps comes on top, see all steps for it"


def bill_metrics(
    loaded: LoadedJob, bill: Bill, gpu_hours: Measure, price: Price
) -> dict[str, Measure]:
    """The metrics of ``bill``, with HFU and the cost of tokens.

    ``gpu_hours`` are those of the window.
    """
    found = bill.metrics | {
        "hfu_ratio": _hfu(bill),
        "usd_per_billion_tokens": _usd_per_billion_tokens(loaded, bill, gpu_hours, price),
    }
    told = _unexplained(loaded, bill)
    # Without a bill, what is not explained of the steps alone stands.
    return found if told is None else found | {"unexplained_ratio": told}


def _unexplained(loaded: LoadedJob, bill: Bill) -> Measure | None:
    """Of the whole bill; None without one.

    Of steps that are not loaded the length alone is known. Were they counted, the share would
    depend on how many are looked at.
    """
    if bill.unexplained is None or loaded.window.is_all:
        return bill.unexplained
    shares = {line.bucket: line.share for line in bill.lines}
    least = shares.get(UNEXPLAINED)
    if bill.unexplained.value is None or least is None:
        return bill.unexplained
    return replace(bill.unexplained, value=least, warnings=(_AT_LEAST,))


def _hfu(bill: Bill) -> Measure:
    """MFU times executed / model FLOPs, which the bill holds as recomputation and useful time."""
    mfu = bill.metrics["mfu_ratio"]
    if mfu.value is None:
        return Ratio.missing("ratio", mfu.reason or "MFU is not known", level=mfu.level)
    held = {line.bucket: line.gpu_seconds for line in bill.lines}
    useful, again = held.get("useful"), held.get("recompute")
    if not useful or again is None:
        return Ratio.missing(
            "ratio", "what is recomputed is not on record (recompute)", level=mfu.level
        )
    return Ratio(
        mfu.value * (useful + again) / useful,
        level=mfu.level,
        inputs=(*mfu.inputs, "recompute"),
        warnings=mfu.warnings,
    )


def _usd_per_billion_tokens(
    loaded: LoadedJob, bill: Bill, gpu_hours: Measure, price: Price
) -> Measure:
    """What was paid over the tokens of the steps that count."""
    warnings: tuple[str, ...] = (_STEPS_ONLY,)
    whole = [line.gpu_seconds for line in bill.lines if line.gpu_seconds is not None]
    if loaded.window.is_all and whole:
        gpu_hours = Measure(sum(whole) / S_PER_HOUR, "GPU-hours", level=gpu_hours.level)
        warnings = ()
    spend = dollars(gpu_hours, price)
    matrix = loaded.matrix
    if matrix.time_is_relative:
        return Measure.missing("USD", RELATIVE_TIME, level=spend.level)
    if spend.value is None:
        return Measure.missing("USD", spend.reason or "the spend is not known", level=spend.level)
    tokens = tokens_of(loaded, undone_steps=bill.undone_steps)
    if not tokens:
        return Measure.missing("USD", "the tokens of a step are not on record", level=spend.level)
    return Measure(
        spend.value / tokens * _TOKENS,
        "USD",
        level=spend.level,
        inputs=("price", "tokens"),
        warnings=warnings,
    )


def tokens_of(loaded: LoadedJob, *, undone_steps: int = 0) -> float | None:
    """Tokens of the recorded steps, of all ranks; None where they are not on record.

    Without the newest ``undone_steps``, which were rolled back and not executed again.
    """
    matrix = loaded.matrix
    kept = max(len(matrix.steps) - undone_steps, 0)
    if matrix.tokens is not None and not np.isnan(matrix.tokens).all():
        # A recorded rank may stand for a whole group of paid ones.
        return float(np.nansum(matrix.tokens[:kept])) * float(matrix.weight)
    if loaded.job.get("tokens_per_step"):
        return float(loaded.job["tokens_per_step"]) * kept
    return None
