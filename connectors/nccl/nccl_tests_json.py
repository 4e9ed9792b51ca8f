"""The file that nccl-tests writes with ``-J``; its copy of the environment is never read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from steptax.app.errors import InputError
from steptax.connectors.nccl.names import operation
from steptax.connectors.nccl.nccl_tests_text import Sweep, SweepRow, nccl_version
from steptax.connectors.values import BadValueError, short
from steptax.connectors.wholefile import whole_json

_PERF = re.compile(r"([a-z_]+)_perf(?:_mpi)?$")
_COLUMNS = {"alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "wrong"}


def read_json(text: str, where: str) -> Sweep:
    """The one table of a -J file; InputError when it is none.

    Of the file only the named keys are taken: ``env`` holds every variable of the environment,
    secrets too.
    """
    try:
        body = whole_json(text)
    except ValueError as error:
        raise InputError(
            f"is no whole JSON document: {error}",
            where=where,
            hint="nccl-tests completes the file at its end; the text output is read as well",
        ) from None
    results = body.get("results") if isinstance(body, dict) else None
    if not isinstance(results, list):
        raise InputError(
            "is no -J file of nccl-tests: it has no list of results",
            where=where,
            hint="name the file that nccl-tests wrote with -J",
        )
    sweep = Sweep(1)
    _about(sweep, body)
    for number, result in enumerate(results, 1):
        try:
            sweep.rows.append(_row(result, number))
        except BadValueError as bad:
            sweep.bad.append((number, str(bad), short(result)))
        named = result.get("experiment_name") if isinstance(result, dict) else None
        found = _PERF.search(named) if isinstance(named, str) else None
        if found and sweep.operation is None:
            sweep.operation = operation(found[1])
    return sweep


def _about(sweep: Sweep, body: Mapping[str, Any]) -> None:
    arguments = body.get("args")
    words = arguments if isinstance(arguments, list) else [arguments]
    for word in words:
        found = _PERF.search(word.split()[0]) if isinstance(word, str) and word.strip() else None
        if found and sweep.operation is None:
            sweep.operation = operation(found[1])
    code = body.get("nccl_version")
    if isinstance(code, int) and 0 < code < 10**7:
        sweep.software["nccl"] = nccl_version(str(code))
    config = body.get("config")
    config = config if isinstance(config, dict) else {}
    iterations = config.get("iters", config.get("iterations"))
    sweep.iterations = iterations if isinstance(iterations, int) and iterations > 0 else None
    devices = config.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and isinstance(device.get("rank"), int):
            host, model = (device.get(key) for key in ("hostname", "device_info"))
            sweep.ranks[device["rank"]] = (
                host if isinstance(host, str) else "unknown",
                model if isinstance(model, str) else "",
            )
    bounds = body.get("out_of_bounds")
    if isinstance(bounds, dict):
        count = bounds.get("count")
        sweep.out_of_bounds = count if isinstance(count, int) else None
        sweep.failed = str(bounds.get("okay")).lower() == "false" or bool(sweep.out_of_bounds)
    errors = body.get("errors")
    sweep.errors += [str(e)[:200] for e in (errors if isinstance(errors, list) else [])]


def _row(result: Any, number: int) -> SweepRow:
    if not isinstance(result, dict):
        raise BadValueError("results", "an object", result)
    leading = {key: _cell(result.get(key)) for key in ("size", "count", "type", "redop", "root")}
    places: list[dict[str, str]] = []
    for key in ("out_of_place", "in_place"):
        place = result.get(key)
        if place is not None and not isinstance(place, dict):
            raise BadValueError(key, "an object", place)
        cells = {_COLUMNS.get(k, str(k)): _cell(v) for k, v in (place or {}).items()}
        if "time" not in cells and "cpu_time" in cells:
            cells["time"] = cells["cpu_time"]
        places.append(cells)
    return SweepRow(number, leading, *places)


def _cell(value: Any) -> str:
    """A value as the text form has it; texts are padded there."""
    if isinstance(value, (dict, list, bool)):
        return ""
    return "" if value is None else str(value).strip()
