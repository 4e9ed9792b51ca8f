"""``hf-trainer``: logs of the Hugging Face Trainer, and its trainer_state.json."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from steptax.app.schema import Batch
from steptax.connectors.base import LineFormat, Options, RawChunk
from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.deepspeed_lines import read_deepspeed_config
from steptax.connectors.logs.lines import Line, whole
from steptax.connectors.logs.marks import (
    Again,
    Fault,
    Kind,
    LogBatch,
    Mark,
    Printed,
    printed,
    reject,
)
from steptax.connectors.logs.noise import read_failure, read_noise
from steptax.connectors.sources import head, text_of
from steptax.connectors.wholefile import read_json_whole

_DICT = re.compile(r"^\s*(?:\d+%\|.*?\]\s*)?(?P<body>\{'[a-z_].*)$")
_BAR = re.compile(
    r"\|\s*(?P<at>\d+)/(?P<total>\d+) \[(?P<gone>(?:\d+:)?\d+:\d\d)<(?P<left>[^,\]]*), *"
    r"(?P<rate>[\d.]+|\?)(?P<unit>s/it|it/s)\]"
)
_BAR_BEGINS = re.compile(r"\d+%\|.*\|\s*\d+/\d+ \[")
_TOTAL = re.compile(r"Total optimization steps = (?P<value>[\d,]+)\s*$")
_BATCH = re.compile(r"Total train batch size .*= (?P<value>[\d,]+)\s*$")
_SAVING = re.compile(r"Saving model checkpoint to (?P<where>\S+)")
_FOLDER = re.compile(r"checkpoint-(?P<step>\d+)$")
_RESUMED = re.compile(r"Continuing training from global step (?P<step>\d+)")
_FRAME = re.compile(
    r"\*{5} |^\s*[\w ]+ = +[\w:.,]+\s*$|Num examples|Num Epochs|Instantaneous batch size|"
    r"Gradient Accumulation|Training completed|\[INFO\||^\s*[\"{}\]]"
)


def _values(found: dict[str, Any], subject: str) -> tuple[Printed, ...]:
    return tuple(
        printed(str(name), str(value), subject=subject)
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step"
    )


def read_dict(line: Line) -> Mark | Fault | None:
    """``{'loss': 2.3, 'learning_rate': 5e-05, 'epoch': 0.5}``, as every process prints it."""
    found = _DICT.match(line.text)
    if found is None:
        return None
    try:
        body = ast.literal_eval(found["body"].strip().replace(": nan", ": 'nan'"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return Fault("expected {'name': number, ...}, found a damaged line", None)
    if not isinstance(body, dict):
        return Fault("expected {'name': number, ...}, found something else", None)
    numbers = {k: _number(v) for k, v in body.items() if isinstance(k, str)}
    return Mark(
        Kind.LAST, line, printed=_values(numbers, "job"), dialect="log", detail=_epoch(numbers)
    )


def _number(value: Any) -> Any:
    """Newer versions print numbers as text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value


def _epoch(found: dict[str, Any]) -> str | None:
    epoch = found.get("epoch")
    return None if epoch is None else f"epoch {epoch}"


def read_bar(line: Line) -> Mark | Fault | None:
    """``6%|#  | 1/16 [00:58<14:41, 58.76s/it]``: steps done, and whole seconds since the first."""
    bars = list(_BAR.finditer(line.text))
    found = bars[-1] if bars else None
    if found is None:
        return Mark(Kind.NOISE, line) if _BAR_BEGINS.search(line.text) else None
    step, total = whole(found["at"]), whole(found["total"])
    seconds = 0
    for part in found["gone"].split(":"):
        seconds = seconds * 60 + int(part[:9])
    if step is None or total is None or step > total or seconds > 2**31:
        return Fault("expected a progress bar, found numbers that cannot be", "step")
    rate = printed(f"progress bar ({found['unit']})", found["rate"], unit=found["unit"])
    return Mark(
        Kind.STEP,
        line,
        step=step,
        elapsed_us=seconds * 1_000_000,
        precision_us=1_000_000,
        printed=(rate,),
        again=Again.IGNORE,
        of=total,
        dialect="log",
    )


