"""Lines of DeepSpeed's engine: its step line, throughput timer and wall-clock breakdown."""

from __future__ import annotations

import re
from typing import Any

from steptax.connectors.logs.lines import Line, number, whole
from steptax.connectors.logs.marks import Kind, Mark, Printed, printed

_STEP = re.compile(
    r"\[Rank \d+\] step=(?P<step>\d+), skipped=(?P<skipped>\d+), lr=\[(?P<lr>[^\],]*)"
)
_THROUGHPUT = re.compile(
    r"\[(?:timer|[\w/]+)\.py:\d+:stop\].*?(?P<rest>RunningAvgSamplesPerSec=.*)$"
)
_BREAKDOWN = re.compile(r"\btime \(ms\) \| (?P<rest>.+)$")
_SIZES = {
    "world_size": "world_size",
    "train_batch_size": "batch",
}
_CONFIG = re.compile(r"\[config\.py:\d+:print\]\s+(?P<name>\w+) \.+ (?P<value>\S+)\s*$")


def _breakdown(line: Line) -> tuple[tuple[Printed, ...], bool] | None:
    """Timers of the line, and whether the optimiser printed them, which is before the step line."""
    if "[Rank" not in line.text:
        return None
    found = _BREAKDOWN.search(line.text)
    if found is None:
        return None
    rank = line.rank
    subject = "job" if rank is None else f"rank {rank}"
    values = []
    for piece in found["rest"].split("|"):
        name, colon, text = piece.partition(":")
        if colon and number(text) is not None:
            values.append(printed(name.strip(), text, subject=subject, rank=rank, unit="ms"))
    return tuple(values), any(value.name.startswith("optimizer_") for value in values)


def _throughput(line: Line) -> tuple[Printed, ...] | None:
    found = _THROUGHPUT.search(line.text)
    if found is None:
        return None
    values = []
    for piece in found["rest"].split(","):
        name, equals, text = piece.partition("=")
        value = printed(name.strip(), text) if equals else None
        if value is not None and value.value is not None:
            values.append(value)
    return tuple(values)


def _step(line: Line) -> tuple[int, tuple[Printed, ...]] | None:
    found = _STEP.search(line.text)
    step = None if found is None else whole(found["step"])
    if found is None or step is None:
        return None
    values = (
        printed("deepspeed skipped", found["skipped"], unit="steps"),
        printed("deepspeed lr", found["lr"]),
    )
    return step, values


def read_deepspeed_beside(line: Line) -> Mark | None:
    """DeepSpeed's lines in a log whose own lines tell the steps: they come before those."""
    step = _step(line)
    if step is not None:
        return Mark(Kind.CURSOR, line, step=step[0], printed=step[1])
    values = _throughput(line)
    if values is not None:
        return Mark(Kind.NEXT, line, printed=values)
    timers = _breakdown(line)
    if timers is None:
        return None
    # The optimiser's timers stand before the line that counts the step: whose they are is told by
    # the step line that comes next.
    return Mark(Kind.NEXT, line, printed=timers[0], early=timers[1])


def read_deepspeed(line: Line) -> Mark | None:
    """DeepSpeed's lines where they alone tell the steps: values follow the step's line."""
    step = _step(line)
    if step is not None:
        return Mark(Kind.STEP, line, step=step[0], printed=step[1], dialect="deepspeed")
    values = _throughput(line)
    if values is not None:
        return Mark(Kind.LAST, line, printed=values)
    timers = _breakdown(line)
    if timers is not None:
        return Mark(Kind.NEXT if timers[1] else Kind.LAST, line, printed=timers[0])
    return read_deepspeed_config(line)


def read_deepspeed_config(line: Line) -> Mark | None:
    """A line of the configuration that DeepSpeed prints when it begins."""
    found = _CONFIG.search(line.text)
    if found is None:
        return None
    facts: dict[str, Any] = {}
    value = whole(found["value"])
    if found["name"] in _SIZES and value is not None and 0 < value < 2**31:
        facts[_SIZES[found["name"]]] = value
    return Mark(Kind.FACTS, line, facts=facts)
