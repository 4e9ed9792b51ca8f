"""From what the caller named to the sink that it means."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from steptax.connectors.recorder.identity import Identity
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.segments import Encoder, SegmentWriter, job_folder
from steptax.connectors.recorder.sinks import FolderSink, Sink
from steptax.connectors.recorder.spool import Spool, default_spool
from steptax.connectors.recorder.spoolsink import SpoolSink
from steptax.connectors.recorder.target import Secret, Target
from steptax.connectors.recorder.transport import Transport

#: About a day of 64 ranks with a step a second.
SPOOL_BYTES = 256 * 2**20


class Delivery(NamedTuple):
    """Where rows go, and on which way. ``spool`` and what follows matter beyond folders only."""

    target: Target
    secret: Secret = Secret(None)
    spool: str | None = None
    """None: a folder of this user below the system's one for temporary files."""
    spool_bytes: int = SPOOL_BYTES


def make_sink(
    delivery: Delivery, identity: Identity, encoder: Encoder | None, notes: Notes
) -> Sink:
    """The sink of one rank; raises OSError when a spool cannot be made."""
    where = delivery.target.where
    if delivery.target.kind == "folder":
        beat_folder = os.path.join(where, "live", job_folder(identity.job_id))
        beat_path = (beat_folder, f"rank-{identity.rank:06d}.json")
        return FolderSink(SegmentWriter(where, identity.job_id, encoder), beat_path)
    return SpoolSink(
        open_spool(delivery),
        connector_of(delivery, notes),
        (identity.job_id, identity.rank, identity.attempt),
        encoder,
        notes,
        delivery.spool_bytes,
    )


def open_spool(delivery: Delivery) -> Spool:
    """The spool on this node; raises OSError."""
    return Spool(delivery.spool or default_spool(delivery.target.where))


def connector_of(delivery: Delivery, notes: Notes) -> Callable[[], Transport]:
    """What makes the connection once there is something to send, in the thread that sends."""
    where = delivery.target.where

    def connect() -> Transport:
        if delivery.target.kind == "http":
            from steptax.connectors.recorder.over_http import HttpTransport, is_loopback

            is_clear = where.lower().startswith("http:") and not is_loopback(where)
            if is_clear and delivery.secret.value is not None:
                notes.say("tls", "the token crosses the network in the clear: use https")
            return HttpTransport(where, delivery.secret)
        from steptax.connectors.recorder.over_fsspec import FsspecTransport

        return FsspecTransport(where)

    return connect
