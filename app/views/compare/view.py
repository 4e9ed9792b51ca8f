"""Two jobs, or two periods of one job, side by side, with a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.side_by_side import Contrast, Pace, Spread, contrast, spread_of
from steptax.app.compute.straggler.steps import without_inconsistent
from steptax.app.errors import UserError
from steptax.app.format import DASH
from steptax.app.metrics import check_metrics
from steptax.app.views.bill.view import tokens_per_step
from steptax.app.views.compare.load import Part, load_part
from steptax.app.views.compare.text import reason_text, verdict_text
from steptax.app.views.job.extent import step_summary
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.job.metrics import job_metrics
from steptax.app.views.models import Price, Window
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.workspace import Workspace

#: Fields of a job that must be equal for two of them to be runs of the same.
SAME_FIELDS = (
    "name", "framework", "gpu_model", "world_size", "dtype", "tokens_per_step", "params_total",
    "layers", "hidden", "seq_len", "experts", "micro_batches", "recompute",
    "tp_size", "pp_size", "dp_size", "cp_size", "ep_size",
)  # fmt: skip
#: At least one of these must be known: without them nothing says that two runs do the same.
_TELLING = ("name", "params_total", "hidden")
#: Newest jobs that are looked at for runs that are alike.
_LOOKED_AT = 20
_METRICS = (
    "step_ms", "ideal_step_ms", "wait_ms", "straggler_tax_ratio", "slowdown_ratio",
    "persistent_share_ratio", "recoverable_ratio", "unexplained_ratio",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Side:
    """One side of the comparison."""

    part: Part
    window: Window
    job: Mapping[str, Any]
    metrics: dict[str, Measure]
    culprit: str
    """The verdict on its stragglers, in a sentence."""
    steps: Ints
    step_ms: Floats
    """[S] of the used steps."""
    usd_per_1000: Measure
    """Of a thousand steps."""
    price: Price
    """Of its job."""

    @property
    def label(self) -> str:
        """What it is called in a sentence: the job, and its steps where they were chosen."""
        if self.part.first is None and self.part.last is None:
            return self.part.job_id
        first, last = self.window.first_step, self.window.last_step
        return f"{self.part.job_id} in steps {first:,}{DASH}{last:,}"


@dataclass(frozen=True)
class MetricPair:
    """One metric on both sides; ``change`` is of B over A, in points for shares."""

    metric_id: str
    a: Measure
    b: Measure
    change: Measure


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Two sides, what differs between them, and the verdict."""

    a: Side
    b: Side
    contrast: Contrast
    repeats: Spread
    sentence: str
    """The verdict, in one sentence."""
    reason: str
    """Where the change comes from, in one sentence."""
    pairs: tuple[MetricPair, ...]
    differs: tuple[tuple[str, str, str], ...]
    """Fields of the jobs that are not equal: name, A, B."""
    warnings: tuple[str, ...]

    @property
    def price_text(self) -> str:
        """Whose price each side has; said once where it is the same."""
        a, b = self.a.price.basis, self.b.price.basis
        return a if a == b else f"A: {a}; B: {b}"

    def as_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {
            "verdict": self.contrast.outcome,
            "sentence": self.sentence,
            "reason": self.reason,
            "change_ratio": self.contrast.change,
            "per_token": self.contrast.per_token,
            "noise_inside_ratio": self.contrast.inside_ratio,
            "run_to_run_ratio": self.contrast.between_ratio,
            "run_to_run_is_published": self.contrast.between_is_published,
            "runs_alike": self.repeats.runs,
            "sides": {
                name: {
                    "job_id": side.part.job_id,
                    "first_step": side.window.first_step,
                    "last_step": side.window.last_step,
                    "straggler": side.culprit,
                    "metrics": side.metrics,
                    "price": side.price.basis,
                    "usd_per_1000_steps": side.usd_per_1000,
                }
                for name, side in (("a", self.a), ("b", self.b))
            },
            "differs": [dict(zip(("field", "a", "b"), row, strict=True)) for row in self.differs],
        }


