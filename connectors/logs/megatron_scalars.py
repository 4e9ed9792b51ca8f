"""``megatron-scalars``: scalars of a run as Megatron's functional tests keep them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from steptax.app.schema import Batch
from steptax.connectors.base import LineFormat, Options, RawChunk
from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.lines import Line, micros
from steptax.connectors.logs.marks import (
    Fault,
    Kind,
    LogBatch,
    Mark,
    Printed,
    printed,
    reject,
    value_of,
)
from steptax.connectors.sources import text_of
from steptax.connectors.wholefile import read_json_whole


class MegatronScalarsConnector(LogConnector):
    """Scalars by metric and step, or by step and metric."""

    kind = "megatron-scalars"
    version = 2
    title = "golden scalar files of Megatron-LM and Megatron-Bridge tests"
    family = "a file of scalars"
    readers = ()
    dialects: ClassVar = {"megatron": "Megatron-LM", "bridge": "Megatron-Bridge"}
    doc = (
        "JSON. Megatron-LM: {METRIC: {start_step, end_step, step_interval, values: {STEP: NUMBER "
        'or "nan"}}}. Megatron-Bridge: {STEP: {METRIC: NUMBER}}. Also packed by gzip.\n'
        "Step time is iteration-time in s, or 'elapsed time per iteration (ms)'; 'nan' is a step "
        "that was not measured. What Megatron-Bridge calls 'GPU utilization' is TFLOP/s per GPU "
        "and no percentage. Lines are counted by step. There is no clock."
    )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The file at once."""
        yield RawChunk(str(source), 1, read_json_whole(source))

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """The file is one JSON object."""
        return None

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """A mark per step."""
        whole = Line(1, "", text_of(raw.payload))
        try:
            found = json.loads(raw.payload)
        except (ValueError, RecursionError) as error:
            fault = Fault(f"expected a whole JSON object, found a damaged one: {str(error)[:100]}")
            return [LogBatch("steps", pa.table({}), (reject(whole, fault),))]
        if not isinstance(found, dict):
            fault = Fault(f"expected a JSON object, found {type(found).__name__}")
            return [LogBatch("steps", pa.table({}), (reject(whole, fault),))]
        steps, beside, bad, dialect = _by_step(found)
        marks = []
        for place, (step, values) in enumerate(sorted(steps.items()), 1):
            marks.append(_mark(step, place, tuple(values), dialect))
        if beside and steps:
            line = Line(len(steps) + 1, "", "")
            marks.append(Mark(Kind.AT, line, step=max(steps), printed=tuple(beside)))
        faults = tuple(reject(whole, Fault(reason)) for reason in bad)
        if not steps and not faults:
            faults = (reject(whole, Fault("expected numbers by metric and step, found none")),)
        return [LogBatch("steps", pa.table({}), faults, marks=tuple(marks))]


def _mark(step: int, place: int, values: tuple[Printed, ...], dialect: str) -> Mark:
    time = next((v for v in values if v.name == "step_time"), None)
    duration = None
    if time is not None:
        duration = micros(time.value, 1000.0 if time.unit == "ms" else 1e6)
    loss = value_of(values, "loss")
    finite = loss is not None and abs(loss) < float("inf")
    return Mark(
        Kind.STEP,
        Line(place, f"step {step} {values}", f"step {step}"),
        step=step,
        duration_us=duration,
        loss=loss if finite else None,
        printed=values,
        dialect=dialect,
    )


def _by_step(
    found: dict[str, Any],
) -> tuple[dict[int, list[Printed]], list[Printed], list[str], str]:
    """Values by step, values of no step, what is damaged, and the dialect."""
    steps: dict[int, list[Printed]] = {}
    beside: list[Printed] = []
    bad: list[str] = []
    dialect = "bridge"
    for key, body in found.items():
        values = body.get("values") if isinstance(body, dict) else None
        if isinstance(values, dict):
            dialect = "megatron"
            for text, value in values.items():
                step = _step(text)
                if step is None or not _is_value(value):
                    bad.append(
                        f"expected a number by step, found {text!r}: {value!r} in {key!r}"[:300]
                    )
                    continue
                steps.setdefault(step, []).append(printed(key, str(value)))
        elif isinstance(body, dict) and (step := _step(key)) is not None:
            for name, value in body.items():
                if _is_value(value):
                    steps.setdefault(step, []).append(printed(name, str(value)))
                else:
                    bad.append(f"expected a number, found {value!r} at step {step}"[:300])
        elif _is_value(body):
            beside.append(printed(key, str(body)))
        else:
            bad.append(f"expected numbers by step or by metric, found {key!r}"[:300])
    return steps, beside, bad, dialect


def _step(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in ("nan", "inf", "-inf")
    return isinstance(value, (int, float)) and not isinstance(value, bool)
