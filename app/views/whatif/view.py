"""One calculator as a page shows it: inputs and where they came from, answer, figures, caveats."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from steptax.app.compute.calculators.base import Calculator, Result
from steptax.app.compute.calculators.registry import CALCULATORS, calculator
from steptax.app.compute.measure import Measure
from steptax.app.compute.traps import TRAPS
from steptax.app.errors import UserError
from steptax.app.views.whatif.catalog import entry, ordered
from steptax.app.views.whatif.curves import composition, curves
from steptax.app.views.whatif.inputs import NOT_GIVEN, Typed, whatif_fields
from steptax.app.views.whatif.job import JobInputs
from steptax.app.views.whatif.models import (
    Answer,
    InputField,
    NamedMeasure,
    Origin,
    WhatIfView,
)
from steptax.app.views.whatif.repair import REPAIR, step_by_step
from steptax.app.views.whatif.scale import scale_curve
from steptax.app.views.whatif.words import (
    band_text,
    plain_value,
    title_of,
)

#: More values of an input than this are not written out in a command: the job is named instead.
_MANY = 64
#: Calculators whose answer depends on how many ranks wait for each other.
_SCALED = ("kernel-speedup", "expected-max", "backup-workers")

IS_BAND = "the answer is a band"


def calculator_titles() -> dict[str, str]:
    """Titles of all calculators by name, in the order in which they are offered."""
    return {name: CALCULATORS[name].title for name in ordered()}


def first_calculator(source: JobInputs | None) -> str:
    """What is asked first: of a job with ranks that are slow for good, what their repair returns.

    Of any other, and without a job, what stands first in the list.
    """
    slow = None if source is None else source.of(REPAIR).get("worst")
    if isinstance(slow, Measure) and (slow.value or 0.0) > 0:
        return REPAIR
    return ordered()[0]


def whatif_view(
    name: str,
    typed: Typed,
    *,
    source: JobInputs | None = None,
    price: Decimal | None = None,
) -> WhatIfView:
    """Calculator ``name`` with the inputs of ``whatif_fields`` and, when they suffice, its answer.

    Raises NotFoundError for an unknown calculator; UserError, naming the input, for values that
    are out of range or do not go together.
    """
    chosen = calculator(name)
    fields = whatif_fields(name, typed, source=source, price=price)
    missing = tuple(field for field in fields if field.required and field.value is None)
    result: Result | None = None
    answer = None
    if not missing:
        try:
            result = chosen.run(_arguments(fields))
        except UserError as problem:
            # Of several ways to say something the job gave none.
            missing = _unmeasured(fields, problem)
            if not missing:
                raise
        else:
            fields = _with_bands(fields, result)
            answer = _answer(chosen, fields, result, source)
    return WhatIfView(
        name=name,
        title=chosen.title,
        about=chosen.page,
        formula=chosen.formula,
        source=chosen.source,
        fields=fields,
        missing=missing,
        answer=answer,
        warnings=_warnings(fields, result),
        traps=tuple(TRAPS[trap] for trap in entry(name).traps),
        command=_command(name, fields, source),
        typed={
            field.name: plain_value(field.value)
            for field in fields
            if field.origin is Origin.TYPED and field.value is not None
        },
    )


def _unmeasured(fields: Iterable[InputField], problem: UserError) -> tuple[InputField, ...]:
    """The inputs that a complaint is about, if it is that a job did not give them."""
    named = (problem.where or "").split(", ")
    return tuple(
        field
        for field in fields
        if field.name in named and field.origin is Origin.NONE and field.origin_text != NOT_GIVEN
    )


def _arguments(fields: Iterable[InputField]) -> dict[str, object]:
    """What the calculator is called with; its defaults are left to itself."""
    return {
        field.name: field.measure if field.measure is not None else field.value
        for field in fields
        if field.origin not in (Origin.DEFAULT, Origin.NONE)
    }


def _with_bands(fields: tuple[InputField, ...], result: Result) -> tuple[InputField, ...]:
    """Say of what was not given that the answer spans it, where it does."""
    out = []
    for field in fields:
        if field.name in result.unknown:
            joint = ": " if field.origin_text == NOT_GIVEN else "; "
            field = replace(field, origin_text=f"{field.origin_text}{joint}{IS_BAND}")
        out.append(field)
    return tuple(out)


def _answer(
    chosen: Calculator[Any, Any],
    fields: tuple[InputField, ...],
    result: Result,
    source: JobInputs | None,
) -> Answer:
    values = {
        parameter.name: None if field.value is None else parameter.read(field.value)
        for parameter, field in zip(chosen.parameters, fields, strict=True)
    }
    main = result.main
    band, note = _band(fields, result)
    drawn = curves(chosen, values, result)
    if source is not None and chosen.name in _SCALED:
        scaled = scale_curve(source)
        drawn += () if scaled is None else (scaled,)
    return Answer(
        headline=NamedMeasure(result.headline, title_of(result.headline), main),
        band=band,
        band_note=note,
        sentence=result.sentence,
        measures=tuple(
            NamedMeasure(name, title_of(name), measure)
            for name, measure in result.measures().items()
        ),
        swings=tuple(swing for swing in result.sensitivity if swing.width > 0),
        swing_labels={field.name: field.label for field in fields},
        composition=composition(result, values.get("speedup")),
        curves=drawn,
        step_by_step=step_by_step(chosen.name, fields, source),
    )


def _band(fields: tuple[InputField, ...], result: Result) -> tuple[str | None, str]:
    """The headline's own band; else what the widest interval of a measured input makes of it."""
    main = result.main
    own = band_text(main.value, main.low, main.high, main.unit)
    if own is not None:
        return own, ""
    measured = {
        f.name: f.label for f in fields if f.measure is not None and f.measure.low is not None
    }
    for swing in result.sensitivity:
        if swing.parameter in measured and swing.width > 0:
            ends = (swing.low_output, swing.high_output)
            low, high = sorted(end for end in ends if end is not None)
            return (
                band_text(main.value, low, high, main.unit),
                f"over the measured interval of: {measured[swing.parameter]}",
            )
    return None, ""


def _warnings(fields: Iterable[InputField], result: Result | None) -> tuple[str, ...]:
    """The answer's caveats, then those of what was measured."""
    said = [] if result is None else list(result.warnings)
    for field in fields:
        said += [] if field.measure is None else field.measure.warnings
    return tuple(dict.fromkeys(said))


def _command(name: str, fields: Iterable[InputField], source: JobInputs | None) -> str:
    """The line for a terminal that gives the same numbers; a job stands for its many values."""
    fields = tuple(fields)
    words = ["steptax", "calc", name]
    left_out: tuple[Origin, ...] = (Origin.DEFAULT,)
    if source is not None and any(_is_long(field) for field in fields):
        # The job is read again, so it is asked for the same steps at the same price.
        words += ["--job", source.job_id]
        if source.last_steps is not None:
            words += ["--window", str(source.last_steps)]
        if source.asked_usd is not None:
            words += ["--price", f"{source.asked_usd:f}"]
        left_out += (Origin.MEASURED, Origin.PRICE)
    for field in fields:
        if field.value is not None and field.origin not in left_out:
            words += [f"--{field.name.replace('_', '-')}", plain_value(field.value)]
    return shlex.join(words)


def _is_long(field: InputField) -> bool:
    """Whether a job gave more values than a line holds."""
    return (
        field.origin is Origin.MEASURED
        and isinstance(field.value, (list, tuple))
        and len(field.value) > _MANY
    )
