"""Gauges of NCCL Inspector as a Prometheus server keeps them: one figure per series and window.

The newer labels tell neither rank nor sequence number, so what a series said in a window is the
distribution of a device's figure for a size bucket. Older labels tell them: then it is one
collective on one rank, however often it was scraped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np

from steptax.app.schema import Batch
from steptax.connectors.nccl.inspector_prom import COLUMN, GAUGES, collective_of, result_of
from steptax.connectors.tables.facts import rows_of


@dataclass
class Gauge:
    """One series: what its row says but for the values, and those in the span."""

    what: str
    row: dict[str, Any]
    is_collective: bool
    span_us: tuple[int, int] | None
    values: list[tuple[int, float]] = field(default_factory=list)

    def put(self, value: float, ts_us: int, row: int) -> None:
        """A value; ``row`` is the place of the first one in the source."""
        if self.span_us is not None and not self.span_us[0] < ts_us <= self.span_us[1]:
            return
        if math.isfinite(value) and value >= 0:
            self.row.setdefault("source_row", row)
            self.values.append((ts_us, value))


@dataclass
class InspectorSeries:
    """Takes series in any order. ``job_id`` is the job where no label names one.

    What lies outside ``span_us``, open at its begin, is left out.
    """

    job_id: str
    span_us: tuple[int, int] | None = None
    _gauges: list[Gauge] = field(default_factory=list)

    @staticmethod
    def takes(name: str) -> bool:
        """Whether a metric is one of the plugin."""
        return name in GAUGES

    def series(self, name: str, labels: Mapping[str, str]) -> Gauge:
        """The series ``name``; BadValueError where the labels do not tell whose it is."""
        what, unit = GAUGES[name]
        is_collective = "coll_sn" in labels
        if is_collective:
            job = labels.get("slurm_job") or labels.get("slurm_job_id")
            row = collective_of(labels, self.job_id if job in (None, "", "unknown") else job)
        else:
            row = result_of(labels, what, unit, self.job_id)
        found = Gauge(what, row, is_collective, self.span_us)
        self._gauges.append(found)
        return found

    def batches(self) -> list[Batch]:
        """The figures, and the collectives, as far as there are any."""
        figures: dict[tuple[Any, ...], Gauge] = {}
        joined: dict[tuple[Any, ...], dict[str, Any]] = {}
        for gauge in self._gauges:
            if not gauge.values:
                continue
            key = tuple(gauge.row.get(k) for k in _KEYS)
            if not gauge.is_collective:
                # The same series in several answers, or by labels that are no part of a figure.
                known = figures.setdefault(key, gauge)
                if known is not gauge:
                    known.values += gauge.values
                continue
            row, value = joined.setdefault(key, gauge.row), gauge.values[-1][1]
            row[COLUMN[gauge.what]] = round(value) if gauge.what == "time" else value
        found = {
            "bench_results": [_figure(gauge) for gauge in figures.values()],
            "collectives": list(joined.values()),
        }
        return [Batch(name, rows_of(name, own)) for name, own in found.items() if own]


_KEYS = ("run_id", "host", "gpu_uuid", "test", "size", "job_id", "comm_id", "op", "seq", "rank")


def _figure(gauge: Gauge) -> dict[str, Any]:
    values = np.array([value for _, value in gauge.values])
    low, high = (float(np.percentile(values, p)) for p in (5, 95))
    middle = median(values.tolist())
    begin_us = min(at for at, _ in gauge.values) if gauge.span_us is None else gauge.span_us[0]
    when = datetime.fromtimestamp(begin_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # The same figure of another window is another run of the same job.
    return gauge.row | {
        "run_id": f"{gauge.row['run_id']}#{when}",
        "value": middle,
        "p5": low,
        "p50": middle,
        "p95": high,
        "n": len(values),
        "measured_at_us": begin_us,
    }
