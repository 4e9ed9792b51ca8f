"""What a line of a training log says, before lines are put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from steptax.app.schema import Batch, Reject
from steptax.connectors.logs.lines import Line, number


class Kind(StrEnum):
    """What a mark is about."""

    STEP = "step"
    """A step, or the last of an interval, has ended."""
    BEGIN = "begin"
    """Training begins; ``step`` is the first one."""
    CURSOR = "cursor"
    """The step that the lines around it belong to, without its time."""
    LAST = "last"
    """Values of the step that ended last."""
    NEXT = "next"
    """Values of the step that ends next, or of the cursor."""
    HEAD = "head"
    """Beginning of a block of lines that belongs to the step that ended last."""
    BLOCK = "block"
    """A line of such a block."""
    AT = "at"
    """Values of step ``step``."""
    EVENT = "event"
    FACTS = "facts"
    SCORE = "score"
    NOISE = "noise"


class Again(StrEnum):
    """What a step means whose number does not grow."""

    RESTART = "restart"
    """Training went back."""
    MERGE = "merge"
    """The same step: more values of it. A smaller one: a restart."""
    IGNORE = "ignore"
    """Another process draws the same progress bar."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A value as printed, ``value`` None where it is no number; ``subject`` is whom it is of."""

    name: str
    printed_as: str
    text: str
    value: float | None
    unit: str = ""
    subject: str = "job"
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """What a straggler report says of a rank."""

    tool: str
    metric: str
    listed: str
    rank: int
    value: float | None
    unit: str = ""
    host: str | None = None
    flagged: bool | None = None
    ranks_total: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """What one line says. Which fields are set depends on ``kind``."""

    kind: Kind
    line: Line
    step: int | None = None
    duration_us: int | None = None
    elapsed_us: int | None = None
    """Time since training began, where that is what the line gives."""
    precision_us: int = 0
    """How coarse ``elapsed_us`` is."""
    loss: float | None = None
    printed: tuple[Printed, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Columns of ``jobs``."""
    event: str | None = None
    detail: str | None = None
    new_attempt: bool = False
    scores: tuple[Score, ...] = ()
    new_report: bool = False
    again: Again = Again.RESTART
    of: int | None = None
    """Steps that a progress bar counts to."""
    early: bool = False
    """Of ``NEXT`` values: they stand before the cursor that they belong to."""
    dialect: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that begins like one that we read, and is not."""

    reason: str
    field: str | None = None


Reader = Callable[[Line], "Mark | Fault | None"]
"""What a line says; None where it is none of the reader's lines."""


@dataclass(frozen=True)
class LogBatch(Batch):
    """The marks of a stretch of a log, in order; its rows are made by the run."""

    marks: tuple[Mark, ...] = ()
    blank: int = 0
    unknown: tuple[tuple[int, str], ...] = ()
    """Line and text of the first ones that nobody understood."""
    unknown_count: int = 0


def reject(line: Line, fault: Fault, table: str = "steps") -> Reject:
    """``fault`` as a reject."""
    return Reject(table, fault.reason, line.number, fault.field, line.raw)


#: Names under which the same value is printed, to one name and unit.
_KNOWN: Mapping[str, tuple[str, str]] = {
    "lm loss": ("loss", ""),
    "lm-loss": ("loss", ""),
    "loss": ("loss", ""),
    "reduced train loss": ("loss", ""),
    "train loss": ("loss", ""),
    "train step loss": ("loss", ""),
    "val loss": ("val_loss", ""),
    "eval loss": ("val_loss", ""),
    "validation loss": ("val_loss", ""),
    "lm loss value": ("val_loss", ""),
    "grad norm": ("grad_norm", ""),
    "params norm": ("params_norm", ""),
    "num zeros": ("num_zeros", ""),
    "loss scale": ("loss_scale", ""),
    "learning rate": ("learning_rate", ""),
    "lr": ("learning_rate", ""),
    "global batch size": ("global_batch_size", "samples"),
    "consumed samples": ("consumed_samples", "samples"),
    "skipped samples": ("skipped_samples", "samples"),
    "consumed tokens": ("consumed_tokens", "tokens"),
    "elapsed time per iteration": ("step_time", "ms"),
    "train step timing": ("step_time", "s"),
    "seconds": ("step_time", "s"),
    "iteration-time": ("step_time", "s"),
    "throughput per gpu": ("tflops_per_gpu", "TFLOP/s/GPU"),
    "tflops": ("tflops_per_gpu", "TFLOP/s/GPU"),
    "tflop/s/device": ("tflops_per_gpu", "TFLOP/s/device"),
    "tflops per sec per gpu": ("tflops_per_gpu", "TFLOP/s/GPU"),
    "effective tera flops per gpu": ("tflops_per_gpu", "TFLOP/s/GPU"),
    "gpu utilization": ("tflops_per_gpu", "TFLOP/s/GPU"),
    "tokens per gpu": ("tokens_per_s_per_gpu", "tokens/s/GPU"),
    "tokens/s/device": ("tokens_per_s_per_gpu", "tokens/s/device"),
    "elapsed time per iteration ms": ("step_time", "ms"),
    "tokens per gpu per second tgs": ("tokens_per_s_per_gpu", "tokens/s/GPU"),
    "tokens per gpu per second": ("tokens_per_s_per_gpu", "tokens/s/GPU"),
    "tokens per sec per gpu": ("tokens_per_s_per_gpu", "tokens/s/GPU"),
    "tps": ("tokens_per_s_per_gpu", "tokens/s/GPU"),
    "wps": ("tokens_per_s_per_gpu", "tokens/s/GPU"),
    "mfu": ("mfu", "%"),
    "samples per second": ("samples_per_s", "samples/s"),
    "energy per gpu": ("energy_per_gpu", "J/iter/GPU"),
    "power per gpu": ("power_per_gpu", "W/GPU"),
    "number of skipped iterations": ("skipped_steps", "steps"),
    "number of nan iterations": ("nan_steps", "steps"),
    "runningavgsamplespersec": ("samples_per_s_running", "samples/s"),
    "currsamplespersec": ("samples_per_s_deepspeed", "samples/s"),
}
_BRACKETS = re.compile(r"^(?P<name>.*?)\s*[(\[](?P<unit>[^()\[\]]+)[)\]]$")
_IN_UNIT = re.compile(r"^(?P<name>.+?) in (?P<unit>s|ms|us)$")
_VALUE = re.compile(r"^(?P<number>\S+?)(?P<unit>%|[KMGT]i?B)?$")


@lru_cache(maxsize=4096)
def _named(printed_as: str) -> tuple[str, str]:
    """The common name of what is printed so, and its unit."""
    label = " ".join(printed_as.split())
    found = _BRACKETS.match(label) or _IN_UNIT.match(label)
    bare = (found["name"] if found else label).strip()
    name, unit = _KNOWN.get(bare.replace("_", " ").lower(), (bare, ""))
    return name, unit or (found["unit"] if found else "")


def printed(
    printed_as: str, text: str, *, subject: str = "job", rank: int | None = None, unit: str = ""
) -> Printed:
    """A value under the name that is common to all logs, if it has one."""
    name, usual_unit = _named(printed_as)
    text = text.strip()
    match = _VALUE.match(text)
    value = number(match["number"]) if match else None
    attached = (match["unit"] or "") if match and value is not None else ""
    return Printed(
        name,
        printed_as.strip(),
        text[:200],
        value,
        attached or unit or usual_unit,
        subject,
        rank,
    )


def value_of(values: tuple[Printed, ...], name: str, subject: str = "job") -> float | None:
    """The first value called ``name``."""
    return next((p.value for p in values if p.name == name and p.subject == subject), None)


def no_time(expected: str, values: tuple[Printed, ...], said: str | None = None) -> Fault:
    """A line whose step time is none, with what stands there in its place.

    ``said`` is the name of the time's column, where it has one of its own.
    """
    told = (v for v in values if v.subject == "job")
    found = next(
        (v.text for v in told if (v.printed_as == said if said else v.name == "step_time")), None
    )
    shown = "none" if found is None else repr(found[:40])
    return Fault(f"expected {expected}, a time of 0 or more; found {shown}", "duration_us")
