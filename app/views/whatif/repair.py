"""What a repair of slow ranks returns step by step, beside what the mean of each rank says.

A rank that is slow in half of the steps shortens only these once it is like its peers. By the mean
of each rank it is half as slow in all of them: for the same repair that is another number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from steptax.app.compute.calculators.registry import calculator
from steptax.app.compute.measure import Measure
from steptax.app.compute.spoken import spoken_list
from steptax.app.format import format_measure
from steptax.app.views.pricing.given import NO_PRICE
from steptax.app.views.whatif.models import InputField, Origin, Repair, StepByStep

if TYPE_CHECKING:  # a calculator alone does not need the store
    from steptax.app.views.whatif.inputs import GivenInput
    from steptax.app.views.whatif.job import JobInputs

#: The calculator of what comes back once slow ranks are as fast as the others.
REPAIR = "remove-worst"
_NAMED = 4


def step_by_step(
    name: str, inputs: Iterable[InputField | GivenInput], source: JobInputs | None
) -> StepByStep | None:
    """What calculator ``name`` gives by means, as the steps of the job have it.

    None where it asks something else, or something that the job did not measure.
    """
    if name != REPAIR or source is None:
        return None
    held = {one.name: one for one in inputs}
    if any(held[each].origin is not Origin.MEASURED for each in ("times_ms", "other_ms")):
        return None
    count = _number(name, "worst", held["worst"]) or 0
    # Where fewer are behind their peers these are all that cost anything, and the text names them.
    known = [one for one in source.repairs if len(one.ranks) <= count]
    if not known:
        return None
    found = max(known, key=lambda one: len(one.ranks))
    usd = _number(name, "usd_per_gpu_hour", held["usd_per_gpu_hour"])
    per_day = Measure.missing("USD/day", source.price.no_price or NO_PRICE)
    if usd is not None:
        per_day = found.gpu_hours_per_day.map(lambda hours: hours * usd, "USD/day")
    return StepByStep(found.ranks, found.share, per_day, _text(found, per_day))


def _text(found: Repair, per_day: Measure) -> str:
    several = len(found.ranks) > 1
    who = f"rank{'s' if several else ''} {spoken_list(list(found.ranks), _NAMED)}"
    money = "" if per_day.value is None else f", {format_measure(per_day)}"
    return (
        f"This is by each rank's mean over these steps. Step by step, with {who} like "
        f"{'their' if several else 'its'} peers in each of them, it is "
        f"{format_measure(found.share)} of the GPU time{money}."
    )


def _number(name: str, parameter: str, held: InputField | GivenInput) -> float | None:
    """The value of an input of a page or of a command."""
    given = held.value if isinstance(held, InputField) else held.argument
    if isinstance(given, Measure):
        given = given.value
    if given is None:
        return None
    declared = next(one for one in calculator(name).parameters if one.name == parameter)
    return float(declared.read(given))
