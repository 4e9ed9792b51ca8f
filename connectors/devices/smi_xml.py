"""``nvidia-smi -q -x``: DTD v10 to v13, one document or one after the other.

Read as a stream of elements with no entity ever expanded: a document that declares one is refused,
and what a DTD lies at is never fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any
from xml.parsers import expat

from steptax.app.errors import InputError
from steptax.app.schema import Reject
from steptax.connectors.devices import quantities as q
from steptax.connectors.devices.identity import identify, moment_us
from steptax.connectors.values import BadValueError

_DOCUMENT = re.compile(r"<\?xml ")
_DEPTH = 64
_TEXT = 4096
_POWER = ("power_draw", "average_power_draw", "instant_power_draw")
_LIMIT = ("current_power_limit", "enforced_power_limit", "power_limit")
_GROUPS = ("gpu_power_readings", "power_readings")
_PCIE = "pci/pci_gpu_link_info"
#: Places below ``gpu``; of several for one column the first that has a value holds.
FIELDS: tuple[tuple[str, str, q.Dimension], ...] = (
    ("utilization/gpu_util", "util_ratio", q.RATIO),
    ("fb_memory_usage/used", "memory_used_bytes", q.MEMORY),
    ("fb_memory_usage/total", "memory_total_bytes", q.MEMORY),
    *((f"{group}/{name}", "power_w", q.POWER) for group in _GROUPS for name in _POWER),
    *((f"{group}/{name}", "power_limit_w", q.POWER) for group in _GROUPS for name in _LIMIT),
    ("temperature/gpu_temp", "temperature_c", q.TEMPERATURE),
    ("temperature/memory_temp", "memory_temperature_c", q.TEMPERATURE),
    ("clocks/sm_clock", "sm_clock_mhz", q.CLOCK),
    ("clocks/mem_clock", "memory_clock_mhz", q.CLOCK),
    (f"{_PCIE}/pcie_gen/current_link_gen", "pcie_gen", q.INDEX),
    (f"{_PCIE}/pcie_gen/max_link_gen", "pcie_gen_max", q.INDEX),
    (f"{_PCIE}/link_widths/current_link_width", "pcie_width", q.LANES),
    (f"{_PCIE}/link_widths/max_link_width", "pcie_width_max", q.LANES),
)
#: Errors since the driver was loaded; SRAM uncorrectable was split in two in v12.
_ECC = "ecc_errors/volatile"
_SUMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "ecc_corrected",
        (f"{_ECC}/sram_correctable", f"{_ECC}/dram_correctable", f"{_ECC}/single_bit/total"),
    ),
    (
        "ecc_uncorrected",
        (
            *(f"{_ECC}/sram_uncorrectable", f"{_ECC}/dram_uncorrectable"),
            *(f"{_ECC}/sram_uncorrectable_parity", f"{_ECC}/sram_uncorrectable_secded"),
            f"{_ECC}/double_bit/total",
        ),
    ),
    (
        "remapped_rows",
        ("remapped_rows/remapped_row_corr", "remapped_rows/remapped_row_unc"),
    ),
)
_REASONS = ("clocks_event_reasons/", "clocks_throttle_reasons/")


class _RefusedError(Exception):
    """What is not read for safety."""


@dataclass
class _Gpu:
    line: int
    bus: str | None
    said: dict[str, str] = field(default_factory=dict)
    processes: int | None = None


@dataclass
class _Document:
    """Collects the devices of one document."""

    timestamp: str = ""
    gpus: list[_Gpu] = field(default_factory=list)
    first_line: int = 1
    _path: list[str] = field(default_factory=list)
    _text: str = ""
    _open: _Gpu | None = None

    def read(self, text: str) -> str | None:
        """The devices that are whole; the reason where the document breaks off."""
        self._parser = parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        try:
            parser.Parse(text.encode(), True)
        except expat.ExpatError as error:
            return f"expected a whole XML document: {expat.errors.messages[error.code]}"
        return None

    def line(self) -> int:
        """The line that is being read, in the whole file."""
        return self.first_line + self._parser.CurrentLineNumber - 1

    def _refuse(self, *_: Any) -> None:
        raise _RefusedError("it declares entities")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) > _DEPTH:
            raise _RefusedError("it is nested too deeply")
        self._path.append(name)
        self._text = ""
        if self._path == ["nvidia_smi_log", "gpu"]:
            self._open = _Gpu(self.line(), attributes.get("id"))

    def _characters(self, text: str) -> None:
        if len(self._text) < _TEXT:
            self._text += text

    def _end(self, name: str) -> None:
        below = "/".join(self._path[2:])
        text = self._text.strip()
        if self._path == ["nvidia_smi_log", "timestamp"]:
            self.timestamp = text
        gpu = self._open
        if gpu is not None and below:
            if below == "processes":
                gpu.processes = gpu.processes or 0
            elif below == "processes/process_info/type" and "C" in text:
                gpu.processes = (gpu.processes or 0) + 1
            gpu.said.setdefault(below, text)
        if gpu is not None and self._path == ["nvidia_smi_log", "gpu"]:
            self.gpus.append(gpu)
            self._open = None
        self._path.pop()
        self._text = ""


def read_xml(
    text: str, host: str, where: str, notes: q.Notes, zone: tzinfo | None = None
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """Rows of ``device_samples`` and rejects; InputError for a document that declares entities."""
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    for first_line, piece in _pieces(text):
        document = _Document(first_line=first_line)
        try:
            fault = document.read(piece)
        except _RefusedError as refused:
            raise InputError(
                f"is not read: {refused}",
                where=where,
                hint="nvidia-smi writes no such document; check where this one comes from",
            ) from None
        found = moment_us(document.timestamp, zone, notes)
        for place, gpu in enumerate(document.gpus):
            if found is None:
                said = document.timestamp[:40]
                reason = f"expected a time in <timestamp>, found {said!r}"
                rejects.append(Reject("device_samples", reason, gpu.line, "timestamp", None))
                continue
            try:
                rows.append(_row(gpu, host, found, place, notes))
            except BadValueError as bad:
                rejects.append(Reject("device_samples", str(bad), gpu.line, bad.field, None))
        if fault:
            rejects.append(Reject("device_samples", fault, document.line(), None, None))
    return rows, rejects


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    starts = [found.start() for found in _DOCUMENT.finditer(text)] or [0]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text.count("\n", 0, start) + 1, text[start:end].rstrip()


def _row(gpu: _Gpu, host: str, ts_us: int, place: int, notes: q.Notes) -> dict[str, Any]:
    said = gpu.said
    sample = q.SampleRow(notes, {"host": host, "ts_us": ts_us, "source_row": gpu.line})
    for path, column, dimension in FIELDS:
        sample.put(column, said.get(path), dimension)
    for column, paths in _SUMS:
        values = [sample.number(column, said[path], q.COUNT) for path in paths if path in said]
        known = [value for value in values if value is not None]
        sample.row[column] = int(sum(known)) if known else None
    sample.text("gpu_model", said.get("product_name"))
    sample.flag("mig_enabled", said.get("mig_mode/current_mig"))
    sample.row["processes"] = gpu.processes
    named = {path: text for path, text in said.items() if path.startswith(_REASONS)}
    sample.row["throttle_reasons"] = q.mask_from(named)
    states = (said.get(f"remapped_rows/remapped_row_{name}") for name in ("pending", "failure"))
    if fault := q.remapping_fault(*states):
        sample.faults.setdefault(fault)
    row = sample.finish()
    identify(row, {"uuid": said.get("uuid"), "pci": gpu.bus}, place, notes)
    return row
