"""Floating-point operations that training a transformer needs, by convention.

Three conventions are in use, and at long sequences they differ by tens of per cent, so every
number carries the one it was computed by (all: forward and backward, no recomputation):

======== ============================================== ===========================================
6N       6 * N                                          Kaplan et al. 2020
palm     6 * N + 12 * L * H * Q * T, full attention     Chowdhery et al. 2022, appendix B
megatron matrix products * 6, causal attention halved   Megatron-LM num_floating_point_operations
======== ============================================== ===========================================

N counts the parameters that a token meets. Operations are linear in tokens plus a part that grows
with the sum of squared sequence lengths, so packed sequences need only their effective length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.mfu.model_shape import ModelShape, count_params, layer_params
from steptax.app.errors import UserError

#: A multiply-add is two operations, and each product is done once forward and twice backward.
_PER_WEIGHT = 6


class Convention(StrEnum):
    """How model FLOPs are counted."""

    SIX_N = "6N"
    PALM = "palm"
    MEGATRON = "megatron"

    @classmethod
    def read(cls, name: str) -> Convention:
        """The convention called ``name``, in any case.

        Raises:
            UserError: there is none.
        """
        for member in cls:
            if member.value.lower() == name.strip().lower():
                return member
        known = ", ".join(cls)
        raise UserError(f"no FLOPs convention {name!r}", where="convention", hint=known)


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    """The attention core only (Korthikanti et al. 2022)."""
    FULL = "full"

    @classmethod
    def read(cls, name: str) -> Recompute:
        """The kind called ``name``, in any case.

        Raises:
            UserError: there is none.
        """
        try:
            return cls(name.strip().lower())
        except ValueError:
            known = ", ".join(cls)
            raise UserError(f"no recomputation {name!r}", where="recompute", hint=known) from None


@dataclass(frozen=True)
class FlopParts:
    """FLOPs of a batch = ``linear`` * tokens + ``core`` * sum of squared sequence lengths."""

    linear: float
    """FLOPs per token that do not depend on its context."""
    core: float
    """FLOPs per token and token of context: the attention core, forward and backward."""

    def total(self, tokens: float, seq_sq_sum: float) -> float:
        """FLOPs of a batch of packed sequences with that many tokens and sum of squares."""
        return self.linear * tokens + self.core * seq_sq_sum


def active_params(shape: ModelShape, *, exclude_input_embedding: bool = False) -> Measure:
    """N, the parameters that a token meets: as stated, or else counted from the shape.

    Of a mixture of experts whose total alone is known there is no N. Without the input embedding
    (which is a look-up, not a product) only if asked for and not tied to the output.
    """
    known: int | None = shape.params_active
    source = "params_active"
    if known is None and not shape.is_moe:
        known, source = shape.params_total, "params_total"
    if known is None:
        try:
            known, source = count_params(shape).active, "model shape"
        except UserError as error:
            why = error.message
            if shape.is_moe and shape.params_total is not None:
                why = "of this mixture of experts only the total parameters are known"
            return Measure.missing("parameters", why, level=Level.LOG)
    if exclude_input_embedding and not shape.tied:
        try:
            known -= shape.need("vocab") * shape.need("hidden")
        except UserError as error:
            return Measure.missing("parameters", error.message, level=Level.LOG)
    return Measure(float(known), "parameters", level=Level.LOG, inputs=(source,))


def core_per_context(shape: ModelShape) -> int:
    """FLOPs of full attention per token and token of context, forward and backward.

    QK^T and PV: 2 products * 6 * L * width, which is 12 * L * H * Q. For MLA the two widths differ.

    Raises:
        UserError: a field that is needed is not known.
    """
    layers = shape.need("layers") + (shape.mtp_layers or 0)
    if shape.mla is None:
        widths = 2 * shape.query_width
    else:
        mla = shape.mla
        per_head = mla.qk_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
        widths = shape.need("heads") * per_head
    return _PER_WEIGHT * layers * widths


def flop_parts(
    shape: ModelShape, convention: Convention, *, exclude_input_embedding: bool = False
) -> FlopParts:
    """The two coefficients of model FLOPs under a convention.

    ``megatron``: experts that a token meets only, the router ignored; logits once per layer of
    multi-token prediction and once more; the input embedding costs nothing; attention halved if
    causal.

    Raises:
        UserError: a field that is needed is not known, which it names.
    """
    if convention is not Convention.MEGATRON:
        params = active_params(shape, exclude_input_embedding=exclude_input_embedding)
        if params.value is None:
            raise UserError(params.reason or "parameters are not known", where="params_active")
        core = core_per_context(shape) if convention is Convention.PALM else 0
        return FlopParts(_PER_WEIGHT * params.value, float(core))
    h, mtp = shape.need("hidden"), shape.mtp_layers or 0
    parts = layer_params(shape)
    expert_layer = 0
    if parts.moe_layers:
        expert_layer = parts.expert * shape.need("topk") + parts.shared
    weights = (
        parts.dense_layers * parts.dense_mlp
        + parts.moe_layers * expert_layer
        + (parts.dense_layers + parts.moe_layers) * parts.attention
        + h * shape.need("vocab") * (1 + mtp)
        + mtp * (3 * h + 2 * h * h)
    )
    return FlopParts(
        float(_PER_WEIGHT * weights), core_per_context(shape) / (2 if shape.causal else 1)
    )


def effective_seq_len(lengths: Sequence[float]) -> float:
    """Context of the average token of packed sequences: sum of squares / sum of lengths.

    Raises:
        UserError: no sequence, or one that is not positive.
    """
    if not lengths or min(lengths) < 1:
        raise UserError("sequence lengths must be positive", where="seq_len")
    return sum(n * n for n in lengths) / sum(lengths)


def flops_per_token(
    shape: ModelShape,
    convention: Convention,
    *,
    seq_len: float | None = None,
    exclude_input_embedding: bool = False,
) -> Measure:
    """Model FLOPs per token, forward and backward; missing where the shape does not tell.

    ``seq_len`` is the effective length of packed sequences, else the shape's.
    """
    try:
        parts = flop_parts(shape, convention, exclude_input_embedding=exclude_input_embedding)
        context = 0.0
        if parts.core:
            context = shape.need("seq_len") if seq_len is None else seq_len
    except UserError as error:
        return Measure.missing("FLOP/token", error.message, level=Level.LOG)
    if not (math.isfinite(context) and context >= 0):
        raise UserError(f"must not be negative, got {context}", where="seq_len")
    return Measure(
        parts.total(1, context), "FLOP/token", level=Level.LOG, inputs=(f"convention {convention}",)
    )


def hardware_factor(
    shape: ModelShape,
    convention: Convention,
    recompute: Recompute | None,
    *,
    seq_len: float | None = None,
) -> Measure:
    """Executed FLOPs / model FLOPs: what turns MFU into HFU.

    ``full``: a second forward pass, 4/3 (as usual the output layer is counted too). ``selective``:
    the attention core's forward once more, a third of its share. None where it is not known what
    is recomputed, or where the convention has no attention core to tell.
    """
    if recompute is None:
        return Measure.missing(
            "ratio", "which activations are recomputed is not known", level=Level.LOG
        )
    if recompute is Recompute.NONE:
        return Measure(1.0, "ratio", level=Level.LOG)
    if recompute is Recompute.FULL:
        return Measure(4 / 3, "ratio", level=Level.LOG)
    if convention is Convention.SIX_N:
        return Measure.missing(
            "ratio",
            "convention 6N does not count the attention that is recomputed",
            level=Level.LOG,
        )
    whole = flops_per_token(shape, convention, seq_len=seq_len)
    if whole.value is None:
        return Measure.missing("ratio", whole.reason or "", level=Level.LOG)
    context = shape.need("seq_len") if seq_len is None else seq_len
    core = flop_parts(shape, convention).core * context
    return Measure(1 + core / whole.value / 3, "ratio", level=Level.LOG)
