"""``maxtext``: logs of MaxText."""

from __future__ import annotations

import re
from typing import ClassVar

from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.lines import Line, micros, whole
from steptax.connectors.logs.marks import Fault, Kind, Mark, no_time, printed, value_of
from steptax.connectors.logs.noise import read_failure, read_noise

_STEP = re.compile(r"completed step: (?P<step>\d+), (?P<rest>.*)$")
_EVAL = re.compile(r"eval metrics after step: (?P<step>\d+), (?P<rest>.*)$")
_ATTEMPT = re.compile(r"Elastic attempt (?P<attempt>\d+) out of \d+")
_RESTORING = re.compile(
    r"[Rr]estoring (?:checkpoint )?from \S*?(?:checkpoints|items)/(?P<step>\d+)"
)
_SAVED = re.compile(r"[Ss]aved (?:a )?checkpoint at step (?P<step>\d+)")
_PARAMETERS = re.compile(r"number parameters: (?P<value>[\d.]+) billion")
_DEVICES = re.compile(r"Num_devices: (?P<value>\d+), shape")
_OURS = re.compile(
    r"Elastic |Slice down event|commit_success|Memstats|Per train step:|MaxText|maxtext"
)


def read_step(line: Line) -> Mark | Fault | None:
    """``completed step: 4, seconds: 5.669, TFLOP/s/device: 134.884, ..., loss: 11.110``."""
    found = _STEP.search(line.text)
    if found is None:
        if "completed step" in line.text:
            return Fault("expected 'completed step: NUMBER, seconds: ...', found less", "step")
        return None
    step = whole(found["step"])
    values = []
    for piece in found["rest"].split(", "):
        name, colon, text = piece.partition(": ")
        if not colon or not name.strip() or not text.strip():
            return Fault(f"expected 'name: value', found {piece.strip()[:60]!r}", None)
        values.append(printed(name, text))
    got = tuple(values)
    duration = micros(value_of(got, "step_time"), 1e6)
    loss = value_of(got, "loss")
    if step is None:
        return Fault("expected a step number, found one that none can be", "step")
    if duration is None:
        return no_time("'seconds: NUMBER'", got)
    if loss is None:
        return Fault("expected 'loss: NUMBER' at the end, found a line that is cut", "loss")
    return Mark(
        Kind.STEP,
        line,
        step=step,
        duration_us=duration,
        loss=loss if abs(loss) < float("inf") else None,
        printed=got,
        dialect="maxtext",
    )


def read_other(line: Line) -> Mark | None:
    """Evaluations, elastic restarts, checkpoints and sizes."""
    text = line.text
    found = _EVAL.search(text)
    if found is not None:
        return Mark(Kind.EVENT, line, step=whole(found["step"]), event="eval", detail=found["rest"])
    found = _ATTEMPT.search(text)
    if found is not None:
        return Mark(Kind.EVENT, line, event="restart", detail=found[0], new_attempt=True)
    for pattern, event in ((_RESTORING, "checkpoint_restore"), (_SAVED, "checkpoint_save")):
        found = pattern.search(text)
        if found is not None:
            return Mark(
                Kind.EVENT, line, step=whole(found["step"]), event=event, detail=text.strip()
            )
    if "Slice down event" in text:
        return Mark(Kind.EVENT, line, event="failure", detail=text.strip())
    found = _PARAMETERS.search(text)
    if found is not None:
        total = round(float(found["value"]) * 1e9) if found["value"].count(".") < 2 else 0
        return Mark(Kind.FACTS, line, facts={"params_total": total} if 0 < total < 2**60 else {})
    found = _DEVICES.search(text)
    if found is not None:
        size = whole(found["value"])
        return Mark(Kind.FACTS, line, facts={"world_size": size} if size and size < 2**31 else {})
    return Mark(Kind.NOISE, line) if _OURS.search(text) else None


class MaxTextConnector(LogConnector):
    """Step lines of MaxText."""

    kind = "maxtext"
    version = 2
    title = "logs of MaxText"
    family = "a MaxText log"
    asynchronous = True
    dialects: ClassVar = {"maxtext": "MaxText"}
    readers = (read_step, read_other, read_failure, read_noise)
    doc = (
        "Lines 'completed step: 4, seconds: 5.669, TFLOP/s/device: 134.884, Tokens/s/device: "
        "8670.207, total_weights: 196608, loss: 11.110', with or without the prefix of absl; also "
        "packed by gzip.\n"
        "JAX dispatches steps asynchronously: a step can be printed with a time that is far too "
        "short and rates that no device reaches, most often the one after step 0. All is kept as "
        "printed, and what took less than half of the usual time is named. An elastic restart "
        "begins a new attempt. Step times are the job's, not each rank's."
    )
