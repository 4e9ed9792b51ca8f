"""The tables of the evidence for a claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from steptax.app.charts.tables import Column, Table, records_table, table
from steptax.app.compute.devices.facts import FIGURES
from steptax.app.views.evidence.models import EvidenceView


def claimed_devices_table(view: EvidenceView, serials: Mapping[str, str]) -> Table:
    """Who the claim is about; ``serials`` are board serial numbers by UUID."""
    columns = (
        Column("rank", "rank", "count"),
        Column("host", "host", "text"),
        Column("gpu_uuid", "device UUID", "text"),
        *((Column("serial", "board serial", "text"),) if serials else ()),
        Column("gpu_model", "model", "text"),
        Column("samples", "samples", "count"),
        Column("newest", "newest sample", "time"),
        Column("monitors", "seen by", "text"),
        Column("unknown", "not known", "text"),
    )
    rows = [
        (
            facts.rank,
            facts.host,
            facts.gpu_uuid,
            *((serials.get(facts.gpu_uuid or "", ""),) if serials else ()),
            facts.gpu_model,
            facts.samples,
            facts.newest_us,
            ", ".join(facts.monitors),
            facts.reason,
        )
        for facts in view.devices.facts
    ]
    return table(columns, rows)


def incidents_table(view: EvidenceView) -> Table:
    """What happened, in order."""
    columns = (
        Column("from", "from", "time"),
        Column("until", "until", "time"),
        Column("kind", "what", "text"),
        Column("rank", "rank", "count"),
        Column("host", "host", "text"),
        Column("gpu_uuid", "device UUID", "text"),
        Column("text", "on record", "text"),
    )
    rows = [
        (
            one.from_us,
            one.until_us,
            one.kind,
            one.rank,
            one.host,
            one.gpu_uuid,
            one.text,
        )
        for one in view.incidents
    ]
    return table(columns, rows)


def facts_table(view: EvidenceView) -> Table:
    """Every figure that a device and its peers tell, side by side."""
    columns = (
        Column("rank", "rank", "count"),
        Column("gpu_uuid", "device UUID", "text"),
        Column("figure", "figure", "text"),
        Column("own", "its own", "number"),
        Column("peers", "median of its peers", "number"),
        Column("unit", "unit", "text"),
    )
    rows = [
        (
            facts.rank,
            facts.gpu_uuid,
            FIGURES[name].title,
            against.own.value,
            against.peers.value,
            against.own.unit,
        )
        for facts in view.devices.facts
        for name, against in facts.figures.items()
        if against.own.value is not None and against.peers.value is not None
    ]
    return table(columns, rows)


def bench_rows_table(view: EvidenceView) -> Table:
    """Every benchmark figure of these devices."""
    columns = (
        Column("when", "when", "text"),
        Column("measured_at", "measured", "time"),
        Column("run_id", "run", "text"),
        Column("host", "host", "text"),
        Column("gpu_uuid", "device UUID", "text"),
        Column("test", "test", "text"),
        Column("size", "size", "text"),
        Column("dtype", "type", "text"),
        Column("median", "median", "number"),
        Column("unit", "unit", "text"),
        Column("repeats", "repeats", "text"),
    )
    rows = [
        (
            row.when,
            row.figure.measured_at_us,
            row.figure.run_id,
            row.figure.host,
            row.figure.device_id,
            row.figure.test,
            row.figure.size,
            row.figure.dtype,
            row.median,
            row.figure.unit,
            " ".join(f"{value:g}" for value in row.figure.repeats),
        )
        for row in view.bench
    ]
    return table(columns, rows)


def lost_table(view: EvidenceView) -> Table:
    """What was lost, by each count."""
    columns = (
        Column("what", "what", "text"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("usd", "cost", "usd"),
        Column("basis", "rests on", "text"),
        Column("unknown", "why it is not known", "text"),
    )
    rows = [
        (
            one.what,
            one.gpu_hours.value,
            one.usd.value,
            one.basis,
            "; ".join(dict.fromkeys(m.reason for m in (one.gpu_hours, one.usd) if m.reason)),
        )
        for one in view.lost
    ]
    return table(columns, rows)


def samples_table(view: EvidenceView) -> Table:
    """The raw samples."""
    made = records_table(view.samples.to_pylist())
    # Written as moments with their zone, not as microseconds.
    columns = tuple(replace(c, key="time") if c.key == "ts_us" else c for c in made.columns)
    return replace(made, columns=columns)


def bench_pairs_table(view: EvidenceView) -> Table:
    """Each figure that was taken before and after, and whether it fell."""
    columns = (
        Column("host", "host", "text"),
        Column("gpu_uuid", "device UUID", "text"),
        Column("test", "test", "text"),
        Column("unit", "unit", "text"),
        Column("before", "before", "number"),
        Column("before_at", "measured", "time"),
        Column("before_run", "run", "text"),
        Column("after", "after", "number"),
        Column("after_at", "measured", "time"),
        Column("after_run", "run", "text"),
        Column("gap_ratio", "missing after", "ratio"),
        Column("verdict", "verdict", "text"),
    )
    medians = {id(row.figure): row.median for row in view.bench}
    rows = [
        (
            pair.after.host,
            pair.after.device_id,
            " ".join(filter(None, (pair.after.test, pair.after.size, pair.after.dtype))),
            pair.after.unit,
            medians[id(pair.before)],
            pair.before.measured_at_us,
            pair.before.run_id,
            medians[id(pair.after)],
            pair.after.measured_at_us,
            pair.after.run_id,
            pair.comparison.gap.value,
            f"{pair.comparison.status}: {pair.comparison.reason}",
        )
        for pair in view.pairs
    ]
    return table(columns, rows)
