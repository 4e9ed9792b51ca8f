"""Storing what a connector read: everything of one input, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from steptax.app.lake.commits import Commit, Overtaken
from steptax.app.lake.lake import Lake
from steptax.app.lake.staging import Ingest, IngestResult
from steptax.app.lake.standing import known
from steptax.app.schema import Batch

__all__ = ["IngestResult", "fingerprint", "ingest"]


def fingerprint(paths: Sequence[Path], *facts: object) -> str:
    """Identity of an input: the content of its files and whatever changes how they are read."""
    digest = hashlib.sha256(orjson.dumps([str(fact) for fact in facts]))
    for path in paths:
        with path.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:24]


def ingest(
    lake: Lake,
    batches: Iterable[Batch],
    *,
    ingest_id: str,
    source: str,
    detail: dict[str, Any] | None = None,
    refuse_later_run: bool = False,
    refuse_older_attempt: bool = False,
    local_clock: bool = False,
) -> IngestResult:
    """Store ``batches`` as one input, all or nothing; an input that is stored adds nothing.

    One that was stored and of which rows are gone from the lake has those added again. ``batches``
    is not consumed when ``ingest_id`` is stored already. Whatever it raises is raised
    on, and nothing of the input becomes visible. ``refuse_later_run``: LaterRunError where its
    steps were stored before with other values, and it is later than those;
    ``refuse_older_attempt``: also where they begin after a newer attempt than their own;
    ``local_clock``: its moments are local times of a zone that nobody named, so that the run may be
    the same one.
    """
    before = known(lake, ingest_id)
    if before.is_stored:
        return _already(ingest_id, before.commits[0])
    work = Ingest(lake, ingest_id, source, detail=dict(detail or {}), before=before)
    try:
        for batch in batches:
            work.add(batch)
        return work.finish(
            refuse_later_run=refuse_later_run,
            refuse_older_attempt=refuse_older_attempt,
            local_clock=local_clock,
        )
    except Overtaken:
        work.abandon()
        if (first := lake.commits.get(ingest_id)) is None:
            raise
        return _already(ingest_id, first)
    except BaseException:
        work.abandon()
        raise


def _already(ingest_id: str, first: Commit) -> IngestResult:
    """The answer for an input that ``first`` has stored."""
    was = first.detail
    return IngestResult(
        ingest_id,
        str(was["source"]),
        True,
        dict.fromkeys(was["accepted"], 0),
        dict(was["rejected"]),
        dict(was["accepted"]),
        dict(was["repeated"]),
        tuple(was["first_rejects"]),
        tuple(was["job_ids"]),
        (*was["notes"], "this input was stored before; nothing was added"),
        dict(was.get("conflicting", {})),
    )
