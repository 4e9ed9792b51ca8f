"""Closed forms of the literature for a plain GPT: kept to check against, and for quick estimates.

They assume multi-head attention, a feed-forward block of 4 * h without a gate, full (not causal)
attention and tied embeddings. B: sequences of a batch, s: tokens each, l: layers, h: hidden size,
V: vocabulary.
"""

from __future__ import annotations

from steptax.app.compute.stats.positive import require_positive

SECONDS_PER_DAY = 86_400


def narayanan_params(layers: int, hidden: int, vocab: int, seq_len: int) -> float:
    """Parameters: 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)).

    Narayanan et al., SC'21, equation 2; with biases, norms and learned positions.
    """
    require_positive(layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len)
    rest = 13 / (12 * hidden) + (vocab + seq_len) / (12 * layers * hidden)
    return 12 * layers * hidden**2 * (1 + rest)


def narayanan_flops(batch: float, seq_len: int, layers: int, hidden: int, vocab: int) -> float:
    """Executed FLOPs of a batch: 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)).

    Narayanan et al., SC'21, equation 3. It includes recomputing all layers, so what it gives by
    the peak is HFU, not MFU.
    """
    require_positive(batch=batch, seq_len=seq_len, layers=layers, hidden=hidden, vocab=vocab)
    rest = seq_len / (6 * hidden) + vocab / (16 * layers * hidden)
    return 96 * batch * seq_len * layers * hidden**2 * (1 + rest)


def korthikanti_model_flops(
    batch: float, seq_len: int, layers: int, hidden: int, vocab: int
) -> float:
    """Model FLOPs of a batch: 72 B l s h^2 (1 + s / (6 h) + V / (12 h l)).

    Korthikanti et al. 2022, appendix A.
    """
    require_positive(batch=batch, seq_len=seq_len, layers=layers, hidden=hidden, vocab=vocab)
    rest = seq_len / (6 * hidden) + vocab / (12 * hidden * layers)
    return 72 * batch * layers * seq_len * hidden**2 * (1 + rest)


def korthikanti_hardware_flops(
    batch: float, seq_len: int, layers: int, hidden: int, vocab: int
) -> float:
    """Executed FLOPs with selective recomputation, as printed: s / (3 h) in place of s / (6 h).

    Korthikanti et al. 2022, appendix A. The attention core's forward is a third of its model
    FLOPs, so doing it once more gives 4/3 of the core; the printed form gives twice the core.
    ``flops.hardware_factor`` counts what is executed and is therefore lower.
    """
    require_positive(batch=batch, seq_len=seq_len, layers=layers, hidden=hidden, vocab=vocab)
    rest = seq_len / (3 * hidden) + vocab / (12 * hidden * layers)
    return 72 * batch * layers * seq_len * hidden**2 * (1 + rest)


def train_seconds(
    params: float, tokens: float, devices: int, tflops_per_device: float, *, recompute: bool
) -> float:
    """Time of a whole run: 8 T P / (n X) with full recomputation, 6 T P / (n X) without.

    Narayanan et al., SC'21, section 5.1; X is what a device achieves, in TFLOP/s.
    """
    require_positive(
        params=params, tokens=tokens, devices=devices, tflops_per_device=tflops_per_device
    )
    per_weight = 8 if recompute else 6
    return per_weight * tokens * params / (devices * tflops_per_device * 1e12)