def read_other(line: Line) -> Mark | None:
    """Sizes, checkpoints, resuming."""
    text = line.text
    found = _TOTAL.search(text)
    if found is not None:
        total = whole(found["value"])
        return Mark(Kind.FACTS, line, facts={"total_steps": total} if total else {})
    found = _BATCH.search(text)
    if found is not None:
        size = whole(found["value"])
        return Mark(Kind.FACTS, line, facts={"batch": size} if size and size < 2**31 else {})
    found = _SAVING.search(text)
    if found is not None:
        folder = _FOLDER.search(found["where"])
        step = whole(folder["step"]) if folder else None
        return Mark(Kind.EVENT, line, event="checkpoint_save", step=step, detail=found[0])
    found = _RESUMED.search(text)
    if found is not None:
        step = whole(found["step"])
        return Mark(Kind.EVENT, line, event="checkpoint_restore", step=step, detail=found[0])
    return Mark(Kind.NOISE, line) if _FRAME.search(text) else None


class HfTrainerConnector(LogConnector):
    """Logs of the Trainer as text, or its state as JSON."""

    kind = "hf-trainer"
    version = 2
    title = "logs and trainer_state.json of the Hugging Face Trainer"
    family = "a Hugging Face Trainer log"
    dialects: ClassVar = {
        "log": "Hugging Face Trainer",
        "trainer-state": "Hugging Face Trainer (state)",
    }
    readers = (
        read_dict,
        read_bar,
        read_deepspeed_config,
        read_other,
        read_failure,
        read_noise,
    )
    doc = (
        "Text: lines {'loss': ..., 'learning_rate': ..., 'epoch': ...} and the summary "
        "{'train_runtime': ...}, which every process prints (the first is kept), and the progress "
        "bar. JSON: trainer_state.json with its log_history. Both also packed by gzip.\n"
        "Neither has a step time. From the progress bar steps of ten seconds and more are timed, "
        "by its whole seconds, where 'Total optimization steps' says which bar is the training's; "
        "trainer_state.json has no time at all, so loss and rates are kept as printed and there "
        "are no step rows. train_runtime and total_flos are of the whole run."
    )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Text in stretches; a trainer_state.json at once."""
        if _is_state(head(source)):
            yield RawChunk(str(source), 1, read_json_whole(source))
            return
        yield from super().fetch(source, options)

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """Text grows; a state is written anew each time."""
        return None if _is_state(head(source)) else super().lines(source, options)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Marks of text lines, or of the entries of a state."""
        if isinstance(raw.payload, bytes):
            return [_state_batch(raw.payload)]
        return super().parse(raw, options)


def _is_state(data: bytes) -> bool:
    start = data.lstrip()[:400]
    return start.startswith(b"{") and not start.startswith(b"{'") and start[1:].lstrip()[:1] in b'"'


def _state_batch(data: bytes) -> LogBatch:
    """Marks of a trainer_state.json: its entries are counted as lines."""
    whole_line = Line(1, "", text_of(data))
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        fault = Fault(f"expected a whole JSON object, found a damaged one: {str(error)[:100]}")
        return LogBatch("steps", pa.table({}), (reject(whole_line, fault),))
    history = found.get("log_history") if isinstance(found, dict) else None
    if not isinstance(history, list):
        fault = Fault("expected a trainer_state.json with a list 'log_history', found none")
        return LogBatch("steps", pa.table({}), (reject(whole_line, fault),))
    marks: list[Mark] = []
    faults = []
    for place, entry in enumerate(history, 1):
        line = Line(place, "", text_of(str(entry).encode("utf-8", "replace")))
        step = entry.get("step") if isinstance(entry, dict) else None
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**53:
            faults.append(reject(line, Fault("expected an entry with a step, found none", "step")))
            continue
        marks.append(
            Mark(Kind.AT, line, step=step, printed=_values(entry, "job"), dialect="trainer-state")
        )
    return LogBatch("steps", pa.table({}), tuple(faults), marks=tuple(marks))
