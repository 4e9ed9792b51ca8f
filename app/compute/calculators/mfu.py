"""Model FLOPs utilisation from a throughput, a model and a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.mfu_shape import (
    PEAK_PARAMETERS,
    SHAPE_PARAMETERS,
    context,
    in_flags,
    model_shape,
    peaks,
)
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.flops import Convention, Recompute, active_params
from steptax.app.compute.mfu.model_shape import ModelShape, count_params
from steptax.app.compute.mfu.peaks import Peak
from steptax.app.compute.mfu.utilisation import (
    Utilization,
    missing_ratio,
    of_achievable,
    utilization,
)
from steptax.app.errors import UserError
from steptax.app.format import format_share


@dataclass(frozen=True, kw_only=True)
class Mfu(Result):
    """Utilisation with the convention and the peak that it is stated for.

    ``mfu_6n_ratio`` and the like are the same throughput by every convention, side by side.
    """

    headline: str = "mfu_ratio"

    mfu_ratio: Measure
    hfu_ratio: Measure
    of_achievable_ratio: Measure
    """Executed FLOPs by the best measured matrix product; ``mfu_of_achievable_ratio`` model's."""
    mfu_of_achievable_ratio: Measure
    tflops_per_device: Measure
    flops_per_token: Measure
    hfu_factor_ratio: Measure
    mfu_6n_ratio: Measure
    mfu_palm_ratio: Measure
    mfu_megatron_ratio: Measure
    flops_per_token_6n: Measure
    flops_per_token_palm: Measure
    flops_per_token_megatron: Measure
    params_active: Measure
    params_total: Measure
    context_tokens: Measure
    convention: str
    attention: str
    peak_tflops: float | None
    peak_source: str
    peaks_tflops: dict[str, float | None] = field(default_factory=dict)
    """Dense peak of every precision that is multiplied in."""
    achievable_tflops: float | None = None


