"""``dcgm`` and ``node-exporter``: what an exporter answers to a scrape, saved as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk
from steptax.connectors.prometheus.book import DEVICES, LINKS, Book, Series, Subject
from steptax.connectors.prometheus.exporter import Exporter
from steptax.connectors.prometheus.exposition import labels_of, line_of, moment_us, value_of
from steptax.connectors.prometheus.moments import moment_of
from steptax.connectors.prometheus.rows import batch_of
from steptax.connectors.sources import head, refuse_no_text, text_of
from steptax.connectors.values import BadValueError
from steptax.connectors.wholefile import Whole, numbered, read_whole, text_in

#: Series of one scrape are told apart once; more than this are not remembered.
_SERIES = 200_000


@dataclass(frozen=True)
class Scrape:
    """A file, and when it was written: the moment of lines without one."""

    whole: Whole
    at_us: int
    is_told: bool
    """Whether the person named the moment."""


class ScrapeConnector(Connector):
    """Text of an exporter; subclasses say of what."""

    version = 1
    subject: ClassVar[Subject]
    mark: ClassVar[re.Pattern[str]]
    sees: ClassVar[str]
    cannot_see: ClassVar[str]

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 4; InputError where the head holds no metric of the exporter."""
        data = head(source)
        hint = f"name the answer of the exporter: curl HOST:PORT/metrics > FILE; {self.doc[:60]}"
        refuse_no_text(data, str(source), hint)
        if not self.mark.search(data.decode("utf-8", "replace")):
            raise InputError(
                f"holds no metric of this kind in its first {len(data):,} bytes",
                where=str(source),
                hint="name the answer of the exporter: curl HOST:PORT/metrics > FILE",
            )
        return Capabilities((self.subject.table,), 4, self.sees, self.cannot_see)

    def pull(self, url: str, options: Options) -> Iterator[tuple[str, bytes]]:
        """One scrape of the exporter at ``url``."""
        yield Exporter.from_environment("PROMETHEUS").scrape(url)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        told = options.extra.get("at")
        at_us = moment_of(told, "--at") if told else source.stat().st_mtime_ns // 1000
        yield RawChunk(
            str(source), 1, Scrape(read_whole(source, by_folder=False), at_us, told is not None)
        )

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """One row per device, or port, and moment."""
        scrape: Scrape = raw.payload
        text = _text(scrape.whole, raw.source)
        book = Book(self.subject, options.extra.get("host") or scrape.whole.job_id)
        rejects: list[Reject] = []
        known: dict[tuple[str, str], Series] = {}
        undated = 0
        for number, written in numbered(text):
            line = written.strip()
            if not line or line.startswith("#"):
                continue
            try:
                found = line_of(line)
                if not book.takes(found.name):
                    continue
                key = (found.name, found.labels)
                series = known.get(key)
                if series is None:
                    series = book.series(found.name, labels_of(found.labels))
                    if len(known) < _SERIES:
                        known[key] = series
                at_us = scrape.at_us if found.ts is None else moment_us(found.ts)
                undated += found.ts is None
                book.put(series, value_of(found.value), at_us, number)
            except BadValueError as bad:
                shown = text_of(written.encode("utf-8", "replace"))
                rejects.append(Reject(self.subject.table, str(bad), number, bad.field, shown))
        if scrape.whole.fault:
            end = text.count("\n") + 1
            rejects.append(Reject(self.subject.table, scrape.whole.fault, end))
        if not book.rows and not rejects:
            reason = "expected metrics with values, found none that has a column here"
            shown = text_of(text[:200].encode())
            rejects.append(Reject(self.subject.table, reason, 1, None, shown))
        batch = batch_of(book, rejects)
        notes = list(batch.notes)
        if undated and not scrape.is_told:
            notes.append(
                "lines without a moment are taken as of when the file was written; --at names it"
            )
        return [Batch(batch.table, batch.rows, batch.rejects, tuple(notes))]


def _text(whole: Whole, where: str) -> str:
    """The file as text: bytes that are none spoil their line only."""
    try:
        return text_in(whole, where)
    except InputError:
        if b"\0" in whole.data[:4096]:
            raise
    return whole.data.decode("utf-8", "backslashreplace").replace("\0", "\\0")


class DcgmConnector(ScrapeConnector):
    """Samples of devices from dcgm-exporter and AMD's exporter."""

    kind = "dcgm"
    title = "GPU exporters: answers of dcgm-exporter and AMD device-metrics-exporter"
    doc = (
        "The address of an exporter, http://HOST:9400/metrics, or a saved answer. "
        'Text of a scrape: DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-...",Hostname="..."} 91, '
        "with or without HELP and TYPE lines, timestamps, and labels of Kubernetes or Slurm; the "
        "names of dcgm-exporter 1 (dcgm_gpu_temp), and those of AMD (gpu_package_power).\n"
        "A device is told by its UUID, an AMD one by serial number and index; pods and jobs in "
        "labels are no identity, so a card that several of them share counts once, and so does one "
        "that is told whole and by MIG instance. The node is Hostname, hostname, node or instance, "
        "else --host or the file's name. DCGM's codes for 'no value', NaN and percentages that "
        "cannot be are missing, and counted. Lines without a moment are of when the file was "
        "written; --at names another."
    )
    subject = DEVICES
    mark = re.compile(r"(?m)^\s*(?:DCGM_FI_|dcgm_|gpu_)\w+\s*\{")
    sees = "utilisation, activity, memory, power, energy, temperature, clocks and errors of devices"
    cannot_see = (
        "which job used a device; what a kernel did: utilisation is the time with one resident; "
        "counters that the exporter is not told to read"
    )


class NodeExporterConnector(ScrapeConnector):
    """Samples of InfiniBand ports from node_exporter."""

    kind = "node-exporter"
    title = "node_exporter: InfiniBand ports in the answer to a scrape"
    doc = (
        "The address of an exporter, http://HOST:9100/metrics, or a saved answer. "
        'Text of a scrape: node_infiniband_port_data_received_bytes_total{device="mlx5_0",'
        'port="1"} 1.8e+07; other metrics of node_exporter are left out. Bytes, errors, '
        "discards, link downs and recoveries, waiting for credit, speed and states; values from "
        "before 0.16, without _total and in words of four bytes, are converted.\n"
        "The node is the label instance, nodename or node, else --host or the file's name. The "
        "counter of waiting for credit is missing where it stands at the end of its 32 bits. Lines "
        "without a moment are of when the file was written; --at names another."
    )
    subject = LINKS
    mark = re.compile(r"(?m)^\s*node_infiniband_\w+\s*\{")
    sees = "bytes, errors and states of the ports of network adapters"
    cannot_see = "which job sent what; the switches; what happened between two samples"
