"""The analysis in the form of the public artifact of Lin et al., OSDI'25, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptax.app.whatif.analysis import Analysis, Effect
from steptax.app.whatif.trace import Floats

#: Order of the sizes that are echoed.
_META = ("dp", "pp", "tp", "dsp", "vpp", "world")


def published_result(analysis: Analysis) -> dict[str, Any]:
    """Every field of the artifact's result; keys are text, tables fall in value.

    Decompositions are None where the slowdown they take apart is below the threshold.
    """
    model = analysis.model
    trace, ideal = model.trace, model.ideal
    base, span = model.work.base_s, analysis.nodelay_s
    finish = analysis.nodelay_finish_s
    blocking = span / ideal.finish_s
    launch = base / finish
    out: dict[str, Any] = {
        "job_meta": {
            "trial_name": trace.sizes.name,
            "run_id": trace.sizes.run_id,
            **{f"{key}_size": getattr(trace.sizes, key) for key in _META},
        },
        "step_t_base": _by_step(trace.steps, base),
        "step_t_nodelay": _by_step(trace.steps, span),
        "step_t_noblk": {str(s): ideal.span_s for s in trace.steps},
        "launch_slowdown": analysis.launch_slowdown,
        "blocking_slowdown": analysis.slowdown,
        "blocking_step_slowdown": falling(_by_step(trace.steps, blocking)),
        "launch_step_slowdown": falling(_by_step(trace.steps, launch)),
    }
    parts: dict[str, tuple[Sequence[Any], list[Floats]] | None] = {
        "blocking_decompose_by_dp_rank": (trace.dps, list(analysis.by_dp_s.T)),
        "blocking_decompose_by_stage": (range(trace.stages), list(analysis.by_stage_s.T)),
        "blocking_decompose_by_optype": (
            list(analysis.by_type_s),
            list(analysis.by_type_s.values()),
        ),
    }
    if analysis.slowdown < analysis.threshold:
        parts = dict.fromkeys(parts)
    times = analysis.launch
    parts |= {
        "launch_decompose_by_dp_rank": None
        if times is None or times.by_dp_s is None
        else (trace.dps, list(times.by_dp_s.T)),
        "launch_decompose_by_stage": None
        if times is None
        else (range(trace.stages), list(times.by_stage_s.T)),
        "launch_decompose_by_optype": None
        if times is None
        else (list(times.by_type_s), list(times.by_type_s.values())),
    }
    for name, part in parts.items():
        by_launch = name.startswith("launch")
        reference = finish if by_launch else finish * 0 + ideal.finish_s
        order = out["launch_step_slowdown" if by_launch else "blocking_step_slowdown"]
        out[name], out[f"{name}_per_step"] = _decomposed(part, reference, trace.steps, order)
    return out


def published_effect(analysis: Analysis, effect: Effect, name: str) -> dict[str, float]:
    """``trem``, ``tadd``, ``tori``, ``tideal``, ``rem``, ``add`` and, as ``name``, the result.

    Not a number where the job is ideal already: ``report`` says so instead.
    """
    original = float(analysis.nodelay_s.mean())
    ideal = analysis.model.ideal.span_s
    removed, added = float(effect.removed_s.mean()), float(effect.added_s.mean())
    loss = original - ideal
    rem = (original - removed) / loss
    return {
        "trem": removed,
        "tadd": added,
        "tori": original,
        "tideal": ideal,
        "rem": rem,
        "add": (added - ideal) / loss,
        name: rem,
    }


def falling(values: Mapping[str, float]) -> dict[str, float]:
    """The same, largest first."""
    return dict(sorted(values.items(), key=lambda item: -item[1]))


def _by_step(steps: Sequence[int], values: Floats) -> dict[str, float]:
    return {str(s): v for s, v in zip(steps, values.tolist(), strict=True)}


def _decomposed(
    part: tuple[Sequence[Any], list[Floats]] | None,
    reference: Floats,
    steps: Sequence[int],
    order: Mapping[str, float],
) -> tuple[dict[str, float] | None, dict[str, dict[str, float]] | None]:
    """Ratio of means over all steps, and the ratio of each step."""
    if part is None:
        return None, None
    keys = [str(k) for k in part[0]]
    whole = {k: float(v.mean() / reference.mean()) for k, v in zip(keys, part[1], strict=True)}
    columns = [(v / reference).tolist() for v in part[1]]
    each = {
        str(step): falling(dict(zip(keys, values, strict=True)))
        for step, *values in zip(steps, *columns, strict=True)
    }
    return falling(whole), {step: each[step] for step in order}
