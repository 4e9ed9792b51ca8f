"""What each input of a calculator holds, and where that came from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from steptax.app.compute.calculators.base import Calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.calculators.registry import calculator
from steptax.app.compute.measure import Measure
from steptax.app.format import UNKNOWN, format_measure, format_value
from steptax.app.views.whatif.catalog import PRICE_INPUTS, Entry, entry
from steptax.app.views.whatif.models import InputField, Known, Numbers, Origin, Value, Word
from steptax.app.views.whatif.words import label_of, shown_value

if TYPE_CHECKING:  # reading a job imports the store, which a calculator alone does not need
    from steptax.app.views.whatif.job import JobInputs

#: Digits of a measured input: what it is computed with is what a command can be given.
_DIGITS = 6
NOT_GIVEN = "not given"

Typed = Mapping[str, object]
"""What a person typed, by the name of the input; None or an empty text where nothing."""


def start_fields(
    name: str,
    given: Collection[str] = (),
    *,
    source: JobInputs | None = None,
    price: Decimal | None = None,
) -> tuple[InputField, ...]:
    """The inputs of calculator ``name`` with what each holds until somebody types.

    First what the job ``source`` measured; then the price of a GPU-hour, of the job by the rule of
    every page, without a job ``price`` in USD; then an example, without a job; then the
    calculator's own default. Where an input named in ``given`` is typed, other ways of saying the
    same start empty. Raises NotFoundError for an unknown calculator.
    """
    known = entry(name)
    displaced = _displaced(known, given)
    return tuple(
        _start(parameter, known, displaced, source, name, price)
        for parameter in calculator(name).parameters
    )


def whatif_fields(
    name: str,
    typed: Typed,
    *,
    source: JobInputs | None = None,
    price: Decimal | None = None,
) -> tuple[InputField, ...]:
    """The inputs of calculator ``name`` with what each holds: what was typed, else its start.

    Raises NotFoundError for an unknown calculator, UserError for a typed value that cannot be
    read.
    """
    given = {key: value for key, value in typed.items() if value is not None and value != ""}
    fields = []
    for parameter, field in zip(
        calculator(name).parameters,
        start_fields(name, given, source=source, price=price),
        strict=True,
    ):
        if parameter.name in given:
            field = replace(
                field,
                value=_held(parameter.read(given[parameter.name])),
                origin=Origin.TYPED,
                origin_text="you typed it",
                measure=None,
            )
        fields.append(field)
    return tuple(fields)


@dataclass(frozen=True)
class GivenInput:
    """One input as a command passes it: typed, measured by a job, a price, or left out."""

    name: str
    unit: str
    argument: object
    """What the calculator is called with; None where it is left out."""
    origin: Origin
    basis: str

    @property
    def text(self) -> str:
        """The value in words."""
        argument = self.argument
        if isinstance(argument, Measure):
            if argument.value is not None and not self.unit:
                return f"{argument.value:,.6g}"
            return UNKNOWN if argument.value is None else format_measure(argument)
        if isinstance(argument, tuple):
            return f"{len(argument):,} values"
        if isinstance(argument, float):
            return format_value(argument, self.unit)
        return "" if argument is None else str(argument)

    def as_json(self) -> dict[str, Any]:
        """The form that commands print."""
        return {
            "name": self.name,
            "unit": self.unit,
            "value": self.argument,
            "origin": self.origin.value,
            "basis": self.basis,
        }


def given_inputs(
    chosen: Calculator[Any, Any],
    given: Mapping[str, str],
    *,
    source: JobInputs | None = None,
    price: Decimal | None = None,
) -> tuple[GivenInput, ...]:
    """The inputs of a command: what was typed, else what the job measured, else nothing.

    Unlike on a page no example stands in: what a formula asks must then be typed.
    """
    out = []
    fields = start_fields(chosen.name, given, source=source, price=price)
    for parameter, field in zip(chosen.parameters, fields, strict=True):
        argument: object = None
        origin, basis = field.origin, field.origin_text
        if parameter.name in given:
            argument, origin, basis = given[parameter.name], Origin.TYPED, "you gave it"
        elif origin in (Origin.MEASURED, Origin.PRICE):
            argument = field.value if field.measure is None else field.measure
            if origin is Origin.PRICE and source is None:
                basis = "the price that is set"
        elif origin is Origin.EXAMPLE:
            origin, basis = Origin.NONE, NOT_GIVEN
        elif origin is Origin.NONE and basis != NOT_GIVEN:
            argument = Measure.missing(parameter.unit, basis)
        out.append(GivenInput(parameter.name, parameter.unit, argument, origin, basis))
    return tuple(out)


def _displaced(known: Entry, given: Collection[str]) -> set[str]:
    """Inputs whose start value gives way, because another way of saying it was typed."""
    typed = [group for group in known.instead if any(name in given for name in group)]
    if not typed:
        return set()
    kept = {name for group in typed for name in group}
    return {name for group in known.instead for name in group} - kept


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
        if value is None and name in PRICE_INPUTS:
            usd, whose = _price(source, price)
            if usd is not None:
                value, origin, text = float(usd), Origin.PRICE, whose
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


def _price(source: JobInputs | None, given: Decimal | None) -> tuple[Decimal | None, str]:
    """USD per GPU-hour and whose price it is: of a job its own, which ``given`` may have set."""
    if source is None:
        return given, "the price at the top of the page"
    return source.price.usd_per_gpu_hour, f"price: {source.price.basis}"


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
