"""``flight-recorder``: what PyTorch remembers of the newest collectives of each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.nccl.communicators import CommunicatorFacts
from steptax.connectors.nccl.flight_recorder_dump import Dump, read_dumps
from steptax.connectors.nccl.names import element_bytes, operation
from steptax.connectors.sources import head
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import BadValueError, optional_number, real_number, short, text_value
from steptax.connectors.wholefile import Whole, job_of, read_whole

_STATES = ("scheduled", "started", "completed")
#: A tensor of more dimensions, or a list of more tensors, is damage.
_MOST_SIZES = 4096
#: Operations whose whole is their output.
_WHOLE_IS_OUTPUT = {"all_gather", "all_gather_v", "gather"}


@dataclass(frozen=True)
class DumpChunk:
    """Payload of the one chunk of a file."""

    whole: Whole
    rank: int | None
    """As a person says it."""


class FlightRecorderConnector(Connector):
    """Dumps of PyTorch's flight recorder."""

    kind = "flight-recorder"
    version = 1
    title = "PyTorch flight recorder dumps: who was behind or missing in a hang; pickle, JSON"
    in_folder = ("*[0-9]", "*[0-9].json", "*[0-9].pickle", "*[0-9].pkl", "*[0-9].gz")
    doc = (
        "Dumps of torch.distributed's flight recorder, one file per rank (TORCH_NCCL_DUMP_ON_"
        "TIMEOUT, TORCH_FR_BUFFER_SIZE), versions 1 to 2.10, pickle or JSON, also packed by gzip; "
        "or one JSON file {ranks: [{rank, dump}, ...]}. A folder of them is read whole.\n"
        "A pickle is a program: one that asks for any class, call or import is refused with its "
        "reason before it is loaded. Flight recorder dumps need none.\n"
        "The rank is in the file name (..._rank_N, PREFIXN), or the only one that fits the groups "
        "of the dump, or --rank N. A JSON dump that breaks off gives its whole entries.\n"
        "Gives each operation's group, sequence number, sizes, types, state and the time at which "
        "the rank issued it, on its own clock; and each group's members with the newest operation "
        "issued and completed. Collectives are numbered apart from sends and receives.\n"
        "Job: the folder of the files; else --job."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for a pickle or for entries in the head of the file."""
        data = head(source)
        if data[:1] != b"\x80" and data.lstrip()[:1] not in (b"{", b"["):
            raise InputError(
                "is no flight recorder dump: neither a pickle nor JSON",
                where=str(source),
                hint="name files that TORCH_NCCL_DUMP_ON_TIMEOUT or dump_nccl_trace wrote",
            )
        return Capabilities(
            tables=("collectives", "communicators"),
            level=3,
            sees="who issued each collective last, who is behind, missing or calls something else",
            cannot_see="why; how long the device worked, unless timing was switched on; older "
            "entries than the ring holds",
        )

    def begin(self, source: Path, options: Options) -> Run:
        """Each communicator and rank is told once."""
        return CommunicatorFacts()

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        whole = read_whole(source, by_folder=True)
        yield RawChunk(str(source), 1, DumpChunk(whole, _said_rank(options)))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``collectives`` and ``communicators``."""
        chunk: DumpChunk = raw.payload
        batches = []
        first = 1
        dumps = read_dumps(chunk.whole, raw.source, chunk.rank)
        # A collection is a job of its own; single dumps lie in a folder together.
        told = chunk.whole.job_id if len(dumps) == 1 else job_of(Path(raw.source), by_folder=False)
        for dump in dumps:
            batches += _batches(dump, options.job_id or told, first)
            first += len(dump.body["entries"])
        return batches


def _said_rank(options: Options) -> int | None:
    said = options.extra.get("rank")
    return None if said is None else int(said)


def _batches(dump: Dump, job_id: str, first: int) -> list[Batch]:
    """``source_row`` counts entries: a dump has no lines."""
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    used: Counter[tuple[str, str, int]] = Counter()
    for number, entry in enumerate(dump.body["entries"], first):
        try:
            row = _entry(entry, dump)
        except BadValueError as bad:
            rejects.append(Reject("collectives", str(bad), number, bad.field, short(entry)))
            continue
        key = (row["comm_id"], row["op"], row["seq"])
        used[key] += 1
        if used[key] > 1 and row["op"].startswith(("send", "recv", "coalesced")):
            # Transfers of one batch share their number.
            row["op"] += f" #{used[key]}"
        rows.append({"job_id": job_id, "rank": dump.rank, "source_row": number} | row)
    if dump.lost:
        end = first + len(dump.body["entries"])
        rejects.append(Reject("collectives", dump.lost, end, None, None))
    states, notes = _communicators(dump, job_id)
    return [
        Batch("collectives", rows_of("collectives", rows), tuple(rejects), (*dump.notes, *notes)),
        Batch("communicators", rows_of("communicators", states)),
    ]


def _entry(entry: Any, dump: Dump) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise BadValueError("entries", "a dictionary", entry)
    name = text_value(entry, "profiling_name")
    if name is None:
        raise BadValueError(
            "profiling_name", "the name of an operation", entry.get("profiling_name")
        )
    op = operation(name)
    transfer = op.startswith(("send ", "recv ")) or entry.get("is_p2p") is True
    comm_id = _group(entry)[0]
    members = dump.groups.get(comm_id)
    dtype = _dtype(entry.get("input_dtypes")) or _dtype(entry.get("output_dtypes"))
    state = text_value(entry, "state")
    if state is not None and state not in _STATES:
        raise BadValueError("state", f"one of {', '.join(_STATES)}", state)
    inputs, outputs = (_sizes(entry, f"{side}_sizes") for side in ("input", "output"))
    took_ms = real_number(entry, "duration_ms")
    if took_ms is not None and took_ms > 2.0**43:
        raise BadValueError("duration_ms", "a duration", took_ms)
    return {
        "comm_id": comm_id,
        "op": op,
        "seq": _sequence(entry, transfer),
        "rank_scope": "global",
        "name": name,
        "dtype": dtype,
        "bytes": _bytes(outputs if op in _WHOLE_IS_OUTPUT else inputs, dtype),
        "shape": _shape(inputs, outputs),
        "n_ranks": len(members) if members else None,
        "enqueued_us": _moment(entry, "time_created_ns"),
        "start_us": _moment(entry, "time_discovered_started_ns"),
        "duration_us": None if not took_ms else round(took_ms * 1000) or None,
        "state": state,
    }


def _group(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Name and description of an entry's group; before version 2.1 only its number is there."""
    said = entry.get("process_group")
    if isinstance(said, (list, tuple)) and said and isinstance(said[0], (str, int)):
        about = said[1] if len(said) > 1 and isinstance(said[1], str) else None
        return str(said[0]), None if about in (None, "", "undefined") else about
    return str(optional_number(entry, "pg_id") or 0), None


def _sequence(entry: Mapping[str, Any], transfer: bool) -> int:
    """Number of an operation; collectives and transfers are numbered apart."""
    fields = ("p2p_seq_id",) if transfer else ("collective_seq_id", "seq_id")
    for name in (*fields, "seq_id", "op_id"):
        number = optional_number(entry, name)
        if number is not None:
            return number
    raise BadValueError(fields[0], "a sequence number", None)


def _moment(entry: Mapping[str, Any], name: str) -> int | None:
    """Epoch microseconds; 0 in JSON dumps is a time that is not known."""
    found = optional_number(entry, name)
    return found // 1000 if found else None


def _dtype(said: Any) -> str | None:
    first = said[0] if isinstance(said, (list, tuple)) and said else said
    return first if isinstance(first, str) and first else None


def _sizes(entry: Mapping[str, Any], name: str) -> list[list[int]] | None:
    """Sizes of tensors; BadValueError when they are none."""
    said = entry.get(name)
    if said is None:
        return None
    if not isinstance(said, (list, tuple)) or len(said) > _MOST_SIZES:
        raise BadValueError(name, "sizes of tensors", said)
    sizes = []
    for tensor in said:
        whole = isinstance(tensor, (list, tuple)) and len(tensor) <= _MOST_SIZES
        if not whole or not all(isinstance(n, int) and 0 <= n < 2**63 for n in tensor):
            raise BadValueError(name, "sizes of tensors", tensor)
        sizes.append([int(n) for n in tensor])
    return sizes


def _shape(inputs: list[list[int]] | None, outputs: list[list[int]] | None) -> str | None:
    if not inputs and not outputs:
        return None
    return " -> ".join(f"{side if side is not None else 'unknown'}" for side in (inputs, outputs))


def _bytes(sizes: list[list[int]] | None, dtype: str | None) -> int | None:
    """Bytes of all tensors; None where a size or the type is not known."""
    each = element_bytes(dtype) if dtype else None
    if not sizes or each is None:
        return None
    total = 0
    for tensor in sizes:
        elements = 1
        for n in tensor:
            elements = min(elements * n, 2**63)
        total += elements * each
    return total if total < 2**63 else None


def _communicators(dump: Dump, job_id: str) -> tuple[list[dict[str, Any]], list[str]]:
    """One row per group that the dump lists or has entries of."""
    body = dump.body
    names, about = _names_of(dump)
    config = body.get("pg_config")
    version = body.get("nccl_version") or body.get("comm_lib_version")
    rows: dict[str, dict[str, Any]] = {}
    for name in (*dump.groups, *about):
        said = config.get(name) if isinstance(config, dict) else None
        told = said.get("desc") if isinstance(said, dict) else None
        members = dump.groups.get(name)
        rows[name] = {
            "job_id": job_id,
            "comm_id": name,
            "rank": dump.rank,
            "rank_scope": "global",
            "name": told if isinstance(told, str) and told else about.get(name),
            "n_ranks": len(members) if members else None,
            "members": ",".join(map(str, sorted(members))) if members else None,
            "library": version[:200] if isinstance(version, str) and version else None,
        }
    notes = []
    status = body.get("pg_status")
    for number, said in status.items() if isinstance(status, dict) else ():
        row = rows.get(names.get(str(number), ""))
        if row is None or not isinstance(said, dict):
            notes.append(
                f"rank {dump.rank}: the state of group number {str(number)[:20]} is left out: "
                "nothing in the dump tells which group it is"
            )
            continue
        for column in ("enqueued", "started", "completed"):
            try:
                value = optional_number(said, f"last_{column}_collective", floor=-1)
            except BadValueError as bad:
                notes.append(f"rank {dump.rank}: {bad.field} is left out: {bad}")
                continue
            # -1 = none yet, or timing is off.
            row[f"last_{column}"] = None if value == -1 and column != "completed" else value
    return list(rows.values()), notes


def _names_of(dump: Dump) -> tuple[dict[str, str], dict[str, str | None]]:
    """Name of a group by the number that ``pg_status`` uses; description by name.

    Entries give both. A group without entries is matched by the order of creation, in which both
    number and name grow: where both lists are equally long and no entry contradicts.
    """
    names: dict[str, str] = {}
    about: dict[str, str | None] = {}
    for entry in dump.body["entries"]:
        if not isinstance(entry, dict):
            continue
        try:
            name, told = _group(entry)
            number = optional_number(entry, "pg_id")
        except BadValueError:
            continue
        about.setdefault(name, told)
        if number is not None:
            names.setdefault(str(number), name)
    status = dump.body.get("pg_status")
    numbers = [str(n) for n in status] if isinstance(status, dict) else []
    groups = list(dump.groups)
    if len(numbers) == len(groups) and all(n.isdecimal() for n in (*numbers, *groups)):
        ordered = zip(sorted(numbers, key=int), sorted(groups, key=int), strict=True)
        by_order = dict(ordered)
        if all(by_order.get(number, name) == name for number, name in names.items()):
            names = by_order | names
    return names, about
