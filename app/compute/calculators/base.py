"""What a calculator is: a pure function that knows its parameters, its formula and its source.

``@calculator(...)`` turns a keyword-only function into a :class:`Calculator`. Calling it checks
every argument against its declaration, computes, and adds the sensitivity of the headline to each
input, so that a command and a page can render any of them without knowing which.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from steptax.app.compute.calculators.arguments import measured_band, together, value_of
from steptax.app.compute.calculators.parameter import SWING, Kind, Parameter
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.errors import UserError


@dataclass(frozen=True)
class Swing:
    """What the headline does when one input moves from ``low_input`` to ``high_input``.

    An output is None where the calculator has no answer at that input. Of a list, the inputs are
    factors for all its values (``is_factor``).
    """

    parameter: str
    unit: str
    low_input: float
    high_input: float
    low_output: float | None
    high_output: float | None
    is_factor: bool = False
    is_measured: bool = False
    """The ends are a measured interval or the range of what was not given, not an assumed one."""

    @property
    def width(self) -> float:
        """How far the headline moves; 0 where an end has no answer."""
        if self.low_output is None or self.high_output is None:
            return 0.0
        return abs(self.high_output - self.low_output)


@dataclass(frozen=True)
class Band:
    """Where the headline may lie, and what makes it so; None where it has no value."""

    low: float | None
    high: float | None
    basis: str

    def as_json(self) -> dict[str, Any]:
        """The form that commands print."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Base of all results: measures as fields, one of them the headline, and one sentence.

    ``headline`` names that field: the one that the sensitivity is of.

    ``unknown`` holds, for inputs that were not given, the range that they can lie in;
    ``band_basis`` says over what the band goes where it is not those, nor a tenth either way.
    """

    headline: str
    sentence: str
    warnings: tuple[str, ...] = ()
    unknown: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sensitivity: tuple[Swing, ...] = ()
    band_basis: str | None = None

    @property
    def main(self) -> Measure:
        """The headline's measure."""
        return self.measures()[self.headline]

    @property
    def band(self) -> Band:
        """The headline's own band; else what the tornado of its inputs makes of it."""
        main = self.main
        if main.value is None:
            return Band(None, None, main.reason or "")
        if main.low is not None and main.high is not None:
            basis = self.band_basis or "of the formula, over what was not given or counted"
            return Band(main.low, main.high, basis)
        measured = [swing for swing in self.sensitivity if swing.is_measured]
        outputs = [
            output
            for swing in measured or self.sensitivity
            for output in (swing.low_output, swing.high_output)
            if output is not None
        ]
        return Band(
            min([main.value, *outputs]),
            max([main.value, *outputs]),
            "each measured input alone over its interval"
            if measured
            else self.band_basis or f"each input alone {spoken_ratio(SWING)} either way",
        )

    def measures(self) -> dict[str, Measure]:
        """Every measure by its name, in the order in which the result declares them."""
        held = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in held.items() if isinstance(value, Measure)}

    def as_json(self) -> dict[str, Any]:
        """The form that commands and exports print."""
        own = {f.name for f in dataclasses.fields(Result)}
        held = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            "headline": self.headline,
            "sentence": self.sentence,
            "band": self.band.as_json(),
            "measures": {name: m.as_json() for name, m in self.measures().items()},
            "details": {
                name: _plain(value)
                for name, value in held.items()
                if name not in own and not isinstance(value, Measure)
            },
            "sensitivity": [dataclasses.asdict(swing) for swing in self.sensitivity],
            "warnings": list(self.warnings),
        }


