"""Histories of Weights & Biases as text: JSON Lines, a summary, CSV; and a row's points."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from steptax.app.schema import Reject
from steptax.connectors.logs.lines import number
from steptax.connectors.sources import BadLine, TextBlock, text_of
from steptax.connectors.tables.csvcells import csv_cells
from steptax.connectors.trackers.scalars import (
    Point,
    TrackerBatch,
    moment_us,
    tracker_batch,
    whole_step,
)
from steptax.connectors.trackers.wandb_log import float_of

#: Keys that count optimiser steps where ``_step`` counts calls of ``log``; best first.
STEPS = ("train/global_step", "trainer/global_step", "global_step")
_OWN = ("_step", "_timestamp", "_runtime", "_wandb")
_DEPTH = 4


def of_lines(block: TextBlock, key: str | None) -> TrackerBatch:
    """Points of whole lines, each an object; ``key`` is the step's."""
    points: list[Point] = []
    bad = list(block.broken)
    facts: dict[str, Any] = {}
    for offset, data in enumerate(block.data.split(b"\n")):
        if not data or data.isspace():
            continue
        place = block.first_line + offset
        found = _object(data)
        row = {} if isinstance(found, str) else _flat(found)
        of_row = found if isinstance(found, str) else points_of(row, place, key)
        if isinstance(of_row, str):
            bad.append(BadLine(place, of_row, text_of(data)))
        else:
            points += of_row
            facts = facts or _start(row)
    return tracker_batch(points, rejects_of(bad), facts=facts)


def of_summary(data: bytes, key: str | None) -> TrackerBatch:
    """Points of one object: last values."""
    found = _object(data)
    row = {} if isinstance(found, str) else _flat(found)
    of_row = found if isinstance(found, str) else points_of(row, 1, key)
    if isinstance(of_row, str):
        return tracker_batch((), rejects_of([BadLine(1, of_row, text_of(data))]))
    note = "a summary holds last values only: there is no curve"
    return tracker_batch(of_row, facts=_start(row), notes=(note,))


def of_csv(columns: tuple[str, ...], block: TextBlock, key: str | None) -> TrackerBatch:
    """Points of whole lines; the first line of the file names the columns."""
    points: list[Point] = []
    bad = list(block.broken)
    facts: dict[str, Any] = {}
    names = short_names(columns)
    for offset, data in enumerate(block.data.splitlines()):
        place = block.first_line + offset
        if place == 1 or not data or data.isspace():
            continue
        cells = csv_cells(data.decode("utf-8", "replace"))
        if cells is None or len(cells) != len(names):
            count = "a damaged line" if cells is None else str(len(cells))
            reason = f"expected {len(names)} fields, found {count}"
            bad.append(BadLine(place, reason, text_of(data)))
            continue
        row = {
            name: (number(cell), cell)
            for name, cell in zip(names, cells, strict=True)
            if name and cell.strip()
        }
        of_row = points_of(row, place, key)
        if isinstance(of_row, str):
            bad.append(BadLine(place, of_row, text_of(data)))
        else:
            points += of_row
            facts = facts or _start(row)
    return tracker_batch(points, rejects_of(bad), facts=facts)


def _start(row: Mapping[str, tuple[float | None, str]]) -> dict[str, Any]:
    """When the run began: a row's moment without the run's age then."""
    moment, age = row.get("_timestamp", (None, ""))[0], row.get("_runtime", (None, ""))[0]
    if moment is None or age is None:
        return {}
    return {"start_us": moment_us(moment - age)}


def points_of(
    row: Mapping[str, tuple[float | None, str]], place: int, key: str | None
) -> list[Point] | str:
    """The numbers of a row by step, or why it has none."""
    counted = next((name for name in ((key,) if key else (*STEPS, "_step")) if name in row), None)
    if counted is None:
        return f"expected a step ({key or '_step'}), found none"
    step = whole_step(row[counted][0])
    if step is None:
        return f"expected a step of 0 or more in {counted}, found {row[counted][1][:40]!r}"
    at_us = moment_us(row["_timestamp"][0]) if "_timestamp" in row else None
    return [
        Point(name, step, value, at_us, place, text)
        for name, (value, text) in row.items()
        if value is not None and name not in (*_OWN, *STEPS, counted)
    ]


def _flat(
    found: Mapping[str, Any], before: str = "", depth: int = 0
) -> dict[str, tuple[float | None, str]]:
    """Numbers of an object by key; those of objects inside as ``key.inner``."""
    out: dict[str, tuple[float | None, str]] = {}
    for key, value in found.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            if "_type" not in value and name != "_wandb" and depth < _DEPTH:
                out |= _flat(value, f"{name}.", depth + 1)
        elif (number_found := float_of(value)) is not None:
            out[name] = (number_found, str(value))
    return out


def _object(data: bytes) -> dict[str, Any] | str:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"expected a JSON object, found a damaged one: {str(error)[:100]}"
    if not isinstance(found, dict):
        return f"expected a JSON object, found {type(found).__name__}"
    return found


def short_names(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Keys of the columns; empty for those that are left out.

    The page exports ``Step`` and, of each run, ``RUN - KEY`` with its ``__MIN`` and ``__MAX``; of
    one run alone the run is taken off.
    """
    runs = {name.split(" - ", 1)[0] for name in columns if " - " in name}
    out = []
    for name in columns:
        if name.endswith(("__MIN", "__MAX")) or not name:
            out.append("")
        elif name == "Step":
            out.append("_step")
        else:
            out.append(name.split(" - ", 1)[1] if len(runs) == 1 and " - " in name else name)
    return tuple(out)


def rejects_of(bad: list[BadLine]) -> list[Reject]:
    """What was no point, in the order of the source."""
    ordered = sorted(bad, key=lambda b: b.row)
    return [Reject("printed_metrics", b.reason, b.row, None, b.raw) for b in ordered]
