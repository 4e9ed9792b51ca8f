"""Names of operation types, and what each means to the dependency model.

The set is that of a Megatron-style trainer as recorded by Lin et al., "Understanding Stragglers in
Large Model Training Using What-if Analysis", OSDI'25. A trace may lack any of them but the two
compute types.
"""

from __future__ import annotations

from typing import Final

FORWARD: Final = "forward-compute"
BACKWARD: Final = "backward-compute"
FORWARD_SEND: Final = "forward-send"
FORWARD_RECV: Final = "forward-recv"
BACKWARD_SEND: Final = "backward-send"
BACKWARD_RECV: Final = "backward-recv"
ALL_GATHER: Final = "params-all-gather"
REDUCE_SCATTER: Final = "grads-reduce-scatter"
SEPARATE_ALL_REDUCE: Final = "separate-grads-all-reduce"
LAYERNORM_ALL_REDUCE: Final = "layernorm-grads-all-reduce"
EMBEDDING_ALL_REDUCE: Final = "embedding-grads-all-reduce"
CLIP: Final = "optimizer-clip-main-grad"
OPTIMIZER: Final = "optimizer"
GC: Final = "gc"

COMPUTE: Final = (FORWARD, BACKWARD)
P2P: Final = (FORWARD_SEND, FORWARD_RECV, BACKWARD_SEND, BACKWARD_RECV)
#: Collectives over data-parallel ranks that wait for every one of them.
DP_COLLECTIVES: Final = (ALL_GATHER, REDUCE_SCATTER, SEPARATE_ALL_REDUCE)
#: What follows the last micro-batch.
TAIL: Final = (
    GC,
    LAYERNORM_ALL_REDUCE,
    EMBEDDING_ALL_REDUCE,
    REDUCE_SCATTER,
    SEPARATE_ALL_REDUCE,
    CLIP,
    OPTIMIZER,
)
KNOWN: Final = frozenset((*COMPUTE, *P2P, ALL_GATHER, *TAIL))
#: Types that move data; the rest runs on the device alone.
NETWORK: Final = frozenset((*P2P, *DP_COLLECTIVES, LAYERNORM_ALL_REDUCE, EMBEDDING_ALL_REDUCE))
#: Types whose ideal is the mean; that of all others is the median, as one flapping link would
#: pull a mean (Lin et al., OSDI'25, section 3.2).
MEAN_IDEAL: Final = frozenset((FORWARD, BACKWARD, GC, OPTIMIZER))

#: Group that the first operation of a step forms where launch delays are taken apart.
FIRST_OP: Final = "first-op"
_MERGED: Final = {
    FORWARD_SEND: "forward-pp-comm",
    FORWARD_RECV: "forward-pp-comm",
    BACKWARD_SEND: "backward-pp-comm",
    BACKWARD_RECV: "backward-pp-comm",
}


def canonical(name: str) -> str:
    """``Forward_Compute`` as ``forward-compute``."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def reported(op_type: str) -> str:
    """The name under which ``op_type`` is reported: sends and receives are one."""
    return _MERGED.get(op_type, op_type)
