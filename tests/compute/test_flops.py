"""Model FLOPs by convention, against the published numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.mfu.closed_forms import (
    SECONDS_PER_DAY,
    korthikanti_hardware_flops,
    korthikanti_model_flops,
    narayanan_flops,
    narayanan_params,
    train_seconds,
)
from steptax.app.compute.mfu.flops import (
    Convention,
    Recompute,
    active_params,
    core_per_context,
    effective_seq_len,
    flop_parts,
    flops_per_token,
    hardware_factor,
)
from steptax.app.compute.mfu.model_shape import Mla, ModelShape, count_params
from steptax.app.errors import UserError

LLAMA_405B = ModelShape(
    layers=126, hidden=16384, ffn=53248, heads=128, kv_heads=8, vocab=128256, swiglu=True,
    seq_len=8192,
)  # fmt: skip
MIXTRAL = ModelShape(
    layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, vocab=32000, swiglu=True, experts=8,
    topk=2, seq_len=4096,
)  # fmt: skip
DEEPSEEK_MLA = Mla(
    kv_lora_rank=512, qk_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, q_lora_rank=1536
)
DEEPSEEK_V2 = ModelShape(
    layers=60, hidden=5120, ffn=12288, heads=128, vocab=102400, swiglu=True, experts=160, topk=6,
    moe_ffn=1536, shared_ffn=3072, moe_layers=59, mla=DEEPSEEK_MLA, seq_len=4096,
)  # fmt: skip
DEEPSEEK_V3 = ModelShape(
    layers=61, hidden=7168, ffn=18432, heads=128, vocab=129280, swiglu=True, experts=256, topk=8,
    moe_ffn=2048, shared_ffn=2048, moe_layers=58, mla=DEEPSEEK_MLA, mtp_layers=1, seq_len=4096,
)  # fmt: skip


def per_token(shape: ModelShape, convention: Convention, **changes: Any) -> float:
    value = flops_per_token(dataclasses.replace(shape, **changes), convention).value
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("convention", "causal", "seq_len", "tflop"),
    [
        (Convention.SIX_N, True, 8192, 2.4351),
        (Convention.MEGATRON, True, 8192, 2.5240),
        (Convention.MEGATRON, False, 8192, 2.6254),
        (Convention.MEGATRON, True, 131072, 4.0460),
        (Convention.MEGATRON, False, 131072, 5.6695),
    ],
)
def test_llama3_405b_flops_per_token(
    convention: Convention, causal: bool, seq_len: int, tflop: float
) -> None:
    value = per_token(LLAMA_405B, convention, causal=causal, seq_len=seq_len)
    assert value / 1e12 == pytest.approx(tflop, abs=5e-5)


def test_llama3_405b_step_time() -> None:
    flops = 16 * 2**20 * per_token(LLAMA_405B, Convention.MEGATRON)
    assert flops / (8192 * 430e12) == pytest.approx(12.02, abs=5e-3)
    assert flops / (16384 * 400e12) == pytest.approx(6.46, abs=5e-3)


@pytest.mark.parametrize(
    ("shape", "total", "active"),
    [
        (LLAMA_405B, 405_853_388_800, 405_853_388_800),
        (MIXTRAL, 46_702_792_704, 12_879_925_248),
        (DEEPSEEK_V2, 235_741_434_880, 21_375_800_320),
    ],
)
def test_published_parameter_counts(shape: ModelShape, total: int, active: int) -> None:
    counted = count_params(shape)
    assert (counted.total, counted.active) == (total, active)


def test_deepseek_v3_parameters() -> None:
    # The published 671,026,419,200 include a bias of each router, 58 layers * 256 experts.
    assert count_params(DEEPSEEK_V3).total == 671_026_419_200 - 58 * 256
    assert count_params(DEEPSEEK_V3).active / 1e9 == pytest.approx(37, abs=0.6)


@pytest.mark.parametrize(
    ("hidden", "layers", "devices", "batch", "pflops", "billions", "tflops", "step_s"),
    [
        (2304, 24, 32, 512, 4.4, 1.7, 137.5, 3.52),
        (4096, 36, 128, 512, 18.2, 7.5, 142, 3.69),
        (8192, 48, 512, 1536, 70.8, 39.1, 138, 14.42),
        (12288, 80, 1536, 2304, 227.1, 145.6, 148, 24.84),
        (25600, 128, 3072, 3072, 502.0, 1008.0, 163, 102.4),
    ],
)
def test_c03_megatron_sc21_table_1(
    hidden: int, layers: int, devices: int, batch: int, pflops: float, billions: float,
    tflops: float, step_s: float,
) -> None:  # fmt: skip
    params = narayanan_params(layers, hidden, 51200, 2048)
    assert params / 1e9 == pytest.approx(billions, abs=0.05)
    executed = narayanan_flops(batch, 2048, layers, hidden, 51200)
    assert executed / (pflops * 1e15) == pytest.approx(step_s, abs=0.05 if step_s > 100 else 5e-3)
    assert pflops * 1e3 / devices == pytest.approx(tflops, abs=0.5)


@pytest.mark.parametrize(
    ("params", "tokens", "devices", "tflops", "days"),
    [(175e9, 300e9, 1024, 140, 33.9), (1.008e12, 450e9, 3072, 163, 83.9)],
)
def test_c03_megatron_sc21_end_to_end(
    params: float, tokens: float, devices: int, tflops: float, days: float
) -> None:
    seconds = train_seconds(params, tokens, devices, tflops, recompute=True)
    assert seconds / SECONDS_PER_DAY == pytest.approx(days, abs=0.05)
    without = train_seconds(params, tokens, devices, tflops, recompute=False)
    assert without / seconds == pytest.approx(6 / 8)


GPTS = st.builds(
    lambda layers, heads, dim, vocab, seq: ModelShape(
        layers=layers, hidden=heads * dim, ffn=4 * heads * dim, heads=heads, vocab=vocab,
        seq_len=seq, swiglu=False, causal=False,
    ),
    st.integers(1, 64), st.integers(1, 64), st.integers(8, 256), st.integers(16, 200_000),
    st.integers(1, 65536),
)  # fmt: skip


@given(GPTS, st.integers(1, 4096))
def test_megatron_convention_is_the_closed_form_of_a_plain_gpt(
    shape: ModelShape, batch: int
) -> None:
    closed = korthikanti_model_flops(
        batch,
        shape.need("seq_len"),
        shape.need("layers"),
        shape.need("hidden"),
        shape.need("vocab"),
    )
    tokens = batch * shape.need("seq_len")
    assert per_token(shape, Convention.MEGATRON) * tokens == pytest.approx(closed, rel=1e-9)


@given(GPTS)
def test_full_recompute_closed_form_is_a_forward_pass_of_the_layers(shape: ModelShape) -> None:
    dims = (
        shape.need("seq_len"), shape.need("layers"), shape.need("hidden"), shape.need("vocab"),
    )  # fmt: skip
    logits = 6 * dims[0] * dims[2] * dims[3]
    model = korthikanti_model_flops(1, *dims)
    assert narayanan_flops(1, *dims) == pytest.approx((model - logits) * 4 / 3 + logits, rel=1e-9)


@given(GPTS)
def test_selective_recompute_as_printed_exceeds_what_is_executed(shape: ModelShape) -> None:
    dims = (
        shape.need("seq_len"), shape.need("layers"), shape.need("hidden"), shape.need("vocab"),
    )  # fmt: skip
    model = korthikanti_model_flops(1, *dims)
    printed = korthikanti_hardware_flops(1, *dims) / model
    factor = hardware_factor(shape, Convention.MEGATRON, Recompute.SELECTIVE).value
    assert factor is not None
    core = core_per_context(shape) * dims[0] ** 2
    assert printed - 1 == pytest.approx(core / model, rel=1e-6)
    assert factor - 1 == pytest.approx(core / model / 3, rel=1e-6)


def test_recompute_factors() -> None:
    for convention in Convention:
        none = hardware_factor(LLAMA_405B, convention, Recompute.NONE)
        full = hardware_factor(LLAMA_405B, convention, Recompute.FULL)
        assert (none.value, full.value) == (1.0, 4 / 3)
        assert hardware_factor(LLAMA_405B, convention, None).value is None
    selective = hardware_factor(LLAMA_405B, Convention.SIX_N, Recompute.SELECTIVE)
    assert selective.value is None
    assert "attention" in (selective.reason or "")


def test_grouped_queries_save_key_and_value_products() -> None:
    whole = per_token(LLAMA_405B, Convention.MEGATRON, kv_heads=128)
    saved = 6 * 126 * 16384 * 2 * (16384 - 1024)
    assert whole - per_token(LLAMA_405B, Convention.MEGATRON) == pytest.approx(saved, rel=1e-12)


def test_a_gate_adds_a_third_matrix() -> None:
    plain = per_token(LLAMA_405B, Convention.MEGATRON, swiglu=False)
    gated = per_token(LLAMA_405B, Convention.MEGATRON)
    assert gated - plain == pytest.approx(6 * 126 * 16384 * 53248, rel=1e-12)


def test_head_dim_apart_from_the_hidden_size_counts() -> None:
    palm = ModelShape(layers=118, hidden=18432, heads=48, head_dim=256, seq_len=2048)
    assert core_per_context(palm) == 12 * 118 * 48 * 256


def test_a_mixture_counts_the_experts_that_a_token_meets() -> None:
    dense = dataclasses.replace(MIXTRAL, experts=None, topk=None, ffn=2 * 14336)
    assert per_token(MIXTRAL, Convention.MEGATRON) == per_token(dense, Convention.MEGATRON)
    active = active_params(MIXTRAL)
    assert active.value == 12_879_925_248
    assert active.inputs == ("model shape",)


def test_mla_products() -> None:
    h, heads = 5120, 128
    query = 1536 * (h + heads * 192 + 1)
    key_value = 512 * (h + heads * 256 + 1) + h * 64
    out = heads * 128 * h
    assert flop_parts(DEEPSEEK_V2, Convention.MEGATRON).core == 6 * 60 * heads * (192 + 128) / 2
    attention = 60 * (query + key_value + out)
    mlp = 3 * h * (12288 + 59 * (6 * 1536 + 3072))
    expected = 6 * (attention + mlp + h * 102400)
    assert flop_parts(DEEPSEEK_V2, Convention.MEGATRON).linear == expected
    direct = dataclasses.replace(
        DEEPSEEK_V2, mla=dataclasses.replace(DEEPSEEK_MLA, q_lora_rank=None)
    )
    saved = 6 * 60 * (h * heads * 192 - query)
    assert flop_parts(direct, Convention.MEGATRON).linear - expected == saved


def test_multi_token_prediction_adds_a_layer_and_its_logits() -> None:
    without = dataclasses.replace(DEEPSEEK_V3, mtp_layers=None)
    h = 7168
    attention = 1536 * (h + 128 * 192 + 1) + 512 * (h + 128 * 256 + 1) + h * 64 + 128 * 128 * h
    layer = attention + 3 * h * (8 * 2048 + 2048) + h * 129280 + 3 * h + 2 * h * h
    parts = (flop_parts(shape, Convention.MEGATRON) for shape in (DEEPSEEK_V3, without))
    with_mtp, plain = (p.linear for p in parts)
    assert with_mtp - plain == 6 * layer


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=20))
def test_packed_sequences_cost_their_sum_of_squares(lengths: list[int]) -> None:
    parts = flop_parts(LLAMA_405B, Convention.MEGATRON)
    apart = sum(parts.total(n, n * n) for n in lengths)
    seq_len = effective_seq_len(lengths)
    each = flops_per_token(LLAMA_405B, Convention.MEGATRON, seq_len=seq_len).value
    assert each is not None
    assert each * sum(lengths) == pytest.approx(apart, rel=1e-12)
    assert max(lengths) >= seq_len >= sum(lengths) / len(lengths) * (1 - 1e-12)


@given(st.integers(1, 1_000_000))
def test_full_attention_costs_more_than_causal_and_longer_more_than_short(seq_len: int) -> None:
    causal = per_token(LLAMA_405B, Convention.MEGATRON, seq_len=seq_len)
    full = per_token(LLAMA_405B, Convention.MEGATRON, seq_len=seq_len, causal=False)
    longer = per_token(LLAMA_405B, Convention.MEGATRON, seq_len=seq_len + 1)
    assert causal < full
    assert causal < longer


def test_n_without_the_input_embedding() -> None:
    with_it = active_params(LLAMA_405B).value
    without = active_params(LLAMA_405B, exclude_input_embedding=True).value
    assert with_it is not None
    assert without is not None
    assert with_it - without == 128256 * 16384
    tied = dataclasses.replace(LLAMA_405B, tied=True)
    assert active_params(tied).value == active_params(tied, exclude_input_embedding=True).value
    assert count_params(tied).total == with_it - 128256 * 16384


def test_what_is_not_known_is_named() -> None:
    bare = ModelShape(layers=2, hidden=64)
    assert flops_per_token(bare, Convention.MEGATRON).reason == "swiglu of the model is not known"
    assert flops_per_token(bare, Convention.SIX_N).reason == "vocab of the model is not known"
    only_n = ModelShape(params_total=10**9)
    assert flops_per_token(only_n, Convention.SIX_N).value == 6e9
    assert flops_per_token(only_n, Convention.PALM).reason == "layers of the model is not known"
    no_length = ModelShape(params_total=10**9, layers=2, hidden=64)
    assert flops_per_token(no_length, Convention.PALM).reason == "seq_len of the model is not known"
    assert flops_per_token(no_length, Convention.PALM, seq_len=0).value == 6e9
    small_input = active_params(only_n, exclude_input_embedding=True)
    assert small_input.reason == "vocab of the model is not known"
    selective = hardware_factor(bare, Convention.MEGATRON, Recompute.SELECTIVE)
    assert selective.reason == "swiglu of the model is not known"
    mixture = ModelShape(params_total=10**9, moe=True)
    assert "only the total" in (flops_per_token(mixture, Convention.SIX_N).reason or "")
    unknown_experts = dataclasses.replace(LLAMA_405B, moe=True)
    assert "experts" in (flops_per_token(unknown_experts, Convention.MEGATRON).reason or "")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"layers": 0}, "layers"),
        ({"hidden": -1}, "hidden"),
        ({"params_total": 1, "params_active": 2}, "params_active"),
        ({"experts": 8, "topk": 9}, "topk"),
        ({"layers": 2, "moe_layers": 3}, "moe_layers"),
        ({"heads": 6, "kv_heads": 4}, "kv_heads"),
        ({"hidden": 100, "heads": 7}, "heads"),
    ],
)
def test_shapes_that_cannot_be_are_refused(fields: dict[str, int], where: str) -> None:
    with pytest.raises(UserError) as caught:
        ModelShape(**fields)  # type: ignore[arg-type]
    assert caught.value.where == where


def test_other_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match=r"mla\.kv_lora_rank"):
        Mla(0, 1, 1, 1)
    with pytest.raises(UserError, match="seq_len"):
        effective_seq_len([])
    with pytest.raises(UserError, match="seq_len"):
        flops_per_token(LLAMA_405B, Convention.PALM, seq_len=-1)
    with pytest.raises(UserError, match="tokens"):
        train_seconds(1, 0, 1, 1, recompute=False)
    with pytest.raises(UserError, match="6N, palm, megatron"):
        Convention.read("8N")
    with pytest.raises(UserError, match="selective"):
        Recompute.read("some")
    assert Convention.read("Megatron") is Convention.MEGATRON
    assert Convention.read("6n") is Convention.SIX_N
    assert Recompute.read("FULL") is Recompute.FULL
