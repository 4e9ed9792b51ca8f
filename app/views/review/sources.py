"""Which sources fell silent: what they would have told is unknown since then, and not zero."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median

from steptax.app.format import format_age, format_moment
from steptax.app.lake.unheard import unheard
from steptax.app.views.job.liveness import SILENT_S
from steptax.app.views.review.models import EmptyPeriod, SilentSource
from steptax.app.views.workspace import Workspace

#: A source is late after three times its usual pause, but not before an hour.
LATE_PAUSES = 3
LEAST_LATE_S = 3600.0
#: Pauses of a source that has told less often than this are not known: it is late after a day.
MIN_TOLD = 4
DAY_S = 86_400.0
#: Imports closer to each other are one.
LEAST_PAUSE_S = 600.0
_ACCOUNTING = {"jobs", "charges", "device_samples"}
_US = 1e6

CONNECT = (
    ("jobs of a scheduler, as they run", "steptax watch slurm"),
    ("jobs of an accounting file", "steptax ingest jobs FILE"),
    ("the provider's bill", "steptax ingest focus FILE"),
    ("step times of a job", "steptax ingest steps FILE --job ID"),
)


def silent_sources(ws: Workspace, now_us: int) -> tuple[SilentSource, ...]:
    """Watched sources, regular imports and recorders of jobs that are silent, longest first.

    An address that is followed is silent as soon as it does not answer, also if it never did.

    Files that come from one folder again and again, as an export does every night, are one source.
    """
    told: dict[str, list[int]] = defaultdict(list)
    names: dict[str, str] = {}
    watched: set[str] = set()
    for commit in ws.ingests():
        detail, tables = commit.detail, commit.detail.get("accepted", ())
        # The log of one job ends with it; accounting, bills and devices go on.
        if "steps" in tables or not _ACCOUNTING & {*tables}:
            continue
        watch, connector = detail.get("watch"), detail.get("connector")
        place = detail.get("address") or str(Path(str(detail.get("path", ""))).parent)
        key = f"{connector}:{place}" if watch is None else str(watch["key"])
        told[key].append(commit.created_us)
        by_address = watch is None or detail.get("address")
        names[key] = f"{connector}:{place}" if by_address else str(detail["source"])
        if watch is not None:
            watched.add(key)
    found = []
    for key, moments in told.items():
        last = max(moments)
        pauses = [(b - a) / _US for a, b in pairwise(sorted(moments))]
        usual = median(pauses) if len(moments) >= MIN_TOLD else None
        # Several files at once are one import, and one import promises no other.
        if key not in watched and (usual is None or usual < LEAST_PAUSE_S):
            continue
        late_s = DAY_S if usual is None else max(LEAST_LATE_S, LATE_PAUSES * usual)
        age_s = (now_us - last) / _US
        if age_s > late_s:
            often = "" if usual is None else f", every {format_age(usual)} before"
            found.append(_silent(names[key], last, f"it last told something then{often}"))
    late = {one.name for one in found}
    for note in unheard(ws.lake):
        if note.source not in late:
            why = f"it does not answer: {note.error}"
            found.append(_silent(note.source, note.since_us, why))
    for job_id in ws.lake.live_job_ids():
        beats = [b for b in ws.lake.heartbeats(job_id) if b["state"] == "running"]
        last = max((b["ts_us"] for b in beats), default=now_us)
        if (now_us - last) / _US > 10 * SILENT_S:
            found.append(_silent(f"recorder:{job_id}", last, "no rank was heard since"))
    return tuple(sorted(found, key=lambda one: (one.since_us, one.name)))


def _silent(name: str, since_us: int, why: str) -> SilentSource:
    return SilentSource(
        name, since_us, f"unknown since {format_moment(since_us)}: {name} is silent, {why}"
    )


def empty_period(period: str, record: str | None) -> EmptyPeriod:
    """What is said of a period in which no job held a device; ``record`` is what there is."""
    text = f"No job is known to have held a device in {period}. That is not $0: nothing tells."
    text += f" The record covers {record}." if record else " No job with dates is stored yet."
    return EmptyPeriod(text, CONNECT)
