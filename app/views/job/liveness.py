"""Who still reports, how old the newest data is, and what the silent ranks were doing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptax.app.format import format_age, format_moment
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.models import StoppedRank

#: Seconds without a sign of life after which a recorder counts as gone.
SILENT_S = 6.0
#: A running job's data is stale when it is older than this many of its own intervals ...
STALE_INTERVALS = 3.0
#: ... and than this, since recorders write about once a second.
STALE_FLOOR_S = 6.0


@dataclass(frozen=True)
class Liveness:
    """What the heartbeats and the newest rows say together."""

    is_live: bool
    stopped: tuple[StoppedRank, ...]
    stale: str | None
    is_heard: bool
    """Whether any rank gave a sign of life of late."""
    newest_us: int | None
    newest_age_s: float | None


def has_ended(job: Mapping[str, Any]) -> bool:
    """Whether ``job`` goes on no more, as far as its record tells."""
    return job.get("state") not in (None, "running")


def newest_beat(beats: Sequence[Mapping[str, Any]]) -> int | None:
    """When the last rank that runs gave a sign of life."""
    return max((int(b["ts_us"]) for b in beats if b["state"] == "running"), default=None)


def goes_on(job: Mapping[str, Any], newest_beat_us: int | None, now_us: int) -> bool:
    """Whether ``job``, a row of ``ws.jobs()``, runs: it was heard within the hour."""
    if newest_beat_us is None or has_ended(job):
        return False
    return (now_us - newest_beat_us) / 1e6 < 3600.0


def liveness(
    loaded: LoadedJob,
    beats: list[dict[str, Any]],
    *,
    stopped_ranks: tuple[int, ...],
    now_us: int,
) -> Liveness:
    """Judge by ``beats`` (empty for imported data) at the moment ``now_us``."""
    newest_beat_us = newest_beat(beats)
    is_live = goes_on(loaded.job, newest_beat_us, now_us)
    age_s = None if loaded.newest_us is None else max(0.0, (now_us - loaded.newest_us) / 1e6)
    is_heard = newest_beat_us is not None and (now_us - newest_beat_us) / 1e6 < SILENT_S
    stopped = _stopped(loaded, beats, stopped_ranks, now_us)
    return Liveness(
        is_live,
        stopped,
        _stale(loaded, age_s, is_heard=is_heard) if is_live else None,
        is_heard,
        loaded.newest_us,
        age_s,
    )


def _stopped(
    loaded: LoadedJob, beats: list[dict[str, Any]], stopped_ranks: tuple[int, ...], now_us: int
) -> tuple[StoppedRank, ...]:
    """Ranks whose recorder fell silent while it should run, and ranks whose rows stopped."""
    found: dict[int, StoppedRank] = {}
    running = [beat for beat in beats if beat["state"] == "running"]
    alive = [beat for beat in running if (now_us - beat["ts_us"]) / 1e6 < SILENT_S]
    latest = max((beat["ts_us"] for beat in beats), default=0)
    for beat in running:
        # Once everything is silent (the job ended, the machine is gone, or the data is old) compare
        # with the last sign of life of any rank: the first to fall silent still stands out.
        reference = now_us if alive else latest
        if (reference - beat["ts_us"]) / 1e6 < SILENT_S:
            continue
        found[beat["rank"]] = _from_beat(loaded, beat, alive, now_us)
    if not beats:
        matrix = loaded.matrix
        for rank in stopped_ranks:
            column = int(np.flatnonzero(matrix.ranks == rank)[0])
            last = int(matrix.steps[np.flatnonzero(matrix.reported[:, column])[-1]])
            newest = int(matrix.steps[-1])
            found[rank] = StoppedRank(
                rank,
                _host(loaded, rank),
                last,
                None,
                None,
                f"rank {rank} last reported step {last:,}; the newest step is {newest:,}",
            )
    missing = set(loaded.places) - {int(r) for r in loaded.matrix.ranks} - set(found)
    for rank in sorted(missing):
        found[rank] = StoppedRank(
            rank,
            _host(loaded, rank),
            None,
            None,
            None,
            f"rank {rank} has reported no step in this window",
        )
    return tuple(found[rank] for rank in sorted(found))


def _from_beat(
    loaded: LoadedJob, beat: dict[str, Any], alive: list[dict[str, Any]], now_us: int
) -> StoppedRank:
    rank = int(beat["rank"])
    age = format_age((now_us - beat["ts_us"]) / 1e6)
    done = beat.get("last_step_done")
    doing = beat.get("phase")
    text = f"rank {rank} stopped reporting {age} ago ({format_moment(beat['ts_us'])})"
    if done is not None:
        text += f", after step {done:,}"
    if doing not in (None, "idle"):
        text += f", while in {doing} of step {beat['step']:,}"
    waiting = [b for b in alive if b.get("phase") == "collective"]
    if waiting:
        since = statistics.median(b["phase_since_us"] for b in waiting)
        text += (
            f"; {len(waiting):,} of the {len(alive):,} others have waited for it in the collective "
            f"for {format_age((now_us - since) / 1e6)}"
        )
    return StoppedRank(
        rank, beat.get("host") or _host(loaded, rank), done, beat["ts_us"], doing, text
    )


def _host(loaded: LoadedJob, rank: int) -> str | None:
    return loaded.places.get(rank, {}).get("host")


def _stale(loaded: LoadedJob, age_s: float | None, *, is_heard: bool) -> str | None:
    if age_s is None:
        return None
    interval_s = float(np.nanmedian(loaded.matrix.duration_us)) / 1e6
    limit_s = max(STALE_FLOOR_S, STALE_INTERVALS * interval_s)
    if age_s <= limit_s:
        return None
    why = (
        "the job hangs, is paused, or its recorder cannot write"
        if is_heard
        else "no rank gives a sign of life; the job was killed, or its machines are out of reach"
    )
    return (
        f"the newest step ended {format_age(age_s)} ago; a step takes {format_age(interval_s)}: "
        f"{why}"
    )
