"""``nvidia-smi dmon``: a table whose header comes again and again, two lines of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from steptax.app.schema import Reject
from steptax.connectors.devices import quantities as q
from steptax.connectors.devices.identity import identify, moment_us
from steptax.connectors.values import BadValueError
from steptax.connectors.wholefile import LINE_CHARACTERS

#: dmon prints frame buffer in mebibytes and calls them MB.
FIELDS: dict[str, tuple[str, q.Dimension]] = {
    "gpu": ("gpu_index", q.INDEX),
    "pwr": ("power_w", q.POWER),
    "gtemp": ("temperature_c", q.TEMPERATURE),
    "mtemp": ("memory_temperature_c", q.TEMPERATURE),
    "sm": ("util_ratio", q.RATIO),
    "mclk": ("memory_clock_mhz", q.CLOCK),
    "pclk": ("sm_clock_mhz", q.CLOCK),
    "fb": ("memory_used_bytes", q.MEMORY),
    "sbecc": ("ecc_corrected", q.COUNT),
    "dbecc": ("ecc_uncorrected", q.COUNT),
}


def header_of(line: str) -> tuple[str, ...] | None:
    """The columns that ``line`` names; None where it is not the first line of a header."""
    if not line.lstrip().startswith("#"):
        return None
    names = tuple(part.lower() for part in line.replace("#", " ").split())
    return names if "gpu" in names and sum(name in FIELDS for name in names) > 1 else None


@dataclass
class DmonReader:
    """Reads lines; remembers the header that holds."""

    names: tuple[str, ...]
    host: str
    notes: q.Notes
    zone: tzinfo | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def take(self, lines: Iterator[tuple[int, str]]) -> None:
        """All lines of a stretch."""
        for number, line in lines:
            if not line.strip():
                continue
            if len(line) > LINE_CHARACTERS:
                self._reject(number, "expected a line of dmon, found a longer one", line)
                continue
            if line.lstrip().startswith("#"):
                self.names = header_of(line) or self.names
                continue
            self._line(number, line)

    def _line(self, number: int, line: str) -> None:
        cells = line.split()
        if len(cells) != len(self.names):
            self._reject(number, f"expected {len(self.names)} values, found {len(cells)}", line)
            return
        said = dict(zip(self.names, cells, strict=True))
        found = moment_us(f"{said.get('date', '')} {said.get('time', '')}", self.zone, self.notes)
        if found is None:
            self._reject(number, "expected date and time: run dmon with -o DT", line, "time")
            return
        sample = q.SampleRow(self.notes, {"host": self.host, "source_row": number, "ts_us": found})
        try:
            for name, (column, dimension) in FIELDS.items():
                sample.put(column, said.get(name), dimension)
        except BadValueError as bad:
            self._reject(number, str(bad), line, bad.field)
            return
        row = sample.finish()
        identify(row, {"index": said["gpu"]}, 0, self.notes)
        self.rows.append(row)

    def _reject(self, number: int, reason: str, line: str, column: str | None = None) -> None:
        self.rejects.append(Reject("device_samples", reason, number, column, line.strip()[:500]))
