"""``tensorboard``: event files, read without TensorFlow or TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.runfolder import is_version, version_name
from steptax.connectors.sources import BadLine, check_file, head, text_of
from steptax.connectors.trackers.scalars import (
    CANNOT,
    SEES,
    TABLES,
    Point,
    TrackerBatch,
    TrackerRun,
    Writer,
    moment_us,
    tracker_batch,
    whole_step,
)
from steptax.connectors.trackers.tensorboard_events import Event, read_event
from steptax.connectors.trackers.tfrecord import Records, read_records, starts_like_records

_MARK = ".tfevents."


class TensorboardConnector(Connector):
    """Scalars of the event files of a run; a folder is a run, its files are its writers."""

    kind = "tensorboard"
    version = 1
    title = "event files of TensorBoard (Megatron-LM, torch, tensorboardX, TensorFlow, JAX)"
    in_folder: ClassVar = ("**/*.tfevents.*",)
    named_by_folder: ClassVar = True
    doc = (
        "TFRecords with their checksums; scalars as simple_value or as a tensor of one element; "
        "images, histograms, texts and graphs are counted and left out. Also packed by gzip. A "
        "file that is still written, or was cut, gives its whole records.\n"
        "A folder holds many runs: each folder with event files is one, called by its place in "
        "the folder that you name unless --job is given; Lightning's version_N has the name of its "
        "experiment in front. Several files in it are the writers of "
        "one run, in the order of their times; where one goes back in steps a new attempt begins.\n"
        "The loss is Megatron's 'lm loss', tensorboardX's lm_loss, train_loss, train/loss and the "
        "like; --loss-tag TAG names another. All other scalars are kept under their tags. Values "
        "are the job's, of no rank."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the head is no record."""
        data = head(source)
        if not starts_like_records(data):
            raise InputError(
                f"does not begin with a TFRecord: {data[:24]!r}",
                where=str(source),
                hint="name an event file: events.out.tfevents.*",
            )
        return Capabilities(TABLES, 0, SEES, CANNOT)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Records in stretches."""
        for records in read_records(source):
            yield RawChunk(str(source), records.first, records)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """The scalars of one stretch."""
        return [_points(raw.payload)]

    def begin(self, source: Path, options: Options) -> Run:
        """Goes on from the files of the same run that were written before."""
        check_file(source)
        name = _run_name(source, options.extra.get("folder"))
        before = _written_before(source)
        return TrackerRun(
            source, options, kind=self.kind, job_id=name, earlier=_earlier(before, source)
        )


def _points(records: Records) -> TrackerBatch:
    good, bad = records.sound()
    points: list[Point | Writer] = []
    heads: list[int] = []
    other = 0
    for number, data in good:
        try:
            event = read_event(data)
        except ValueError as error:
            bad.append(
                BadLine(number, f"expected an event, found a damaged one: {error}", text_of(data))
            )
            continue
        other += event.other
        if event.is_head and (began_us := moment_us(event.wall_s)) is not None:
            heads.append(began_us)
        found, fault = _of_event(event, number)
        points += found
        if fault is not None:
            bad.append(BadLine(number, fault, text_of(data)))
    rejects = [
        Reject("printed_metrics", b.reason, b.row, None, b.raw)
        for b in sorted(bad, key=lambda b: b.row)
    ]
    notes = (
        ("values that are no scalars (images, histograms, texts) are left out",) if other else ()
    )
    facts = {"start_us": min(heads)} if heads else {}
    return tracker_batch(points, rejects, facts=facts, notes=notes)


def _of_event(event: Event, number: int) -> tuple[list[Point | Writer], str | None]:
    points: list[Point | Writer] = []
    if event.is_head or event.is_restart:
        points.append(Writer(number))
    if not event.scalars:
        return points, None
    step = whole_step(event.step)
    if step is None:
        return points, f"expected a step of 0 or more, found {event.step}"
    at_us = moment_us(event.wall_s)
    points += [Point(tag, step, value, at_us, number) for tag, value in event.scalars]
    return points, None


def _run_name(source: Path, root: str | None) -> str:
    """The run's folder as TensorBoard names it: its place below ``root``, else its own name.

    Lightning's ``version_N`` has the name of its experiment in front.
    """
    folder = source.resolve().parent
    if _MARK not in source.name or not folder.name:
        return source.name
    top = None if root is None else Path(root).resolve()
    if top is None or folder == top or not folder.is_relative_to(top):
        return version_name(folder) if is_version(folder) else folder.name
    place = folder.relative_to(top)
    if is_version(first := top / place.parts[0]):
        return "/".join([version_name(first), *place.parts[1:]])
    return place.as_posix()


def _order(path: Path) -> tuple[int, str]:
    """By the seconds behind ``tfevents.``, then by name."""
    _, _, rest = path.name.partition(_MARK)
    seconds = rest.split(".", 1)[0]
    return (int(seconds) if seconds.isascii() and seconds.isdigit() else 0), path.name


def _written_before(source: Path) -> list[Path]:
    """The other event files of the folder that are older than ``source``."""
    if _MARK not in source.name:
        return []
    beside = [path for path in source.parent.glob("*.tfevents.*") if path.is_file()]
    return sorted((p for p in beside if _order(p) < _order(source)), key=_order)


def _earlier(paths: list[Path], source: Path) -> Iterator[Point | Writer]:
    for path in paths:
        try:
            for records in read_records(path):
                yield from _points(records).points
        except InputError:
            continue
