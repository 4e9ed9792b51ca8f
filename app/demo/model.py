"""A one-block causal transformer over bytes, with its backward pass written out.

The job of the demo trains this model. Sequences of different lengths are packed without padding:
everything but attention works on the packed tokens, attention on one sequence at a time, so that
its cost grows with the sum of squared lengths, as in a real packed run.

Blocks: pre-normalised attention and feed-forward with residuals (Vaswani et al., 2017; the
root-mean-square norm without gain is Zhang & Sennrich, 2019). The tests check every gradient
against central differences in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Tokens = npt.NDArray[np.intp]

NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; ``context`` is the longest sequence, in tokens."""

    context: int
    vocab: int = 256
    hidden: int = 32
    heads: int = 2
    ffn: int = 128

    @property
    def tensors(self) -> tuple[tuple[str, tuple[int, int]], ...]:
        """Names and shapes of the parameters, in the order of the flat vector."""
        d = self.hidden
        return (
            ("embed", (self.vocab, d)),
            ("position", (self.context, d)),
            ("qkv", (d, 3 * d)),
            ("attn_out", (d, d)),
            ("ffn_in", (d, self.ffn)),
            ("ffn_out", (self.ffn, d)),
            ("unembed", (d, self.vocab)),
        )

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    def views(self, flat: Array) -> dict[str, Array]:
        """Each parameter by name, as a view of the flat vector."""
        out: dict[str, Array] = {}
        at = 0
        for name, shape in self.tensors:
            out[name] = flat[at : at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)
        return out

    def initial(self, seed: int) -> Array:
        """Starting parameters, flat float32, the same on every rank for the same seed.

        Weights are normal with variance 1/fan-in; the two that write to the residual stream start
        at half of that, and the tables of vectors small.
        """
        rng = np.random.default_rng(seed)
        flat = rng.standard_normal(self.size).astype(np.float32)
        scale = {"embed": 0.5, "position": 0.1, "attn_out": 0.5, "ffn_out": 0.5}
        for name, tensor in self.views(flat).items():
            fan_in = 1 if name in ("embed", "position") else tensor.shape[0]
            tensor *= scale.get(name, 1.0) / math.sqrt(fan_in)
        return flat


class Model(Protocol):
    """What a training step needs of a model, whatever computes it."""

    def loss_and_gradient(
        self, flat: Array, inputs: Tokens, targets: Tokens, lengths: list[int]
    ) -> tuple[float, Array]:
        """Mean cross-entropy in nats per token, and its gradient as one flat vector.

        ``inputs`` and ``targets`` hold sum(lengths) tokens, sequence after sequence.
        """


