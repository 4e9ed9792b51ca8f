"""Values as Slurm writes them: durations, moments, states, devices and job ids.

See the manual of sacct (https://slurm.schedmd.com/sacct.html).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

#: Words for "nothing is known" or "no limit".
NOTHING = frozenset(
    ("", "none", "unknown", "n/a", "invalid", "unlimited", "partition_limit", "null", "(null)")
)
_FAR_US = 2**53
#: The first day of Unix time, in any zone, is how old versions write that there is no moment.
_NEVER_US = 2 * 86_400_000_000
#: Names of slices of a device: 3g.20gb, also 1g.10gb+me.
_SLICE = re.compile(r"\d+g\.\d+gb.*")
_DURATION = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,4}):(?P<seconds>\d{1,2})"
    r"(?:\.(?P<part>\d{1,9}))?"
)
_EPOCH = re.compile(r"\d{1,11}")
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(Z|[+-]\d\d:?\d\d)?")
_JOB = re.compile(
    r"(?P<base>\d{1,18}(?:_(?:\d{1,18}|\[[^\]|]*\]))?)(?:\+(?P<part>\d{1,6}))?"
    r"(?:\.(?P<step>[\w+-]{1,64}))?"
)
_FAMILIES = {
    "completed": ("COMPLETED",),
    "failed": (
        "FAILED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
    ),
    "cancelled": ("CANCELLED", "PREEMPTED", "REVOKED"),
    "timeout": ("TIMEOUT", "DEADLINE"),
    "running": (
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
    ),
    "pending": (
        "PENDING",
        "CONFIGURING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    ),
}
#: Our state by Slurm's, long and in the two letters of the short form.
FAMILY_OF = {word: family for family, words in _FAMILIES.items() for word in words}
_SHORT = {
    "CD": "COMPLETED",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "BF": "BOOT_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "CA": "CANCELLED",
    "PR": "PREEMPTED",
    "TO": "TIMEOUT",
    "DL": "DEADLINE",
    "R": "RUNNING",
    "CG": "COMPLETING",
    "PD": "PENDING",
    "RQ": "REQUEUED",
    "S": "SUSPENDED",
}


@dataclass(frozen=True)
class JobName:
    """A JobID taken apart: ``base`` with its array task, part of a heterogeneous job, step."""

    base: str
    part: int | None
    step: str | None


@dataclass(frozen=True)
class Gpus:
    """Devices in a list of trackable resources; ``count`` None where it says nothing of any.

    ``sliced`` is True where some are MIG slices: then it does not say how much of a device is held.
    """

    count: int | None
    models: tuple[str, ...] = ()
    sliced: bool = False


def job_name(text: str) -> JobName | None:
    """``1021_3+1.batch`` taken apart; None where it is no whole JobID."""
    found = _JOB.fullmatch(text.strip())
    if found is None:
        return None
    part = found["part"]
    return JobName(found["base"], None if part is None else int(part), found["step"])


def is_nothing(text: str) -> bool:
    """Whether Slurm says that there is no value."""
    return text.strip().lower() in NOTHING


def duration_us(text: str) -> int | None:
    """``[D-]HH:MM:SS``, ``MM:SS.mmm`` or whole seconds in microseconds; None where it is none."""
    clean = text.strip()
    if _EPOCH.fullmatch(clean):
        return int(clean) * 1_000_000
    found = _DURATION.fullmatch(clean)
    if found is None:
        return None
    days, hours = int(found["days"] or 0), int(found["hours"] or 0)
    seconds = ((days * 24 + hours) * 60 + int(found["minutes"])) * 60 + int(found["seconds"])
    us = seconds * 1_000_000 + int((found["part"] or "0")[:6].ljust(6, "0"))
    return us if us < _FAR_US else None


def moments_us(text: str, zone: tzinfo) -> tuple[int, ...] | None:
    """A moment in microseconds UTC; two where local clocks went through it twice.

    From ISO text, with an offset or in ``zone``, or seconds since 1970. Empty where Slurm says
    that there is none; None where it is no moment.
    """
    clean = text.strip()
    if is_nothing(clean) or clean == "0":
        return ()
    if _EPOCH.fullmatch(clean):
        return (int(clean) * 1_000_000,)
    found = _MOMENT.fullmatch(clean)
    if found is None:
        return None
    try:
        if found[7]:
            us = {_us(datetime.fromisoformat(clean))}
        else:
            local = datetime.fromisoformat(clean).replace(tzinfo=zone)
            us = {_us(local.replace(fold=fold)) for fold in (0, 1)}
    except (ValueError, OverflowError):
        return None
    return tuple(sorted(us)) if min(us) >= _NEVER_US else ()


def state_of(text: str) -> tuple[str | None, str]:
    """Our state and Slurm's word: ``CANCELLED by 1001`` is cancelled; None for a strange word."""
    words = text.split()
    word = words[0].upper().rstrip("+") if words else ""
    word = _SHORT.get(word, word)
    if word not in FAMILY_OF:  # a column that is too narrow cuts it: CANCELLED+, OUT_OF_ME+
        longer = [known for known in FAMILY_OF if known.startswith(word)]
        word = longer[0] if len(word) > 3 and len(longer) == 1 else word
    return FAMILY_OF.get(word), word


def gpus_in(tres: str) -> Gpus:
    """Devices in ``billing=8,gres/gpu=8,gres/gpu:h100=8,mem=1T,node=1``.

    The plain total holds; typed entries repeat it, and are summed only where there is none.
    ``gres/gpumem`` and ``gres/gpuutil`` are no devices, and a slice of one is not a whole one.
    """
    total: int | None = None
    typed: dict[str, int] = {}
    for item in tres.split(","):
        name, sign, value = item.strip().partition("=")
        key, _, model = name.lower().partition(":")
        if not sign or key != "gres/gpu" or not re.fullmatch(r"\d{1,9}", value.strip()):
            continue
        if model:
            typed[model] = typed.get(model, 0) + int(value)
        else:
            total = int(value)
    models = sorted(model for model, n in typed.items() if n)
    if any(_SLICE.fullmatch(model) for model in models):
        return Gpus(None, sliced=True)
    count = total if total is not None else sum(typed.values()) if typed else None
    return Gpus(count, tuple(models))


def gpus_of_gres(gres: str, nodes: int | None) -> Gpus:
    """Devices in the AllocGRES of Slurm before 20.11, ``gpu:v100:4``, which counts one node."""
    count: int | None = None
    models = set()
    for item in gres.split(","):
        found = re.fullmatch(
            r"(?:gres:)?gpu(?::(?P<model>[A-Za-z][\w-]*))?(?::(?P<n>\d{1,6}))?", item
        )
        if found:
            count = (count or 0) + int(found["n"] or 1)
            models |= {found["model"]} if found["model"] else set()
    if count is not None and nodes:
        count *= nodes
    return Gpus(count, tuple(sorted(models)))


def _us(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