def side_by_side(
    ws: Workspace, a: Part, b: Part, *, price: Decimal | None, price_note: str | None = None
) -> SideBySide:
    """Compare ``b`` with ``a``, each at the price of its job (``job_price``).

    Raises NotFoundError for an unknown job or one without such steps; UserError for two equal
    parts, and for times that cannot be set against each other.
    """
    if a == b:
        raise UserError(
            "both sides are the same steps of the same job",
            where=a.text,
            hint=f"name two jobs, or two periods of one: {a.job_id}@0-99 {a.job_id}@100-199",
        )
    first, second = load_part(ws, a), load_part(ws, b)
    if first.matrix.time_is_relative != second.matrix.time_is_relative:
        raise UserError(
            "one side has normalised times, the other real ones", where=f"{a.text}, {b.text}"
        )
    left, right = (
        _side(part, loaded, job_price(ws, part.job_id, price, price_note))
        for part, loaded in ((a, first), (b, second))
    )
    same_run = a.job_id == b.job_id
    repeats = Spread(0, None) if same_run else _repeats(ws, [first.job, second.job])
    found = contrast(_pace(first, left), _pace(second, right), same_run=same_run, repeats=repeats)
    differs = _differences(first.job, second.job)
    return SideBySide(
        left,
        right,
        found,
        repeats,
        verdict_text(found, left.label, right.label, repeats),
        reason_text(left.metrics, right.metrics, left.usd_per_1000, right.usd_per_1000),
        tuple(_pair(name, left.metrics[name], right.metrics[name]) for name in _METRICS),
        differs,
        tuple(_notes(left, right, bool(differs) and not found.per_token)),
    )


def _notes(left: Side, right: Side, work_may_differ: bool) -> Iterator[str]:
    for side in (left, right):
        if side.window.note:
            yield f"{side.label}: {side.window.note}"
    if work_may_differ:
        yield (
            "the jobs differ and do not both count tokens, so step times of different work may be "
            "set against each other"
        )
    if left.part.job_id == right.part.job_id and np.intersect1d(left.steps, right.steps).size:
        yield "the two periods share steps, which makes them look more alike than they are"


def _side(part: Part, loaded: LoadedJob, price: Price) -> Side:
    result = analyse_stragglers(loaded.matrix)
    sound, _ = without_inconsistent(loaded.matrix)
    ledger = step_ledger(sound, price.usd_per_gpu_hour)
    metrics = check_metrics(job_metrics(loaded, result, ledger, price))
    step_us = result.steps.step_us
    used = np.isfinite(step_us) & (step_us > 0)
    return Side(
        part,
        loaded.window,
        loaded.job,
        metrics,
        result.verdict.text,
        result.steps.steps[used],
        step_us[used] / 1000.0,
        metrics["window_usd"].map(
            lambda usd: usd * 1000 / len(loaded.matrix.steps), "USD", "steps"
        ),
        price,
    )


def _pace(loaded: LoadedJob, side: Side) -> Pace:
    tokens = tokens_per_step(loaded.job, loaded.matrix)
    if loaded.matrix.tokens is not None and tokens is not None:
        kept = np.isin(loaded.matrix.steps, side.steps)
        counted = np.nansum(loaded.matrix.tokens[kept], axis=1) * float(loaded.matrix.weight)
    else:
        counted = None if tokens is None else np.full(len(side.steps), tokens)
    devices = None if loaded.world_is_unknown else loaded.matrix.world_size
    return Pace(side.step_ms * 1000.0, counted, devices)


def _repeats(ws: Workspace, jobs: list[dict[str, Any]]) -> Spread:
    """How far runs lie apart that are alike: of the kind of A, else of the kind of B."""
    best = Spread(0, None)
    with_steps = ws.job_ids_with_steps()
    for like in jobs:
        if not any(like.get(name) is not None for name in _TELLING):
            continue
        alike = [
            row["job_id"]
            for row in ws.jobs()
            if row["job_id"] in with_steps
            and all(row.get(name) == like.get(name) for name in SAME_FIELDS)
        ][:_LOOKED_AT]
        found = spread_of([_mean_step_us(ws, job_id) for job_id in alike])
        if found.runs > best.runs:
            best = found
    return best


def _mean_step_us(ws: Workspace, job_id: str) -> float:
    longest = step_summary(ws, job_id)["duration_us"].to_numpy(zero_copy_only=False)
    return float(np.mean(longest)) if len(longest) else 0.0


def _pair(name: str, a: Measure, b: Measure) -> MetricPair:
    for one, which in ((a, "A"), (b, "B")):
        if one.value is None:
            return MetricPair(name, a, b, Measure.missing("ratio", f"{which}: {one.reason}"))
    assert a.value is not None
    assert b.value is not None
    if a.unit == "ratio":
        return MetricPair(name, a, b, Measure(b.value - a.value, "ratio"))
    if a.value == 0:
        return MetricPair(name, a, b, Measure.missing("ratio", "A: it is 0"))
    return MetricPair(name, a, b, Measure(b.value / a.value - 1, "ratio"))


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    def said(value: Any) -> str:
        return (
            "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
        )

    return tuple(
        (name, said(a.get(name)), said(b.get(name)))
        for name in SAME_FIELDS
        if a.get(name) != b.get(name)
    )
