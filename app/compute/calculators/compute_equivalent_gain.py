"""How much compute a better recipe is worth, against a baseline of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError

#: Points that a fit needs, and into how many groups more are put to leave one out at a time.
_LEAST_POINTS = 4
_GROUPS = 12
#: A loss is known to a hundredth; a tenth of it is more than a run changes it by.
_LOSS_SWING = 0.01


@dataclass(frozen=True, kw_only=True)
class ComputeEquivalentGain(Result):
    """Compute that the baseline would need / compute used; its band leaves points out in turn."""

    headline: str = "compute_equivalent_gain"

    compute_equivalent_gain: Measure
    gain_per_usd: Measure
    baseline_needs_eflop: Measure
    fit_floor: Measure
    """Loss that no compute takes the baseline below."""
    fit_exponent: Measure
    fit_error: Measure
    """Root mean square of what the fit leaves, in units of the loss."""


@calculator(
    name="compute-equivalent-gain",
    title="What a better recipe is worth in compute",
    formula="fit L = E + k C^-gamma to the baseline; gain = C_baseline(loss now) / C used; then / "
    "USD paid",
    source="Power law of loss over compute: Kaplan et al. 2020, Hoffmann et al. 2022; "
    "compute-equivalent gain: Davidson et al. 2023",
    page="Above 1 the run learns faster than its baseline: a gain of 2 is as good as twice the "
    "GPUs. Losses must be of the same evaluation set and tokenizer, each at the end of its own "
    "schedule. Give at least four runs of the baseline; with five the band shows how far the "
    "answer hangs on any of them. Beyond the compute of the baseline the curve is a guess. Dollars "
    "are all that were paid, failed and repeated steps too.",
    parameters=(
        Parameter(
            "baseline_eflop", "EFLOP", "compute of each run of the baseline", Kind.REALS, above=0
        ),
        Parameter(
            "baseline_loss",
            "",
            "loss that each of them reached",
            Kind.REALS,
            above=0,
            swing_ratio=_LOSS_SWING,
        ),
        Parameter("loss_now", "", "loss that your run reached", above=0, swing_ratio=_LOSS_SWING),
        Parameter("used_eflop", "EFLOP", "compute that your run used", above=0),
        Parameter("paid_usd", "USD", "dollars paid for it, lost steps too", above=0),
    ),
)
def compute_equivalent_gain(
    *,
    baseline_eflop: Sequence[float],
    baseline_loss: Sequence[float],
    loss_now: float,
    used_eflop: float,
    paid_usd: float | None = None,
) -> ComputeEquivalentGain:
    """Gain over the fitted baseline, per dollar too where dollars are given.

    Missing, with the reason, for a loss below the floor of the baseline.

    Raises:
        UserError: lists of different length, fewer than four runs, or all of the same compute.
    """
    # Here, because this import takes most of a second and few calculators need it.
    from steptax.app.compute.learning.scaling_law import compute_equivalent_gain as gain_over
    from steptax.app.compute.learning.scaling_law import fit_power_law

    if len(baseline_loss) != len(baseline_eflop):
        raise UserError(
            f"expected {len(baseline_eflop)} values, one per run of the baseline, not "
            f"{len(baseline_loss)}",
            where="baseline_loss",
        )

    def gain_of(kept: Sequence[int]) -> float | None:
        fit = fit_power_law([baseline_eflop[i] for i in kept], [baseline_loss[i] for i in kept])
        return gain_over(fit, loss_now, used_eflop).value

    try:
        fit = fit_power_law(baseline_eflop, baseline_loss)
    except UserError as fault:
        raise UserError(fault.message, where="baseline_eflop") from None
    gain = gain_over(fit, loss_now, used_eflop)
    said = list(gain.warnings)
    own = gain
    if gain.value is not None:
        left_out = [gain_of(kept) for kept in _without_each(baseline_eflop)]
        reached = [value for value in left_out if value is not None]
        if len(reached) < len(left_out):
            said.append(
                f"{len(left_out) - len(reached)} of {len(left_out)} fits without some runs never "
                "reach this loss: the gain has no upper end there"
            )
        if reached:
            ends = (*reached, gain.value)
            own = Measure(gain.value, "x", min(ends), max(ends), warnings=tuple(said))
    needed = fit.compute_for(loss_now)
    if gain.value is None:
        sentence = f"No gain: {gain.reason}"
    else:
        sentence = f"The baseline would need {gain.value:.3g} times the compute for this loss"
    return ComputeEquivalentGain(
        compute_equivalent_gain=own,
        gain_per_usd=Measure.missing("x/USD", "the dollars paid were not given")
        if paid_usd is None
        else own.map(lambda value: value / paid_usd, "x/USD"),
        baseline_needs_eflop=Measure.missing("EFLOP", gain.reason or "the baseline never does")
        if needed is None
        else Measure(needed, "EFLOP"),
        fit_floor=Measure(fit.floor, ""),
        fit_exponent=Measure(fit.gamma, ""),
        fit_error=Measure(fit.rms_error, ""),
        sentence=f"{sentence}.",
        band_basis="over fits of the baseline with some of its runs left out in turn"
        if own.low is not None
        else "each input alone 10 % either way, losses 1 %",
        warnings=tuple(said),
    )


def _without_each(compute: Sequence[float]) -> list[list[int]]:
    """Places that are kept when one group is left out at a time; none where too few would be."""
    groups = min(len(compute), _GROUPS)
    out = []
    for group in range(groups):
        kept = [i for i in range(len(compute)) if i % groups != group]
        if len(kept) >= _LEAST_POINTS and len({compute[i] for i in kept}) > 1:
            out.append(kept)
    return out


CALCULATORS = (compute_equivalent_gain,)
