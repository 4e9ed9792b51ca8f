"""What published scaling laws expect of a run: its loss, and what a dollar buys of it."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.money import PRICE
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure

#: Published fits by the name of their flag, in the order of ``SCALING_CONSTANTS``.
FITS = ("hoffmann", "besiroglu")


@dataclass(frozen=True, kw_only=True)
class ScalingLaw(Result):
    """Loss and loss per dollar by both fits; the headline is the fit asked for, else Hoffmann's."""

    headline: str = "loss_per_million_usd"

    loss_per_million_usd: Measure
    loss_per_usd: Measure
    loss_per_usd_hoffmann: Measure
    loss_per_usd_besiroglu: Measure
    expected_loss: Measure
    loss_hoffmann: Measure
    loss_besiroglu: Measure
    tokens_per_usd: Measure
    spent_usd: Measure
    """What the tokens cost at that rate."""
    tokens_per_param: Measure
    best_tokens_per_param_hoffmann: Measure
    best_tokens_per_param_besiroglu: Measure
    constants: dict[str, dict[str, float | str]]
    """E, A, B, alpha, beta and source of each fit."""


@calculator(
    name="scaling-law",
    title="What a scaling law expects",
    formula="L = E + A/N^alpha + B/D^beta; -dL/dUSD = beta B D^(-beta-1) x tokens/USD; tokens/USD "
    "= 3600 x peak x MFU x goodput / (FLOPs per token x price)",
    source="Hoffmann et al. 2022 (approach 3: 1.69, 406.4, 410.7, 0.34, 0.28); Besiroglu et al. "
    "2024, a refit of the same runs (1.8172, 482.01, 2085.43, 0.3478, 0.3658), quoted from a "
    "secondary source",
    page="What is usual for a model of that size after that many tokens, in nats per token. The "
    "two fits are of the same runs and differ most in how many tokens a parameter is worth: both "
    "are shown, and the band lies between them. It says nothing of your data, tokenizer or "
    "schedule: a measured slope comes first. For a mixture of experts there is no such fit.",
    parameters=(
        Parameter("params", "", "parameters, N", above=0),
        Parameter("tokens", "", "tokens trained on, D", above=0),
        Parameter("constants", "", "published fit; both if left out", Kind.CHOICE, choices=FITS),
        Parameter("peak_tflops", "TFLOP/s", "dense peak of a GPU", above=0),
        Parameter("mfu_ratio", "ratio", "model FLOPs utilisation of the steps", above=0, maximum=1),
        Parameter("goodput_ratio", "ratio", "share of paid time that trains", above=0, maximum=1),
        PRICE,
        Parameter("flops_per_token", "", "FLOPs per token; 6 N if left out", above=0),
    ),
)
def scaling_law(
    *,
    params: float,
    tokens: float,
    constants: str | None = None,
    peak_tflops: float | None = None,
    mfu_ratio: float | None = None,
    goodput_ratio: float | None = None,
    usd_per_gpu_hour: float | None = None,
    flops_per_token: float | None = None,
) -> ScalingLaw:
    """Loss by both fits; loss per dollar where the device, its use and its price are given."""
    # Here, because this import takes most of a second and few calculators need it.
    from steptax.app.compute.learning.scaling_law import SCALING_CONSTANTS, tokens_per_usd

    fits = dict(zip(FITS, SCALING_CONSTANTS, strict=True))
    per_token = 6 * params if flops_per_token is None else flops_per_token
    given = {
        "peak_tflops": peak_tflops,
        "mfu_ratio": mfu_ratio,
        "goodput_ratio": goodput_ratio,
        "usd_per_gpu_hour": usd_per_gpu_hour,
    }
    absent = [name for name, value in given.items() if value is None]
    if absent:
        rate = Measure.missing("tokens/USD", f"not given: {', '.join(absent)}")
    elif not usd_per_gpu_hour:
        rate = Measure.missing("tokens/USD", "at no price a dollar buys no end of tokens")
    else:
        rate = Measure(
            tokens_per_usd(
                peak_flops_per_s=(peak_tflops or 0.0) * 1e12,
                mfu_ratio=mfu_ratio or 0.0,
                goodput_ratio=goodput_ratio or 0.0,
                flops_per_token=per_token,
                usd_per_device_hour=usd_per_gpu_hour,
            ),
            "tokens/USD",
        )
    loss = {name: Measure(fit.loss(params, tokens), "nats/token") for name, fit in fits.items()}
    velocity = {
        name: rate.map(lambda per_usd, fit=fit: fit.velocity(tokens, per_usd), "loss/USD")  # type: ignore[misc]
        for name, fit in fits.items()
    }
    best = {
        name: Measure(fit.optimal_tokens_per_param(6 * params * tokens), "tokens/parameter")
        for name, fit in fits.items()
    }
    expected, slope = _of(loss, constants), _of(velocity, constants)
    said = (
        f"{params / 1e9:,.4g} billion parameters after {tokens / 1e9:,.6g} billion tokens should "
        "have a loss of "
    )
    said += " or ".join(f"{m.value:.3f} ({name})" for name, m in loss.items())
    if slope.value is not None:
        said += "; a million dollars buys at this rate "
        said += " or ".join(f"{1e6 * (m.value or 0.0):.3g}" for m in velocity.values()) + " of it"
    return ScalingLaw(
        headline="expected_loss" if slope.value is None else "loss_per_million_usd",
        loss_per_million_usd=slope.map(lambda per_usd: 1e6 * per_usd, "loss/million USD"),
        loss_per_usd=slope,
        loss_per_usd_hoffmann=velocity["hoffmann"],
        loss_per_usd_besiroglu=velocity["besiroglu"],
        expected_loss=expected,
        loss_hoffmann=loss["hoffmann"],
        loss_besiroglu=loss["besiroglu"],
        tokens_per_usd=rate,
        spent_usd=rate.map(lambda per_usd: tokens / per_usd, "USD"),
        tokens_per_param=Measure(tokens / params, "tokens/parameter"),
        best_tokens_per_param_hoffmann=best["hoffmann"],
        best_tokens_per_param_besiroglu=best["besiroglu"],
        constants={
            name: {
                "E": fit.E,
                "A": fit.A,
                "B": fit.B,
                "alpha": fit.alpha,
                "beta": fit.beta,
                "source": fit.source,
            }
            for name, fit in fits.items()
        },
        sentence=f"{said}.",
        band_basis="between the two published fits" if constants is None else None,
        warnings=(
            "a prior, not a measurement: data, tokenizer and schedule are not in it",
            "the constants of Besiroglu et al. are quoted from a secondary source",
        ),
    )


def _of(by_fit: dict[str, Measure], asked: str | None) -> Measure:
    """That of the fit asked for; without one Hoffmann's, with the band over both."""
    if asked is not None:
        return by_fit[asked]
    first = by_fit[FITS[0]]
    values = [m.value for m in by_fit.values() if m.value is not None]
    if first.value is None:
        return first
    return Measure(first.value, first.unit, min(values), max(values))


CALCULATORS = (scaling_law,)
