"""Allocations of OpenCost, from its API and from its CSV export, one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.schedulers.answers import document_in
from steptax.connectors.schedulers.kube_labels import JOB_LABELS, TEAM_LABELS, labelled
from steptax.connectors.tables.csvcells import csv_cells
from steptax.connectors.values import BadValueError
from steptax.connectors.wholefile import numbered

#: Names that OpenCost gives to devices that nobody asked for.
IDLE = ("__idle__", "__unmounted__")
#: ... and to pods that lack the label that was asked for.
UNLABELLED = "__unallocated__"
_DAY_US = 86_400_000_000
EXPORT_COLUMNS = ("Date", "Namespace", "Pod", "GPUs")


@dataclass(frozen=True)
class Allocation:
    """What one unit (a container, or whatever was aggregated) held in one window.

    ``gpu_hours`` is None where the source does not tell it; ``most_gpu_hours`` is what it can be.
    """

    row: int
    job_id: str
    unit: str
    name: str
    team: str | None = None
    project: str | None = None
    cluster: str | None = None
    start_us: int | None = None
    end_us: int | None = None
    gpus: float | None = None
    gpu_hours: float | None = None
    most_gpu_hours: float = 0.0
    is_idle: bool = False
    is_group: bool = False


def allocations(
    data: bytes, where: str, options: Options
) -> Iterator[tuple[int, Allocation | BadValueError, Any]]:
    """Place, allocation or fault, and what it was read from; InputError where there is none."""
    entries = (
        _of_answer(data, where) if data.lstrip()[:1] in (b"{", b"[") else _of_export(data, where)
    )
    for place, (name, value) in entries:
        try:
            if name is None:
                yield place, _exported(place, value, options), value
            else:
                yield place, _answered(place, name, value, options), value
        except BadValueError as error:
            yield place, error, value


def _of_answer(data: bytes, where: str) -> Iterator[tuple[int, tuple[str | None, Any]]]:
    found = document_in(data, where)
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
    # A window without any allocation is null.
    windows = [own for own in sets if isinstance(own, dict)]
    yield from enumerate(((str(n), value) for own in windows for n, value in own.items()), 1)


def _of_export(data: bytes, where: str) -> Iterator[tuple[int, tuple[str | None, Any]]]:
    """Its rows, each a line of its own: labels are JSON without line ends."""
    header: list[str] = []
    for number, line in numbered(data.decode("utf-8-sig", "replace")):
        if not line.strip():
            continue
        cells = csv_cells(line)
        if not header:
            header = cells or []
            lacks = [name for name in EXPORT_COLUMNS if name not in header]
            if lacks:
                raise InputError(
                    f"is no export of OpenCost: it has no column {', '.join(lacks)}",
                    where=where,
                    hint="name the file that EXPORT_CSV_FILE of OpenCost writes",
                )
        elif cells is None or len(cells) != len(header):
            said = "quotes that do not close" if cells is None else f"{len(cells)} cells"
            yield number, (None, {"": f"{said} where the header has {len(header)} cells: {line}"})
        else:
            yield number, (None, dict(zip(header, cells, strict=True)))


def _answered(row: int, name: str, value: Any, options: Options) -> Allocation:
    """An allocation of the API's answer."""
    if not isinstance(value, Mapping):
        raise BadValueError("data", "an object for each allocation", value)
    if not name.strip():
        raise BadValueError("name", "a name", name)
    own = _object(value.get("properties"))
    start, end = _moment(value, "start"), _moment(value, "end")
    if start is not None and end is not None and end < start:
        raise BadValueError("end", "an end after the start", value.get("end"))
    hours = _number(value, "gpuHours")
    labels = _object(own.get("labels"))
    pod, container = _text(own.get("pod")), _text(own.get("container"))
    job = name
    if pod and container and name.endswith(f"/{container}"):  # asked for without aggregate
        job = name.removesuffix(f"/{container}")
    last = name.rsplit("/", 1)[-1]
    return _named(
        Allocation(
            row,
            job,
            unit=name,
            name="pods without the label" if last == UNLABELLED else pod or name,
            project=_text(own.get("namespace")),
            cluster=_text(own.get("cluster")),
            start_us=start,
            end_us=end,
            gpus=_number(value, "gpuCount"),
            gpu_hours=hours,
            is_idle=last in IDLE,
            is_group=not pod,
        ),
        labels,
        _object(own.get("namespaceLabels")),
        options,
    )


def _exported(row: int, value: Mapping[str, str], options: Options) -> Allocation:
    """A row of the export: a container on a day; GPUs are those of the time that it ran."""
    if "Date" not in value:
        raise BadValueError("line", "as many cells as the header has", None, said=value[""][:200])
    day = _moment(value, "Date")
    if day is None or day % _DAY_US:
        raise BadValueError("Date", "a day such as 2026-11-29", value["Date"])
    try:
        gpus = float(value["GPUs"] or "nan")
    except ValueError:
        gpus = math.nan
    if not 0 <= gpus < 2**31:
        raise BadValueError("GPUs", "a number of at least 0", value["GPUs"])
    space, pod = value["Namespace"] or None, value["Pod"] or None
    whose = pod or value.get("ControllerName") or space
    if not whose:
        raise BadValueError("Pod", "a pod, a controller or a namespace", None)
    job = f"{space}/{whose}" if space and whose != space else whose
    return _named(
        Allocation(
            row,
            job,
            unit=f"{job}/{value.get('Container', '')}",
            name=whose,
            project=space,
            gpus=gpus,
            # From when to when of the day is not told.
            gpu_hours=None if gpus else 0.0,
            most_gpu_hours=24 * gpus,
            is_idle=whose in IDLE,
            is_group=not pod,
        ),
        _labels_of(value),
        {},
        options,
    )


def _labels_of(value: Mapping[str, str]) -> dict[str, object]:
    """Labels of a row: its JSON, and columns such as ``Label_team``."""
    own = {k.removeprefix("Label_"): v for k, v in value.items() if k.startswith("Label_") and v}
    try:
        told = json.loads(value.get("Labels") or "{}")
    except ValueError:
        raise BadValueError("Labels", "an object as JSON", value.get("Labels")) from None
    return {**own, **_object(told)}


def _named(
    one: Allocation,
    labels: Mapping[str, object],
    of_namespace: Mapping[str, object],
    options: Options,
) -> Allocation:
    """With the job, the team and the project that labels name."""
    names = {key: (label,) for key, label in options.mapping.items()}
    job = labelled(labels, names.get("job_id", JOB_LABELS)) if not one.is_idle else None
    teams = names.get("team", TEAM_LABELS)
    team = labelled(labels, teams) or labelled(of_namespace, teams) or one.project
    project = one.project
    if "project" in names:
        project = labelled(labels, names["project"]) or labelled(of_namespace, names["project"])
    if job is not None:
        # Two namespaces may have jobs of one name.
        own = f"{one.project}/{job}" if one.project else job
        one = replace(one, job_id=own, name=job)
    return replace(one, team=team, project=project)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Mapping[str, Any], name: str) -> float | None:
    found = value.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < 2**53:
        raise BadValueError(name, "a number of at least 0", found)
    return float(found)


def _moment(value: Mapping[str, Any], name: str) -> int | None:
    found = value.get(name)
    if found is None:
        return None
    try:
        stamp = datetime.fromisoformat(found)
        stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
        return (stamp - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    except (TypeError, ValueError, OverflowError):
        raise BadValueError(name, "a time in ISO 8601", found) from None
