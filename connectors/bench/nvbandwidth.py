"""``nvbandwidth``: bandwidth of a node's links, as NVIDIA's nvbandwidth reports it."""

from __future__ import annotations

import json
import re
from typing import Any

from steptax.app.errors import InputError
from steptax.connectors.bench.whole import BenchFileConnector, Found, positive
from steptax.connectors.values import short
from steptax.connectors.wholefile import LINE_CHARACTERS, numbered, whole_json

_RUNNING = re.compile(r"Running ([A-Za-z]\w{2,80})\.?")
_DESCRIPTION = re.compile(r"(memcpy|memory latency|memset)\b.{0,200}")
_UNIT = re.compile(r"\((GB/s|ns|us)\)")
_HEADER = re.compile(r"(\s+\d{1,4})+\s*")
_VERSION = re.compile(r"(nvbandwidth Version|CUDA Runtime Version|Driver Version): (\S{1,40})")
#: Ends of a test that give no figures.
_FAILED = ("Error", "Not Found", "Waived", "ERROR", "WAIVED")


class NvbandwidthConnector(BenchFileConnector):
    """Text and ``-j`` output of nvbandwidth."""

    kind = "nvbandwidth"
    version = 1
    title = "nvbandwidth: bandwidth and latency of each link of a node; text and -j output"
    doc = (
        "Output of NVIDIA's nvbandwidth, the text or the JSON of -j, of all tests that it ran.\n"
        "Gives bench_results, one row per cell of each matrix: the median over its samples, in "
        "GB/s (or ns for latencies). Between host and device the device is the column; between "
        "two devices it is the row, and the column is named in the test. The diagonal and N/A "
        "are not measured and give no row. A test that failed or was waived is told.\n"
        "Run: --job, else the file's name; node: --host."
    )
    sees = "bandwidth of every link of the node, by copy engine and by kernel"
    cannot_see = "the spread of a figure; what a training job gets of it"
    marks = (b"nvbandwidth", b"bandwidth (GB/s)", b"memcpy ")
    is_not = "is no output of nvbandwidth"
    hint = "save what it prints: nvbandwidth -j > node-7.json"

    def take(self, text: str, found: Found, where: str) -> None:
        """See `BenchFileConnector.take`."""
        if text.lstrip()[:1] == "{":
            _take_json(text, found, where)
        else:
            _take_text(text, found)


def _take_json(text: str, found: Found, where: str) -> None:
    try:
        body = whole_json(text)
    except ValueError as error:
        raise InputError(
            f"is no whole JSON document: {error}", where=where, hint="run nvbandwidth -j again"
        ) from None
    top = body.get("nvbandwidth") if isinstance(body, dict) else None
    tests = top.get("testcases") if isinstance(top, dict) else None
    if not isinstance(top, dict) or not isinstance(tests, list):
        raise InputError(
            "has no list nvbandwidth.testcases",
            where=where,
            hint="name what nvbandwidth -j printed",
        )
    named = {"nvbandwidth": "version", "cuda": "CUDA Runtime Version", "driver": "Driver Version"}
    known = {ours: str(top[theirs])[:40] for ours, theirs in named.items() if top.get(theirs)}
    found.software = json.dumps(known, sort_keys=True) if known else None
    for number, test in enumerate(tests, 1):
        name = test.get("name") if isinstance(test, dict) else None
        if not isinstance(name, str) or not name.strip():
            found.reject(number, f"expected a test with a name, found {short(test)}", "name")
            continue
        if test.get("status") in _FAILED or test.get("error"):
            said = short(test.get("error") or test.get("status"))
            found.notes.setdefault(f"{name[:80]} gave no figures: {said}")
            continue
        rows = test.get("bandwidth_matrix")
        if not isinstance(rows, list):
            found.reject(number, f"expected a matrix, found {short(rows)}", "bandwidth_matrix")
            continue
        description = str(test.get("bandwidth_description", ""))[:200]
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells if isinstance(cells, list) else [cells]):
                _cell(found, number, name[:80], description, row, column, cell)


def _take_text(text: str, found: Found) -> None:
    versions: dict[str, str] = {}
    name, description, columns = "", "", list[int]()
    for number, line in numbered(text):
        if len(line) > LINE_CHARACTERS:
            continue
        if told := _VERSION.match(line):
            versions[told[1].split()[0].lower()] = told[2]
            found.software = json.dumps(versions, sort_keys=True)
        elif running := _RUNNING.match(line):
            name, description, columns = running[1], "", []
        elif line.startswith(_FAILED) and name:
            found.notes.setdefault(f"{name} gave no figures: {short(line)}")
        elif _DESCRIPTION.match(line):
            description, columns = line, []
        elif name and description and not columns and _HEADER.fullmatch(line):
            columns = [int(part) for part in line.split()]
        elif columns and (parts := line.split()) and parts[0].isdecimal():
            if len(parts) != len(columns) + 1 or len(parts[0]) > 4:
                reason = f"expected {len(columns)} columns, found {len(parts) - 1}"
                found.reject(number, reason, "matrix", line[:200])
                continue
            for column, cell in zip(columns, parts[1:], strict=True):
                _cell(found, number, name, description, int(parts[0]), column, cell)
        elif columns:
            columns = []


def _cell(
    found: Found, line: int, name: str, description: str, row: int, column: int, cell: Any
) -> None:
    value = positive(cell)
    if value is None:
        nothing = str(cell).strip() in ("N/A", "") or _is_zero(cell)
        if not nothing:
            found.reject(line, f"expected a bandwidth, found {short(cell)}", "matrix", name)
        return
    unit = _UNIT.search(description)
    between_devices = "CPU" not in description and "device_to_device" in name
    found.add(
        line,
        device=f"GPU {row if between_devices else column}",
        test=f"nvbandwidth {name}" + (f" GPU {column}" if between_devices else ""),
        size="default" if between_devices or row == 0 else f"host node {row}",
        dtype="bytes",
        value=value,
        unit=unit[1] if unit else ("ns" if "latency" in name else "GB/s"),
    )


def _is_zero(cell: Any) -> bool:
    try:
        return float(cell) == 0
    except (TypeError, ValueError, OverflowError):
        return False
