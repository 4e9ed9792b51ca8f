"""The analysis in the form of the public artifact of Lin et al., OSDI'25, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from steptax.app.whatif.analysis import Analysis, Effect
from steptax.app.whatif.trace import Floats

#: Order of the sizes that are echoed.
_META = ("dp", "pp", "tp", "dsp", "vpp", "world")
#: Keys, and for each of them times [K, S].
Table = tuple[Iterable[Any], Floats]


def published_result(analysis: Analysis) -> dict[str, Any]:
    """Every field of the artifact's result; keys are text, tables fall in value.

    Decompositions are None where the slowdown they take apart is below the threshold.
    """
    model = analysis.model
    trace, ideal_s = model.trace, analysis.ideal_finish_s
    base, span = model.work.base_s, analysis.nodelay_s
    finish = analysis.nodelay_finish_s
    blocking = span / ideal_s
    launch = base / finish
    out: dict[str, Any] = {
        "job_meta": {
            "trial_name": trace.sizes.name,
            "run_id": trace.sizes.run_id,
            **{f"{key}_size": getattr(trace.sizes, key) for key in _META},
        },
        "step_t_base": _by_step(trace.steps, base),
        "step_t_nodelay": _by_step(trace.steps, span),
        "step_t_noblk": {str(s): analysis.ideal_span_s for s in trace.steps},
        "launch_slowdown": analysis.launch_slowdown,
        "blocking_slowdown": analysis.slowdown,
        "blocking_step_slowdown": falling(_by_step(trace.steps, blocking)),
        "launch_step_slowdown": falling(_by_step(trace.steps, launch)),
    }
    stages = range(trace.stages)
    blocked: dict[str, Table | None] = {
        "dp_rank": (trace.dps, analysis.by_dp_s.T),
        "stage": (stages, analysis.by_stage_s.T),
        "optype": _typed(analysis.by_type_s),
    }
    launched: dict[str, Table | None] = dict.fromkeys(blocked)
    if analysis.slowdown < analysis.threshold:
        blocked = dict.fromkeys(blocked)
    if (times := analysis.launch) is not None:
        launched["stage"] = (stages, times.by_stage_s.T)
        launched["optype"] = _typed(times.by_type_s)
        if times.by_dp_s is not None:
            launched["dp_rank"] = (trace.dps, times.by_dp_s.T)
    whole: dict[str, Any] = {}
    each: dict[str, Any] = {}
    for by in blocked:
        for kind, table, reference in (
            ("blocking", blocked[by], np.full_like(finish, ideal_s)),
            ("launch", launched[by], finish),
        ):
            name, order = f"{kind}_decompose_by_{by}", out[f"{kind}_step_slowdown"]
            whole[name], each[f"{name}_per_step"] = _decomposed(
                table, reference, trace.steps, order
            )
    return out | whole | each


def _typed(times: dict[str, Floats]) -> Table:
    return times, np.stack(list(times.values()))


def published_effect(analysis: Analysis, effect: Effect, name: str) -> dict[str, float]:
    """``trem``, ``tadd``, ``tori``, ``tideal``, ``rem``, ``add`` and, as ``name``, the result.

    Not a number where the job is ideal already: ``report`` says so instead.
    """
    original = float(analysis.nodelay_s.mean())
    ideal = analysis.ideal_span_s
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
    return dict(sorted(values.items(), key=itemgetter(1), reverse=True))


def _by_step(steps: Sequence[int], values: Floats) -> dict[str, float]:
    return {str(s): v for s, v in zip(steps, values.tolist(), strict=True)}


def _decomposed(
    part: Table | None,
    reference: Floats,
    steps: Sequence[int],
    order: Mapping[str, float],
) -> tuple[dict[str, float] | None, dict[str, dict[str, float]] | None]:
    """Ratio of means over all steps, and the ratio of each step, of times [K, S]."""
    if part is None:
        return None, None
    keys = [str(k) for k in part[0]]
    whole = (part[1].mean(axis=1) / reference.mean()).tolist()
    each = {
        str(step): falling(dict(zip(keys, values, strict=True)))
        for step, values in zip(steps, (part[1] / reference).T.tolist(), strict=True)
    }
    return falling(dict(zip(keys, whole, strict=True))), {step: each[step] for step in order}
