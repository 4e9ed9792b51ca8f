"""Attention and feed-forward part of a model's block; TFLOP/s by the model's own FLOPs.

Counted as MFU counts them: multiplies only, the attention core halved for causality, and the
backward pass as twice the forward one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from steptax.benchmarks.hardware.backend import Backend, BlockShape, Work
from steptax.benchmarks.hardware.case import TFLOPS, Case
from steptax.benchmarks.hardware.models import MODELS


def default_model(backend: Backend) -> BlockShape:
    """Llama 3 8B at 4,096 tokens; on a CPU GPT-2 at 512."""
    if backend.is_gpu:
        return replace(MODELS["llama-3-8b"], seq_len=4096)
    return replace(MODELS["gpt-2"], seq_len=512)


def attention_flops(model: BlockShape) -> float:
    """Forward FLOPs: projections 2 T h (h + kv) + 2 T h h, core 2 * 2 * s^2 * h / 2 a sequence."""
    kv = 2 * model.kv_heads * model.head_dim
    projections = 2.0 * model.tokens * model.hidden * (2 * model.hidden + kv)
    return projections + 2.0 * model.sequences * model.seq_len**2 * model.hidden


def mlp_flops(model: BlockShape) -> float:
    """Forward FLOPs: 2 T h ffn for each of the two layers, three where it is gated."""
    return 2.0 * model.tokens * model.hidden * model.ffn * (3 if model.gated else 2)


def cases(
    part: str, model: BlockShape, dtypes: Sequence[str], flag: str | None = None
) -> list[Case]:
    """``part`` is ``attention`` or ``mlp``; forward, and forward with backward.

    ``flag`` is what named the model, None where it is the usual one.
    """
    flops = attention_flops(model) if part == "attention" else mlp_flops(model)
    size = f"{model.name} {model.sequences}x{model.seq_len}x{model.hidden}"
    return [
        replace(_case(part, model, size, dtype, flops, backward=backward), flag=flag)
        for dtype in dtypes
        # Blocks of fp8 need scaling recipes that torch alone does not have.
        if dtype != "fp8"
        for backward in (False, True)
    ]


def _case(
    part: str, model: BlockShape, size: str, dtype: str, flops: float, *, backward: bool
) -> Case:
    def prepare(backend: Backend, seed: int) -> Work:
        make = backend.attention if part == "attention" else backend.mlp
        return make(model, dtype, seed, backward=backward)

    name = f"{part} forward" + ("+backward" if backward else "")
    return Case(name, size, dtype, TFLOPS, flops * (3 if backward else 1), prepare)
