"""``nvidia-smi``: what the tool prints, as CSV, XML or dmon text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, LineFormat, Options, RawChunk, Run
from steptax.connectors.devices import smi_csv, smi_dmon
from steptax.connectors.devices.identity import SomethingSaid, changed_us, host_of, zone_named
from steptax.connectors.devices.quantities import Notes
from steptax.connectors.devices.smi_xml import read_xml
from steptax.connectors.sources import TextBlock, blocks, head, refuse_no_text, whole_lines
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.wholefile import Whole, numbered, read_whole, text_in

_XML = "<nvidia_smi_log"
#: Lines of the head in which a header is looked for.
_HEAD_LINES = 200
_HINT = (
    "write one: nvidia-smi --query-gpu=timestamp,index,uuid,name,utilization.gpu,power.draw "
    "--format=csv -l 1, or nvidia-smi -q -x, or nvidia-smi dmon -o DT"
)


@dataclass(frozen=True)
class _Lines:
    """A stretch of a file of lines: what its columns are, and its text."""

    form: str
    names: tuple[str, ...]
    block: TextBlock
    file_us: int
    is_dated: bool


@dataclass(frozen=True)
class _Document:
    whole: Whole


class NvidiaSmiConnector(Connector):
    """Outputs of ``nvidia-smi``."""

    kind = "nvidia-smi"
    version = 1
    title = "nvidia-smi: utilisation, power, clocks and health of devices; CSV, XML, dmon"
    doc = (
        "nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits], also with -l and with "
        "lines of other programs between; nvidia-smi -q -x (DTD v10 to v13, one document or many); "
        "nvidia-smi dmon -o DT.\n"
        "Gives device_samples: utilisation, memory, power, temperatures, clocks, throttle reasons "
        "as bits, ECC, remapped rows, PCIe, MIG. N/A, [Not Supported] and the like are unknown and "
        "not 0; 'GPU is lost', 'Unknown Error' and 'ERR!' come as health.\n"
        "Power is what the driver averages where it gives both. A file without header is read as "
        "far as its values tell what they are; name the fields to read all: "
        "--map columns=name,temperature.gpu,utilization.gpu. Node: --host, else the file's name. "
        "Times without a zone are of --timezone, else UTC."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for a header, the root of the XML, or values with units in the head of the file."""
        _form_of(head(source), source, options)
        return Capabilities(
            tables=("device_samples",),
            level=4,
            sees="power, temperature, clock, throttling, errors and memory of each device",
            cannot_see="which job or rank a device served, unless a rank's device is known by UUID",
        )

    def begin(self, source: Path, options: Options) -> Run:
        """A header without a row is no output."""
        return SomethingSaid(source, _HINT)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """An XML file at once, lines in blocks."""
        form, names = _form_of(head(source), source, options)
        if form == "xml":
            yield RawChunk(str(source), 1, _Document(read_whole(source, by_folder=False)))
            return
        file_us = changed_us(source, options)
        for block in blocks(source):
            payload = _Lines(form, names, block, file_us, "at" in options.extra)
            yield RawChunk(str(source), block.first_line, payload)
            names = _last_header(form, block.data, names)

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """CSV and dmon grow line by line; of XML only the whole file is read."""
        form, names = _form_of(head(source), source, options)
        if form == "xml":
            return None
        file_us = changed_us(source, options)

        def chunk(block: TextBlock) -> RawChunk:
            payload = _Lines(form, names, block, file_us, "at" in options.extra)
            return RawChunk(str(source), block.first_line, payload)

        return LineFormat(chunk, whole_lines)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``device_samples``."""
        notes, zone = Notes(), zone_named(options)
        host = host_of(raw.source, options, notes)
        if isinstance(raw.payload, _Document):
            whole = raw.payload.whole
            text = text_in(whole, raw.source)
            rows, rejects = read_xml(text, host, raw.source, notes, zone)
            if whole.fault:
                end = text.count("\n") + 1
                rejects.append(Reject("device_samples", whole.fault, end, None, None))
        else:
            rows, rejects = _read_lines(raw, host, notes, zone)
        table = rows_of("device_samples", rows)
        return [Batch("device_samples", table, tuple(rejects), notes.tell())]


def _read_lines(
    raw: RawChunk, host: str, notes: Notes, zone: tzinfo | None
) -> tuple[list[dict[str, object]], list[Reject]]:
    part: _Lines = raw.payload
    text = part.block.data.decode("utf-8", "replace")
    lines = ((raw.first_row + n - 1, line) for n, line in numbered(text))
    reader: smi_csv.CsvReader | smi_dmon.DmonReader
    if part.form == "csv":
        reader = smi_csv.CsvReader(part.names, host, part.file_us, notes, zone, part.is_dated)
    else:
        reader = smi_dmon.DmonReader(part.names, host, notes, zone)
    reader.take(lines)
    if part.form == "csv" and (unread := smi_csv.not_read(reader.names)):
        notes.others.setdefault(f"fields that are not read: {', '.join(unread)}")
    broken = [Reject("device_samples", b.reason, b.row, None, b.raw) for b in part.block.broken]
    return reader.rows, reader.rejects + broken


def _form_of(data: bytes, source: Path, options: Options) -> tuple[str, tuple[str, ...]]:
    """``xml``, ``csv`` or ``dmon``, and the columns of the last two; InputError when none."""
    refuse_no_text(data, str(source), _HINT)
    text = data.decode("utf-8", "replace")
    if _XML in text:
        return "xml", ()
    lines = [line for _, line in zip(range(_HEAD_LINES), text.splitlines(), strict=False)]
    forms: tuple[tuple[str, Callable[[str], tuple[str, ...] | None]], ...] = (
        ("csv", smi_csv.header_of),
        ("dmon", smi_dmon.header_of),
    )
    for line in lines:
        for form, header_of in forms:
            names = header_of(line)
            if names is not None:
                return form, names
    named = options.mapping.get("columns")
    if named is not None:
        return "csv", tuple(name.strip() for name in named.split(","))
    names = smi_csv.guessed(lines)
    if names is None:
        raise InputError(
            "holds no output of nvidia-smi: no header, no values with units",
            where=str(source),
            hint=_HINT,
        )
    return "csv", names


def _last_header(form: str, data: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
    """The header that holds after ``data``."""
    header_of = smi_csv.header_of if form == "csv" else smi_dmon.header_of
    marks = (b"#",) if form == "dmon" else (b"timestamp", b"index", b"name", b"uuid", b"utiliz")
    if not any(mark in data for mark in marks):
        return names
    for line in reversed(data.decode("utf-8", "replace").splitlines()):
        if len(line) < 4096 and (found := header_of(line)) is not None:
            return found
    return names
