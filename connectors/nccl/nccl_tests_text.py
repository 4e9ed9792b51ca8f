"""The text that nccl-tests and rccl-tests print, of any generation, with what a launcher adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from steptax.connectors.nccl.names import operation
from steptax.connectors.wholefile import LINE_CHARACTERS, numbered

_TAG = re.compile(
    r"^\[(?P<who>[^\]\s]*\d+,\d+)\]<(?:stdout|stderr|stddiag)>:? ?|^\s*(?P<label>\d+):(?=\s)"
)
_RANK = re.compile(
    r"^#\s*Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+(?P<device>\d+)(?:\s+\[[^\]]*\])?\s*(?P<model>.*?)\s*$",
    re.IGNORECASE,
)
_VERSION = re.compile(
    r"^#?\s*(?:nccl-tests version (?P<tests>\S+)(?: nccl-headers=\d+ nccl-library=(?P<nccl>\d+))?"
    r"|rccl-tests: Version (?P<rccl_tests>\S+)|RCCL version\s*:\s*(?P<rccl>\S+)"
    r"|HIP version\s*:\s*(?P<hip>\S+)|ROCm version\s*:\s*(?P<rocm>\S+))"
)
_STARTING = re.compile(r"^#\s*Collective test starting:\s*(?P<name>\w+)")
_PERF = re.compile(r"(?:^|[/\s\"'=])(?P<name>[a-z_]+)_perf(?:_mpi)?\b")
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(?P<count>\d+)\s*(?P<verdict>\w*)")
_ITERATIONS = re.compile(r"(?<!warmup )\biters:\s*(\d+)")
_ERROR = re.compile(r"^#\s*error:?\s*(?P<text>.+)", re.IGNORECASE)
_NOISE = re.compile(r"NCCL (?:INFO|WARN|TRACE)|Hostname\s*:|Librccl path\s*:")
_SYNONYMS = {
    "bytes": "size",
    "n": "count",
    "op": "redop",
    "#wrong": "wrong",
    "wrong": "wrong",
    "res": "error",
    "cpu_time": "time",
    "cputime": "time",
    "cpu-time": "time",
}
#: What stands before the first measured column; a redop may be blank.
_LEADING = ("size", "count", "type", "redop", "root")
_UNITS = {"B", "elements", "us", "GB/s"}


@dataclass
class Sweep:
    """One table: sizes of one operation, with what was printed around it."""

    line: int
    columns: tuple[str, ...] = ()
    operation: str | None = None
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Rank -> host and device model."""
    software: dict[str, str] = field(default_factory=dict)
    iterations: int | None = None
    rows: list[SweepRow] = field(default_factory=list)
    bad: list[tuple[int, str, str]] = field(default_factory=list)
    """Line, reason and text of each row that was not understood."""
    out_of_bounds: int | None = None
    failed: bool = False
    errors: list[str] = field(default_factory=list)
    unit: str | None = None
    """Why no figure of the table can be used: its units are others."""


@dataclass(frozen=True)
class SweepRow:
    """One size: the leading cells, and the measured cells out of place and in place, as text."""

    line: int
    leading: Mapping[str, str]
    out_of_place: Mapping[str, str]
    in_place: Mapping[str, str]


@dataclass
class Reading:
    """All tables of a text, and the lines that are neither theirs nor known noise."""

    sweeps: list[Sweep]
    strange: list[tuple[int, str]]


def read_text(text: str) -> Reading:
    """Every table of a text. Processes that a launcher tags are read apart."""
    current: dict[str, Sweep] = {}
    reading = Reading([], [])
    seen_perf: str | None = None
    for number, raw in numbered(text):
        if len(raw) > LINE_CHARACTERS:
            reading.strange.append((number, raw[:LINE_CHARACTERS]))
            continue
        tag = _TAG.match(raw)
        who = (tag["who"] or tag["label"]) if tag else ""
        line = raw[tag.end() :] if tag else raw
        if not line.strip():
            continue
        sweep = current.get(who)
        begins = re.match(r"^#\s*nThread\b", line) is not None
        if sweep is None or (sweep.rows and (begins or _STARTING.match(line))):
            current[who] = sweep = Sweep(number)
        perf = _PERF.search(line)
        if perf and not line.startswith("#"):
            seen_perf = operation(perf["name"])
        if line.lstrip().startswith("#"):
            _header(sweep, line.strip())
        elif _looks_like_row(line):
            _row(sweep, number, line)
            if len(sweep.rows) + len(sweep.bad) == 1:
                sweep.operation = sweep.operation or seen_perf
                reading.sweeps.append(sweep)
        elif not _versions(sweep, line) and not perf and not _NOISE.search(line):
            reading.strange.append((number, raw))
    return reading


