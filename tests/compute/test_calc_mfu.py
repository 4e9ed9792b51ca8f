"""Utilisation of every kind of model and precision, in the flags of a person."""

from __future__ import annotations

from typing import Any

import pytest

from steptax.app.compute.calculators.mfu import Mfu, mfu
from steptax.app.compute.mfu.peaks import Peak, mixed_peak, peak
from steptax.app.compute.mfu.utilisation import mixed_mfu
from steptax.app.errors import UserError

H100: dict[str, Any] = {
    "tokens_per_s": 1000, "devices": 16, "device": "H100 SXM", "dtype": "bf16",
    "convention": "megatron",
}  # fmt: skip
LLAMA_405B: dict[str, Any] = {
    **H100, "layers": 126, "hidden": 16384, "ffn": 53248, "heads": 128, "kv_heads": 8,
    "vocab": 128256, "mlp": "swiglu", "seq_len_tokens": 8192,
}  # fmt: skip
MIXTRAL: dict[str, Any] = {
    **H100, "layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8,
    "vocab": 32000, "mlp": "swiglu", "experts": 8, "topk": 2, "seq_len_tokens": 4096,
}  # fmt: skip
DEEPSEEK_V2: dict[str, Any] = {
    **H100, "layers": 60, "hidden": 5120, "ffn": 12288, "heads": 128, "vocab": 102400,
    "mlp": "swiglu", "experts": 160, "topk": 6, "moe_ffn": 1536, "shared_ffn": 3072,
    "moe_layers": 59, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "seq_len_tokens": 4096,
}  # fmt: skip


def run(call: dict[str, Any], **more: Any) -> Mfu:
    return mfu.run({**call, **more})


def value(result: Mfu, name: str) -> float:
    found = result.measures()[name].value
    assert found is not None, result.measures()[name].reason
    return found


@pytest.mark.parametrize(
    ("call", "total", "active"),
    [
        (LLAMA_405B, 405_853_388_800, 405_853_388_800),
        (MIXTRAL, 46_702_792_704, 12_879_925_248),
        (DEEPSEEK_V2, 235_741_434_880, 21_375_800_320),
    ],
)
def test_parameters_are_those_published(call: dict[str, Any], total: int, active: int) -> None:
    result = run(call)
    assert value(result, "params_total") == total
    assert value(result, "params_active") == active
    assert value(result, "flops_per_token_6n") == 6 * active


def test_all_conventions_are_printed_beside_the_one_asked_for() -> None:
    result = run(LLAMA_405B)
    by = {how: value(result, f"mfu_{how}_ratio") for how in ("6n", "palm", "megatron")}
    assert by["6n"] < by["megatron"] < by["palm"]
    assert by["megatron"] == value(result, "mfu_ratio")
    for how, ratio in by.items():
        flops = value(result, f"flops_per_token_{how}")
        assert ratio == pytest.approx(1000 * flops / (16 * 989.5e12))
    # 12 L H Q T: 126 layers, 128 heads of 128, 8,192 tokens.
    core = value(result, "flops_per_token_palm") - value(result, "flops_per_token_6n")
    assert core == 12 * 126 * 128 * 128 * 8192
    assert value(run(LLAMA_405B, convention="6N"), "mfu_ratio") == by["6n"]


def test_a_mixture_costs_what_a_token_meets() -> None:
    two, four = run(MIXTRAL), run(MIXTRAL, topk=4)
    matrices = 32 * 2 * 3 * 4096 * 14336
    more = value(four, "flops_per_token") - value(two, "flops_per_token")
    assert more == pytest.approx(6 * matrices)
    assert value(four, "params_total") == value(two, "params_total")
    shared = run(MIXTRAL, shared_ffn=14336)
    assert value(shared, "flops_per_token") - value(two, "flops_per_token") == more / 2


def test_latent_attention_is_not_plain_attention() -> None:
    """Per head 128 + 64 for queries and keys, 128 for values: 320 in place of 2 x 128."""
    result = run(DEEPSEEK_V2)
    longer = run(DEEPSEEK_V2, seq_len_tokens=8192)
    core = value(longer, "flops_per_token") - value(result, "flops_per_token")
    assert core == 6 * 60 * 128 * (128 + 64 + 128) * 4096 / 2
    uncompressed = run(DEEPSEEK_V2, q_lora_rank=None)
    assert value(uncompressed, "params_active") > value(result, "params_active")


def test_shared_keys_and_tied_embeddings_are_fewer_parameters() -> None:
    grouped, whole = run(LLAMA_405B), run(LLAMA_405B, kv_heads=128)
    saved = value(whole, "params_active") - value(grouped, "params_active")
    assert saved == 126 * 2 * 16384 * 120 * 128
    tied = run(LLAMA_405B, embeddings="tied")
    assert value(grouped, "params_active") - value(tied, "params_active") == 128256 * 16384


def test_packed_sequences_cost_the_sum_of_their_squares() -> None:
    packed = run(LLAMA_405B, seq_len_tokens=None, packed_lengths_tokens=[6144, 2048])
    assert value(packed, "context_tokens") == (6144**2 + 2048**2) / 8192 == 5120
    alone = run(LLAMA_405B, seq_len_tokens=5120)
    assert value(packed, "flops_per_token") == value(alone, "flops_per_token")
    both = run(LLAMA_405B, packed_lengths_tokens="6144,2048")
    assert value(both, "context_tokens") == 5120
    assert any("not seq_len_tokens" in text for text in both.warnings)


