"""The shape of a transformer, and how many parameters follow from it.

Any field may be unknown (None): what needs it then says which one is missing. ``ffn`` is the
width of a dense feed-forward block, ``moe_ffn`` that of one expert, ``shared_ffn`` that of all
shared experts of a layer together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from steptax.app.errors import UserError


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2): low-rank queries and keys.

    ``qk_head_dim`` is the part without rotary embedding, ``qk_rope_head_dim`` the part with it;
    ``q_lora_rank`` is None where queries are not compressed.
    """

    kv_lora_rank: int
    qk_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse a dimension that is not positive."""
        _require_positive(self, "mla.")


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer. Lengths in elements, ``seq_len`` in tokens.

    ``heads`` and ``kv_heads`` are attention heads and key/value groups (equal if not given),
    ``head_dim`` is hidden / heads if not given. ``swiglu``: the feed-forward block has a gate, so
    three matrices instead of two. ``moe_layers``: how many of the layers are mixtures of experts
    (all of them if not given). ``tied``: one matrix serves as input embedding and output layer.
    ``mtp_layers``: extra layers for multi-token prediction. ``moe`` marks a mixture whose experts
    are not known.

    Raises:
        UserError: a value that cannot be, or values that contradict each other.
    """

    layers: int | None = None
    hidden: int | None = None
    ffn: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    seq_len: int | None = None
    swiglu: bool | None = None
    causal: bool = True
    experts: int | None = None
    topk: int | None = None
    moe_ffn: int | None = None
    shared_ffn: int | None = None
    moe_layers: int | None = None
    tied: bool = False
    mtp_layers: int | None = None
    mla: Mla | None = None
    params_total: int | None = None
    params_active: int | None = None
    moe: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        _require_positive(self, "", zero=("moe_layers", "mtp_layers", "shared_ffn"))
        self._require(
            self.params_total,
            self.params_active,
            "params_active",
            "more parameters are active than there are",
        )
        self._require(self.experts, self.topk, "topk", "more experts a token than there are")
        self._require(self.layers, self.moe_layers, "moe_layers", "more of them than layers")
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise UserError(
                f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly",
                where="kv_heads",
            )
        derived = self.head_dim is None and self.mla is None
        if derived and self.hidden and self.heads and self.hidden % self.heads:
            raise UserError(
                f"hidden size {self.hidden} is not a multiple of {self.heads} heads",
                where="heads",
                hint="give head_dim",
            )

    @staticmethod
    def _require(whole: int | None, part: int | None, where: str, message: str) -> None:
        if whole is not None and part is not None and part > whole:
            raise UserError(f"{message}: {part} of {whole}", where=where)

    @property
    def is_moe(self) -> bool:
        """Whether a token meets only some of the parameters."""
        both = self.params_active is not None and self.params_total is not None
        return (
            self.moe
            or self.experts is not None
            or (both and self.params_active != self.params_total)
        )

    @property
    def query_width(self) -> int:
        """Width of all query heads together: head_dim * heads.

        Raises:
            UserError: it does not follow from what is known.
        """
        if self.head_dim is not None:
            return self.head_dim * self.need("heads")
        return self.need("hidden")

    def need(self, name: str) -> int:
        """The field called ``name``.

        Raises:
            UserError: it is not known.
        """
        value = getattr(self, name)
        if value is None:
            words = {"hidden": "hidden size"}.get(name, name)
            raise UserError(f"{words} of the model is not known", where=name)
        return int(value)


def _require_positive(shape: object, prefix: str, zero: tuple[str, ...] = ()) -> None:
    for item in fields(shape):  # type: ignore[arg-type]
        value = getattr(shape, item.name)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value < 0 or (value == 0 and item.name not in zero):
            raise UserError(f"must be positive, not {value}", where=prefix + item.name)


