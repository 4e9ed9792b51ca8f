"""``wandb``: Weights & Biases without wandb: offline runs, summaries, exported histories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.sources import (
    BadLine,
    TextBlock,
    blocks,
    check_file,
    head,
    refuse_no_text,
    text_of,
)
from steptax.connectors.tables.csvcells import csv_cells
from steptax.connectors.tables.screen import source_stem
from steptax.connectors.trackers.scalars import (
    CANNOT,
    SEES,
    TABLES,
    Point,
    TrackerBatch,
    TrackerRun,
    tracker_batch,
)
from steptax.connectors.trackers.wandb_log import (
    HEADER,
    MAGIC,
    RunFacts,
    WandbRecords,
    number_of,
    read_record,
    read_wandb,
)
from steptax.connectors.trackers.wandb_text import (
    STEPS,
    of_csv,
    of_lines,
    of_summary,
    points_of,
    rejects_of,
    short_names,
)
from steptax.connectors.wholefile import read_json_whole

_SUMMARY = "wandb-summary.json"
_HINT = "name a run-*.wandb, a wandb-summary.json, or a history exported as CSV or JSON Lines"


@dataclass(frozen=True)
class CsvText:
    """Names of the columns, and whole lines behind the first."""

    columns: tuple[str, ...]
    block: TextBlock


@dataclass(frozen=True)
class JsonText:
    """Whole lines, each an object."""

    block: TextBlock


class WandbConnector(Connector):
    """History of a run by step."""

    kind = "wandb"
    version = 1
    title = "Weights & Biases: offline runs, summaries, exported histories"
    in_folder: ClassVar = ("**/*.wandb",)
    doc = (
        "run-ID.wandb of an offline (or any local) run; wandb-summary.json, which holds last "
        "values only; histories exported as CSV (of the page, or of a data frame) or JSON Lines. "
        "Nothing is sent or asked for. Texts and CSV also packed by gzip.\n"
        "Steps are those of train/global_step, trainer/global_step or global_step where a row has "
        "one, because _step counts calls of log there; else _step. --map step=KEY names another. "
        "Times are _timestamp. A row that is still written, or was cut, is left out.\n"
        "The loss is 'lm loss', train_loss, train/loss and the like; --loss-tag KEY names another. "
        "All other numbers are kept under their keys; the job is the run's id unless --job is "
        "given. Values are the job's, of no rank."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the head is none of the forms."""
        data = head(source)
        if data.startswith(MAGIC):
            if not data.startswith(HEADER):
                raise InputError(
                    f"has a version of the format that is not read: {data[4:7].hex()}",
                    where=str(source),
                    hint="export the history as CSV",
                )
        else:
            refuse_no_text(data, str(source), _HINT)
            if data.lstrip()[:1] not in (b"{",):
                _columns(data, source)
        return Capabilities(TABLES, 0, SEES, CANNOT)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Records or lines in stretches; a summary at once."""
        data = head(source)
        if data.startswith(MAGIC):
            for records in read_wandb(source):
                yield RawChunk(str(source), 1, records)
        elif data.lstrip()[:1] == b"{" and not _is_lines(data):
            yield RawChunk(str(source), 1, read_json_whole(source))
        elif data.lstrip()[:1] == b"{":
            for block in blocks(source):
                yield RawChunk(str(source), block.first_line, JsonText(block))
        else:
            columns = _columns(data, source)
            for block in blocks(source):
                yield RawChunk(str(source), block.first_line, CsvText(columns, block))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """The points of one stretch."""
        key = options.mapping.get("step")
        payload = raw.payload
        if isinstance(payload, WandbRecords):
            return [_of_records(payload, key)]
        if isinstance(payload, CsvText):
            return [of_csv(payload.columns, payload.block, key)]
        if isinstance(payload, JsonText):
            return [of_lines(payload.block, key)]
        return [of_summary(payload, key)]

    def begin(self, source: Path, options: Options) -> Run:
        """The run's id names the job: of an offline run the one in its file's name."""
        check_file(source)
        name = source_stem(source.name).removesuffix(".wandb")
        if source.name == _SUMMARY:
            name = source.resolve().parent.parent.name or name
        return TrackerRun(source, options, kind=self.kind, job_id=_run_name(name))


def _run_name(name: str) -> str:
    """``offline-run-20260101_120000-ab12`` and ``run-ab12`` are run ``ab12``."""
    for start in ("offline-run-", "run-"):
        if name.startswith(start) and len(name) > len(start):
            name = name[len(start) :]
            date, dash, rest = name.partition("-")
            return rest if dash and date.replace("_", "").isdigit() and rest else name
    return name


def _is_lines(data: bytes) -> bool:
    """Whether each line is an object: else there is one, over one line or many."""
    first, _, rest = data.lstrip().partition(b"\n")
    return first.rstrip().endswith(b"}") and bool(rest.strip())


def _of_records(records: WandbRecords, key: str | None) -> TrackerBatch:
    points: list[Point] = []
    bad = list(records.broken)
    facts: dict[str, Any] = {}
    for place, data in records.data:
        try:
            found = read_record(data)
        except ValueError as error:
            bad.append(
                BadLine(place, f"expected a record, found a damaged one: {error}", text_of(data))
            )
            continue
        if isinstance(found, RunFacts):
            facts |= found.facts
        elif found is not None:
            row = {name: (number_of(text), text) for name, text in found.values}
            if "_step" not in row and found.step is not None:
                row["_step"] = (float(found.step), str(found.step))
            of_row = points_of(row, place, key)
            if isinstance(of_row, str):
                bad.append(BadLine(place, of_row, text_of(data)))
            else:
                points += of_row
    return tracker_batch(points, rejects_of(bad), facts=facts)


def _columns(data: bytes, source: Path) -> tuple[str, ...]:
    """Names of the columns; InputError when there is no step among them."""
    first = data.split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r")
    columns = tuple(name.strip() for name in csv_cells(first) or ())
    if not {"_step", *STEPS} & set(short_names(columns)) or len(set(columns)) < len(columns):
        raise InputError(
            f"its first line names no column '_step' or 'Step': {first[:100]!r}",
            where=str(source),
            hint=_HINT,
        )
    return columns
