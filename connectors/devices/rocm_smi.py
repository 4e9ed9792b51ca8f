"""``rocm-smi``: what AMD's tools print as JSON, of rocm-smi and of amd-smi."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk
from steptax.connectors.devices import quantities as q
from steptax.connectors.devices.identity import FILE_TIME, changed_us, host_of, identify
from steptax.connectors.sources import head, refuse_no_text
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import BadValueError, short
from steptax.connectors.wholefile import Whole, read_whole, text_in, whole_json

_CARD = re.compile(r"card(\d{1,4})")
_MARKS = ('"card', '"gpu"', '"gpu_data"')
_HINT = "write one: rocm-smi -a --json > FILE, or amd-smi metric --json > FILE"
#: Keys of rocm-smi in lower case: spelling and case changed from release to release.
_ROCM: tuple[tuple[str, str, q.Dimension], ...] = (
    ("gpu use (%)", "util_ratio", q.RATIO),
    ("vram total used memory (b)", "memory_used_bytes", q.MEMORY_BYTES),
    ("vram total memory (b)", "memory_total_bytes", q.MEMORY_BYTES),
    ("current socket graphics package power (w)", "power_w", q.POWER),
    ("average graphics package power (w)", "power_w", q.POWER),
    ("max graphics package power (w)", "power_limit_w", q.POWER),
    ("temperature (sensor junction) (c)", "temperature_c", q.TEMPERATURE),
    ("temperature (sensor edge) (c)", "temperature_c", q.TEMPERATURE),
    ("temperature (sensor memory) (c)", "memory_temperature_c", q.TEMPERATURE),
)
_CLOCKS = (("sclk clock speed:", "sm_clock_mhz"), ("mclk clock speed:", "memory_clock_mhz"))
_PCIE = re.compile(r"\d+ \((?P<gt>[\d.]+)GT/s x(?P<lanes>\d+)\)")
#: Transfer rate of each PCIe generation, from the PCI-SIG's base specifications.
_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
#: Places in an object of ``amd-smi metric``.
_AMD: tuple[tuple[str, str, q.Dimension], ...] = (
    ("usage/gfx_activity", "util_ratio", q.RATIO),
    ("mem_usage/used_vram", "memory_used_bytes", q.MEMORY),
    ("mem_usage/total_vram", "memory_total_bytes", q.MEMORY),
    ("power/socket_power", "power_w", q.POWER),
    ("power/current_socket_power", "power_w", q.POWER),
    ("energy/total_energy_consumption", "energy_j", q.ENERGY),
    ("temperature/hotspot", "temperature_c", q.TEMPERATURE),
    ("temperature/edge", "temperature_c", q.TEMPERATURE),
    ("temperature/mem", "memory_temperature_c", q.TEMPERATURE),
    ("clock/gfx_0/clk", "sm_clock_mhz", q.CLOCK),
    ("clock/mem_0/clk", "memory_clock_mhz", q.CLOCK),
    ("ecc/total_correctable_count", "ecc_corrected", q.COUNT),
    ("ecc/total_uncorrectable_count", "ecc_uncorrected", q.COUNT),
    ("pcie/width", "pcie_width", q.LANES),
)
#: What holds a device back as amd-smi calls it, and the bit of NVML that means the same. AMD tells
#: them apart from MI300 on (https://rocm.docs.amd.com/projects/amdsmi, GPU violations); the single
#: word of older devices (``throttle_status``) gives no reason and is not read.
_VIOLATIONS = (
    ("prochot_violation_status", 0x8),
    ("ppt_violation_status", 0x4),
    ("socket_thermal_violation_status", 0x20),
    ("vr_thermal_violation_status", 0x20),
    ("hbm_thermal_violation_status", 0x20),
    ("gfx_clk_below_host_limit_power_violation_status", 0x4),
    ("gfx_clk_below_host_limit_thermal_violation_status", 0x20),
)
_READ = {column for _, column, _ in (*_ROCM, *_AMD)}


@dataclass(frozen=True)
class _File:
    whole: Whole
    file_us: int


class RocmSmiConnector(Connector):
    """Outputs of ``rocm-smi --json`` and ``amd-smi --json``."""

    kind = "rocm-smi"
    version = 1
    title = "rocm-smi and amd-smi: utilisation, power, clocks and memory of AMD devices; JSON"
    doc = (
        "rocm-smi -a --json (an object with card0, card1, ...; values are text, key spelling "
        "differs between releases) and amd-smi metric --json (a list of devices; amd-smi static "
        "gives only who they are).\n"
        "Gives device_samples: utilisation, memory, power, temperatures (junction, else edge), "
        "clocks, PCIe, ECC, and of amd-smi from MI300 on what holds the clock back (power, "
        "temperature, prochot) as bits. A device is called by its unique id where there is one. "
        "Megabytes of amd-smi are mebibytes. N/A is unknown and not 0.\n"
        "The files hold no time: their last change is taken as it. Node: --host, else the file's "
        "name. Written for rocm-smi from real outputs; for amd-smi metric from its documentation."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for a card or a device in the head of the file."""
        data = head(source)
        refuse_no_text(data, str(source), _HINT)
        text = data.decode("utf-8", "replace")
        if not any(mark in text for mark in _MARKS):
            raise InputError("holds no output of rocm-smi", where=str(source), hint=_HINT)
        return Capabilities(
            tables=("device_samples",),
            level=4,
            sees="power, temperature, clocks and memory of each device at one moment",
            cannot_see="the moment itself; of rocm-smi and older devices why a clock is low; of "
            "amd-smi metric which device it is, so no rank can be told",
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        whole = read_whole(source, by_folder=False)
        yield RawChunk(str(source), 1, _File(whole, changed_us(source, options)))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``device_samples``."""
        file: _File = raw.payload
        text = text_in(file.whole, raw.source)
        try:
            body = whole_json(text)
        except ValueError as error:
            fault = file.whole.fault or f"is no whole JSON document: {error}"
            raise InputError(fault, where=raw.source, hint=_HINT) from None
        if isinstance(body, dict) and isinstance(body.get("gpu_data"), list):
            body = body["gpu_data"]
        notes = q.Notes()
        if not options.extra.get("at"):
            notes.others.setdefault(FILE_TIME)
        always = {"host": host_of(raw.source, options, notes), "ts_us": file.file_us}
        rows: list[dict[str, Any]] = []
        rejects: list[Reject] = []
        for number, (place, said) in enumerate(_devices(body), 1):
            fill: Callable[..., dict[str, Any]] = _rocm if isinstance(body, dict) else _amd
            sample = q.SampleRow(notes, always | {"source_row": number})
            try:
                if not isinstance(said, dict):
                    raise BadValueError("device", "an object", said)
                rows.append(fill(sample, said, place))
            except BadValueError as bad:
                rejects.append(Reject("device_samples", str(bad), number, bad.field, short(said)))
        if not rows and not rejects:
            raise InputError("tells of no device", where=raw.source, hint=_HINT)
        if rows and not any(_READ & row.keys() for row in rows):
            notes.others.setdefault(
                "no readings in it: amd-smi static tells who the devices are, amd-smi metric how "
                "they are"
            )
        table = rows_of("device_samples", rows)
        return [Batch("device_samples", table, tuple(rejects), notes.tell())]


def _devices(body: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(body, dict):
        for name, said in body.items():
            card = _CARD.fullmatch(name)
            if card:
                yield int(card[1]), said
    elif isinstance(body, list):
        yield from enumerate(body)


def _rocm(sample: q.SampleRow, said: Mapping[str, Any], place: int) -> dict[str, Any]:
    keys = {str(key).lower(): _text(value) for key, value in said.items()}
    for key, column, dimension in _ROCM:
        sample.put(column, keys.get(key), dimension)
    for key, column in _CLOCKS:
        text = keys.get(key)
        sample.put(column, None if text is None else text.strip().strip("()"), q.CLOCK)
    link = _PCIE.fullmatch(keys.get("pcie clock level") or "")
    if link:
        sample.row["pcie_gen"] = _GENERATIONS.get(link["gt"])
        sample.put("pcie_width", link["lanes"], q.LANES)
    sample.text("gpu_model", keys.get("card series"))
    sample.row["gpu_index"] = place
    row = sample.finish()
    ids = {"uuid": keys.get("unique id"), "pci": keys.get("pci bus"), "index": str(place)}
    identify(row, ids, place, sample.notes)
    return row


def _amd(sample: q.SampleRow, said: Mapping[str, Any], place: int) -> dict[str, Any]:
    for path, column, dimension in _AMD:
        sample.put(column, _at(said, path), dimension)
    sample.put("gpu_index", _at(said, "gpu"), q.INDEX)
    sample.text("gpu_model", _at(said, "asic/market_name"))
    speed = (_at(said, "pcie/speed") or "").removesuffix("GT/s").strip()
    with contextlib.suppress(ValueError):
        # 16 and 16.0 are the same speed.
        sample.row["pcie_gen"] = _GENERATIONS.get(str(float(speed)))
    sample.row["throttle_reasons"] = _reasons(said.get("throttle"))
    row = sample.finish()
    ids = {"uuid": _at(said, "uuid"), "pci": None, "index": _at(said, "gpu")}
    # Partitions of one card share its bus address and its serial: the tool's number tells them.
    identify(row, ids, place, sample.notes)
    return row


def _reasons(said: Any) -> int | None:
    """What holds the device back as bits; None where it says so of nothing."""
    mask: int | None = None
    for name, bit in _VIOLATIONS:
        words = set(_words(said.get(name))) if isinstance(said, dict) else set()
        if words & {"active", "not active"}:
            mask = (mask or 0) | (bit if "active" in words else 0)
    return mask


def _words(said: Any) -> Iterator[str]:
    """Every text in ``said``: newer releases give one per partition and die."""
    if isinstance(said, str):
        yield said.strip().lower()
    elif isinstance(said, (dict, list)):
        for part in said.values() if isinstance(said, dict) else said:
            yield from _words(part)


def _at(said: Mapping[str, Any], path: str) -> str | None:
    """The text at ``path``; a value with its unit as ``value unit``, in the units that we know."""
    found: Any = said
    for part in path.split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, dict) and "value" in found:
        value, unit = found["value"], found.get("unit")
        named = {"MB": "MiB", "GB": "GiB", "KB": "KiB"}.get(str(unit), unit)
        return _text(value) if named is None else f"{_text(value)} {named}"
    return _text(found)


def _text(found: Any) -> str | None:
    if found is None or isinstance(found, (dict, list, bool)):
        return None
    return str(found)
