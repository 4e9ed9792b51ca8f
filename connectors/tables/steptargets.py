"""The columns that a table of step times can have, and the names that files give them."""

from __future__ import annotations

from steptax.connectors.tables.columns import INT32_MAX, Kind, Target


def _phase(name: str, doc: str, *aliases: str, required: bool = False) -> Target:
    return Target(name, f"{name}_us", Kind.TIME, doc, aliases, required=required, floor=0)


def _count(name: str, doc: str, *aliases: str, required: bool = False) -> Target:
    """A small whole number: a rank, a coordinate, an index."""
    return Target(
        name, name, Kind.WHOLE, doc, aliases, required=required, floor=0, ceiling=INT32_MAX
    )


#: Phases that make up a step; transfer and wait are the parts of comm.
PHASES = (
    _phase("compute", "forward, backward and optimiser", "computation"),
    _phase("comm", "exposed communication: transfer and waiting", "communication"),
    _phase("input", "waiting for data", "data", "dataloader", "data_loading", "data_wait"),
    _phase("checkpoint", "blocking part of a checkpoint", "ckpt"),
    _phase("h2d", "host to device copies", "host_to_device"),
    _phase("gc", "garbage collector pauses", "garbage_collection"),
    _phase("other", "measured, but none of these"),
    _phase("collective", "own time inside a collective, not in comm: before the library is called"),
)
COMM_PARTS = (
    _phase("transfer", "part of comm after the last peer had arrived"),
    _phase("wait", "part of comm before the last peer had arrived", "waiting"),
)
DURATION = _phase(
    "duration",
    "step start to step end on this rank; the sum of the phases where there is none",
    "step_time",
    "iteration_time",
    "iter_time",
    "step_duration",
    "batch_time",
    required=True,
)
STEP = Target(
    "step",
    "step",
    Kind.WHOLE,
    "optimiser step; a column 'time' counts when nothing else is one",
    ("iteration", "iter", "global_step"),
    required=True,
    floor=0,
)
RANK = _count("rank", "global rank", "global_rank", "worker", "worker_id", "process", required=True)
ATTEMPT = _count("attempt", "attempt of the job, from 0")
JOB = Target(
    "job_id", "job_id", Kind.TEXT, "the job of a row; else --job or the file's name", ("job",)
)
START = Target(
    "start",
    "start_us",
    Kind.MOMENT,
    "step start on this rank's clock, ISO 8601 or since 1970",
    ("start_time", "step_start"),
)
EXTRAS = (
    Target("tokens", "tokens", Kind.WHOLE, "tokens of this rank", ("num_tokens",), floor=0),
    Target("seq_sq_sum", "seq_sq_sum", Kind.WHOLE, "sum of squared sequence lengths", floor=0),
    Target("loss", "loss", Kind.REAL, "training loss", ("train_loss", "lm_loss")),
)
PLACE = (
    Target("host", "host", Kind.TEXT, "node name", ("hostname", "node", "node_name")),
    Target("gpu_uuid", "gpu_uuid", Kind.TEXT, "device identity"),
    _count("gpu_index", "device index on its node"),
    _count("local_rank", "rank on its node"),
    _count("tp", "tensor parallel rank", "tp_rank"),
    _count("pp", "pipeline stage", "pp_rank", "stage"),
    _count("dp", "data parallel rank", "dp_rank"),
    _count("cp", "context parallel rank", "cp_rank"),
    _count("ep", "expert parallel rank", "ep_rank"),
)
TARGETS = (STEP, RANK, DURATION, *PHASES, *COMM_PARTS, *EXTRAS, START, JOB, ATTEMPT, *PLACE)
