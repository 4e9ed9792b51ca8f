"""``mlflow``: metric files of a local store, and runs of a tracking server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.logs.lines import number
from steptax.connectors.sources import (
    BadLine,
    TextBlock,
    blocks,
    check_file,
    head,
    refuse_no_text,
    text_of,
)
from steptax.connectors.tables.screen import source_stem
from steptax.connectors.trackers.mlflow_rest import MlflowServer
from steptax.connectors.trackers.scalars import (
    CANNOT,
    SEES,
    TABLES,
    Point,
    TrackerBatch,
    TrackerRun,
    Writer,
    tracker_batch,
    whole_step,
)
from steptax.connectors.trackers.wandb_log import float_of
from steptax.connectors.wholefile import read_json_whole

_METRICS = "metrics"
_META = "meta.yaml"
_META_BYTES = 1 << 20
_FAR_MS = 2**53 // 1000
#: Status of a run, by number in a store and by name at a server.
_STATES = {
    **dict.fromkeys((1, "RUNNING"), "running"),
    **dict.fromkeys((2, "SCHEDULED"), "pending"),
    **dict.fromkeys((3, "FINISHED"), "completed"),
    **dict.fromkeys((4, "FAILED"), "failed"),
    **dict.fromkeys((5, "KILLED"), "cancelled"),
}


@dataclass(frozen=True)
class MetricText:
    """Whole lines of the file of one metric, and what the run's meta.yaml says."""

    tag: str
    block: TextBlock
    facts: Mapping[str, Any]


