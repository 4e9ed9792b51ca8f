"""How much loss a dollar buys, and what a target cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.learning.curve import learning_curve
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class LearningVelocity(Result):
    """Loss per dollar at the end of the curve, dollars to the target, and what was spent."""

    headline: str = "loss_per_usd"

    loss_per_usd: Measure
    usd_to_target: Measure
    spent_usd: Measure
    lost_usd: Measure


@calculator(
    name="learning-velocity",
    title="Learning per dollar",
    formula="v = -dL/dUSD, the median of all pairwise slopes in the window; to target: first "
    "passage of a monotone fit",
    source="Sen 1968; isotonic regression: Barlow et al. 1972; interval: Künsch 1989",
    page="Dollars are all that were paid, failed and repeated steps too, because they were spent "
    "and taught nothing. Two runs compare only at the same phase of their learning-rate schedules "
    "and with the same tokenizer. A target that was not reached has no price: nothing is "
    "extrapolated.",
    parameters=(
        Parameter("loss", "", "losses in the order of time", Kind.REALS),
        Parameter(
            "usd",
            "USD",
            "paid since the value before; one number holds for all",
            Kind.REALS,
            minimum=0,
        ),
        Parameter(
            "steps", "", "step of each value, to see what was run again", Kind.REALS, minimum=0
        ),
        Parameter(
            "window_usd",
            "USD",
            "dollars that the slope is taken over; a quarter if left out",
            above=0,
        ),
        Parameter("target_loss", "", "loss to be reached"),
    ),
)
def learning_velocity(
    *,
    loss: Sequence[float],
    usd: Sequence[float],
    steps: Sequence[float] | None = None,
    window_usd: float | None = None,
    target_loss: float | None = None,
) -> LearningVelocity:
    """Slope and first passage of a loss curve against dollars paid.

    Raises:
        UserError: lists of different length.
    """
    # Here, because this import takes most of a second and no other calculator needs it.
    from steptax.app.compute.learning.velocity import dollars_to_target, marginal_velocity

    paid = tuple(usd) * len(loss) if len(usd) == 1 else tuple(usd)
    numbers = tuple(range(len(loss))) if steps is None else tuple(int(s) for s in steps)
    for name, values in (("usd", paid), ("steps", numbers)):
        if len(values) != len(loss):
            raise UserError(f"expected {len(loss)} values, one per loss", where=name)
    curve = learning_curve(numbers, loss, paid)
    velocity = marginal_velocity(curve, window_usd=window_usd)
    to_target = (
        Measure.missing("USD", "no target was given")
        if target_loss is None
        else dollars_to_target(curve, target_loss)
    )
    if velocity.value is None:
        sentence = f"No slope: {velocity.reason}"
    else:
        sentence = f"At the end a dollar buys {velocity.value:.3g} of loss"
    if to_target.value is not None:
        sentence += f"; {target_loss:g} was reached after ${to_target.value:,.2f}"
    return LearningVelocity(
        loss_per_usd=velocity,
        usd_to_target=to_target,
        spent_usd=Measure(curve.spent_usd, "USD"),
        lost_usd=Measure(curve.lost_usd, "USD"),
        sentence=f"{sentence}.",
        warnings=velocity.warnings,
    )


CALCULATORS = (learning_velocity,)
