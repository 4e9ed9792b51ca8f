"""``prometheus``: answers of the HTTP interface of a Prometheus server, saved or asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk
from steptax.connectors.nccl.inspector_series import InspectorSeries
from steptax.connectors.prometheus.book import DEVICES, LINKS, Book, Series
from steptax.connectors.prometheus.exposition import us_of, value_of
from steptax.connectors.prometheus.moments import moment_of, seconds_of
from steptax.connectors.prometheus.rows import batch_of
from steptax.connectors.prometheus.server import PrometheusServer, Window
from steptax.connectors.sources import head, refuse_no_text, text_of
from steptax.connectors.tables.screen import source_stem
from steptax.connectors.values import BadValueError, short
from steptax.connectors.wholefile import Whole, read_whole
from steptax.connectors.wording import said as counted

_TABLE = DEVICES.table
#: An option of whoever follows a server: nothing was ever scraped before what is read.
NEVER_SCRAPED = "never-scraped"
_HOUR_US = 3_600_000_000
#: So many damaged places in a file are named; what lies behind them is not looked for.
_DAMAGES = 200
_SHOWN = 5
_BLANK = re.compile(r"\s*")


@dataclass(frozen=True)
class Saved:
    """Answers as they were saved; ``host`` is the node where no label names one."""

    whole: Whole
    host: str


class PrometheusConnector(Connector):
    """Samples of devices and ports that a Prometheus server keeps."""

    kind = "prometheus"
    version = 1
    title = "Prometheus: a server by its address, saved answers of its HTTP API"
    doc = (
        "The address of a server, http://HOST:9090, with --from and --to (ISO 8601, seconds, now, "
        "-2h; the last hour unless given): every sample as it was scraped, in windows of 15 "
        "minutes; --step 30s asks for one value per step, and never for one that is older than "
        "the step. PROMETHEUS_TOKEN, or PROMETHEUS_USERNAME and PROMETHEUS_PASSWORD, authorise. Or "
        "JSON that /api/v1/query or /api/v1/query_range answered: vector or matrix, several "
        "answers one after another too.\n"
        "Metrics of dcgm-exporter, AMD device-metrics-exporter and node_exporter (InfiniBand) are "
        "read, as the kinds dcgm and node-exporter read them; of NCCL Inspector's gauges the "
        "median and spread of each series in a window. Steps that are missing are gaps and "
        "named; NaN and infinite values are missing. Samples of a hung exporter, repeating what "
        "it knew, are stored as they come: what reads them takes their time as not observed."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 4; InputError where the head is no answer of the interface."""
        data = head(source)
        hint = "save one: curl -G HOST:9090/api/v1/query --data-urlencode query=... > FILE"
        refuse_no_text(data, str(source), hint)
        start = data.lstrip()
        if not start.startswith(b"{") or not (b'"status"' in start or b'"result"' in start):
            raise InputError(
                'is no answer of Prometheus: it has no "status"', where=str(source), hint=hint
            )
        return Capabilities(
            (DEVICES.table, LINKS.table, "bench_results", "collectives"),
            4,
            "what devices and ports said at each scrape: activity, power, energy, clocks, errors",
            "which job used a device; what happened between two scrapes",
        )

    def pull(self, url: str, options: Options) -> Iterator[tuple[str, bytes]]:
        """The answers for each window as a document that ``read`` takes."""
        yield from PrometheusServer.from_environment("PROMETHEUS").windows(
            url, window_of(options.extra)
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        host = options.extra.get("host") or source_stem(source.name)
        yield RawChunk(str(source), 1, Saved(read_whole(source, by_folder=False), host))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """One row per device or port and moment."""
        saved: Saved = raw.payload
        reading = _Reading(saved.host, is_first=NEVER_SCRAPED in options.extra)
        for document, line in reading.documents(saved.whole.data.removeprefix(b"\xef\xbb\xbf")):
            reading.take(document, line)
        if saved.whole.fault:
            reading.fault(saved.whole.fault, saved.whole.data.count(b"\n") + 1)
        return reading.batches()


def window_of(extra: Mapping[str, str]) -> Window:
    """What ``--from``, ``--to`` and ``--step`` ask for; InputError for what is no time."""
    end_us = moment_of(extra.get("to", "now"), "--to")
    told = extra.get("from")
    start_us = end_us - _HOUR_US if told is None else moment_of(told, "--from")
    step = extra.get("step")
    return Window(start_us, end_us, None if step is None else seconds_of(step, "--step"))


class _Reading:
    """Takes documents, and says what they gave. Values are counted as lines."""

    def __init__(self, host: str, *, is_first: bool = False) -> None:
        self._books = (Book(DEVICES, host), Book(LINKS, host))
        for book in self._books:
            book.is_first = is_first
        self._inspector = InspectorSeries(host)
        self._rejects: list[Reject] = []
        self._others: dict[str, None] = {}
        self._down: dict[str, list[bool]] = {}
        self._notes: list[str] = []
        self._asked = ""
        self._row = 0

    def documents(self, data: bytes) -> Iterator[tuple[Any, int]]:
        """Each document of ``data``; what is none is rejected, up to the next on a new line."""
        text = data.decode("utf-8", "backslashreplace")
        decoder = json.JSONDecoder()
        at, line, damages = 0, 1, 0
        while True:
            begin = _BLANK.match(text, at).end()  # type: ignore[union-attr]
            if begin >= len(text):
                return
            line += text.count("\n", at, begin)
            try:
                found, at = decoder.raw_decode(text, begin)
            except (ValueError, RecursionError) as error:
                reason = f"expected a whole answer as JSON, found a damaged one: {str(error)[:100]}"
                self._reject(reason, line, text[begin : begin + 500])
                damages += 1
                at = text.find("\n{", begin + 1)
                if at < 0 or damages >= _DAMAGES:
                    return
                line += text.count("\n", begin, at)
                continue
            yield found, line
            line += text.count("\n", begin, at)

    def take(self, document: Any, line: int) -> None:
        """The series of one answer."""
        if not isinstance(document, dict):
            self._reject("expected an answer as an object, found another value", line, document)
            return
        if document.get("status") == "error":
            told = f"{document.get('errorType')}: {document.get('error')}"[:200]
            self._reject(f"expected values, found the error of a query: {told}", line, document)
            return
        if isinstance(window := document.get("window"), dict):
            self._window(window)
            return
        warnings = document.get("warnings")
        for warning in warnings[:_SHOWN] if isinstance(warnings, list) else ():
            self._notes.append(f"the server warns: {str(warning)[:200]}")
        data = document.get("data")
        result = data.get("result") if isinstance(data, dict) else None
        if not isinstance(result, list):
            self._reject("expected data with a list of results, found none", line, document)
            return
        for series in result:
            self._series(series, line)

    def fault(self, reason: str, line: int) -> None:
        """The file breaks off at ``line``."""
        self._reject(reason, line, "")

    def _window(self, window: Mapping[str, Any]) -> None:
        names = ("read_from_us", "start_us", "end_us")
        begin, start, end = (window.get(name) for name in names)
        if not (isinstance(begin, int) and isinstance(start, int) and isinstance(end, int)):
            return
        if not -(2**62) < begin <= start < end < 2**62:
            return
        for book in self._books:
            book.span_us, book.after_us = (begin, end), start
        self._inspector.span_us = start, end
        self._asked = f" from {start / 1e6:.3f} to {end / 1e6:.3f}"

    def _series(self, series: Any, line: int) -> None:
        labels = series.get("metric") if isinstance(series, dict) else None
        if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
            self._reject("expected a series with the labels of its metric", line, series)
            return
        values = series.get("values")
        if values is None:
            values = [series.get("value")]
        if not isinstance(values, list):
            self._reject("expected a list of values", line, series)
            return
        name = labels.get("__name__", "")
        book = next((book for book in self._books if book.takes(name)), None)
        if name == "up":
            where = f"{labels.get('job', '')} {labels.get('instance', '')}".strip()
            self._down.setdefault(where, []).extend(
                isinstance(v, list) and len(v) == 2 and v[1] == "0" for v in values
            )
        take: Callable[[float, int], None]
        if book is None and not self._inspector.takes(name):
            self._row += len(values)
            self._others[name or "a metric without a name"] = None
            return
        try:
            if book is None:
                take = partial(self._inspector.series(name, labels).put, row=self._row + 1)
            else:
                found = book.series(name, labels)
                take = partial(self._put, book, found)
        except BadValueError as bad:
            self._reject(str(bad), line, series, bad.field)
            return
        for pair in values:
            self._row += 1
            at_us = us_of(pair[0]) if isinstance(pair, list) and len(pair) == 2 else None
            if at_us is None or not isinstance(pair[1], str | int | float):
                self._reject(
                    f'expected [seconds, "value"], found {short(pair)}', self._row, pair, name
                )
                continue
            try:
                value = value_of(str(pair[1]))
            except BadValueError as bad:
                self._reject(str(bad), self._row, pair, name)
                continue
            take(value, at_us)

    def _put(self, book: Book, found: Series, value: float, at_us: int) -> None:
        book.put(found, value, at_us, self._row)

    def batches(self) -> list[Batch]:
        """Rows of every table, with what is to be said of them."""
        figures = self._inspector.batches()
        if not self._rejects and not figures and not any(book.rows for book in self._books):
            found = ", ".join(list(self._others)[:_SHOWN]) or "nothing"
            if self._asked and not self._others:
                # A window in which nothing was scraped: no line of an answer is wrong.
                self._notes.append(f"there are no samples of devices or ports{self._asked}")
            else:
                reason = f"expected samples of devices or ports{self._asked}, found {found}"
                self._reject(reason, 1, "")
        for where, states in self._down.items():
            if any(states):
                self._notes.append(
                    f"{where} was down at {sum(states):,} of {counted(len(states), 'scrape')}: "
                    "nothing is known of what it exports then"
                )
        devices = batch_of(self._books[0], self._rejects)
        notes = (*devices.notes, *self._notes)
        return [
            Batch(devices.table, devices.rows, devices.rejects, notes),
            *([batch_of(self._books[1])] if self._books[1].rows else ()),
            *figures,
        ]

    def _reject(self, reason: str, row: int, found: Any, field: str | None = None) -> None:
        raw = found if isinstance(found, str) else str(found)[:500]
        shown = text_of(raw[:500].encode("utf-8", "backslashreplace"))
        self._rejects.append(Reject(_TABLE, reason, row, field, shown))
