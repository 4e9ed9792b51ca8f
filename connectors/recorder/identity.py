"""Who and where this rank is: the rows of ``jobs`` and ``ranks``."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from steptax.connectors.recorder.columns import JOBS, RANKS
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.values import INT32_MAX, row_of, text, whole


class Identity:
    """Job, attempt and rank. Raises TypeError or ValueError when they cannot be a row's key.

    What is wrong in ``job`` or ``topology`` is left out and said: better a job without its model
    size than none.
    """

    def __init__(
        self,
        job_id: Any,
        rank: Any,
        world_size: Any,
        attempt: Any,
        job: Mapping[str, Any] | None,
        topology: Mapping[str, Any] | None,
        notes: Notes,
    ) -> None:
        self.job_id = text(job_id)
        if not self.job_id:
            raise ValueError("job_id is empty")
        self.rank = whole(rank, INT32_MAX)
        self.attempt = whole(attempt, INT32_MAX)
        self.world_size = whole(world_size)
        self.host = text(socket.gethostname())
        self.pid = os.getpid()
        self._job = _stated("job", JOBS, job, notes)
        self._topology = _stated("topology", RANKS, topology, notes)
        local_rank, _ = row_of(RANKS, {"local_rank": _number(os.environ.get("LOCAL_RANK"))})
        self._local_rank = local_rank.get("local_rank")

    def key(self) -> dict[str, Any]:
        """Columns that are the same in every row."""
        return {"job_id": self.job_id, "attempt": self.attempt, "rank": self.rank}

    def rank_row(self, gpu_uuid: str | None) -> dict[str, Any]:
        """Where this rank runs."""
        place = {
            "host": self.host,
            "local_rank": self._local_rank,
            "gpu_uuid": gpu_uuid,
            "pid": self.pid,
        }
        return {**place, **self._topology}

    def job_row(
        self, state: str | None, start_us: int | None, end_us: int | None, gpu_model: str | None
    ) -> dict[str, Any]:
        """What is known of the job. ``start_us`` and ``gpu_model`` hold unless stated."""
        return {
            "start_us": start_us,
            "gpu_model": gpu_model,
            **self._job,
            "world_size": self.world_size,
            "state": state,
            "end_us": end_us,
            "time_basis": "wall",
        }


def _stated(
    what: str, columns: Any, given: Mapping[str, Any] | None, notes: Notes
) -> dict[str, Any]:
    row, wrong = row_of(columns, given)
    for problem in wrong:
        notes.misused(f"{what}: {problem}", topic=what)
    for column in ("job_id", "rank", "source", "source_row", "ingested_at_us"):
        row.pop(column, None)
    return row


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() else None
