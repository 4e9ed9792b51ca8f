"""``nvidia-smi --query-gpu=... --format=csv``: with or without header, other lines between."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from steptax.app.schema import Reject
from steptax.connectors.devices import quantities as q
from steptax.connectors.devices.identity import FILE_TIME, identify, moment_us
from steptax.connectors.values import BadValueError
from steptax.connectors.wholefile import LINE_CHARACTERS

#: Fields of ``nvidia-smi --help-query-gpu`` that are read: column and dimension. Of two that give
#: the same column the first that has a value holds: power.draw is what the driver averages.
FIELDS: dict[str, tuple[str, q.Dimension]] = {
    "utilization.gpu": ("util_ratio", q.RATIO),
    "memory.used": ("memory_used_bytes", q.MEMORY),
    "memory.total": ("memory_total_bytes", q.MEMORY),
    "power.draw": ("power_w", q.POWER),
    "power.draw.average": ("power_w", q.POWER),
    "power.draw.instant": ("power_w", q.POWER),
    "enforced.power.limit": ("power_limit_w", q.POWER),
    "power.limit": ("power_limit_w", q.POWER),
    "temperature.gpu": ("temperature_c", q.TEMPERATURE),
    "temperature.memory": ("memory_temperature_c", q.TEMPERATURE),
    "clocks.sm": ("sm_clock_mhz", q.CLOCK),
    "clocks.current.sm": ("sm_clock_mhz", q.CLOCK),
    "clocks.mem": ("memory_clock_mhz", q.CLOCK),
    "clocks.current.memory": ("memory_clock_mhz", q.CLOCK),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected", q.COUNT),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", q.COUNT),
    "pcie.link.gen.current": ("pcie_gen", q.INDEX),
    "pcie.link.gen.gpucurrent": ("pcie_gen", q.INDEX),
    "pcie.link.gen.max": ("pcie_gen_max", q.INDEX),
    "pcie.link.width.current": ("pcie_width", q.LANES),
    "pcie.link.width.max": ("pcie_width_max", q.LANES),
    "index": ("gpu_index", q.INDEX),
}
_NAMES = frozenset(
    (
        *FIELDS,
        *("timestamp", "uuid", "gpu_uuid", "name", "gpu_name", "pci.bus_id", "gpu_bus_id"),
        *("mig.mode.current", "remapped_rows.correctable", "remapped_rows.uncorrectable"),
        *("remapped_rows.pending", "remapped_rows.failure"),
    )
)
_MASKS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")
_MEASURED = frozenset((*FIELDS, *_MASKS)) - {"index"}
_UNIT = re.compile(r"\s*\[[^\]]{0,20}\]$")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,16}(?=\s|$)")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]{4,60}")
_MODEL = re.compile(r"(?i)(?:nvidia|tesla|quadro|geforce|grid)\b.*")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")


def header_of(line: str) -> tuple[str, ...] | None:
    """The fields that ``line`` names, without their units; None where it is no header."""
    names = tuple(_UNIT.sub("", part.strip()) for part in line.split(","))
    known = sum(name in _NAMES or name.startswith(_REASONS) for name in names)
    measured = any(name in _MEASURED or name.startswith(_REASONS) for name in names)
    # Any table of devices has times and UUIDs: what is measured must be named as nvidia-smi does.
    is_own = measured and 2 * known >= len(names)
    return names if known and (is_own or known == len(names)) else None


def not_read(names: tuple[str, ...]) -> tuple[str, ...]:
    """The fields of a header that nothing is read from."""
    return tuple(
        n for n in names if n and n not in (*_NAMES, *_MASKS) and not n.startswith(_REASONS)
    )


def guessed(lines: list[str]) -> tuple[str, ...] | None:
    """The fields of a file without header, where the values tell them beyond doubt; else None.

    What a bare number is (an index, a temperature) nobody can tell: such a field stays unread.
    """
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        names = [_name_of(cell) for cell in cells]
        if sum(name not in ("", "uuid", "name", "timestamp") for name in names) < 1:
            continue
        memory = [i for i, name in enumerate(names) if name == "memory"]
        if len(memory) == 2:
            names[memory[0]], names[memory[1]] = "memory.used", "memory.total"
        clear = ["" if names.count(name) > 1 or name == "memory" else name for name in names]
        if any(clear):
            return tuple(clear)
    return None


def _name_of(cell: str) -> str:
    shapes = (
        (r"\d{1,3} %", "utilization.gpu"),
        (r"\d+(\.\d+)? W", "power.draw"),
        (r"\d+ MiB", "memory"),
    )
    for shape, name in shapes:
        if re.fullmatch(shape, cell):
            return name
    if _UUID.fullmatch(cell):
        return "uuid"
    if _BUS.fullmatch(cell):
        return "pci.bus_id"
    if q.time_us(cell) is not None:
        return "timestamp"
    return "name" if _MODEL.fullmatch(cell) else ""


@dataclass
class CsvReader:
    """Reads lines; remembers the header that holds and the devices of the moment."""

    names: tuple[str, ...]
    host: str
    file_us: int
    notes: q.Notes
    zone: tzinfo | None = None
    is_dated: bool = False
    """Whether a person says what ``file_us`` is: then it is of rows at the end, too."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    _stamp_us: int | None = None
    _stamped_first: bool | None = None
    _place: int = 0
    _place_us: int | None = None

    def take(self, lines: Iterator[tuple[int, str]]) -> None:
        """All lines of a stretch."""
        for number, line in lines:
            clean = line.strip()
            if clean:
                self._line(number, clean)
        self._end()

    def _line(self, number: int, line: str) -> None:
        if len(line) > LINE_CHARACTERS:
            self._reject(number, "expected a line of nvidia-smi, found a longer one", line)
            return
        # No field of nvidia-smi begins with a digit: most lines are rows, and need no second look.
        names = None if line[0].isdigit() else header_of(line)
        if names is not None:
            self.names = names
            return
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(self.names):
            self._other(number, line)
            return
        sample = q.SampleRow(self.notes, {"host": self.host, "source_row": number})
        said = dict(zip(self.names, cells, strict=True))
        try:
            self._fill(sample, said)
        except BadValueError as bad:
            self._reject(number, str(bad), line, bad.field)
            return
        self._time(number, line, sample.finish(), said)

    def _fill(self, sample: q.SampleRow, said: Mapping[str, str]) -> None:
        for name, (column, dimension) in FIELDS.items():
            sample.put(column, said.get(name), dimension)
        sample.text("gpu_model", said.get("name", said.get("gpu_name")))
        sample.flag("mig_enabled", said.get("mig.mode.current"))
        for name in ("uuid", "gpu_uuid"):
            if name in said:
                sample.is_word("gpu_uuid", said[name])
        for name in _MASKS:
            if name in said and not sample.is_word("throttle_reasons", said[name]):
                mask = sample.row["throttle_reasons"] = q.mask_of(said[name])
                self.notes.odd["throttle_reasons"] += mask is None
        if "throttle_reasons" not in sample.row:
            named = {k: v for k, v in said.items() if k.startswith(_REASONS)}
            sample.row["throttle_reasons"] = q.mask_from(named)
        rows = [
            sample.number("remapped_rows", said[name], q.COUNT)
            for name in ("remapped_rows.correctable", "remapped_rows.uncorrectable")
            if name in said
        ]
        known = [value for value in rows if value is not None]
        sample.row["remapped_rows"] = int(sum(known)) if known else None
        states = (said.get(f"remapped_rows.{name}") for name in ("pending", "failure"))
        if fault := q.remapping_fault(*states):
            sample.faults.setdefault(fault)

    def _time(self, number: int, line: str, row: dict[str, Any], said: Mapping[str, str]) -> None:
        ids: dict[str, str | None] = {
            "uuid": said.get("uuid", said.get("gpu_uuid")),
            "pci": said.get("pci.bus_id", said.get("gpu_bus_id")),
            "index": said.get("index"),
        }
        if "timestamp" in said:
            found = moment_us(said["timestamp"], self.zone, self.notes)
            if found is None:
                self._reject(
                    number,
                    f"expected a time, found {said['timestamp'][:40]!r}",
                    line,
                    "timestamp",
                )
                return
            self._accept(row, ids, found)
        elif self._stamped_first:
            self._accept(row, ids, self._stamp_us)
        else:
            self._waiting.append({"row": row, "ids": ids, "line": line})

    def _accept(self, row: dict[str, Any], ids: dict[str, str | None], ts_us: int | None) -> None:
        self._place = self._place + 1 if ts_us == self._place_us else 0
        self._place_us = ts_us
        row["ts_us"] = ts_us
        identify(row, ids, self._place, self.notes)
        self.rows.append(row)

    def _other(self, number: int, line: str) -> None:
        """A line of something else; one that begins with a time dates the rows beside it."""
        stamp = _STAMP.match(line)
        found = q.time_us(stamp[0]) if stamp else None
        if found is None:
            self._reject(
                number, f"expected {len(self.names)} values, found {line.count(',') + 1}", line
            )
            return
        if self._stamped_first is None:
            self._stamped_first = not self._waiting
        self._stamp_us = found[0]
        if not self._stamped_first:
            self._release(self._stamp_us)

    def _release(self, ts_us: int) -> None:
        for held in self._waiting:
            self._accept(held["row"], held["ids"], ts_us)
        self._waiting.clear()

    def _end(self) -> None:
        """Rows that no time came for."""
        undated = self._stamp_us is None or self.is_dated
        if self._waiting and undated and "timestamp" not in self.names:
            self.notes.others.setdefault(FILE_TIME)
            self._release(self.file_us)
        for held in self._waiting:
            self._reject(
                held["row"]["source_row"],
                "expected a time: no line with one comes after this row, as after those before it",
                held["line"],
                "timestamp",
            )
        self._waiting.clear()

    def _reject(self, number: int, reason: str, line: str, column: str | None = None) -> None:
        self.rejects.append(Reject("device_samples", reason, number, column, line[:500]))
