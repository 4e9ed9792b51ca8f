"""The same model with torch's autograd, and the same all-reduce over gloo.

Imported only where torch is installed. On the processor and with one thread, like the numpy
backend, so that both show the same job.
"""

from __future__ import annotations

import datetime
import math
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional

from steptax.app.demo.collective import CollectiveTimeoutError, Mesh
from steptax.app.demo.model import NORM_EPSILON, Array, Shape, Tokens

#: Least time in which the ranks that are left tell each other that they are there.
_NAMING_S = 5.0


class TorchModel:
    """The model of `steptax.app.demo.model`, computed and differentiated by torch."""

    def __init__(self, shape: Shape) -> None:
        torch.set_num_threads(1)
        self.shape = shape

    def loss_and_gradient(
        self, flat: Array, inputs: Tokens, targets: Tokens, lengths: list[int]
    ) -> tuple[float, Array]:
        """See `steptax.app.demo.model.Model.loss_and_gradient`."""
        leaf = torch.from_numpy(np.array(flat)).requires_grad_()
        sizes = [math.prod(shape) for _, shape in self.shape.tensors]
        p = {
            name: part.view(shape)
            for (name, shape), part in zip(self.shape.tensors, leaf.split(sizes), strict=True)
        }
        places = torch.cat([torch.arange(n) for n in lengths])
        x = p["embed"][torch.from_numpy(inputs)] + p["position"][places]
        qkv = _norm(x) @ p["qkv"]
        mixed = torch.cat([self._attend(part) for part in qkv.split(lengths)])
        y = x + mixed @ p["attn_out"]
        z = y + torch.relu(_norm(y) @ p["ffn_in"]) @ p["ffn_out"]
        loss = functional.cross_entropy(_norm(z) @ p["unembed"], torch.from_numpy(targets))
        (gradient,) = torch.autograd.grad(loss, leaf)
        return float(loss.detach()), gradient.numpy()

    def _attend(self, packed: torch.Tensor) -> torch.Tensor:
        n = len(packed)
        q, k, v = packed.view(n, 3, self.shape.heads, -1).permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(0, 1).reshape(n, -1)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + NORM_EPSILON)


class GlooMean:
    """All-reduce over gloo, entered once all ranks have met.

    Gloo raises as soon as a peer's connection breaks. Meeting first keeps the behaviour of the
    accelerator libraries, which wait until their timeout, and lets the error name who is missing.
    """

    def __init__(self, mesh: Mesh, store_path: str, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._mesh = mesh
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store_path}",
            rank=mesh.rank,
            world_size=mesh.size,
            timeout=datetime.timedelta(seconds=timeout_s),
        )

    def mean(self, vector: Array) -> Array:
        """See `steptax.app.demo.collective.AllReduce.mean`."""
        self._mesh.meet(self.timeout_s)
        begin_s = time.monotonic()
        total = torch.from_numpy(np.array(vector))
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            # A peer was lost on the way: it will not come to the next meeting, which names it.
            # Neighbours of the lost rank learn of it at once, the others by gloo's own timeout:
            # what is left of it is all that the meeting may take.
            left_s = self.timeout_s - (time.monotonic() - begin_s)
            try:
                self._mesh.meet(max(_NAMING_S, left_s))
            except CollectiveTimeoutError as lost:
                raise CollectiveTimeoutError(self.timeout_s, lost.missing) from error
            raise
        result: Array = (total / self._mesh.size).numpy()
        return result
