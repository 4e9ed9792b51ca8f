"""``nccl-tests``: bandwidth of collectives by size, as nccl-tests and rccl-tests report it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.nccl.nccl_tests_json import read_json
from steptax.connectors.nccl.nccl_tests_text import (
    Sweep,
    SweepRow,
    hosts_of,
    models_of,
    operations_in,
    read_text,
)
from steptax.connectors.sources import head, text_of
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import BadValueError, real_number, whole_number
from steptax.connectors.wholefile import Whole, WholeFileConnector, text_in
from steptax.connectors.wording import said as counted

#: A host list that is longer is told by its length.
_NAMED_HOSTS = 8
#: An error of the old layout above this is a wrong result; float16 sums differ by 1e-3.
_WRONG_ERROR = 1e-2
_METRICS = (("time", "us"), ("algbw", "GB/s"), ("busbw", "GB/s"))


class NcclTestsConnector(WholeFileConnector):
    """Outputs of the bandwidth tests of NCCL and RCCL."""

    kind = "nccl-tests"
    version = 1
    in_folder = ("*.txt", "*.log", "*.out", "*.json", "*.gz")
    title = "nccl-tests, rccl-tests: bandwidth of collectives by size; text logs and -J files"
    doc = (
        "Output of all_reduce_perf and its siblings, of any generation: columns are found by "
        "their names; lines that mpirun or srun tag, and lines of NCCL between the rows, are "
        "passed over. Also the JSON that -J writes; its copy of the environment is dropped.\n"
        "Gives bench_results, one row per size and figure: time (us), algbw and busbw (GB/s), out "
        "of place and in place, as printed. A figure printed as 0.00 is not stored: it is less "
        "than the last digit. Wrong results are counted with the row and said.\n"
        "The printed average over sizes is not read: it is no bandwidth of anything.\n"
        "The operation is in the file (Collective test starting, NAME_perf), else in its name.\n"
        "Run: --job, else the file's name; several tables in a file are numbered #2, #3, ..."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for the names of the columns, or the keys of a -J file, in the head of the file."""
        text = head(source).decode("utf-8", "replace")
        if "algbw" not in text and '"results"' not in text and '"nccl_version"' not in text:
            raise InputError(
                "holds no table of nccl-tests: no line with the columns size, time, algbw, busbw",
                where=str(source),
                hint="name the whole output of a test such as all_reduce_perf, or its -J file",
            )
        return Capabilities(
            tables=("bench_results",),
            level=3,
            sees="bandwidth by size of each operation, wrong results",
            cannot_see="which link or rank is slow; what a training job gets",
        )

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``bench_results``."""
        whole: Whole = raw.payload
        text = text_in(whole, raw.source)
        sweeps, notes = _read(text, raw.source)
        rows: list[dict[str, Any]] = []
        rejects: list[Reject] = []
        if whole.fault:
            rejects.append(Reject("bench_results", whole.fault, text.count("\n") + 1, None, None))
        run = options.job_id or whole.job_id
        names = list(operations_in(Path(raw.source).name))
        for number, sweep in enumerate(sweeps, 1):
            if sweep.operation is None:
                sweep.operation = names[0] if len(names) == 1 else None
                said = "as the file is called" if len(names) == 1 else "not said by the file"
                notes.append(f"the operation is {sweep.operation or 'unknown'}: {said}")
            found, bad = _rows(sweep, run if number == 1 else f"{run}#{number}")
            rows += found
            rejects += bad
            notes += _said(sweep)
        rejects.sort(key=lambda reject: reject.row or 0)
        if not rows and not rejects:
            raise InputError(
                "has the names of the columns and no row",
                where=raw.source,
                hint="the test ended before its first size; look for its error",
            )
        return [Batch("bench_results", rows_of("bench_results", rows), tuple(rejects), _few(notes))]


def _read(text: str, where: str) -> tuple[list[Sweep], list[str]]:
    if text.lstrip()[:1] == "{":
        return [read_json(text, where)], []
    reading = read_text(text)
    notes = []
    if reading.strange:
        line, first = reading.strange[0]
        notes.append(
            counted(
                len(reading.strange),
                "line is neither a row nor a known header",
                "lines are neither rows nor known headers",
            )
            + f"; the first, line {line}: {text_of(first.encode())[:80]!r}"
        )
    return reading.sweeps, notes


def _few(notes: list[str], limit: int = 20) -> tuple[str, ...]:
    fresh = list(dict.fromkeys(notes))
    return tuple(fresh[:limit]) + ((f"and {len(fresh) - limit} more",) if fresh[limit:] else ())


def _rows(sweep: Sweep, run: str) -> tuple[list[dict[str, Any]], list[Reject]]:
    hosts = hosts_of(sweep)
    known = sweep.software | ({"device": ", ".join(models_of(sweep))} if models_of(sweep) else {})
    always = {
        "host": _host(hosts),
        "gpu_uuid": "all",
        "n": sweep.iterations,
        "ranks": len(sweep.ranks) or None,
        "nodes": len(hosts) or None,
        "software": json.dumps(known, sort_keys=True) if known else None,
    }
    rows: list[dict[str, Any]] = []
    rejects = [
        Reject("bench_results", reason, line, None, text_of(raw.encode()))
        for line, reason, raw in sweep.bad
    ]
    cycles: dict[tuple[str, ...], int] = {}
    for row in sweep.rows:
        try:
            size = whole_number(row.leading, "size")
            test = _test(sweep.operation, row.leading)
            cycle = _cycle(cycles, test, size, row)
            mine = always | {"run_id": run if cycle == 1 else f"{run}, cycle {cycle}"}
            mine |= {"size": str(size), "dtype": row.leading.get("type") or "unknown"}
            for place, cells in (("", row.out_of_place), (" in place", row.in_place)):
                wrong = _wrong(cells)
                for metric, unit in _METRICS:
                    value = _figure(cells, metric)
                    # A rounded 0.00 is less than the last digit, not nothing.
                    if value:
                        rows.append(
                            mine
                            | {"test": f"{test} {metric}{place}", "value": value, "unit": unit}
                            | {"wrong": wrong, "source_row": row.line}
                        )
        except BadValueError as bad:
            rejects.append(Reject("bench_results", str(bad), row.line, bad.field, str(row.leading)))
    return rows, rejects


def _cycle(seen: dict[tuple[str, ...], int], test: str, size: int, row: SweepRow) -> int:
    """How often a size has come: a test may run over its sizes several times."""
    if size == 0 and (test, "0") in seen:
        raise BadValueError(
            "size", "one row of 0 bytes", 0, said="a further one; the first is kept"
        )
    key = (test, str(size)) if size == 0 else (test, str(size), str(row.leading.get("type")))
    seen[key] = seen.get(key, 0) + 1
    return seen[key]


def _test(op: str | None, leading: Mapping[str, str]) -> str:
    """Operation, with its reduction and root where they are not the usual ones."""
    redop, root = leading.get("redop", ""), leading.get("root", "")
    said = [redop] if redop not in ("", "sum", "none") else []
    said += [f"root {root}"] if root not in ("", "-1", "0") else []
    return (op or "unknown") + (f" ({', '.join(said)})" if said else "")


def _figure(cells: Mapping[str, str], name: str) -> float | None:
    found = cells.get(name, "")
    if found.upper() in ("", "N/A", "-", "NONE"):
        return None
    return real_number(cells, name)


def _wrong(cells: Mapping[str, str]) -> int | None:
    """Wrong elements; None where the test did not look, or gives an error instead of a count."""
    found = cells.get("wrong", "").rstrip("*")
    if found.upper() in ("", "N/A", "-", "NONE"):
        return None
    if re.fullmatch(r"\d+(\.\d*)?(e\+?\d+)?", found, re.IGNORECASE):
        return int(min(float(found), 2.0**62))
    raise BadValueError("#wrong", "a count", found)


def _said(sweep: Sweep) -> list[str]:
    """What a person must know of a table before using it."""
    notes = [f"the test says: {error}" for error in sweep.errors]
    if sweep.failed:
        notes.append(
            f"{sweep.operation}: {sweep.out_of_bounds} results were out of bounds (FAILED): "
            "the bandwidth of wrong results is none"
        )
    large = [
        cells["error"]
        for row in sweep.rows
        for cells in (row.out_of_place, row.in_place)
        if _large_error(cells.get("error", ""))
    ]
    if large:
        notes.append(f"{sweep.operation}: errors of up to {max(large, key=float)}: wrong results")
    if len(sweep.ranks) == 1:
        notes.append(
            f"{sweep.operation}: one rank, so nothing was communicated; where more were started, "
            "the test was built without MPI (MPI=1) and each ran alone"
        )
    return notes


def _large_error(text: str) -> bool:
    try:
        return float(text.rstrip("*")) > _WRONG_ERROR
    except ValueError:
        return False


def _host(hosts: list[str]) -> str:
    if not hosts:
        return "unknown"
    return ",".join(hosts) if len(hosts) <= _NAMED_HOSTS else f"{len(hosts)} nodes"