@calculator(
    name="mfu",
    title="Model FLOPs utilisation",
    formula="MFU = tokens/s x FLOPs per token / (devices x dense peak); 6N, palm: + 12 L H Q T, "
    "megatron: matrix products, causal attention halved; packed: T = sum of squares / sum; mixed "
    "precision: peak = 1 / sum(share / peak)",
    source="Chowdhery et al. 2022, PaLM, section 4.1 and appendix B; Megatron-LM "
    "num_floating_point_operations; DeepSeek-AI 2024, DeepSeek-V2 (latent attention); achievable "
    "rates: stas00/ml-engineering (MAMF)",
    page="The share of what the devices could compute that went into the model; it counts no "
    "recomputation and no time between steps. The conventions differ by tens of per cent at long "
    "sequences, so compare within one only: all three are printed. palm counts full attention "
    "whatever the model does. Of a mixture of experts only what a token meets counts: say it in "
    "params, or give experts and topk. The peak is the dense one of the precision that is "
    "multiplied in; an unknown device has none. The share of achievable holds the executed FLOPs "
    "against the best matrix product that was measured on such a device.",
    parameters=(
        Parameter("tokens_per_s", "1/s", "real tokens per second over all devices", minimum=0),
        Parameter("devices", "", "devices", Kind.INT, minimum=1),
        Parameter(
            "convention", "", "how FLOPs are counted", Kind.CHOICE, choices=tuple(Convention)
        ),
        *PEAK_PARAMETERS,
        *SHAPE_PARAMETERS,
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
    fp8_ratio: float | None = None,
    fp8_peak_tflops: float | None = None,
    clock_mhz: float | None = None,
    params: float | None = None,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    ffn: int | None = None,
    vocab: int | None = None,
    seq_len_tokens: int | None = None,
    packed_lengths_tokens: Sequence[float] | None = None,
    attention: str = "causal",
    mlp: str | None = None,
    embeddings: str = "apart",
    experts: int | None = None,
    topk: int | None = None,
    moe_ffn: int | None = None,
    shared_ffn: int | None = None,
    moe_layers: int | None = None,
    mtp_layers: int | None = None,
    q_lora_rank: int | None = None,
    kv_lora_rank: int | None = None,
    qk_head_dim: int | None = None,
    qk_rope_head_dim: int | None = None,
    v_head_dim: int | None = None,
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
    shape = model_shape(
        {
            "params": params,
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "ffn": ffn,
            "vocab": vocab,
            "seq_len_tokens": seq_len_tokens,
            "attention": attention,
            "mlp": mlp,
            "embeddings": embeddings,
            "experts": experts,
            "topk": topk,
            "moe_ffn": moe_ffn,
            "shared_ffn": shared_ffn,
            "moe_layers": moe_layers,
            "mtp_layers": mtp_layers,
            "q_lora_rank": q_lora_rank,
            "kv_lora_rank": kv_lora_rank,
            "qk_head_dim": qk_head_dim,
            "qk_rope_head_dim": qk_rope_head_dim,
            "v_head_dim": v_head_dim,
        }
    )
    against, each = peaks(
        device=device,
        dtype=dtype,
        peak_tflops=peak_tflops,
        peak_basis=peak_basis,
        fp8_ratio=fp8_ratio,
        fp8_peak_tflops=fp8_peak_tflops,
        clock_mhz=clock_mhz,
    )
    tokens = context(seq_len_tokens, packed_lengths_tokens)

    def by(how: Convention) -> Utilization:
        return utilization(
            shape,
            how,
            tokens_per_s=tokens_per_s,
            devices=devices,
            peak=against,
            recompute=None if recompute is None else Recompute(recompute),
            hfu_factor=executed_ratio,
            seq_len=tokens.value,
        )

    found = {how: by(how) for how in Convention}
    used = found[Convention(convention)]
    model = in_flags(used.mfu)
    return Mfu(
        mfu_ratio=model,
        hfu_ratio=in_flags(used.hfu),
        of_achievable_ratio=in_flags(used.of_achievable),
        mfu_of_achievable_ratio=in_flags(_of_achievable(used, against)),
        tflops_per_device=in_flags(used.tflops_per_device),
        flops_per_token=in_flags(used.flops_per_token),
        hfu_factor_ratio=in_flags(used.hfu_factor),
        mfu_6n_ratio=in_flags(found[Convention.SIX_N].mfu),
        mfu_palm_ratio=in_flags(found[Convention.PALM].mfu),
        mfu_megatron_ratio=in_flags(found[Convention.MEGATRON].mfu),
        flops_per_token_6n=in_flags(found[Convention.SIX_N].flops_per_token),
        flops_per_token_palm=in_flags(found[Convention.PALM].flops_per_token),
        flops_per_token_megatron=in_flags(found[Convention.MEGATRON].flops_per_token),
        params_active=in_flags(active_params(shape)),
        params_total=_total(shape),
        context_tokens=tokens,
        convention=convention,
        attention="full" if Convention(convention) is Convention.PALM else attention,
        peak_tflops=against.tflops,
        peak_source=against.source,
        peaks_tflops={part.dtype: part.tflops for part in each},
        achievable_tflops=against.achievable_tflops,
        sentence=_sentence(model, convention, against, dtype, fp8_ratio),
        warnings=(*against.warnings, *tokens.warnings),
    )


def _of_achievable(used: Utilization, against: Peak) -> Measure:
    """Model FLOPs alone by the achievable rate: known whatever is recomputed."""
    rate = used.tflops_per_device
    if used.mfu.value is None or rate.value is None:
        return missing_ratio(used.mfu.reason)
    return of_achievable(rate.value * 1e12, 1, against)


def _total(shape: ModelShape) -> Measure:
    """All parameters, those of experts that a token does not meet among them."""
    try:
        return Measure(float(count_params(shape).total), "parameters")
    except UserError as fault:
        return in_flags(Measure.missing("parameters", fault.message))


def _sentence(
    model: Measure, convention: str, against: Peak, dtype: str | None, fp8_ratio: float | None
) -> str:
    if model.value is None:
        return f"No MFU: {model.reason}."
    known = "" if dtype is None and fp8_ratio is None else f"{against.dtype} "
    return (
        f"MFU is {format_share(model.value)} by {convention} of {against.tflops:.6g} TFLOP/s "
        f"{known}dense."
    )


CALCULATORS = (mfu,)
