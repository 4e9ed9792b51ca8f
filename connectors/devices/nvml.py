"""``nvml``: what NVML says of every device, sampled live or recorded as JSON Lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, LineFormat, Options, RawChunk
from steptax.connectors.devices import quantities as q
from steptax.connectors.sources import TextBlock, blocks, head, refuse_no_text, text_of, whole_lines
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import BadValueError, short

#: Reading, column, factor to the column's unit, what a device can have.
_VALUES: tuple[tuple[str, str, float, q.Dimension], ...] = (
    ("power_mw", "power_w", 1e-3, q.POWER),
    ("power_limit_mw", "power_limit_w", 1e-3, q.POWER),
    ("energy_mj", "energy_j", 1e-3, q.ENERGY),
    ("temperature_c", "temperature_c", 1.0, q.TEMPERATURE),
    ("memory_temperature_c", "memory_temperature_c", 1.0, q.TEMPERATURE),
    ("sm_clock_mhz", "sm_clock_mhz", 1.0, q.CLOCK),
    ("memory_clock_mhz", "memory_clock_mhz", 1.0, q.CLOCK),
    ("reasons", "throttle_reasons", 1.0, q.COUNT),
    ("ecc_corrected", "ecc_corrected", 1.0, q.COUNT),
    ("ecc_uncorrected", "ecc_uncorrected", 1.0, q.COUNT),
    ("pcie_gen", "pcie_gen", 1.0, q.INDEX),
    ("pcie_gen_max", "pcie_gen_max", 1.0, q.INDEX),
    ("pcie_width", "pcie_width", 1.0, q.LANES),
    ("pcie_width_max", "pcie_width_max", 1.0, q.LANES),
    ("nvlink_errors", "nvlink_errors", 1.0, q.COUNT),
    ("nvlink_up", "nvlink_up", 1.0, q.INDEX),
    ("processes", "processes", 1.0, q.INDEX),
)
_HINT = "write one: steptax watch nvml --record FILE"


class NvmlConnector(Connector):
    """Samples of NVML: ``steptax watch nvml`` takes them on the node, this reads recorded ones."""

    kind = "nvml"
    version = 1
    title = "NVML: every device of this node, live (steptax watch nvml) or from a recording"
    doc = (
        "steptax watch nvml samples every device of the node it runs on (1 s; --interval), through "
        "nvidia-ml-py, into the lake: utilisation, memory, power and the energy counter, "
        "temperatures, clocks, throttle reasons as bits, ECC errors since the driver was loaded, "
        "remapped rows and whether some wait for it or could not be, the last Xid (0 = none since "
        "the watch began), PCIe against its maximum, "
        "NVLink, MIG, processes. What changes slowly (from PCIe on, and ECC) is read every tenth "
        "sample and holds for the nine after it. Rows are stored every 10 s.\n"
        "What a device does not tell is unknown and not 0, with the reason in a note; a device "
        "that is lost comes as health and the others go on; a driver that restarts is picked up "
        "again. With --record FILE the raw readings are kept as JSON Lines, one object per device "
        "and sample, which steptax ingest nvml reads."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for a sample in the head of the file."""
        data = head(source)
        refuse_no_text(data, str(source), _HINT)
        if b'"ts_us"' not in data:
            raise InputError("holds no recorded NVML sample", where=str(source), hint=_HINT)
        return Capabilities(
            tables=("device_samples",),
            level=4,
            sees="power, clock, throttling, errors, links and memory of each device, each second",
            cannot_see="tensor activity, and which rank a device serves unless it is known by UUID",
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Lines in blocks."""
        for block in blocks(source):
            yield RawChunk(str(source), block.first_line, block)

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """A recording grows line by line."""

        def chunk(block: TextBlock) -> RawChunk:
            return RawChunk(str(source), block.first_line, block)

        return LineFormat(chunk, whole_lines)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``device_samples``."""
        block: TextBlock = raw.payload
        notes = q.Notes()
        rows: list[dict[str, Any]] = []
        rejects = [Reject("device_samples", b.reason, b.row, None, b.raw) for b in block.broken]
        for number, line in enumerate(block.data.split(b"\n"), block.first_line):
            if not line.strip():
                continue
            try:
                rows.append(row_of(orjson.loads(line), notes, options) | {"source_row": number})
            except orjson.JSONDecodeError as error:
                reason = f"expected a JSON object, found none: {error}"
                rejects.append(Reject("device_samples", reason, number, None, text_of(line)))
            except BadValueError as bad:
                rejects.append(Reject("device_samples", str(bad), number, bad.field, text_of(line)))
        if not rows and not rejects:
            reason = "expected samples, found blank lines"
            rejects.append(Reject("device_samples", reason, block.first_line))
        table = rows_of("device_samples", rows)
        return [Batch("device_samples", table, tuple(rejects), notes.tell())]


def live_batch(samples: list[dict[str, Any]]) -> Batch:
    """Rows of what ``NvmlReader.sample`` gave."""
    notes, options = q.Notes(), Options()
    rows = [row_of(sample, notes, options) for sample in samples]
    return Batch("device_samples", rows_of("device_samples", rows), (), notes.tell())


def row_of(said: Any, notes: q.Notes, options: Options) -> dict[str, Any]:
    """One row of ``device_samples``; BadValueError where the sample is not as it is written."""
    if not isinstance(said, dict):
        raise BadValueError("sample", "an object", said)
    sample = q.SampleRow(notes)
    row = sample.row
    row["ts_us"] = _whole(said, "ts_us")
    row["host"] = options.extra.get("host") or _text(said, "host")
    index = _whole(said, "index")
    if index > q.INDEX.high:
        raise BadValueError("index", f"a number of at most {q.INDEX.high:.0f}", index)
    row["gpu_index"] = index
    row["gpu_uuid"] = _text(said, "uuid", optional=True) or f"index {index}"
    row["gpu_model"] = _text(said, "model", optional=True)
    row["health"] = _text(said, "down", optional=True)
    if said.get("xid") is not None:
        row["xid"] = _whole(said, "xid")
    values = said.get("values", {})
    if not isinstance(values, dict):
        raise BadValueError("values", "an object", values)
    for name, column, factor, dimension in _VALUES:
        row[column] = _number(sample, column, values.get(name), factor, dimension)
    use, memory = _part(values, "utilization"), _part(values, "memory")
    row["util_ratio"] = _number(sample, "util_ratio", use.get("gpu"), 0.01, q.RATIO)
    for column, key in (("memory_used_bytes", "used"), ("memory_total_bytes", "total")):
        row[column] = _number(sample, column, memory.get(key), 1.0, q.MEMORY_BYTES)
    mode = values.get("mig_mode")
    row["mig_enabled"] = None if mode is None else mode == 1
    remapped = values.get("remapped_rows")
    if isinstance(remapped, list) and len(remapped) >= 2:
        both = [_number(sample, "remapped_rows", part, 1.0, q.COUNT) for part in remapped[:2]]
        row["remapped_rows"] = None if None in both else int(sum(part or 0 for part in both))
        pending, failed = (*remapped[2:4], None, None)[:2]
        row["health"] = row["health"] or q.remapping_fault(pending, failed)
    for name, why in _part(said, "unavailable").items():
        notes.others.setdefault(f"{short(name)[1:-1]} is not available: {short(why)[1:-1]}")
    return row


def _number(
    sample: q.SampleRow, column: str, found: Any, factor: float, dimension: q.Dimension
) -> float | int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
        raise BadValueError(column, "a number", found)
    return sample.bounded(column, found * factor, dimension)


def _part(said: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = said.get(field)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadValueError(field, "an object", found)
    return found


def _whole(said: Mapping[str, Any], field: str) -> int:
    found = said.get(field)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 2**62:
        raise BadValueError(field, "a whole number of at least 0", found)
    return found


def _text(said: Mapping[str, Any], field: str, *, optional: bool = False) -> str | None:
    found = said.get(field)
    if found is None and optional:
        return None
    if not isinstance(found, str) or not found.strip():
        raise BadValueError(field, "a text", found)
    return found
