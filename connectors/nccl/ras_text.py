"""The text that ``ncclras`` prints: which communicators disagree, and on which ranks.

The text names a rank only where it is an outlier; of the others it gives numbers. Forms from
NCCL 2.24 to 2.31 (src/ras/client_support.cc and the RAS chapter of the user guide).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from steptax.connectors.nccl.names import operation
from steptax.connectors.wholefile import LINE_CHARACTERS, numbered

#: The rank of what is said of a communicator as a whole.
ALL_RANKS = -1

# A number that no counter holds is no number: such a line is told as not understood.
_SUMMARY = re.compile(
    r"\s*(?P<group>\d{1,9})\s+(?P<comms>\d{1,9})\s+(?P<nodes>\d{1,9})\s+\d+(?:-\d+)?\s+(?P<ranks>\d{1,9})\s+\d+\s+"
    r"(?P<status>[A-Z]+)\s+(?P<errors>[A-Z,]+)\s*"
)
_COMMUNICATOR = re.compile(
    r"#(?P<group>\d{1,9})-\d+ \((?P<hash>[0-9a-fA-F]{1,16})\) (?P<what>[A-Z,]+)\s*"
)
_PLACE = (
    r"(?: -- (?:GPU (?P<gpu>\S+(?: \(NVML \S+\))?) managed by process (?P<pid>\d{1,9}) on node "
    r"(?P<host>\S+)|\[process information not found\]))?\s*"
)
_WHAT = (
    r"(?:launched up to operation (?P<count>\d{1,18})|(?P<none>not launched any operations)"
    r"|status (?P<status>[A-Z]+))"
)
_RANK = re.compile(
    rf"\s*Rank (?P<rank>\d{{1,9}})(?: has {_WHAT}| reported (?P<error>[^-]+?))?{_PLACE}"
)
_RANKS = re.compile(
    rf"\s*(?P<number>\d{{1,9}}) ranks (?:have {_WHAT}|reported (?P<error>.+?))\s*", re.IGNORECASE
)
_DIFFERENT = re.compile(r"\s*Communicator ranks have different (?P<op>\w+)(?: operation counts)?.*")
_MISSING = re.compile(r"\s*The missing ranks?: (?P<ranks>(?:\d{1,9}[, ]+)*\d{1,9})\s*")
_MISSING_DATA = re.compile(r"\s*Missing communicator data from \d+ (?P<what>rank|job process).*")
_PROCESS = re.compile(
    r"(?:\[(?P<when>[^\]]+)\] (?P<event>PEER_\w+): |\s*)Process (?P<pid>\d{1,9}) on node "
    r"(?P<host>\S+) managing GPUs? (?P<gpu>.+?)\s*"
)
_VERSION = re.compile(r"NCCL version (?P<version>\S+).*")
#: Lines that hold nothing that is not said elsewhere.
_FRAME = re.compile(
    r"\s*(?:Job summary|=+|-+|Communicators\.\.\..*|Errors|Warnings|INCOMPLETE|DEAD|TIMEOUT"
    r"|Group\s+Comms\s.*|#\s+in group.*|Nodes\s+Processes.*|\(total\).*|(?:\d+\s+)+\d+|Processes.*"
    r"|per node.*|per process.*|CUDA runtime version.*|No communicator data collected!"
    r"|(?:Initialization|Asynchronous) errors? on \d+ ranks?.*|The outlier nodes?:|Node \S+ running"
    r".*|Encountered \d+ communication timeouts?.*|\d+ job process(?:es are| is) considered dead.*"
    r"|\[could not find information on \d+ process(?:es)?\]|RAS Monitor Mode.*|OK"
    r"|SERVER PROTOCOL \d+|CUDA driver.*|.*warning: .*)\s*",
    re.IGNORECASE,
)


@dataclass
class RasReading:
    """Rows of ``communicators`` by communicator and rank, and what was not understood."""

    rows: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    strange: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class _Place:
    """Where in the text the reader is."""

    comm_id: str | None = None
    section: str = ""
    """INCOMPLETE, DEAD or what the communicator's heading says."""
    op: str | None = None
    outlier: dict[str, Any] = field(default_factory=dict)
    """What the ranks of the following lines have in common."""
    most: dict[str, int] = field(default_factory=dict)
    """Of each operation the number of ranks that stand where most do."""


