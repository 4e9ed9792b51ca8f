"""What the flags of ``mfu`` say of a model and of a peak, as the functions of MFU take it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.device_table import canonical_dtype
from steptax.app.compute.mfu.flops import effective_seq_len
from steptax.app.compute.mfu.model_shape import Mla, ModelShape
from steptax.app.compute.mfu.peaks import Basis, Peak, given_peak, mixed_peak, peak, peak_at_clock
from steptax.app.errors import UserError

ATTENTION = ("causal", "full")
MLP = ("swiglu", "plain")
EMBEDDINGS = ("apart", "tied")

#: Flags of latent attention that all go together; the rank of the queries is optional beside them.
_MLA = ("kv_lora_rank", "qk_head_dim", "qk_rope_head_dim", "v_head_dim")
#: Flags that mean something of a mixture of experts only.
_OF_EXPERTS = ("topk", "moe_ffn", "shared_ffn", "moe_layers")
#: Fields of a model by the flag that sets them, where the names differ.
_FLAGS = {"seq_len": "seq_len_tokens", "swiglu": "mlp", "params_active": "params"}
_NOT_KNOWN = re.compile(r"^(\w+)(?: size)? of the model is not known")


def _count(name: str, help_text: str, minimum: int = 1) -> Parameter:
    return Parameter(name, "", help_text, Kind.INT, minimum=minimum)


SHAPE_PARAMETERS = (
    Parameter("params", "", "parameters that a token meets, N; counted if left out", above=0),
    _count("layers", "layers"),
    _count("hidden", "hidden size"),
    _count("heads", "attention heads"),
    _count("kv_heads", "key/value heads: fewer than heads share them (GQA)"),
    _count("head_dim", "size of a head; hidden / heads if left out"),
    _count("ffn", "feed-forward size"),
    _count("vocab", "padded vocabulary"),
    Parameter("seq_len_tokens", "tokens", "sequence length", Kind.INT, minimum=1),
    Parameter(
        "packed_lengths_tokens",
        "tokens",
        "lengths of packed sequences, used instead of one length: attention costs their squares",
        Kind.REALS,
        minimum=1,
    ),
    Parameter("attention", "", "attention: causal is half", Kind.CHOICE, choices=ATTENTION),
    Parameter("mlp", "", "feed-forward block", Kind.CHOICE, choices=MLP),
    Parameter(
        "embeddings", "", "input embedding and output layer", Kind.CHOICE, choices=EMBEDDINGS
    ),
    _count("experts", "experts of a layer: a mixture"),
    _count("topk", "experts that a token meets"),
    _count("moe_ffn", "feed-forward size of one expert; that of ffn if left out"),
    _count("shared_ffn", "feed-forward size of all shared experts together", 0),
    _count("moe_layers", "layers that are mixtures; all if left out", 0),
    _count("mtp_layers", "layers of multi-token prediction", 0),
    _count("q_lora_rank", "rank of the queries in latent attention; none if left out"),
    _count("kv_lora_rank", "rank of keys and values: latent attention (MLA)"),
    _count("qk_head_dim", "query/key size of a head in latent attention, without rotary part"),
    _count("qk_rope_head_dim", "rotary part of that size"),
    _count("v_head_dim", "value size of a head in latent attention"),
)

PEAK_PARAMETERS = (
    Parameter("device", "", "device, as it reports itself", Kind.TEXT),
    Parameter("dtype", "", "precision of the matrix products, e.g. bf16", Kind.TEXT),
    Parameter("peak_tflops", "TFLOP/s", "peak of one device, instead of the table's", above=0),
    Parameter("peak_basis", "", "what that peak counts", Kind.CHOICE, choices=tuple(Basis)),
    Parameter(
        "fp8_ratio",
        "ratio",
        "share of the FLOPs done in FP8, the rest in dtype; each against its own peak",
        minimum=0,
        maximum=1,
    ),
    Parameter("fp8_peak_tflops", "TFLOP/s", "FP8 peak, instead of the table's", above=0),
    Parameter("clock_mhz", "MHz", "clock that the device runs at, instead of the peak's", above=0),
)


def model_shape(given: Mapping[str, int | float | str | None]) -> ModelShape:
    """The model that the values of ``SHAPE_PARAMETERS`` describe, by the names of the flags.

    Raises:
        UserError: a flag of a mixture without experts, latent attention that is not complete, or
            values that contradict each other; ``where`` is the flag.
    """
    whole = {name: None if v is None else int(v) for name, v in given.items() if _is_count(v)}
    for name in _OF_EXPERTS:
        if whole.get(name) is not None and whole.get("experts") is None:
            raise UserError(f"expected experts beside {name}", where="experts")
    mlp = given.get("mlp")
    try:
        return ModelShape(
            layers=whole.get("layers"),
            hidden=whole.get("hidden"),
            ffn=whole.get("ffn"),
            heads=whole.get("heads"),
            kv_heads=whole.get("kv_heads"),
            head_dim=whole.get("head_dim"),
            vocab=whole.get("vocab"),
            seq_len=whole.get("seq_len_tokens"),
            swiglu=None if mlp is None else mlp == "swiglu",
            causal=given.get("attention") != "full",
            experts=whole.get("experts"),
            topk=whole.get("topk"),
            moe_ffn=whole.get("moe_ffn"),
            shared_ffn=whole.get("shared_ffn"),
            moe_layers=whole.get("moe_layers"),
            tied=given.get("embeddings") == "tied",
            mtp_layers=whole.get("mtp_layers"),
            mla=_mla(whole),
            params_active=whole.get("params"),
        )
    except UserError as fault:
        raise UserError(fault.message, where=_flag(fault.where), hint=fault.hint) from None


def _is_count(value: int | float | str | None) -> bool:
    return value is None or not isinstance(value, str)


def _flag(field: str | None) -> str | None:
    name = (field or "").removeprefix("mla.")
    return _FLAGS.get(name, name) or None


def _mla(whole: Mapping[str, int | None]) -> Mla | None:
    sizes = {name: whole.get(name) for name in _MLA}
    if whole.get("q_lora_rank") is None and all(size is None for size in sizes.values()):
        return None
    absent = [name for name, size in sizes.items() if size is None]
    if absent:
        raise UserError("expected for latent attention: " + ", ".join(absent), where=absent[0])
    kv, qk, rope, value = (size or 0 for size in sizes.values())
    return Mla(kv, qk, rope, value, whole.get("q_lora_rank"))


def context(seq_len: int | None, packed: Sequence[float] | None) -> Measure:
    """Context of the average token: the sequence length, of packed ones sum of squares / sum."""
    if packed is not None:
        both = ("the packed lengths are used, not seq_len_tokens",) if seq_len is not None else ()
        return Measure(effective_seq_len(packed), "tokens", warnings=both)
    if seq_len is not None:
        return Measure(float(seq_len), "tokens")
    return Measure.missing("tokens", "no sequence length was given")


def in_flags(measure: Measure) -> Measure:
    """The same, with its reason in the words of the flags."""
    found = _NOT_KNOWN.match(measure.reason or "")
    if measure.value is not None or found is None:
        return measure
    return dataclasses.replace(measure, reason=f"{_flag(found[1])} was not given")


def peaks(
    *,
    device: str | None,
    dtype: str | None,
    peak_tflops: float | None,
    peak_basis: str | None,
    fp8_ratio: float | None,
    fp8_peak_tflops: float | None,
    clock_mhz: float | None,
) -> tuple[Peak, tuple[Peak, ...]]:
    """The peak to hold the FLOPs against, and those of the precisions that it is made of.

    Raises:
        UserError: neither a device nor a peak, a peak that does not say what it counts, or flags
            that do not go together.
    """
    main = _one(device, dtype, peak_tflops, peak_basis, clock_mhz, "peak_tflops")
    if fp8_ratio is None:
        if fp8_peak_tflops is not None:
            raise UserError("expected fp8_ratio beside an FP8 peak", where="fp8_ratio")
        return main, (main,)
    if canonical_dtype(dtype) == "fp8":
        raise UserError("expected the precision of the rest, not fp8", where="dtype")
    if peak_tflops is not None and fp8_peak_tflops is None:
        raise UserError("expected both peaks, or a device alone", where="fp8_peak_tflops")
    fast = _one(device, "fp8", fp8_peak_tflops, peak_basis, clock_mhz, "fp8_peak_tflops")
    return mixed_peak(((main, 1 - fp8_ratio), (fast, fp8_ratio))), (main, fast)


def _one(
    device: str | None,
    dtype: str | None,
    tflops: float | None,
    basis: str | None,
    clock_mhz: float | None,
    flag: str,
) -> Peak:
    if tflops is not None:
        if basis is None:
            raise UserError(
                "expected dense or sparse beside a peak: they differ by a factor of two",
                where="peak_basis",
            )
        if clock_mhz is not None:
            raise UserError(
                f"expected a clock or {flag}, not both: a clock scales the table's peak",
                where="clock_mhz",
            )
        return given_peak(tflops, basis, dtype, device)
    if device is None:
        raise UserError("expected a device, or peak_tflops with peak_basis", where="device")
    return peak(device, dtype) if clock_mhz is None else peak_at_clock(device, dtype, clock_mhz)
