"""A trace view as text for a terminal or a ticket, and as the values that ``--json`` prints."""

from __future__ import annotations

from typing import Any

from steptax.app.compute.measure import Measure
from steptax.app.format import UNKNOWN, format_interval, format_measure, format_share, format_value
from steptax.app.views.trace.load import TraceJob
from steptax.app.views.trace.models import RailAnswer, TraceBar, TraceView
from steptax.app.whatif.published import published_result

#: Lines of each part of the report.
_LINES = 8
_WIDTH = 30
#: Lines that an estimate does not have.
_SIMULATED = (
    "slowdown S",
    "waste 1 - 1/S",
    "launch slowdown",
    "slowest ranks explain, M_W",
    "last stage explains, M_S",
    "simulation error",
)


def as_text(view: TraceView) -> str:
    """The report for an engineer: the answer, the numbers, where it is, what to do."""
    lines = [view.sentence, "", *_numbers(view)]
    for title, bars in (
        ("By operation", view.by_optype),
        ("By pipeline stage", view.by_stage),
        ("By data-parallel rank", view.by_dp_rank),
    ):
        if len(bars) > 1:
            lines += ["", f"{title}: S with all else ideal", *_bars(bars)]
    if view.workers:
        lines += ["", f"Slowest of {view.worker_count:,} ranks", *_workers(view)]
    if view.pattern.signs:
        lines += ["", "Signs: share of the loss that goes away with each"]
        lines += [
            f"  {'*' if s.holds else ' '} {s.title:<{_WIDTH}} {_share(s.strength):>9}  {s.text}"
            for s in view.pattern.signs
        ]
    if view.worst_k:
        lines += ["", "Repairing the slowest ranks together", *_curve(view)]
    lines += ["", f"What to do: {view.pattern.next_action}."]
    if view.doubts and view.no_graph is None:
        lines += [f"Doubt: {doubt}." for doubt in view.doubts]
    if view.no_graph is not None:
        lines.append(f"Why an estimate: {view.no_graph}.")
    said = (*view.doubts, view.no_graph)
    lines += [f"note: {warning}" for warning in view.warnings if warning not in said]
    return "\n".join(lines)


def _numbers(view: TraceView) -> list[str]:
    worth = view.recovered
    rows = [
        ("steps", view.steps_note),
        ("price", view.price.basis),
        ("step, as measured", format_measure(view.step_ms)),
        ("ideal step", format_measure(view.ideal_step_ms)),
        ("slowdown S", _slowdown(view.S)),
        ("waste 1 - 1/S", format_measure(view.waste)),
        ("launch slowdown", _slowdown(view.launch_slowdown)),
        ("slowest ranks explain, M_W", format_measure(view.M_W)),
        ("last stage explains, M_S", format_measure(view.M_S)),
        ("simulation error", format_measure(view.sim_error)),
        ("waste in these steps", _worth(worth.gpu_hours, worth.usd)),
        ("waste per day", _worth(worth.gpu_hours_per_day, worth.usd_per_day)),
    ]
    if view.no_graph is not None:
        rows = [row for row in rows if row[0] not in _SIMULATED]
        rows.append(("slowdown S, estimate", _slowdown(view.estimate)))
    return [f"  {name:<{_WIDTH}} {text}" for name, text in rows]


def _slowdown(measure: Measure) -> str:
    """Three decimals: the differences that count are there."""
    if measure.value is None:
        return f"{UNKNOWN}: {measure.reason}"
    text = f"{measure.value:.3f}"
    if measure.low is None or measure.high is None:
        return text
    return f"{text} ({measure.low:.3f} to {measure.high:.3f})"


def _share(measure: Measure) -> str:
    return UNKNOWN if measure.value is None else format_share(measure.value)


def _worth(hours: Measure, usd: Measure) -> str:
    if hours.value is None:
        return f"{UNKNOWN}: {hours.reason}"
    text = format_value(hours.value, "GPU-hours")
    if usd.value is None:
        return f"{text}; dollars {UNKNOWN}: {usd.reason}"
    interval = format_interval(usd)
    return f"{text}, {format_value(usd.value, 'USD')}{f' ({interval})' if interval else ''}"


