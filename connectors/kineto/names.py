"""What the names and arguments of trace events mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

#: Kernels of NCCL (ncclKernel_*, since 2.19 ncclDevKernel_*), RCCL, MSCCL, and those of
#: PyTorch's symmetric memory and of vLLM that communicate without NCCL.
_COMM = re.compile(
    r"(?:nccl|rccl|msccl)\w*kernel|nccldev|onerank(?:reduce|all)|cross_device_reduce|"
    r"multimem_(?:all|one|two)\w*|(?:one|two)_shot_all_reduce|nvshmem|deep_ep::",
    re.IGNORECASE,
)
_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")
_INPUT = re.compile(r"dataloader|data_load(?:er|ing)?\b|load_batch|wait_for_batch", re.IGNORECASE)
#: Host operations that launch or await communication, and so are no computing.
_HOST_COMM = re.compile(
    r"c10d|record_param_comms|^(?:nccl|gloo|mpi|ucc|xccl):|wait_tensor", re.IGNORECASE
)
_OPS = (
    ("all-reduce", ("allreduce",)),
    ("all-gather", ("allgather",)),
    ("reduce-scatter", ("reducescatter",)),
    ("all-to-all", ("alltoall",)),
    ("broadcast", ("broadcast",)),
    ("barrier", ("barrier",)),
    ("send-recv", ("sendrecv", "send", "recv")),
    ("reduce", ("reduce",)),
    ("gather", ("gather",)),
    ("scatter", ("scatter",)),
)
#: Names whose meaning is remembered: a trace repeats some thousands of them without end.
_NAMES = 1 << 14
#: A communication of which the name does not say which.
COLLECTIVE = "collective"
#: Bytes of an element, by what PyTorch and Kineto call its type.
_ELEMENT_BYTES = {
    **dict.fromkeys(("double", "float64", "long", "longint", "int64", "complexfloat"), 8),
    **dict.fromkeys(("float", "float32", "int", "int32"), 4),
    **dict.fromkeys(("half", "float16", "bfloat16", "c10::half", "c10::bfloat16", "short"), 2),
    **dict.fromkeys(("int16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
}
#: Of these the whole result is the message, as nccl-tests counts it.
_BY_OUTPUT = {"all-gather"}


@lru_cache(_NAMES)
def is_communication(kernel: str) -> bool:
    """Whether a device kernel is one of a communication library."""
    return _COMM.search(kernel) is not None


@lru_cache(_NAMES)
def is_host_communication(name: str) -> bool:
    """Whether a host operation only launches or awaits communication."""
    return _HOST_COMM.search(name) is not None


@lru_cache(_NAMES)
def is_input(annotation: str) -> bool:
    """Whether a host annotation is waiting for data."""
    return _INPUT.search(annotation) is not None


@lru_cache(_NAMES)
def profiler_step(name: str) -> int | None:
    """N of ``ProfilerStep#N``."""
    found = _STEP.fullmatch(name.strip())
    return int(found[1]) if found and len(found[1]) < 19 else None


def operation(name: str, args: Mapping[str, Any]) -> str:
    """``all-reduce`` and so on; the argument holds before the name."""
    for text in (args.get("Collective name"), name):
        if not isinstance(text, str):
            continue
        plain = re.sub(r"[^a-z]", "", text.lower().partition("(")[0])
        for op, marks in _OPS:
            if any(mark in plain for mark in marks):
                return op
    return COLLECTIVE


def element_bytes(dtype: object) -> int | None:
    """Bytes of one element; None for a type that is not known."""
    return _ELEMENT_BYTES.get(dtype.strip().lower()) if isinstance(dtype, str) else None


def message_bytes(op: str, args: Mapping[str, Any]) -> int | None:
    """Size of the message: the whole result of an all-gather, the input of all others.

    From the element counts that NCCL kernels carry, else from the shape that host operations do.
    """
    size = element_bytes(args.get("dtype"))
    key = "Out msg nelems" if op in _BY_OUTPUT else "In msg nelems"
    count = args.get(key)
    if isinstance(count, int) and 0 <= count < 2**58 and size is not None:
        return count * size
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not (isinstance(dims, list) and isinstance(types, list) and dims and types):
        return None
    size = element_bytes(types[0])
    shape = dims[0]
    if size is None or not isinstance(shape, list):
        return None
    if not all(isinstance(n, int) and 0 <= n < 2**40 for n in shape):
        return None
    total = size
    for n in shape:
        total *= n
    return total if total < 2**62 else None


def group_label(args: Mapping[str, Any]) -> str | None:
    """``default_pg:0/2``: what a process group is for, its name, and how many ranks it has."""
    name, what = args.get("Process Group Name"), args.get("Process Group Description")
    size = args.get("Group size")
    if not isinstance(name, str) or not name:
        return None
    return label(name, what if isinstance(what, str) else "", size)


def label(name: str, what: str, size: object) -> str:
    """See ``group_label``."""
    told = f"{what}:{name}" if what and what != "undefined" else name
    return f"{told}/{size}" if isinstance(size, int) and size > 0 else told
