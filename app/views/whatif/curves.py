"""What the figures of the What-if page show: a step in its parts, and answers over one input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steptax.app.compute.calculators.base import Calculator, Result
from steptax.app.compute.calculators.kernel_speedup import KernelSpeedup
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.calculators.remove_worst import RemoveWorst
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.kernel_model import StepParts, speedup_curve
from steptax.app.errors import UserError
from steptax.app.views.whatif.catalog import Sweep, entry
from steptax.app.views.whatif.models import Composition, CompositionBar, Curve, Line
from steptax.app.views.whatif.words import label_of, title_of

POINTS = 41
PARTS = ("compute", "communication", "wait", "other")
#: Ranks taken out in the curve of the slowest ranks.
_WORST_SHOWN = 32


def composition(result: Result, speedup: float | None) -> Composition | None:
    """The step before and after, with the ends of the band; None for what has no parts."""
    if not isinstance(result, KernelSpeedup) or speedup is None:
        return None
    model = result.model
    after = model.after(speedup, model.nominal)
    ends = sorted((model.after(speedup, corner) for corner in model.corners), key=_total)
    bars = [_bar("before", model.before), _bar("after", after)]
    if ends[-1].total_ms - ends[0].total_ms > 0.005 * after.total_ms:
        bars += [_bar("after, at best", ends[0]), _bar("after, at worst", ends[-1])]
    return Composition(PARTS, tuple(bars))


def _total(step: StepParts) -> float:
    return step.total_ms


def _bar(label: str, step: StepParts) -> CompositionBar:
    return CompositionBar(label, (step.compute_ms, step.comm_ms, step.wait_ms, step.other_ms))


def curves(
    calculator: Calculator[Any, Any], values: Mapping[str, Any], result: Result
) -> tuple[Curve, ...]:
    """The curves of an answer; ``values`` are its inputs, read."""
    if isinstance(result, KernelSpeedup):
        return (_kernel_curve(result, values["speedup"]),)
    if isinstance(result, RemoveWorst):
        return (_worst_curve(calculator, values, result),)
    sweep = entry(calculator.name).sweep
    made = None if sweep is None else _sweep(calculator, values, result, sweep)
    return () if made is None else (made,)


def _kernel_curve(result: KernelSpeedup, speedup: float) -> Curve:
    ends = (min(1.0, speedup / 2), max(1000.0, 4 * speedup))
    points = speedup_curve(result.model, np.geomspace(*ends, 4 * POINTS).tolist())
    x, y, low, high = zip(*points, strict=True)
    return Curve(
        key="speedup",
        title="What the step gets from the kernel",
        x_title="kernel speed-up, ×",
        x=x,
        y_title="step speed-up",
        y_unit="x",
        lines=(Line("step speed-up", y, low, high),),
        x_is_log=True,
        marker=_marker(speedup, result.step_speedup),
        ceiling=result.ceiling,
    )


def _worst_curve(
    calculator: Calculator[Any, Any], values: Mapping[str, Any], result: RemoveWorst
) -> Curve:
    # Half of the ranks at most: a job shrunk to its last ranks would dwarf the rest of the curve.
    ranks = len(values["times_ms"])
    most = min(ranks - 1, max(min(_WORST_SHOWN, ranks // 2), values["worst"]))
    full = calculator.function(**{**values, "worst": most}).curve
    k, replaced, shrunk = zip(*full, strict=True)
    return Curve(
        key="worst",
        title="Step without its slowest ranks",
        x_title="slowest ranks taken out",
        x=tuple(float(v) for v in k),
        y_title="step",
        y_unit="ms",
        lines=(Line("replaced by typical ranks", replaced), Line("job shrunk", shrunk)),
        marker=_marker(values["worst"], result.step_replaced_ms),
    )


def _marker(x: float, measure: Measure) -> tuple[float, float] | None:
    return None if measure.value is None else (float(x), measure.value)


def _sweep(
    calculator: Calculator[Any, Any], values: Mapping[str, Any], result: Result, sweep: Sweep
) -> Curve | None:
    """Some measures over one input; None where there is no place to start from."""
    parameter = next(p for p in calculator.parameters if p.name == sweep.parameter)
    middle = values[parameter.name]
    if middle is None and sweep.around is not None:
        middle = result.measures()[sweep.around].value
    if not middle:
        return None
    x = _places(parameter, middle, sweep, values.get("ranks_per_node") or 1)
    found = [_measures(calculator, {**values, parameter.name: place}) for place in x]
    lines = [_line(name, found) for name in sweep.measures]
    known = [line for line in lines if any(v is not None for v in line.y)]
    if not known:
        return None
    first = sweep.measures[0]
    return Curve(
        key=f"{calculator.name}_curve",
        title=sweep.title,
        x_title=_decapital(label_of(parameter.help, parameter.unit)),
        x=tuple(float(v) for v in x),
        y_title=sweep.y_title,
        y_unit=result.measures()[first].unit,
        lines=tuple(known),
        x_is_log=parameter.unit != "ratio",
        marker=_point(calculator, values, parameter, middle, first),
    )


def _places(parameter: Parameter, middle: float, sweep: Sweep, multiple: int) -> list[float]:
    """Where the input is moved to: inside what is allowed, whole numbers where it counts."""
    low, high = (parameter.clip(middle * factor) for factor in (sweep.low, sweep.high))
    if parameter.kind is not Kind.INT:
        return [float(v) for v in np.geomspace(low, high, POINTS)]
    least = max(low, multiple, 1)
    spread = {round(v / multiple) * multiple for v in np.geomspace(least, max(high, least), POINTS)}
    return sorted(v for v in spread if parameter.clip(v) == v)


def _measures(
    calculator: Calculator[Any, Any], values: Mapping[str, Any]
) -> Mapping[str, Measure] | None:
    try:
        result: Result = calculator.function(**values)
    except UserError:
        return None
    return result.measures()


def _line(name: str, found: Sequence[Mapping[str, Measure] | None]) -> Line:
    held = [None if one is None else one[name] for one in found]
    low = tuple(None if m is None else m.low for m in held)
    high = tuple(None if m is None else m.high for m in held)
    banded = any(v is not None for v in low) and any(v is not None for v in high)
    return Line(
        title_of(name),
        tuple(None if m is None else m.value for m in held),
        low if banded else None,
        high if banded else None,
    )


def _point(
    calculator: Calculator[Any, Any],
    values: Mapping[str, Any],
    parameter: Parameter,
    middle: float,
    measure: str,
) -> tuple[float, float] | None:
    found = _measures(calculator, {**values, parameter.name: middle})
    return None if found is None else _marker(middle, found[measure])


def _decapital(text: str) -> str:
    """Small first letter, unless the word is one of capitals."""
    return text if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def doubled(start: int, most: int) -> tuple[int, ...]:
    """``start`` and its doubles up to ``most``."""
    return tuple(start * 2**k for k in range(int(math.log2(max(1, most // start))) + 1))
