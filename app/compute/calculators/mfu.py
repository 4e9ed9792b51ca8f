"""Model FLOPs utilisation from a throughput, a model and a device."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.flops import Convention, Recompute
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu import utilization
from steptax.app.compute.model_shape import ModelShape
from steptax.app.compute.peaks import Basis, Peak, given_peak, peak
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Mfu(Result):
    """Utilisation with the convention and the peak that it is stated for."""

    headline: str = "mfu_ratio"

    mfu_ratio: Measure
    hfu_ratio: Measure
    of_achievable_ratio: Measure
    tflops_per_device: Measure
    flops_per_token: Measure
    hfu_factor_ratio: Measure
    convention: str
    peak_tflops: float | None
    peak_source: str


@calculator(
    name="mfu",
    title="Model FLOPs utilisation",
    formula="MFU = tokens/s x FLOPs per token / (devices x dense peak); 6N, palm: + 12 L H Q T, "
    "megatron: matrix products, causal attention halved",
    source="Chowdhery et al. 2022, PaLM, section 4.1 and appendix B; Megatron-LM",
    page="The share of what the devices could compute that went into the model; it counts no "
    "recomputation and no time between steps. The conventions differ by tens of per cent at long "
    "sequences, so compare within one only. For a mixture of experts give the active parameters. "
    "The peak is the dense one of the precision that is multiplied in; an unknown device has none.",
    parameters=(
        Parameter("tokens_per_s", "1/s", "real tokens per second over all devices", minimum=0),
        Parameter("devices", "", "devices", Kind.INT, minimum=1),
        Parameter(
            "convention", "", "how FLOPs are counted", Kind.CHOICE, choices=tuple(Convention)
        ),
        Parameter("device", "", "device, as it reports itself", Kind.TEXT),
        Parameter("dtype", "", "precision of the matrix products, e.g. bf16", Kind.TEXT),
        Parameter("peak_tflops", "TFLOP/s", "peak of one device, instead of the table's", above=0),
        Parameter("peak_basis", "", "what that peak counts", Kind.CHOICE, choices=tuple(Basis)),
        Parameter("params", "", "parameters that a token meets, N", above=0),
        Parameter("layers", "", "layers", Kind.INT, minimum=1),
        Parameter("hidden", "", "hidden size", Kind.INT, minimum=1),
        Parameter("heads", "", "attention heads", Kind.INT, minimum=1),
        Parameter("kv_heads", "", "key/value heads", Kind.INT, minimum=1),
        Parameter("ffn", "", "feed-forward size", Kind.INT, minimum=1),
        Parameter("vocab", "", "padded vocabulary", Kind.INT, minimum=1),
        Parameter("seq_len_tokens", "tokens", "sequence length", Kind.INT, minimum=1),
        Parameter("mlp", "", "feed-forward block", Kind.CHOICE, choices=("swiglu", "plain")),
        Parameter(
            "recompute", "", "activations computed twice", Kind.CHOICE, choices=tuple(Recompute)
        ),
        Parameter(
            "executed_ratio",
            "ratio",
            "executed / model FLOPs, instead of what is recomputed",
            minimum=1,
            maximum=10,
        ),
    ),
)
def mfu(
    *,
    tokens_per_s: float,
    devices: int,
    convention: str = Convention.SIX_N.value,
    device: str | None = None,
    dtype: str | None = None,
    peak_tflops: float | None = None,
    peak_basis: str | None = None,
    params: float | None = None,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    vocab: int | None = None,
    seq_len_tokens: int | None = None,
    mlp: str | None = None,
    recompute: str | None = None,
    executed_ratio: float | None = None,
) -> Mfu:
    """MFU and, where it is said what is recomputed, HFU; missing with the reason without a peak.

    Raises:
        UserError: neither a device nor a peak; a model shape that contradicts itself; both ways
            of saying what is recomputed.
    """
    if recompute is not None and executed_ratio is not None:
        raise UserError("expected recompute or executed_ratio, not both", where="executed_ratio")
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        vocab=vocab,
        seq_len=seq_len_tokens,
        swiglu=None if mlp is None else mlp == "swiglu",
        params_active=None if params is None else int(params),
    )
    against = _peak(device, dtype, peak_tflops, peak_basis)
    used = utilization(
        shape,
        Convention(convention),
        tokens_per_s=tokens_per_s,
        devices=devices,
        peak=against,
        recompute=None if recompute is None else Recompute(recompute),
        hfu_factor=executed_ratio,
    )
    if used.mfu.value is None:
        sentence = f"No MFU: {used.mfu.reason}."
    else:
        sentence = (
            f"MFU is {used.mfu.value:.1%} by {convention} of {against.tflops:g} TFLOP/s "
            f"{'' if dtype is None else against.dtype + ' '}dense."
        )
    return Mfu(
        mfu_ratio=used.mfu,
        hfu_ratio=used.hfu,
        of_achievable_ratio=used.of_achievable,
        tflops_per_device=used.tflops_per_device,
        flops_per_token=used.flops_per_token,
        hfu_factor_ratio=used.hfu_factor,
        convention=convention,
        peak_tflops=against.tflops,
        peak_source=against.source,
        sentence=sentence,
        warnings=against.warnings,
    )


def _peak(
    device: str | None, dtype: str | None, peak_tflops: float | None, peak_basis: str | None
) -> Peak:
    if peak_tflops is not None:
        if peak_basis is None:
            raise UserError(
                "expected dense or sparse beside a peak: they differ by a factor of two",
                where="peak_basis",
            )
        return given_peak(peak_tflops, peak_basis, dtype, device)
    if device is None:
        raise UserError("expected a device, or peak_tflops with peak_basis", where="device")
    return peak(device, dtype)


CALCULATORS = (mfu,)
