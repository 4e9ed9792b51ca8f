"""``nccl-ras``: what NCCL's RAS subsystem answers about a running job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.nccl.communicators import CommunicatorFacts
from steptax.connectors.nccl.names import operation
from steptax.connectors.nccl.ras_text import ALL_RANKS, read_ras_text
from steptax.connectors.sources import head, text_of
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import (
    BadValueError,
    optional_number,
    short,
    text_value,
    whole_number,
)
from steptax.connectors.wholefile import Whole, WholeFileConnector, text_in, whole_json

_MARKS = (
    *('"communicators"', "Job summary", "Communicators...", "RAS Monitor", "in group  per comm"),
    *("MISMATCH", "INCOMPLETE", "PEER_"),
)
_SUCCESS, _IN_PROGRESS = 0, 7
#: ncclResult_t by number.
_RESULTS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}


class NcclRasConnector(WholeFileConnector):
    """Answers of ``ncclras``."""

    kind = "nccl-ras"
    version = 1
    title = "NCCL RAS: ranks that are behind, silent or dead, as ncclras prints; text and JSON"
    doc = (
        "Output of ncclras, or of 'verbose status' on port 28028: text (NCCL 2.24 and newer) or "
        "JSON (ncclras -f json, 2.28.7 and newer), also lines of its monitor mode.\n"
        "Gives communicators: per rank its state (RUNNING, INIT, FINALIZE, ABORT, NOCOMM, "
        "UNRESPONSIVE, DEAD, ERROR: ...) and how many operations of each kind it has launched. "
        "The text names only ranks that stand out; what most do is kept as rank -1.\n"
        "rank is the rank inside the communicator. Counts that differ are normal in a job that "
        "runs: ask again, and compare. Written from NCCL's sources and the samples of its user "
        "guide; not yet run on the output of a real job.\n"
        "Job: --job, else the file's name."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for the headings of the text or the keys of the JSON in the head of the file."""
        text = head(source).decode("utf-8", "replace")
        if not any(mark in text for mark in _MARKS):
            raise InputError(
                "holds no answer of NCCL RAS: no communicators",
                where=str(source),
                hint="write one: ncclras -v > FILE, or ncclras -f json > FILE",
            )
        return Capabilities(
            tables=("communicators",),
            level=3,
            sees="ranks that launched fewer operations than their peers, are silent or dead",
            cannot_see="times; the step; which collective hangs, beyond its kind and number",
        )

    def begin(self, source: Path, options: Options) -> Run:
        """Each communicator and rank is told once."""
        return CommunicatorFacts()

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``communicators``."""
        whole: Whole = raw.payload
        text = text_in(whole, raw.source)
        job = {"job_id": options.job_id or whole.job_id}
        notes: list[str] = []
        if text.lstrip()[:1] == "{":
            rows, rejects = _json_rows(text, raw.source, notes)
        else:
            reading = read_ras_text(text)
            rows = list(reading.rows.values())
            rejects = [
                Reject("communicators", "expected a line of ncclras, found another", line, None, t)
                for line, t in ((n, text_of(t.encode())) for n, t in reading.strange)
            ]
        if whole.fault:
            end = text.count("\n") + 1
            rejects.append(Reject("communicators", whole.fault, end, None, None))
        if not rows and not rejects:
            raise InputError(
                "tells of no communicator",
                where=raw.source,
                hint="the job had none yet, or the answer is cut: ask again, ncclras -v",
            )
        table = rows_of("communicators", [job | row for row in rows])
        return [Batch("communicators", table, tuple(rejects), tuple(notes))]


def _json_rows(
    text: str, where: str, notes: list[str]
) -> tuple[list[dict[str, Any]], list[Reject]]:
    try:
        body = whole_json(text)
    except ValueError as error:
        raise InputError(
            f"is no whole JSON document: {error}", where=where, hint="ask again: ncclras -f json"
        ) from None
    found = body.get("communicators") if isinstance(body, dict) else None
    if not isinstance(found, list):
        raise InputError(
            "is no answer of NCCL RAS: it has no list of communicators",
            where=where,
            hint="write one: ncclras -f json > FILE; monitor mode is read as text",
        )
    version = body.get("nccl_version")
    library = {"library": f"NCCL {version}" if isinstance(version, str) else None}
    taken = body.get("timestamp")
    if isinstance(taken, str):
        notes.append(f"asked at {taken[:40]}, local time of the job")
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    for number, communicator in enumerate(found, 1):
        try:
            rows += [library | row for row in _communicator(communicator, number)]
        except BadValueError as bad:
            raw = short(communicator)
            rejects.append(Reject("communicators", str(bad), number, bad.field, raw))
    return rows, rejects


def _communicator(said: Any, number: int) -> Iterator[dict[str, Any]]:
    """The communicator as a whole, its ranks, and those that did not answer."""
    if not isinstance(said, dict):
        raise BadValueError("communicators", "an object", said)
    comm_id = text_value(said, "hash")
    if comm_id is None:
        raise BadValueError("hash", "the hash of a communicator", said.get("hash"))
    always = {
        "comm_id": comm_id.lower(),
        "rank_scope": "communicator",
        "n_ranks": whole_number(said, "size", floor=1, small=True),
        "source_row": number,
    }
    ranks = [_rank(rank) for rank in _list(said, "ranks")]
    missing = [_missing(rank) for rank in _list(said, "missing_ranks")]
    yield always | {"rank": ALL_RANKS, "state": "INCOMPLETE" if missing else None}
    for row in (*ranks, *missing):
        yield always | row


def _list(said: Mapping[str, Any], field: str) -> list[Any]:
    found = said.get(field, [])
    if not isinstance(found, list):
        raise BadValueError(field, "a list", found)
    return found


def _rank(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise BadValueError("ranks", "an object", said)
    counts = said.get("collective_counts")
    counts = counts if isinstance(counts, dict) else {}
    launched = {operation(str(name)): whole_number(counts, name) for name in counts}
    status = said.get("status")
    return _where(said) | {
        "op_counts": json.dumps(launched, sort_keys=True) if launched else None,
        "state": _state(status if isinstance(status, dict) else {}),
    }


def _state(status: Mapping[str, Any]) -> str | None:
    """As the text form calls it; an error says which."""
    for field in ("init_state", "async_error"):
        code = optional_number(status, field)
        if code not in (None, _SUCCESS, _IN_PROGRESS):
            return f"ERROR: {_RESULTS.get(code or 0, f'result {code}')} ({field})"
    if status.get("abort_flag") is True:
        return "ABORT"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "FINALIZE"
    begun = optional_number(status, "init_state")
    return None if begun is None else "RUNNING" if begun == _SUCCESS else "INIT"


def _missing(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise BadValueError("missing_ranks", "an object", said)
    status = said.get("status")
    status = status if isinstance(status, dict) else {}
    dead, silent = (status.get(key) is True for key in ("considered_dead", "unresponsive"))
    return _where(said) | {"state": "DEAD" if dead else "UNRESPONSIVE" if silent else "NOCOMM"}


def _where(said: Mapping[str, Any]) -> dict[str, Any]:
    host, pid = text_value(said, "host"), optional_number(said, "pid", floor=-1)
    device = optional_number(said, "nvml_dev", floor=-1)
    return {
        "rank": whole_number(said, "rank", small=True),
        "host": None if host == "unknown" else host,
        "pid": None if pid == -1 else pid,
        "device": None if device in (None, -1) else str(device),
    }