def _header(sweep: Sweep, line: str) -> None:
    rank = _RANK.match(line)
    if rank:
        sweep.ranks[int(rank["rank"])] = (rank["host"], rank["model"])
        return
    starting = _STARTING.match(line)
    if starting:
        name = starting["name"].removesuffix("_mpi").removesuffix("_perf")
        sweep.operation = operation(name)
        return
    if re.match(r"^#\s*nThread\b", line):
        iterations = _ITERATIONS.search(line)
        sweep.iterations = int(iterations[1]) if iterations else None
        return
    bounds = _BOUNDS.match(line)
    if bounds:
        sweep.out_of_bounds = int(bounds["count"])
        sweep.failed |= bounds["verdict"].upper() == "FAILED" or int(bounds["count"]) > 0
        return
    error = _ERROR.match(line)
    if error and "asterisk" not in line and "algbw" not in line:
        sweep.errors.append(error["text"][:200])
        return
    names = [_SYNONYMS.get(n.lower(), n.lower()) for n in line.lstrip("#").split()]
    if "algbw" in names and "size" in names:
        sweep.columns = tuple(names)
        return
    units = re.findall(r"\(([^)\s]+)\)", line)
    if units and "(B)" in line and not set(units) <= _UNITS:
        sweep.unit = f"units are {', '.join(sorted(set(units)))}, expected (B), (us) and (GB/s)"
        return
    _versions(sweep, line)


def _versions(sweep: Sweep, line: str) -> bool:
    found = _VERSION.match(line.strip())
    if found is None:
        return False
    for name, value in found.groupdict().items():
        if value is not None:
            sweep.software[name] = nccl_version(value) if name == "nccl" else value
    return True


def nccl_version(code: str) -> str:
    """``22907`` -> ``2.29.7``: major, two digits of minor, two of patch; 4 digits before 2.9."""
    number = int(code)
    if number >= 10_000:
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _looks_like_row(line: str) -> bool:
    cells = line.split()
    return len(cells) >= 5 and cells[0].isdecimal() and cells[1].isdecimal()


def _row(sweep: Sweep, number: int, line: str) -> None:
    if not sweep.columns:
        sweep.bad.append((number, "expected the names of the columns before a row", line))
        return
    if sweep.unit:
        sweep.bad.append((number, sweep.unit, line))
        return
    leading, measured = _groups(sweep.columns)
    cells = line.split()
    if measured is None or len(cells) < 3 + 2 * len(measured):
        reason = f"expected the columns {' '.join(sweep.columns)}, found {len(cells)} cells"
        sweep.bad.append((number, reason, line))
        return
    values = cells[-2 * len(measured) :]
    before = cells[: -2 * len(measured)]
    if len(before) > len(leading):
        reason = f"expected at most {len(sweep.columns)} cells, found {len(cells)}"
        sweep.bad.append((number, reason, line))
        return
    half = len(measured)
    sweep.rows.append(
        SweepRow(
            number,
            _leading(leading, before),
            dict(zip(measured, values[:half], strict=True)),
            dict(zip(measured, values[half:], strict=True)),
        )
    )


def _groups(columns: tuple[str, ...]) -> tuple[list[str], list[str] | None]:
    """Leading columns, and those of one of the two equal groups that follow; None if not equal."""
    start = next((i for i, n in enumerate(columns) if n not in _LEADING and n != "timestamp"), 0)
    rest = columns[start:]
    half = len(rest) // 2
    equal = half > 0 and rest[:half] == rest[half:] and {"time", "algbw", "busbw"} <= set(rest)
    return list(columns[:start]), list(rest[:half]) if equal else None


def _leading(names: list[str], cells: list[str]) -> dict[str, str]:
    """Cells by name; where one is missing it is the reduction, which some operations leave blank.

    A root is a whole number and a reduction is not.
    """
    found: dict[str, str] = {}
    left = list(cells)
    for name in names:
        missing = len([n for n in names if n not in found]) > len(left)
        number = bool(left) and re.fullmatch(r"-?\d+", left[0]) is not None
        if not left or (missing and name == "redop" and (number or len(left) == 0)):
            found[name] = ""
            continue
        found[name] = left.pop(0)
    return found


def hosts_of(sweep: Sweep) -> list[str]:
    """Hosts of the ranks, in their order, each once."""
    return list(dict.fromkeys(host for _, (host, _) in sorted(sweep.ranks.items())))


def models_of(sweep: Sweep) -> list[str]:
    """Device models, each once."""
    return list(dict.fromkeys(m for _, (_, m) in sorted(sweep.ranks.items()) if m))


def operations_in(name: str) -> Iterator[str]:
    """Operations that a file name speaks of."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    order = ("reducescatter", "allreduce", "allgather", "alltoall", "sendrecv", "broadcast")
    for word in (*order, "reduce", "gather", "scatter", "hypercube"):
        if word in plain:
            plain = plain.replace(word, "-")
            yield operation(word)
