"""Reading the arguments of a calculator, and saying all that is wrong with them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steptax.app.compute.calculators.parameter import Parameter
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError


def value_of(parameter: Parameter, given: object) -> Any:
    """The argument ``given`` as its parameter reads it, the default where it is None.

    Raises:
        UserError: it is required and missing, or cannot be read.
    """
    reason = "it is required"
    if isinstance(given, Measure):
        reason = given.reason or reason
        given = None if given.value is None else parameter.convert(given.value, given.unit)
    if given is not None:
        return parameter.read(given)
    if parameter.required:
        raise UserError(f"expected {parameter.expected}: {reason}", where=parameter.name)
    return parameter.default


def measured_band(parameter: Parameter, given: Measure) -> tuple[float, float] | None:
    """The interval of a measure in the parameter's unit, inside what is allowed."""
    if given.low is None or given.high is None:
        return None
    low, high = (parameter.clip(parameter.convert(v, given.unit)) for v in (given.low, given.high))
    return low, high


class FaultsError(UserError):
    """Several faults of one call, said together."""

    def __init__(self, faults: Sequence[UserError]) -> None:
        hints = dict.fromkeys(fault.hint for fault in faults if fault.hint)
        super().__init__(
            "; ".join(f"{fault.where}: {fault.message}" for fault in faults),
            where=", ".join(dict.fromkeys(str(fault.where) for fault in faults)),
            hint="; ".join(hints) or None,
        )
        self.faults = tuple(faults)

    @property
    def kind(self) -> str:
        """That of its parts."""
        return UserError.__name__


def together(faults: Sequence[UserError]) -> UserError:
    """One error for all; a single one as it is."""
    parts = [
        part
        for fault in faults
        for part in (fault.faults if isinstance(fault, FaultsError) else (fault,))
    ]
    return parts[0] if len(parts) == 1 else FaultsError(parts)
