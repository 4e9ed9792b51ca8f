"""Heartbeats of a node's ranks on their way over the network: only the newest of each matters."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from steptax.connectors.recorder.spool import Gaps, Spool
from steptax.connectors.recorder.transport import DONE, Answer, Transport

_FORGET_NS = 7 * 86_400 * 10**9


class BeatSender:
    """Sends the heartbeats that changed, each with the rows that its rank has lost on the way."""

    def __init__(self, spool: Spool, gaps: Gaps, sender: str) -> None:
        self._spool = spool
        self._gaps = gaps
        self._sender = sender
        self._sent: dict[str, tuple[int, int]] = {}
        """By path: when the heartbeat had changed, and the rows that were lost by then."""

    def send(self, transport: Transport) -> Answer:
        """Send what changed; raises OSError for a spool that cannot be written."""
        now_ns = time.time_ns()
        changed: dict[str, tuple[int, int]] = {}
        beats: list[dict[str, Any]] = []
        for path, job_id, changed_ns in self._spool.beats():
            beat = _read_beat(path)
            if beat is None:
                continue
            rows, sentence = self._gaps.of(job_id, beat["rank"])
            if self._sent.get(path) == (changed_ns, rows):
                if now_ns - changed_ns > _FORGET_NS:
                    os.unlink(path)
                    del self._sent[path]
                continue
            changed[path] = (changed_ns, rows)
            beat["job_id"] = job_id
            if sentence is not None:
                beat["rows_dropped"] = beat.get("rows_dropped", 0) + rows
                beat["last_error"] = sentence
            beats.append(beat)
        answer = transport.send_beats(self._sender, beats) if beats else DONE
        if answer.kind == "done":
            self._sent |= changed
            self._spool.mark_beats(now_ns)
        return answer


def _read_beat(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            beat = json.load(file)
    except (OSError, ValueError):
        return None
    return beat if isinstance(beat, dict) and type(beat.get("rank")) is int else None
