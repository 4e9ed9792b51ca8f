"""What recorders say of themselves: the shape of a heartbeat, and those of one job.

A heartbeat is written by another program, of another version or by hand: what has not its shape is
passed over and named, and the others count.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import orjson

from steptax.app.moments import LAST_US

STATES: Final = ("running", "closed")
#: Whole numbers that a heartbeat may hold, from 0 up to these; it has the first two.
_NUMBERS: Final = (
    ("rank", 2**31),
    ("ts_us", LAST_US),
    ("rows_written", 2**63),
    ("rows_dropped", 2**63),
    ("step", 2**63),
    ("last_step_done", 2**63),
    ("pid", 2**63),
    ("phase_since_us", LAST_US),
    ("job_start_us", LAST_US),
)
_TEXTS: Final = ("host", "phase", "last_error")


def fault_of(beat: Any) -> str | None:
    """What is wrong with a heartbeat; None where it is one."""
    if not isinstance(beat, dict):
        return "expected an object"
    if beat.get("state") not in STATES:
        return f"state: expected {' or '.join(STATES)}"
    for name in ("rank", "ts_us"):
        if beat.get(name) is None:
            return f"{name}: expected a whole number, found none"
    for name, end in _NUMBERS:
        value = beat.get(name)
        if value is not None and not (type(value) is int and 0 <= value < end):
            return f"{name}: expected a whole number that is not negative"
    for name in _TEXTS:
        if not isinstance(beat.get(name, ""), str | None):
            return f"{name}: expected text"
    if not isinstance(beat.get("overhead_us_mean"), float | int | None):
        return "overhead_us_mean: expected a number"
    is_in = beat.get("phase") not in (None, "idle")
    if is_in and None in (beat.get("step"), beat.get("phase_since_us")):
        return "expected a step and phase_since_us where there is a phase"
    return None


def is_of_beats(name: str) -> bool:
    """Whether a file of this name holds heartbeats."""
    return fnmatchcase(name, "rank-*.json") or fnmatchcase(name, "beats-*.json")


def read_beats(folder: Path) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
    """The newest heartbeat of each rank, by rank; what is wrong with others, by file name."""
    bodies: dict[str, bytes] = {}
    faults: dict[str, str] = {}
    for path in sorted([*folder.glob("rank-*.json"), *folder.glob("beats-*.json")]):
        try:
            bodies[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue  # replaced or removed while we looked: the next look sees it
        except OSError as error:
            faults[path.name] = str(error)
    found, strange = newest_beats(bodies)
    return found, faults | strange


def newest_beats(
    bodies: Mapping[str, bytes],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The newest heartbeat of each rank in files, by rank; what is wrong with others, by file."""
    newest: dict[int, dict[str, Any]] = {}
    faults: dict[str, str] = {}
    for name in sorted(bodies):
        try:
            found = orjson.loads(bodies[name])
        except orjson.JSONDecodeError as error:
            faults[name] = str(error)
            continue
        for beat in found if isinstance(found, list) else [found]:
            if fault := fault_of(beat):
                faults[name] = fault
                continue
            known = newest.get(beat["rank"])
            if known is None or known["ts_us"] <= beat["ts_us"]:
                newest[beat["rank"]] = beat
    return [newest[rank] for rank in sorted(newest)], faults
