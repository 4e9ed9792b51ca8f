"""Names of operations and element types, as communication libraries and PyTorch write them."""

from __future__ import annotations

import re

#: Name without prefix, underscores and capitals -> the operation.
_OPS = {
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "allreducesparse": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "allgatherv": "all_gather_v",
    "allgathercoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "reducescattercoalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallsingle": "all_to_all",
    "alltoallv": "all_to_all_v",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "allreducebarrier": "barrier",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
    "coalesced": "coalesced",
}
_PEERS = re.compile(r"(?P<what>send|recv) (?P<me>\d+)\s*(?:->|<-)\s*(?P<peer>\d+)", re.IGNORECASE)

#: Bytes of an element, by its name in lower case.
_ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8", "float8_e4m3", "float8_e5m2"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "fp8_e4m3"), 1),
    **dict.fromkeys(("fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat"), 8),
    "complexdouble": 16,
}


def operation(name: str) -> str:
    """The operation that a name means, e.g. ``nccl:_all_gather_base`` -> ``all_gather``.

    A name that is not known stays as it is, in lower case and without its library.
    """
    bare = name.strip().rpartition(":")[2].strip()
    peers = _PEERS.fullmatch(bare)
    if peers:
        return send_recv(peers["what"].lower(), int(peers["me"]), int(peers["peer"]))
    plain = re.sub(r"[\s_-]", "", bare.lower()).removeprefix("nccl")
    return _OPS.get(plain, bare.lower())


def send_recv(what: str, me: int, peer: int) -> str:
    """The name of one side of a transfer: ``send 0->3``, ``recv 3<-0``."""
    return f"{what} {me}{'->' if what == 'send' else '<-'}{peer}"


def element_bytes(dtype: str) -> int | None:
    """Bytes of an element; None for a type that is not known."""
    return _ELEMENT_BYTES.get(dtype.strip().lower().removeprefix("torch.").removeprefix("nccl"))