class NumpyModel:
    """The model in numpy, in the precision of the parameters that it is given."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        later = np.triu(np.ones((shape.context, shape.context), dtype=np.bool_), 1)
        # Added to the scores: a token does not see later ones. float32 holds both values exactly.
        self._causal = np.where(later, np.float32(-np.inf), np.float32(0))

    def loss_and_gradient(
        self, flat: Array, inputs: Tokens, targets: Tokens, lengths: list[int]
    ) -> tuple[float, Array]:
        """See `Model.loss_and_gradient`."""
        p = self.shape.views(flat)
        gradient = np.zeros_like(flat)
        g = self.shape.views(gradient)
        ends = np.cumsum(lengths)
        spans = [slice(end - n, end) for end, n in zip(ends.tolist(), lengths, strict=True)]

        x = p["embed"][inputs]
        for span, n in zip(spans, lengths, strict=True):
            x[span] += p["position"][:n]
        a, a_scale = _norm(x)
        qkv = a @ p["qkv"]
        mixed = np.empty_like(x)
        weights = [self._attend(qkv[span], mixed[span]) for span in spans]
        y = x + mixed @ p["attn_out"]
        b, b_scale = _norm(y)
        inner = np.maximum(b @ p["ffn_in"], 0)
        z = y + inner @ p["ffn_out"]
        c, c_scale = _norm(z)
        loss, d_logits = _cross_entropy(c @ p["unembed"], targets)

        g["unembed"][:] = c.T @ d_logits
        d_z = _norm_back(d_logits @ p["unembed"].T, c, c_scale)
        g["ffn_out"][:] = inner.T @ d_z
        d_inner = d_z @ p["ffn_out"].T
        d_inner *= inner > 0
        g["ffn_in"][:] = b.T @ d_inner
        d_y = d_z + _norm_back(d_inner @ p["ffn_in"].T, b, b_scale)
        g["attn_out"][:] = mixed.T @ d_y
        d_mixed = d_y @ p["attn_out"].T
        d_qkv = np.empty_like(qkv)
        for span, weight in zip(spans, weights, strict=True):
            self._attend_back(qkv[span], weight, d_mixed[span], d_qkv[span])
        g["qkv"][:] = a.T @ d_qkv
        d_x = d_y + _norm_back(d_qkv @ p["qkv"].T, a, a_scale)
        for span, n in zip(spans, lengths, strict=True):
            g["position"][:n] += d_x[span]
        _add_by_token(g["embed"], inputs, d_x)
        return loss, gradient

    def _heads(self, packed: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values of one sequence (s, 3d), each (heads, s, d/heads)."""
        split = packed.reshape(len(packed), 3, self.shape.heads, -1).transpose(1, 2, 0, 3)
        return split[0], split[1], split[2]

    def _attend(self, packed: Array, out: Array) -> Array:
        """Causal softmax attention of one sequence into ``out`` (s, d); returns its weights."""
        q, k, v = self._heads(packed)
        n = len(packed)
        scores = (q * q.dtype.type(1 / math.sqrt(q.shape[-1]))) @ k.transpose(0, 2, 1)
        scores += self._causal[:n, :n]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        out[:] = (scores @ v).transpose(1, 0, 2).reshape(n, -1)
        return scores

    def _attend_back(self, packed: Array, weight: Array, d_out: Array, d_packed: Array) -> None:
        """Backward of `_attend` into ``d_packed`` (s, 3d)."""
        q, k, v = self._heads(packed)
        n, heads = len(packed), self.shape.heads
        d_mixed = d_out.reshape(n, heads, -1).transpose(1, 0, 2)
        d_v = weight.transpose(0, 2, 1) @ d_mixed
        d_scores = d_mixed @ v.transpose(0, 2, 1)
        d_scores -= (d_scores * weight).sum(axis=-1, keepdims=True)
        d_scores *= weight
        d_scores *= d_scores.dtype.type(1 / math.sqrt(q.shape[-1]))
        parts = d_packed.reshape(n, 3, heads, -1)
        parts[:, 0] = (d_scores @ k).transpose(1, 0, 2)
        parts[:, 1] = (d_scores.transpose(0, 2, 1) @ q).transpose(1, 0, 2)
        parts[:, 2] = d_v.transpose(1, 0, 2)


def _norm(x: Array) -> tuple[Array, Array]:
    """Root-mean-square norm of each row, and the scale that was applied."""
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(NORM_EPSILON))
    return x * scale, scale


def _norm_back(d_out: Array, out: Array, scale: Array) -> Array:
    """Backward of `_norm`: scale * (d - out * mean(d * out))."""
    result: Array = scale * (d_out - out * np.mean(d_out * out, axis=-1, keepdims=True))
    return result


def _cross_entropy(logits: Array, targets: Tokens) -> tuple[float, Array]:
    """Mean loss in nats per token, and its gradient with respect to the logits."""
    rows = np.arange(len(targets))
    logits -= logits.max(axis=-1, keepdims=True)
    picked = logits[rows, targets]
    np.exp(logits, out=logits)
    total = logits.sum(axis=-1, keepdims=True)
    loss = float(np.mean(np.log(total[:, 0]) - picked))
    logits /= total
    logits[rows, targets] -= 1
    logits /= logits.dtype.type(len(targets))
    return loss, logits


def _add_by_token(table: Array, tokens: Tokens, rows: Array) -> None:
    """Add each row to its token's row of ``table``, without the slow unbuffered ``np.add.at``."""
    order = np.argsort(tokens, kind="stable")
    ordered = tokens[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    table[ordered[first]] += np.add.reduceat(rows[order], first, axis=0)
