"""What a claim against a provider rests on: devices, what they did, benchmarks, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from steptax.app.compute.bench.bases import Figure
from steptax.app.compute.bench.compare import compare, median_of
from steptax.app.compute.devices.facts import DeviceFacts
from steptax.app.compute.devices.findings import Kind
from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import NotFoundError, UserError
from steptax.app.format import format_measure
from steptax.app.views.bench.view import load_figures
from steptax.app.views.bill.record import record_view
from steptax.app.views.devices.text import XIDS, by_rank, finding_text
from steptax.app.views.devices.view import DevicesView, devices_view
from steptax.app.views.evidence.models import BenchPair, BenchRow, EvidenceView, Incident, Lost
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.models import BillLine
from steptax.app.views.pricing.given import NO_PRICE
from steptax.app.views.workspace import Workspace

#: Raw samples that a pack holds.
MAX_SAMPLES = 200_000
#: Buckets of a job's bill that a failing node fills.
_FAILURES = ("lost_work", "recovery")
_S_PER_HOUR = 3600.0


def evidence_view(
    ws: Workspace,
    job_id: str,
    *,
    price: Decimal | None = None,
    last_steps: int | None = None,
    hosts: Sequence[str] = (),
    ranks: Sequence[int] = (),
    before: str | None = None,
    after: str | None = None,
) -> EvidenceView:
    """What is on record of the devices of ``ranks`` and ``hosts`` in ``job_id``.

    Without any, it is those that the straggler card names and those that are out of line.
    ``before`` and ``after`` are benchmark runs; without, each device's newest of before the window
    and newest of after it. NotFoundError for an unknown job, rank, host or run, for a job without
    a record of its ranks, and where nobody is accused.
    """
    seen = devices_view(ws, job_id, last_steps=last_steps)
    view = None
    if job_id in ws.job_ids_with_steps():
        view = job_view(ws, job_id, price=price, last_steps=last_steps)
    accused, chosen = _accused(seen, view, hosts, ranks)
    own = _only(seen, accused)
    figures = _figures(ws, own, before, after)
    rows = tuple(
        BenchRow(_when(figure, seen.window_us), figure, median_of(figure.repeats))
        for figure in figures
    )
    samples, cut = _samples(ws, own)
    record = record_view(ws, job_id, price=price)
    lost = _lost(view, record.bill.lines, own)
    return EvidenceView(
        job_id=job_id,
        window_us=seen.window_us,
        window_basis=seen.window_basis,
        chosen=chosen,
        devices=own,
        peers=len(seen.facts) - len(own.facts),
        incidents=_incidents(ws, own),
        bench=rows,
        pairs=_pairs(rows, before, after),
        lost=lost,
        samples=samples,
        sentence=_sentence(own, lost),
        card=None if view is None else view.card.sentence,
        price_basis=record.price.basis,
        warnings=(*seen.warnings, *cut),
    )


def _accused(
    seen: DevicesView, view: JobView | None, hosts: Sequence[str], ranks: Sequence[int]
) -> tuple[set[int], str]:
    known = {facts.rank for facts in seen.facts}
    on = {facts.host for facts in seen.facts if facts.host}
    for rank in ranks:
        if rank not in known:
            raise NotFoundError(
                f"rank {rank} has no record in the job", where="--rank", hint=_some(known)
            )
    for host in hosts:
        if host not in on:
            raise NotFoundError(
                f"no rank of the job ran on {host!r}", where="--host", hint=_some(on)
            )
    if ranks or hosts:
        named = {facts.rank for facts in seen.facts if facts.host in set(hosts)} | set(ranks)
        return named, "the ranks and hosts that were named"
    named = set() if view is None else set(view.card.culprit_ranks) & known
    named |= set(by_rank(seen))
    if not named:
        raise NotFoundError(
            "no device of the job is out of line and no rank is named as its straggler",
            where=seen.job_id,
            hint="name whom the claim is about: --host NAME or --rank R",
        )
    return named, "the straggler that the card names, and devices that are out of line"


def _some(known: set[int] | set[str]) -> str:
    listed = sorted(known)
    more = f" and {len(listed) - 20} more" if len(listed) > 20 else ""
    return f"there are {', '.join(map(str, listed[:20]))}{more}"


def _only(seen: DevicesView, ranks: set[int]) -> DevicesView:
    return replace(
        seen,
        facts=tuple(f for f in seen.facts if f.rank in ranks),
        findings=tuple(f for f in seen.findings if f.facts.rank in ranks),
    )


def _sentence(own: DevicesView, lost: Sequence[Lost]) -> str:
    places = sorted({facts.host for facts in own.facts if facts.host})
    one = len(own.facts) == 1
    text = "1 device" if one else f"{len(own.facts):,} devices"
    if places:
        text += f" on {', '.join(places[:6])}" + (" and others" if len(places) > 6 else "")
    out = len(by_rank(own))
    if one:
        text += " is" if out else " is not"
    else:
        text += f": {out:,} of them"
    text += " out of line with the peers in the job"
    codes = sum(len(facts.xids) for facts in own.facts)
    text += f"; Xid errors: {codes:,}" if codes else ""
    if lost and lost[0].gpu_hours.value is not None:
        text += f"; {lost[0].what}: {format_measure(lost[0].gpu_hours)}"
        if lost[0].usd.value is not None:
            text += f", {format_measure(lost[0].usd)}"
    return f"{text}."


# -- what happened --------------------------------------------------------------------------------


def _incidents(ws: Workspace, own: DevicesView) -> tuple[Incident, ...]:
    start_us, end_us = own.window_us
    found = [_xid_incident(f, place) for f in own.facts for place in range(len(f.xids))]
    found += [
        Incident(
            start_us,
            end_us,
            one.facts.rank,
            one.facts.host,
            one.facts.gpu_uuid,
            one.kind.value,
            f"it {finding_text(one)}",
        )
        for one in own.findings
        if one.kind is not Kind.XID  # each code has a line of its own
    ]
    ranks = {str(facts.rank) for facts in own.facts}
    for event in ws.engine.run("job_events", job_id=own.job_id).to_pylist():
        concerned = {part.strip() for part in (event["ranks"] or "").split(",") if part.strip()}
        if event["kind"] in ("failure", "restart", "rollback", "evict", "maintenance") and (
            not concerned or concerned & ranks
        ):
            who = f"ranks {event['ranks']}" if event["ranks"] else "the whole job"
            text = f"{who}: {event['detail']}" if event["detail"] else who
            found.append(
                Incident(event["start_us"], event["end_us"], None, None, None, event["kind"], text)
            )
    return tuple(sorted(found, key=lambda one: (one.from_us, one.kind, one.rank or 0)))


def _xid_incident(facts: DeviceFacts, place: int) -> Incident:
    xid = facts.xids[place]
    meaning = f": {XIDS[xid.code]}" if xid.code in XIDS else ""
    older = "" if xid.is_new else " (first seen at the start of its samples: may be older)"
    return Incident(
        xid.first_us,
        xid.first_us,
        facts.rank,
        facts.host,
        facts.gpu_uuid,
        "xid",
        f"Xid {xid.code}{meaning}{older}",
    )


def _samples(ws: Workspace, own: DevicesView) -> tuple[pa.Table, tuple[str, ...]]:
    uuids = sorted({facts.gpu_uuid for facts in own.facts if facts.gpu_uuid})
    first, last = own.window_us
    rows = ws.engine.run("device_rows", first_us=first, last_us=last, gpu_uuids=uuids)
    rows = rows.sort_by([(name, "ascending") for name in ("host", "gpu_uuid", "ts_us", "monitor")])
    if rows.num_rows <= MAX_SAMPLES:
        return rows, ()
    return rows.slice(0, MAX_SAMPLES), (
        f"samples.csv holds the first {MAX_SAMPLES:,} of {rows.num_rows:,} samples",
    )


# -- benchmarks -----------------------------------------------------------------------------------


def _figures(
    ws: Workspace, own: DevicesView, before: str | None, after: str | None
) -> list[Figure]:
    """Figures of the accused devices, and of their hosts where a figure is of no single device."""
    if (before is None) != (after is None):
        raise UserError(
            "--before and --after go together",
            where="--after" if after is None else "--before",
            hint="name a run each, or neither; steptax bench list shows them",
        )
    places = {(f.host, f.gpu_uuid) for f in own.facts}
    hosts = {f.host for f in own.facts}
    found = load_figures(ws)
    for run in filter(None, (before, after)):
        if all(figure.run_id != run for figure in found):
            raise NotFoundError(f"there is no benchmark run {run!r} in this lake", where=run)
    return sorted(
        (
            figure
            for figure in found
            if (figure.where in places or (figure.host in hosts and not figure.device_id))
            and (before is None or figure.run_id in (before, after))
        ),
        key=lambda f: (*f.where, f.test, f.dtype, f.size, f.measured_at_us, f.run_id),
    )


def _when(figure: Figure, window_us: tuple[int, int]) -> str:
    if figure.measured_at_us < window_us[0]:
        return "before"
    return "after" if figure.measured_at_us >= window_us[1] else "during"


def _pairs(
    rows: Sequence[BenchRow], before: str | None, after: str | None
) -> tuple[BenchPair, ...]:
    sides: dict[tuple[object, ...], dict[str, Figure]] = {}
    for row in rows:
        figure = row.figure
        side = row.when
        if before is not None:
            side = "before" if figure.run_id == before else "after"
        # In order of time, so that the newest of each side stays.
        sides.setdefault((*figure.where, *figure.what), {})[side] = figure
    return tuple(
        BenchPair(
            found["before"],
            found["after"],
            compare(found["after"].repeats, found["before"].repeats, found["after"].unit),
        )
        for found in sides.values()
        if "before" in found and "after" in found
    )


# -- what it cost ---------------------------------------------------------------------------------


def _lost(view: JobView | None, bill: Sequence[BillLine], own: DevicesView) -> tuple[Lost, ...]:
    ranks = {facts.rank for facts in own.facts}
    found = [] if view is None else _held_up(view, ranks)
    for line in bill:
        if line.bucket in _FAILURES and line.share is not None:
            seconds, cost = line.gpu_seconds, line.usd
            found.append(
                Lost(
                    f"{line.title}, the whole job",
                    Measure.missing("GPU-hours", "not told by the record")
                    if seconds is None
                    else Measure(seconds / _S_PER_HOUR, "GPU-hours", level=Level.LOG),
                    Measure.missing("USD", NO_PRICE)
                    if cost is None
                    else Measure(float(cost), "USD", level=Level.LOG),
                    line.note or "a bucket of the job's bill; whoever caused it",
                )
            )
    return tuple(found)


def _held_up(view: JobView, ranks: set[int]) -> list[Lost]:
    """What the steps of the window say, where it is about ``ranks``."""
    metrics, culprits = view.metrics, set(view.card.culprit_ranks)
    found = []
    if culprits & ranks:
        others = "" if culprits <= ranks else "; some of these ranks are not named here"
        found.append(
            Lost(
                "lost waiting for the ranks that are slow for good",
                metrics["recoverable_gpu_hours"],
                metrics["recoverable_usd"],
                f"all ranks waiting for them, beyond their peers' median, in the window{others}",
            )
        )
    hours = metrics["window_gpu_hours"].value
    for row in view.findings:
        if not ranks & set(row.ranks):
            continue
        lost = (
            row.lost.map(lambda share: share * hours, "GPU-hours")
            if hours is not None
            else Measure.missing("GPU-hours", metrics["window_gpu_hours"].reason or "")
        )
        found.append(Lost(f"finding: {row.sentence}", lost, row.cost_usd, "a part of the above"))
    return found
