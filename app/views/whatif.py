"""One calculator as a page shows it: inputs and where they came from, answer, figures, caveats."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from steptax.app.compute.calculators.base import Calculator, Result
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.calculators.registry import CALCULATORS, calculator
from steptax.app.compute.measure import Measure
from steptax.app.compute.traps import TRAPS
from steptax.app.views.whatif_catalog import PRICE_INPUTS, Entry, entry, ordered
from steptax.app.views.whatif_curves import composition, curves
from steptax.app.views.whatif_job import JobInputs
from steptax.app.views.whatif_models import (
    Answer,
    InputField,
    Known,
    NamedMeasure,
    Numbers,
    Origin,
    Value,
    WhatIfView,
    Word,
)
from steptax.app.views.whatif_scale import scale_curve
from steptax.app.views.whatif_words import (
    band_text,
    label_of,
    plain_value,
    shown_value,
    title_of,
)

#: Digits of a measured input: what it is computed with is what a command can be given.
_DIGITS = 6
#: Calculators whose answer depends on how many ranks wait for each other.
_SCALED = ("kernel-speedup", "expected-max", "backup-workers")

NOT_GIVEN = "not given"
IS_BAND = "the answer is a band"

Typed = Mapping[str, object]


def calculator_titles() -> dict[str, str]:
    """Titles of all calculators by name, in the order in which they are offered."""
    return {name: CALCULATORS[name].title for name in ordered()}


def whatif_fields(
    name: str,
    typed: Typed,
    *,
    source: JobInputs | None = None,
    price: Decimal | None = None,
) -> tuple[InputField, ...]:
    """The inputs of calculator ``name`` with what each holds.

    What was typed comes first; then what the job ``source`` measured, or an example without a job;
    then the ``price`` in USD per GPU-hour; then the calculator's own default. Raises NotFoundError
    for an unknown calculator, UserError for a typed value that cannot be read.
    """
    chosen, known = calculator(name), entry(name)
    given = {key: value for key, value in typed.items() if value is not None and value != ""}
    displaced = _displaced(known, given)
    fields = []
    for parameter in chosen.parameters:
        start = _start(parameter, known, displaced, source, name, price)
        if parameter.name in given:
            value = parameter.read(given[parameter.name])
            start = replace(
                start,
                value=_held(value),
                origin=Origin.TYPED,
                origin_text="you typed it",
                measure=None,
            )
        fields.append(start)
    return tuple(fields)


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
        result = chosen.run(_arguments(fields))
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
        command=_command(name, fields),
        typed={
            field.name: plain_value(field.value)
            for field in fields
            if field.origin is Origin.TYPED and field.value is not None
        },
    )


def _displaced(known: Entry, given: Typed) -> set[str]:
    """Inputs whose start value gives way, because another way of saying it was typed."""
    out: set[str] = set()
    if not any(name in given for group in known.instead for name in group):
        return out
    for group in known.instead:
        if not any(name in given for name in group):
            out.update(group)
    return out


def _start(
    parameter: Parameter,
    known: Entry,
    displaced: set[str],
    source: JobInputs | None,
    calculator_name: str,
    price: Decimal | None,
) -> InputField:
    """The input as it stands when nobody types."""
    name = parameter.name
    value: Value | None = None
    origin, text, measure, reason = Origin.NONE, NOT_GIVEN, None, None
    if name not in displaced:
        if source is not None:
            value, measure, reason = _measured(parameter, source.of(calculator_name).get(name))
            if value is not None:
                origin, text = Origin.MEASURED, f"measured: {source.basis}"
        if value is None and name in PRICE_INPUTS and price is not None:
            value, origin, text = float(price), Origin.PRICE, "the price at the top of the page"
        if value is None:
            example = {**known.asked, **({} if source is not None else known.example)}.get(name)
            if example is not None:
                value, origin, text = example, Origin.EXAMPLE, "example, type your own"
    if value is None and parameter.default is not None:
        value, origin, text = _held(parameter.default), Origin.DEFAULT, "default"
    if value is None and source is not None and parameter.required and reason is None:
        reason = "step records do not hold it"
    if reason is not None and origin in (Origin.NONE, Origin.DEFAULT):
        text = f"{'default; ' if origin is Origin.DEFAULT else ''}not measured: {reason}"
    return InputField(
        name=name,
        label=label_of(parameter.help, parameter.unit),
        unit=parameter.unit,
        help=_help(parameter),
        kind=parameter.kind.value,
        choices=parameter.choices,
        required=parameter.required,
        is_main=parameter.required
        or origin in (Origin.MEASURED, Origin.PRICE)
        or name in {**known.asked, **known.example},
        value=value,
        text=shown_value(value, parameter.unit),
        origin=origin,
        origin_text=text,
        measure=measure,
    )


def _measured(
    parameter: Parameter, known: Known | None
) -> tuple[Value | None, Measure | None, str | None]:
    """What a job says of an input, in the input's unit: value, measure and reason."""
    if known is None:
        return None, None, None
    if isinstance(known, Word):
        fits = known.text is not None and (
            parameter.kind is Kind.TEXT or known.text in parameter.choices
        )
        return (known.text, None, None) if fits else (None, None, known.reason)
    if isinstance(known, Numbers):
        return known.values, None, known.reason
    if known.value is None:
        return None, None, known.reason

    def converted(value: float | None) -> float | None:
        return None if value is None else parameter.convert(value, known.unit)

    value = float(f"{parameter.convert(known.value, known.unit):.{_DIGITS}g}")
    if parameter.kind is Kind.INT:
        value = float(round(known.value))
    measure = replace(
        known,
        value=value,
        unit=parameter.unit,
        low=converted(known.low),
        high=converted(known.high),
    )
    return value, measure, None


def _held(value: Any) -> Value:
    return value if isinstance(value, (str, tuple)) else float(value)


def _help(parameter: Parameter) -> str:
    flag = f"--{parameter.name.replace('_', '-')}"
    return f"{parameter.help}\n\n{parameter.expected}\n\n{flag}"


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


def _command(name: str, fields: Iterable[InputField]) -> str:
    """The line that gives the same numbers in a terminal."""
    words = ["steptax", "calc", name]
    for field in fields:
        if field.value is not None and field.origin is not Origin.DEFAULT:
            words += [f"--{field.name.replace('_', '-')}", plain_value(field.value)]
    return shlex.join(words)