class MlflowConnector(Connector):
    """Metrics of runs by step and time."""

    kind = "mlflow"
    version = 1
    title = "MLflow: metric files of a local store, runs of a tracking server"
    in_folder: ClassVar = (f"**/{_METRICS}/**/*",)
    named_by_folder: ClassVar = True
    doc = (
        "A metric file of a local store, mlruns/EXPERIMENT/RUN/metrics/NAME: a line 'epoch_ms "
        "value step' per value; its run's meta.yaml gives id, name, times and state. A folder is "
        "searched for them. Or the address of a run or an experiment of a tracking server, as its "
        "page or its API writes it: https://HOST/#/experiments/1/runs/ID; MLFLOW_TRACKING_TOKEN, "
        "or MLFLOW_TRACKING_USERNAME and _PASSWORD, authorise. Or a run of it as JSON: "
        '{"run": ..., "metrics": [{"key", "value", "timestamp", "step"}]}.\n'
        "The job is the run's id unless --job is given. The loss is 'lm loss', lm_loss, "
        "train_loss, train/loss and the like; --loss-tag NAME names another. All other metrics are "
        "kept under their names. Values are the job's, of no rank."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the head is neither text of values nor an object."""
        data = head(source)
        hint = "name a file under metrics/, a run as JSON, or the address of a run"
        refuse_no_text(data, str(source), hint)
        first = data.lstrip().split(b"\n", 1)[0]
        is_object, is_whole = first.startswith(b"{"), b"\n" in data.lstrip()
        values = (_value(line) for line in data.splitlines()[:20])
        if is_whole and not is_object and all(value is None for value in values):
            raise InputError(
                f"its first line is no 'epoch_ms value step': {text_of(first[:100])!r}",
                where=str(source),
                hint=hint,
            )
        return Capabilities(TABLES, 0, SEES, CANNOT)

    def pull(self, url: str, options: Options) -> Iterator[tuple[str, bytes]]:
        """Each run at ``url`` as a JSON document that ``read`` takes."""
        yield from MlflowServer.from_environment("MLFLOW_TRACKING").runs(url)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Lines in stretches; a run as JSON at once."""
        if head(source).lstrip()[:1] == b"{":
            yield RawChunk(str(source), 1, read_json_whole(source))
            return
        tag, facts = _tag(source), _meta(source)
        for block in blocks(source):
            yield RawChunk(str(source), block.first_line, MetricText(tag, block, facts))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """The points of one stretch."""
        if isinstance(raw.payload, MetricText):
            return [_of_text(raw.payload)]
        return [_of_json(raw.payload)]

    def begin(self, source: Path, options: Options) -> Run:
        """The run's other metrics tell whether this one is the loss."""
        check_file(source)
        name = source_stem(source.name)
        tags: list[str] = []
        folder = _folder(source)
        if folder is not None:
            name = str(_meta(source).get("run_id") or folder.parent.name)
            tags = sorted(
                path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
            )
        return TrackerRun(source, options, kind=self.kind, job_id=name, tags=tags, every_tag=True)


def _folder(source: Path) -> Path | None:
    """The run's ``metrics``: names of metrics may hold slashes, so it may lie further up."""
    for parent in source.resolve().parents:
        if parent.name == _METRICS and (parent.parent / _META).is_file():
            return parent
    nearest = source.resolve().parent
    return nearest if nearest.name == _METRICS else None


def _tag(source: Path) -> str:
    folder = _folder(source)
    return source.name if folder is None else source.resolve().relative_to(folder).as_posix()


def _meta(source: Path) -> dict[str, Any]:
    """What the run's meta.yaml says; nothing where there is none that can be read."""
    folder = _folder(source)
    path = None if folder is None else folder.parent / _META
    if path is None or not path.is_file() or path.stat().st_size > _META_BYTES:
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except yaml.YAMLError:
        return {}
    if not isinstance(found, dict):
        return {}
    return _facts(found) | {"run_id": found.get("run_id") or found.get("run_uuid")}


def _facts(info: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of ``jobs`` from what a run says of itself."""
    status = info.get("status")
    return {
        "name": _name(info.get("run_name")),
        "owner": _name(info.get("user_id")),
        "state": _STATES.get(status) if isinstance(status, int | str) else None,
        "start_us": _ms(info.get("start_time")),
        "end_us": _ms(info.get("end_time")),
    }


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _ms(value: Any) -> int | None:
    """Milliseconds since 1970 as microseconds; servers give them as text too."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _FAR_MS:
        return None
    return value * 1000


def _value(line: bytes) -> tuple[int | None, str, float, int] | None:
    """Moment, value as text and number, step of a line; None for another line."""
    parts = line.decode("utf-8", "replace").split()
    if len(parts) not in (2, 3) or not (parts[0].isascii() and parts[0].isdigit()):
        return None
    value = number(parts[1])
    step = 0 if len(parts) == 2 else whole_step(number(parts[2]))
    if value is None or step is None or len(parts[0]) > 16:
        return None
    return _ms(int(parts[0])), parts[1], value, step


def _of_text(text: MetricText) -> TrackerBatch:
    points: list[Point | Writer] = []
    bad = list(text.block.broken)
    for offset, data in enumerate(text.block.data.split(b"\n")):
        if not data or data.isspace():
            continue
        place = text.block.first_line + offset
        found = _value(data)
        if found is None:
            reason = "expected 'epoch_ms value step', found another line"
            bad.append(BadLine(place, reason, text_of(data)))
            continue
        at_us, told, value, step = found
        points.append(Point(text.tag, step, value, at_us, place, told))
    facts = {name: value for name, value in text.facts.items() if name != "run_id"}
    return tracker_batch(points, _rejects(bad), facts=facts)


def _of_json(data: bytes) -> TrackerBatch:
    """Points of a run as JSON; its values are counted as lines."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = f"expected a whole JSON object, found a damaged one: {str(error)[:100]}"
        return tracker_batch((), _rejects([BadLine(1, reason, text_of(data))]))
    values = found.get(_METRICS) if isinstance(found, dict) else None
    run = found.get("run") if isinstance(found, dict) else None
    if not isinstance(values, list):
        reason = "expected an object with a list 'metrics', found none"
        return tracker_batch((), _rejects([BadLine(1, reason, text_of(data))]))
    points: list[Point] = []
    bad: list[BadLine] = []
    for place, value in enumerate(values, 1):
        point = _point(value, place) if isinstance(value, dict) else None
        if point is None:
            raw = text_of(str(value).encode("utf-8", "replace"))
            bad.append(BadLine(place, "expected key, value, timestamp and step", raw))
        else:
            points.append(point)
    # Metric by metric there; in the order of time what was run again comes behind what it repeats.
    points.sort(key=lambda point: point.at_us or 0)
    info = run.get("info", run) if isinstance(run, dict) else {}
    facts = _facts(info) if isinstance(info, dict) else {}
    return tracker_batch(points, _rejects(bad), facts=facts)


def _point(value: Mapping[str, Any], place: int) -> Point | None:
    key, told = value.get("key"), value.get("value")
    found = float_of(told)
    step: Any = value.get("step", 0)
    if isinstance(step, str):
        step = number(step)
    step = whole_step(step)
    if not isinstance(key, str) or not key or found is None or step is None:
        return None
    return Point(key, step, found, _ms(value.get("timestamp")), place, str(told))


def _rejects(bad: list[BadLine]) -> list[Reject]:
    return [Reject("printed_metrics", b.reason, b.row, None, b.raw) for b in bad]
