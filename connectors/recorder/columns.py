"""The columns that a recorder writes, by table.

A copy of the lake's schema and not an import of it, because that one needs pyarrow; a test holds
the two equal.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column; ``kind`` is text, int (64 bits), int32, real or flag."""

    name: str
    kind: str
    required: bool = False


def _all(kind: str, names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names.split())


_JOB = Column("job_id", "text", required=True)
_ATTEMPT = Column("attempt", "int32", required=True)
_RANK = Column("rank", "int32", required=True)
_PROVENANCE = (
    Column("source", "text", required=True),
    Column("source_row", "int"),
    Column("ingested_at_us", "int", required=True),
)

STEPS = (
    _JOB,
    _ATTEMPT,
    Column("step", "int", required=True),
    _RANK,
    Column("start_us", "int"),
    Column("duration_us", "int", required=True),
    *_all("int", "compute_us comm_us transfer_us wait_us input_us checkpoint_us h2d_us gc_us"),
    *_all("int", "other_us collective_us tokens seq_sq_sum"),
    Column("loss", "real"),
    *_PROVENANCE,
)

JOBS = (
    _JOB,
    *_all("text", "name team project cluster owner framework state state_detail"),
    *_all("int", "submit_us start_us end_us"),
    Column("gpu_model", "text"),
    Column("world_size", "int"),
    *_all("int32", "tp_size pp_size dp_size cp_size ep_size vpp_size dsp_size micro_batches"),
    *_all("int", "tokens_per_step target_steps params_total params_active"),
    *_all("int", "layers hidden ffn heads kv_heads vocab seq_len experts topk"),
    Column("causal", "flag"),
    *_all("text", "recompute dtype attempt_of"),
    Column("gpu_hours", "real"),
    *_all("text", "time_basis account period hosts"),
    Column("is_sum", "flag"),
    *_PROVENANCE,
)

RANKS = (
    _JOB,
    _RANK,
    Column("host", "text"),
    Column("local_rank", "int32"),
    Column("gpu_uuid", "text"),
    Column("gpu_index", "int32"),
    *_all("int32", "tp pp dp cp ep"),
    Column("pid", "int"),
    *_PROVENANCE,
)

EVENTS = (
    _JOB,
    _ATTEMPT,
    Column("start_us", "int", required=True),
    Column("kind", "text", required=True),
    Column("end_us", "int"),
    *_all("text", "ranks detail"),
    *_PROVENANCE,
)

LINK_PROBES = (
    _JOB,
    _ATTEMPT,
    Column("step", "int", required=True),
    _RANK,
    Column("peer", "int32", required=True),
    Column("bytes", "int"),
    Column("duration_us", "int", required=True),
    *_PROVENANCE,
)

TABLES: dict[str, tuple[Column, ...]] = {
    "steps": STEPS,
    "jobs": JOBS,
    "ranks": RANKS,
    "events": EVENTS,
    "link_probes": LINK_PROBES,
}

EVENT_KINDS = frozenset(
    (
        "allocated",
        "process_start",
        "first_step",
        "checkpoint_save",
        "checkpoint_restore",
        "failure",
        "rollback",
        "restart",
        "eval",
        "pause",
        "evict",
        "maintenance",
        "process_end",
    )
)