@pytest.mark.parametrize(
    ("recompute", "factor"),
    [("none", 1.0), ("full", 4 / 3), ("selective", 1 + (2.6254 - 2.5240) / 2.5240 / 3)],
)
def test_what_is_recomputed_is_in_hfu_only(recompute: str, factor: float) -> None:
    result = run(LLAMA_405B, recompute=recompute)
    assert value(result, "hfu_ratio") / value(result, "mfu_ratio") == pytest.approx(
        factor, abs=5e-5
    )
    assert value(result, "mfu_ratio") == value(run(LLAMA_405B), "mfu_ratio")


def test_mixed_precision_is_held_against_both_peaks() -> None:
    call = {**H100, "convention": "6N", "params": 37e9, "tokens_per_s": 20_000}
    result = run(call, fp8_ratio=0.7)
    flops = 6 * 37e9 * 20_000
    # 0.3 / 989.5 + 0.7 / 1979 = 6.569e-4 device-seconds per TFLOP.
    by_hand = flops / 1e12 * (0.3 / 989.5 + 0.7 / 1979) / 16
    assert value(result, "mfu_ratio") == pytest.approx(by_hand)
    peaks = {"bf16": peak("H100 SXM", "bf16"), "fp8": peak("H100 SXM", "fp8")}
    other = mixed_mfu({"bf16": 0.3 * flops, "fp8": 0.7 * flops}, peaks, 16)
    assert value(result, "mfu_ratio") == pytest.approx(other.value)
    assert result.peaks_tflops == {"bf16": 989.5, "fp8": 1979}
    assert "bf16+fp8" in result.sentence
    plain = value(run(call), "mfu_ratio")
    assert value(run(call, fp8_ratio=0), "mfu_ratio") == plain
    assert value(run(call, fp8_ratio=1), "mfu_ratio") == pytest.approx(plain / 2)
    given = run(
        {**call, "device": None}, peak_tflops=989.5, peak_basis="dense", fp8_ratio=0.7,
        fp8_peak_tflops=1979,
    )  # fmt: skip
    assert value(given, "mfu_ratio") == pytest.approx(by_hand)
    none = run({**call, "device": "A100 SXM"}, fp8_ratio=0.5)
    assert none.mfu_ratio.value is None
    assert "fp8" in (none.mfu_ratio.reason or "")


def test_shares_of_a_mixed_peak_must_sum_to_one() -> None:
    bf16 = peak("H100 SXM", "bf16")
    with pytest.raises(UserError) as caught:
        mixed_peak(((bf16, 0.5), (bf16, 0.4)))
    assert caught.value.where == "shares"
    unknown = mixed_peak(((bf16, 0.5), (Peak("fp4", None, reason="no fp4 peak"), 0.5)))
    assert unknown.tflops is None
    assert unknown.reason == "no fp4 peak"


def test_share_of_what_was_measured_to_be_achievable() -> None:
    """794.5 TFLOP/s is the best matrix product that was measured on an H100 SXM."""
    call = {**H100, "convention": "6N", "devices": 1, "params": 1e9, "tokens_per_s": 397.25e3 / 6}
    result = run(call)
    assert value(result, "mfu_of_achievable_ratio") == pytest.approx(0.5)
    assert result.of_achievable_ratio.value is None
    full = run(call, recompute="full")
    assert value(full, "of_achievable_ratio") == pytest.approx(0.5 * 4 / 3)
    assert full.achievable_tflops == 794.5


def test_a_clock_below_the_peak_s_scales_it() -> None:
    call = {**H100, "convention": "6N", "params": 37e9}
    slow = run(call, clock_mhz=915)
    assert value(slow, "mfu_ratio") == pytest.approx(2 * value(run(call), "mfu_ratio"))
    assert any("915 MHz" in text for text in slow.warnings)


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"topk": 2}, "experts"),
        ({"experts": 8, "topk": 9}, "topk"),
        ({"q_lora_rank": 1536}, "kv_lora_rank"),
        ({"kv_lora_rank": 512, "qk_head_dim": 128, "qk_rope_head_dim": 64}, "v_head_dim"),
        ({"heads": 12, "kv_heads": 5}, "kv_heads"),
        ({"fp8_peak_tflops": 1979}, "fp8_ratio"),
        ({"fp8_ratio": 0.5, "dtype": "fp8"}, "dtype"),
        ({"fp8_ratio": 0.5, "peak_tflops": 9, "peak_basis": "dense"}, "fp8_peak_tflops"),
        ({"clock_mhz": 900, "peak_tflops": 9, "peak_basis": "dense"}, "clock_mhz"),
        ({"fp8_ratio": 1.5}, "fp8_ratio"),
    ],
)
def test_what_does_not_go_together_names_the_flag(more: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as caught:
        run(H100, **more)
    assert caught.value.where == where


def test_what_is_missing_is_named_as_the_flag() -> None:
    result = run(LLAMA_405B, mlp=None)
    assert result.mfu_ratio.reason == "mlp was not given"
    assert run(LLAMA_405B, seq_len_tokens=None).mfu_ratio.reason == "seq_len_tokens was not given"
    # The number of parameters is enough for 6N.
    assert value(run(H100, params=8e9), "mfu_6n_ratio") > 0
