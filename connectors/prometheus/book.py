"""Values of series put together as rows: one per device, or port, and moment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steptax.connectors.prometheus.names import (
    DEVICE_FIELDS,
    DEVICE_NAMES,
    LINK_FIELDS,
    LINK_NAMES,
    Field,
    is_blank,
)
from steptax.connectors.values import BadValueError
from steptax.connectors.wording import said as counted

#: Labels that name the node, the first that is there; those of the target come last.
_HOSTS = ("Hostname", "exported_Hostname", "hostname", "node", "nodename", "kubernetes_node")
#: In Kubernetes an exporter that is not told its node calls itself by its pod.
_PODS = ("dcgm-exporter-", "nvidia-dcgm-exporter-")
_UUIDS = ("UUID", "uuid", "gpu_uuid", "exported_UUID")
_INSTANCE = "GPU_I_ID"
_SHOWN = 6


@dataclass(frozen=True)
class Identity:
    """Whose values a series gives: the key of its rows but for the moment, and what else it says.

    ``instance`` is the MIG instance of the card.
    """

    key: tuple[str, ...]
    facts: Mapping[str, Any]
    instance: str | None = None


@dataclass(frozen=True)
class Subject:
    """What a table is of: its fields by metric, how names begin, and who a series is of."""

    table: str
    keys: tuple[str, ...]
    fields: Mapping[str, Field]
    names: tuple[str, ...]
    identify: Callable[[Mapping[str, str], str], Identity]
    blanks: bool
    """Whether the exporter has codes for values that are not there."""


@dataclass(frozen=True)
class Series:
    """A series whose values are taken; ``field`` is None where its metric has no column."""

    name: str
    identity: Identity | None
    field: Field | None
    part: str = ""


@dataclass
class Row:
    """Values of a moment: column -> (preference, value), and what sums are made of."""

    source_row: int
    facts: Mapping[str, Any]
    cells: dict[str, tuple[tuple[bool, int], float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    is_split: bool = False


@dataclass
class Book:
    """Takes values in any order; the same value from several series of a card counts once.

    ``host`` is the node where no label names one; ``span_us`` is what is read, open at its begin:
    what lies outside is left out. What lies up to ``after_us`` was stored before, and only tells
    what follows from it. ``is_first`` tells that there was no scrape before it: then the time up to
    the first sample is no gap.
    """

    subject: Subject
    host: str
    span_us: tuple[int, int] | None = None
    after_us: int | None = None
    is_first: bool = False
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    instances: set[tuple[str, ...]] = field(default_factory=set)

    def takes(self, name: str) -> bool:
        """Whether a metric is of this subject."""
        return name in self.subject.fields or name.startswith(self.subject.names)

    def series(self, name: str, labels: Mapping[str, str]) -> Series:
        """The series ``name`` with ``labels``; BadValueError where they name no device."""
        found = self.subject.fields.get(name)
        if found is None:
            self.unread[name] += 1
            return Series(name, None, None)
        if found.only is not None and found.only[1] not in labels.get(found.only[0], "").lower():
            return Series(name, None, None)
        identity = self.subject.identify(labels, self.host)
        return Series(name, identity, found, f"{name} {labels.get('link_index', '')}")

    def put(self, series: Series, value: float, ts_us: int, row: int) -> None:
        """A value of ``series`` at ``ts_us``, read at line or place ``row``."""
        if self.span_us is not None and not self.span_us[0] < ts_us <= self.span_us[1]:
            return
        if not math.isfinite(value) or (self.subject.blanks and is_blank(value)):
            self.missing[series.name] += 1
            return
        spec, identity = series.field, series.identity
        if spec is None or identity is None:
            return
        key = (*identity.key, ts_us)
        found = self.rows.get(key)
        if found is None:
            found = self.rows[key] = Row(row, identity.facts)
        if identity.instance is not None:
            found.is_split = True
            self.instances.add((*identity.key, identity.instance))
            if not spec.of_card or spec.adds:
                return
        if not spec.low <= value <= spec.high or (spec.whole and not value.is_integer()):
            self.missing[series.name] += 1
            return
        value *= spec.scale
        if spec.adds:
            found.parts.setdefault(spec.column, {}).setdefault(series.part, value)
            return
        order = (identity.instance is not None, spec.rank)
        known = found.cells.get(spec.column)
        if known is None or order < known[0]:
            found.cells[spec.column] = (order, value)
        elif order == known[0]:
            if spec.most:
                found.cells[spec.column] = (order, max(value, known[1]))
            elif value == known[1]:
                self.repeated += 1
            else:
                self.conflicts[series.name] += 1

    def notes(self) -> list[str]:
        """What was left out and why."""
        said = []
        if self.missing:
            said.append(
                counted(
                    sum(self.missing.values()),
                    "value is a code for 'no value' or lies outside what can be, and counts",
                    "values are codes for 'no value' or lie outside what can be, and count",
                )
                + f" as missing: {_listed(self.missing)}"
            )
        if self.repeated:
            said.append(
                f"{counted(self.repeated, 'value')} came again (labels of pods, shared cards, a "
                f"scrape twice) and {'counts' if self.repeated == 1 else 'count'} once"
            )
        if self.conflicts:
            said.append(
                counted(sum(self.conflicts.values()), "value contradicts", "values contradict")
                + " another one of the same device and moment; the first is kept: "
                + _listed(self.conflicts)
            )
        if self.instances:
            said.append(
                counted(
                    len(self.instances),
                    "MIG instance is part of its card and is not stored beside it",
                    "MIG instances are part of their cards and are not stored beside them",
                )
                + "; what is told of instances only is not known of the card"
            )
        if self.unread:
            many = counted(len(self.unread), "metric has", "metrics have")
            said.append(f"{many} no column: {_listed(self.unread)}")
        return said


def _listed(counts: Mapping[str, int]) -> str:
    named = [f"{name} {count:,}" for name, count in sorted(counts.items())[:_SHOWN]]
    return ", ".join(named) + (", ..." if len(counts) > _SHOWN else "")


def _host(labels: Mapping[str, str], otherwise: str) -> str:
    for name in _HOSTS:
        found = labels.get(name)
        if found and not found.startswith(_PODS):
            return found
    instance = labels.get("instance", "").rpartition(":")[0] or labels.get("instance", "")
    return instance or otherwise


def _device(labels: Mapping[str, str], otherwise: str) -> Identity:
    uuid = next((labels[name] for name in _UUIDS if labels.get(name)), None)
    serial, index = labels.get("serial_number"), labels.get("gpu") or labels.get("gpu_id")
    if uuid is None and serial and index is not None:
        # AMD: packages of several devices share a serial number.
        part = labels.get("gpu_partition_id", "0")
        uuid = f"{serial}/{index}" + (f"/{part}" if part not in ("", "0") else "")
    if uuid is None:
        raise BadValueError("labels", "a label UUID, which alone tells a device", ", ".join(labels))
    is_index = index is not None and index.isascii() and index.isdigit() and len(index) < 6
    facts = {
        "gpu_index": int(index) if index is not None and is_index else None,
        "gpu_model": labels.get("modelName") or labels.get("card_model"),
    }
    # A device plugin that shares a card in time gives each share a name of its own.
    key = (_host(labels, otherwise), uuid.partition("::")[0])
    return Identity(key, facts, labels.get(_INSTANCE) or None)


def _port(labels: Mapping[str, str], otherwise: str) -> Identity:
    device, port = labels.get("device"), labels.get("port")
    if not device or not port:
        raise BadValueError("labels", "the labels device and port", ", ".join(labels))
    return Identity((_host(labels, otherwise), device, port), {})


DEVICES = Subject(
    "device_samples", ("host", "gpu_uuid", "ts_us"), DEVICE_FIELDS, DEVICE_NAMES, _device, True
)
LINKS = Subject(
    "port_samples", ("host", "device", "port", "ts_us"), LINK_FIELDS, LINK_NAMES, _port, False
)
