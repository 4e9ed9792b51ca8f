"""``nemo``: logs of NeMo 2 (progress printer), NeMo 1 (progress bar) and DLLogger."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.lines import Line, micros, number, whole
from steptax.connectors.logs.marks import Fault, Kind, Mark, Printed, no_time, printed, value_of
from steptax.connectors.logs.noise import read_failure, read_noise
from steptax.connectors.logs.straggler_lines import read_nvrx

_NEMO2 = re.compile(
    r"Training epoch (?P<epoch>\d+), iteration (?P<step>\d+)/(?P<last>\d+) \| (?P<rest>.*)$"
)
_VALIDATION = re.compile(r"Validation: iteration \d+/\d+|Validation epoch")
_NEMO1 = re.compile(
    r"Epoch (?P<epoch>\d+):.*?\|\s*(?P<at>\d+)/(?P<total>\d+|\?)\s*\[(?P<rest>[^\]]*)\]"
)
_BAR_BEGINS = re.compile(r"Epoch \d+:.*\|\s*\d+/")
_MAX_DLLL = 1 << 16


def _mark(line: Line, step: int | None, values: tuple[Printed, ...], dialect: str) -> Mark | Fault:
    if step is None:
        return Fault("expected a step number, found none", "step")
    duration = micros(value_of(values, "step_time"), 1e6)
    if duration is None:
        return no_time("'train_step_timing in s: NUMBER'", values)
    loss = value_of(values, "loss")
    return Mark(
        Kind.STEP,
        line,
        step=step,
        duration_us=duration,
        loss=loss if loss is not None and abs(loss) < float("inf") else None,
        printed=values,
        dialect=dialect,
    )


def read_nemo2(line: Line) -> Mark | Fault | None:
    """``Training epoch 0, iteration 1/249 | ... | global_step: 1 | ...``."""
    text = line.text
    if "Training epoch" not in text:
        return None
    found = _NEMO2.search(text)
    if found is None:
        return Fault("expected 'Training epoch E, iteration N/LAST | ...', found less", "step")
    values = []
    for piece in found["rest"].split(" | "):
        name, colon, value = piece.partition(": ")
        if not colon or not value.strip():
            return Fault(f"expected 'name: value', found {piece.strip()[:60]!r}", None)
        values.append(printed(name, value))
    got = tuple(values)
    told = value_of(got, "global_step")
    step = int(told) if told is not None and 0 <= told < 2**53 else None
    return _mark(line, step, got, "nemo2")


def read_nemo1(line: Line) -> Mark | Fault | None:
    """``Epoch 0: : 100%|###| 100/100 [10:48<00:00, ..., global_step=99.00, ... in s=3.130]``."""
    found = _NEMO1.search(line.text)
    if found is None:
        if _BAR_BEGINS.search(line.text):
            return Fault("expected a progress bar that ends in ']', found a line that is cut", None)
        return None
    values = []
    for piece in found["rest"].split(", ")[1:]:
        name, equals, value = piece.partition("=")
        if equals and number(value) is not None:
            values.append(printed(name, value))
    got = tuple(values)
    told = value_of(got, "global_step")
    if told is None or value_of(got, "step_time") is None:
        # The bar is drawn before the first step has ended, and by loops that time nothing.
        return Mark(Kind.NOISE, line)
    return _mark(line, int(told) if 0 <= told < 2**53 else None, got, "nemo1")


def read_dllogger(line: Line) -> Mark | Fault | None:
    """``DLLL {"timestamp": "...", "step": 10, "data": {"train_loss": 3.1, ...}}``."""
    at = line.text.find("DLLL {")
    if at < 0:
        return None
    body = line.text[at + 5 : at + _MAX_DLLL].strip()
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return Fault("expected a JSON object behind DLLL, found a damaged one", None)
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict):
        return Mark(Kind.NOISE, line)
    values = tuple(
        printed(str(name), str(value))
        for name, value in data.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    )
    step = _dllogger_step(found.get("step"))
    if step is None:
        return Mark(Kind.LAST, line, printed=values)
    if value_of(values, "step_time") is None:
        return Mark(Kind.AT, line, step=step, printed=values)
    return _mark(line, step, values, "dllogger")


def _dllogger_step(found: Any) -> int | None:
    """A step number; DLLogger also writes ``[epoch, step]`` and, for the summary, ``[]``."""
    if isinstance(found, list) and found:
        found = found[-1]
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**53:
        return found
    return whole(found) if isinstance(found, str) else None


def read_validation(line: Line) -> Mark | None:
    """Lines of the validation loop: there are too many to keep."""
    return Mark(Kind.NOISE, line) if _VALIDATION.search(line.text) else None


class NemoConnector(LogConnector):
    """Progress lines of NeMo, of both generations."""

    kind = "nemo"
    version = 2
    title = "logs of NeMo 2, NeMo 1 and DLLogger"
    family = "a NeMo log"
    dialects: ClassVar = {"nemo2": "NeMo 2", "nemo1": "NeMo 1", "dllogger": "NeMo 1 (DLLogger)"}
    readers = (
        read_nemo2,
        read_nemo1,
        read_dllogger,
        read_nvrx,
        read_validation,
        read_failure,
        read_noise,
    )
    doc = (
        "NeMo 2: lines 'Training epoch 0, iteration 1/249 | lr: ... | global_step: 1 | "
        "reduced_train_loss: ... | train_step_timing in s: ...'. NeMo 1: progress bars with "
        "'global_step=99.00, ... train_step_timing in s=3.130]'. DLLogger: 'DLLL {json}'. Also "
        "packed by gzip.\n"
        "Step time is train_step_timing in s, loss is reduced_train_loss; all other values are "
        "kept as printed. train_backward_timing is near 0 there and means nothing. Straggler "
        "reports of NVRx in the log are read as well.\n"
        "--dialect nemo2, nemo1 or dllogger; it is detected where it is left out."
    )