def _plain(value: Any) -> Any:
    """A dataclass as a dictionary, anything else as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


P = ParamSpec("P")
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Calculator(Generic[P, R]):
    """A registered calculator; call it like the function it wraps.

    ``formula`` is plain text, ``source`` the literature it follows, ``page`` what a person should
    know before believing it.
    """

    name: str
    title: str
    formula: str
    source: str
    page: str
    parameters: tuple[Parameter, ...]
    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Check the arguments, compute, and add the sensitivity of the headline.

        Raises:
            UserError: an argument is missing, unknown, of a wrong unit or out of range.
        """
        return self.run(kwargs)

    def run(self, arguments: Mapping[str, object]) -> R:
        """As calling it, from values by name: numbers, texts such as ``"1.5 s"``, or measures.

        A measure brings its unit, its band (used for the sensitivity) and its evidence level; one
        that is missing counts as not given. ``None`` too.

        Raises:
            UserError: as calling it, of all arguments that are wrong at once.
        """
        known = {p.name: p for p in self.parameters}
        faults = [
            UserError(f"{self.name} has no parameter {name!r}", where=name, hint=", ".join(known))
            for name in arguments
            if name not in known
        ]
        values: dict[str, Any] = {}
        bands: dict[str, tuple[float, float]] = {}
        levels: list[Level] = []
        for name, parameter in known.items():
            given = arguments.get(name)
            try:
                values[name] = value_of(parameter, given)
                if isinstance(given, Measure) and (band := measured_band(parameter, given)):
                    bands[name] = band
            except UserError as fault:
                faults.append(fault)
            if isinstance(given, Measure) and given.value is not None and given.level is not None:
                levels.append(given.level)
        if faults:
            raise together(faults)
        result = self._compute(values)
        if levels:
            result = dataclasses.replace(
                result,
                **{  # type: ignore[arg-type]
                    name: dataclasses.replace(measure, level=min(levels))
                    for name, measure in result.measures().items()
                },
            )
        swings = self._tornado(values, {**dict(result.unknown), **bands})
        return dataclasses.replace(result, sensitivity=swings)

    def _compute(self, values: Mapping[str, Any]) -> R:
        return self.function(**values)  # type: ignore[call-arg]

    def _tornado(
        self, values: Mapping[str, Any], bands: Mapping[str, tuple[float, float]]
    ) -> tuple[Swing, ...]:
        swings = []
        for parameter in self.parameters:
            value = values[parameter.name]
            band = bands.get(parameter.name)
            if parameter.kind is Kind.REALS and value:
                low, high = 1 - parameter.swing_ratio, 1 + parameter.swing_ratio
                ends: list[Any] = [tuple(v * factor for v in value) for factor in (low, high)]
            elif band is None and parameter.swing_ratio == 0:
                continue
            elif parameter.kind in (Kind.REAL, Kind.INT) and (value or band):
                low, high = band or _moved(parameter, value)
                ends = [low, high]
            else:
                continue
            outputs = [self._headline(values, parameter, end) for end in ends]
            is_list = parameter.kind is Kind.REALS
            swings.append(
                Swing(
                    parameter.name,
                    "x" if is_list else parameter.unit,
                    low,
                    high,
                    outputs[0],
                    outputs[1],
                    is_factor=is_list,
                    is_measured=band is not None,
                )
            )
        return tuple(sorted(swings, key=lambda swing: -swing.width))

    def _headline(
        self, values: Mapping[str, Any], parameter: Parameter, value: float | tuple[float, ...]
    ) -> float | None:
        """The headline with one value changed; None where the values do not go together."""
        try:
            return self._compute({**values, parameter.name: parameter.read(value)}).main.value
        except UserError:
            return None


def _moved(parameter: Parameter, value: float) -> tuple[float, float]:
    """Its swing down and up, inside what is allowed; whole numbers move by at least one."""
    swing = parameter.swing_ratio
    if parameter.kind is Kind.INT:
        step = max(1, round(abs(value) * swing))
        return parameter.clip(value - step), parameter.clip(value + step)
    low, high = sorted((value * (1 - swing), value * (1 + swing)))
    return parameter.clip(low), parameter.clip(high)


def calculator(
    *, name: str, title: str, formula: str, source: str, page: str, parameters: Iterable[Parameter]
) -> Callable[[Callable[P, R]], Calculator[P, R]]:
    """Declare a calculator; ``parameters`` follow the function's keywords in order.

    Raises:
        TypeError: at import, when declaration and signature differ.
    """

    def declare(function: Callable[P, R]) -> Calculator[P, R]:
        signature = inspect.signature(function).parameters
        declared = tuple(parameters)
        if [p.name for p in declared] != list(signature):
            raise TypeError(f"{name}: declared {[p.name for p in declared]}, got {list(signature)}")
        filled = tuple(
            dataclasses.replace(
                p,
                required=signature[p.name].default is inspect.Parameter.empty,
                default=None
                if signature[p.name].default is inspect.Parameter.empty
                else signature[p.name].default,
            )
            for p in declared
        )
        return Calculator(name, title, formula, source, page, filled, function)

    return declare