def read_ras_text(text: str) -> RasReading:
    """Communicators and ranks of the text."""
    reading = RasReading()
    place = _Place()
    sizes: dict[str, dict[str, Any]] = {}
    library = None
    for number, line in numbered(text):
        if not line.strip():
            continue
        if len(line) > LINE_CHARACTERS:
            reading.strange.append((number, line[:LINE_CHARACTERS]))
            continue
        version = _VERSION.fullmatch(line)
        summary = _SUMMARY.fullmatch(line)
        heading = _COMMUNICATOR.fullmatch(line)
        if version:
            library = f"NCCL {version['version']}"
        elif summary:
            sizes[summary["group"]] = _summary(reading, summary, number)
        elif heading:
            place = _Place(f"0x{heading['hash'].lstrip('0').lower() or '0'}", heading["what"])
            row = _row(reading, place.comm_id or "", ALL_RANKS, number)
            told = row.get("state")
            row["state"] = f"{told},{heading['what']}" if told else heading["what"]
            row |= sizes.get(heading["group"], {})
        elif not _detail(reading, place, line, number):
            if line.strip() in {"INCOMPLETE", "DEAD", "TIMEOUT", "Errors", "Warnings"}:
                place = _Place(None, line.strip())
            if not _FRAME.fullmatch(line):
                reading.strange.append((number, line))
    for row in reading.rows.values():
        row["library"] = library
        if "op_counts" in row:
            row["op_counts"] = json.dumps(row["op_counts"], sort_keys=True)
    return reading


def _summary(reading: RasReading, found: re.Match[str], number: int) -> dict[str, Any]:
    size = {"n_ranks": int(found["ranks"]), "n_nodes": int(found["nodes"])}
    row = _row(reading, f"group {found['group']}", ALL_RANKS, number)
    row |= size | {
        "name": f"{found['comms']} communicators of {found['ranks']} ranks",
        "state": f"{found['status']} {found['errors']}",
    }
    return size


def _detail(reading: RasReading, place: _Place, line: str, number: int) -> bool:
    """Take a line of a section; False when it is none."""
    process = _PROCESS.fullmatch(line)
    if process:
        event = process["event"]
        state = event.removeprefix("PEER_") if event else place.section
        row = _row(reading, f"process {process['host']}:{process['pid']}", ALL_RANKS, number)
        row |= {"host": process["host"], "pid": int(process["pid"]), "device": process["gpu"]}
        row["state"] = "UNRESPONSIVE" if state == "INCOMPLETE" else state or None
        return True
    different = _DIFFERENT.fullmatch(line)
    if different:
        # Before NCCL 2.26 all kinds were counted together, as "collective".
        place.op = None if different["op"] == "status" else operation(different["op"])
        place.outlier = {}
        return True
    if _MISSING_DATA.fullmatch(line):
        place.outlier = {"state": "UNRESPONSIVE"}
        return True
    if place.comm_id is None:
        return False
    missing = _MISSING.fullmatch(line)
    if missing:
        for rank in re.findall(r"\d+", missing["ranks"]):
            _row(reading, place.comm_id, int(rank), number)["state"] = "UNRESPONSIVE"
        return True
    several = _RANKS.fullmatch(line)
    if several:
        place.outlier = _said(place, several)
        _remember_most(reading, place, int(several["number"]), number)
        return True
    rank = _RANK.fullmatch(line)
    if rank is None:
        return False
    said = _said(place, rank)
    if said:
        place.outlier = said
        _remember_most(reading, place, 1, number)
    row = _row(reading, place.comm_id, int(rank["rank"]), number)
    counts = place.outlier.get("op_counts", {})
    row |= {key: value for key, value in place.outlier.items() if key != "op_counts"}
    if counts:
        row["op_counts"] = row.get("op_counts", {}) | counts
    if rank["pid"]:
        row |= {"host": rank["host"], "pid": int(rank["pid"]), "device": rank["gpu"]}
    return True


def _said(place: _Place, found: re.Match[str]) -> dict[str, Any]:
    """What a line says of one rank or several: their newest operation, status or error."""
    if found["count"] or found["none"]:
        count = int(found["count"]) if found["count"] else 0
        return {"op_counts": {place.op or "collective": count}} if count < 2**63 else {}
    if found["status"]:
        # Before NCCL 2.26 a rank that is no member any more was called unknown.
        return {"state": "NOCOMM" if found["status"] == "UNKNOWN" else found["status"]}
    return {"state": f"ERROR: {found['error'].strip()}"} if found["error"] else {}


def _remember_most(reading: RasReading, place: _Place, ranks: int, number: int) -> None:
    """Of each operation keep with the communicator where most of its ranks stand."""
    for op, count in place.outlier.get("op_counts", {}).items():
        if ranks > place.most.get(op, 0):
            place.most[op] = ranks
            row = _row(reading, place.comm_id or "", ALL_RANKS, number)
            row["op_counts"] = row.get("op_counts", {}) | {op: count}


def _row(reading: RasReading, comm_id: str, rank: int, number: int) -> dict[str, Any]:
    scope = "communicator"
    fresh = {"comm_id": comm_id, "rank": rank, "rank_scope": scope, "source_row": number}
    return reading.rows.setdefault((comm_id, rank), fresh)
