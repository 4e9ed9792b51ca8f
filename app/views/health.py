"""Sources, stored rows, recorders and rejects."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

from steptax.app.format import format_age
from steptax.app.lake.commits import Commit
from steptax.app.lake.kept import dropped
from steptax.app.lake.standing import lost, together
from steptax.app.lake.unheard import unheard
from steptax.app.schema import TABLES
from steptax.app.views.devices.sampling import gap_warnings, sample_gaps
from steptax.app.views.health_models import HealthView, SourceRow
from steptax.app.views.job.liveness import SILENT_S
from steptax.app.views.workspace import Workspace

#: Rejects listed on the page; all of them are in the table ``rejects``.
LISTED_REJECTS = 200
#: What ends a warning of which that says more.
SEE_DOCTOR = "(steptax doctor says what to do)"


def health_view(ws: Workspace, *, now_us: int | None = None) -> HealthView:
    """What is stored, where it came from, what was refused, and whether it still comes."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    recorders = tuple(
        _recorder(job_id, beat, now)
        for job_id in ws.lake.live_job_ids()
        for beat in ws.lake.heartbeats(job_id)
    )
    sources = (*_unheard(ws, now), *_imports(ws, now), *_live_sources(ws, recorders, now))
    rejects = ws.engine.run("recent_rejects", limit_rows=LISTED_REJECTS).to_pylist()
    rejected = sum(source.rejected for source in sources)
    dropped = sum(recorder["rows_dropped"] for recorder in recorders)
    gaps = sample_gaps(ws, now_us=now)
    counts = ws.lake.row_counts()
    total = sum(counts.values())
    sentence = (
        f"{total:,} rows from {len(sources):,} {'source' if len(sources) == 1 else 'sources'}; "
        f"{rejected:,} rows were rejected and "
        f"{dropped:,} were dropped by recorders."
        if sources
        else f"{total:,} rows from collectors."
        if total
        else "Nothing is stored yet: steptax demo makes a job, steptax ingest imports one."
    )
    warnings = tuple(
        f"the recorder of rank {r['rank']} of {r['job_id']} dropped {r['rows_dropped']:,} rows: "
        f"{r['last_error'] or 'its queue was full'}"
        for r in recorders
        if r["rows_dropped"]
    )
    return HealthView(
        sentence,
        sources,
        {name: counts[name] for name in TABLES},
        {name: len(ws.lake.segments(name)) for name in TABLES},
        tuple(rejects),
        recorders,
        (*_lost(ws), *warnings, *_dropped(ws), *gap_warnings(gaps)),
        gaps,
    )


def _lost(ws: Workspace) -> tuple[str, ...]:
    """Segments that are gone, by table and job; to whoever may see every job."""
    if ws.lake.scope:
        return ()
    found = together(one for one in lost(ws.lake) if not one.is_mended)
    return tuple(f"{one.sentence} {SEE_DOCTOR}" for one in found)


def _dropped(ws: Workspace) -> tuple[str, ...]:
    """What retention took, by table."""
    found = (dropped(ws.lake, name) for name in TABLES)
    return tuple(f"{one.table}: {one.sentence}" for one in found if one is not None)


def _unheard(ws: Workspace, now_us: int) -> tuple[SourceRow, ...]:
    """Addresses that are followed and do not answer."""
    return tuple(
        SourceRow(
            note.source,
            "watch",
            "none",
            0,
            0,
            note.since_us,
            (now_us - note.since_us) / 1e6,
            f"does not answer: {note.error}",
        )
        for note in unheard(ws.lake)
    )


def _imports(ws: Workspace, now_us: int) -> tuple[SourceRow, ...]:
    """One row per import, and one per file or address that is watched, over all looks at it."""
    groups: dict[tuple[str, str], list[Commit]] = {}
    for number, commit in enumerate(reversed(ws.ingests())):
        groups.setdefault(_source_of(commit, number), []).append(commit)
    rows = []
    for (name, _), commits in groups.items():
        newest = max(commit.created_us for commit in commits)
        accepted, rejected = (
            sum((Counter(commit.detail[name]) for commit in commits), Counter[str]())
            for name in ("accepted", "rejected")
        )
        rows.append(
            SourceRow(
                name,
                "import",
                ", ".join(accepted) or "none",
                sum(accepted.values()),
                sum(rejected.values()),
                newest,
                (now_us - newest) / 1e6,
                "complete" if not rejected else "complete, with rejects",
            )
        )
    return tuple(rows)


def _source_of(commit: Commit, number: int) -> tuple[str, str]:
    """The name of a source, and what tells it from others of that name; ``number`` is unique."""
    detail = commit.detail
    source, watch = str(detail["source"]), detail.get("watch")
    if detail.get("address"):
        return f"{detail.get('connector')}:{detail['address']}", "watched"
    # Watches of before named the windows of a server only: HOST-PORT-BEGIN-END.json.
    window = re.fullmatch(r"(prometheus:.+)-\d{13}-\d{13}\.json", source)
    if watch is not None and window is not None:
        return window[1], "watched"
    return source, str(number) if watch is None else str(watch["key"])


def _live_sources(
    ws: Workspace, recorders: tuple[dict[str, Any], ...], now_us: int
) -> tuple[SourceRow, ...]:
    rows = []
    for job_id in dict.fromkeys(recorder["job_id"] for recorder in recorders):
        mine = [recorder for recorder in recorders if recorder["job_id"] == job_id]
        last_us = max(recorder["ts_us"] for recorder in mine)
        states = [recorder["status"] for recorder in mine]
        running = states.count("running")
        silent = sum(state.startswith("silent") for state in states)
        state = f"{running} of {len(mine)} running" if running or silent else "closed"
        if silent:
            state += f", {silent} silent"
        rows.append(
            SourceRow(
                f"recorder:{job_id}",
                "recorder",
                "steps, ranks, events, jobs",
                sum(recorder["rows_written"] for recorder in mine),
                0,
                last_us,
                (now_us - last_us) / 1e6,
                state,
            )
        )
    return tuple(rows)


def _recorder(job_id: str, beat: dict[str, Any], now_us: int) -> dict[str, Any]:
    age_s = (now_us - beat["ts_us"]) / 1e6
    status = beat["state"]
    if status == "running" and age_s > SILENT_S:
        status = f"silent for {format_age(age_s)}"
    return {
        "job_id": job_id,
        "rank": beat["rank"],
        "host": beat.get("host"),
        "pid": beat.get("pid"),
        "status": status,
        "step": beat.get("step"),
        "phase": beat.get("phase"),
        "ts_us": beat["ts_us"],
        "age_s": age_s,
        "rows_written": beat.get("rows_written", 0),
        "rows_dropped": beat.get("rows_dropped", 0),
        "overhead_us_mean": beat.get("overhead_us_mean"),
        "last_error": beat.get("last_error"),
    }
