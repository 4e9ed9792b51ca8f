"""What the fields of a trace event mean: kinds of events, times, lanes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from steptax.connectors.kineto import names

#: A name is kept up to here; templates of C++ kernels run to kilobytes.
NAME_CHARACTERS = 240
#: The largest time that fits: 285 years of nanoseconds.
FAR_US = 2.0**63 / 1000 - 1e6


class Kind(IntEnum):
    """What an event is to us."""

    STEP = 0
    """The host's annotation of a profiled step; ``number`` is the step."""
    KERNEL = 1
    """Computing on the device."""
    COMM = 2
    """Communication on the device."""
    H2D = 3
    """Copy from host to device."""
    COPY = 4
    """Any other copy on the device."""
    MEMSET = 5
    LAUNCH = 6
    """The host's call that launched device work; ``number`` is the correlation."""
    HOST_COMM = 7
    """Communication that the host runs itself (gloo)."""
    INPUT = 8
    """The host waits for data."""
    HOST = 9
    """A host operation that computes."""
    REGION = 10
    """A host annotation around other things."""
    QUEUED = 11
    """The host hands communication over to a device or a thread; no duration of it."""


#: Categories of Kineto, in lower case; those before PyTorch 1.12 have other names.
CATEGORIES = {
    "kernel": "kernel",
    **dict.fromkeys(("gpu_memcpy", "memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "memset"), "memset"),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "hip_runtime"), "runtime"),
    **dict.fromkeys(("xpu_runtime", "privateuse1_runtime"), "runtime"),
    **dict.fromkeys(("cpu_op", "operator"), "operator"),
    "user_annotation": "annotation",
}
DEVICE = (Kind.KERNEL, Kind.COMM, Kind.H2D, Kind.COPY, Kind.MEMSET)

#: What is kept of an event; absent are ``NO_NUMBER`` as number, and -1 as device, bytes or code.
#: The codes of name, op, group and dtype index the texts of the table.
EVENT = np.dtype(
    [
        ("start_ns", np.int64),
        ("duration_ns", np.int64),
        ("lane", np.int64),
        ("number", np.int64),
        ("bytes", np.int64),
        ("row", np.int64),
        ("device", np.int32),
        ("name", np.int32),
        ("op", np.int32),
        ("group", np.int32),
        ("dtype", np.int32),
        ("kind", np.int8),
    ],
    align=True,
)
NO_NUMBER = -(2**63)


def operator(name: str) -> tuple[Kind, str | None, int | None]:
    """Kind, communication and step of a host operation."""
    step = names.profiler_step(name)  # Before PyTorch 1.13 the steps were operators.
    if step is not None:
        return Kind.STEP, None, step
    if names.is_input(name):
        return Kind.INPUT, None, None
    return (Kind.QUEUED if names.is_host_communication(name) else Kind.HOST), None, None


def annotation(name: str, args: Mapping[str, Any]) -> tuple[Kind, str | None, int | None]:
    """Kind, communication and step of a host annotation."""
    step = names.profiler_step(name)
    if step is not None:
        return Kind.STEP, None, step
    if name.startswith(("gloo:", "mpi:")):
        return Kind.HOST_COMM, names.operation(name, args), None
    if names.is_host_communication(name):
        return Kind.QUEUED, None, None
    return (Kind.INPUT if names.is_input(name) else Kind.REGION), None, None


def copy_kind(name: str) -> Kind | None:
    """Which copy a device's is, by its name alone; None where that does not say."""
    plain = name.lower().replace(" ", "")
    if "htod" in plain or "host->device" in plain:
        return Kind.H2D
    told = ("dtoh", "dtod", "ptop", "device->host", "device->device")
    return Kind.COPY if any(mark in plain for mark in told) else None


def nanoseconds(value: object) -> int | None:
    """Microseconds, of which there may be fractions, as whole nanoseconds."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or abs(value) > FAR_US:
        return None
    if isinstance(value, int):
        return value * 1000
    # Apart, because the product of a time since 1970 has no room left for its fraction.
    floor = math.floor(value)
    return floor * 1000 + round((value - floor) * 1000)


def lane(value: object) -> int:
    """Number of a stream or a thread; -1 where it has none."""
    if type(value) is int and abs(value) < 2**62:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 19 else -1
