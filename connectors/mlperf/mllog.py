"""``mlperf-log``: logs of single runs of MLPerf Training, the lines ``:::MLLOG``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk
from steptax.connectors.mlperf.results import UNKNOWN
from steptax.connectors.sources import head, refuse_no_text
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.tables.norows import no_rows
from steptax.connectors.values import (
    BadValueError,
    optional_number,
    short,
    text_value,
    whole_number,
)
from steptax.connectors.wholefile import numbered, read_whole, text_in, whole_json

MARK = ":::MLLOG"
_LINE = re.compile(rf"{MARK}\s+(?P<event>\{{.*)$")
_RUN = re.compile(r"result_(\d+)\.txt")
_ROUND = re.compile(r"training_results_v(\d+(?:\.\d+)?)")
#: What a run says once; a second value is a second run in the same file.
_ONCE = ("run_start", "run_stop", "init_start")
_QUALITIES = ("eval_accuracy", "eval_loss", "eval_error", "eval_score")


@dataclass(frozen=True)
class RunLog:
    """A log as read, with what lies beside it in the folders of a submission."""

    text: str
    fault: str | None
    place: Mapping[str, Any]
    """Round, system, run and scaling factor, as far as the path tells them."""
    description: Mapping[str, Any]
    """The description of the system; empty where there is none."""


class MlperfLogConnector(Connector):
    """One row of ``public_runs`` from the log of one run."""

    kind = "mlperf-log"
    version = 1
    title = "logs of single runs of MLPerf Training: result_N.txt with lines :::MLLOG"
    in_folder = ("result_*.txt",)
    doc = (
        "The log of one run, as submissions of MLPerf Training hold it under "
        "results/SYSTEM/BENCHMARK/result_N.txt; other lines between are passed over. The time "
        "is run_start to run_stop; initialisation is kept beside it. In the folders of a "
        "submission the description systems/SYSTEM.json gives devices and nodes, scaling.json "
        "beside the log the factor by which the organiser lengthens the result, and a folder "
        "training_results_vN.N the round.\n"
        "What is made of several runs is recomputed from the public logs: the mean without the "
        "fastest and the slowest, times the factor. It is not verified by MLCommons."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for the first mark in the head of the file."""
        if options.job_id is not None:
            raise InputError("a run is of no job of yours", where="--job", hint="leave it out")
        data = head(source)
        refuse_no_text(data, str(source), "the log of a run of MLPerf Training is read")
        if MARK.encode() not in data:
            raise InputError(
                f"is no log of MLPerf Training: there is no line {MARK} at its beginning",
                where=str(source),
                hint="name a result_N.txt of results/SYSTEM/BENCHMARK",
            )
        return Capabilities(
            ("public_runs",),
            0,
            "how long one run trained, on which system, and to which quality",
            "per-rank times; what the hours cost",
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file, and the small ones beside it."""
        whole = read_whole(source, by_folder=False)
        place, description = _beside(source.absolute())
        log = RunLog(text_in(whole, str(source)), whole.fault, place, description)
        yield RawChunk(str(source), 1, log)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """The row of the run; lines that are damaged are rejects."""
        log: RunLog = raw.payload
        run = _Run()
        rejects: list[Reject] = []
        for number, line in numbered(log.text):
            found = _LINE.search(line)
            if found is None:
                continue
            try:
                run.take(number, _event(found["event"]))
            except BadValueError as error:
                rejects.append(Reject("public_runs", str(error), number, error.field, line[:500]))
        if log.fault is not None:
            rejects.append(Reject("public_runs", log.fault, log.text.count("\n") + 1, None, ""))
        try:
            rows = rows_of("public_runs", [run.row(log)])
        except BadValueError as error:
            rejects.append(Reject("public_runs", str(error), run.first_line or 1, error.field, ""))
            rows = no_rows("public_runs")
        return [Batch("public_runs", rows, tuple(rejects), run.notes())]


def _event(text: str) -> dict[str, Any]:
    """The event of a line; BadValueError where it is none."""
    try:
        event = whole_json(text)
    except ValueError:
        raise BadValueError(MARK, "one JSON object to the end of the line", text) from None
    if not isinstance(event, dict):
        raise BadValueError(MARK, "one JSON object to the end of the line", event)
    if text_value(event, "key") is None:
        raise BadValueError("key", "the name of an event", event.get("key"))
    whole_number(event, "time_ms")
    return event


@dataclass
class _Run:
    """What the events of one run say."""

    times_ms: dict[str, int] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    status: str | None = None
    quality: float | None = None
    samples: float | None = None
    first_line: int | None = None

    def take(self, number: int, event: Mapping[str, Any]) -> None:
        """Take one event; BadValueError where it contradicts those before."""
        self.first_line = self.first_line or number
        key, metadata = str(event["key"]), event.get("metadata")
        details = metadata if isinstance(metadata, dict) else {}
        if key in _ONCE or key == "init_stop":
            if key in _ONCE and key in self.times_ms:
                raise BadValueError(key, f"one {key} in the log of a run", event["time_ms"])
            self.times_ms[key] = whole_number(event, "time_ms")
            if key == "run_stop":
                self.status = text_value(details, "status")
        elif key.startswith("submission_"):
            said = text_value(event, "value")
            if said is not None:
                self.told.setdefault(key.removeprefix("submission_"), said)
        elif key == "global_batch_size":
            self.numbers[key] = whole_number(event, "value", floor=1)
        elif key in _QUALITIES:
            self.quality = _finite(event, "value")
            seen = details.get("samples_count", details.get("epoch_num"))
            if seen is not None:
                self.samples = _finite({"samples_count": seen}, "samples_count")

    def row(self, log: RunLog) -> dict[str, Any]:
        """The run as a row; BadValueError where its log tells no time or not whose it is."""
        if "run_start" not in self.times_ms:
            raise BadValueError("run_start", "a run_start in the log of a run", None, said="none")
        place, described = log.place, log.description
        submitter = self.told.get("org") or text_value(described, "submitter")
        benchmark = self.told.get("benchmark") or place.get("benchmark")
        system = place.get("system") or self.told.get("platform")
        for name, value in (
            ("submission_org", submitter),
            ("submission_benchmark", benchmark),
            ("submission_platform", system),
        ):
            if value is None:
                raise BadValueError(name, f"a {name} in the log of a run", None, said="none")
        nodes, per_node = (
            optional_number(described, name, floor=1, small=True)
            for name in ("number_of_nodes", "accelerators_per_node")
        )
        return {
            "round": place.get("round", UNKNOWN),
            "submitter": submitter,
            "system": system,
            "benchmark": benchmark,
            "run": place.get("run", 0),
            "division": self.told.get("division"),
            "availability": self.told.get("status"),
            "gpu_model": text_value(described, "accelerator_model_name"),
            "gpus": nodes * per_node if nodes is not None and per_node is not None else None,
            "nodes": nodes,
            "software": text_value(described, "framework"),
            "status": self.status,
            "train_s": self._between_s("run_start", "run_stop"),
            "init_s": self._between_s("init_start", "init_stop"),
            "scaling_factor": place.get("scaling_factor"),
            "global_batch_size": self.numbers.get("global_batch_size"),
            "samples": self.samples,
            "quality": self.quality,
            "source_row": self.first_line,
        }

    def notes(self) -> tuple[str, ...]:
        """What a reader of the row must know."""
        if "run_start" in self.times_ms and "run_stop" not in self.times_ms:
            return ("the log ends before the run does: it has no time, and counts as failed",)
        return ()

    def _between_s(self, begin: str, end: str) -> float | None:
        if begin not in self.times_ms or end not in self.times_ms:
            return None
        span_ms = self.times_ms[end] - self.times_ms[begin]
        if span_ms < 0:
            raise BadValueError(end, f"a {end} after {begin}", self.times_ms[end])
        return span_ms / 1000


def _finite(row: Mapping[str, Any], name: str) -> float | None:
    """A number, maybe below 0; None where it is no number, as a loss of NaN."""
    found = row.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise BadValueError(name, "a number", found)
    value = float(found) if abs(found) < 1e300 else float("nan")
    return value if value == value else None


def _beside(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What path and folders of a submission tell: place, and the description of the system."""
    place: dict[str, Any] = {}
    if found := _RUN.match(source.name):
        place["run"] = min(int(found[1]), 2**31 - 1)
    if found := _ROUND.search(str(source)):
        place["round"] = found[1]
    description: dict[str, Any] = {}
    if len(source.parents) > 3 and source.parents[2].name == "results":
        place["system"], place["benchmark"] = source.parents[1].name, source.parent.name
        description = _small_json(source.parents[3] / "systems" / f"{source.parents[1].name}.json")
    factor = _small_json(source.parent / "scaling.json").get("scaling_factor")
    if isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < 100:
        place["scaling_factor"] = float(factor)
    return place, description


def _small_json(path: Path) -> dict[str, Any]:
    """A JSON object of at most 1 MiB; empty where there is none.

    InputError where there is a file that cannot be understood: its facts would be missed in
    silence.
    """
    try:
        if path.stat().st_size > 1 << 20:
            raise ValueError("it is longer than 1 MiB")
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(
            f"lies beside the log and cannot be read: {short(str(error))}",
            where=str(path),
            hint="mend or remove it",
        ) from None
    return found if isinstance(found, dict) else {}
