"""``opencost``: what OpenCost's allocation API tells of pods on Kubernetes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.sources import head, refuse_no_text, text_of
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.norows import no_rows
from steptax.connectors.values import BadValueError
from steptax.connectors.wholefile import read_json_whole, whole_json

#: Names that OpenCost gives to what belongs to nobody.
_NOBODY = ("__idle__", "__unmounted__", "__unallocated__")


class OpenCostConnector(Connector):
    """Jobs from the allocations of OpenCost or Kubecost."""

    kind = "opencost"
    version = 1
    title = "OpenCost and Kubecost: JSON of the allocation API, of one or several windows"
    doc = (
        "The answer of /allocation (or /allocation/compute) of OpenCost or Kubecost, best with "
        "aggregate=pod. Each allocation is a job called by its name; the windows of a series are "
        "added. GPU-hours are those that it states: GPUs requested times hours, used or not. "
        "Fractions of a GPU count as such. A label 'team' of the pod or of its namespace is who "
        "pays, else the namespace. What is idle or unallocated is no job and is told in a note.\n"
        "Its costs are list prices times requests and no bill, so they are not stored: connect "
        "the bill. Rows are counted as lines: the first allocation is 1."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for the answer's frame in the head of the file."""
        if options.job_id is not None:
            raise InputError("the answer names its jobs itself", where="--job", hint="leave it out")
        data = head(source)
        refuse_no_text(data, str(source), "the JSON of the allocation API is read")
        if b'"data"' not in data and b'"code"' not in data:
            raise InputError(
                "is no answer of the allocation API: there is no 'data' at its beginning",
                where=str(source),
                hint="save it by: curl 'http://HOST:9003/allocation?window=7d&aggregate=pod'",
            )
        return Capabilities(
            ("jobs",),
            0,
            "GPU-hours that pods asked for, their namespaces and when they ran",
            "whether the GPUs were used; steps; what was paid",
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        yield RawChunk(str(source), 1, read_json_whole(source))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """One row per allocation of each window; the end of the source adds them."""
        rows: list[dict[str, Any]] = []
        rejects: list[Reject] = []
        idle_hours, grouped = 0.0, False
        for place, (name, value) in enumerate(_allocations(raw.payload, raw.source), 1):
            try:
                row = _row(name, value) | {"source_row": place}
            except BadValueError as error:
                shown = text_of(json.dumps(value, default=str)[:500].encode("utf-8", "replace"))
                rejects.append(Reject("jobs", str(error), place, error.field, shown))
                continue
            if name.rsplit("/", 1)[-1] in _NOBODY:
                idle_hours += row["gpu_hours"] or 0.0
                continue
            grouped |= row.pop("_grouped")
            rows.append(row)
        notes: tuple[str, ...] = ()
        if idle_hours:
            notes += (f"{idle_hours:,.2f} GPU-hours are idle or unallocated, and no job",)
        if grouped:
            notes += ("rows are sums of several pods, not jobs: ask for aggregate=pod",)
        found = rows_of("jobs", rows) if rows else no_rows("jobs")
        return [Batch("jobs", found, tuple(rejects), notes)]

    def begin(self, source: Path, options: Options) -> Run:
        """Adds the windows of each allocation."""
        return _Windows(source, options)


class _Windows(Run):
    def __init__(self, source: Path, options: Options) -> None:
        self._source, self._options = source, options
        self._jobs: dict[str, dict[str, Any]] = {}
        self._said = False

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Add what the windows say of each job; pass rejects and notes on."""
        for row in batch.rows.to_pylist():
            known = self._jobs.setdefault(row["job_id"], row)
            if known is row:
                continue
            for name, fold in (("start_us", min), ("end_us", max), ("world_size", max)):
                told = [r[name] for r in (known, row) if r.get(name) is not None]
                known[name] = fold(told) if told else None
            hours = known.get("gpu_hours"), row.get("gpu_hours")
            known["gpu_hours"] = None if None in hours else math.fsum(h or 0.0 for h in hours)
        self._said |= bool(batch.rejects or batch.notes)
        yield Batch(batch.table, no_rows("jobs"), batch.rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """One row per job."""
        if not self._jobs:
            if not self._said:
                raise InputError(
                    "holds no allocation", where=str(self._source), hint="check the window"
                )
            return
        model = {"gpu_model": self._options.gpu_model} if self._options.gpu_model else {}
        yield Batch("jobs", rows_of("jobs", [row | model for row in self._jobs.values()]))


def _allocations(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    """Name and content of each allocation; InputError when the answer is none."""
    try:
        found = whole_json(data.decode("utf-8", "replace"))
    except ValueError as error:
        raise InputError(
            f"is no whole JSON: {str(error)[:150]}", where=where, hint="save the answer anew"
        ) from None
    sets = found.get("data") if isinstance(found, dict) else None
    if isinstance(sets, dict) and isinstance(sets.get("sets"), list):
        sets = [own.get("allocations") if isinstance(own, dict) else own for own in sets["sets"]]
    if isinstance(sets, dict):
        sets = [sets]
    if not isinstance(sets, list):
        said = found.get("message") if isinstance(found, dict) else None
        raise InputError(
            "holds no allocations" + (f": it says {str(said)[:200]}" if said else ""),
            where=where,
            hint="save the answer of /allocation",
        )
    for own in sets:  # a window without any allocation is null
        if isinstance(own, dict):
            yield from ((str(name), value) for name, value in own.items())


def _row(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise BadValueError("data", "an object for each allocation", value)
    if not name.strip():
        raise BadValueError("name", "a name", name)
    own = _object(value.get("properties"))
    start, end = _moment(value, "start"), _moment(value, "end")
    if start is not None and end is not None and end < start:
        raise BadValueError("end", "an end after the start", value.get("end"))
    count = _number(value, "gpuCount")
    labels, space = _object(own.get("labels")), _object(own.get("namespaceLabels"))
    return {
        "job_id": name,
        "name": _text(own.get("pod")) or name,
        "team": _text(labels.get("team"))
        or _text(space.get("team"))
        or _text(own.get("namespace")),
        "project": _text(own.get("namespace")),
        "cluster": _text(own.get("cluster")),
        "start_us": start,
        "end_us": end,
        "world_size": int(count) if count is not None and count.is_integer() else None,
        "gpu_hours": _number(value, "gpuHours"),
        "time_basis": "wall",
        "_grouped": not own.get("pod"),
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Mapping[str, Any], field: str) -> float | None:
    found = value.get(field)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < 2**53:
        raise BadValueError(field, "a number of at least 0", found)
    return float(found)


def _moment(value: Mapping[str, Any], field: str) -> int | None:
    found = value.get(field)
    if found is None:
        return None
    try:
        stamp = datetime.fromisoformat(found)
        stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
        return (stamp - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    except (TypeError, ValueError, OverflowError):
        raise BadValueError(field, "a time in ISO 8601", found) from None