def _bars(bars: tuple[TraceBar, ...]) -> list[str]:
    ranked = sorted(bars, key=lambda b: -(b.measure.value or 0.0))
    out = [f"  {b.label:<{_WIDTH}} {_slowdown(b.measure)}" for b in ranked[:_LINES]]
    if len(ranked) > _LINES:
        out.append(f"  ... and {len(ranked) - _LINES:,} more; --json prints all")
    return out


def _workers(view: TraceView) -> list[str]:
    out = []
    for w in view.workers[:_LINES]:
        place = [] if w.dp is None else [f"DP {w.dp}"]
        place += [] if w.stage is None else [f"stage {w.stage}"]
        place += [] if w.host is None else [w.host]
        name = f"rank {w.rank}"
        mark = "*" if w.highlighted else " "
        out.append(f"  {mark} {name:<{_WIDTH - 2}} {w.slowdown:.3f}  {', '.join(place)}")
    return out


def _curve(view: TraceView) -> list[str]:
    return [
        f"  {f'{p.k} (rank {p.rank} last)':<{_WIDTH}} {format_value(p.step_ms.value, 'ms')}, "
        f"{_share(p.share)} of the step, {_worth(p.gpu_hours_per_day, p.usd_per_day)} a day"
        if p.usd_per_day.value is not None
        else f"  {f'{p.k} (rank {p.rank} last)':<{_WIDTH}} {format_value(p.step_ms.value, 'ms')}, "
        f"{_share(p.share)} of the step"
        for p in view.worst_k[:4]
    ]


def answer_as_text(answer: RailAnswer) -> str:
    """The answer to a combination of fixes, with its intervals."""
    worth = answer.recovered
    rows = [
        ("step before", format_measure(answer.step_before_ms)),
        ("step after", format_measure(answer.step_after_ms)),
        ("S before", _slowdown(answer.S_before)),
        ("S after", _slowdown(answer.S_after)),
        ("speed-up", _slowdown(answer.speedup)),
        ("comes back, of each step", format_measure(worth.share)),
        ("in these steps", _worth(worth.gpu_hours, worth.usd)),
        ("per day", _worth(worth.gpu_hours_per_day, worth.usd_per_day)),
        ("simulation error", format_measure(answer.sim_error)),
    ]
    return "\n".join([answer.text, "", *(f"  {name:<{_WIDTH}} {text}" for name, text in rows)])


def as_json(view: TraceView, job: TraceJob, *, published: bool = False) -> dict[str, Any]:
    """What ``whatif stragglers --json`` prints: the analysis by its names, and the view's words."""
    data: dict[str, Any] = job.result.as_json(published=False)
    data |= {
        "job": view.job_id,
        "basis": view.basis,
        "sentence": view.sentence,
        "no_graph": view.no_graph,
        "steps_note": view.steps_note,
        "step_ms": view.step_ms.as_json(),
        "ideal_step_ms": view.ideal_step_ms.as_json(),
        **view.recovered.as_json(),
        "pattern": {
            "kind": view.pattern.kind.value,
            "text": view.pattern.text,
            "next_action": view.pattern.next_action,
            "cells": [{"dp": dp, "stage": stage} for dp, stage in view.pattern.cells],
            "signs": [
                {
                    "name": s.name,
                    "holds": s.holds,
                    "strength": s.strength.as_json(),
                    "text": s.text,
                }
                for s in view.pattern.signs
            ],
            "sequence": [vars(s) for s in view.pattern.sequence],
        },
        "ranks": [
            {
                "rank": w.rank,
                "dp": w.dp,
                "stage": w.stage,
                "host": w.host,
                "slowdown": w.slowdown,
            }
            for w in view.workers
        ],
        "worst_k": [
            {
                "k": p.k,
                "rank": p.rank,
                "step_ms": p.step_ms.as_json(),
                "share": p.share.as_json(),
                "gpu_hours_per_day": p.gpu_hours_per_day.as_json(),
                "usd_per_day": p.usd_per_day.as_json(),
            }
            for p in view.worst_k
        ],
        "price": {"usd_per_gpu_hour": view.price.usd_per_gpu_hour, "basis": view.price.basis},
        "warnings": list(view.warnings),
    }
    if published and job.analysis is not None:
        data["published"] = published_result(job.analysis)
    return data
