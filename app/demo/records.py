"""What the supervisor itself writes into the lake: events that no worker lives to tell."""

from __future__ import annotations

import time

from steptax.app.demo.config import DemoConfig
from steptax.connectors.recorder.segments import SegmentWriter

SOURCE = "demo"


def record_event(
    config: DemoConfig,
    kind: str,
    *,
    at_us: int,
    ranks: tuple[int, ...] | None = None,
    detail: str | None = None,
) -> None:
    """Append one event of the job at ``at_us`` (microseconds since 1970, UTC).

    ``ranks`` None means all. Raises OSError when the disk does not take it.
    """
    now_us = time.time_ns() // 1000
    row = {
        "job_id": config.job_id,
        "attempt": 0,
        "start_us": at_us,
        "kind": kind,
        "ranks": None if ranks is None else ",".join(map(str, ranks)),
        "detail": detail,
        "source": SOURCE,
        "ingested_at_us": now_us,
    }
    columns = {name: [value] for name, value in row.items()}
    SegmentWriter(str(config.lake), config.job_id, None).write("events", columns, 1, now_us)
