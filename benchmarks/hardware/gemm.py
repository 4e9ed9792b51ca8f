"""Matrix multiply: squares, and the multiplies of a model's own block; TFLOP/s by 2 m n k."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.benchmarks.hardware.backend import Backend, BlockShape, Work
from steptax.benchmarks.hardware.case import TFLOPS, Case

GPU_SIZES = (4096, 8192, 16384)
CPU_SIZES = (512, 1024)


def cases(
    backend: Backend,
    dtypes: Sequence[str],
    sizes: Sequence[int] = (),
    model: BlockShape | None = None,
) -> list[Case]:
    """Every size and element type; of ``model`` its four multiplies too."""
    squares = sizes or (GPU_SIZES if backend.is_gpu else CPU_SIZES)
    asked: dict[tuple[int, int, int], str | None] = {}
    for shape in block_shapes(model) if model else []:
        asked[shape] = "--model"
    for n in squares:
        asked[n, n, n] = "--size" if sizes else None
    order = [(n, n, n) for n in squares] + (block_shapes(model) if model else [])
    return [_case(*s, dtype, asked[s]) for dtype in dtypes for s in dict.fromkeys(order)]


def block_shapes(model: BlockShape) -> list[tuple[int, int, int]]:
    """(m, n, k) of the query-key-value and output projections and of both feed-forward layers."""
    kv = 2 * model.kv_heads * model.head_dim
    up = model.ffn * (2 if model.gated else 1)
    return [
        (model.tokens, model.hidden + kv, model.hidden),
        (model.tokens, model.hidden, model.hidden),
        (model.tokens, up, model.hidden),
        (model.tokens, model.hidden, model.ffn),
    ]


#: Bytes of an element.
_ITEM_BYTES = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}


def _case(m: int, n: int, k: int, dtype: str, flag: str | None) -> Case:
    def prepare(backend: Backend, seed: int) -> Work:
        return backend.gemm(m, n, k, dtype, seed)

    needs = float(m * k + k * n + m * n) * _ITEM_BYTES.get(dtype, 1)
    flops = 2.0 * m * n * k
    size = f"{m}x{n}x{k}"
    return Case("gemm", size, dtype, TFLOPS, flops, prepare, needs_bytes=needs, flag=flag)