@dataclass(frozen=True)
class LayerParams:
    """Weights that one token meets, by block; FLOPs of a matrix follow from its size."""

    attention: int
    """One attention block."""
    dense_mlp: int
    """One dense feed-forward block; 0 if the model has none."""
    expert: int
    """One expert; 0 if the model has none."""
    shared: int
    """All shared experts of a layer."""
    dense_layers: int
    moe_layers: int


def layer_params(shape: ModelShape) -> LayerParams:
    """Matrix sizes of the blocks of a layer.

    Attention: h * (dq + 2 * dkv) + dq * h; for MLA the low-rank products with their norms, as in
    Megatron-LM. Feed-forward: h * width * (3 with a gate, else 2).

    Raises:
        UserError: a field that is needed is not known.
    """
    h = shape.need("hidden")
    layers = shape.need("layers")
    matrices = 3 if shape.need("swiglu") else 2
    mixture = shape.experts is not None
    if shape.is_moe and not mixture:
        raise UserError("experts of the model are not known", where="experts")
    moe_layers = 0
    if mixture:
        moe_layers = layers if shape.moe_layers is None else shape.moe_layers
    dense_layers = layers - moe_layers
    extra = shape.mtp_layers or 0
    # Layers for multi-token prediction are of the kind of the last layer; mixtures come last.
    if moe_layers:
        moe_layers += extra
    else:
        dense_layers += extra
    expert = 0
    if moe_layers:
        expert = h * (shape.moe_ffn or shape.need("ffn")) * matrices
    return LayerParams(
        attention=_attention(shape),
        dense_mlp=h * shape.need("ffn") * matrices if dense_layers else 0,
        expert=expert,
        shared=h * (shape.shared_ffn or 0) * matrices if moe_layers else 0,
        dense_layers=dense_layers,
        moe_layers=moe_layers,
    )


def _attention(shape: ModelShape) -> int:
    h = shape.need("hidden")
    if shape.mla is None:
        dq = dkv = shape.query_width
        if shape.kv_heads is not None:
            dkv = dq // shape.need("heads") * shape.kv_heads
        return h * (dq + 2 * dkv) + dq * h
    mla, heads = shape.mla, shape.need("heads")
    query = heads * (mla.qk_head_dim + mla.qk_rope_head_dim)
    rank = mla.q_lora_rank
    q_term = h * query if rank is None else rank * (h + query + 1)
    kv_term = mla.kv_lora_rank * (h + heads * (mla.qk_head_dim + mla.v_head_dim) + 1)
    return q_term + kv_term + h * mla.qk_rope_head_dim + heads * mla.v_head_dim * h


@dataclass(frozen=True)
class ParamCount:
    """Parameters that follow from a shape."""

    total: int
    active: int
    """Those that a token meets: topk of the experts, everything else."""
    embedding: int
    """The input embedding alone; with tied weights it is the output layer too."""


def count_params(shape: ModelShape) -> ParamCount:
    """Parameters of a model without biases, with one norm vector before each block and at the end.

    Active = dense + topk / experts * expert parameters + shared experts + router. Layers for
    multi-token prediction are not counted: they are dropped after training.

    Raises:
        UserError: a field that is needed is not known.
    """
    h = shape.need("hidden")
    embedding = shape.need("vocab") * h
    parts = layer_params(shape)
    extra = shape.mtp_layers or 0
    moe_layers = parts.moe_layers - (extra if parts.moe_layers else 0)
    dense_layers = parts.dense_layers - (0 if parts.moe_layers else extra)
    common = (
        embedding * (1 if shape.tied else 2)
        + (moe_layers + dense_layers) * (parts.attention + 2 * h)
        + h
        + dense_layers * parts.dense_mlp
    )
    if not moe_layers:
        return ParamCount(common, common, embedding)
    experts, topk = shape.need("experts"), shape.need("topk")
    common += moe_layers * (parts.shared + experts * h)
    return ParamCount(
        common + moe_layers * experts * parts.expert,
        common + moe_layers * topk * parts.expert,
        embedding,
    )
